# shellcheck shell=sh disable=SC2154,SC2034 # variables are shared with ./dev
# Which test programs a run is about: all, those that a name is in, those that a change concerns. Each is built and listed
# in $scratch/programs (cargo.sh: programs_of). Sourced by ./dev.

# members — folder and package of every crate: the workspace's, and the simulation that has to be built apart.
members() {
    { sed -n '/^members = \[/,/^\]/s/^ *"\(.*\)",$/\1/p' Cargo.toml && echo tests/sim; } | while read -r folder; do
        echo "$folder $(sed -n 's/^name = "\(.*\)"/\1/p' "$folder/Cargo.toml" | head -n 1)"
    done
}

# crate_of FILE — folder and package of the crate that a file belongs to.
crate_of() {
    members | awk -v file="$1" 'index(file, $1 "/") == 1 && length($1) > length(best) { best = $1; line = $0 } END { if (best) print line }'
}

# integration FOLDER — the names of a crate's integration programs.
integration() {
    sed -n '/^\[\[test\]\]/,/^$/s/^name = "\(.*\)"/\1/p' "$1/Cargo.toml"
    grep -q '^autotests = false' "$1/Cargo.toml" || for main in "$1"/tests/*/main.rs "$1"/tests/*.rs; do
        [ ! -e "$main" ] || echo "${main#"$1"/tests/}" | sed 's/\/main\.rs$//; s/\.rs$//'
    done
}

# targets_of NAME — Cargo's targets, one a line, of a program or a crate of that name.
targets_of() {
    members | while read -r folder package; do
        case $1 in
        "$package" | "${package#trieste-}" | "$folder")
            unit_targets "$folder" "$package"
            integration "$folder" | sed 's/^/--test /'
            ;;
        *) integration "$folder" | grep -x "$1" | sed 's/^/--test /' ;;
        esac
    done
}

# unit_targets FOLDER PACKAGE — its library and programs.
unit_targets() {
    [ ! -e "$1/src/lib.rs" ] || echo "--lib $2"
    [ ! -e "$1/src/main.rs" ] && [ ! -d "$1/src/bin" ] || echo "--bins $2"
}

# targets_with NAME — the same for the places where a test or a module of that name is.
targets_with() {
    last=${1%::}
    last=${last##*::}
    {
        git grep --untracked -lE "fn ([a-z0-9_]*${last}[a-z0-9_]*)\(" -- '*.rs'
        git ls-files -co --exclude-standard -- "*/$last.rs" "*/$last/*.rs"
    } | while read -r file; do
        crate=$(crate_of "$file")
        [ -n "$crate" ] || continue
        folder=${crate%% *} package=${crate##* }
        case ${file#"$folder"/} in
        tests/*.rs)
            program=${file#"$folder"/tests/}
            program=${program%%/*}
            program=${program%.rs}
            [ "$program" != all ] || program=$(integration "$folder" | head -n 1)
            echo "--test $program"
            ;;
        src/main.rs | src/bin/*) echo "--bins $package" ;;
        # Its library's, or its programs' where there is none.
        src/*) unit_targets "$folder" "$package" | head -n 1 ;;
        *) ;;
        esac
    done | sort -u
}

# changed_packages — the crates that differ from main, and all that depend on them.
changed_packages() {
    base=$(git merge-base HEAD origin/main 2>/dev/null || git rev-parse main)
    { git diff --name-only "$base" && git ls-files -o --exclude-standard; } | sort -u | while read -r file; do
        crate_of "$file"
        case $file in
        Cargo.toml | Cargo.lock | rust-toolchain.toml) members ;;
        *) ;;
        esac
    done | sort -u | while read -r _folder package; do
        dependents "$package"
        # The tests of several programs start what is shipped.
        case " $shipped " in
        *" $package "*) dependents trieste-tests ;;
        *) ;;
        esac
    done | sort -u
}

# dependents PACKAGE — it and all that depend on it.
dependents() {
    echo "$1"
    {
        cargo tree --workspace --locked -e normal,build,dev -i "$1" --prefix none || :
        simulation tree -e normal,build,dev -i "$1" --prefix none || :
    } 2>/dev/null | awk '$1 ~ /^trieste-/ { print $1 }'
}

# build_programs — the programs that tests start; peers are built meanwhile.
build_programs() {
    peers_begin
    step "building the programs"
    cargo build --workspace --bins --locked || die "" "The programs do not build: the compiler's own message is above."
}

# list_programs FILE COMMAND… — adds test programs to a list.
list_programs() {
    list=$1
    shift
    programs_of "$@" >>"$list" || die "" "The tests do not build: the compiler's own message is above."
}

# build_every_test — all of them, and with them the programs that they start.
build_every_test() {
    peers_begin
    step "building programs and tests"
    list_programs "$scratch/every" cargo test --workspace --locked --timings
    # Cargo builds programs for the tests of their own package, which not every one has.
    cargo build --workspace --bins --locked || die "" "The programs do not build: the compiler's own message is above."
    step "building the simulation"
    list_programs "$scratch/every" simulation test
    keep_crates
}

select_all() {
    build_every_test
    cp "$scratch/every" "$scratch/programs"
}

# select_changed — everything is built, which costs what has changed; what is run is what it concerns.
select_changed() {
    changed=$(changed_packages | tr '\n' ' ')
    say "Changed, or depending on what has: ${changed:-nothing}"
    build_every_test
    while read -r name path folder; do
        package=$(sed -n 's/^name = "\(.*\)"/\1/p' "$folder/Cargo.toml" | head -n 1)
        case " $changed " in
        *" $package "*) echo "$name $path $folder" ;;
        *) ;;
        esac
    done <"$scratch/every" >"$scratch/programs"
}

# select_named NAME — a test of any other name is not run.
select_named() {
    targets=$(targets_of "$1")
    program=${1%%::*}
    if [ -n "$targets" ]; then
        :
    elif [ "$program" != "$1" ] && integration tests | grep -qx "$program"; then
        # As the list of the slowest tests names them: the program first.
        filter=${1#*::}
        targets="--test $program"
    else
        filter=$1
        targets=$(targets_with "$1")
    fi
    [ -n "$targets" ] || die "No test, module, program or crate is called '$1'. Programs and crates:" \
        "  $(members | while read -r folder package; do printf '%s ' "${package#trieste-}" "$(integration "$folder")"; done | tr '\n' ' ')"
    : >"$scratch/programs"
    for name in $machine_tier outages; do
        ! echo "$targets" | grep -qx -e "--test $name" || needs_programs=yes
    done
    [ -z "${needs_programs:-}" ] || build_programs
    step "building the tests"
    echo "$targets" >"$scratch/targets"
    while read -r kind name; do
        case "$kind $name" in
        *" trieste-sim") list_programs "$scratch/programs" simulation test "$kind" ;;
        "--test "*)
            if integration tests/sim | grep -qx "$name"; then
                list_programs "$scratch/programs" simulation test --test "$name"
            else
                list_programs "$scratch/programs" cargo test --workspace --locked --test "$name"
            fi
            ;;
        # trieste-bench has no tests, and depends on nearly everything: with it, dependencies have the workspace's features.
        *) list_programs "$scratch/programs" cargo test --locked "$kind" -p "$name" -p trieste-bench --features trieste-bench/test-util ;;
        esac
    done <"$scratch/targets"
}

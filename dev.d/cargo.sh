# shellcheck shell=sh disable=SC2154,SC2034 # variables are shared with ./dev
# What Cargo builds: one profile and one set of features for everything that people and CI do. Sourced by ./dev.
#
# The registry's crates are compiled once a machine: the first build leaves them in ~/.cache/trieste/cargo, in a folder
# named by compiler, lock file and profiles, and a checkout without a target folder begins with a copy. It is a copy, and
# without our own crates, since Cargo takes a crate of two checkouts for the same and would build one over the other.

# What is shipped, by one profile; the bench measures that, from the same selection of features.
shipped="-p trieste-gateway -p trieste-routeagent -p trieste-discovery -p trieste-plugin-sync -p trieste-operator -p trieste-cli -p trieste-packaging"

# cargo_settings — for every cargo that ./dev starts; `./dev cargo …` has the same.
cargo_settings() {
    CARGO_TARGET_DIR=$PWD/target # tests/sim is a workspace of its own
    export CARGO_TARGET_DIR
    crates=$cache/cargo/$({ rustc -vV && cat Cargo.lock Cargo.toml; } | sha256sum | cut -c1-16)
    [ -d "$crates" ] && [ ! -d target/debug ] || return 0
    touch "$crates"
    mkdir -p target
    rm -rf target/partial
    cp -a "$crates" target/partial && mv target/partial target/debug
}

# keep_crates — leaves what was compiled of the registry for other checkouts; what nobody has begun with for a week goes.
keep_crates() {
    [ ! -d "$crates" ] || return 0
    step "keeping the registry's crates for the next checkout"
    find "$cache/cargo" -mindepth 1 -maxdepth 1 -mtime +6 -exec rm -rf {} + 2>/dev/null || :
    partial=$crates.$$
    mkdir -p "$partial/deps" "$partial/.fingerprint" "$partial/build"
    for folder in .fingerprint build deps; do
        # An artifact's name ends with the hash that its fingerprint's name ends with.
        (cd target/debug && ls -A .fingerprint && find "$folder" -mindepth 1 -maxdepth 1) | awk '
            !/\// { if (/^trieste-/) ours[hash($0)] = 1; next }
            !(hash($0) in ours)
            function hash(name) { sub(/^.*\//, "", name); sub(/\..*$/, "", name); sub(/^.*-/, "", name); return name }
        ' | tar -C target/debug -cf - -T - | tar -C "$partial" -xf -
    done
    mv -T "$partial" "$crates" 2>/dev/null || rm -rf "$partial"
}

# simulation VERB… — cargo for tests/sim, which has to be built apart (its Cargo.toml says why), with the same versions
# of everything else.
simulation() {
    cp Cargo.lock tests/sim/Cargo.lock
    verb_of_cargo=$1
    shift
    cargo "$verb_of_cargo" --manifest-path tests/sim/Cargo.toml "$@"
}

# programs_of COMMAND… — has cargo, or simulation, build tests and lists them: name, program, folder. A package's unit tests
# are called FOLDER.lib or FOLDER.PROGRAM, its integration tests by their name.
programs_of() {
    "$@" --no-run --message-format=json-render-diagnostics >"$scratch/artifacts" || return 1
    sed -n 's/.*"manifest_path":"\([^"]*\)\/Cargo.toml","target":{"kind":\["\([a-z]*\)"\].*"name":"\([^"]*\)","src_path".*"profile":{[^}]*"test":true}.*"executable":"\([^"]*\)".*/\2 \3 \4 \1/p' \
        "$scratch/artifacts" | while read -r kind name program folder; do
        crate=$(echo "${folder#"$PWD"/}" | tr / -)
        case $kind in
        test) echo "$name $program $folder" ;;
        bin) echo "$crate.$name $program $folder" ;;
        *) echo "$crate.lib $program $folder" ;;
        esac
    done
}

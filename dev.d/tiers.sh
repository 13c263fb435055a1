# shellcheck shell=sh disable=SC2154,SC2034 # variables are shared with ./dev
# The tests, tier by tier. Sourced by ./dev.
#
#   unit       every crate's own tests, its simulations, and the examples in its documentation: two programs at a time
#   machine    lab, netns, interop (namespaces, foreign peers), kubernetes (API servers), clusters (whole clusters): side
#              by side, where each test takes its weight of the machine (tests/src/guard.rs)
#   outages    what is lost and for how long, alone on the machine
#
# What fails in the machine tier is run once more, alone; tests/flaky.md says what becomes of that.

machine_tier="clusters kubernetes netns interop lab"

# within SECONDS — the time that each of a tier's programs has; several times what it takes. One that waits for ever is ended, and
# named with what it waits for (hung.sh), while CI still runs.
within() {
    TRIESTE_PROGRAM_SECONDS=$1
    # More schedules, or longer soaks.
    [ -z "${TRIESTE_NIGHTLY:-}${TRIESTE_SIM_SEEDS:-}${TRIESTE_SOAK_SECONDS:-}" ] || TRIESTE_PROGRAM_SECONDS=$((10 * $1))
    export TRIESTE_PROGRAM_SECONDS
}

is_machine() { case " $machine_tier " in *" $1 "*) ;; *) false ;; esac }

# program_of RUN — a run's program: `again.` is before one that runs a second time, and a dot before a part of it (shapes.sh).
program_of() {
    of_run=${1#again.}
    case $of_run in
    clusters.*) echo clusters ;;
    *) echo "$of_run" ;;
    esac
}

# program RUN [ARGUMENT…] — runs one of $scratch/programs, see program.sh.
program() {
    found=$(awk -v name="$(program_of "$1")" '$1 == name { print $2, $3 }' "$scratch/programs")
    [ -n "$found" ] || return 0
    # Not `name`, which callers loop over.
    run_as=$1
    shift
    # shellcheck disable=SC2086 # a program and a folder
    sh dev.d/program.sh "$run_as" $found "$@"
}

# clean_hung — what programs that were ended have left.
clean_hung() {
    ! grep -q . "$scratch"/hung.* 2>/dev/null || target/debug/trieste-lab clean --crashed
}

# end_programs — what still runs when ./dev is interrupted: each removes what it has made.
end_programs() {
    for running in "$scratch"/pid.*; do
        [ ! -e "$running" ] || kill "$(cat "$running")" 2>/dev/null || :
    done
}

# has PROGRAM… — whether one of them is to be run.
has() {
    for name; do
        ! grep -q "^$name " "$scratch/programs" || return 0
    done
    return 1
}

# unit_tier [FILTER]
unit_tier() {
    while read -r name path folder; do
        is_machine "$name" || [ "$name" = outages ] || echo "$name $path $folder"
    done <"$scratch/programs" >"$scratch/units"
    # Programs of tests/ take longest: they begin first, and what is left to the end is short.
    { grep -v '^[^ ]*[.]' "$scratch/units" || :; grep '^[^ ]*[.]' "$scratch/units" || :; } >"$scratch/unit"
    [ -s "$scratch/unit" ] || return 0
    step "unit tests and simulations"
    within 900
    xargs -P 2 -I '{}' sh -c "exec sh dev.d/program.sh {} $*" <"$scratch/unit"
}

doc_tier() {
    step "examples in documentation"
    timeout 900 cargo test --workspace --locked --quiet --doc >"$scratch/log.doc" 2>&1 || echo failed >"$scratch/failed.doc"
    cat "$scratch/log.doc"
}

# machine_tier [FILTER]
machine_tier() {
    # shellcheck disable=SC2086 # a list of programs
    has $machine_tier || return 0
    step "waiting for the foreign peers"
    peers_wait
    step "lab, API servers, clusters"
    within 2700
    target/debug/trieste-lab clean --crashed
    if has clusters; then
        share_out_clusters "$@"
        begin_clusters
        sleep 2
    fi
    for name in $machine_tier; do
        [ "$name" != clusters ] || continue
        program "$name" "--test-threads=$TRIESTE_LAB_JOBS" "$@" &
    done
    wait
    two_shapes_end
    again
}

# again — what failed beside other tests, once more and alone. A test that is in the ledger has had its second chance.
again() {
    : >"$scratch/again"
    # shellcheck disable=SC2086 # a list of programs
    runs=$(runs_of $machine_tier)
    for run in $runs; do
        [ -e "$scratch/failed.$run" ] || continue
        failed_tests "$scratch/log.$run" >"$scratch/names" || return 0
        while read -r test; do
            sh tests/check/flaky.sh "$(program_of "$run") $test" || return 0
            echo "$run $test" >>"$scratch/again"
        done <"$scratch/names"
    done
    [ -s "$scratch/again" ] || return 0
    [ "$(wc -l <"$scratch/again")" -le 3 ] || return 0
    step "what failed beside other tests, once more and alone"
    while read -r run test; do
        target/debug/trieste-lab clean --crashed
        name=$(program_of "$run")
        program "again.$run" --exact "$test"
        [ ! -e "$scratch/failed.again.$run" ] || return 0
        what=$(awk -v test="$test" '$0 == "---- " test " stdout ----" { on = 1; next }
            on && !/^$/ && !/^thread / { gsub(/\|/, "/"); print substr($0, 1, 160); exit }' "$scratch/log.$run")
        echo "| \`$name $test\` | $(date +%Y-%m-%d) | $what | |" >>"$scratch/ledger"
    done <"$scratch/again"
    cat "$scratch/ledger" >>tests/flaky.md
    for run in $runs; do rm -f "$scratch/failed.$run"; done
}

# outages_tier [FILTER]
outages_tier() {
    has outages || return 0
    # shellcheck disable=SC2086 # a list of programs
    has $machine_tier || peers_wait
    step "outages, alone on the machine"
    within 1200
    target/debug/trieste-lab clean --crashed
    TRIESTE_LAB_JOBS=1 program outages --test-threads=1 "$@"
}

# failed_tests LOG — the names of the tests that failed. False if the log does not name every one: a program that
# crashed, or was ended.
failed_tests() {
    awk '/^failures:$/ { count = 0; is_list = 1; next }
         is_list && /^    [^ ]+$/ { names[count++] = $1 }
         /^test result: FAILED/ { is_clear = count == $6; for (i = 0; i < count; i++) print names[i] }
         END { exit !is_clear }' "$1"
}

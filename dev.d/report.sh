# shellcheck shell=sh disable=SC2154,SC2034 # variables are shared with ./dev
# What a run of tests says at its end: counts, what failed, what was flaky, where the time went. Sourced by ./dev.

# test_counts — adds up the "test result:" lines of all programs.
test_counts() {
    cat "$scratch"/log.* | awk '/^test result:/ { passed += $4; failed += $6; ignored += $8 }
         END { printf "%d passed, %d failed, %d ignored", passed, failed, ignored }'
}

# test_failures LOG… — which tests failed and what they said first; the rest is far above.
test_failures() {
    cat "$@" | awk '/^(stack backtrace|note: |--- (the end|lost) )/ { left = 0 }
         /^thread .* panicked at / { left = 24 }
         left > 0 { left--; print (left == 23 ? "" : "    ") substr($0, 1, 800) }
         /^test .* \.\.\. FAILED/ { print }'
}

# slowest — the tests that took longest, without what they waited for their turn.
slowest() {
    printf '\n== the slowest tests: seconds of work, seconds of waiting for a turn\n'
    for log in "$scratch"/log.*; do
        sed -n "s/^test \([^ ]*\) .*<\([0-9.]*\)s>\$/\2 $(program_of "${log##*/log.}") \1/p" "$log"
    done | awk 'FILENAME == ARGV[1] { waited[$1] += $2; next }
                { own = $3; sub(/.*::/, "", own); w = waited[own] + 0; printf "%8.1f %8.1f   %s %s\n", $1 - w, w, $2, $3 }' \
        "$scratch/turns" - | sort -rn | head -n 20
}

# most — of lines "SECONDS NAME" the names with most, and the sum of all.
most() {
    awk '{ seconds[$2] += $1; all += $1 }
         END { for (name in seconds) printf "%8.1f   %s\n", seconds[name], name; printf "%8.1f   all\n", all }' |
        sort -rn | head -n 16
}

# busiest — the programs that took most of the processors, with all that they started and waited for.
busiest() {
    [ -s "$scratch/cpu" ] || return 0
    printf '\n== seconds of the processors, by test program\n'
    most <"$scratch/cpu"
}

# compiled — the crates that took longest to compile, from what cargo --timings wrote in this run.
compiled() {
    timings=target/cargo-timings/cargo-timing.html
    [ -n "$(find "$timings" -newer "$scratch/missing" 2>/dev/null)" ] || return 0
    printf '\n== compiling, by crate: seconds\n'
    awk '/^const UNIT_DATA/ { on = 1 }
         /^\];/ { on = 0 }
         on && /"name":/ { name = $2; gsub(/[",]/, "", name) }
         on && /"duration":/ { print $2 + 0, name }' "$timings" | most
}

# report — everything there is to say, and the exit status.
report() {
    step_end
    clean_hung
    is_failed=
    ! ls "$scratch"/failed.* >/dev/null 2>&1 || is_failed=yes
    [ -z "$is_failed" ] || failed="$failed, tests"
    compiled
    busiest
    slowest
    counts=$(test_counts)
    if [ -s "$scratch/ledger" ]; then
        printf '\n== flaky: failed beside other tests, passed alone. Find the cause; tests/flaky.md has these rows now\n'
        cat "$scratch/ledger"
        counts="$counts, $(wc -l <"$scratch/ledger" | tr -d ' ') of the failed passed alone"
    fi
    if [ -n "$is_failed" ] || [ -s "$scratch/ledger" ]; then
        printf '\n== failed\n'
        test_failures "$scratch"/log.*
        for program in "$scratch"/failed.*; do
            [ ! -e "$program" ] || say "${program##*/failed.}: $(cat "$program")"
        done
    fi
    summary test "$counts"
}

# shellcheck shell=sh disable=SC2154,SC2034 # variables are shared with ./dev
# Words for people: messages, steps with their times, what was skipped, the last line. Sourced by ./dev.

say() { printf '%s\n' "$*"; }
die() {
    printf '%s\n' "$@" >&2
    exit 1
}
# have COMMAND_OR_FILE — whether it is there.
have() {
    case $1 in
    /*) [ -e "$1" ] ;;
    *) command -v "$1" >/dev/null 2>&1 ;;
    esac
}
is_root() { [ "$(id -u)" -eq 0 ]; }

# --- skipped things are printed when they happen and counted at the end ---------------------------------------------
skip() {
    say "skipped: $*"
    say "$*" >>"$TRIESTE_SKIPPED"
}

# --- steps -----------------------------------------------------------------------------------------------------------
# cores — the machine's time since it started: at work, without, and given to other machines of its host (`steal`, proc(5)), in
# hundredths of a second, over all cores.
cores() { awk '/^cpu / { print $2 + $3 + $4 + $7 + $8, $5 + $6, $9; exit }' /proc/stat; }

# step NAME — ends the step before, tells what it took, and starts the next.
step() {
    step_end
    step_name=$*
    step_started="$(date +%s%3N) $(cores)"
    printf '\n== %s\n' "$step_name"
}

# step_end — writes seconds, and the share of the cores' time that somebody worked in, to $scratch/times.
step_end() {
    [ -n "${step_name:-}" ] || return 0
    echo "$step_started $(date +%s%3N) $(cores)" | awk -v name="$step_name" '{
        busy = $6 - $2
        stolen = $8 - $4
        all = busy + $7 - $3 + stolen
        share = all > 0 ? 100 / all : 0
        printf "%7.1f s   cores busy %3d %%   %s", ($5 - $1) / 1000, share * busy, name
        if (share * stolen >= 1) printf " (%d %% went to other machines)", share * stolen
        printf "\n"
    }' | tee -a "$scratch/times" | sed 's/^ */   -- /'
    step_name=
}

# run NAME COMMAND... — one step of the check; failures are collected, so that one run shows them all.
failed=
run() {
    step "$1"
    name=$1
    shift
    if "$@"; then :; else
        say "FAILED: $name"
        failed="$failed, $name"
    fi
}

# summary VERB [COUNTS] — where the time went, the last line of a run, and its exit status.
summary() {
    step_end
    printf '\n== where the time went\n'
    cat "$scratch/times"
    skipped=$(wc -l <"$TRIESTE_SKIPPED" | tr -d ' ')
    if [ "$skipped" -gt 0 ]; then
        printf '\n== skipped\n'
        cat "$TRIESTE_SKIPPED"
    fi
    say ""
    if [ -n "$failed" ]; then
        say "$1: FAILED (${failed#, })${2:+; $2}; $skipped skipped; $(elapsed)"
        exit 1
    fi
    say "$1: ok${2:+; $2}; $skipped skipped; $(elapsed)"
}

# elapsed — how long this run has taken.
elapsed() {
    seconds=$(($(date +%s) - dev_started))
    printf '%d min %02d s' $((seconds / 60)) $((seconds % 60))
}

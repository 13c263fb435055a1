# shellcheck shell=sh disable=SC2154 # variables are shared with ./dev
# Whole clusters of two shapes at once: the program `clusters` runs one shape at a time, and waits more than it works. Its
# tests are shared out to two runs of it that take about as long: `clusters.plain` for the shape `plain`, and `clusters.others`,
# in which every test or two have clusters of their own. They run side by side, and with the other
# programs, which get what places these leave (tests/src/guard.rs). Sourced by ./dev.

# Instances of inotify: two sets of two clusters of three nodes take 140 (tests/src/clusters/limits.rs), API servers the rest.
inotify_instances=512
inotify_limit=/proc/sys/fs/inotify/max_user_instances
# GiB that have to be free: two sets were seen to take four, and the API servers of two other tests two.
two_shapes_memory=10

# runs_of PROGRAM… — the names under which programs run.
runs_of() {
    for name; do
        if [ "$name" = clusters ]; then echo clusters.plain clusters.others; else echo "$name"; fi
    done
}

# The limit's value before, and the lock of all runs that need another: the last one restores it.
inotify_before=/run/trieste-inotify

# wants_two_shapes — whether both have tests, and two sets may be up at once.
wants_two_shapes() {
    [ -s "$scratch/clusters.plain" ] && [ -s "$scratch/clusters.others" ] && is_root && [ "$TRIESTE_LAB_JOBS" -ge 4 ]
}

# room_for_two_shapes — makes it, until two_shapes_end. False where the machine has none.
room_for_two_shapes() {
    free=$(awk '$1 == "MemAvailable:" { print int($2 / 1048576) }' /proc/meminfo)
    [ "$free" -ge "$two_shapes_memory" ] || return 1
    before=$(cat "$inotify_limit") || return 1
    exec 8>>"$inotify_before" || return 1
    flock -s 8
    [ "$before" -lt "$inotify_instances" ] || return 0
    echo "$before" >"$inotify_before"
    { echo "$inotify_instances" >"$inotify_limit"; } 2>/dev/null
}

# two_shapes_end — the machine as it was, unless another run needs it as it is.
two_shapes_end() {
    { flock -n -x 8 && [ -s "$inotify_before" ]; } 2>/dev/null || return 0
    cat "$inotify_before" >"$inotify_limit" || :
    : >"$inotify_before"
    exec 8>&-
}

# share_out_clusters [FILTER] — writes the tests of each run, in the order of their names, to $scratch/RUN.
share_out_clusters() {
    found=$(awk '$1 == "clusters" { print $2 }' "$scratch/programs")
    "$found" --list "$@" >"$scratch/listed" 2>/dev/null || echo "its tests cannot be listed" >"$scratch/failed.clusters"
    sed -n 's/: test$//p' "$scratch/listed" | awk -v plain="$scratch/clusters.plain" -v others="$scratch/clusters.others" '
        BEGIN { printf "" >plain; printf "" >others }
        { print >(/^plain::/ ? plain : others) }'
}

# clusters RUN — one of them. Tests of one shape share its clusters, one after the other.
clusters() {
    [ -s "$scratch/$1" ] || return 0
    # shellcheck disable=SC2046 # a list of names
    program "$1" --test-threads=1 --exact $(cat "$scratch/$1") 8>&-
}

# begin_clusters — begins both runs: at once where the machine has room, otherwise one after the other. Each is a long row of
# tests that wait more than they work, so that they begin before the other programs.
begin_clusters() {
    if wants_two_shapes; then
        if room_for_two_shapes; then
            clusters clusters.others &
            clusters clusters.plain &
            return
        fi
        say "One shape of clusters at a time: two need $two_shapes_memory GiB of free memory, and $inotify_instances in $inotify_limit."
    fi
    { clusters clusters.others; clusters clusters.plain; } &
}

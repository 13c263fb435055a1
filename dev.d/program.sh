#!/bin/sh
# program.sh NAME PROGRAM FOLDER [ARGUMENT...]: runs one test program as cargo would, in its package's folder, and prints
# what it said when it is over, so that programs side by side do not mix. Into $scratch go: log.NAME, failed.NAME if
# it failed, and pid.NAME while it runs. Every test's line ends with its time, an option of the harness that is on trial:
# hence the variable. A program that is not over after TRIESTE_PROGRAM_SECONDS is ended: what it was at then is in its log.
set -u
name=$1 program=$2 dev=$PWD/dev.d
cd "$3" || exit 1
shift 3
log=${scratch:?}/log.$name
before=$(date +%s%3N)
CARGO_MANIFEST_DIR=$PWD RUSTC_BOOTSTRAP=1 "$program" -Z unstable-options --report-time "$@" >"$log" 2>&1 </dev/null &
child=$!
echo "$child" >"$scratch/pid.$name"
sh "$dev/hung.sh" "$child" "${TRIESTE_PROGRAM_SECONDS:?}" "$log" >"$scratch/hung.$name" 2>/dev/null </dev/null &
watcher=$!
wait "$child"
status=$?
# One that has ended the program has something left to do.
[ -s "$scratch/hung.$name" ] || kill "$watcher" 2>/dev/null
rm -f "$scratch/pid.$name"
# Of the program and of all that it has waited for: "0m1.230s 0m0.450s" is what times says of children.
times >"$scratch/times.$name" # not in a pipe, which would be another process with other children
cpu=$(awk 'NR == 2 { gsub(/[ms]/, " "); print $1 * 60 + $2 + $3 * 60 + $4 }' "$scratch/times.$name")
echo "$cpu $name" >>"$scratch/cpu"
[ "$status" -eq 0 ] || echo "exit status $status$(cat "$scratch/hung.$name")" >"$scratch/failed.$name"
{
    printf '\n-- %s (%s ms, %s s of the processors)\n' "$name" $(($(date +%s%3N) - before)) "$cpu"
    cat "$log"
    [ "$status" -eq 0 ] || echo "-- $name: FAILED, $(cat "$scratch/failed.$name")"
} >"$scratch/said.$name"
cat "$scratch/said.$name"

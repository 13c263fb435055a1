#!/bin/sh
# hung.sh PID SECONDS LOG: waits for a test program. One that is not over by then is ended, with what it has started; before, the
# tests that were not over are named on stdout, and its log gets what it is at (threads have the names of their tests, cut to 15
# characters).
set -u
child=$1 seconds=$2 log=$3

# below — the processes that it has started, and theirs: a line each.
below() {
    ps -e -o pid,ppid,etimes,args --forest |
        awk -v root="$child" '$1 == root || ($2 in below) { below[$1] } ($1 in below) && $1 != root' | cut -c1-240
}

timeout "$seconds" tail --pid="$child" -s 2 -f /dev/null
[ $? -eq 124 ] && kill -0 "$child" || exit 0
printf ', not over after %s s:' "$seconds"
# Where tests run one at a time, the name of each is there before it begins.
awk '/^test .* has been running for over/ { slow[$2] } / [.][.][.] / { delete slow[$2] }
     { last = $0 }
     END { for (test in slow) printf " %s", test
           if (last ~ /^test .* [.][.][.] *$/) { split(last, words, " "); printf " %s", words[2] } }' "$log"
started=$(below)
{
    printf '\n---- not over after %s s; its threads, with what each waits for in the kernel:\n' "$seconds"
    for thread in /proc/"$child"/task/*; do
        echo "$(cat "$thread/comm") $(cat "$thread/wchan")"
    done | sort | uniq -c
    printf -- '---- what it has started:\n%s\n' "$started"
} >>"$log"
kill "$child"
# Time to remove what it has made.
timeout 60 tail --pid="$child" -s 1 -f /dev/null || kill -KILL "$child"
echo "$started" | while read -r pid _; do
    kill "$pid"
done

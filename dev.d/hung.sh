#!/bin/sh
# hung.sh PID SECONDS LOG: waits for a test program. One that is not over by then is ended; before, what it is at goes into its
# log (threads have the names of their tests, cut to 15 characters), and the tests that were not over are named on stdout.
set -u
child=$1 seconds=$2 log=$3
timeout "$seconds" tail --pid="$child" -s 2 -f /dev/null
[ $? -eq 124 ] && kill -0 "$child" || exit 0
{
    printf '\n---- not over after %s s; its threads, with what each waits for in the kernel:\n' "$seconds"
    for thread in /proc/"$child"/task/*; do
        echo "$(cat "$thread/comm") $(cat "$thread/wchan")"
    done | sort | uniq -c
    echo "---- what it has started:"
    ps -e -o pid,ppid,etimes,args --forest |
        awk -v root="$child" '{ below[$1] = $1 == root || ($2 in below && below[$2]) } below[$1]' | cut -c1-240
} >>"$log"
printf ', not over after %s s:' "$seconds"
awk '/^test .* has been running for over/ { slow[$2] } / [.][.][.] / { delete slow[$2] }
     { last = $0 }
     END { for (test in slow) printf " %s", test; if (last ~ /^test .* [.][.][.] *$/) { split(last, words, " "); printf " %s", words[2] } }' "$log"
kill "$child"
# Time to remove what it has made.
timeout 60 tail --pid="$child" -s 1 -f /dev/null || kill -KILL "$child"

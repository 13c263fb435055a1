#!/bin/sh
# The old vocabulary goes: words.txt says how often each of its words may still stand in identifiers of the product's
# sources, and what is said instead. Counts may only fall; LOWER=1 writes lower ones.
set -eu
cd "$(dirname "$0")/../.."
. tests/check/sources.sh
words=tests/check/words.txt
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# shellcheck disable=SC2046 # a list of paths
awk -f tests/check/code.awk $(sources) >"$scratch/code"
awk -f tests/check/words.awk "$words" "$scratch/code" >"$scratch/counts"
if [ -n "${LOWER:-}" ]; then
    awk 'FILENAME != ARGV[2] { count[$2] = $3; next }
        FNR in count && count[FNR] < $1 { $0 = sprintf("%5d", count[FNR]) substr($0, 6) }
        { print }' "$scratch/counts" "$words" >"$words.new"
    mv "$words.new" "$words"
fi
total=0
while read -r _ row count; do
    line=$(sed -n "${row}p" "$words")
    # shellcheck disable=SC2086 # split into its words
    set -- $line
    allowed=$1
    folder=$2
    word=$3
    shift 3
    total=$((total + count))
    [ "$folder" != . ] || folder="the product"
    if [ "$count" -gt "$allowed" ]; then
        complain "$word: $count in $folder, allowed are $allowed. Say: $*."
        awk -v SHOW="$row" -f tests/check/words.awk "$words" "$scratch/code" | new_ones
    elif [ "$count" -lt "$allowed" ]; then
        complain "$word: $count in $folder, fewer than the $allowed of $words:$row. Lower it to $count (or run with LOWER=1)."
    fi
done <"$scratch/counts"
echo "$total old words in identifiers are left"
exit "$status"

# shellcheck shell=sh
# What the other checks share: the product's sources, and limits.txt. To be sourced at the root of the repository; who
# does so ends with `exit "$status"`.
export LC_ALL=C
limits=tests/check/limits.txt
export status=0

# complain TEXT — prints what is wrong; the check will fail.
complain() {
    printf '%s\n' "$*"
    status=1
}

# sources — the product's own Rust files: no tests, no benches, no simulations.
sources() {
    git ls-files -co --exclude-standard -- 'src/*.rs' '*/src/*.rs' ':!tests/*' ':!bench/*' |
        grep -v -e '/tests\.rs$' -e '/tests/' >"${TMPDIR:-/tmp}/sources.$$"
    # Modules that are declared under #[cfg(test)] are none of the product's either.
    # shellcheck disable=SC2046 # a list of paths
    awk 'FNR == 1 { is_test = 0 }
        is_test && match($0, /mod [a-z_]+;/) {
            folder = FILENAME
            if (!sub(/\/(lib|main|mod)\.rs$/, "", folder)) sub(/\.rs$/, "", folder)
            print folder "/" substr($0, RSTART + 4, RLENGTH - 5) ".rs"
        }
        !/^ *#\[path/ { is_test = $0 ~ /^ *#\[cfg\(test\)\]$/ }' $(cat "${TMPDIR:-/tmp}/sources.$$") |
        grep -vxFf - "${TMPDIR:-/tmp}/sources.$$"
    rm -f "${TMPDIR:-/tmp}/sources.$$"
}

# limit NAME — its value in limits.txt; 0 if it does not stand there.
limit() {
    awk -v name="$1" '$1 == name { value = $3 } END { print value + 0 }' "$limits"
}

# ratchet NAME VALUE [ADVICE] — compares what was measured with the limit. Returns 1 if there is more than allowed, so
# that the caller can print where. A limit of kind `falls` is lowered with what it counts, or what was gained would be
# lost again: LOWER=1 in the environment writes the new value instead of failing.
ratchet() {
    allowed=$(limit "$1")
    kind=$(awk -v name="$1" '$1 == name { print $2 }' "$limits")
    if [ "$2" -gt "$allowed" ]; then
        complain "$1: $2, allowed are $allowed. ${3:-}"
        return 1
    fi
    if [ "$2" -eq "$allowed" ] || [ "$kind" != falls ]; then
        printf '%s\n' "$1: $2 (limit $allowed)"
    elif [ -n "${LOWER:-}" ]; then
        awk -v name="$1" -v value="$2" '
            $1 == name && match($0, / falls +[0-9]+/) {
                $0 = substr($0, 1, RSTART) sprintf("falls %5d", value) substr($0, RSTART + RLENGTH)
            }
            { print }' "$limits" >"$limits.new"
        mv "$limits.new" "$limits"
        printf '%s\n' "$1: $2 (lowered from $allowed)"
    else
        complain "$1: $2, better than the limit of $allowed. Lower it to $2 in $limits (or run with LOWER=1)."
    fi
}

# new_ones — of a list of FILE:LINE: TEXT, those whose line is none of main's: added in this branch or not committed yet.
# If that cannot be told, or there is none, the first twenty of all.
new_ones() {
    base=$(git merge-base HEAD main 2>/dev/null) || base=HEAD
    {
        git diff -U0 "$base" -- '*.rs' | awk '
            /^\+\+\+ b\// { file = substr($0, 7) }
            /^@@ / {
                n = split(substr($3, 2), range, ",")
                for (i = 0; i < (n > 1 ? range[2] : 1); i++) print "new " file ":" range[1] + i ":"
            }'
        git ls-files -o --exclude-standard -- '*.rs' | sed 's/.*/new &/'
        cat
    } | awk '
        $1 == "new" && NF == 2 { fresh[$2] = 1; next }
        {
            all[++n] = $0
            split($1, at, ":")
            if (($1 in fresh) || (at[1] in fresh)) { print "    " substr($0, 1, 200); found++ }
        }
        END { for (i = 1; !found && i <= n && i <= 20; i++) print "    " substr(all[i], 1, 200) }'
}

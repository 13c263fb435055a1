# shellcheck shell=sh disable=SC2154,SC2034 # variables are shared with ./dev
# Every feature on every cable: the tests of whole clusters and of what outages cost, once with each cable, and the table
# of docs/compliance.md that says what came of it. Sourced by ./dev.

cables="wireguard libreswan vxlan"
# What a cable could make a difference to, by the names of tests; what is about one cable, or about none, is not there.
matrix_of_clusters="plain::dataplane plain::several plain::faults plain::diagnose::the_broken plain::names globalnet::"
matrix_of_outages="several::losses several::ways several::translated several::one_active several::broker::a_broker
    several::drivers several::joins several::clocks"

# matrix — runs it, and writes the table.
matrix() {
    programs=$scratch/programs
    : >"$programs"
    peers_begin
    step "building programs and tests"
    cargo build --workspace --bins --locked || die "" "The programs do not build: the compiler's own message is above."
    list_programs "$programs" cargo test --workspace --locked --test clusters
    list_programs "$programs" cargo test --workspace --locked --test outages
    step "waiting for the foreign peers"
    peers_wait
    within 7200
    for cable in ${TRIESTE_CABLE:-$cables}; do
        step "clusters and outages with $cable"
        target/debug/trieste-lab clean --crashed
        for name in clusters outages; do
            case $name in
            clusters) tests_of=$matrix_of_clusters ;;
            *) tests_of=$matrix_of_outages ;;
            esac
            # One test at a time: what faults cost is judged.
            # shellcheck disable=SC2086 # a list of names
            TRIESTE_CABLE=$cable TRIESTE_LAB_JOBS=1 program "$name" --test-threads=1 $tests_of
            mv "$scratch/log.$name" "$scratch/log.$name.$cable"
            [ ! -e "$scratch/failed.$name" ] || mv "$scratch/failed.$name" "$scratch/failed.$name.$cable"
        done
    done
    matrix_table >"$scratch/table"
    page=docs/compliance.md
    awk -v table="$scratch/table" '
        /^<!-- end of the matrix -->$/ { while ((getline line < table) > 0) print line; print ""; skip = 0 }
        !skip { print }
        /^<!-- the matrix: / { print ""; skip = 1 }' "$page" >"$scratch/page"
    cat "$scratch/page" >"$page"
    say "The table in $page is new: see git diff $page"
}

# matrix_table — a row for each test, a column for each cable: when it passed, or that it failed. What was not run now stays as
# the page has it.
matrix_table() {
    page=docs/compliance.md
    {
        awk -v cables="$cables" '
            /^<!-- the matrix: / { on = 1 } /^<!-- end of the matrix -->$/ { on = 0 }
            on && split($0, cell, " *[|] *") > 2 && split(cell[2], words, ": `") == 2 {
                sub(/`$/, "", words[2])
                n = split(cables, cable, " ")
                for (i = 1; i <= n; i++) if (cell[i + 2] != "not run") print words[1], cable[i], words[2], "as", cell[i + 2]
            }' "$page"
    for log in "$scratch"/log.clusters.* "$scratch"/log.outages.*; do
        [ -e "$log" ] || continue
        own=${log##*/log.}
        sed -n "s/^test \([^ ]*\) .*\.\.\. \(ok\|FAILED\).*/${own%%.*} ${own#*.} \1 \2/p" "$log"
    done
    } | awk -v cables="$cables" -v day="$(date +%Y-%m-%d)" '
        { test = $1 " " $3; if (!(test in seen)) { seen[test] = 1; order[++count] = test } }
        $4 == "as" { before[test, $2] = $5 " " $6; next }
        { result[test, $2] = $4 }
        END {
            n = split(cables, cable, " ")
            printf "| test |"; for (i = 1; i <= n; i++) printf " %s |", cable[i]; print ""
            printf "|---|"; for (i = 1; i <= n; i++) printf "---|"; print ""
            for (row = 1; row <= count; row++) {
                split(order[row], words, " ")
                printf "| %s: `%s` |", words[1], words[2]
                for (i = 1; i <= n; i++) {
                    came = result[order[row], cable[i]]
                    if (came == "") came = before[order[row], cable[i]]
                    else came = (came == "ok" ? "passed " : "**failed** ") day
                    printf " %s |", came == "" ? "not run" : came
                }
                print ""
            }
        }'
}

# Counts words of the old vocabulary in identifiers. Reads words.txt, then code.awk's output; prints for each row of
# words.txt "row N COUNT", and with SHOW=N where the words of that row stand.
# A word is a part of an identifier, in its exact case: `tell` is in `tell` and `tell_siblings`, `Desk` in `DeskEvent`.

# rows_of NAME — the rows of words.txt with a word that is part of this identifier.
function rows_of(name,    parts, n, i, list, text) {
    text = name
    gsub(/[A-Z][a-z]/, "_&", text)
    n = split(text, parts, /_+/)
    for (i = 1; i <= n; i++) {
        if (parts[i] in rows) list = list " " rows[parts[i]]
        if (i < n && (parts[i] "_" parts[i + 1]) in rows) list = list " " rows[parts[i] "_" parts[i + 1]]
    }
    return list
}

FILENAME ~ /words\.txt$/ {
    if ($0 ~ /^#/ || NF < 3) next
    count[FNR] = 0
    folder[FNR] = $2 == "." ? "" : $2 "/"
    n = split($3, words, ",")
    for (i = 1; i <= n; i++) rows[words[i]] = rows[words[i]] (words[i] in rows ? " " : "") FNR
    next
}

{
    at = substr($0, 1, index($0, "\t") - 1)
    text = substr($0, length(at) + 2)
    rest = text
    while (match(rest, /[A-Za-z_][A-Za-z0-9_]*/)) {
        name = substr(rest, RSTART, RLENGTH)
        rest = substr(rest, RSTART + RLENGTH)
        if (!(name in known)) known[name] = rows_of(name)
        if (known[name] == "") continue
        n = split(known[name], list, " ")
        for (i = 1; i <= n; i++) {
            row = list[i]
            if (folder[row] != "" && index(at, folder[row]) != 1) continue
            count[row]++
            if (SHOW == row) print at ": " name
        }
    }
}

END { if (!SHOW) for (row in count) print "row", row, count[row] }

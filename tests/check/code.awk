# The code of Rust files, a line each as FILE:LINE<tab>TEXT: without comments, without what stands under
# #[cfg(test)], and with empty texts in quotes unless STRINGS is set. Run it with LC_ALL=C.

FNR == 1 { comment = quoted = raw = skipping = depth = 0 }

{
    rest = $0
    text = ""
    while (rest != "") {
        if (comment) {
            if (!match(rest, /\/\*|\*\//)) break
            comment += substr(rest, RSTART, 1) == "/" ? 1 : -1
            rest = substr(rest, RSTART + 2)
        } else if (quoted) {
            end = raw == "" ? "\"" : raw
            at = index(rest, end)
            escape = raw == "" ? index(rest, "\\") : 0
            if (escape && (!at || escape < at)) {
                if (STRINGS) text = text substr(rest, 1, escape + 1)
                rest = substr(rest, escape + 2)
            } else if (at) {
                text = text (STRINGS ? substr(rest, 1, at - 1) : "") "\""
                rest = substr(rest, at + length(end))
                quoted = 0
            } else {
                if (STRINGS) text = text rest
                break
            }
        } else {
            if (!match(rest, /"|\/\/|\/\*|'/)) {
                text = text rest
                break
            }
            before = substr(rest, 1, RSTART - 1)
            token = substr(rest, RSTART, RLENGTH)
            rest = substr(rest, RSTART + RLENGTH)
            text = text before
            if (token == "//") break
            if (token == "/*") comment = 1
            else if (token == "\"") {
                quoted = 1
                raw = ""
                if (match(before, /(^|[^A-Za-z0-9_])b?r#*$/)) {
                    raw = substr(before, RSTART)
                    gsub(/[^#]/, "", raw)
                    raw = "\"" raw
                }
                text = text "\""
            } else if (match(rest, /^(\\[^'][^']*|\\'|[^\\']|[^\\'A-Za-z0-9_ ]+)'/)) {
                rest = substr(rest, RLENGTH + 1) # a character; else a lifetime
                text = text "0"
            } else text = text "'"
        }
    }
    # What stands under #[cfg(test)]: up to the end of the item.
    if (!skipping && text ~ /^ *#\[cfg\(test\)\]/) {
        skipping = 1
        depth = 0
        sub(/^ *#\[cfg\(test\)\]/, "", text)
    }
    if (skipping) {
        braces = text
        opened = gsub(/[{(\[]/, "", braces)
        closed = gsub(/[})\]]/, "", braces)
        depth += opened - closed
        if (depth <= 0 && text ~ /[;}] *$/) skipping = 0
        next
    }
    if (text !~ /^ *$/) print FILENAME ":" FNR "\t" text
}

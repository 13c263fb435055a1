# Circles of imports between the files of one crate. Reads code.awk's output for the files of that crate; ROOT is its
# folder with src, and HAS_LIB says whether a lib.rs is there. Prints each circle as its files and the imports that make it, then "edges N".
#
# An import is a path to another module, in a `use` or anywhere else. A name that a module takes from its child and
# hands on (`pub use child::Name`) counts as the child's; that a parent names its children (`mod child;`) is no import.
# So a type and the files of its `impl` are no circle as long as the type's file imports none of them.

function module_of(file,    name) {
    name = substr(file, length(ROOT "/src/") + 1)
    sub(/\.rs$/, "", name)
    if (name == "lib" || name == "main" && !HAS_LIB) return "crate"
    if (name == "main" || name ~ /^bin\//) return name
    sub(/\/mod$/, "", name)
    gsub(/\//, "::", name)
    return "crate::" name
}

function parent(module) {
    sub(/::[^:]*$/, "", module)
    return module
}

# absolute MODULE, PATH — the path from the crate's root; empty if it leads out of the crate.
function absolute(module, path,    first, base) {
    first = path
    sub(/::.*/, "", first)
    if (first == "crate") return path
    if (first == "self") return path == "self" ? module : module substr(path, 5)
    base = module
    if (first != "super") return ((module "::" first) in files) ? module "::" path : ""
    while (path ~ /^super(::|$)/) {
        base = parent(base)
        path = path == "super" ? "" : substr(path, 8)
    }
    return path == "" ? base : base "::" path
}

# home PATH — the module in whose file stands what the path names.
function home(path, hops,    rest, name, target) {
    rest = path
    while (!(rest in files)) {
        if (rest !~ /::/) return ""
        name = rest
        rest = parent(rest)
        target = rest in files ? handed_on[name] : ""
        if (target != "" && hops < 8) return home(target substr(path, length(name) + 1), hops + 1)
    }
    return rest
}

function import(module, path, at,    target) {
    path = absolute(module, path)
    if (path == "") return
    seen++
    seen_by[seen] = module
    seen_path[seen] = path
    seen_at[seen] = at
}

# tree MODULE, PREFIX, TEXT, AT, PUBLIC — the branches of a `use`.
function tree(module, prefix, text, at, is_public,    depth, i, c, branch, open, name, target) {
    depth = 0
    branch = ""
    text = text ","
    for (i = 1; i <= length(text); i++) {
        c = substr(text, i, 1)
        if (c == "{") depth++
        if (c == "}") depth--
        if (c != "," || depth) {
            branch = branch c
            continue
        }
        open = index(branch, "{")
        if (open) tree(module, prefix substr(branch, 1, open - 1), substr(branch, open + 1, length(branch) - open - 1), at, is_public)
        else if (branch != "") {
            name = branch
            sub(/^.* as /, "", name)
            sub(/ as .*/, "", branch)
            gsub(/ /, "", branch)
            branch = prefix branch
            sub(/::self$/, "", branch)
            gsub(/ /, "", name)
            sub(/^.*::/, "", name)
            target = absolute(module, branch)
            if (is_public && target != "" && index(target, module "::") == 1 && name != "*") {
                if (target != module "::" name) handed_on[module "::" name] = target
            } else {
                sub(/::\*$/, "", branch)
                import(module, branch, at)
            }
        }
        branch = ""
    }
}

function visit(module,    i, n, next_, targets) {
    number[module] = lowest[module] = ++visited
    stack[++top] = module
    on_stack[module] = 1
    n = split(imports[module], targets, " ")
    for (i = 1; i <= n; i++) {
        next_ = targets[i]
        if (!(next_ in number)) {
            visit(next_)
            if (lowest[next_] < lowest[module]) lowest[module] = lowest[next_]
        } else if (on_stack[next_] && number[next_] < lowest[module]) lowest[module] = number[next_]
    }
    if (lowest[module] != number[module]) return
    do {
        next_ = stack[top--]
        on_stack[next_] = 0
        group[next_] = module
        size[module]++
    } while (next_ != module)
}

{
    at = $0
    sub(/\t.*/, "", at)
    file = at
    sub(/:[0-9]*$/, "", file)
    text = substr($0, length(at) + 2)
    if (file != last) {
        last = file
        statement = ""
        module = module_of(file)
        files[module] = file
    }
    line[NR] = text
    line_at[NR] = at
    line_of[NR] = module
}

END {
    for (n = 1; n <= NR; n++) {
        text = line[n]
        module = line_of[n]
        if (module != line_of[n - 1]) statement = ""
        if (statement == "" && text ~ /^ *(pub(\([a-z: ]*\))? +)?use /) {
            statement = text
            start = line_at[n]
        } else if (statement != "") statement = statement " " text
        else {
            while (match(text, /[A-Za-z_][A-Za-z0-9_]*(::[A-Za-z_][A-Za-z0-9_]*)+/)) {
                # What a longer path begins with is no module of ours, nor is what follows a dot or a `::`.
                before = substr(text, RSTART - 1, 1)
                path = substr(text, RSTART, RLENGTH)
                text = substr(text, RSTART + RLENGTH)
                if (before != ":" && before != "." && before != "$") import(module, path, line_at[n])
            }
            continue
        }
        if (statement !~ /;/) continue
        is_public = statement ~ /^ *pub/
        sub(/^ *(pub(\([a-z: ]*\))? +)?use +/, "", statement)
        sub(/;.*/, "", statement)
        gsub(/  +/, " ", statement)
        gsub(/ *[{] */, "{", statement)
        gsub(/ *[}] */, "}", statement)
        gsub(/, */, ",", statement)
        tree(module, "", statement, start, is_public)
        statement = ""
    }
    for (n = 1; n <= seen; n++) {
        target = home(seen_path[n], 0)
        if (target == "" || target == seen_by[n] || ((seen_by[n], target) in where)) continue
        where[seen_by[n], target] = seen_at[n]
        imports[seen_by[n]] = imports[seen_by[n]] " " target
    }
    for (module in files) if (!(module in number)) visit(module)
    edges = 0
    for (root in size) {
        if (size[root] < 2) continue
        names = ""
        list = ""
        for (module in files) {
            if (group[module] != root) continue
            names = names " " substr(files[module], length(ROOT "/src/") + 1)
            n = split(imports[module], targets, " ")
            for (i = 1; i <= n; i++) {
                if (group[targets[i]] != root) continue
                edges++
                list = list "    " where[module, targets[i]] " imports " files[targets[i]] "\n"
            }
        }
        circles++
        print "  a circle of " size[root] ":" names
        printf "%s", list
    }
    print "circles " circles + 0
    print "edges " edges
}

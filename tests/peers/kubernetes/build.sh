#!/bin/sh
# build.sh [path]: builds trieste-apiserver once, outside of the tree, and prints where it is; with `path` it only
# says where it would be. The place depends on the sources, the versions and the compiler, so that nothing is built
# twice and nothing stale is found.
set -eu
cd "$(dirname "$0")"

kubernetes=$(sed -n 's/^\tk8s.io\/kubernetes v\([0-9.]*\)$/\1/p' go.mod)
hash=$({
    go env GOVERSION GOARCH
    cat go.mod go.sum ./*.go build.sh
} | sha256sum | cut -c1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/trieste/kubernetes
program=$cache/$hash/bin/trieste-apiserver

if [ "${1:-}" != path ] && [ ! -x "$program" ]; then
    printf '\n== building kube-apiserver %s (about 6 minutes of two processors, once)\n' "$kubernetes" >&2
    mkdir -p "$cache/$hash/bin"
    # Two builds at once are a waste, not an error: each writes its own file, and the rename is atomic.
    unfinished=$program.$$
    trap 'rm -f "$unfinished"' EXIT
    version=k8s.io/component-base/version
    minor=${kubernetes#*.}
    CGO_ENABLED=0 nice go build -trimpath -mod=readonly -o "$unfinished" \
        -ldflags "-s -w -X $version.gitVersion=v$kubernetes -X $version.gitMajor=1 -X $version.gitMinor=${minor%%.*}" .
    mv "$unfinished" "$program"
fi
printf '%s\n' "$program"

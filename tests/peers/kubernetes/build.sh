#!/bin/sh
# build.sh [path]: builds everything in this module once, outside of the tree, and prints where the API server is; with
# `path` it only says where it would be. The place depends on the sources, the versions and the compiler, so that
# nothing is built twice and nothing stale is found.
#
#   HASH/bin      trieste-kubernetes (also called trieste-apiserver), containerd, containerd-shim-runc-v2, ctr, cni/
#   HASH/images   pause.tar, coredns.tar, tools.tar
set -eu
cd "$(dirname "$0")"
PATH=$PATH:/usr/sbin:/sbin

kubernetes=$(sed -n 's/^\tk8s.io\/kubernetes v\([0-9.]*\)$/\1/p' go.mod)
hash=$({
    go env GOVERSION GOARCH
    cat go.mod go.sum ./*.go cmd/*/*.go build.sh
} | sha256sum | cut -c1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/trieste/kubernetes
there=$cache/$hash

# programs FOLDER: all of them, in one run of the compiler, so that what they share is compiled once.
programs() {
    mkdir -p "$1/cni"
    version=k8s.io/component-base/version
    client=k8s.io/client-go/pkg/version
    minor=${kubernetes#*.}
    # A compiler that collects its garbage less often takes a seventh less time, for some hundred MB.
    GOGC=400 CGO_ENABLED=0 nice go build -trimpath -mod=readonly -tags no_btrfs,no_devmapper,no_zfs -o "$1/" \
        -ldflags "-s -w -X $version.gitVersion=v$kubernetes -X $version.gitMajor=1 -X $version.gitMinor=${minor%%.*} \
            -X $client.gitVersion=v$kubernetes" . ./cmd/... tool
    mv "$1/kubernetes" "$1/trieste-kubernetes"
    ln -s trieste-kubernetes "$1/trieste-apiserver"
    (cd "$1" && mv bridge host-local loopback portmap cni/)
}

# images PROGRAMS FOLDER: one of the pause container, one of CoreDNS, and one of tools for the tests' pods: busybox,
# the responder, and this machine's nft and ip with the libraries that they load.
images() {
    mkdir -p "$2"
    "$1/image" localhost/trieste-pause:lab "$2/pause.tar" /pause "/pause=$1/pause"
    "$1/image" localhost/trieste-coredns:lab "$2/coredns.tar" /coredns "/coredns=$1/coredns"
    for program in busybox nft ip; do
        command -v "$program" >/dev/null || echo "the images need this machine's $program: ./dev deps installs it" >&2
    done
    busybox=$(command -v busybox)
    if ldd "$busybox" >/dev/null 2>&1; then
        echo "$busybox is not static: install the package busybox-static" >&2
        return 1
    fi
    nft=$(command -v nft)
    ip=$(readlink -f "$(command -v ip)")
    set -- "$1" "$2" "/bin/responder=$1/responder" "/bin/busybox=$busybox" "/usr/sbin/nft=$nft" "/usr/sbin/ip=$ip"
    for applet in $("$busybox" --list); do
        case $applet in
        busybox | ip | nft) ;;
        *) set -- "$@" "/bin/$applet@/bin/busybox" ;;
        esac
    done
    for library in $(ldd "$nft" "$ip" | grep -oE '/[^ ]+\.so[^ ]*' | sort -u); do
        set -- "$@" "$library=$(readlink -f "$library")"
    done
    image=$1/image
    archive=$2/tools.tar
    shift 2
    "$image" localhost/trieste-tools:lab "$archive" "" "$@"
}

if [ "${1:-}" != path ] && [ ! -d "$there" ]; then
    printf '\n== building Kubernetes %s (about 9 minutes of processor time, once)\n' "$kubernetes" >&2
    # Two builds at once are a waste, not an error: each has a folder of its own, and the rename is atomic.
    unfinished=$cache/unfinished.$$
    trap 'rm -rf "$unfinished"' EXIT
    programs "$unfinished/bin" >&2
    images "$unfinished/bin" "$unfinished/images"
    mv -T "$unfinished" "$there" 2>/dev/null || [ -d "$there" ]
fi
printf '%s\n' "$there/bin/trieste-apiserver"

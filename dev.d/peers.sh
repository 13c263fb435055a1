# shellcheck shell=sh disable=SC2154,SC2034 # variables are shared with ./dev
# Foreign gateways and Kubernetes for tests: built once a machine, beside whatever else is going on. Sourced by ./dev.
#
#   ~/.cache/trieste/peers        wireguard-go, boringtun-cli, a Debian trixie (strongSwan 6, tshark), moto
#   ~/.cache/trieste/kubernetes   see tests/peers/kubernetes/build.sh

wireguard_go_version=$(sed -n 's/.*golang.zx2c4.com\/wireguard \(v[^ ]*\).*/\1/p' "$go_module/go.mod")
boringtun_version=0.7.1
trixie_packages=strongswan-swanctl,charon-systemd,libcharon-extra-plugins,libstrongswan-extra-plugins,libstrongswan-standard-plugins,tshark
TRIESTE_PEERS=$cache/peers
export TRIESTE_PEERS

# is_built NAME VERSION — whether this version of it is in the cache.
is_built() {
    [ "$(cat "$TRIESTE_PEERS/$1.version" 2>/dev/null)" = "$2" ]
}

wireguard_go() {
    ! is_built wireguard-go "$wireguard_go_version" || return 0
    say "building wireguard-go $wireguard_go_version"
    (cd "$go_module" && CGO_ENABLED=0 go build -trimpath -mod=readonly -o "$TRIESTE_PEERS/bin/wireguard-go" golang.zx2c4.com/wireguard) || return 1
    say "$wireguard_go_version" >"$TRIESTE_PEERS/wireguard-go.version"
}

boringtun() {
    ! is_built boringtun-cli "$boringtun_version" || return 0
    say "building boringtun-cli $boringtun_version"
    # A folder of its own: it is built once, and its features are not ours.
    nice cargo install boringtun-cli --version "$boringtun_version" --locked --force --quiet \
        --root "$TRIESTE_PEERS" --target-dir "$TRIESTE_PEERS/target" </dev/null || return 1
    rm -rf "$TRIESTE_PEERS/target"
    say "$boringtun_version" >"$TRIESTE_PEERS/boringtun-cli.version"
}

# trixie — a folder with the Debian after this one, for the strongSwan that sends ESP without UDP and the tshark that
# checks extended sequence numbers. What is mounted and started on the way is so in namespaces of its own, and gone with
# them however this ends.
trixie() {
    is_root || return 0
    ! is_built trixie "$trixie_packages" || return 0
    say "unpacking Debian trixie with strongSwan 6 and tshark"
    rm -rf "$TRIESTE_PEERS/trixie" "$TRIESTE_PEERS/trixie.partial" "$TRIESTE_PEERS/trixie.version"
    unshare --mount --pid --fork --kill-child --propagation private \
        debootstrap --variant=minbase "--include=$trixie_packages" trixie "$TRIESTE_PEERS/trixie.partial" </dev/null \
        >"$TRIESTE_PEERS/trixie.log" 2>&1 || {
        tail -n 20 "$TRIESTE_PEERS/trixie.log"
        say "debootstrap could not unpack Debian trixie: its last words are above."
        return 1
    }
    for folder in var/cache/apt var/lib/apt/lists usr/share/doc usr/share/man usr/share/locale debootstrap; do
        rm -rf "$TRIESTE_PEERS/trixie.partial/${folder:?}"
    done
    mv "$TRIESTE_PEERS/trixie.partial" "$TRIESTE_PEERS/trixie"
    say "$trixie_packages" >"$TRIESTE_PEERS/trixie.version"
}

# moto — a server that answers as EC2 does.
moto() {
    versions=$(cksum <tests/peers/moto/requirements.txt)
    ! is_built moto "$versions" || return 0
    say "installing moto"
    rm -rf "$TRIESTE_PEERS/moto" "$TRIESTE_PEERS/moto.version"
    # Every version is named, so that nothing has to be resolved; bytecode is made of what is used.
    pip3 install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --no-compile \
        --target "$TRIESTE_PEERS/moto" --requirement tests/peers/moto/requirements.txt </dev/null || return 1
    say "$versions" >"$TRIESTE_PEERS/moto.version"
}

# peers — all of them; another run that builds them is waited for. False if one could not be built.
peers() {
    go_toolchain
    mkdir -p "$TRIESTE_PEERS/bin"
    (
        flock 9
        (trixie && moto) & # waits for the network
        unpacking=$!
        wireguard_go && sh tests/peers/kubernetes/build.sh >/dev/null && boringtun
        built=$?
        wait "$unpacking" && exit "$built"
    ) 9>"$cache/peers.lock"
}

# peers_begin — builds what is missing while the rest of the run goes on.
peers_begin() {
    peers >"$scratch/peers" 2>&1 &
    peers_process=$!
}

# peers_wait — ends the run with what the compiler said if a peer is not there.
peers_wait() {
    wait "$peers_process" || {
        cat "$scratch/peers"
        die "" "A foreign peer could not be built (tests/peers): its own message is above."
    }
    TRIESTE_APISERVER=$(sh tests/peers/kubernetes/build.sh path)
    export TRIESTE_APISERVER
}

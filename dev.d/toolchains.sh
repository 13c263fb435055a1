# shellcheck shell=sh disable=SC2154,SC2034 # variables are shared with ./dev
# Rust, Go, and where Cargo compiles. Sourced by ./dev.

rust_version=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
go_module=tests/peers/wireguard-go
cargo_deny_version=0.20.2
go_version=$(sed -n 's/^go \([0-9.]*\).*/\1/p' "$go_module/go.mod")

# at_least HAVE WANT — compares dotted versions.
at_least() {
    [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

# sudo resets PATH: look where rustup and Go's archive put things, for this user and for the one behind sudo.
find_toolchains() {
    homes=$HOME
    [ -z "${SUDO_USER:-}" ] || homes="$homes $(getent passwd "$SUDO_USER" | cut -d: -f6)"
    for home in $homes; do
        if ! have cargo && [ -x "$home/.cargo/bin/cargo" ]; then
            PATH=$home/.cargo/bin:$PATH
            RUSTUP_HOME=${RUSTUP_HOME:-$home/.rustup}
            export RUSTUP_HOME
        fi
    done
    if ! have go && [ -x /usr/local/go/bin/go ]; then PATH=/usr/local/go/bin:$PATH; fi
    export PATH
}

# rust — for every verb that compiles: the right compiler, and where it puts things.
rust() {
    components="--profile minimal --component rustfmt --component clippy"
    if ! have cargo; then
        die "Rust is missing: this project is built with Rust $rust_version (rust-toolchain.toml)." \
            "Debian 12's own is too old. Get it with" \
            "  curl --proto '=https' -sSf https://sh.rustup.rs | sh -s -- -y --default-toolchain none" \
            "  . \"\$HOME/.cargo/env\" && rustup toolchain install $rust_version $components"
    fi
    if ! found=$(cargo --version 2>/dev/null | cut -d' ' -f2) || [ -z "$found" ]; then
        die "rustup has no Rust $rust_version yet (rust-toolchain.toml). Get it with" \
            "  rustup toolchain install $rust_version $components"
    fi
    at_least "$found" "$rust_version" || die "Rust $found is too old: $rust_version is needed. Get it with rustup (https://rustup.rs):" \
        "  rustup toolchain install $rust_version $components"
    cargo_settings
}

# cargo_deny — installs it where it is missing or another version. Four minutes of two cores, so that only ./dev deps does it,
# which CI does not call.
cargo_deny() {
    if have cargo-deny && [ "$(cargo deny --version | cut -d' ' -f2)" = "$cargo_deny_version" ]; then return 0; fi
    step "building cargo-deny $cargo_deny_version"
    cargo install cargo-deny --version "$cargo_deny_version" --locked --force --quiet --target-dir "$scratch/cargo-deny"
}

go_toolchain() {
    get="Get it from https://go.dev/dl/ (unpack it to /usr/local/go), or install a newer Debian's golang-go."
    have go || die "Go is missing: the foreign peers (wireguard-go, Kubernetes) are built with Go $go_version or newer." "$get"
    # In the module's folder, so that a Go that can fetch a newer one by itself counts as that one.
    found=$(cd "$go_module" && go env GOVERSION 2>/dev/null | sed 's/^go//') || found=
    [ -n "$found" ] || found=$(cd / && go env GOVERSION | sed 's/^go//')
    at_least "$found" "$go_version" || die "Go $found is too old: wireguard-go needs Go $go_version or newer." "$get"
}

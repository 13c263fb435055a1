# shellcheck shell=sh disable=SC2154,SC2034 # variables are shared with ./dev
# What Cargo builds and where: one profile, one set of features, one folder for everything compiled. Sourced by ./dev.
#
# Everything but the finished programs is compiled outside of the checkout, in a folder named by toolchain and lock file,
# so that a second clone finds the registry's crates built. Cargo itself takes turns where two build at once.

# cargo_settings — for every cargo that ./dev starts; `./dev cargo …` has the same.
cargo_settings() {
    CARGO_TARGET_DIR=$PWD/target # tests/sim is a workspace of its own
    export CARGO_TARGET_DIR
    [ -z "${CARGO_BUILD_BUILD_DIR:-}" ] || return 0
    CARGO_BUILD_BUILD_DIR=$cache/cargo/$({ rustc -vV && cat Cargo.lock; } | sha256sum | cut -c1-16)
    export CARGO_BUILD_BUILD_DIR
    mkdir -p "$CARGO_BUILD_BUILD_DIR"
    touch "$CARGO_BUILD_BUILD_DIR"
    forget_old
}

# forget_old — removes what nobody has used for long: folders of older lock files, and our own crates of clones and
# commits that are gone.
forget_old() {
    find "$cache/cargo" -mindepth 1 -maxdepth 1 -mtime +6 -exec rm -rf {} +
    find "$CARGO_BUILD_BUILD_DIR" -mindepth 3 -maxdepth 3 -path '*/.fingerprint/trieste-*' -mtime +2 | while read -r old; do
        rm -rf "$old"
        find "$(dirname "$old")/../deps" -name "*-${old##*-}*" -delete
    done
}

# simulation VERB… — cargo for tests/sim, which has to be built apart (its Cargo.toml says why), with the same versions
# of everything else.
simulation() {
    cp Cargo.lock tests/sim/Cargo.lock
    verb_of_cargo=$1
    shift
    cargo "$verb_of_cargo" --manifest-path tests/sim/Cargo.toml "$@"
}

# programs_of ARGUMENT… — builds tests and lists them: name, program, folder. A package's unit tests are called
# FOLDER.lib or FOLDER.PROGRAM, its integration tests by their name.
programs_of() {
    cargo "$@" --no-run --message-format=json-render-diagnostics >"$scratch/artifacts" || return 1
    sed -n 's/.*"manifest_path":"\([^"]*\)\/Cargo.toml","target":{"kind":\["\([a-z]*\)"\].*"name":"\([^"]*\)","src_path".*"profile":{[^}]*"test":true}.*"executable":"\([^"]*\)".*/\2 \3 \4 \1/p' \
        "$scratch/artifacts" | while read -r kind name program folder; do
        crate=$(echo "${folder#"$PWD"/}" | tr / -)
        case $kind in
        test) echo "$name $program $folder" ;;
        bin) echo "$crate.$name $program $folder" ;;
        *) echo "$crate.lib $program $folder" ;;
        esac
    done
}

# shellcheck shell=sh disable=SC2154,SC2034 # variables are shared with ./dev
# Debian packages: what a verb needs and this machine lacks is named and installed. Sourced by ./dev.

# packages VERB... — installs what these verbs need and this machine lacks; says what and why first.
packages() {
    for wanted in "$@"; do
        grep -v '^#' dev.d/packages.txt | while read -r verbs command package reason; do
            case ",$verbs," in
            *",$wanted,"*) ;;
            *) continue ;;
            esac
            have "$command" || printf '  %-30s %s\n' "$package" "$reason"
        done
    done | sort -u >"$scratch/missing"
    [ -s "$scratch/missing" ] || return 0
    missing=$(awk '{ printf "%s ", $1 }' "$scratch/missing")
    say "Missing Debian packages:"
    cat "$scratch/missing"
    have apt-get || die "" "This system has no apt-get. Install these programs by its own means, then try again."
    is_root || die "" "Installing them needs root. Either run    sudo ./dev $verb" \
        "or first    sudo apt-get install --no-install-recommends $missing"
    say "Installing them with apt-get."
    export DEBIAN_FRONTEND=noninteractive
    if echo "$missing" | grep -qw tshark; then # its package asks whether everyone may capture: no
        echo "wireshark-common wireshark-common/install-setuid boolean false" | debconf-set-selections
    fi
    # Another checkout may be installing: both wait for dpkg's lock.
    lock=DPkg::Lock::Timeout=600
    apt-get update -q </dev/null || say "apt-get update failed; going on with the package lists that are here."
    no_services
    # shellcheck disable=SC2086 # a list of package names
    apt-get install -o "$lock" -y -q --no-install-recommends $missing </dev/null ||
        die "" "apt-get could not install: $missing" "Its own message is above; ./dev $verb needs these packages."
    services_again
    # Tests start the peer themselves; a service of that name would hold its ports from the next start of the machine on.
    if echo "$missing" | grep -qw charon-systemd && have systemctl; then
        systemctl disable --quiet strongswan.service || say "strongswan.service could not be disabled."
    fi
    for service in openvswitch-switch ovn-central ovn-host; do
        if echo "$missing" | grep -qw "$service" && have systemctl; then
            systemctl disable --quiet "$service.service" || say "$service.service could not be disabled."
        fi
    done
    if echo "$missing" | grep -qw coturn && have systemctl; then
        systemctl disable --quiet coturn.service || say "coturn.service could not be disabled."
    fi
}

# Packages with services start them when they are installed, unless this file says no.
policy=/usr/sbin/policy-rc.d
no_services() {
    [ ! -e "$policy" ] || return 0
    : >"$scratch/policy"
    printf '#!/bin/sh\n# Written by %s/dev for as long as it installs packages.\nexit 101\n' "$PWD" >"$policy"
    chmod 755 "$policy"
}
services_again() {
    [ ! -e "$scratch/policy" ] || rm -f "$policy" "$scratch/policy"
}

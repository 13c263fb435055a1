#!/bin/sh
# strongSwan of the Debian packages that `./dev` installs, its ESP in user space (kernel-libipsec) and in UDP. The preshared
# key is the text in PEER_PSK_FILE, or "bench"; the other PEER_*KEY variables are not needed. Neither PEER_IF nor
# PEER_MTU counts: the plugin's device is ipsec0, and it reads no more than 1400 bytes from it, whatever its MTU.
set -eu
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

configure() {
    psk=bench
    [ -z "${PEER_PSK_FILE:-}" ] || psk=$(cat "$PEER_PSK_FILE")
    cat >"$PEER_STATE/strongswan.conf" <<EOF
charon-systemd {
  load = random nonce openssl aes sha1 sha2 hmac kdf gcm chapoly curve25519 pem pkcs1 x509 pubkey constraints kernel-libipsec kernel-netlink socket-default vici updown
  plugins {
    vici {
      socket = unix://$PEER_STATE/vici
    }
  }
  journal {
    default = -1
  }
  filelog {
    log {
      path = $PEER_STATE/charon-log.log
      default = ${PEER_LOG_LEVEL:-0}
    }
  }
}
EOF
    cat >"$PEER_STATE/swanctl.conf" <<EOF
connections {
  cable {
    version = 2
    mobike = no
    local_addrs = $PEER_LOCAL
    local_port = ${PEER_PORT:-4500}
    remote_addrs = ${PEER_REMOTE:-%any}
    remote_port = ${PEER_REMOTE_PORT:-4500}
    proposals = ${PEER_IKE_PROPOSALS:-aes128gcm16-prfsha256-x25519}
    encap = yes
    keyingtries = 0
    local {
      auth = psk
      id = $PEER_LOCAL
    }
    remote {
      auth = psk
    }
    children {
      pods {
        local_ts = $(own_subnets)
        remote_ts = $(echo "$PEER_SUBNETS" | tr ' ' ',')
        esp_proposals = ${PEER_ESP_PROPOSALS:-aes128gcm16}
        start_action = $1
        dpd_action = restart
      }
    }
  }
}
secrets {
  ike-cable {
    secret = "$psk"
  }
}
EOF
}

ask() {
    verb=$1
    shift
    STRONGSWAN_CONF=$PEER_STATE/strongswan.conf swanctl "$verb" --uri "unix://$PEER_STATE/vici" "$@"
}

up() {
    require PEER_LOCAL PEER_SUBNETS
    # Two that start at once would end up with two SAs, and packets without one would start none: the lesser address begins.
    first=$(printf '%s\n%s\n' "$PEER_LOCAL" "${PEER_REMOTE:-$PEER_LOCAL}" | sort | head -n 1)
    action=none
    [ -z "${PEER_REMOTE:-}" ] || [ "$first" != "$PEER_LOCAL" ] || action=start
    configure "$action"
    for folder in x509 x509ca x509ocsp x509aa x509ac x509crl pubkey private rsa ecdsa pkcs8 pkcs12; do
        mkdir -p "$PEER_STATE/$folder" # swanctl would complain
    done
    # Where AppArmor confines Debian's file, it does so by its path.
    cp "$(command -v charon-systemd || echo /usr/sbin/charon-systemd)" "$PEER_STATE/charon"
    daemon charon env "STRONGSWAN_CONF=$PEER_STATE/strongswan.conf" "$PEER_STATE/charon"
    wait_for 10 "charon's control socket" ask --stats
    ask --load-all --noprompt --file "$PEER_STATE/swanctl.conf" >"$PEER_STATE/swanctl.log" 2>&1 ||
        {
            cat "$PEER_STATE/swanctl.log" >&2
            down
            fail "swanctl refuses the configuration"
        }
}

down() {
    end_daemons
    rm -f "$PEER_STATE/vici"
    for family in -4 -6; do
        ip -n "$PEER_NS" "$family" rule del table 220 2>/dev/null || true
    done
}

main "$@"

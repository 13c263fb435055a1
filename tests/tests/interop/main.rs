//! Our gateway and foreign ones: WireGuard, VXLAN, IPsec and ESP under other eyes. Most need root.
#![expect(clippy::unwrap_used, reason = "helpers of tests: what cannot go on has failed")]

mod esp;
mod ipsec;
mod peers;
mod strongswan;
mod vxlan;
mod wireguard;

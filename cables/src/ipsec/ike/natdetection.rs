//! Whether there is a NAT on the way (RFC 7296 section 2.23).

use std::net::{Ipv4Addr, SocketAddr};

use super::payloads::Payloads;
use crate::ipsec::crypto::nat_detection_hash;
use crate::ipsec::wire::{NotifyKind, Payload};

/// Where NATs are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Nat {
    /// We are behind one.
    pub(super) is_local: bool,
    /// The peer is behind one, or says so to have packets go through UDP.
    pub(super) is_remote: bool,
}

/// The SPIs that go into the hashes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spis {
    /// Of who began.
    pub(super) initiator: u64,
    /// Of who answered; 0 in the first request.
    pub(super) responder: u64,
}

impl Spis {
    fn hash(self, address: SocketAddr) -> Vec<u8> {
        nat_detection_hash(self.initiator, self.responder, address).to_vec()
    }
}

/// The two notifies for a message from `local` to `remote`. With `is_forced`, the peer is made to believe that we are
/// behind a NAT, as strongSwan (`encap = yes`) and libreswan (`--forceencaps`) do.
pub(super) fn notifies(spis: Spis, local: SocketAddr, remote: SocketAddr, is_forced: bool) -> [Payload; 2] {
    let source = if is_forced { SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0) } else { local };
    [
        Payload::notify(NotifyKind::NatDetectionSourceIp, spis.hash(source)),
        Payload::notify(NotifyKind::NatDetectionDestinationIp, spis.hash(remote)),
    ]
}

/// What the notifies of a message that came from `remote` to `local` say. Without notifies there is no NAT that the
/// peer could live with.
pub(super) fn detect(payloads: &[Payload], spis: Spis, local: SocketAddr, remote: SocketAddr) -> Nat {
    let hashes = |kind: NotifyKind| {
        let found = Payloads(payloads).notifies().filter(move |notify| notify.kind == kind);
        found.map(|notify| notify.data.as_slice())
    };
    let differs = |kind: NotifyKind, address: SocketAddr| {
        let expected = spis.hash(address);
        hashes(kind).next().is_some() && !hashes(kind).any(|hash| hash == expected)
    };
    Nat {
        is_local: differs(NotifyKind::NatDetectionDestinationIp, local),
        is_remote: differs(NotifyKind::NatDetectionSourceIp, remote),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPIS: Spis = Spis { initiator: 1, responder: 0 };

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_nat_is_found_on_the_side_where_it_is() {
        let (here, there) = (address("10.0.0.1:4500"), address("192.0.2.2:4500"));
        let sent = notifies(SPIS, here, there, false);
        assert_eq!(detect(&sent, SPIS, there, here), Nat::default());
        let translated = address("198.51.100.1:30000");
        assert_eq!(detect(&sent, SPIS, there, translated), Nat { is_local: false, is_remote: true });
        let inside = address("10.9.0.2:4500");
        assert_eq!(detect(&sent, SPIS, inside, here), Nat { is_local: true, is_remote: false });
    }

    #[test]
    fn forced_encapsulation_looks_like_a_nat_at_our_side() {
        let (here, there) = (address("[fd00::1]:4500"), address("[fd00::2]:4500"));
        let sent = notifies(SPIS, here, there, true);
        assert_eq!(detect(&sent, SPIS, there, here), Nat { is_local: false, is_remote: true });
    }

    #[test]
    fn a_peer_that_says_nothing_of_nat_has_none() {
        let (here, there) = (address("10.0.0.1:4500"), address("192.0.2.2:4500"));
        assert_eq!(detect(&[], SPIS, here, there), Nat::default());
    }
}

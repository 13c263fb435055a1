//! A gate, and more who own their addresses than it has time for.

#![expect(clippy::disallowed_methods, reason = "a virtual clock has to start somewhere")]

use std::net::{Ipv4Addr, SocketAddr};

use boringtun::noise::Tunn;

use super::*;
use crate::wireguard::WireguardKind;
use crate::{CableKind as _, LaneConfig};

/// Somebody who wants to make a handshake.
struct Initiator {
    tunn: Tunn,
    outer: Outer,
}

impl Initiator {
    fn new(number: u8, gate: &PublicKey, from: u32) -> Self {
        let tunn = Tunn::new(StaticSecret::from([number; 32]), *gate, None, None, 1, None);
        let peer = SocketAddr::from((Ipv4Addr::from(from), 4500));
        Self { tunn, outer: Outer { peer, ..Outer::NONE } }
    }

    fn initiation(&mut self) -> Vec<u8> {
        let mut buffer = [0; 256];
        let TunnResult::WriteToNetwork(message) = self.tunn.format_handshake_initiation(&mut buffer, true)
        else {
            panic!("an initiation can always be made");
        };
        message.to_vec()
    }

    /// Sends one, and another one with the cookie that is asked for.
    fn is_let_in(&mut self, gate: &mut dyn Gate, now: Instant) -> bool {
        let admission = gate.admit(&self.initiation(), &self.outer, now);
        let Admission::Reply(cookie) = admission else { return matches!(admission, Admission::Pass(_)) };
        let mut buffer = [0; 256];
        let from = Some(self.outer.peer.ip());
        assert!(matches!(self.tunn.decapsulate(from, &cookie, &mut buffer), TunnResult::Done));
        matches!(gate.admit(&self.initiation(), &self.outer, now), Admission::Pass(_))
    }
}

#[test]
fn many_who_own_their_addresses_leave_peers_their_handshakes() {
    let now = Instant::now();
    let kind = WireguardKind::new([7; 32].into(), "psk", "submariner", now);
    let own = PublicKey::from(&StaticSecret::from([7; 32]));
    let site = [("publicKey".to_owned(), crate::keys::emit(&[9; 32]))].into();
    let peer = LaneConfig::new(LaneId(5), trieste_packet::CableId(1), None, site);
    kind.connect(&peer, now).unwrap();
    let mut gate = kind.gate();
    let mut stranger = Initiator::new(1, &own, 0x0a00_0000);
    for _ in 0..LIMIT_PER_SECOND {
        assert!(matches!(gate.admit(&stranger.initiation(), &stranger.outer, now), Admission::Pass(_)));
    }

    let mut let_in = 0;
    for from in 0..200 {
        let_in += u64::from(Initiator::new(1, &own, 0x0b00_0000 + from).is_let_in(&mut *gate, now));
    }
    assert_eq!(let_in, PROVEN_PER_SECOND);
    let mut other = Initiator::new(9, &own, 0x0c00_0001);
    assert!(!other.is_let_in(&mut *gate, now), "as long as it is not where the peer is");
    kind.set_peer(LaneId(5), other.outer.peer);
    assert!(other.is_let_in(&mut *gate, now));
    kind.disconnect(LaneId(5));
    assert!(!other.is_let_in(&mut *gate, now));
    gate.handle_timeout(now + Duration::from_secs(1));
    assert!(Initiator::new(1, &own, 0x0d00_0001).is_let_in(&mut *gate, now));
}

//! VXLAN as a kind of cable: what our Endpoint says of it, and who a remote one is.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use trieste_packet::LaneId;
use trieste_vxlan::{HEAD_BYTES, Mac, VTEP_GATEWAYS, vtep};

use super::cable::{CableParts, VxlanCable};
use super::gate::VxlanGate;
use super::known::{Known, KnownPeer};
use super::station::Ends;
use crate::attempts::{AttemptBudget, AttemptTimer};
use crate::boundary::{CableError, CableKind, Gate, LaneConfig, Overhead, Site, Tunnel};

/// The kind's name: that of upstream's driver, as Endpoints carry it.
pub const NAME: &str = "vxlan";
/// Key of `backend_config` that says that a gateway's station has the address that [`Mac::of_vtep`] derives.
const TRIESTE: &str = "trieste.vxlan";
/// Its value.
const TRIESTE_VERSION: &str = "1";
/// Key of `backend_config` that names the interface for host routes.
const INTERFACE_NAME: &str = "interface-name";

/// The VXLAN driver of one gateway.
#[derive(Debug)]
pub struct VxlanKind {
    interface: String,
    known: Known,
    attempts: Arc<AttemptBudget>,
    started: Instant,
}

impl VxlanKind {
    /// The driver. `interface` is the TUN device's name.
    #[must_use]
    pub fn new(interface: &str, now: Instant) -> Self {
        Self {
            interface: interface.to_owned(),
            known: Known::default(),
            attempts: AttemptBudget::new(now),
            started: now,
        }
    }
}

impl CableKind for VxlanKind {
    fn name(&self) -> &'static str {
        NAME
    }

    fn backend_config(&self) -> BTreeMap<String, String> {
        [(TRIESTE, TRIESTE_VERSION.to_owned()), (INTERFACE_NAME, self.interface.clone())]
            .map(|(key, value)| (key.to_owned(), value))
            .into()
    }

    /// The VTEP address: frames say nothing else of whom they are from.
    fn identity(&self, remote: &Site) -> Result<[u8; 32], CableError> {
        let mut identity = [0; 32];
        identity[..4].copy_from_slice(&vtep_of(remote)?.octets());
        Ok(identity)
    }

    fn identity_is(&self) -> &'static str {
        "VTEP address (241 and the last three octets of its private address)"
    }

    fn connect(&self, config: &LaneConfig, now: Instant) -> Result<Box<dyn Tunnel>, CableError> {
        let (ours, theirs) = (vtep_of(&config.local)?, vtep_of(&config.remote)?);
        if ours == theirs {
            return Err(CableError::OwnVtep(theirs));
        }
        let derives = config.remote.backend_config.contains_key(TRIESTE);
        let mac = derives.then(|| Mac::of_vtep(theirs));
        self.known.add(&KnownPeer {
            lane: config.lane,
            vtep: theirs,
            mac,
            chosen: config.peer.map(|peer| peer.ip()),
            private: config.remote.private_ip,
        });
        let ends = Ends { vtep: ours, mac: Mac::of_vtep(ours), peer_vtep: theirs };
        let seed = u64::from(theirs.to_bits()) << 32 | u64::from(config.lane.0);
        let attempts = AttemptTimer::new(Arc::clone(&self.attempts), seed, now);
        let parts = CableParts { ends, mac, known: self.known.clone(), attempts };
        Ok(Box::new(VxlanCable::new(config, parts, now)))
    }

    fn set_peer(&self, lane: LaneId, peer: SocketAddr) {
        self.known.set_chosen(lane, peer.ip());
    }

    fn gate(&self) -> Box<dyn Gate> {
        Box::new(VxlanGate::new(&self.known, self.started))
    }

    fn overhead(&self) -> Overhead {
        overhead()
    }

    fn identifies_by_address(&self) -> bool {
        true
    }
}

/// Bytes that a frame's head adds.
pub(super) fn overhead() -> Overhead {
    Overhead { message_bytes: u16::try_from(HEAD_BYTES).expect("22") }
}

fn vtep_of(site: &Site) -> Result<Ipv4Addr, CableError> {
    match site.private_ip.to_canonical() {
        IpAddr::V4(address) => Ok(vtep(VTEP_GATEWAYS, address)),
        IpAddr::V6(address) => Err(CableError::NoVtep(address)),
    }
}

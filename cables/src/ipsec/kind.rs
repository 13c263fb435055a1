//! IPsec as a kind of cable: what our Endpoint says of it, and who a remote one is.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::time::Instant;

use crossbeam::channel::{Receiver, Sender, bounded, unbounded};
use ipnet::IpNet;
use rand_core::CryptoRngCore;
use ring::digest::{Context, SHA256};
use trieste_packet::LaneId;
use zeroize::Zeroizing;

use super::announced::{PREFERRED_SERVER, TRIESTE, TRIESTE_VERSION, is_trieste};
use super::esp::{EspCable, EspCableConfig, OVERHEAD_BYTES};
use super::gate::{GateShared, Inboxes, IpsecGate};
use super::ike::{EngineConfig, IkeEngine, Input, PeerConfig};
use super::link;
use super::pair_key::{IPSEC_PUBLIC_KEY, OwnKey};
use crate::boundary::{CableError, CableKind, Gate, LaneConfig, Overhead, Site, Tunnel};
use crate::keys::Secret;

/// The kind's name: that of upstream's driver, as Endpoints carry it.
pub const NAME: &str = "libreswan";
/// Key of `backend_config` that names the interface for host routes.
const INTERFACE_NAME: &str = "interface-name";
/// Key of `backend_config` with the time at which such a gateway started: peers begin anew when it changes.
const PREFERRED_SERVER_TIMESTAMP: &str = "preferred-server-timestamp";
/// IKE messages that wait for the slow half, of peers and of strangers. Ours: a second's worth of what the gates let
/// through; whoever is lost asks again.
const INBOX: usize = 1024;

/// What the IPsec driver of one gateway is set to, but for what the engine is.
#[derive(Clone, PartialEq, Eq)]
pub struct KindSettings {
    /// The TUN device's name.
    pub interface: String,
    /// Whether packets always go through UDP.
    pub forces_encapsulation: bool,
    /// Where peers are to begin: since when, in Unix seconds.
    pub preferred_server: Option<i64>,
    /// The gateway's own key, by which other Trieste gateways know it.
    pub private_key: Secret,
}

impl fmt::Debug for KindSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KindSettings").field("interface", &self.interface).finish_non_exhaustive()
    }
}

/// The slow half that all cables share, to be driven by a thread of its own.
pub struct SlowHalf {
    /// IKE.
    pub engine: IkeEngine,
    /// IKE messages for IKE SAs and attempts of ours, from the gates. To be taken before those of strangers.
    pub messages: Receiver<Input>,
    /// IKE messages of strangers: those that begin, and those for what is half-open.
    pub strangers: Receiver<Input>,
    /// What cables there are. Closed when the kind is gone.
    pub orders: Receiver<Input>,
}

/// The IPsec driver of one gateway.
pub struct IpsecKind {
    settings: KindSettings,
    own_key: OwnKey,
    psk: Zeroizing<Vec<u8>>,
    orders: Sender<Input>,
    gates: GateShared,
    started: Instant,
}

impl fmt::Debug for IpsecKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IpsecKind").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl IpsecKind {
    /// The driver, and its slow half.
    #[must_use]
    pub fn new(
        settings: KindSettings,
        engine: EngineConfig,
        mut rng: Box<dyn CryptoRngCore + Send>,
        now: Instant,
    ) -> (Self, SlowHalf) {
        let ((peers, messages), (to_strangers, strangers)) = (bounded(INBOX), bounded(INBOX));
        let (sender, orders) = unbounded();
        let mut cookie_secret = [0; 32];
        rng.fill_bytes(&mut cookie_secret);
        let (own_key, psk) = (OwnKey::new(&settings.private_key), engine.psk.clone());
        let engine = IkeEngine::new(engine, rng, now);
        let inboxes = Inboxes { peers, strangers: to_strangers };
        let gates = GateShared::new(cookie_secret.into(), inboxes, engine.load());
        let slow = SlowHalf { engine, messages, strangers, orders };
        (Self { settings, own_key, psk, orders: sender, gates, started: now }, slow)
    }

    /// Sends to the slow half. One that has ended needs nothing.
    fn send(&self, input: Input) {
        let _ = self.orders.send(input);
    }
}

impl CableKind for IpsecKind {
    fn name(&self) -> &'static str {
        NAME
    }

    fn backend_config(&self) -> BTreeMap<String, String> {
        let is_preferred = self.settings.preferred_server.is_some();
        let mut config: BTreeMap<String, String> = [
            (TRIESTE, TRIESTE_VERSION.to_owned()),
            (INTERFACE_NAME, self.settings.interface.clone()),
            (PREFERRED_SERVER, is_preferred.to_string()),
            (IPSEC_PUBLIC_KEY, self.own_key.emit()),
        ]
        .map(|(key, value)| (key.to_owned(), value))
        .into();
        if let Some(since) = self.settings.preferred_server {
            config.insert(PREFERRED_SERVER_TIMESTAMP.to_owned(), since.to_string());
        }
        config
    }

    /// Hashes what the cable is made from: whose it is, how it is spoken to, and what is behind it, where others than Trieste's
    /// gateways have SAs for pairs of networks.
    fn identity(&self, remote: &Site) -> Result<[u8; 32], CableError> {
        let mut text = format!("{} {}", remote.cable_name, remote.private_ip);
        for subnet in remote.subnets.iter().filter(|_| self.is_bound_to_networks(remote)) {
            text.push_str(&format!(" {subnet}"));
        }
        self.own_key.agree(&self.psk, remote)?;
        for key in [TRIESTE, PREFERRED_SERVER, PREFERRED_SERVER_TIMESTAMP, IPSEC_PUBLIC_KEY] {
            text.push_str(&format!(" {:?}", remote.backend_config.get(key)));
        }
        let mut context = Context::new(&SHA256);
        context.update(text.as_bytes());
        let mut identity = [0; 32];
        identity.copy_from_slice(context.finish().as_ref());
        Ok(identity)
    }

    fn connect(&self, config: &LaneConfig, now: Instant) -> Result<Box<dyn Tunnel>, CableError> {
        let (link, port, news) = link::link(config.lane);
        let peer = PeerConfig {
            address: config.peer,
            uses_nat: config.uses_nat || self.settings.forces_encapsulation,
            begins: config.resumes,
            pair_key: self.own_key.agree(&self.psk, &config.remote)?,
            ..PeerConfig::new(config.lane, config.local.clone(), config.remote.clone())
        };
        self.send(Input::Connect(Box::new(peer), link, news));
        let lane = EspCableConfig { lane: config.lane, cable: config.cable, port };
        Ok(Box::new(EspCable::new(lane, now)))
    }

    fn disconnect(&self, lane: LaneId) {
        self.send(Input::Disconnect(lane));
    }

    fn set_peer(&self, lane: LaneId, peer: SocketAddr) {
        self.send(Input::SetAddress(lane, peer));
    }

    fn rekey(&self, lane: LaneId) {
        self.send(Input::Rekey(lane));
    }

    fn gate(&self) -> Box<dyn Gate> {
        Box::new(IpsecGate::new(self.gates.clone(), self.started))
    }

    fn carries_esp(&self) -> bool {
        true
    }

    fn is_bound_to_networks(&self, remote: &Site) -> bool {
        !is_trieste(remote)
    }

    fn set_networks(&self, lane: LaneId, local: &[IpNet], remote: &[IpNet]) {
        self.send(Input::SetNetworks { lane, local: local.to_vec(), remote: remote.to_vec() });
    }

    fn overhead(&self) -> Overhead {
        Overhead { message_bytes: u16::try_from(OVERHEAD_BYTES).expect("37") }
    }
}

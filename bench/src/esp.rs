//! Our ESP lanes under keys that both ends have from the start. Never registered outside of the bench.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use trieste_cables::ipsec::esp::OVERHEAD_BYTES;
use trieste_cables::ipsec::link::link;
use trieste_cables::ipsec::selector::everything;
use trieste_cables::ipsec::{
    ChildMeter, ChildSa, EspCable, EspCableConfig, EspKeys, EspPath, EspSuite, LaneOrder, Limits, Outbound,
    Selectors, Spi,
};
use trieste_cables::{Admission, CableError, CableKind, Gate, LaneConfig, Message, Overhead, Site, Tunnel};
use trieste_packet::{DropReason, Outer};

/// Where an Endpoint says which end it is.
const END: &str = "end";
/// Keys last for all of a measurement.
const FOREVER: Duration = Duration::from_secs(86_400);

/// One of two ends, which use the same lane id.
#[derive(Debug)]
pub(crate) struct EspKind {
    end: u8,
    suite: EspSuite,
}

impl EspKind {
    /// An end with this number.
    pub(crate) fn new(end: u8, suite: EspSuite) -> Self {
        Self { end, suite }
    }

    /// What this end seals with.
    fn keys(&self, end: u8) -> EspKeys {
        EspKeys { key: vec![end; self.suite.key_bytes()].into(), salt: [end; EspSuite::SALT_BYTES] }
    }
}

impl CableKind for EspKind {
    fn name(&self) -> &'static str {
        "esp"
    }

    fn backend_config(&self) -> BTreeMap<String, String> {
        BTreeMap::from([(END.to_owned(), self.end.to_string())])
    }

    fn identity(&self, remote: &Site) -> Result<[u8; 32], CableError> {
        let text = remote.backend_config.get(END).ok_or(CableError::Missing(END))?;
        let end: u8 =
            text.parse().map_err(|error| CableError::Malformed { key: END, problem: format!("{error}") })?;
        Ok([end; 32])
    }

    fn connect(&self, config: &LaneConfig, now: Instant) -> Result<Box<dyn Tunnel>, CableError> {
        let [other, ..] = self.identity(&config.remote)?;
        let (slow_half, port, _) = link(config.lane);
        let all = vec![everything(true), everything(false)];
        slow_half.send(LaneOrder::Add(Box::new(ChildSa {
            inbound: Spi::new(config.lane, 1),
            outbound: Spi::new(config.lane, 1),
            suite: self.suite,
            has_esn: true,
            inbound_keys: self.keys(other),
            outbound_keys: self.keys(self.end),
            selectors: Selectors { local: all.clone(), remote: all },
            activation: Outbound::Now,
            limits: Limits::until(now + FOREVER),
            meter: ChildMeter::new(now),
        })));
        let peer = config.peer.unwrap_or_else(|| SocketAddr::from(([192, 0, 2, other], 4500)));
        let outer = Outer { peer, ..Outer::NONE };
        slow_half.send(LaneOrder::Path(EspPath { outer, may_move: true }));
        let config = EspCableConfig { lane: config.lane, cable: config.cable, port };
        Ok(Box::new(EspCable::new(config, now)))
    }

    fn gate(&self) -> Box<dyn Gate> {
        Box::new(EspGate)
    }

    fn overhead(&self) -> Overhead {
        Overhead { message_bytes: u16::try_from(OVERHEAD_BYTES).unwrap_or(u16::MAX) }
    }
}

/// Finds the lane by its SPI; there is nothing but data.
#[derive(Debug)]
struct EspGate;

impl Gate for EspGate {
    fn classify(&mut self, datagram: &[u8], _from: &Outer) -> Message {
        let spi = datagram.first_chunk::<4>().map(|bytes| Spi::from_bytes(*bytes));
        spi.map_or(Message::Unknown, |spi| Message::Data(spi.lane()))
    }

    fn admit(&mut self, _: &[u8], _: &Outer, _: Instant) -> Admission {
        Admission::Refuse(DropReason::BadHandshake)
    }

    fn handle_timeout(&mut self, _: Instant) {}
}

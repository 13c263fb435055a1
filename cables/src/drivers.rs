//! The cable drivers of one gateway: its own, and while its cluster set changes from one driver to another, the former.
//!
//! ```text
//!   Endpoint: backend, backend_config                     of the driver itself
//!             trieste.former-driver, trieste.former.KEY   the former one, and its settings
//!
//!   ours            theirs            cable
//!   a               a                 a
//!   b, formerly a   a                 a
//!   b, formerly a   b, formerly a     b
//!   b, formerly a   a, formerly b     the first of both by name
//!   b               a                 none
//! ```
//!
//! So clusters change one after the other, and any two of them have a driver in common at every moment. All drivers share
//! one UDP port: the first four bytes of a datagram say whose it is. WireGuard's types 1 to 4 and VXLAN's flags are followed
//! by three zero bytes, IKE begins with four of them (RFC 3948 section 2.2), and no SPI that we choose looks like one of these.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use ipnet::IpNet;
use trieste_packet::{LaneId, Outer};

use crate::boundary::{Admission, CableError, CableKind, Gate, LaneConfig, Message, Overhead, Site, Tunnel};

/// Key of `backend_config` that names the former driver.
pub const FORMER: &str = "trieste.former-driver";
/// What its settings' keys begin with.
const FORMER_SETTING: &str = "trieste.former.";

/// Chooses the driver of a cable between two gateways that offer these, the newer one first. Both ends choose alike. `None` if
/// they have none in common.
#[must_use]
pub fn common<'a>(ours: &[&'a str], theirs: &[impl AsRef<str>]) -> Option<&'a str> {
    let shared = |driver: &&&str| theirs.iter().any(|theirs| theirs.as_ref() == **driver);
    match (ours.first(), theirs.first()) {
        (Some(our), Some(their)) if *our == their.as_ref() => Some(our),
        _ => ours.iter().filter(shared).min().copied(),
    }
}

/// Returns what an Endpoint says of itself to gateways that take it by this driver, one of those that it offers.
#[must_use]
pub fn settings(
    driver: &str,
    backend: &str,
    mut backend_config: BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    backend_config.remove(FORMER);
    let is_of_former = |key: &String, _: &mut String| key.starts_with(FORMER_SETTING);
    let former: Vec<_> = backend_config.extract_if(.., is_of_former).collect();
    if driver != backend {
        let own = |(key, value): (String, String)| (key[FORMER_SETTING.len()..].to_owned(), value);
        backend_config.extend(former.into_iter().map(own));
    }
    backend_config
}

/// A driver and the one before it, as one kind of cable.
pub struct Drivers {
    newer: Arc<dyn CableKind>,
    former: Arc<dyn CableKind>,
}

impl Drivers {
    /// Offers `newer`, and `former` to gateways that have not changed yet.
    #[must_use]
    pub fn new(newer: Arc<dyn CableKind>, former: Arc<dyn CableKind>) -> Self {
        Self { newer, former }
    }

    fn by_name(&self, driver: &str) -> &dyn CableKind {
        if driver == self.former.name() { &*self.former } else { &*self.newer }
    }

    fn both(&self) -> [&dyn CableKind; 2] {
        [&*self.newer, &*self.former]
    }
}

impl CableKind for Drivers {
    fn name(&self) -> &'static str {
        self.newer.name()
    }

    fn names(&self) -> Vec<&'static str> {
        self.both().map(CableKind::name).into()
    }

    fn of(&self, driver: &str) -> Option<&dyn CableKind> {
        Some(self.by_name(driver))
    }

    fn backend_config(&self) -> BTreeMap<String, String> {
        let mut config = self.newer.backend_config();
        let former = self.former.backend_config();
        config.extend(former.into_iter().map(|(key, value)| (format!("{FORMER_SETTING}{key}"), value)));
        config.insert(FORMER.to_owned(), self.former.name().to_owned());
        config
    }

    fn identity(&self, remote: &Site) -> Result<[u8; 32], CableError> {
        self.by_name(&remote.driver).identity(remote)
    }

    fn identity_is(&self) -> &'static str {
        self.newer.identity_is()
    }

    fn connect(&self, config: &LaneConfig, now: Instant) -> Result<Box<dyn Tunnel>, CableError> {
        let driver = self.by_name(&config.remote.driver);
        let mut config = config.clone();
        let announced = std::mem::take(&mut config.local.backend_config);
        config.local.backend_config = settings(driver.name(), &config.local.driver, announced);
        driver.connect(&config, now)
    }

    // A lane is one driver's; the other one does not know it.

    fn disconnect(&self, lane: LaneId) {
        self.both().iter().for_each(|driver| driver.disconnect(lane));
    }

    fn set_peer(&self, lane: LaneId, peer: SocketAddr) {
        self.both().iter().for_each(|driver| driver.set_peer(lane, peer));
    }

    fn rekey(&self, lane: LaneId) {
        self.both().iter().for_each(|driver| driver.rekey(lane));
    }

    fn is_bound_to_networks(&self, remote: &Site) -> bool {
        self.by_name(&remote.driver).is_bound_to_networks(remote)
    }

    fn set_networks(&self, lane: LaneId, local: &[IpNet], remote: &[IpNet]) {
        self.both().iter().for_each(|driver| driver.set_networks(lane, local, remote));
    }

    fn gate(&self) -> Box<dyn Gate> {
        // ESP begins with any four bytes but those of the others: it is what is left.
        let mut drivers = self.both();
        drivers.sort_by_key(|driver| driver.carries_esp());
        Box::new(BothGates(drivers.map(CableKind::gate)))
    }

    fn overhead(&self) -> Overhead {
        let [newer, former] = self.both().map(|driver| driver.overhead().message_bytes);
        Overhead { message_bytes: newer.max(former) }
    }

    fn carries_esp(&self) -> bool {
        self.both().iter().any(|driver| driver.carries_esp())
    }

    fn identifies_by_address(&self) -> bool {
        self.both().iter().any(|driver| driver.identifies_by_address())
    }
}

/// The gates of two drivers, the one that knows its messages by their first bytes first.
struct BothGates([Box<dyn Gate>; 2]);

impl BothGates {
    /// Finds out whose a datagram is, and what.
    fn find(&mut self, datagram: &[u8], from: &Outer) -> (&mut dyn Gate, Message) {
        let [first, second] = &mut self.0;
        let message = first.classify(datagram, from);
        if message != Message::Unknown {
            return (&mut **first, message);
        }
        let message = second.classify(datagram, from);
        (&mut **second, message)
    }
}

impl Gate for BothGates {
    fn classify(&mut self, datagram: &[u8], from: &Outer) -> Message {
        self.find(datagram, from).1
    }

    fn admit(&mut self, datagram: &[u8], from: &Outer, now: Instant) -> Admission {
        self.find(datagram, from).0.admit(datagram, from, now)
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.0.iter_mut().for_each(|gate| gate.handle_timeout(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vxlan::VxlanKind;
    use crate::wireguard::WireguardKind;

    #[test]
    fn both_ends_choose_alike_and_the_newer_driver_as_soon_as_both_have_it() {
        let offers: Vec<Vec<&str>> = ["a", "b", "c"]
            .into_iter()
            .flat_map(|newer| {
                let former = ["a", "b", "c"].into_iter().filter(move |former| *former != newer);
                former.map(move |former| vec![newer, former]).chain([vec![newer]])
            })
            .collect();
        for (ours, theirs) in offers.iter().flat_map(|ours| offers.iter().map(move |theirs| (ours, theirs))) {
            let chosen = common(ours, theirs);
            assert_eq!(chosen, common(theirs, ours), "{ours:?} and {theirs:?}");
            assert_eq!(chosen.is_some(), ours.iter().any(|driver| theirs.contains(driver)));
            if ours[0] == theirs[0] {
                assert_eq!(chosen, Some(ours[0]));
            }
        }
        assert_eq!(common(&["b", "a"], &["a"]), Some("a"));
        assert_eq!(common(&["b", "a"], &["a", "b"]), Some("a"));
        assert_eq!(common(&[], &["a"]), None);
    }

    #[test]
    fn an_endpoint_says_the_same_of_a_driver_whether_that_is_the_newer_or_the_former_one() {
        let now = now();
        let wireguard = Arc::new(WireguardKind::new(
            WireguardKind::generate_private_key(),
            "a key of the set",
            "submariner",
            now,
        ));
        let vxlan = Arc::new(VxlanKind::new("submariner", now));
        let both = Drivers::new(vxlan.clone(), wireguard.clone());
        let mut config = both.backend_config();
        config.insert("udp-port".to_owned(), "4500".to_owned());
        assert_eq!(both.names(), ["vxlan", "wireguard"]);
        for (driver, kind) in [("vxlan", &*vxlan as &dyn CableKind), ("wireguard", &*wireguard)] {
            let said = settings(driver, "vxlan", config.clone());
            for (key, value) in kind.backend_config() {
                assert_eq!(said.get(&key), Some(&value), "{driver}: {key}");
            }
            assert_eq!(said["udp-port"], "4500");
            assert!(said.keys().all(|key| !key.starts_with("trieste.former")), "{said:?}");
        }
        let other = WireguardKind::new(WireguardKind::generate_private_key(), "a key of the set", "tun", now);
        let site = Site { driver: "wireguard".to_owned(), ..other.backend_config().into() };
        assert_eq!(both.identity(&site), wireguard.identity(&site));
    }

    #[expect(clippy::disallowed_methods, reason = "an Instant cannot be made from a number")]
    fn now() -> Instant {
        Instant::now()
    }
}

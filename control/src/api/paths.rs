//! The settings of Endpoints where a cluster has several gateways at once: keys of `backend_config` beyond upstream's.
//!
//! Read leniently: what somebody spoilt counts as absent, and costs a gateway its special treatment, not its cable.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{EndpointSpec, backend_config};

/// The weight of a gateway that does not say one.
pub const DEFAULT_WEIGHT: u16 = 100;

/// The largest weight.
pub const MAX_WEIGHT: u16 = 1_000;

/// How many shares the outside ports of translation are cut into.
pub const NAT_SLOTS: u8 = 8;

/// An Ed25519 public key, by which a gateway's notices are believed.
pub type NoticeKey = [u8; 32];

impl EndpointSpec {
    /// Returns `true` if its cluster supports several gateways at once.
    pub fn supports_paths(&self) -> bool {
        self.setting(backend_config::PATHS) == Some("1")
    }

    /// Returns the gateway's share of new flows, 1 to [`MAX_WEIGHT`].
    pub fn weight(&self) -> u16 {
        let weight = self.setting(backend_config::WEIGHT).and_then(|text| text.parse::<u16>().ok());
        weight.map_or(DEFAULT_WEIGHT, |weight| weight.clamp(1, MAX_WEIGHT))
    }

    /// Returns `true` if the gateway is to get no new flows.
    pub fn is_draining(&self) -> bool {
        self.setting(backend_config::STATE) == Some(backend_config::DRAINING)
    }

    /// Returns the key that the gateway signs its notices with.
    pub fn notice_key(&self) -> Option<NoticeKey> {
        STANDARD.decode(self.setting(backend_config::NOTICE_KEY)?).ok()?.try_into().ok()
    }

    /// Returns the first of the gateway's shares of outside ports, below [`NAT_SLOTS`].
    pub fn nat_slot(&self) -> Option<u8> {
        let slot: u8 = self.setting(backend_config::NAT_SLOT)?.parse().ok()?;
        (slot < NAT_SLOTS).then_some(slot)
    }

    /// Says, or no longer says, that its cluster knows of several gateways at once.
    pub fn set_supports_paths(&mut self, supports: bool) {
        self.set(backend_config::PATHS, supports.then(|| "1".to_owned()));
    }

    /// Says the gateway's share of new flows.
    pub fn set_weight(&mut self, weight: u16) {
        self.set(backend_config::WEIGHT, Some(weight.clamp(1, MAX_WEIGHT).to_string()));
    }

    /// Says whether the gateway is to get no new flows.
    pub fn set_draining(&mut self, is_draining: bool) {
        self.set(backend_config::STATE, is_draining.then(|| backend_config::DRAINING.to_owned()));
    }

    /// Says the key that the gateway signs its notices with.
    pub fn set_notice_key(&mut self, key: Option<NoticeKey>) {
        self.set(backend_config::NOTICE_KEY, key.map(|key| STANDARD.encode(key)));
    }

    /// Says the first of the gateway's shares of outside ports.
    pub fn set_nat_slot(&mut self, slot: Option<u8>) {
        self.set(backend_config::NAT_SLOT, slot.map(|slot| slot.to_string()));
    }

    fn setting(&self, key: &str) -> Option<&str> {
        self.backend_config.get(key).map(String::as_str)
    }

    /// Returns the cable drivers that the gateway offers, the newer one first, in lower case.
    pub fn drivers(&self) -> impl Iterator<Item = String> {
        let newer = self.backend.to_lowercase();
        let former = self.setting(backend_config::FORMER_DRIVER).map(str::to_lowercase);
        let former = former.filter(|former| *former != newer);
        std::iter::once(newer).chain(former)
    }

    fn set(&mut self, key: &str, value: Option<String>) {
        match value {
            Some(value) => drop(self.backend_config.insert(key.to_owned(), value)),
            None => drop(self.backend_config.remove(key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(settings: &[(&str, &str)]) -> EndpointSpec {
        let backend_config =
            settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        EndpointSpec { backend_config, ..EndpointSpec::default() }
    }

    #[test]
    fn what_is_said_is_read() {
        let mut written = EndpointSpec::default();
        written.set_supports_paths(true);
        written.set_weight(250);
        written.set_draining(true);
        written.set_notice_key(Some([7; 32]));
        written.set_nat_slot(Some(3));
        assert!(written.supports_paths() && written.is_draining());
        assert_eq!(
            (written.weight(), written.notice_key(), written.nat_slot()),
            (250, Some([7; 32]), Some(3))
        );
        written.set_supports_paths(false);
        written.set_draining(false);
        written.set_notice_key(None);
        written.set_nat_slot(None);
        assert_eq!(written, spec(&[("trieste.weight", "250")]));
    }

    #[test]
    fn a_former_driver_is_offered_besides_if_it_is_another_one() {
        let offered = |former: &[(&str, &str)]| -> Vec<String> {
            EndpointSpec { backend: "WireGuard".to_owned(), ..spec(former) }.drivers().collect()
        };
        assert_eq!(offered(&[]), ["wireguard"]);
        assert_eq!(offered(&[("trieste.former-driver", "vxlan")]), ["wireguard", "vxlan"]);
        assert_eq!(offered(&[("trieste.former-driver", "wireguard")]), ["wireguard"]);
    }

    #[test]
    fn upstreams_endpoint_and_a_spoilt_one_say_nothing_of_it() {
        let spoilt = spec(&[
            ("trieste.paths", "yes"),
            ("trieste.weight", "-4"),
            ("trieste.state", "tired"),
            ("trieste.notice-key", "c2hvcnQ="),
            ("trieste.nat-slot", "8"),
        ]);
        for silent in [EndpointSpec::default(), spoilt] {
            assert!(!silent.supports_paths() && !silent.is_draining());
            assert_eq!((silent.weight(), silent.notice_key(), silent.nat_slot()), (100, None, None));
        }
    }

    #[test]
    fn a_weight_beyond_the_bounds_is_the_nearest_one_within() {
        assert_eq!(spec(&[("trieste.weight", "0")]).weight(), 1);
        assert_eq!(spec(&[("trieste.weight", "65000")]).weight(), MAX_WEIGHT);
    }
}

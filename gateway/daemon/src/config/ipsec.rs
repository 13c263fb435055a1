//! The section `ipsec` of the configuration: what is proposed, in strongSwan's words, and times.

use std::time::Duration;

use serde::Deserialize;
use trieste_cables::ipsec::EspSuite;
use trieste_cables::ipsec::crypto::{Group, IkeAead, Prf};
use trieste_cables::ipsec::ike::{EngineConfig, Lifetime};
use zeroize::Zeroizing;

use super::Psk;
use super::error::{ConfigError, invalid};

/// How much longer than until its renewal an SA lives, as a fraction: a quarter.
const LIFE_FRACTION: u32 = 4;
/// Shortest time to a renewal: a renewal takes a few round trips, and one that fails is tried again.
const SHORTEST_SECONDS: u32 = 5;
/// Fewest packets or bytes to a renewal that make sense.
const FEWEST_PACKETS: u64 = 100;
/// A thousand packets of the usual size.
const FEWEST_BYTES: u64 = 1 << 20;

/// The section, as it was written. Absent means: ours.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct IpsecOptions {
    /// IKE proposals, best first: `aes256gcm16-prfsha256-x25519`. What several of them name may be combined.
    pub ike_proposals: Option<Vec<String>>,
    /// ESP proposals, best first: `aes128gcm16`, `aes128gcm16-noesn`.
    pub esp_proposals: Option<Vec<String>>,
    /// Whether sequence numbers of 64 bits are proposed and taken.
    pub esn: Option<bool>,
    /// Whether child SAs are renewed with a key agreement of their own.
    pub pfs: Option<bool>,
    /// Seconds until an IKE SA is renewed.
    pub ike_rekey_time: Option<u32>,
    /// Seconds until a child SA is renewed.
    pub esp_rekey_time: Option<u32>,
    /// Packets of one direction until a child SA is renewed.
    pub esp_rekey_packets: Option<u64>,
    /// Bytes of one direction until a child SA is renewed.
    pub esp_rekey_bytes: Option<u64>,
    /// Seconds without a sign of life until the peer is asked for one.
    pub dpd_delay: Option<u32>,
    /// Seconds until a peer that does not answer is given up.
    pub dpd_timeout: Option<u32>,
    /// Whether peers that authenticate by the set's key alone may begin from addresses that their Endpoints do not name.
    pub any_address: Option<bool>,
}

/// Settings of the IPsec cable.
#[derive(Debug, Clone)]
pub struct Ipsec {
    /// Whether packets always go through UDP.
    pub force_udp_encaps: bool,
    /// Whether peers are to begin negotiations.
    pub preferred_server: bool,
    engine: EngineConfig,
}

impl Ipsec {
    /// Returns the configuration of the IKE engine.
    #[must_use]
    pub fn engine(&self, psk: &Psk, port: u16) -> EngineConfig {
        let psk = Zeroizing::new(psk.expose().as_bytes().to_vec());
        EngineConfig { psk, port, ..self.engine.clone() }
    }

    /// Returns the configuration without the secret, for its times.
    #[must_use]
    pub fn times(&self) -> EngineConfig {
        self.engine.clone()
    }
}

impl IpsecOptions {
    /// Takes from `other` what is not value here.
    pub(super) fn or(self, other: Self) -> Self {
        first_of!(
            self,
            other,
            [
                ike_proposals,
                esp_proposals,
                esn,
                pfs,
                ike_rekey_time,
                esp_rekey_time,
                esp_rekey_packets,
                esp_rekey_bytes,
                dpd_delay,
                dpd_timeout,
                any_address,
            ]
        )
    }

    /// Checks every value and fills in the defaults.
    pub(super) fn resolve(
        self,
        force_udp_encaps: bool,
        preferred_server: bool,
    ) -> Result<Ipsec, ConfigError> {
        let mut engine = EngineConfig::default();
        if let Some(proposals) = &self.ike_proposals {
            ike_proposals(&mut engine, proposals)?;
        }
        engine.esn = self.esn.unwrap_or(engine.esn);
        if let Some(proposals) = &self.esp_proposals {
            (engine.esp_suites, engine.esn) = esp_suites(proposals, engine.esn)?;
        }
        engine.pfs = self.pfs.unwrap_or(engine.pfs);
        engine.ike_lifetime = lifetime("ipsec.ike-rekey-time", self.ike_rekey_time, engine.ike_lifetime)?;
        engine.child_lifetime = lifetime("ipsec.esp-rekey-time", self.esp_rekey_time, engine.child_lifetime)?;
        let packets = self.esp_rekey_packets;
        engine.child_packets =
            limit("ipsec.esp-rekey-packets", packets, FEWEST_PACKETS, engine.child_packets)?;
        let bytes = self.esp_rekey_bytes;
        engine.child_bytes = limit("ipsec.esp-rekey-bytes", bytes, FEWEST_BYTES, engine.child_bytes)?;
        engine.dpd_interval = seconds("ipsec.dpd-delay", self.dpd_delay, 1, engine.dpd_interval)?;
        engine.give_up = seconds("ipsec.dpd-timeout", self.dpd_timeout, 1, engine.give_up)?;
        engine.takes_any_address = self.any_address.unwrap_or(false);
        Ok(Ipsec { force_udp_encaps, preferred_server, engine })
    }
}

/// Ciphers, PRFs and groups, each in the order in which the proposals name them first.
fn ike_proposals(engine: &mut EngineConfig, proposals: &[String]) -> Result<(), ConfigError> {
    const KEY: &str = "ipsec.ike-proposals";
    if proposals.is_empty() {
        return Err(invalid(KEY, "an empty list proposes nothing; leave the key out for the default"));
    }
    (engine.ike_aeads, engine.prfs, engine.groups) = (Vec::new(), Vec::new(), Vec::new());
    for text in proposals {
        let mut words = text.split('-');
        let [Some(aead), Some(prf), Some(group), None] = std::array::from_fn(|_| words.next()) else {
            let shape = "is not of the form CIPHER-PRF-GROUP, as aes256gcm16-prfsha256-x25519 is";
            return Err(invalid(KEY, format!("`{text}` {shape}")));
        };
        add(&mut engine.ike_aeads, word(KEY, "cipher", aead, &IkeAead::ALL)?);
        add(&mut engine.prfs, word(KEY, "PRF", prf, &Prf::ALL)?);
        add(&mut engine.groups, word(KEY, "group", group, &Group::ALL)?);
    }
    Ok(())
}

fn add<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

/// Parses the suites, and whether sequence numbers have 64 bits: `-esn` and `-noesn` hold for all of them.
fn esp_suites(proposals: &[String], default: bool) -> Result<(Vec<EspSuite>, bool), ConfigError> {
    const KEY: &str = "ipsec.esp-proposals";
    let mut chosen = None;
    let mut suites = Vec::new();
    for text in proposals {
        let (name, esn) = match text.rsplit_once('-') {
            Some((name, "esn")) => (name, Some(true)),
            Some((name, "noesn")) => (name, Some(false)),
            _ => (text.as_str(), None),
        };
        if let (Some(one), Some(other)) = (chosen, esn)
            && one != other
        {
            return Err(invalid(
                KEY,
                format!("`{text}`: esn and noesn hold for all proposals, and both are there"),
            ));
        }
        chosen = chosen.or(esn);
        suites.push(word(KEY, "cipher", name, &EspSuite::ALL)?);
    }
    if suites.is_empty() {
        return Err(invalid(KEY, "an empty list proposes nothing; leave the key out for the default"));
    }
    Ok((suites, chosen.unwrap_or(default)))
}

/// Returns the item of `all` with this text.
fn word<T: Copy + ToString>(key: &'static str, what: &str, text: &str, all: &[T]) -> Result<T, ConfigError> {
    all.iter().find(|one| one.to_string() == text).copied().ok_or_else(|| {
        let known: Vec<String> = all.iter().map(ToString::to_string).collect();
        invalid(key, format!("`{text}` is no {what} that this gateway has; it has {}", known.join(", ")))
    })
}

fn lifetime(key: &'static str, value: Option<u32>, default: Lifetime) -> Result<Lifetime, ConfigError> {
    let Some(_) = value else { return Ok(default) };
    let soft = seconds(key, value, SHORTEST_SECONDS, default.soft)?;
    Ok(Lifetime { soft, hard: soft + soft / LIFE_FRACTION })
}

fn seconds(
    key: &'static str,
    value: Option<u32>,
    least: u32,
    default: Duration,
) -> Result<Duration, ConfigError> {
    match value {
        Some(value) if value < least => {
            Err(invalid(key, format!("{value} s are too few, {least} are the least")))
        }
        Some(value) => Ok(Duration::from_secs(value.into())),
        None => Ok(default),
    }
}

/// Returns a configured soft limit with the hard one.
fn limit(
    key: &'static str,
    value: Option<u64>,
    least: u64,
    (soft, hard): (u64, u64),
) -> Result<(u64, u64), ConfigError> {
    match value {
        Some(value) if value < least => {
            Err(invalid(key, format!("{value} is too little, {least} is the least")))
        }
        Some(value) if value >= hard => {
            Err(invalid(key, format!("{value} is too much: at {hard} an SA is dead")))
        }
        Some(value) => Ok((value, hard)),
        None => Ok((soft, hard)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<EngineConfig, String> {
        let options: IpsecOptions = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        let ipsec = options.resolve(false, false).map_err(|error| error.to_string())?;
        Ok(ipsec.engine(&"secret".parse().unwrap(), 4501))
    }

    #[test]
    fn the_section_is_in_strongswans_words() {
        let engine = read(
            "ike-proposals: [aes128gcm16-prfsha384-ecp256, chacha20poly1305-prfsha512-x25519]\n\
             esp-proposals: [chacha20poly1305-noesn, aes256gcm16]\npfs: false\n\
             esp-rekey-time: 8\nesp-rekey-packets: 5000\ndpd-delay: 2\n",
        )
        .unwrap();
        assert_eq!(engine.ike_aeads, [IkeAead::Aes128Gcm16, IkeAead::ChaCha20Poly1305]);
        assert_eq!(engine.prfs, [Prf::HmacSha384, Prf::HmacSha512]);
        assert_eq!(engine.groups, [Group::Ecp256, Group::Curve25519]);
        assert_eq!(engine.esp_suites, [EspSuite::ChaCha20Poly1305, EspSuite::Aes256Gcm16]);
        assert!(!engine.esn && !engine.pfs);
        let eight = Duration::from_secs(8);
        assert_eq!(engine.child_lifetime, Lifetime { soft: eight, hard: Duration::from_secs(10) });
        assert_eq!((engine.child_packets.0, engine.dpd_interval), (5000, Duration::from_secs(2)));
        assert_eq!((engine.psk.as_slice(), engine.port), (&b"secret"[..], 4501));
    }

    #[test]
    fn what_is_not_set_has_our_default() {
        let (engine, ours) = (read("pfs: true").unwrap(), EngineConfig::default());
        assert_eq!((engine.esp_suites, engine.groups), (ours.esp_suites, ours.groups));
        assert_eq!((engine.esn, engine.give_up), (ours.esn, ours.give_up));
    }

    #[test]
    fn mistakes_are_named_with_what_there_is() {
        for (text, expected) in [
            ("ike-proposals: [aes256gcm16-x25519]", "CIPHER-PRF-GROUP"),
            ("ike-proposals: [aes256-prfsha256-x25519]", "it has aes256gcm16, aes128gcm16, chacha20poly1305"),
            ("ike-proposals: [aes256gcm16-prfsha256-curve25519]", "`curve25519` is no group"),
            ("ike-proposals: []", "proposes nothing"),
            ("esp-proposals: [aes128gcm16-esn, aes256gcm16-noesn]", "both are there"),
            ("esp-proposals: [3des]", "ipsec.esp-proposals: `3des`"),
            ("esp-rekey-time: 1", "ipsec.esp-rekey-time: 1 s are too few"),
            ("esp-rekey-packets: 9999999999", "too much"),
            ("rekey: 1", "rekey"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(expected), "{text:?} gave {error:?}");
        }
    }
}

//! What is answered for, and how.

use std::net::IpAddr;

use domain::base::Ttl;
use ipnet::IpNet;

use crate::zone::Zone;

/// Most zones.
pub const MAX_ZONES: usize = 16;
/// Largest time to live, in seconds, as in upstream's Corefile.
pub const MAX_TTL: u32 = 3_600;
/// Time to live unless set, in seconds.
pub const DEFAULT_TTL: u32 = 5;

/// The settings of answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    zones: Box<[Zone]>,
    ttl: u32,
    /// Networks of clusterset IPs, whose reverse zones are answered for.
    pub networks: Vec<IpNet>,
    /// Addresses at which the cluster reaches this server: those of `ns.dns.ZONE`.
    pub addresses: Vec<IpAddr>,
    /// Whether a cluster's part of a service has a name, `cluster.svc.ns`, as upstream has it. The Multi-Cluster Services API
    /// wants none but those of hosts.
    pub has_cluster_names: bool,
}

/// Why settings cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// There is no zone, or there are too many.
    #[error("cannot answer for {0} zones: 1 to {MAX_ZONES} are allowed")]
    Zones(usize),
    /// The time to live is too large.
    #[error("cannot use a TTL of {0} s: at most {MAX_TTL} are allowed")]
    Ttl(u32),
}

impl Settings {
    /// Creates settings for zones, the first of which reverse names refer to, and a time to live in seconds.
    ///
    /// # Errors
    /// When there is no zone, more than [`MAX_ZONES`], or a time to live over [`MAX_TTL`].
    pub fn new(zones: Vec<Zone>, ttl: u32) -> Result<Self, SettingsError> {
        if zones.is_empty() || zones.len() > MAX_ZONES {
            return Err(SettingsError::Zones(zones.len()));
        }
        if ttl > MAX_TTL {
            return Err(SettingsError::Ttl(ttl));
        }
        Ok(Self {
            zones: zones.into_boxed_slice(),
            ttl,
            networks: Vec::new(),
            addresses: Vec::new(),
            has_cluster_names: true,
        })
    }

    /// Returns the zones: at least one.
    pub(crate) fn zones(&self) -> &[Zone] {
        &self.zones
    }

    /// Returns the time to live of every record.
    pub(crate) fn ttl(&self) -> Ttl {
        Ttl::from_secs(self.ttl)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_and_ttl_are_within_bounds() {
        let zone = || Zone::new("clusterset.local").unwrap();
        assert!(Settings::new(vec![zone()], 0).is_ok());
        assert!(Settings::new(vec![zone()], 3_600).is_ok());
        assert_eq!(Settings::new(vec![zone()], 3_601), Err(SettingsError::Ttl(3_601)));
        assert_eq!(Settings::new(Vec::new(), 5), Err(SettingsError::Zones(0)));
        assert_eq!(Settings::new(vec![zone(); 17], 5), Err(SettingsError::Zones(17)));
    }
}

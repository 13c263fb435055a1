//! The asking and the asked side, and the selection.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::message::EndpointDetails;
use crate::api::{EndpointFacts, EndpointSpec};

/// This gateway, active or passive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Local {
    /// Our cluster's ID.
    pub cluster_id: String,
    /// The cable name of our own Endpoint.
    pub cable_name: String,
    /// Our Endpoint's private addresses: at most one of each family.
    pub private_ips: Vec<IpAddr>,
    /// The port that we send from and listen on; 0 switches discovery off.
    pub port: u16,
}

impl Local {
    pub(super) fn details(&self) -> EndpointDetails {
        EndpointDetails { cluster_id: self.cluster_id.clone(), endpoint_id: self.cable_name.clone() }
    }
}

/// The part of a remote Endpoint that discovery uses, and nothing else: Endpoints that differ elsewhere are the same
/// here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    /// Its cluster's ID.
    pub cluster_id: String,
    /// Its cable's name: who it is in discovery.
    pub cable_name: String,
    /// Its own address.
    pub private_ip: Option<IpAddr>,
    /// The address under which the world sees it.
    pub public_ip: Option<IpAddr>,
    /// The port that answers; absent or 0 means that none does.
    pub port: Option<u16>,
    /// Whether the cluster was joined with NAT in mind.
    pub nat_enabled: bool,
    /// Whether the public address is a load balancer's.
    pub uses_load_balancer: bool,
}

impl Remote {
    /// Takes what matters from an Endpoint; `facts` are those of `spec`.
    #[must_use]
    pub fn new(facts: &EndpointFacts, spec: &EndpointSpec) -> Self {
        Self {
            cluster_id: facts.cluster_id.clone(),
            cable_name: facts.cable_name.clone(),
            private_ip: Some(facts.private_ip.to_canonical()),
            public_ip: facts.public_ip.map(|address| address.to_canonical()),
            port: facts.nat_discovery_port,
            nat_enabled: spec.nat_enabled,
            uses_load_balancer: spec.uses_load_balancer(),
        }
    }

    /// Returns the port to ask, if there is one.
    pub(super) fn usable_port(&self) -> Option<u16> {
        self.port.filter(|port| *port != 0)
    }

    /// Returns the address of a request to the private or public address.
    pub(super) fn address(&self, target: Target) -> Option<SocketAddr> {
        let ip = match target {
            Target::Private => self.private_ip,
            Target::Public => self.public_ip,
        };
        Some(SocketAddr::new(ip?, self.usable_port()?))
    }

    /// Returns `true` if the address is one of its published ones.
    pub(super) fn has(&self, ip: IpAddr) -> bool {
        self.private_ip == Some(ip) || self.public_ip == Some(ip)
    }

    /// Returns upstream's choice where nobody answers: the public address and NAT for a load balancer, or where the
    /// peer was joined with NAT in mind; else the private one without. Upstream takes an empty address where that one
    /// is missing; ours is the other one then.
    #[must_use]
    pub fn fallback(&self, how: How) -> Option<Selection> {
        let public = self.public_ip.map(|ip| Selection { ip, use_nat: true, how });
        let private = self.private_ip.map(|ip| Selection { ip, use_nat: false, how });
        if self.uses_load_balancer || self.nat_enabled { public.or(private) } else { private.or(public) }
    }

    /// Changes with everything that an answer may depend on: this Endpoint and our own addresses.
    pub(super) fn fingerprint(&self, local: &Local) -> String {
        let text = format!("{:?} {:?} {}", self, local.private_ips, local.port);
        let digest = Sha256::digest(text.as_bytes());
        digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Which of a peer's addresses. Private comes first, also on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    Private,
    Public,
}

impl Target {
    pub(super) const BOTH: [Self; 2] = [Self::Private, Self::Public];
}

/// The address that a cable uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selection {
    /// The peer's address.
    pub ip: IpAddr,
    /// Whether there is NAT on the way.
    pub use_nat: bool,
    /// How it was found.
    pub how: How,
}

/// How an address was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// The private address answered.
    Private,
    /// The public address answered.
    Public,
    /// Nobody answered in time, or nobody can be asked: chosen by [`Remote::fallback`].
    Fallback,
    /// Nobody has answered yet: chosen for the time being.
    Provisional,
    /// Known from an earlier process, and being checked.
    Remembered,
}

impl How {
    /// Returns the name in status documents and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Public => "public",
            Self::Fallback => "fallback",
            Self::Provisional => "provisional",
            Self::Remembered => "remembered",
        }
    }
}

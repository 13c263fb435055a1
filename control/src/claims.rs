//! Which networks a member of the cluster set may claim for its pods and services.
//!
//! Members are strangers with a key: what one writes into its Endpoint or Cluster becomes routes on every node of all
//! others. So a claim has to lie in what this cluster allows ([`Allowed`]), and may take nothing that a node needs to be
//! itself ([`Surroundings`]): its neighbours, the cluster's other nodes, API servers, resolvers. Pure.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::api::ApiError;
use crate::parse::Cidrs;

/// The networks that members may claim without a setting: private space (RFC 1918, 4193), carriers' shared space (RFC
/// 6598), and where upstream's Globalnet has its addresses (behaviour §8.1).
const DEFAULT: &str = "10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,100.64.0.0/10,242.0.0.0/8,fc00::/7";
/// Ours: the least prefix lengths of a claim where nothing else is said, IPv4 and IPv6. Distributions give a cluster /11 at
/// most (kops, of 100.64.0.0/10), and /48.
const LEAST_PREFIX: (u8, u8) = (11, 40);
/// Ours: a block of private space that is wider than this is nobody's as a whole.
const WHOLE_BLOCK: u8 = 16;

/// The networks that members may claim parts of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed {
    networks: Vec<IpNet>,
    /// Whether they are the default, of which nobody may have a whole block.
    is_default: bool,
}

impl Default for Allowed {
    fn default() -> Self {
        let Cidrs(networks) = DEFAULT.parse().expect("the list above is well-formed");
        Self { networks, is_default: true }
    }
}

impl Allowed {
    /// Allows these networks and all parts of them, and nothing else; the default where there are none.
    #[must_use]
    pub fn of(networks: Vec<IpNet>) -> Self {
        if networks.is_empty() { Self::default() } else { Self { networks, is_default: false } }
    }

    /// Looks whether a member may claim a network.
    ///
    /// # Errors
    /// Why not, and what to do.
    pub fn check(&self, network: &IpNet) -> Result<(), Forbidden> {
        if !self.networks.iter().any(|allowed| allowed.contains(network)) {
            return Err(Forbidden::NotAllowed);
        }
        let least = if network.addr().is_ipv4() { LEAST_PREFIX.0 } else { LEAST_PREFIX.1 };
        let is_block = network.prefix_len() < WHOLE_BLOCK && self.networks.contains(network);
        if self.is_default && (network.prefix_len() < least || is_block) {
            return Err(Forbidden::TooWide(least));
        }
        Ok(())
    }

    /// Looks whether a member may claim all subnets of an Endpoint.
    ///
    /// # Errors
    /// The field, and why not.
    pub fn check_subnets(&self, subnets: &[IpNet]) -> Result<(), ApiError> {
        for (index, subnet) in subnets.iter().enumerate() {
            self.check(subnet).map_err(|why| {
                ApiError::field(format!("spec.subnets[{index}]"), format!("it claims {subnet}: {why}"))
            })?;
        }
        Ok(())
    }
}

/// Why a member may not have a network.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Forbidden {
    /// It is not in what members may claim.
    NotAllowed,
    /// It is wider than a member may claim, or a whole block; the least prefix length.
    TooWide(u8),
    /// It is, or is in, a network that this node reaches without a router.
    Connected {
        /// The network.
        network: IpNet,
        /// The device that it is on.
        device: String,
    },
    /// It contains an address that has to stay what it is.
    Address {
        /// The address.
        address: IpAddr,
        /// Whose it is.
        whose: String,
    },
}

impl fmt::Display for Forbidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ALLOW: &str = "if it is really that cluster's, name it in `join --allow-remote-cidrs` \
                             (TRIESTE_ALLOW_REMOTE_CIDRS), with all others that members may have";
        match self {
            Self::NotAllowed => write!(f, "it is in no network that members may claim; {ALLOW}"),
            Self::TooWide(least) => {
                write!(f, "it is wider than /{least}, or a whole block of private space; {ALLOW}")
            }
            Self::Connected { network, device } => write!(
                f,
                "it is in {network}, which this node reaches directly, on {device}; give that cluster other networks, \
                 or use globalnet"
            ),
            Self::Address { address, whose } => write!(
                f,
                "it contains {address}, {whose}; give that cluster other networks, or use globalnet"
            ),
        }
    }
}

/// The addresses that a node needs for itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Networks that it reaches without a router, and on which device.
    connected: Vec<(IpNet, String)>,
    /// Addresses, and whose they are.
    addresses: BTreeMap<IpAddr, String>,
}

impl Surroundings {
    /// Adds a network that the node reaches without a router. An address without a network is one.
    pub fn connect(&mut self, network: IpNet, device: &str) {
        self.connected.push((network.trunc(), device.to_owned()));
    }

    /// Adds an address that has to stay what it is.
    pub fn protect(&mut self, address: IpAddr, whose: &str) {
        self.addresses.entry(address.to_canonical()).or_insert_with(|| whose.to_owned());
    }

    /// Looks whether a member may have a network. One that has a whole network of the node strictly inside leaves that where
    /// it is: its route is the more specific one, for all addresses in it.
    ///
    /// # Errors
    /// The network that it would take.
    pub fn check(&self, network: &IpNet) -> Result<(), Forbidden> {
        let is_inside = |own: &IpNet| {
            own.contains(network) || (network.contains(own) && own.prefix_len() == own.max_prefix_len())
        };
        if let Some((own, device)) = self.connected.iter().find(|(own, _)| is_inside(own)) {
            return Err(Forbidden::Connected { network: *own, device: device.clone() });
        }
        let is_kept = |address: &IpAddr| {
            self.connected.iter().any(|(own, _)| network.contains(own) && own.contains(address))
        };
        let mut taken = self.addresses.range(network.network()..=network.broadcast());
        match taken.find(|(address, _)| !is_kept(address)) {
            Some((address, whose)) => Err(Forbidden::Address { address: *address, whose: whose.clone() }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    #[test]
    fn members_claim_private_space_and_never_a_whole_block_of_it() {
        let allowed = Allowed::default();
        for text in [
            "10.2.0.0/16",
            "10.128.0.0/14",
            "172.16.0.0/13",
            "100.96.0.0/11",
            "192.168.0.0/16",
            "192.168.5.0/24",
            "100.64.1.0/24",
            "242.1.0.0/16",
            "fd00:2::/48",
            "10.2.3.4/32",
        ] {
            assert_eq!(allowed.check(&net(text)), Ok(()), "{text}");
        }
        for text in [
            "0.0.0.0/0",
            "::/0",
            "2.0.0.0/7",
            "128.0.0.0/1",
            "8.8.8.0/24",
            "2000::/3",
            "2001:db8::/32",
            "192.0.0.0/8",
        ] {
            assert_eq!(allowed.check(&net(text)), Err(Forbidden::NotAllowed), "{text}");
        }
        for (text, least) in [
            ("172.16.0.0/12", 11),
            ("10.0.0.0/8", 11),
            ("10.0.0.0/10", 11),
            ("fc00::/7", 40),
            ("fd00::/16", 40),
        ] {
            assert_eq!(allowed.check(&net(text)), Err(Forbidden::TooWide(least)), "{text}");
        }
    }

    #[test]
    fn what_is_named_is_allowed_as_wide_as_it_is_and_nothing_else() {
        let allowed = Allowed::of(vec![net("25.0.0.0/8"), net("0.0.0.0/0")]);
        assert_eq!(allowed.check(&net("0.0.0.0/0")), Ok(()), "a cluster that is the way out");
        assert_eq!(allowed.check(&net("fd00:2::/48")), Err(Forbidden::NotAllowed));
        assert_eq!(
            Allowed::of(vec![net("25.0.0.0/8")]).check(&net("10.2.0.0/16")),
            Err(Forbidden::NotAllowed)
        );
        assert_eq!(Allowed::of(Vec::new()), Allowed::default());
    }

    #[test]
    fn neighbours_nodes_and_servers_stay_what_they_are() {
        let mut around = Surroundings::default();
        around.connect(net("172.31.1.7/20"), "eth0");
        around.connect(net("192.0.2.9/32"), "dummy0");
        around.protect("172.31.1.8".parse().unwrap(), "node b");
        around.protect("10.9.0.1".parse().unwrap(), "the API server");
        around.protect("::ffff:10.9.0.53".parse().unwrap(), "a name server");
        let is_taken = |text: &str| around.check(&net(text)).map_err(|why| why.to_string());
        for text in ["172.31.0.0/20", "172.31.1.9/32", "172.31.15.0/24", "192.0.2.0/24"] {
            assert!(is_taken(text).unwrap_err().contains("reaches directly"), "{text}");
        }
        assert!(is_taken("10.9.0.0/24").unwrap_err().contains("10.9.0.1, the API server"));
        assert!(is_taken("10.9.0.48/28").unwrap_err().contains("a name server"));
        // Node b is in the network that stays where it is.
        assert_eq!(is_taken("172.16.0.0/12"), Ok(()));
        assert_eq!(is_taken("10.2.0.0/16"), Ok(()));
        around.protect("172.20.0.1".parse().unwrap(), "node c");
        assert!(around.check(&net("172.16.0.0/12")).is_err(), "node c is behind a router");
    }
}

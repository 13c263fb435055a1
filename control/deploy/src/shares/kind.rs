//! Of which addresses a book is: what its ConfigMap is called, and what people are told of it.

use ipnet::IpNet;
use serde_json::Value;

use crate::objects::names::{CLUSTERSET_IP_INFO, CLUSTERSET_IPV6_INFO, GLOBALNET_INFO};

/// See the module.
#[derive(Debug)]
pub struct Kind {
    pub(super) config_map: &'static str,
    /// Whether they are of IPv6.
    pub(crate) is_ipv6: bool,
    /// Keys of the ConfigMap.
    pub(super) enabled: &'static str,
    pub(super) range: &'static str,
    pub(super) size: &'static str,
    /// What refusals of a range begin with.
    pub(super) what: &'static str,
    /// Words for the addresses, and for a share of them.
    pub(crate) addresses: &'static str,
    pub(super) cidr: &'static str,
    /// The flag by which a share is said.
    pub(crate) flag: &'static str,
    /// What to do about a size that cannot be, and about a range that is used up.
    pub(super) choose: &'static str,
    pub(super) ask_for_fewer: &'static str,
    /// What to say where the broker has no book any more.
    pub(super) gone: &'static str,
    /// The smallest share, and why.
    pub(super) longest_prefix: u8,
    pub(super) why_too_small: &'static str,
    pub(super) what_a_change_does: &'static str,
    /// Whether shares are of the broker's range alone.
    pub(super) is_within_range: bool,
    /// Whether clusters have shares also where the broker says that such addresses are off: one of its services may want one.
    pub(super) is_for_all: bool,
}

impl Kind {
    /// Returns whether the broker's ConfigMap says that such addresses are on.
    pub(super) fn is_enabled(&self, config_map: &Value) -> bool {
        config_map["data"][self.enabled].as_str() == Some("true")
    }

    /// Returns the range as the ConfigMap has it: a JSON text, quotes included.
    pub(super) fn range_of(&self, config_map: &Value) -> String {
        let text = config_map["data"][self.range].as_str().unwrap_or_default();
        serde_json::from_str::<String>(text).unwrap_or_else(|_| text.to_owned())
    }

    /// Returns whether a network is of the family of such addresses.
    pub(super) fn is_of(&self, network: &IpNet) -> bool {
        matches!(network, IpNet::V6(_)) == self.is_ipv6
    }
}

/// Global addresses, by which clusters with the same networks know each other.
pub static GLOBALNET: Kind = Kind {
    config_map: GLOBALNET_INFO,
    is_ipv6: false,
    enabled: "globalnetEnabled",
    range: "globalnetCidrRange",
    size: "globalnetClusterSize",
    what: "globalnet",
    addresses: "global addresses",
    cidr: "global CIDR",
    flag: "--globalnet-cidr",
    choose: "choose with --globalnet-cluster-size, or say --globalnet-cidr",
    ask_for_fewer: "ask for fewer with --globalnet-cluster-size, or say addresses of another range with --globalnet-cidr",
    gone: "globalnet was switched off on the broker while this cluster was joining",
    // Room for 8 egress addresses, a gateway and a few services.
    longest_prefix: 28,
    why_too_small: "8 addresses are for egress alone",
    what_a_change_does: "exported services get other global addresses",
    is_within_range: false,
    is_for_all: false,
};

/// Addresses that stand for a service in all clusters.
pub static CLUSTERSET_IPS: Kind = Kind {
    config_map: CLUSTERSET_IP_INFO,
    is_ipv6: false,
    enabled: "clustersetIPEnabled",
    range: "clustersetIPCidrRange",
    size: "clustersetIPClusterSize",
    what: "clusterset IP",
    addresses: "clusterset IPs",
    cidr: "clusterset IP CIDR",
    flag: "--clusterset-ip-cidr",
    choose: "say a part of the broker's range with --clusterset-ip-cidr",
    ask_for_fewer: "say a part that nobody has with --clusterset-ip-cidr, or let clusters leave the set",
    gone: "the broker has lost its table of clusterset IPs while this cluster was joining",
    // Network and broadcast address are not given.
    longest_prefix: 30,
    why_too_small: "its first and its last address are given to no service",
    what_a_change_does: "services keep their clusterset IPs, and others get theirs from the new one",
    is_within_range: true,
    is_for_all: true,
};

/// Ours: likewise of IPv6.
pub static CLUSTERSET_IPV6: Kind = Kind {
    config_map: CLUSTERSET_IPV6_INFO,
    is_ipv6: true,
    enabled: CLUSTERSET_IPS.enabled,
    range: CLUSTERSET_IPS.range,
    size: CLUSTERSET_IPS.size,
    what: CLUSTERSET_IPS.what,
    addresses: "IPv6 clusterset IPs",
    cidr: "IPv6 clusterset IP CIDR",
    flag: CLUSTERSET_IPS.flag,
    choose: CLUSTERSET_IPS.choose,
    ask_for_fewer: CLUSTERSET_IPS.ask_for_fewer,
    gone: "the broker has lost its table of IPv6 clusterset IPs while this cluster was joining",
    longest_prefix: 126,
    why_too_small: CLUSTERSET_IPS.why_too_small,
    what_a_change_does: CLUSTERSET_IPS.what_a_change_does,
    is_within_range: true,
    is_for_all: true,
};

//! Conditions of a node: deviations from the desired state, and their reasons.
//!
//! Conditions are a set that is computed in every pass. The shell logs each once when it appears and once when
//! it is gone; `--dry-run` prints them, and the node's `RouteAgent` object shows them.

mod text;

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use trieste_control::admin::Severity;
use trieste_control::claims::Forbidden;

use crate::family::Family;
use crate::hostnet::Route;
use crate::nft::{BaseChain, SourceNat};

/// Why a network of a remote cluster is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// It is a default route.
    Everything,
    /// It overlaps addresses with a meaning of their own.
    Reserved(&'static str),
    /// It overlaps a network of the own cluster.
    Local(IpNet),
    /// It overlaps a network of a cluster that comes first.
    Taken {
        /// The network that was accepted.
        network: IpNet,
        /// Its cluster.
        cluster: String,
    },
    /// Another network of its cluster overlaps, and the gateway connects to none of that cluster.
    Whole,
    /// It is no member's to have.
    Forbidden(Forbidden),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everything => f.write_str("it covers every address; publish the cluster's real networks"),
            Self::Reserved(name) => write!(f, "it overlaps {name}"),
            Self::Local(net) => {
                write!(
                    f,
                    "it overlaps {net} of this cluster; give the clusters different networks or use globalnet"
                )
            }
            Self::Taken { network, cluster } => write!(
                f,
                "it overlaps {network} of cluster {cluster}, which comes first; give the clusters different \
                 networks or use globalnet"
            ),
            Self::Whole => f.write_str(
                "another network of that cluster is refused, so that the gateway does not connect to it",
            ),
            Self::Forbidden(why) => why.fmt(f),
        }
    }
}

/// One thing that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Condition {
    /// A remote network is not routed.
    Refused {
        /// The cluster that claims it.
        cluster: String,
        /// The network.
        network: IpNet,
        /// The reason.
        why: Refusal,
    },
    /// An object of the store cannot be used, in whole or in part.
    BadObject {
        /// Kind and name of the object.
        object: String,
        /// Which field, and what is wrong with it.
        problem: String,
    },
    /// The store cannot be read; what was known before stays in force.
    StoreAway {
        /// The error.
        error: String,
    },
    /// The cluster's nodes may not be read, so that none is known.
    NodesForbidden {
        /// The error.
        error: String,
    },
    /// The networks of nodes' pods by Cilium's count cannot be read.
    CiliumNodesAway {
        /// The error.
        error: String,
    },
    /// Services may not be read, or cannot be at present, though gateways are to send their packets to this node.
    ServicesAway {
        /// The error.
        error: String,
        /// Whether none was known before and one gateway is active, so that kube-proxy on its node has their packets.
        is_kube_proxys: bool,
    },
    /// What clusterset IPs follow from may not be read, or cannot be at present.
    ClustersetAway {
        /// The error.
        error: String,
    },
    /// The range of clusterset IPs overlaps a network of the own cluster.
    ClustersetRange {
        /// The range.
        range: IpNet,
        /// The network.
        network: IpNet,
    },
    /// There is no Node object of the name that this node was given.
    NoSuchNode {
        /// The name.
        name: String,
    },
    /// There are more nodes than are followed.
    TooManyNodes {
        /// How many are not.
        left_out: usize,
    },
    /// Nobody claims a network any more; it stays refused for a while.
    Vanished(IpNet),
    /// The device that routes lead to does not exist or is down; traffic for remote clusters is refused meanwhile.
    NoDevice {
        /// Its name.
        device: String,
        /// Whether it exists, but is administratively down.
        exists: bool,
    },
    /// A device of the name of ours exists that is something else.
    ForeignDevice {
        /// Its name.
        device: String,
    },
    /// The active gateway has an address of this node, but another host name.
    OtherName {
        /// The host name in the gateway's Endpoint.
        endpoint: String,
        /// This node's.
        node: String,
    },
    /// It is not known at which address the cluster's other nodes reach this one.
    NoUnderlay,
    /// Two nodes' addresses differ in the first octet only, so that they have one address on the VXLAN.
    SameVtep {
        /// The node that is left out.
        node: String,
        /// The address that they share.
        address: IpAddr,
    },
    /// Two nodes have the same pod network.
    SamePods {
        /// The node that is left out.
        node: String,
        /// The network.
        network: IpNet,
    },
    /// Nodes have IPv6 addresses only, and IPv4 cannot be carried between them.
    NoIpv4BetweenNodes,
    /// Packets of remote clusters reach this node by the network plugin, so that their sources cannot be checked.
    PluginDelivers {
        /// Why.
        why: &'static str,
    },
    /// The network plugin's port or bridge to this node has no address of a family, so that packets of that family do not reach
    /// pods.
    NoManagementPort {
        /// Name of the device.
        device: String,
        /// The family.
        family: Family,
    },
    /// The network plugin's database needs a worker that writes it, and nothing shows that there is one.
    NoSynchronizer {
        /// Name of its driver.
        driver: &'static str,
        /// Whether the plugin alone leads packets for remote clusters to the gateway's node.
        is_plugins_way: bool,
    },
    /// Several gateways are active, of which the network plugin uses one.
    OneGatewayOnly {
        /// Name of its driver.
        driver: &'static str,
    },
    /// A chain of another program drops unknown packets, and cannot be extended by our rules.
    ForeignDrop(BaseChain),
    /// A chain of another program may change sources before ours keeps them.
    EarlierSourceNat(SourceNat),
    /// firewalld lets nobody else write into its table.
    FirewalldOwned,
    /// Somebody filters in the older half of the kernel, which nftables does not show.
    LegacyIptables(Family),
    /// The packet filter is not in place, so that the VXLAN between nodes is not opened.
    Unguarded,
    /// The `iptables` command is missing where iptables has a table.
    NoIptables {
        /// The command.
        command: &'static str,
    },
    /// The health-check address that the own gateway publishes is not an address of this node.
    ForeignHealthCheck(IpAddr),
    /// The node does not forward packets.
    ForwardingOff(Family),
    /// Strict reverse-path filtering on all devices drops packets that take different ways there and back.
    StrictReversePath,
    /// A route of someone else occupies the place of one of ours.
    Occupied(Route),
    /// A next hop of someone else has an id of our range.
    OccupiedNexthop(u32),
    /// The kernel does not support groups of next hops, so that one gateway is used at a time.
    NoNexthops,
    /// A gateway of this cluster gets no packets from this node.
    LeftOut {
        /// Its host name.
        gateway: String,
        /// How it stands.
        why: String,
    },
    /// Gateways' notices cannot be received.
    NoNotices {
        /// The error.
        error: String,
    },
    /// The `nft` command is missing, so the source guard is not in place.
    NoNft,
    /// The fail-closed state cannot be saved for the next boot.
    NotKept {
        /// The state directory.
        directory: String,
        /// The error.
        error: String,
    },
    /// A driver's handler has refused an event.
    EventRefused {
        /// The handler's name.
        handler: &'static str,
        /// The event, with the name of its object.
        event: String,
        /// The handler's error.
        error: String,
        /// Whether it does not come again.
        is_dropped: bool,
    },
    /// Observing part of the kernel's state failed.
    CannotRead {
        /// The thing that cannot be read.
        what: &'static str,
        /// The error.
        error: String,
    },
    /// A change could not be applied and is retried.
    Failed {
        /// The change.
        change: String,
        /// The error.
        error: String,
    },
    /// The same changes are needed again and again: something else on the node undoes them.
    Contended {
        /// One of the changes.
        change: String,
    },
}

impl Condition {
    /// Returns its name, as `RouteAgent` objects and `docs/operations/troubleshooting.md` have it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Refused { .. } => "Refused",
            Self::BadObject { .. } => "BadObject",
            Self::StoreAway { .. } => "StoreAway",
            Self::NodesForbidden { .. } => "NodesForbidden",
            Self::CiliumNodesAway { .. } => "CiliumNodesAway",
            Self::ServicesAway { .. } => "ServicesAway",
            Self::ClustersetAway { .. } => "ClustersetAway",
            Self::ClustersetRange { .. } => "ClustersetRange",
            Self::NoSuchNode { .. } => "NoSuchNode",
            Self::TooManyNodes { .. } => "TooManyNodes",
            Self::Vanished(_) => "Vanished",
            Self::NoDevice { .. } => "NoDevice",
            Self::ForeignDevice { .. } => "ForeignDevice",
            Self::OtherName { .. } => "OtherName",
            Self::NoUnderlay => "NoUnderlay",
            Self::SameVtep { .. } => "SameVtep",
            Self::SamePods { .. } => "SamePods",
            Self::NoIpv4BetweenNodes => "NoIpv4BetweenNodes",
            Self::PluginDelivers { .. } => "PluginDelivers",
            Self::NoManagementPort { .. } => "NoManagementPort",
            Self::NoSynchronizer { .. } => "NoSynchronizer",
            Self::OneGatewayOnly { .. } => "OneGatewayOnly",
            Self::ForeignDrop(_) => "ForeignDrop",
            Self::EarlierSourceNat(_) => "EarlierSourceNat",
            Self::FirewalldOwned => "FirewalldOwned",
            Self::LegacyIptables(_) => "LegacyIptables",
            Self::Unguarded => "Unguarded",
            Self::NoIptables { .. } => "NoIptables",
            Self::ForeignHealthCheck(_) => "ForeignHealthCheck",
            Self::ForwardingOff(_) => "ForwardingOff",
            Self::StrictReversePath => "StrictReversePath",
            Self::Occupied(_) => "Occupied",
            Self::OccupiedNexthop(_) => "OccupiedNexthop",
            Self::NoNexthops => "NoNexthops",
            Self::LeftOut { .. } => "LeftOut",
            Self::NoNotices { .. } => "NoNotices",
            Self::NoNft => "NoNft",
            Self::NotKept { .. } => "NotKept",
            Self::CannotRead { .. } => "CannotRead",
            Self::Failed { .. } => "Failed",
            Self::EventRefused { .. } => "EventRefused",
            Self::Contended { .. } => "Contended",
        }
    }

    /// Returns the severity: an error keeps the node from its intended state.
    #[must_use]
    pub const fn severity(&self) -> Severity {
        match self {
            Self::NoDevice { .. }
            | Self::ForeignDevice { .. }
            | Self::OtherName { .. }
            | Self::NoUnderlay
            | Self::SameVtep { .. }
            | Self::SamePods { .. }
            | Self::NoManagementPort { .. }
            | Self::NoSynchronizer { is_plugins_way: true, .. }
            | Self::Unguarded
            | Self::ForwardingOff(_)
            | Self::Occupied(_)
            | Self::OccupiedNexthop(_)
            | Self::NoNft
            | Self::CannotRead { .. }
            | Self::Failed { .. }
            | Self::EventRefused { .. } => Severity::Error,
            Self::Refused { .. }
            | Self::BadObject { .. }
            | Self::StoreAway { .. }
            | Self::NodesForbidden { .. }
            | Self::CiliumNodesAway { .. }
            | Self::ServicesAway { .. }
            | Self::ClustersetAway { .. }
            | Self::ClustersetRange { .. }
            | Self::NoSuchNode { .. }
            | Self::TooManyNodes { .. }
            | Self::ForeignHealthCheck(_)
            | Self::NoIpv4BetweenNodes
            | Self::PluginDelivers { .. }
            | Self::OneGatewayOnly { .. }
            | Self::NoSynchronizer { is_plugins_way: false, .. }
            | Self::ForeignDrop(_)
            | Self::EarlierSourceNat(_)
            | Self::FirewalldOwned
            | Self::NotKept { .. }
            | Self::NoIptables { .. }
            | Self::NoNexthops
            | Self::LeftOut { .. }
            | Self::NoNotices { .. }
            | Self::StrictReversePath
            | Self::Contended { .. } => Severity::Warning,
            Self::Vanished(_) | Self::LegacyIptables(_) => Severity::Info,
        }
    }
}

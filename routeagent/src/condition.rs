//! What an operator should know about a node: everything that is not as wanted, and why.
//!
//! Conditions are a set that is computed anew in every pass. The shell logs each once when it appears and once when
//! it is gone; `--dry-run` prints them, and the node's `RouteAgent` object shows them.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use trieste_control::admin::Severity;
use trieste_control::claims::Forbidden;

use crate::foreign::{BaseChain, Hook};
use crate::hostnet::{Family, Route};
use crate::nexthops::{FIRST_ID, LAST_ID};

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
    /// Services may not be read, or cannot be at present, though gateways are to send their packets to this node.
    ServicesAway {
        /// The error.
        error: String,
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
    /// Packets of remote clusters reach this node by the network plugin, so that their sources cannot be judged.
    PluginDelivers {
        /// Why.
        why: &'static str,
    },
    /// A chain of another program drops what it does not know, and nothing of ours can be put into it.
    ForeignDrop(BaseChain),
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
    /// The kernel knows no groups of next hops, so that one gateway is used at a time.
    NoNexthops,
    /// A gateway of this cluster gets no packets from this node.
    LeftOut {
        /// Its host name.
        gateway: String,
        /// How it stands.
        why: String,
    },
    /// Gateways' notices cannot be heard.
    NoNotices {
        /// The error.
        error: String,
    },
    /// The `nft` command is missing, so the source guard is not in place.
    NoNft,
    /// What is closed cannot be written down for the next boot.
    NotKept {
        /// The state directory.
        directory: String,
        /// The error.
        error: String,
    },
    /// Observing part of the kernel's state failed.
    CannotRead {
        /// What was read.
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
            Self::ServicesAway { .. } => "ServicesAway",
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
            Self::ForeignDrop(_) => "ForeignDrop",
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
            Self::Contended { .. } => "Contended",
        }
    }

    /// Says how bad it is: an error is what keeps the node from having what it should have.
    #[must_use]
    pub const fn severity(&self) -> Severity {
        match self {
            Self::NoDevice { .. }
            | Self::ForeignDevice { .. }
            | Self::OtherName { .. }
            | Self::NoUnderlay
            | Self::SameVtep { .. }
            | Self::SamePods { .. }
            | Self::Unguarded
            | Self::ForwardingOff(_)
            | Self::Occupied(_)
            | Self::OccupiedNexthop(_)
            | Self::NoNft
            | Self::CannotRead { .. }
            | Self::Failed { .. } => Severity::Error,
            Self::Refused { .. }
            | Self::BadObject { .. }
            | Self::StoreAway { .. }
            | Self::NodesForbidden { .. }
            | Self::ServicesAway { .. }
            | Self::NoSuchNode { .. }
            | Self::TooManyNodes { .. }
            | Self::ForeignHealthCheck(_)
            | Self::NoIpv4BetweenNodes
            | Self::PluginDelivers { .. }
            | Self::ForeignDrop(_)
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

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { cluster, network, why } => {
                write!(f, "network {network} of cluster {cluster} is refused: {why}")
            }
            Self::BadObject { object, problem } => write!(f, "{object}: {problem}"),
            Self::StoreAway { error } => {
                write!(f, "the store is away, what is known of it stays in force: {error}")
            }
            Self::NodesForbidden { error } => write!(
                f,
                "the nodes of this cluster are not known, so that the gateway's node cannot send to the others: {error}; \
                 allow the route agent's account to get, list and watch nodes"
            ),
            Self::ServicesAway { error } => write!(
                f,
                "services cannot be read, so that packets of remote clusters for them go to the back ends that were known \
                 here, or none: {error}; the route agent's account has to be allowed to list and watch services and \
                 endpointslices"
            ),
            Self::NoSuchNode { name } => write!(
                f,
                "there is no Node {name}: is NODE_NAME right? This node's own annotations have no effect meanwhile"
            ),
            Self::TooManyNodes { left_out } => {
                write!(f, "{left_out} nodes are not followed: there are more than the route agent takes")
            }
            Self::Vanished(network) => write!(
                f,
                "network {network} has vanished from the store; its traffic stays refused until --close-grace is over"
            ),
            Self::NoDevice { device, exists: false } => write!(
                f,
                "device {device} does not exist: is trieste-gateway running? Traffic for remote clusters is refused \
                 until it appears"
            ),
            Self::NoDevice { device, exists: true } => write!(
                f,
                "device {device} is down; run `ip link set {device} up` or restart trieste-gateway. Traffic for \
                 remote clusters is refused meanwhile"
            ),
            Self::ForeignHealthCheck(address) => write!(
                f,
                "health-check address {address} is not an address of this node, so that remote gateways' health \
                 checks cannot succeed; give trieste-gateway a health-check-ip of this node inside a pod network"
            ),
            Self::ForwardingOff(family) => {
                let key = match family {
                    Family::V4 => "net.ipv4.ip_forward",
                    Family::V6 => "net.ipv6.conf.all.forwarding",
                };
                write!(f, "{family} forwarding is off, pods cannot reach remote clusters; run `sysctl -w {key}=1`")?;
                if *family == Family::V6 {
                    // The kernel stops listening to routers otherwise.
                    f.write_str(" (first `accept_ra=2` for devices that get their routes from router advertisements)")?;
                }
                Ok(())
            }
            Self::StrictReversePath => f.write_str(
                "net.ipv4.conf.all.rp_filter is 1 (strict) and applies to every device that is not set to 2 itself: \
                 packets that come by another way than the answer takes are dropped; run \
                 `sysctl -w net.ipv4.conf.all.rp_filter=2`, or 0",
            ),
            Self::Occupied(route) => write!(
                f,
                "cannot install `{route}`: someone else's route has this destination, table and metric; see \
                 `ip route show table {}` and remove or renumber it",
                route.table
            ),
            Self::NoNft => f.write_str(
                "the nft command is missing, so packets with forged sources of remote clusters are not dropped, and \
                 sources of what goes there are not kept; install the package nftables",
            ),
            Self::ForeignDevice { .. }
            | Self::OtherName { .. }
            | Self::NoUnderlay
            | Self::SameVtep { .. }
            | Self::SamePods { .. }
            | Self::NoIpv4BetweenNodes
            | Self::PluginDelivers { .. }
            | Self::ForeignDrop(_)
            | Self::FirewalldOwned
            | Self::LegacyIptables(_)
            | Self::Unguarded
            | Self::NoIptables { .. } => self.fmt_surroundings(f),
            Self::OccupiedNexthop(_) | Self::NoNexthops | Self::LeftOut { .. } | Self::NoNotices { .. } => {
                self.fmt_gateways(f)
            }
            Self::NotKept { directory, error } => write!(
                f,
                "what is closed cannot be written to {directory}: {error}. After a reboot this node is open until the \
                 store is read"
            ),
            Self::CannotRead { what, error } => write!(f, "cannot read {what}: {error}"),
            Self::Failed { change, error } => write!(f, "cannot apply `{change}`: {error}"),
            Self::Contended { change } => write!(
                f,
                "`{change}` is undone as often as it is made: another program manages the same routes, rules or \
                 nftables table; find it with `ip monitor` or `nft monitor`. Repairs are slowed down meanwhile"
            ),
        }
    }
}

impl Condition {
    /// Says what is about the node's surroundings: its other nodes, the network plugin, other packet filters.
    fn fmt_surroundings(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[expect(clippy::wildcard_enum_match_arm, reason = "the caller passes these only")]
        match self {
            Self::ForeignDevice { device } => write!(
                f,
                "a device {device} exists that is not the VXLAN with VNI 100 and port 4800; remove it with \
                 `ip link del {device}`. Traffic for remote clusters is refused until then"
            ),
            Self::OtherName { endpoint, node } => write!(
                f,
                "the active gateway is called {endpoint} and has an address of this node, which is called {node}: \
                 give both programs one name (`--hostname`). Traffic for remote clusters is refused meanwhile"
            ),
            Self::NoUnderlay => f.write_str(
                "this node's own address is not known: neither its Node object's InternalIP nor the source of its \
                 default route is an address of this node. Traffic for remote clusters is refused meanwhile",
            ),
            Self::SameVtep { node, address } => write!(
                f,
                "node {node} has the address {address} on the VXLAN between nodes, as another node that comes first: \
                 the last three octets of nodes' addresses have to differ. Remote clusters do not reach its pods"
            ),
            Self::SamePods { node, network } => write!(
                f,
                "node {node} has the pod network {network}, as another node that comes first: give every node its own \
                 (`spec.podCIDRs`). Remote clusters do not reach its pods"
            ),
            Self::FirewalldOwned => f.write_str(
                "firewalld owns its nftables table, so that nothing of ours can be put there and it may drop packets \
                 between nodes and for remote clusters; set `NftablesTableOwner=no` in /etc/firewalld/firewalld.conf \
                 and restart it, or give it the devices and the port: `firewall-cmd --permanent --zone=trusted \
                 --add-interface=vx-submariner --add-interface=submariner`, `firewall-cmd --permanent \
                 --add-port=4800/udp`, `firewall-cmd --reload`",
            ),
            Self::Unguarded => f.write_str(
                "the packet filter cannot be read or written, so that the VXLAN between nodes is not opened: whoever \
                 reaches its port could send into pods. What is there stays; the other messages say what is wrong \
                 with the filter",
            ),
            Self::NoIpv4BetweenNodes => f.write_str(
                "the cluster's nodes have IPv6 addresses only; IPv4 traffic for remote clusters works on the gateway \
                 node alone",
            ),
            Self::PluginDelivers { why } => write!(
                f,
                "packets of remote clusters reach this node by the network plugin ({why}), from devices that are not \
                 known; forged sources of remote clusters are not dropped"
            ),
            Self::ForeignDrop(chain) => write!(
                f,
                "chain {} of nftables table {} {} drops what it does not know, and Trieste has no place in it; let it \
                 accept {}",
                chain.name,
                chain.family,
                chain.table,
                match chain.hook {
                    Hook::Input => "UDP port 4800 from the cluster's nodes",
                    Hook::Forward => "what enters or leaves by vx-submariner and the gateway's device",
                }
            ),
            Self::LegacyIptables(family) => write!(
                f,
                "{family} packets are filtered by iptables-legacy too, which `nft list ruleset` does not show and no \
                 accept in nftables overrules. What has to pass is let through there as well (chains SUBMARINER-INPUT \
                 and SUBMARINER-FORWARD); if packets are lost all the same, look at `{}-legacy -vnL`, also in its \
                 tables raw and mangle, or move that program to iptables-nft",
                iptables(*family)
            ),
            Self::NoIptables { command } if command.ends_with("-legacy") => write!(
                f,
                "this node filters by iptables-legacy, and the {command} command is missing here: its rules can be \
                 neither read nor changed, and a policy DROP or a rule there drops packets for and from remote \
                 clusters, whatever nftables accepts. Use an image that has the command, or move the program that \
                 filters to iptables-nft and reboot the node"
            ),
            Self::NoIptables { command } => write!(
                f,
                "the {command} command is missing where iptables has rules in nftables, so that they may drop packets \
                 for and from remote clusters; use an image that has it, or install the package iptables"
            ),
            _ => Ok(()),
        }
    }

    fn fmt_gateways(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[expect(clippy::wildcard_enum_match_arm, reason = "the caller passes these only")]
        match self {
            Self::OccupiedNexthop(id) => write!(
                f,
                "cannot use next hop {id}: someone else has one of that id, see `ip nexthop show id {id}`; remove it, \
                 ids {FIRST_ID} to {LAST_ID} are Trieste's. Packets go to one gateway meanwhile, or by another group"
            ),
            Self::NoNexthops => f.write_str(
                "this kernel knows no groups of next hops (Linux 5.3 does): packets for remote clusters go to one of the \
                 gateways at a time, and connections take longer to move when it fails",
            ),
            Self::LeftOut { gateway, why } => {
                write!(f, "gateway {gateway} gets no packets from this node: {why}")
            }
            Self::NoNotices { error } => write!(
                f,
                "notices of this cluster's gateways are not heard, so that a dead one is left out only when its object \
                 is removed: {error}"
            ),
            _ => Ok(()),
        }
    }
}

/// The command's name without its half of the kernel.
const fn iptables(family: Family) -> &'static str {
    match family {
        Family::V4 => "iptables",
        Family::V6 => "ip6tables",
    }
}

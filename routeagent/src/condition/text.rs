//! The sentences of conditions, for people.

use std::fmt;

use super::Condition;
use crate::family::Family;
use crate::nexthops::{FIRST_ID, LAST_ID};
use crate::nft::{Hook, PRIORITY_FIRST_NAT};

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
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
            | Self::Vanished(_)
            | Self::NotKept { .. } => self.fmt_store(f),
            Self::NoDevice { .. }
            | Self::ForeignHealthCheck(_)
            | Self::ForwardingOff(_)
            | Self::StrictReversePath
            | Self::Occupied(_)
            | Self::NoNft
            | Self::CannotRead { .. }
            | Self::Failed { .. }
            | Self::Contended { .. } => self.fmt_host(f),
            Self::ForeignDevice { .. }
            | Self::OtherName { .. }
            | Self::NoUnderlay
            | Self::SameVtep { .. }
            | Self::SamePods { .. }
            | Self::NoIpv4BetweenNodes
            | Self::PluginDelivers { .. } => self.fmt_nodes(f),
            Self::NoManagementPort { .. }
            | Self::OneGatewayOnly { .. }
            | Self::NoSynchronizer { .. }
            | Self::EventRefused { .. } => self.fmt_drivers(f),
            Self::FirewalldOwned | Self::Unguarded | Self::ForeignDrop(_) | Self::EarlierSourceNat(_) => {
                self.fmt_filters(f)
            }
            Self::LegacyIptables(_) | Self::NoIptables { .. } => self.fmt_iptables(f),
            Self::OccupiedNexthop(_) | Self::NoNexthops | Self::LeftOut { .. } | Self::NoNotices { .. } => {
                self.fmt_gateways(f)
            }
        }
    }
}

impl Condition {
    /// Writes what is about the store, and what is read of it.
    fn fmt_store(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[expect(clippy::wildcard_enum_match_arm, reason = "the caller passes these only")]
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
            Self::CiliumNodesAway { error } => write!(
                f,
                "it is not known which pods are on which node, so that Cilium delivers what comes from remote clusters: {error}; \
                 the route agent's account has to be allowed to list and watch ciliumnodes, which join sees to; have one gateway active until then"
            ),
            Self::ServicesAway { error, is_kube_proxys } => write!(
                f,
                "services cannot be read, so that packets of remote clusters for them go to {}: {error}; the route agent's \
                 account has to be allowed to list and watch services and endpointslices",
                match is_kube_proxys {
                    true => "kube-proxy on the gateway's node, if there is one",
                    false => "the back ends that were known here, or none",
                }
            ),
            Self::ClustersetAway { error } => write!(
                f,
                "clusterset IPs lead where they led last, or nowhere: {error}; the route agent's account has to be allowed \
                 to list and watch serviceimports, endpointslices and gateways"
            ),
            Self::ClustersetRange { range, network } => write!(
                f,
                "clusterset IPs of the range {range} lead nowhere: it overlaps {network}, a network of this cluster; \
                 give the set another range (deploy-broker --clusterset-ip-cidr-range)"
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
            Self::NotKept { directory, error } => write!(
                f,
                "what is closed cannot be written to {directory}: {error}. After a reboot this node is open until the \
                 store is read"
            ),
            _ => Ok(()),
        }
    }

    /// Writes what is about this node's devices, routes and settings.
    fn fmt_host(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[expect(clippy::wildcard_enum_match_arm, reason = "the caller passes these only")]
        match self {
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
            Self::CannotRead { what, error } => write!(f, "cannot read {what}: {error}"),
            Self::Failed { change, error } => write!(f, "cannot apply `{change}`: {error}"),
            Self::Contended { change } => write!(
                f,
                "`{change}` is undone as often as it is made: another program manages the same routes, rules or \
                 nftables table; find it with `ip monitor` or `nft monitor`. Repairs are slowed down meanwhile"
            ),
            _ => Ok(()),
        }
    }

    /// Writes what is about the cluster's nodes.
    fn fmt_nodes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
            Self::NoIpv4BetweenNodes => f.write_str(
                "the cluster's nodes have IPv6 addresses only; IPv4 traffic for remote clusters works on the gateway \
                 node alone",
            ),
            Self::PluginDelivers { why } => write!(
                f,
                "packets of remote clusters reach this node by the network plugin ({why}), from devices that are not \
                 known; forged sources of remote clusters are not dropped"
            ),
            _ => Ok(()),
        }
    }

    /// Writes what is about the network plugin's driver.
    fn fmt_drivers(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[expect(clippy::wildcard_enum_match_arm, reason = "the caller passes these only")]
        match self {
            Self::NoManagementPort { device, family } => write!(
                f,
                "device {device} has no {family} address, by which this node and OVN reach each other: what is for remote \
                 clusters is refused; is ovnkube-node running here?"
            ),
            Self::NoSynchronizer { driver, is_plugins_way } => write!(
                f,
                "driver {driver} needs trieste-plugin-sync, and nothing shows that it runs (TRIESTE_PLUGIN_SYNC is not \
                 true), as under Submariner's operator, which does not install it: {}",
                match is_plugins_way {
                    true =>
                        "unless it runs, nobody writes into the network plugin's database what leads pods' packets for remote \
                         clusters to this node. What is not there already is not led, and may leave in clear. Leave this \
                         cluster's route agents to Submariner's image, or have `trieste join` install all in the \
                         operator's place. Where its workers run, `trieste join` again tells the route agents",
                    false =>
                        "nobody keeps the network plugin's pools for remote networks, without which it may masquerade \
                         what is for them. `trieste diagnose cni --fix` writes them once, `trieste join` in the \
                         operator's place has them kept",
                }
            ),
            Self::OneGatewayOnly { driver } => write!(
                f,
                "several gateways are active, of which driver {driver} uses the leader alone; set TRIESTE_ACTIVE_GATEWAYS=one"
            ),
            Self::EventRefused { handler, event, error, is_dropped } => write!(
                f,
                "handler {handler} refuses event {event}: {error}. {}",
                match is_dropped {
                    true =>
                        "It does not come again unless what it is about changes, or the route agent is restarted",
                    false => "It comes again; later events of this handler wait",
                }
            ),
            _ => Ok(()),
        }
    }

    /// Writes what is about packet filters, ours and others'.
    fn fmt_filters(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[expect(clippy::wildcard_enum_match_arm, reason = "the caller passes these only")]
        match self {
            Self::FirewalldOwned => f.write_str(
                "firewalld owns its nftables table, so that nothing of ours can be put there and it may drop packets \
                 between nodes and for remote clusters; set `NftablesTableOwner=no` in /etc/firewalld/firewalld.conf \
                 and restart it, or give it the devices and the port: `firewall-cmd --permanent --zone=trusted \
                 --add-interface=vx-submariner --add-interface=submariner`, `firewall-cmd --permanent \
                 --add-port=4800/udp`, `firewall-cmd --reload`; for IPv6 also `IPv6_rpfilter=loose` there",
            ),
            Self::Unguarded => f.write_str(
                "the packet filter cannot be read or written, so that the VXLAN between nodes is not opened: whoever \
                 reaches its port could send into pods. What is there stays; the other messages say what is wrong \
                 with the filter",
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
                    Hook::Prerouting | Hook::Forward => "what enters or leaves by vx-submariner and the gateway's device",
                }
            ),
            Self::EarlierSourceNat(chain) => write!(
                f,
                "chain {} of nftables table {} {} may change sources at priority {}, and so before Trieste's chain \
                 keep-source: what it masquerades of packets for remote clusters, or from them, has this node's address there, and may \
                 be dropped; give it a priority above {PRIORITY_FIRST_NAT} (100, srcnat, is usual), or except remote \
                 clusters' networks from its rules. Connections that it has changed stay so until they end",
                chain.name, chain.family, chain.table, chain.priority
            ),
            _ => Ok(()),
        }
    }

    /// Writes what is about iptables.
    fn fmt_iptables(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[expect(clippy::wildcard_enum_match_arm, reason = "the caller passes these only")]
        match self {
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

    /// Writes what is about the ways to the cluster's gateways.
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

/// Returns the command's name without its backend suffix.
const fn iptables(family: Family) -> &'static str {
    match family {
        Family::V4 => "iptables",
        Family::V6 => "ip6tables",
    }
}

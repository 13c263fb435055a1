//! The packet filter's chains and rules. Pure.

use serde_json::{Value, json};

use crate::constants::{MARK, MARK_MASK, VX_DEVICE};
use crate::family::Family;
use crate::hostnet::{Delivery, Guard};
use crate::nft::{
    self, GUARD_TABLE, PRIORITY_FIRST_NAT, PRIORITY_RAW, TABLE_FAMILY, by_inlet, field, in_set, is, is_not,
    protocol,
};

/// Where packets are usually filtered: after destination NAT.
const PRIORITY_FILTER: i32 = 0;
/// Before the kernel translates sources (100), whatever the priorities of chains that decide it: whose a packet is can still be
/// seen.
const PRIORITY_UNTRANSLATED: i32 = 80;
/// After everything that may translate what is for this node, IPVS (99) included.
const PRIORITY_LAST_IN: i32 = 120;
/// Where TCP options are usually changed.
const PRIORITY_MANGLE: i32 = -150;
/// After source NAT: the packet is as it would leave.
const PRIORITY_AFTER_SOURCE_NAT: i32 = 150;
/// The number of no device, as `nft -j` reports it.
const NO_DEVICE: &str = "0";
/// The chain of what comes out of a tunnel.
const FROM_TUNNEL: &str = "from-tunnel";
/// Addresses of the VXLANs between nodes (240/8) and of upstream's between clusters (241/8).
const BETWEEN_NODES_V4: (&str, u8) = ("240.0.0.0", 7);
/// Neighbour discovery, and what is for the next node alone.
const LINK_LOCAL_V6: (&str, u8) = ("fe80::", 10);
/// Bytes by which TCP over IPv6 carries less than over IPv4.
const IPV6_MORE: u16 = 20;

/// The sets: name, type, and whether they hold networks.
const SETS: [(&str, &str, bool); 26] = [
    ("inlets", "ifname", false),
    ("tunnels", "ifname", false),
    ("uplinks", "ifname", false),
    ("node4", "ipv4_addr", true),
    ("node6", "ipv6_addr", true),
    ("gateways4", "ipv4_addr", false),
    ("gateways6", "ipv6_addr", false),
    ("ports", "inet_service", false),
    ("remote4", "ipv4_addr", true),
    ("remote6", "ipv6_addr", true),
    ("local4", "ipv4_addr", true),
    ("local6", "ipv6_addr", true),
    ("beside4", "ipv4_addr", true),
    ("beside6", "ipv6_addr", true),
    ("routers4", "ipv4_addr", false),
    ("routers6", "ipv6_addr", false),
    ("nodes4", "ipv4_addr", false),
    ("nodes6", "ipv6_addr", false),
    ("vxlan", "inet_service", false),
    ("siblings", "ether_addr", false),
    ("onward4", "ipv4_addr", true),
    ("onward6", "ipv6_addr", true),
    ("behind4", "ipv4_addr", true),
    ("behind6", "ipv6_addr", true),
    ("loosened0", "ifname", false),
    ("loosened1", "ifname", false),
];

/// Returns everything in the table but the elements, in the order in which it has to be made.
pub(super) fn structure(guard: &Guard) -> Vec<Value> {
    let mut objects = vec![nft::table(GUARD_TABLE)];
    let counters =
        ["returned", "spoofed4", "spoofed6", "strangers", "stray4", "stray6", "unclosed4", "unclosed6"];
    objects.extend(counters.map(|name| nft::counter(GUARD_TABLE, name)));
    objects.extend(SETS.map(|set| nft::set(GUARD_TABLE, set)));
    let chains = [
        ("source-guard", "filter", "prerouting", PRIORITY_RAW, source_guard(guard)),
        ("vxlan-guard", "filter", "input", PRIORITY_LAST_IN, vxlan_guard()),
        ("vxlan-onward", "filter", "forward", PRIORITY_FILTER, vxlan_onward()),
        ("vxlan-out", "filter", "postrouting", PRIORITY_UNTRANSLATED, vxlan_out()),
        ("way-out", "filter", "postrouting", PRIORITY_AFTER_SOURCE_NAT, way_out(guard)),
        ("mss", "filter", "postrouting", PRIORITY_MANGLE, mss(guard)),
        ("keep-source", "nat", "postrouting", PRIORITY_FIRST_NAT, keep_source(guard)),
    ];
    objects.extend(
        chains.iter().map(|(name, kind, hook, priority, _)| {
            nft::base_chain(GUARD_TABLE, name, (kind, hook, *priority))
        }),
    );
    // What comes by other devices passes one rule of it.
    objects.push(nft::chain(GUARD_TABLE, FROM_TUNNEL));
    let chains = chains.into_iter().map(|(chain, _, _, _, rules)| (chain, rules));
    let from_tunnel = Family::ALL.into_iter().flat_map(closed).collect();
    for (chain, rules) in chains.chain([(FROM_TUNNEL, from_tunnel)]) {
        objects.extend(rules.into_iter().map(|(comment, expr)| {
            json!({"rule": {
                "family": TABLE_FAMILY, "table": GUARD_TABLE, "chain": chain, "comment": comment, "expr": expr,
            }})
        }));
    }
    objects
}

/// A rule: comment and expressions.
type Rule = (String, Value);

/// Which way packets go, and the fields with the far address and the near port.
#[derive(Clone, Copy)]
struct Direction {
    word: &'static str,
    address: &'static str,
    own_port: &'static str,
}

const FROM: Direction = Direction { word: "from", address: "saddr", own_port: "dport" };
const TO: Direction = Direction { word: "to", address: "daddr", own_port: "sport" };

fn source_guard(guard: &Guard) -> Vec<Rule> {
    let mut rules: Vec<Rule> = Family::ALL.into_iter().flat_map(untracked).collect();
    let by_tunnel = is(&json!({"meta": {"key": "iifname"}}), "@tunnels");
    rules.push(("out of a tunnel".to_owned(), json!([by_tunnel, {"jump": {"target": FROM_TUNNEL}}])));
    rules.push(("the ways in from remote clusters".to_owned(), json!([by_inlet("iifname"), accept()])));
    if guard.delivery == Delivery::Ipsec {
        rules.push((
            "what IPsec in the kernel has opened".to_owned(),
            json!([is(&json!({"meta": {"key": "ipsec"}}), true), accept()]),
        ));
    }
    for family in Family::ALL {
        rules.extend(not_remote(family, FROM));
        if guard.delivery != Delivery::Plugin {
            rules.push((
                format!("forged {family} source in a remote network"),
                json!([in_set(family, "saddr", "remote"), {"counter": format!("spoofed{}", family.digit())}, drop()]),
            ));
        }
    }
    rules
}

/// Excludes packets that pass through one of several gateways from connection tracking: the answer may come by another.
fn untracked(family: Family) -> [Rule; 2] {
    ["onward", "behind"].map(|set| {
        let rule = json!([by_inlet("iifname"), in_set(family, "daddr", set), {"notrack": null}]);
        (format!("{family} through one of several gateways, {set}: not tracked"), rule)
    })
}

/// Accepts packets out of a tunnel only from where the answer cannot leave in clear: networks that are closed on this node, and
/// its own cluster. A gateway may let a new cluster's packets in before this node has heard of that.
fn closed(family: Family) -> Vec<Rule> {
    let source = field(protocol(family), "saddr");
    let within = |(address, len): (&str, u8)| is(&source, json!({"prefix": {"addr": address, "len": len}}));
    let between_nodes = match family {
        Family::V4 => vec![within(BETWEEN_NODES_V4)],
        Family::V6 => vec![within(LINK_LOCAL_V6), is(&source, "::")],
    };
    let named = ["remote", "local", "nodes"].map(|set| in_set(family, "saddr", set));
    let sources = named.into_iter().chain(between_nodes).chain([is_own()]);
    let mut rules: Vec<Rule> = sources
        .map(|source| (format!("{family} from a source that is closed here"), json!([source, accept()])))
        .collect();
    rules.push((
        format!("{family} from a source that is not closed here"),
        json!([
            is(&json!({"meta": {"key": "nfproto"}}), format!("ipv{}", family.digit())),
            {"counter": format!("unclosed{}", family.digit())},
            drop()
        ]),
    ));
    rules
}

/// Accepts packets whose address is inside a remote network without being the remote cluster's: this node's own networks,
/// and the cables of gateways.
fn not_remote(family: Family, Direction { word, address, own_port }: Direction) -> [Rule; 3] {
    let gateways = || in_set(family, address, "gateways");
    [
        (
            format!("{family} networks of this node inside a remote one"),
            json!([in_set(family, address, "node"), accept()]),
        ),
        (
            format!("cables {word} {family} gateways inside a remote network"),
            json!([gateways(), is(&field("udp", own_port), "@ports"), accept()]),
        ),
        (
            format!("ESP {word} {family} gateways inside a remote network"),
            json!([gateways(), is(&json!({"meta": {"key": "l4proto"}}), "esp"), accept()]),
        ),
    ]
}

/// Accepts packets for the VXLAN between nodes, whatever port they were sent to, only from nodes, and only by the device
/// that leads to that node. A pod may forge any source.
fn vxlan_guard() -> Vec<Rule> {
    let by_its_device = json!({"fib": {"result": "oif", "flags": ["saddr", "iif"]}});
    let accepts = |family: &Family| {
        let source = in_set(*family, "saddr", "nodes");
        let rule = json!([to_vxlan(), source, is(&by_its_device, true), accept()]);
        (format!("the VXLAN between nodes, from {family} nodes by the way to them"), rule)
    };
    let mut rules: Vec<Rule> = accept_other_ports().into_iter().collect();
    rules.extend(Family::ALL.iter().map(accepts));
    let strangers = json!([to_vxlan(), {"counter": "strangers"}, drop()]);
    rules.push(("the VXLAN between nodes, from strangers".to_owned(), strangers));
    rules
}

/// Drops packets that this node forwards to that port, wherever to: masqueraded, they would look like this node's own.
/// Between pods, here and in remote clusters, the port is free to use.
fn vxlan_onward() -> Vec<Rule> {
    [drop_returned()].into_iter().chain(accept_other_ports()).chain(forwarded()).collect()
}

/// Drops packets that would return by the VXLAN: two gateways whose processes are both dead would pass them back and forth.
fn drop_returned() -> Rule {
    let by = |key: &str| is(&json!({"meta": {"key": key}}), VX_DEVICE);
    let from_sibling = is(&field("ether", "saddr"), "@siblings");
    (
        "what another gateway could not send, nor can this one".to_owned(),
        json!([by("iifname"), by("oifname"), from_sibling, {"counter": "returned"}, drop()]),
    )
}

fn forwarded() -> Vec<Rule> {
    let drops = |to: &[Value]| {
        let mut expr = vec![to_vxlan()];
        expr.extend_from_slice(to);
        expr.extend([json!({"counter": "strangers"}), drop()]);
        Value::from(expr)
    };
    let mut rules = Vec::new();
    for family in Family::ALL {
        for set in ["nodes", "node"] {
            rules.push((
                format!("the VXLAN between nodes, through this one to {family} {set}"),
                drops(&[in_set(family, "daddr", set)]),
            ));
        }
        for (from, to) in [("local", "local"), ("local", "remote"), ("remote", "local")] {
            let pair = (in_set(family, "saddr", from), in_set(family, "daddr", to));
            rules.push((
                format!("{family} pods' own use of that port, {from} to {to}"),
                json!([to_vxlan(), pair.0, pair.1, accept()]),
            ));
        }
    }
    rules.push(("the VXLAN between nodes, through this one".to_owned(), drops(&[])));
    rules
}

/// Drops the same packets where they bypass the forward hook: IPVS sends them as if they came from this node.
fn vxlan_out() -> Vec<Rule> {
    let own = ("the VXLAN between nodes, from this one".to_owned(), json!([to_vxlan(), is_own(), accept()]));
    accept_other_ports().into_iter().chain([own]).chain(forwarded()).collect()
}

/// Leaves the chain early for packets to other ports, since every packet through this node enters all of these chains.
fn accept_other_ports() -> [Rule; 2] {
    [
        ("not UDP".to_owned(), json!([is_not(&json!({"meta": {"key": "l4proto"}}), "udp"), accept()])),
        ("UDP accept_other_ports".to_owned(), json!([is_not(&field("udp", "dport"), "@vxlan"), accept()])),
    ]
}

fn to_vxlan() -> Value {
    is(&field("udp", "dport"), "@vxlan")
}

fn way_out(guard: &Guard) -> Vec<Rule> {
    let mark = json!({"&": [{"meta": {"key": "mark"}}, MARK_MASK]});
    let iif = || json!({"meta": {"key": "iif"}});
    let mut rules = vec![
        ("the ways out to remote clusters".to_owned(), json!([by_inlet("oifname"), accept()])),
        // Since Linux 5.7 what is forwarded still has its input device here; what a socket sends has none.
        (
            "this node's sockets of cables, probes and discovery".to_owned(),
            json!([is(&mark, MARK), is(&iif(), NO_DEVICE), accept()]),
        ),
    ];
    if guard.delivery == Delivery::Ipsec {
        rules.push((
            "what IPsec in the kernel will seal".to_owned(),
            json!([is(&json!({"rt": {"key": "ipsec"}}), true), accept()]),
        ));
    }
    for family in Family::ALL {
        let astray = || [in_set(family, "daddr", "remote"), stray(family), drop()];
        let [own, cables, esp] = not_remote(family, TO);
        rules.push(own);
        // What IPsec in the kernel has sealed keeps the input device of what is inside, a WireGuard device's packets that
        // device.
        if guard.delivery != Delivery::Ipsec {
            let mut expr = vec![is_not(&iif(), NO_DEVICE), not_by_inlet("iifname")];
            expr.extend(astray());
            rules.push((format!("{family} for a remote cluster, through this node, in clear"), expr.into()));
        }
        rules.extend([cables, esp]);
        rules.push((
            format!("{family} for a remote cluster, about to leave in clear"),
            Value::from(astray().to_vec()),
        ));
    }
    rules.extend(Family::ALL.into_iter().flat_map(drop_unrouted));
    rules
}

/// Counts packets that were about to leave in clear.
fn stray(family: Family) -> Value {
    json!({"counter": format!("stray{}", family.digit())})
}

/// Drops packets of remote clusters for pods that have no route while their network plugin restarts: the default route
/// would take them out of the cluster.
fn drop_unrouted(family: Family) -> [Rule; 3] {
    let source = |set: &str| in_set(family, "saddr", set);
    // When a device to such a network goes down, its packets take the default route like all others. On a device's own network the
    // next hop is the destination.
    let next_hop = json!({"rt": {"key": "nexthop", "family": protocol(family)}});
    let [there, routers] = ["beside", "routers"].map(|set| format!("@{set}{}", family.digit()));
    [
        (
            format!("from {family} networks of this node inside a remote one"),
            json!([source("node"), accept()]),
        ),
        (
            format!("{family} from a remote cluster to this cluster's networks on the underlay"),
            json!([
                source("remote"),
                in_set(family, "daddr", "beside"),
                is(&next_hop, there),
                is_not(&next_hop, &routers),
                accept()
            ]),
        ),
        (
            format!("{family} from a remote cluster, about to leave in clear"),
            json!([
                is(&json!({"meta": {"key": "oifname"}}), "@uplinks"),
                source("remote"),
                stray(family),
                drop()
            ]),
        ),
    ]
}

fn mss(guard: &Guard) -> Vec<Rule> {
    let syn = json!({"&": [field("tcp", "flags"), ["syn", "rst"]]});
    let option = json!({"tcp option": {"name": "maxseg", "field": "size"}});
    let mut rules = Vec::new();
    for family in Family::ALL {
        let size = match (guard.clamp, family) {
            (None, _) => json!({"rt": {"key": "mtu"}}),
            (Some(size), Family::V4) => json!(size),
            (Some(size), Family::V6) => json!(size.saturating_sub(IPV6_MORE)),
        };
        let clamp = json!({"mangle": {"key": option, "value": size}});
        for (from, to) in [("local", "remote"), ("remote", "local")] {
            let pair = (in_set(family, "saddr", from), in_set(family, "daddr", to));
            rules.push((
                format!("{family} TCP, {from} to {to}"),
                // The flags first: they end the rule for nearly every packet, before any set is asked.
                json!([is(&syn, "syn"), pair.0, pair.1, clamp]),
            ));
        }
    }
    rules
}

fn keep_source(guard: &Guard) -> Vec<Rule> {
    let mut rules = Vec::new();
    for family in Family::ALL {
        let snat = |address: Value| json!({"snat": {"family": protocol(family), "addr": address}});
        let directions = [("local", "remote"), ("remote", "local")];
        for (from, to) in directions.into_iter().skip(usize::from(guard.is_translated_elsewhere)) {
            let pair = (in_set(family, "saddr", from), in_set(family, "daddr", to));
            rules.push((
                format!("{family}, {from} to {to}: nobody masquerades it"),
                json!([pair.0, pair.1, snat(field(protocol(family), "saddr"))]),
            ));
        }
        let sources = guard.sources.iter().filter(|_| !guard.is_translated_elsewhere);
        for source in sources.filter(|source| Family::of(**source) == family) {
            rules.push((
                format!("{family} of this node to a remote cluster gets a source that is known there"),
                json!([
                    by_inlet("oifname"),
                    is_own(),
                    in_set(family, "daddr", "remote"),
                    snat(json!(source))
                ]),
            ));
        }
    }
    rules
}

/// Matches a source that is an address of this node. Sources forged by pods stay, and the gateway drops those packets.
fn is_own() -> Value {
    is(&json!({"fib": {"result": "type", "flags": ["saddr"]}}), "local")
}

fn not_by_inlet(key: &str) -> Value {
    is_not(&json!({"meta": {"key": key}}), "@inlets")
}

fn accept() -> Value {
    json!({"accept": null})
}

fn drop() -> Value {
    json!({"drop": null})
}

//! What is in the table whatever the services are: sets, maps, base chains and their rules. Pure.

use serde_json::{Value, json};

use crate::constants::VX_DEVICE;
use crate::family::Family;
use crate::nft::{
    self, PRIORITY_RAW, SERVICES_TABLE, TABLE_FAMILY, by_inlet, field, in_set, is, is_not, protocol,
};

/// Before kube-proxy's destination NAT (-100), whose chains then leave the packet alone.
pub(crate) const PRIORITY_BEFORE_KUBE_PROXY: i32 = -110;
/// Where packets are usually filtered: after destination NAT.
const PRIORITY_FILTER: i32 = 0;
/// Where sources are usually translated.
const PRIORITY_SOURCE_NAT: i32 = 100;

/// Names, types and kinds of the sets.
const SETS: [(&str, &str, bool); 9] = [
    ("inlets", "ifname", false),
    ("remote4", "ipv4_addr", true),
    ("remote6", "ipv6_addr", true),
    ("served4", "ipv4_addr", true),
    ("served6", "ipv6_addr", true),
    ("own4", "ipv4_addr", true),
    ("own6", "ipv6_addr", true),
    ("away4", "ipv4_addr", true),
    ("away6", "ipv6_addr", true),
];

/// Returns everything but elements and the chains of back ends, in the order in which it has to be made.
pub(super) fn structure() -> Vec<Value> {
    let mut objects = vec![nft::table(SERVICES_TABLE)];
    objects.extend(Family::ALL.map(|family| {
        json!({"counter": {"family": TABLE_FAMILY, "table": SERVICES_TABLE, "name": unserved_counter(family)}})
    }));
    objects.extend(SETS.map(|set| nft::set(SERVICES_TABLE, set)));
    objects.extend(Family::ALL.map(|family| map(SERVICES_TABLE, family)));
    let chains = [
        ("untracked", "filter", "prerouting", PRIORITY_RAW, untracked()),
        ("deliver", "nat", "prerouting", PRIORITY_BEFORE_KUBE_PROXY, deliver()),
        ("unserved", "filter", "forward", PRIORITY_FILTER, unserved()),
        ("host-udp", "nat", "input", PRIORITY_SOURCE_NAT, host_udp()),
    ];
    objects.extend(chains.iter().map(|(name, kind, hook, priority, _)| {
        nft::base_chain(SERVICES_TABLE, name, (kind, hook, *priority))
    }));
    for (chain, _, _, _, rules) in chains {
        objects.extend(rules.into_iter().map(|expr| rule(SERVICES_TABLE, chain, &expr)));
    }
    nft::sort(&mut objects);
    objects
}

fn untracked() -> Vec<Value> {
    let by_vxlan = || is(&json!({"meta": {"key": "iifname"}}), VX_DEVICE);
    let rules = |family: Family| {
        [
            json!([by_vxlan(), in_set(family, "saddr", "own"), in_set(family, "daddr", "remote"), {"notrack": null}]),
            json!([by_inlet("iifname"), in_set(family, "saddr", "remote"), in_set(family, "daddr", "away"), {"notrack": null}]),
        ]
    };
    Family::ALL.into_iter().flat_map(rules).collect()
}

fn deliver() -> Vec<Value> {
    Family::ALL.into_iter().map(|family| json!([by_inlet("iifname"), lookup(family)])).collect()
}

/// Drops packets that are still for a cluster IP after everybody's destination NAT, and about to leave for neither another
/// node of ours nor a remote cluster.
fn unserved() -> Vec<Value> {
    let rule = |family| {
        let count = json!({"counter": unserved_counter(family)});
        let leaves = is_not(&json!({"meta": {"key": "oifname"}}), "@inlets");
        json!([by_inlet("iifname"), leaves, in_set(family, "daddr", "served"), count, {"drop": null}])
    };
    Family::ALL.into_iter().map(rule).collect()
}

fn unserved_counter(family: Family) -> String {
    format!("unserved{}", family.digit())
}

/// Gives UDP for a back end in the host's network the back end's address as source: the server's answer then has it too,
/// whatever it binds.
fn host_udp() -> Vec<Value> {
    let is_udp = || is(&json!({"meta": {"key": "l4proto"}}), "udp");
    // A status is a set of bits.
    let is_translated = || json!({"match": {"op": "in", "left": {"ct": {"key": "status"}}, "right": "dnat"}});
    let rule = |family| {
        let asked = json!({"ct": {"key": format!("{} daddr", protocol(family)), "dir": "original"}});
        let served = is(&asked, format!("@served{}", family.digit()));
        let snat = json!({"snat": {"family": protocol(family), "addr": field(protocol(family), "daddr")}});
        json!([by_inlet("iifname"), is_udp(), is_translated(), served, snat])
    };
    Family::ALL.into_iter().map(rule).collect()
}

/// Renders a rule of a chain.
pub(crate) fn rule(table: &str, chain: &str, expr: &Value) -> Value {
    json!({"rule": {"family": TABLE_FAMILY, "table": table, "chain": chain, "expr": expr}})
}

/// Renders the map from address, protocol and port to a chain of back ends.
pub(crate) fn map(table: &str, family: Family) -> Value {
    let address = format!("ipv{}_addr", family.digit());
    json!({"map": {
        "family": TABLE_FAMILY, "table": table, "name": frontends(family),
        "type": [address, "inet_proto", "inet_service"], "map": "verdict",
    }})
}

/// Renders the lookup in that map, which translates.
pub(crate) fn lookup(family: Family) -> Value {
    let key = json!({"concat": [
        field(protocol(family), "daddr"), {"meta": {"key": "l4proto"}}, field("th", "dport"),
    ]});
    json!({"vmap": {"key": key, "data": format!("@{}", frontends(family))}})
}

/// Returns the name of the map of a family.
pub(super) fn frontends(family: Family) -> String {
    format!("frontends{}", family.digit())
}

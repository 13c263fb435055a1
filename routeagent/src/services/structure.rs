//! What is in the table whatever the services are: sets, maps, base chains and their rules. Pure.

use serde_json::{Value, json};

use crate::constants::VX_DEVICE;
use crate::family::Family;
use crate::nft::{
    self, PRIORITY_RAW, SERVICES_TABLE, TABLE_FAMILY, by_inlet, field, in_set, is, is_not, protocol,
};

/// Before kube-proxy's destination NAT (-100), whose chains then leave the packet alone.
pub(crate) const PRIORITY_BEFORE_KUBE_PROXY: i32 = -110;
/// After the others' filters (0).
const PRIORITY_AFTER_FILTERS: i32 = 10;
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
    let counters = ["forged4", "forged6", "unserved4", "unserved6"];
    objects.extend(counters.map(|name| nft::counter(SERVICES_TABLE, name)));
    objects.extend(SETS.map(|set| nft::set(SERVICES_TABLE, set)));
    objects.extend(Family::ALL.map(|family| map(SERVICES_TABLE, family)));
    let chains = [
        ("untracked", "filter", "prerouting", PRIORITY_RAW, untracked()),
        ("deliver", "nat", "prerouting", PRIORITY_BEFORE_KUBE_PROXY, deliver()),
        ("unserved", "filter", "forward", PRIORITY_AFTER_FILTERS, unserved()),
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
    // Cluster IPs are addresses of every node where kube-proxy is in IPVS mode; nobody else has this node's.
    let is_local = || is(&json!({"fib": {"result": "type", "flags": ["saddr"]}}), "local");
    let forged = |family: Family| {
        let not_served = is_not(&field(protocol(family), "saddr"), &format!("@served{}", family.digit()));
        json!([by_vxlan(), not_served, is_local(), {"counter": format!("forged{}", family.digit())}, {"drop": null}])
    };
    let rules = |family: Family| {
        [
            forged(family),
            json!([by_vxlan(), in_set(family, "saddr", "own"), in_set(family, "daddr", "remote"), {"notrack": null}]),
            json!([by_inlet("iifname"), in_set(family, "saddr", "remote"), in_set(family, "daddr", "away"), {"notrack": null}]),
        ]
    };
    Family::ALL.into_iter().flat_map(rules).collect()
}

fn deliver() -> Vec<Value> {
    Family::ALL.into_iter().map(|family| json!([by_inlet("iifname"), lookup(family)])).collect()
}

/// Ends packets that are still for a cluster IP after everybody's destination NAT, and about to leave for neither another
/// node's agent nor a remote cluster. What another gateway has sent here is tried again by its client, perhaps when the service is known here; all else is
/// refused, as kube-proxy refuses what is for a service without back ends.
fn unserved() -> Vec<Value> {
    let rules = |family| {
        let leaves = || is_not(&json!({"meta": {"key": "oifname"}}), "@inlets");
        let served = || in_set(family, "daddr", "served");
        let count = || json!({"counter": format!("unserved{}", family.digit())});
        let by_vxlan = is(&json!({"meta": {"key": "iifname"}}), VX_DEVICE);
        let refuse = json!({"reject": {"type": "icmpx", "expr": "port-unreachable"}});
        [
            json!([by_vxlan, leaves(), served(), count(), {"drop": null}]),
            json!([by_inlet("iifname"), leaves(), served(), count(), refuse]),
        ]
    };
    Family::ALL.into_iter().flat_map(rules).collect()
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

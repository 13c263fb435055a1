//! What is in the table whatever the services are: sets, maps, base chains and their rules. Pure.

use serde_json::{Value, json};

use crate::constants::VX_DEVICE;
use crate::family::Family;
use crate::nft::{self, PRIORITY_RAW, SERVICES_TABLE, TABLE_FAMILY, by_inlet, field, in_set, is, protocol};

/// Before kube-proxy's destination NAT (-100), whose chains then leave the packet alone.
pub(crate) const PRIORITY_BEFORE_KUBE_PROXY: i32 = -110;

/// Names, types and kinds of the sets.
const SETS: [(&str, &str, bool); 7] = [
    ("inlets", "ifname", false),
    ("remote4", "ipv4_addr", true),
    ("remote6", "ipv6_addr", true),
    ("own4", "ipv4_addr", true),
    ("own6", "ipv6_addr", true),
    ("away4", "ipv4_addr", true),
    ("away6", "ipv6_addr", true),
];

/// Returns everything but elements and the chains of back ends, in the order in which it has to be made.
pub(super) fn structure() -> Vec<Value> {
    let mut objects = vec![nft::table(SERVICES_TABLE)];
    objects.extend(SETS.map(|set| nft::set(SERVICES_TABLE, set)));
    objects.extend(Family::ALL.map(|family| map(SERVICES_TABLE, family)));
    let chains = [
        ("untracked", "filter", PRIORITY_RAW, untracked()),
        ("deliver", "nat", PRIORITY_BEFORE_KUBE_PROXY, deliver()),
    ];
    objects.extend(chains.iter().map(|(name, kind, priority, _)| {
        nft::base_chain(SERVICES_TABLE, name, (kind, "prerouting", *priority))
    }));
    for (chain, _, _, rules) in chains {
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

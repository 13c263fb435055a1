//! Reads what `ip -j` and `bridge -j` print. Sans-IO: an entry that makes no sense is left out.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::Value;

use super::document::{Link, Neighbour, Route, Rule};

/// Ours: most entries of a kind that are read. A node has a few routes and one device for each pod.
pub(super) const MAX_ENTRIES: usize = 8192;

fn entries(json: &Value) -> impl Iterator<Item = &Value> {
    json.as_array().map(Vec::as_slice).unwrap_or_default().iter().take(MAX_ENTRIES)
}

fn text(value: &Value, key: &str) -> Option<String> {
    Some(value.get(key)?.as_str()?.to_owned())
}

fn number<T: TryFrom<u64>>(value: &Value, key: &str) -> Option<T> {
    T::try_from(value.get(key)?.as_u64()?).ok()
}

fn address(value: &Value, key: &str) -> Option<IpAddr> {
    value.get(key)?.as_str()?.parse().ok()
}

fn words(value: &Value, key: &str) -> Vec<String> {
    let list = value.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(Value::as_str).map(str::to_owned).take(32).collect()
}

/// `ip -j -d -s address show`.
pub(super) fn links(json: &Value) -> Vec<Link> {
    entries(json).filter_map(link).collect()
}

fn link(entry: &Value) -> Option<Link> {
    let info = entry.get("linkinfo").unwrap_or(&Value::Null);
    let data = info.get("info_data").unwrap_or(&Value::Null);
    let flags = words(entry, "flags");
    let has = |flag: &str| flags.iter().any(|each| each == flag);
    let addresses = entry.get("addr_info").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let packets =
        |way: &str| entry.get("stats64").and_then(|stats| number(stats.get(way)?, "packets")).unwrap_or(0);
    Some(Link {
        name: text(entry, "ifname")?,
        kind: text(info, "info_kind").unwrap_or_default(),
        mtu: number(entry, "mtu").unwrap_or(0),
        up: has("UP"),
        carrier: has("LOWER_UP") && !has("NO-CARRIER"),
        addresses: addresses.iter().take(256).filter_map(interface_address).collect(),
        vni: number(data, "id"),
        port: number(data, "port"),
        remote: address(data, "remote").or_else(|| address(data, "remote6")),
        rx_packets: packets("rx"),
        tx_packets: packets("tx"),
    })
}

fn interface_address(entry: &Value) -> Option<IpNet> {
    IpNet::new(address(entry, "local")?, number(entry, "prefixlen")?).ok()
}

/// `ip -j [-6] route show table all`.
pub(super) fn routes(json: &Value, is_v6: bool) -> Vec<Route> {
    entries(json).filter_map(|entry| route(entry, is_v6)).collect()
}

fn route(entry: &Value, is_v6: bool) -> Option<Route> {
    let table = text(entry, "table").unwrap_or_else(|| "main".to_owned());
    if table == "local" {
        return None;
    }
    // One with several next hops has them in a list, by one device all of them where they are ours.
    let hop = entry.get("nexthops").and_then(|hops| hops.get(0)).unwrap_or(entry);
    Some(Route {
        table,
        kind: text(entry, "type").unwrap_or_else(|| "unicast".to_owned()),
        destination: network(entry.get("dst")?.as_str()?, is_v6)?,
        via: address(hop, "gateway").or_else(|| address(hop.get("via")?, "host")),
        device: text(hop, "dev"),
        source: address(entry, "prefsrc"),
        metric: number(entry, "metric").unwrap_or(0),
        protocol: text(entry, "protocol").unwrap_or_default(),
        flags: words(entry, "flags"),
    })
}

fn network(text: &str, is_v6: bool) -> Option<IpNet> {
    if text == "default" {
        return (if is_v6 { "::/0" } else { "0.0.0.0/0" }).parse().ok();
    }
    text.parse().ok().or_else(|| Some(IpNet::from(text.parse::<IpAddr>().ok()?)))
}

/// `ip -j [-6] rule show`.
pub(super) fn rules(json: &Value, is_v6: bool) -> Vec<Rule> {
    let rule = |entry: &Value| {
        Some(Rule {
            priority: number(entry, "priority")?,
            is_v6,
            table: text(entry, "table").unwrap_or_default(),
            device: text(entry, "iif").unwrap_or_default(),
            mark: text(entry, "fwmark").unwrap_or_default(),
            source: text(entry, "src").unwrap_or_default(),
        })
    };
    entries(json).filter_map(rule).collect()
}

/// `bridge -j fdb show dev vx-submariner`.
pub(super) fn forwarding(json: &Value) -> Vec<Neighbour> {
    let entry = |entry: &Value| {
        Some(Neighbour {
            hardware: text(entry, "mac")?,
            address: None,
            node: address(entry, "dst"),
            state: text(entry, "state").into_iter().collect(),
        })
    };
    entries(json).filter_map(entry).collect()
}

/// `ip -j neigh show dev vx-submariner`.
pub(super) fn neighbours(json: &Value) -> Vec<Neighbour> {
    let entry = |entry: &Value| {
        Some(Neighbour {
            hardware: text(entry, "lladdr").unwrap_or_default(),
            address: Some(address(entry, "dst")?),
            node: None,
            state: words(entry, "state"),
        })
    };
    entries(json).filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_vxlan_device_is_read_with_what_it_carries() {
        let json = json!([{"ifname": "vx-submariner", "mtu": 1450, "flags": ["BROADCAST", "UP", "LOWER_UP"],
            "linkinfo": {"info_kind": "vxlan", "info_data": {"id": 100, "port": 4800}},
            "addr_info": [{"family": "inet", "local": "240.18.0.3", "prefixlen": 8}],
            "stats64": {"rx": {"packets": 5}, "tx": {"packets": 7}}}, {"mtu": 1}]);
        let links = links(&json);
        assert_eq!(links.len(), 1, "an entry without a name is left out");
        let link = &links[0];
        assert_eq!(
            (link.kind.as_str(), link.vni, link.port, link.mtu),
            ("vxlan", Some(100), Some(4800), 1450)
        );
        assert!(link.up && link.carrier);
        assert_eq!((link.rx_packets, link.tx_packets), (5, 7));
        assert_eq!(link.addresses, ["240.18.0.3/8".parse().unwrap()]);
    }

    #[test]
    fn a_tun_device_without_a_process_has_no_carrier() {
        let json = json!([{"ifname": "submariner", "mtu": 1500,
            "flags": ["NO-CARRIER", "POINTOPOINT", "UP"], "linkinfo": {"info_kind": "tun"}}]);
        assert!(links(&json)[0].up && !links(&json)[0].carrier);
    }

    #[test]
    fn routes_of_all_forms_are_read() {
        let json = json!([
            {"dst": "default", "gateway": "172.18.0.1", "dev": "eth0", "flags": []},
            {"type": "unreachable", "dst": "10.2.0.0/16", "table": "150", "protocol": "static",
             "metric": 4_278_198_272_u32, "flags": []},
            {"dst": "10.2.0.7", "via": {"family": "inet6", "host": "fe80::1"}, "dev": "eth0", "flags": ["onlink"]},
            {"dst": "10.3.0.0/16", "nhid": 1, "nexthops": [{"gateway": "240.0.0.1", "dev": "vx-submariner"},
             {"gateway": "240.0.0.2", "dev": "vx-submariner"}]},
            {"type": "local", "dst": "10.0.0.1", "table": "local"}, {"dst": "nonsense"}]);
        let routes = routes(&json, false);
        assert_eq!(routes.len(), 4);
        assert_eq!(routes[3].device.as_deref(), Some("vx-submariner"));
        assert_eq!(routes[3].via, "240.0.0.1".parse().ok());
        assert_eq!(routes[0].destination.to_string(), "0.0.0.0/0");
        assert_eq!((routes[1].kind.as_str(), routes[1].table.as_str()), ("unreachable", "150"));
        assert_eq!(routes[2].destination.to_string(), "10.2.0.7/32");
        assert_eq!(routes[2].via, "fe80::1".parse().ok());
    }

    #[test]
    fn rules_entries_and_neighbours_are_read() {
        let json = json!([{"priority": 149, "src": "all", "iif": "submariner", "table": "149"}]);
        let rules = rules(&json, true);
        assert_eq!((rules[0].priority, rules[0].device.as_str(), rules[0].is_v6), (149, "submariner", true));
        let json = json!([{"mac": "00:00:00:00:00:00", "dst": "172.18.0.3", "state": "permanent"}]);
        assert_eq!(forwarding(&json)[0].node, "172.18.0.3".parse().ok());
        let json = json!([{"dst": "240.18.0.2", "lladdr": "0a:58:ac:12:00:02", "state": ["PERMANENT"]}]);
        assert_eq!(neighbours(&json)[0].state, ["PERMANENT"]);
    }

    #[test]
    fn anything_but_a_list_is_no_entries() {
        for json in [json!(null), json!({}), json!("x"), json!([1, null, [], {}])] {
            assert!(
                links(&json).is_empty() && routes(&json, false).is_empty() && rules(&json, false).is_empty()
            );
            assert!(forwarding(&json).is_empty() && neighbours(&json).is_empty());
        }
    }
}

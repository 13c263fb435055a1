//! Where the cluster's own DNS says to which servers it forwards names, whoever wrote it.
//!
//! | what a cluster has | where it is said |
//! |---|---|
//! | CoreDNS | blocks with `forward` in the ConfigMaps `coredns`, `…-coredns` and `coredns-custom` of `kube-system` |
//! | MicroShift, OpenShift | likewise in `dns-default` of `openshift-dns` |
//! | OpenShift's DNS operator | servers of the object `DNS default` |
//! | kube-dns | `stubDomains` in the ConfigMap `kube-dns` |

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::Value;
use trieste_deploy::server_blocks;

use crate::api::text;

/// The servers of each zone, by the zone in lower case.
pub(super) type Forwards = BTreeMap<String, Vec<IpAddr>>;

/// Returns what these ConfigMaps and OpenShift's object say; `None` if none of them is a DNS server's.
pub(super) fn forwards(config_maps: &[Value], openshift: Option<&Value>) -> Option<Forwards> {
    let mut found = Forwards::new();
    let mut is_known = openshift.is_some();
    for object in config_maps {
        let name = text(object, "/metadata/name");
        let is_coredns =
            matches!(name, "coredns" | "coredns-custom" | "dns-default") || name.ends_with("-coredns");
        is_known |= is_coredns || name == "kube-dns";
        let texts = object["data"].as_object().into_iter().flatten();
        let texts = texts.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)));
        for (key, value) in texts {
            if is_coredns {
                of_corefile(value, &mut found);
            } else if name == "kube-dns" && key == "stubDomains" {
                of_stub_domains(value, &mut found);
            }
        }
    }
    for server in openshift.and_then(|object| object["spec"]["servers"].as_array()).into_iter().flatten() {
        let list = |path: &str| server.pointer(path).and_then(Value::as_array).into_iter().flatten();
        for zone in list("/zones").filter_map(Value::as_str) {
            let upstreams = list("/forwardPlugin/upstreams").filter_map(Value::as_str);
            add(&mut found, zone, upstreams);
        }
    }
    is_known.then_some(found)
}

/// Reads the blocks of a Corefile.
fn of_corefile(corefile: &str, found: &mut Forwards) {
    for block in server_blocks(corefile) {
        let forwards = block.lines.iter().filter(|words| words.len() >= 3 && words[0] == "forward");
        for words in forwards {
            let servers = words[2..].iter().copied().take_while(|word| *word != "{");
            for (zone, _) in &block.servers {
                add(found, zone, servers.clone());
            }
        }
    }
}

/// Reads kube-dns's JSON document of zones.
fn of_stub_domains(document: &str, found: &mut Forwards) {
    let Ok(Value::Object(zones)) = serde_json::from_str(document) else { return };
    for (zone, servers) in &zones {
        add(found, zone, servers.as_array().into_iter().flatten().filter_map(Value::as_str));
    }
}

/// Adds servers of a zone, with ports or without.
fn add<'a>(found: &mut Forwards, zone: &str, servers: impl Iterator<Item = &'a str>) {
    let zone = zone.trim_end_matches('.').to_ascii_lowercase();
    let addresses = servers.filter_map(|server| {
        let server = server.strip_prefix("dns://").unwrap_or(server);
        let server = server.parse::<trieste_discovery::ask::ServerAddress>().ok()?;
        Some(server.0.ip())
    });
    found.entry(zone).or_default().extend(addresses);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(name: &str, key: &str, value: &str) -> Value {
        json!({"metadata": {"name": name}, "data": {key: value}})
    }

    fn servers(forwards: Option<Forwards>, zone: &str) -> Vec<String> {
        forwards.unwrap().get(zone).into_iter().flatten().map(ToString::to_string).collect()
    }

    const COREFILE: &str = "#lighthouse-start AUTO-GENERATED SECTION. DO NOT EDIT\nclusterset.local:53 {\n    forward . \
                            10.96.0.77\n}\nset.example:53 {\n    forward . fd00::5\n}\n#lighthouse-end\n.:53 {\n    errors\n    \
                            kubernetes cluster.local in-addr.arpa {\n      pods insecure\n    }\n    forward . \
                            /etc/resolv.conf {\n      max_concurrent 1000\n    }\n}\n";

    #[test]
    fn each_kind_of_dns_says_where_it_forwards_to() {
        let coredns = || forwards(&[map("coredns", "Corefile", COREFILE)], None);
        assert_eq!(servers(coredns(), "clusterset.local"), ["10.96.0.77"]);
        assert_eq!(servers(coredns(), "set.example"), ["fd00::5"]);
        assert_eq!(servers(coredns(), "cluster.local"), [""; 0]);
        let custom = "a.b, Clusterset.local.:53 {\n  forward . dns://10.0.0.1:5353 [fd00::1]:53\n}";
        let custom = forwards(&[map("coredns-custom", "lighthouse.server", custom)], None);
        assert_eq!(servers(custom, "clusterset.local"), ["10.0.0.1", "fd00::1"]);
        let stub = forwards(&[map("kube-dns", "stubDomains", r#"{"clusterset.local": ["10.0.0.2"]}"#)], None);
        assert_eq!(servers(stub, "clusterset.local"), ["10.0.0.2"]);
        let openshift = json!({"spec": {"servers": [{"name": "lighthouse", "zones": ["clusterset.local"],
            "forwardPlugin": {"upstreams": ["10.0.0.3"]}}]}});
        assert_eq!(servers(forwards(&[], Some(&openshift)), "clusterset.local"), ["10.0.0.3"]);
    }

    #[test]
    fn others_maps_are_no_dns_and_odd_ones_say_nothing() {
        assert_eq!(forwards(&[map("extension", "Corefile", COREFILE)], None), None);
        for odd in
            ["", "}}}", "{{{", "forward . 1.1.1.1", "a {\nforward\n}", "a {\n  b {\n forward . 1.1.1.1\n}}"]
        {
            let found = forwards(&[map("coredns", "Corefile", odd)], None).unwrap();
            assert!(found.values().all(Vec::is_empty), "{odd}: {found:?}");
        }
        assert!(forwards(&[map("kube-dns", "stubDomains", "[")], None).unwrap().is_empty());
    }
}

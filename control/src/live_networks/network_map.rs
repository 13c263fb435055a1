//! ConfigMaps in which network plugins, or what has installed the cluster, have its networks. Pure.

use std::collections::BTreeSet;

use ipnet::IpNet;
use serde_json::Value;

use crate::api::limits::MAX_CIDRS;
use crate::api::{Kind, Object, ObjectKey};
use crate::parse::words;

/// The longest entry that is read, in bytes. Ours: kubeadm's have some 3,000.
const LONGEST: usize = 64 << 10;
/// The longest word that is named, in characters.
const LONGEST_WORD: usize = 64;

/// Where in a ConfigMap networks stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// Entries that are lists of CIDRs, each with or without the length of a node's part behind it (`10.128.0.0/14/23`).
    Lists(&'static [&'static str]),
    /// An entry that is a document in YAML or JSON, and pointers to lists of CIDRs in it.
    Document(&'static str, &'static [&'static str]),
}

/// A ConfigMap with networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NetworkMap {
    namespace: &'static str,
    name: &'static str,
    layout: Layout,
}

impl NetworkMap {
    const fn new(namespace: &'static str, name: &'static str, layout: Layout) -> Self {
        Self { namespace, name, layout }
    }

    /// Returns flannel's, and canal's: <https://github.com/flannel-io/flannel/blob/master/Documentation/configuration.md>.
    pub(super) const fn of_flannel(namespace: &'static str, name: &'static str) -> Self {
        Self::new(namespace, name, Layout::Document("net-conf.json", &["/Network", "/IPv6Network"]))
    }

    /// Returns Cilium's, with its `ipam: cluster-pool`.
    pub(super) const fn of_cilium() -> Self {
        let lists = Layout::Lists(&["cluster-pool-ipv4-cidr", "cluster-pool-ipv6-cidr"]);
        Self::new("kube-system", "cilium-config", lists)
    }

    /// Returns OVN-Kubernetes', of which an entry is `net_cidr` or `svc_cidr`.
    pub(super) const fn of_ovn(entry: &'static [&'static str]) -> Self {
        Self::new("ovn-kubernetes", "ovn-config", Layout::Lists(entry))
    }

    /// Returns kube-proxy's.
    pub(super) const fn of_kube_proxy() -> Self {
        Self::new("kube-system", "kube-proxy", Layout::Document("config.conf", &["/clusterCIDR"]))
    }

    /// Returns kubeadm's, of which these are pointers to lists.
    pub(super) const fn of_kubeadm(pointers: &'static [&'static str]) -> Self {
        Self::new("kube-system", "kubeadm-config", Layout::Document("ClusterConfiguration", pointers))
    }

    /// Returns the ConfigMap's key.
    pub(super) fn key(self) -> ObjectKey {
        ObjectKey::new(Kind::ConfigMap, self.namespace, self.name)
    }

    /// Reads the networks, host bits cleared: all of them or none. Entries that are missing or empty have none.
    ///
    /// # Errors
    /// Why they cannot be read, in words that follow the ConfigMap's name.
    pub(super) fn networks(self, object: &Object) -> Result<BTreeSet<IpNet>, String> {
        if let Some(reason) = &object.withheld {
            return Err(format!("cannot be read: {reason}"));
        }
        let mut found = BTreeSet::new();
        match self.layout {
            Layout::Lists(entries) => {
                for entry in entries {
                    read_list(text_of(object, entry)?, entry, &mut found)?;
                }
            }
            Layout::Document(entry, pointers) => {
                let text = text_of(object, entry)?;
                let document: Value = match text.trim().is_empty() {
                    true => Value::Null,
                    // The reason may be as long as the document.
                    false => serde_saphyr::from_str(text)
                        .map_err(|_| format!("has an entry {entry} that is neither YAML nor JSON"))?,
                };
                for pointer in pointers {
                    let name = pointer.trim_start_matches('/').replace('/', ".");
                    match document.pointer(pointer) {
                        None | Some(Value::Null) => {}
                        Some(Value::String(list)) => read_list(list, &name, &mut found)?,
                        Some(_) => return Err(format!("has in {entry} a {name} that is no text")),
                    }
                }
            }
        }
        Ok(found)
    }
}

/// Returns the text of an entry, empty if there is none.
fn text_of<'a>(object: &'a Object, entry: &str) -> Result<&'a str, String> {
    let text = match object.body.get("data").and_then(|data| data.get(entry)) {
        None | Some(Value::Null) => "",
        Some(Value::String(text)) => text,
        Some(_) => return Err(format!("has an entry {entry} that is no text")),
    };
    match text.len() <= LONGEST {
        true => Ok(text),
        false => Err(format!("has an entry {entry} of more than {LONGEST} bytes")),
    }
}

/// Adds the CIDRs of a list.
fn read_list(list: &str, name: &str, found: &mut BTreeSet<IpNet>) -> Result<(), String> {
    for word in words(list) {
        let network = network(word).ok_or_else(|| {
            let shown: String = word.chars().take(LONGEST_WORD).collect();
            format!("has {shown:?} for {name}, which is no network")
        })?;
        found.insert(network);
        if found.len() > MAX_CIDRS {
            return Err(format!("has more than {MAX_CIDRS} networks"));
        }
    }
    Ok(())
}

/// Reads a CIDR, with or without the length of a node's part.
fn network(word: &str) -> Option<IpNet> {
    let cidr = match word.rsplit_once('/') {
        Some((cidr, length)) if cidr.contains('/') => {
            length.parse::<u8>().ok()?;
            cidr
        }
        _ => word,
    };
    cidr.parse().ok().map(|network: IpNet| network.trunc())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::ObjectMeta;

    const FLANNEL: NetworkMap = NetworkMap::of_flannel("kube-flannel", "kube-flannel-cfg");

    fn read(map: NetworkMap, data: Value) -> Result<String, String> {
        let key = map.key();
        let mut object = Object::new(key.kind, ObjectMeta::new(&*key.namespace, &*key.name));
        object.body.insert("data".to_owned(), data);
        let found = map.networks(&object)?;
        Ok(found.iter().map(IpNet::to_string).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn each_plugins_entries_are_read_in_both_families() {
        let flannel =
            r#"{"Network": "10.7.3.0/16", "IPv6Network": "fd00:7::/56", "Backend": {"Type": "vxlan"}}"#;
        let kubeadm = "networking:\n  podSubnet: 10.7.0.0/16,fd00:7::/56\n  serviceSubnet: 10.96.0.0/12\n";
        for (map, data, expected) in [
            (FLANNEL, json!({"net-conf.json": flannel, "cni-conf.json": "{"}), "10.7.0.0/16 fd00:7::/56"),
            (
                FLANNEL,
                json!({"net-conf.json": r#"{"Network": "10.7.0.0/16", "IPv6Network": null}"#}),
                "10.7.0.0/16",
            ),
            (FLANNEL, json!({"net-conf.json": "{}"}), ""),
            (FLANNEL, json!({"net-conf.json": ""}), ""),
            (FLANNEL, json!({}), ""),
            (FLANNEL, Value::Null, ""),
            (
                NetworkMap::of_cilium(),
                json!({"cluster-pool-ipv4-cidr": "10.7.0.0/16 10.8.0.0/16", "cluster-pool-ipv6-cidr": "fd00:7::/104"}),
                "10.7.0.0/16 10.8.0.0/16 fd00:7::/104",
            ),
            (
                NetworkMap::of_ovn(&["net_cidr"]),
                json!({"net_cidr": "10.128.0.0/14/23,fd01::/48/64", "svc_cidr": "172.30.0.0/16"}),
                "10.128.0.0/14 fd01::/48",
            ),
            (NetworkMap::of_ovn(&["svc_cidr"]), json!({"svc_cidr": "172.30.0.0/16"}), "172.30.0.0/16"),
            (
                NetworkMap::of_kubeadm(&["/networking/podSubnet"]),
                json!({"ClusterConfiguration": kubeadm}),
                "10.7.0.0/16 fd00:7::/56",
            ),
            (
                NetworkMap::of_kubeadm(&["/networking/serviceSubnet"]),
                json!({"ClusterConfiguration": kubeadm}),
                "10.96.0.0/12",
            ),
            (
                NetworkMap::of_kube_proxy(),
                json!({"config.conf": "clusterCIDR: 10.7.0.0/16\n"}),
                "10.7.0.0/16",
            ),
        ] {
            assert_eq!(read(map, data.clone()), Ok(expected.to_owned()), "{map:?} {data}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_whole_in_few_words() {
        let many: Vec<String> = (0..=255).map(|number| format!("10.100.{number}.0/24")).collect();
        let long = "x".repeat(LONGEST + 1);
        let word = format!("\u{1b}[2J{}", "7".repeat(5_000));
        let lists = |entry: &str, text: &str| (NetworkMap::of_cilium(), json!({entry: text}));
        let document = |text: &str| (FLANNEL, json!({"net-conf.json": text}));
        for ((map, data), part) in [
            (
                document(r#"{"Network": "10.7.0.0/16", "IPv6Network": "fd00:7::/129"}"#),
                "\"fd00:7::/129\" for IPv6Network",
            ),
            (document(r#"{"Network": 7}"#), "a Network that is no text"),
            (document("{\"Network\": "), "neither YAML nor JSON"),
            (document(&"[".repeat(10_000)), "neither YAML nor JSON"),
            (document(&long), "more than 65536 bytes"),
            ((FLANNEL, json!({"net-conf.json": 7})), "no text"),
            (lists("cluster-pool-ipv4-cidr", "10.7.0.0/16/x"), "no network"),
            (lists("cluster-pool-ipv4-cidr", "10.7.0.0"), "no network"),
            (lists("cluster-pool-ipv4-cidr", &word), "\\u{1b}[2J7"),
            (lists("cluster-pool-ipv4-cidr", &many.join(" ")), "more than 255"),
        ] {
            let error = read(map, data).unwrap_err();
            assert!(error.contains(part) && error.len() < 200, "{part}: {error}");
        }
        let key = FLANNEL.key();
        let object =
            Object::new(key.kind, ObjectMeta::new(&*key.namespace, &*key.name)).withhold("too large");
        assert_eq!(FLANNEL.networks(&object), Err("cannot be read: too large".to_owned()));
    }
}

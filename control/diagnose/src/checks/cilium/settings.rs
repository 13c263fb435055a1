//! What Cilium's ConfigMaps say of masquerading. Pure.

use std::collections::BTreeMap;

use ipnet::IpNet;

use super::list::{DEFAULT_LIST, List};

/// Where Cilium's settings and its list are.
pub(super) const NAMESPACE: &str = "kube-system";
pub(super) const SETTINGS: &str = "cilium-config";
pub(super) const LIST: &str = "ip-masq-agent";
/// The entry of the list.
pub(super) const ENTRY: &str = "config";

/// Entries of a ConfigMap.
pub(super) type Data = BTreeMap<String, String>;

/// Returns whether a setting is on; `unset` where it is not there.
pub(super) fn is_on(settings: &Data, key: &str, unset: bool) -> bool {
    settings.get(key).map_or(unset, |text| text.trim() == "true")
}

/// Returns whether the list of the ConfigMap counts.
pub(super) fn has_agent(settings: &Data) -> bool {
    is_on(settings, "enable-ip-masq-agent", false)
}

/// Returns the text of the list; Cilium takes its default where that is empty.
pub(super) fn list_of(data: Option<&Data>) -> Option<&str> {
    data?.get(ENTRY).map(String::as_str).filter(|text| !text.is_empty())
}

/// Returns the remote networks that are masqueraded, and what of the list cannot be read.
pub(super) fn masqueraded(
    settings: &Data,
    list: Option<&Data>,
    remote: &[IpNet],
) -> (Vec<IpNet>, Option<String>) {
    if !is_on(settings, "enable-bpf-masquerade", false) {
        return (Vec::new(), None);
    }
    let (listed, unread) = if has_agent(settings) { spared(list) } else { (Vec::new(), None) };
    let native = ["ipv4-native-routing-cidr", "native-routing-cidr", "ipv6-native-routing-cidr"]
        .into_iter()
        .filter_map(|key| settings.get(key)?.trim().parse::<IpNet>().ok());
    let spared: Vec<IpNet> = native.chain(listed).collect();
    let is_masqueraded = |network: &&IpNet| {
        let (family, masquerade) = match network.addr().is_ipv4() {
            true => (is_on(settings, "enable-ipv4", true), "enable-ipv4-masquerade"),
            false => (is_on(settings, "enable-ipv6", false), "enable-ipv6-masquerade"),
        };
        family && is_on(settings, masquerade, true) && !spared.iter().any(|spared| spared.contains(*network))
    };
    (remote.iter().filter(is_masqueraded).copied().collect(), unread)
}

/// Returns the networks that the agent spares, and what of its list cannot be read.
pub(super) fn spared(list: Option<&Data>) -> (Vec<IpNet>, Option<String>) {
    let Some(text) = list_of(list) else {
        return (DEFAULT_LIST.iter().filter_map(|text| text.parse().ok()).collect(), None);
    };
    match List::parse(text) {
        Ok(list) => (list.networks, None),
        Err(why) => {
            let text = format!("the entry `{ENTRY}` of ConfigMap {NAMESPACE}/{LIST} cannot be read: {why}");
            (Vec::new(), Some(text))
        }
    }
}

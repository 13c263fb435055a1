//! Command lines and documents in which somebody has written CIDRs.

use ipnet::IpNet;
use serde_json::Value;

use super::Observed;

/// Most CIDRs that one source may name.
const MOST: usize = 64;

/// The CIDRs of a list such as `10.244.0.0/16,fd00::/48`, host bits cleared. Words that are no CIDR are left out.
pub(super) fn cidrs(list: &str) -> Vec<IpNet> {
    let words = list.split([',', ' ', ';']).filter_map(|word| word.trim().parse::<IpNet>().ok());
    let mut found: Vec<IpNet> = Vec::new();
    for net in words.map(|net| net.trunc()).take(MOST) {
        if !found.contains(&net) {
            found.push(net);
        }
    }
    found
}

/// The value of a flag on the command lines of a pod: `--flag=value`, `--flag value`, also inside `sh -c "…"`.
pub(super) fn flag<'a>(pod: &'a Value, name: &str) -> Option<&'a str> {
    containers(pod).flat_map(words).skip_while(|word| !is_flag(word, name)).find_map(|word| {
        match word.strip_prefix(name) {
            Some("") => None,
            Some(rest) if rest.starts_with('=') => Some(rest[1..].trim_matches(['"', '\''])),
            // The word after a flag that stood alone.
            _ => Some(word),
        }
    })
}

fn is_flag(word: &str, name: &str) -> bool {
    word.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
}

/// The value of a variable in the environment of a pod's containers.
pub(super) fn variable<'a>(pod: &'a Value, name: &str) -> Option<&'a str> {
    containers(pod)
        .filter_map(|container| container["env"].as_array())
        .flatten()
        .find(|variable| variable["name"].as_str() == Some(name))
        .and_then(|variable| variable["value"].as_str())
        .filter(|value| !value.is_empty())
}

/// The containers of a pod, or of something with a pod template.
fn containers(object: &Value) -> impl Iterator<Item = &Value> {
    let template = &object["spec"]["template"]["spec"]["containers"];
    let own = &object["spec"]["containers"];
    [own, template].into_iter().filter_map(Value::as_array).flatten()
}

fn words(container: &Value) -> impl Iterator<Item = &str> {
    ["command", "args"]
        .into_iter()
        .filter_map(|field| container[field].as_array())
        .flatten()
        .filter_map(Value::as_str)
        .flat_map(str::split_whitespace)
}

/// A ConfigMap's entry, as text.
pub(super) fn entry<'a>(map: &'a Value, key: &str) -> Option<&'a str> {
    map["data"][key].as_str().filter(|text| !text.is_empty())
}

/// A ConfigMap's entry that is a YAML (or JSON) document.
pub(super) fn document(map: &Value, key: &str) -> Option<Value> {
    serde_saphyr::from_str(entry(map, key)?).ok()
}

/// Upstream's name for flannel.
pub(super) const FLANNEL: &str = "flannel";
/// Upstream's name for canal.
pub(super) const CANAL: &str = "canal-flannel";

/// What kubeadm's source is called.
pub(super) const KUBEADM: &str = "kubeadm's ConfigMap";
/// What the source in kube-proxy's settings is called.
pub(super) const KUBE_PROXY: &str = "kube-proxy's ConfigMap";

/// Cilium's ConfigMap.
pub(super) const CILIUM_CONFIG: &str = "kube-system/cilium-config";
/// The entry of Cilium's ConfigMap that names the kind of plugin in front of it.
pub(super) const CHAINING_MODE: &str = "cni-chaining-mode";
/// Cilium's mode in which the networks of pods stand in CiliumPodIPPools.
pub(super) const MULTI_POOL: &str = "multi-pool";

/// Cilium's modes in which the networks of pods stand in its ConfigMap begin so.
pub(super) const CLUSTER_POOL: &str = "cluster-pool";

/// Returns how Cilium gives addresses to pods.
pub(super) fn ipam(observed: &Observed) -> Option<&str> {
    entry(observed.config_maps.get(CILIUM_CONFIG)?, "ipam")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(command: &[&str], args: &[&str]) -> Value {
        json!({"spec": {"containers": [{"command": command, "args": args}]}})
    }

    #[test]
    fn flags_are_found_however_they_are_written() {
        let name = "--cluster-cidr";
        for (command, args) in [
            (vec!["kcm", "--cluster-cidr=10.1.0.0/16"], vec![]),
            (vec!["kcm"], vec!["--v=2", "--cluster-cidr", "10.1.0.0/16", "--x"]),
            (vec!["sh", "-c", "exec kcm --v=2 --cluster-cidr=\"10.1.0.0/16\" >log"], vec![]),
        ] {
            assert_eq!(flag(&pod(&command, &args), name), Some("10.1.0.0/16"), "{command:?} {args:?}");
        }
        assert_eq!(flag(&pod(&["kcm", "--cluster-cidr-mask=24"], &[]), name), None);
        assert_eq!(flag(&pod(&["kcm", "--cluster-cidr"], &[]), name), None);
    }

    #[test]
    fn variables_are_those_of_any_container() {
        let set = json!({"spec": {"template": {"spec": {"containers": [
            {"name": "a"}, {"env": [{"name": "POD_SUBNET", "value": "10.1.0.0/16"}]}]}}}});
        assert_eq!(variable(&set, "POD_SUBNET"), Some("10.1.0.0/16"));
        assert_eq!(variable(&set, "OTHER"), None);
    }

    #[test]
    fn lists_keep_what_is_a_cidr_once() {
        let found = cidrs("10.1.2.3/16, fd00::/48;10.1.0.0/16,x");
        assert_eq!(found, ["10.1.0.0/16".parse().unwrap(), "fd00::/48".parse().unwrap()]);
    }
}

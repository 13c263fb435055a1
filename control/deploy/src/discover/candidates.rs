//! What each source says, in the order of how much it is worth, and what follows from all of them.

use ipnet::IpNet;
use serde_json::Value;
use trieste_control::live_networks::Source;

use super::flags::{KUBE_PROXY, KUBEADM, cidrs, document, flag};
use super::{Observed, Subnets, tracked};

/// CIDRs that one source names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) source: String,
    pub(super) cidrs: Vec<IpNet>,
    /// Whether this is a part only: what nodes have today, or one of several ranges.
    pub(super) is_part: bool,
}

impl Candidate {
    /// What a source says; `None` if that is nothing.
    pub(super) fn of(source: &str, cidrs: Vec<IpNet>) -> Option<Self> {
        (!cidrs.is_empty()).then(|| Self { source: source.to_owned(), cidrs, is_part: false })
    }

    fn part(self) -> Self {
        Self { is_part: true, ..self }
    }
}

/// Returns what objects say that gateways can follow, if that is anything.
pub(super) fn of_source(observed: &Observed, source: Source, called: &str) -> Option<Candidate> {
    Candidate::of(called, tracked::networks(observed, source).into_iter().collect())
}

/// Sources of pod CIDRs that do not depend on the plugin, best first; nodes last.
pub(super) fn of_pods(observed: &Observed) -> Vec<Candidate> {
    let list = |source: &str, list: Option<&str>| Candidate::of(source, cidrs(list.unwrap_or_default()));
    let proxy = observed.config_maps.get("kube-system/kube-proxy");
    let proxy = proxy.and_then(|map| document(map, "config.conf"));
    [
        list(
            "kube-controller-manager's --cluster-cidr",
            of_pod(observed, "kube-controller-manager", "--cluster-cidr"),
        ),
        list("kube-proxy's --cluster-cidr", of_pod(observed, "kube-proxy", "--cluster-cidr")),
        list(KUBE_PROXY, proxy.as_ref().and_then(|conf| conf["clusterCIDR"].as_str())),
        list(KUBEADM, kubeadm(observed, "podSubnet").as_deref()),
        of_nodes(observed),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Sources of service CIDRs that do not depend on the plugin, best first.
pub(super) fn of_services(observed: &Observed) -> Vec<Candidate> {
    let list = |source: &str, list: Option<&str>| Candidate::of(source, cidrs(list.unwrap_or_default()));
    let range = "--service-cluster-ip-range";
    [
        of_service_cidrs(observed),
        list("kube-apiserver's --service-cluster-ip-range", of_pod(observed, "kube-apiserver", range))
            .map(Candidate::part),
        list(
            "kube-controller-manager's --service-cluster-ip-range",
            of_pod(observed, "kube-controller-manager", range),
        )
        .map(Candidate::part),
        list(KUBEADM, kubeadm(observed, "serviceSubnet").as_deref()).map(Candidate::part),
        list("the API server's refusal of another address", observed.refusal.as_deref().and_then(refused))
            .map(Candidate::part),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The first source counts; a family that it does not have comes from the first that has it.
pub(super) fn choose(candidates: &[Candidate]) -> Option<Subnets> {
    let first = candidates.first()?;
    let mut chosen = Subnets { cidrs: first.cidrs.clone(), source: first.source.clone() };
    for candidate in &candidates[1..] {
        let has = |net: &IpNet| chosen.cidrs.iter().any(|mine| is_v4(mine) == is_v4(net));
        let other: Vec<IpNet> = candidate.cidrs.iter().filter(|net| !has(net)).copied().collect();
        if !other.is_empty() {
            chosen.cidrs.extend(other);
            chosen.source = format!("{} and {}", chosen.source, candidate.source);
        }
    }
    Some(chosen)
}

/// What other sources say that is not covered by what was chosen.
pub(super) fn contradictions(what: &str, chosen: &Subnets, candidates: &[Candidate]) -> Vec<String> {
    let within =
        |nets: &[IpNet], of: &[IpNet]| nets.iter().all(|net| of.iter().any(|wide| wide.contains(net)));
    let disagrees = |candidate: &&Candidate| {
        let part_fits = candidate.is_part && within(&candidate.cidrs, &chosen.cidrs);
        // A family that a source does not speak of is no contradiction.
        let mine: Vec<IpNet> = chosen.cidrs.iter().copied().filter(|net| speaks_of(candidate, net)).collect();
        let same = within(&candidate.cidrs, &mine) && within(&mine, &candidate.cidrs);
        !(part_fits || same)
    };
    let shown = |nets: &[IpNet]| nets.iter().map(IpNet::to_string).collect::<Vec<_>>().join(", ");
    candidates
        .iter()
        .filter(disagrees)
        .map(|candidate| {
            format!(
                "{what} are {} by {}, but {} by {}",
                shown(&chosen.cidrs),
                chosen.source,
                shown(&candidate.cidrs),
                candidate.source
            )
        })
        .collect()
}

fn speaks_of(candidate: &Candidate, net: &IpNet) -> bool {
    candidate.cidrs.iter().any(|other| is_v4(other) == is_v4(net))
}

pub(super) fn is_v4(net: &IpNet) -> bool {
    matches!(net, IpNet::V4(_))
}

/// A flag of a component of the control plane, by its label or its name.
fn of_pod<'a>(observed: &'a Observed, component: &str, name: &str) -> Option<&'a str> {
    let is_it = |pod: &&Value| {
        let labels = &pod["metadata"]["labels"];
        let named = pod["metadata"]["name"].as_str().is_some_and(|name| name.starts_with(component));
        ["component", "k8s-app"].iter().any(|key| labels[*key] == component) || named
    };
    observed.pods.iter().filter(is_it).find_map(|pod| flag(pod, name))
}

fn kubeadm(observed: &Observed, field: &str) -> Option<String> {
    let map = observed.config_maps.get("kube-system/kubeadm-config")?;
    let configuration = document(map, "ClusterConfiguration")?;
    configuration["networking"][field].as_str().map(str::to_owned)
}

fn of_service_cidrs(observed: &Observed) -> Option<Candidate> {
    of_source(observed, Source::ServiceCidrs, "the ServiceCIDR objects")
}

/// What the nodes' parts add up to: neighbours become one.
fn of_nodes(observed: &Observed) -> Option<Candidate> {
    let own = |node: &Value| -> Vec<IpNet> {
        let list = node["spec"]["podCIDRs"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let list: Vec<&str> = list.collect();
        match list.is_empty() {
            true => cidrs(node["spec"]["podCIDR"].as_str().unwrap_or_default()),
            false => cidrs(&list.join(",")),
        }
    };
    let parts: Vec<IpNet> = observed.nodes.iter().flat_map(own).collect();
    Candidate::of("the nodes' podCIDRs", IpNet::aggregate(&parts)).map(Candidate::part)
}

/// The range in a refusal such as `… The range of valid IPs is 10.96.0.0/12`.
fn refused(text: &str) -> Option<&str> {
    let (_, range) = text.split_once("valid IPs is ")?;
    range.split(|c: char| c.is_whitespace() || c == '"').next()
}

//! From what was observed to what the networks are.

use ipnet::IpNet;
use trieste_control::requirements::is_ovn_kubernetes;

use super::candidates::{Candidate, choose, contradictions, is_v4, of_pods, of_services};
use super::{Given, Network, Observed, Subnets, ovn, plugin, spiderpool, tracked};

/// Says what the networks are, and what contradicts that.
pub fn infer(observed: &Observed, given: &Given) -> Network {
    let found = plugin::find(observed);
    let ovn = is_ovn_kubernetes(&found.plugin.name).then(|| ovn::layout(observed));
    let mut warnings: Vec<String> = found.warning.into_iter().collect();
    warnings.extend(ovn.as_ref().and_then(ovn::Ovn::warning));
    let mut pods = found.pods;
    pods.extend(of_pods(observed));
    let mut services = found.services;
    services.extend(of_services(observed));
    let chosen = [&pods, &services].map(|all| choose(all).unwrap_or_default().source);
    let [pods_by, services_by] = given.is_settled.map(|is_settled| is_settled.then_some(EARLIER));
    let said = [(given.pods.as_slice(), pods_by), (given.services.as_slice(), services_by)];
    let pods = settle("pod CIDRs", "--clustercidr", said[0], &pods, &mut warnings);
    let services = settle("service CIDRs", "--servicecidr", said[1], &services, &mut warnings);
    let spiderpool = spiderpool::find(observed);
    let followed = tracked::find(observed, &found.plugin.name, &chosen);
    let present = tracked::present(observed);
    let plugin = found.plugin;
    Network { plugin, ovn, spiderpool, followed, present, pods, services, extra: Vec::new(), warnings }
}

/// Who has said what is not said anew.
const EARLIER: &str = "the earlier join";

/// What the user says, else what the sources say; whoever says something else is a warning.
fn settle(
    what: &str,
    flag: &str,
    (given, by): (&[IpNet], Option<&str>),
    candidates: &[Candidate],
    warnings: &mut Vec<String>,
) -> Subnets {
    let chosen = if given.is_empty() {
        choose(candidates)
    } else {
        Some(Subnets { cidrs: given.to_vec(), source: by.unwrap_or(flag).to_owned() })
    };
    let Some(chosen) = chosen else { return Subnets::default() };
    warnings.extend(contradictions(what, &chosen, candidates));
    if given.is_empty() && what.starts_with("pod") {
        let parts = ["IPv4", "IPv6"].into_iter().filter(|family| is_part_only(family, &chosen, candidates));
        warnings.extend(parts.map(|family| {
            format!(
                "{family} {what} are only known from what the nodes have today; new nodes may get others: {flag} says \
                 the whole"
            )
        }));
    }
    chosen
}

/// Whether no source knows all CIDRs of a family, where there are some.
fn is_part_only(family: &str, chosen: &Subnets, candidates: &[Candidate]) -> bool {
    let is_of = |net: &IpNet| is_v4(net) == (family == "IPv4");
    let knows = |candidate: &&Candidate| candidate.cidrs.iter().any(is_of);
    chosen.cidrs.iter().any(is_of) && candidates.iter().filter(knows).all(|candidate| candidate.is_part)
}

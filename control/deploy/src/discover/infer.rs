//! From what was observed to what the networks are.

use ipnet::IpNet;

use super::candidates::{Candidate, choose, contradictions, of_pods, of_services};
use super::{Given, Network, Observed, Subnets, plugin};

/// Says what the networks are, and what contradicts that.
pub fn infer(observed: &Observed, given: &Given) -> Network {
    let found = plugin::find(observed);
    let mut warnings: Vec<String> = found.warning.into_iter().collect();
    let mut pods = found.pods;
    pods.extend(of_pods(observed));
    let mut services = found.services;
    services.extend(of_services(observed));
    let pods = settle("pod CIDRs", "--clustercidr", &given.pods, &pods, &mut warnings);
    let services = settle("service CIDRs", "--servicecidr", &given.services, &services, &mut warnings);
    Network { plugin: found.plugin, pods, services, warnings }
}

/// What the user says, else what the sources say; whoever says something else is a warning.
fn settle(
    what: &str,
    flag: &str,
    given: &[IpNet],
    candidates: &[Candidate],
    warnings: &mut Vec<String>,
) -> Subnets {
    let chosen = if given.is_empty() {
        choose(candidates)
    } else {
        Some(Subnets { cidrs: given.to_vec(), source: flag.to_owned() })
    };
    let Some(chosen) = chosen else { return Subnets::default() };
    warnings.extend(contradictions(what, &chosen, candidates));
    let only_parts = given.is_empty() && candidates.iter().all(|candidate| candidate.is_part);
    if only_parts && what.starts_with("pod") {
        warnings.push(format!(
            "{what} are only known from what the nodes have today; new nodes may get others: {flag} says the whole"
        ));
    }
    chosen
}

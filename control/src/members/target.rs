//! Which gateways of remote clusters there are cables to. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::{Member, Members};
use crate::api::Endpoint;

/// Most gateways of one cluster that there are cables to. Ours: a cluster has a few gateways; a broken peer must not
/// cost a cable for each object that it writes.
pub const MOST_PATHS: usize = 8;

/// A remote gateway that there are cables to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its Endpoint: the further one where there is one, else the sole one. Shared with the list that it is from.
    pub endpoint: Arc<Endpoint>,
    /// Whether all gateways of our cluster have a cable to it. If not, only the leader has: its cluster knows one
    /// gateway of ours.
    pub is_for_all: bool,
    /// Since when its cluster has had an Endpoint of any kind: which of two clusters was there first must not turn on
    /// which of its gateways are there today.
    pub since: Option<Timestamp>,
}

/// Returns the remote gateways that there are cables to: those of the sole Endpoints and of the members. `soles` are the
/// Endpoints of the own store, of which those of `cluster_id` are left out.
///
/// A cluster whose sole Endpoint does not say that it knows several gateways has gone back to upstream: its further
/// Endpoints are leftovers. One without a sole Endpoint is changing its leader.
pub fn targets(cluster_id: &str, soles: &[Arc<Endpoint>], members: &Members) -> Vec<Target> {
    let mut targets = Vec::new();
    let mut of_cluster: BTreeMap<&str, Vec<&Member>> = BTreeMap::new();
    let is_remote = |member: &&Member| members.is_multi && member.cluster_id() != cluster_id;
    for member in members.remote.iter().filter(is_remote) {
        of_cluster.entry(member.cluster_id()).or_default().push(member);
    }
    let mut ages: BTreeMap<&str, Option<Timestamp>> = BTreeMap::new();
    let further = members.remote.iter().filter(is_remote).map(|member| &member.endpoint);
    for endpoint in soles.iter().chain(further) {
        let created = endpoint.metadata.creation_timestamp;
        let age = ages.entry(endpoint.spec.cluster_id.as_str()).or_insert(created);
        *age = (*age).min(created);
    }
    let since = |endpoint: &Endpoint| ages.get(endpoint.spec.cluster_id.as_str()).copied().flatten();
    let foreign: Vec<&Arc<Endpoint>> =
        soles.iter().filter(|sole| sole.spec.cluster_id != cluster_id).collect();
    for sole in foreign.iter().filter(|sole| !sole.spec.supports_paths()) {
        of_cluster.remove(sole.spec.cluster_id.as_str());
    }
    for members in of_cluster.values_mut() {
        members.truncate(MOST_PATHS);
    }
    let cables: BTreeSet<(&str, &str)> = of_cluster
        .iter()
        .flat_map(|(cluster, members)| members.iter().map(|member| (*cluster, member.cable_name())))
        .collect();
    for sole in foreign {
        let key = (sole.spec.cluster_id.as_str(), sole.spec.cable_name.as_str());
        if !cables.contains(&key) {
            let is_for_all = members.is_multi && sole.spec.supports_paths();
            targets.push(Target { endpoint: Arc::clone(sole), is_for_all, since: since(sole) });
        }
    }
    let members = of_cluster.into_values().flatten();
    targets.extend(members.map(|member| Target {
        endpoint: Arc::clone(&member.endpoint),
        is_for_all: true,
        since: since(&member.endpoint),
    }));
    targets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::EndpointSpec;

    fn sole(cluster: &str, gateway: &str, supports_paths: bool) -> Arc<Endpoint> {
        let mut spec = EndpointSpec {
            cluster_id: cluster.to_owned(),
            cable_name: format!("submariner-cable-{cluster}-{gateway}"),
            hostname: gateway.to_owned(),
            ..EndpointSpec::default()
        };
        spec.set_supports_paths(supports_paths);
        Arc::new(Endpoint::new("ns", spec).unwrap())
    }

    fn members(of: &[(&str, &str)]) -> Members {
        let remote = of.iter().map(|(cluster, gateway)| Member { endpoint: sole(cluster, gateway, true) });
        Members { is_multi: true, remote: remote.collect(), ..Members::default() }
    }

    fn named(targets: &[Target]) -> Vec<(String, bool)> {
        let name = |target: &Target| {
            let spec = &target.endpoint.spec;
            (format!("{}/{}", spec.cluster_id, spec.hostname), target.is_for_all)
        };
        targets.iter().map(name).collect()
    }

    #[test]
    fn a_cluster_that_knows_several_gateways_is_reached_by_all_of_them_and_upstreams_by_its_one() {
        let soles = [sole("a", "own", true), sole("b", "gw1", true), sole("c", "gw1", false)];
        let known = members(&[("b", "gw1"), ("b", "gw2")]);
        assert_eq!(
            named(&targets("a", &soles, &known)),
            [("c/gw1".to_owned(), false), ("b/gw1".to_owned(), true), ("b/gw2".to_owned(), true)]
        );
    }

    #[test]
    fn further_endpoints_of_a_cluster_that_has_gone_back_to_upstream_are_leftovers() {
        let known = members(&[("b", "gw1"), ("b", "gw2")]);
        let back = [sole("b", "gw1", false)];
        assert_eq!(named(&targets("a", &back, &known)), [("b/gw1".to_owned(), false)]);
    }

    #[test]
    fn a_cluster_without_sole_endpoint_is_reached_by_its_members() {
        let known = members(&[("b", "gw1"), ("b", "gw2")]);
        assert_eq!(named(&targets("a", &[], &known)).len(), 2);
    }

    #[test]
    fn a_sole_endpoint_that_is_no_member_is_a_path_too_and_own_ones_never_are() {
        let known = members(&[("a", "gw2"), ("b", "gw2")]);
        let soles = [sole("b", "gw1", true)];
        assert_eq!(
            named(&targets("a", &soles, &known)),
            [("b/gw1".to_owned(), true), ("b/gw2".to_owned(), true)]
        );
    }

    #[test]
    fn where_one_of_ours_is_active_it_alone_reaches_others() {
        let known = Members { is_multi: false, ..members(&[("b", "gw1"), ("b", "gw2")]) };
        assert_eq!(named(&targets("a", &[sole("b", "gw1", true)], &known)), [("b/gw1".to_owned(), false)]);
    }

    #[test]
    fn one_cluster_is_worth_eight_cables_and_no_more() {
        let names: Vec<String> = (0..20).map(|number| format!("gw{number:02}")).collect();
        let all: Vec<(&str, &str)> = names.iter().map(|name| ("b", name.as_str())).collect();
        assert_eq!(targets("a", &[], &members(&all)).len(), MOST_PATHS);
    }

    #[test]
    fn a_cluster_is_as_old_as_its_oldest_endpoint_of_any_kind() {
        let at = |second| Timestamp::from_second(second).ok();
        let mut soles = [sole("b", "gw1", true), sole("c", "gw1", false)];
        Arc::make_mut(&mut soles[0]).metadata.creation_timestamp = at(100);
        Arc::make_mut(&mut soles[1]).metadata.creation_timestamp = at(200);
        let mut known = members(&[("b", "gw1"), ("b", "gw2")]);
        for member in Arc::make_mut(&mut known.remote) {
            Arc::make_mut(&mut member.endpoint).metadata.creation_timestamp = at(300);
        }
        let ages = |soles: &[Arc<Endpoint>]| {
            let targets = targets("a", soles, &known);
            targets.iter().map(|target| target.since).collect::<Vec<_>>()
        };
        assert_eq!(ages(&soles), [at(200), at(100), at(100)]);
        // Its leader changes: the new one's Endpoint is younger than those that its gateways have of themselves.
        Arc::make_mut(&mut soles[0]).metadata.creation_timestamp = at(400);
        assert_eq!(ages(&soles), [at(200), at(300), at(300)]);
    }
}

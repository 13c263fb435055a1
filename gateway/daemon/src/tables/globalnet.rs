//! Rules for translation, compiled from Globalnet's state.
//!
//! The rules are a function of the state alone, so that every gateway of a cluster comes to the same ones. What the
//! objects ask for and cannot be (an address that two want) is left out and named; everything else goes on.

use std::net::Ipv4Addr;
use std::sync::Arc;

use trieste_control::admin::RefusedRule;
use trieste_control::globalnet::{EgressKind, GlobalnetState, IngressKind};
use trieste_nat::{OwnerKey, Record, Rules, RulesBuilder};
use trieste_packet::WorkerId;

/// The rules of a gateway's translation.
#[derive(Debug, Clone)]
pub struct Translation {
    /// The networks whose packets are translated.
    pub inside: Vec<ipnet::Ipv4Net>,
    /// The rules.
    pub rules: Arc<Rules>,
    /// This gateway's own global IP, which peers ping.
    pub gateway: Option<Ipv4Addr>,
    /// Rules of objects that cannot be applied.
    pub refused: Vec<RefusedRule>,
}

/// Assignment of sessions to workers.
#[derive(Debug, Clone, Copy)]
pub struct Owners {
    /// The key that is the same on all gateways of the cluster.
    pub key: OwnerKey,
    /// How many workers there are.
    pub workers: u16,
}

/// This gateway among those of the state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Own {
    /// Its Gateway object's name.
    pub name: String,
    /// Its address inside the cluster, where pings to its global IP go.
    pub inside: Option<Ipv4Addr>,
}

/// Makes rules of a state; `None` without a global CIDR. `epoch` is another number for every state.
#[must_use]
pub fn compile(epoch: u64, state: &GlobalnetState, own: &Own, owners: Owners) -> Option<Translation> {
    state.global_cidr?;
    let buckets = RulesBuilder::owners_among(owners.workers);
    let mut builder = RulesBuilder::new(epoch, owners.key, buckets);
    let mut refused = Vec::new();
    let mut refuse = |name: &str, reason: String| refused.push(RefusedRule { name: name.to_owned(), reason });
    // A target of connections keeps its address; a mere source has others.
    for pair in &state.ingress {
        if let Err(error) = builder.ingress(ingress(pair.kind), &pair.name, pair.global, pair.inside) {
            refuse(&pair.name, error.to_string());
        }
    }
    let gateway = state.gateway(&own.name);
    if let (Some(global), Some(inside)) = (gateway, own.inside)
        && let Err(error) = builder.ingress(trieste_nat::IngressKind::Gateway, &own.name, global, inside)
    {
        refuse(&own.name, error.to_string());
    }
    for rule in &state.egress {
        // That of a headless target comes with what leads to it.
        let Some(kind) = egress(rule.kind) else { continue };
        match builder.egress(kind, &rule.name, &rule.addresses) {
            Ok(id) => rule.members.iter().for_each(|&member| builder.member(id, member)),
            Err(error) => refuse(&rule.name, error.to_string()),
        }
    }
    let rules = Arc::new(builder.build());
    Some(Translation { inside: state.inside.clone(), rules, gateway, refused })
}

/// Returns the worker that owns a session.
#[must_use]
pub fn owner_of(rules: &Rules, session: &Record) -> WorkerId {
    rules.owner(rules.bucket_of(session))
}

fn ingress(kind: IngressKind) -> trieste_nat::IngressKind {
    match kind {
        IngressKind::Service => trieste_nat::IngressKind::Service,
        IngressKind::HeadlessPod => trieste_nat::IngressKind::HeadlessPod,
        IngressKind::HeadlessEndpoints => trieste_nat::IngressKind::HeadlessEndpoints,
    }
}

fn egress(kind: EgressKind) -> Option<trieste_nat::EgressKind> {
    match kind {
        EgressKind::Pods => Some(trieste_nat::EgressKind::Pods),
        EgressKind::Namespace => Some(trieste_nat::EgressKind::Namespace),
        EgressKind::Cluster => Some(trieste_nat::EgressKind::Cluster),
        EgressKind::HeadlessPod | EgressKind::HeadlessEndpoints => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trieste_control::globalnet::{EgressRule, IngressPair};

    const OWNERS: Owners = Owners { key: OwnerKey([7; 16]), workers: 2 };

    fn address(text: &str) -> Ipv4Addr {
        text.parse().unwrap()
    }

    fn egress_rule(kind: EgressKind, name: &str, addresses: &[&str], members: &[&str]) -> EgressRule {
        EgressRule {
            kind,
            name: name.to_owned(),
            addresses: addresses.iter().map(|text| address(text)).collect(),
            members: members.iter().map(|text| text.parse().unwrap()).collect(),
        }
    }

    fn pair(kind: IngressKind, name: &str, global: &str, inside: &str) -> IngressPair {
        IngressPair { kind, name: name.to_owned(), global: address(global), inside: address(inside) }
    }

    fn state() -> GlobalnetState {
        GlobalnetState {
            global_cidr: Some("242.1.0.0/16".parse().unwrap()),
            inside: vec!["10.1.0.0/16".parse().unwrap(), "100.1.0.0/16".parse().unwrap()],
            egress: vec![
                egress_rule(EgressKind::Pods, "web/some", &["242.1.0.12"], &["10.1.0.7/32"]),
                egress_rule(EgressKind::HeadlessPod, "web/pod-db-0", &["242.1.255.252"], &["10.1.0.8/32"]),
                egress_rule(
                    EgressKind::Namespace,
                    "web/all",
                    &["242.1.0.13"],
                    &["10.1.0.7/32", "10.1.0.9/32"],
                ),
                egress_rule(
                    EgressKind::Cluster,
                    "cluster-egress.submariner.io",
                    &["242.1.0.1", "242.1.0.2"],
                    &["10.1.0.0/16", "100.1.0.0/16"],
                ),
            ],
            ingress: vec![
                pair(IngressKind::Service, "web/nginx", "242.1.255.253", "100.1.0.80"),
                pair(IngressKind::HeadlessPod, "web/pod-db-0", "242.1.255.252", "10.1.0.8"),
            ],
            gateways: vec![("gw1".to_owned(), address("242.1.255.254"))],
            ..GlobalnetState::default()
        }
    }

    fn own() -> Own {
        Own { name: "gw1".to_owned(), inside: Some(address("10.1.1.1")) }
    }

    #[test]
    fn a_source_leaves_by_the_first_rule_of_upstreams_order() {
        let translation = compile(1, &state(), &own(), OWNERS).unwrap();
        let rules = &translation.rules;
        assert_eq!((translation.refused.len(), translation.gateway), (0, Some(address("242.1.255.254"))));
        let leaves_by =
            |inside: &str| rules.egress_of(address(inside)).map(|id| rules.rule(id).name.as_str());
        assert_eq!(leaves_by("10.1.0.7"), Some("web/some"));
        assert_eq!(leaves_by("10.1.0.8"), Some("web/pod-db-0"));
        assert_eq!(leaves_by("10.1.0.9"), Some("web/all"));
        assert_eq!(leaves_by("10.1.77.1"), Some("cluster-egress.submariner.io"));
        assert_eq!(leaves_by("192.0.2.1"), None);
        assert_eq!(rules.holder_of(address("242.1.255.254")), Some(("gateway", "gw1")));
        assert_eq!(rules.holder_of(address("242.1.255.253")), Some(("service", "web/nginx")));
    }

    #[test]
    fn an_address_that_two_want_stays_with_whom_others_ask_there_and_the_rest_goes_on() {
        let mut state = state();
        state.egress[0].addresses = vec![address("242.1.255.253")];
        let translation = compile(1, &state, &own(), OWNERS).unwrap();
        assert_eq!(translation.refused.len(), 1);
        let RefusedRule { name, reason } = &translation.refused[0];
        assert!(
            name == "web/some" && reason.contains("242.1.255.253") && reason.contains("web/nginx"),
            "{reason}"
        );
        let rules = &translation.rules;
        let id = rules.egress_of(address("10.1.0.7")).unwrap();
        assert_eq!(rules.rule(id).name, "web/all");
    }

    #[test]
    fn without_a_global_cidr_nothing_is_translated() {
        let state = GlobalnetState { global_cidr: None, ..state() };
        assert!(compile(1, &state, &own(), OWNERS).is_none());
    }

    #[test]
    fn another_gateways_global_ip_is_not_ours() {
        let other = Own { name: "gw2".to_owned(), ..own() };
        let translation = compile(1, &state(), &other, OWNERS).unwrap();
        assert_eq!(translation.gateway, None);
        assert_eq!(translation.rules.holder_of(address("242.1.255.254")), None);
    }
}

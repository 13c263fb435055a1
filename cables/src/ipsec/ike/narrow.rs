//! Which packets a child SA is for: the peer's selectors and ours (RFC 7296 section 2.9).

use std::net::IpAddr;

use crate::ipsec::{Selector, Selectors};

/// What both lists stand for, without what is part of something else in it.
pub(super) fn intersect(ours: &[Selector], theirs: &[Selector]) -> Vec<Selector> {
    let mut found: Vec<Selector> = Vec::new();
    for theirs in theirs {
        for both in ours.iter().filter_map(|ours| ours.intersection(theirs)) {
            if found.iter().any(|wider| both.is_within(wider)) {
                continue;
            }
            found.retain(|narrower| !narrower.is_within(&both));
            found.push(both);
        }
    }
    found
}

/// Of what the peer proposes (in our view), what the wanted child SAs are for: none if nothing, or if one side is empty.
///
/// Several of our pairs of subnets may go into one child SA, if the peer has it so: then it is for all addresses of these.
pub(super) fn narrow(wanted: &[Selectors], proposed: &Selectors) -> Option<Selectors> {
    let all = |side: fn(&Selectors) -> &Vec<Selector>| -> Vec<Selector> {
        wanted.iter().flat_map(|wanted| side(wanted).iter().copied()).collect()
    };
    let local = intersect(&all(|wanted| &wanted.local), &proposed.local);
    let remote = intersect(&all(|wanted| &wanted.remote), &proposed.remote);
    let both = Selectors { local, remote };
    let is_possible = !both.local.is_empty() && !both.remote.is_empty() && has_common_family(&both);
    is_possible.then_some(both)
}

/// Whether all of `answer` is part of what was proposed, and neither side is empty: a responder may narrow, not widen.
pub(super) fn is_narrowed(proposed: &Selectors, answer: &Selectors) -> bool {
    !answer.local.is_empty() && !answer.remote.is_empty() && proposed.include(answer)
}

fn has_common_family(selectors: &Selectors) -> bool {
    let has = |side: &[Selector], is_ipv4| side.iter().any(|selector| family(selector.first) == is_ipv4);
    [true, false].into_iter().any(|family| has(&selectors.local, family) && has(&selectors.remote, family))
}

fn family(address: IpAddr) -> bool {
    address.is_ipv4()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nets(texts: &[&str]) -> Vec<Selector> {
        texts.iter().map(|text| Selector::subnet(text.parse().unwrap())).collect()
    }

    fn pair(local: &[&str], remote: &[&str]) -> Selectors {
        Selectors { local: nets(local), remote: nets(remote) }
    }

    #[test]
    fn the_packets_own_selector_goes_into_the_subnet_behind_it() {
        let wanted = [pair(&["10.1.0.0/16"], &["10.2.0.0/16"])];
        let proposed = pair(&["10.1.3.4/32", "10.1.0.0/16"], &["10.2.3.4/32", "10.2.0.0/16"]);
        assert_eq!(narrow(&wanted, &proposed), Some(wanted[0].clone()));
    }

    #[test]
    fn wider_proposals_are_narrowed_and_foreign_ones_refused() {
        let wanted = [pair(&["10.1.0.0/16"], &["10.2.0.0/16"])];
        let all = pair(&["0.0.0.0/0"], &["0.0.0.0/0"]);
        assert_eq!(narrow(&wanted, &all), Some(wanted[0].clone()));
        let inner = pair(&["10.1.2.0/24"], &["10.2.0.0/16"]);
        assert_eq!(narrow(&wanted, &inner), Some(inner.clone()));
        assert_eq!(narrow(&wanted, &pair(&["10.1.0.0/16"], &["10.3.0.0/16"])), None);
        assert_eq!(narrow(&wanted, &pair(&["fd00::/8"], &["fd00::/8"])), None);
    }

    #[test]
    fn several_pairs_may_be_one_child_sa_if_the_peer_has_it_so() {
        let wanted = [pair(&["10.1.0.0/16"], &["10.2.0.0/16"]), pair(&["10.1.0.0/16"], &["10.12.0.0/16"])];
        let proposed = pair(&["10.1.0.0/16"], &["10.2.0.0/16", "10.12.0.0/16"]);
        assert_eq!(narrow(&wanted, &proposed), Some(proposed.clone()));
        assert_eq!(narrow(&wanted, &wanted[1]), Some(wanted[1].clone()));
    }

    #[test]
    fn an_answer_may_be_narrower_than_what_was_proposed_and_never_wider() {
        let proposed = pair(&["10.1.0.0/16"], &["10.2.0.0/16"]);
        assert!(is_narrowed(&proposed, &proposed));
        assert!(is_narrowed(&proposed, &pair(&["10.1.1.0/24"], &["10.2.0.0/16"])));
        assert!(!is_narrowed(&proposed, &pair(&["10.0.0.0/8"], &["10.2.0.0/16"])));
        assert!(!is_narrowed(&proposed, &pair(&[], &["10.2.0.0/16"])));
    }
}

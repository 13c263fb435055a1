//! Whether a cluster may have the ID that it asks for.

use super::Finding;

/// Of which set this cluster is a member already, by its Submariner object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// Its ID there.
    pub cluster_id: String,
    /// The broker, `HOST:PORT`.
    pub broker: String,
}

/// What the broker has under an ID.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Registration {
    /// Whether there is a Cluster object.
    pub has_cluster: bool,
    /// The cluster for which the account was made, by the UID of its namespace `kube-system`; upstream writes none.
    pub made_for: Option<String>,
}

/// Looks at whether `id` is free, or is this cluster's own from an earlier join: by the UID that the account on the
/// broker remembers or, where upstream has made it, by this cluster's Submariner object, as upstream does.
pub fn identity(
    id: &str,
    own_uid: &str,
    registration: &Registration,
    membership: Option<&Membership>,
    broker: &str,
) -> Vec<Finding> {
    if let Some(member) = membership {
        if member.cluster_id != id {
            return vec![Finding::bad(
                format!("this cluster is a member already, with the ID {}", member.cluster_id),
                format!(
                    "join with --clusterid {0} to change its settings, or leave with trieste uninstall first",
                    member.cluster_id
                ),
            )];
        }
        if member.broker != broker {
            return vec![Finding::bad(
                format!("this cluster is a member already, of the broker {}", member.broker),
                "leave that one with trieste uninstall first, or say with --broker-url how this one is really called",
            )];
        }
    }
    let is_taken = match &registration.made_for {
        Some(uid) => uid != own_uid,
        None => registration.has_cluster && membership.is_none(),
    };
    if is_taken {
        return vec![Finding::bad(
            format!("the cluster ID {id} belongs to another cluster of this broker"),
            "choose another one with --clusterid; if that cluster is gone for good, first remove what it left on \
             the broker (docs/operations/install.md, \"A member that is gone\")",
        )];
    }
    match membership {
        Some(_) => {
            vec![Finding::good(format!("The cluster ID {id} is this cluster's own from an earlier join"))]
        }
        None => vec![Finding::good(format!("The cluster ID {id} is free"))],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trieste_control::steps::Outcome;

    fn check(registration: &Registration, member: Option<(&str, &str)>) -> Finding {
        let member =
            member.map(|(id, broker)| Membership { cluster_id: id.to_owned(), broker: broker.to_owned() });
        let findings = identity("east", "uid-1", registration, member.as_ref(), "b:6443");
        let [finding] = &findings[..] else { panic!("{findings:?}") };
        finding.clone()
    }

    fn of(uid: Option<&str>, has_cluster: bool) -> Registration {
        Registration { has_cluster, made_for: uid.map(str::to_owned) }
    }

    #[test]
    fn a_new_id_is_free_and_an_own_one_is_kept() {
        assert_eq!(check(&of(None, false), None).outcome, Outcome::Success);
        let own = check(&of(Some("uid-1"), true), Some(("east", "b:6443")));
        assert!(own.text.contains("earlier join"), "{own:?}");
        // A join that crashed before it had written anything here.
        assert_eq!(check(&of(Some("uid-1"), false), None).outcome, Outcome::Success);
        // Upstream's join leaves no UID.
        assert_eq!(check(&of(None, true), Some(("east", "b:6443"))).outcome, Outcome::Success);
    }

    #[test]
    fn another_clusters_id_is_refused() {
        for registration in [of(None, true), of(Some("uid-2"), true), of(Some("uid-2"), false)] {
            let finding = check(&registration, None);
            assert!(
                finding.outcome == Outcome::Failure && finding.next.contains("--clusterid"),
                "{finding:?}"
            );
        }
    }

    #[test]
    fn a_member_stays_what_it_is_until_it_leaves() {
        let other_id = check(&of(None, false), Some(("west", "b:6443")));
        assert!(other_id.text.contains("with the ID west"), "{other_id:?}");
        let other_broker = check(&of(None, false), Some(("east", "c:6443")));
        assert!(other_broker.text.contains("of the broker c:6443"), "{other_broker:?}");
    }
}

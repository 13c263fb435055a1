//! Which Fabric a part of the cluster belongs to: a cluster has one broker and one member.

use jiff::Timestamp;
use trieste_control::api::Fabric;

use crate::order::Part;

impl Part {
    /// Returns the finalizer that stands while anything is left of the part.
    pub const fn finalizer(self) -> &'static str {
        match self {
            Self::Broker => Fabric::BROKER_FINALIZER,
            Self::Member => Fabric::MEMBER_FINALIZER,
        }
    }

    /// Returns `true` if a Fabric wants the part.
    pub(crate) fn is_wanted_by(self, fabric: &Fabric) -> bool {
        let has_part = match self {
            Self::Broker => fabric.spec.broker_config.is_some(),
            Self::Member => fabric.spec.join_config.is_some(),
        };
        has_part && !fabric.metadata.is_terminating()
    }
}

/// Returns the Fabric that a part belongs to: the one whose finalizer says that it was begun for it, or else the oldest that
/// wants it.
pub(crate) fn holder(fabrics: &[Fabric], part: Part) -> Option<&Fabric> {
    let age = |fabric: &&Fabric| {
        let created = fabric.metadata.creation_timestamp.unwrap_or(Timestamp::MAX);
        (created, fabric.metadata.name.clone())
    };
    let begun = fabrics.iter().filter(|fabric| fabric.metadata.has_finalizer(part.finalizer()));
    let wanted = fabrics.iter().filter(|fabric| part.is_wanted_by(fabric));
    begun.min_by_key(age).or_else(|| wanted.min_by_key(age))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fabric(name: &str, age: &str, finalizers: &[&str], spec: &serde_json::Value) -> Fabric {
        serde_json::from_value(json!({"metadata": {"name": name, "finalizers": finalizers,
            "creationTimestamp": format!("2026-01-01T00:00:{age}Z")}, "spec": spec}))
        .unwrap()
    }

    fn names(fabrics: &[Fabric]) -> [Option<&str>; 2] {
        Part::ALL.map(|part| holder(fabrics, part).map(|fabric| fabric.metadata.name.as_str()))
    }

    #[test]
    fn the_oldest_has_a_part_unless_it_was_begun_for_another_one() {
        let both = json!({"brokerConfig": {}, "joinConfig": {}});
        let old = fabric("b", "01", &[], &both);
        let young = fabric("a", "02", &[], &both);
        assert_eq!(names(&[young.clone(), old.clone()]), [Some("b"), Some("b")]);
        assert_eq!(names(&[]), [None, None]);
        let begun = fabric("a", "02", &[Fabric::MEMBER_FINALIZER], &both);
        assert_eq!(names(&[begun, old.clone()]), [Some("b"), Some("a")]);
        // What was begun is its own until nothing is left of it.
        let left = fabric("c", "03", &[Fabric::BROKER_FINALIZER], &json!({"joinConfig": {}}));
        assert_eq!(names(&[left, old.clone()]), [Some("c"), Some("b")]);
        let mut gone = old;
        gone.metadata.extra.insert("deletionTimestamp".to_owned(), json!("2026-01-01T00:00:09Z"));
        assert_eq!(names(&[gone, young]), [Some("a"), Some("a")]);
    }
}

//! Which object a part of the cluster belongs to: a cluster has one broker, one cloud and one member.

use jiff::Timestamp;
use trieste_control::api::Fabric;

use crate::order::Part;
use crate::source::Source;

impl Part {
    /// Returns the finalizer that stands while anything is left of the part.
    pub const fn finalizer(self) -> &'static str {
        match self {
            Self::Broker => Fabric::BROKER_FINALIZER,
            Self::Cloud => Fabric::CLOUD_FINALIZER,
            Self::Member => Fabric::MEMBER_FINALIZER,
            Self::ServiceDiscovery => Fabric::SERVICE_DISCOVERY_FINALIZER,
        }
    }
}

/// Returns the object that a part belongs to: the one whose finalizer says that it was begun for it, or else the oldest that wants it.
/// Where there is a member service discovery is its own affair, and no part by itself.
pub(crate) fn holder(sources: &[Source], part: Part) -> Option<&Source> {
    if part == Part::ServiceDiscovery && holder(sources, Part::Member).is_some() {
        return None;
    }
    let age = |source: &&Source| {
        let created = source.metadata.creation_timestamp.unwrap_or(Timestamp::MAX);
        (created, source.key.clone())
    };
    let begun = sources.iter().filter(|source| source.has_begun(part));
    let wanted = sources.iter().filter(|source| source.wants(part));
    begun.min_by_key(age).or_else(|| wanted.min_by_key(age))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use trieste_control::api::Object;

    use super::*;

    fn source(kind: (&str, &str), name: &str, age: &str, finalizers: &[&str], spec: &Value) -> Source {
        let value = json!({"apiVersion": kind.0, "kind": kind.1, "spec": spec, "metadata": {"name": name,
            "finalizers": finalizers, "creationTimestamp": format!("2026-01-01T00:00:{age}Z")}});
        Source::of(&Object::from_value(value).unwrap()).unwrap()
    }

    fn fabric(name: &str, age: &str, finalizers: &[&str], spec: &Value) -> Source {
        source(("trieste.io/v1alpha1", "Fabric"), name, age, finalizers, spec)
    }

    fn names(sources: &[Source]) -> [Option<&str>; 4] {
        Part::ALL.map(|part| holder(sources, part).map(|source| source.key.name.as_str()))
    }

    #[test]
    fn the_oldest_has_a_part_unless_it_was_begun_for_another_one() {
        let both = json!({"brokerConfig": {}, "joinConfig": {}});
        let old = fabric("b", "01", &[], &both);
        let young = fabric("a", "02", &[], &both);
        assert_eq!(names(&[young.clone(), old.clone()]), [Some("b"), None, Some("b"), None]);
        assert_eq!(names(&[]), [None; 4]);
        let begun = fabric("a", "02", &[Fabric::MEMBER_FINALIZER], &both);
        assert_eq!(names(&[begun, old.clone()]), [Some("b"), None, Some("a"), None]);
        // What was begun is its own until nothing is left of it.
        let left = fabric("c", "03", &[Fabric::BROKER_FINALIZER], &json!({"joinConfig": {}}));
        assert_eq!(names(&[left, old.clone()]), [Some("c"), None, Some("b"), None]);
        let mut gone = old;
        gone.metadata.extra.insert("deletionTimestamp".to_owned(), json!("2026-01-01T00:00:09Z"));
        assert_eq!(names(&[gone, young]), [Some("a"), None, Some("a"), None]);
    }

    #[test]
    fn a_cluster_has_one_cloud() {
        let cloud = json!({"cloudPrepareConfig": {"generic": {}}});
        let old = fabric("b", "01", &[], &cloud);
        let young = fabric("a", "02", &[], &cloud);
        assert_eq!(names(&[young, old.clone()]), [None, Some("b"), None, None]);
        let begun = fabric("a", "02", &[Fabric::CLOUD_FINALIZER], &json!({"joinConfig": {}}));
        assert_eq!(names(&[begun, old]), [None, Some("a"), Some("a"), None]);
    }

    #[test]
    fn service_discovery_is_a_part_by_itself_where_there_is_no_member() {
        let spec = json!({"brokerK8sApiServer": "b:1", "brokerK8sRemoteNamespace": "n", "clusterID": "east", "debug": false,
            "namespace": "submariner-operator"});
        let discovery =
            source(("submariner.io/v1alpha1", "ServiceDiscovery"), "service-discovery", "01", &[], &spec);
        assert_eq!(names(std::slice::from_ref(&discovery)), [None, None, None, Some("service-discovery")]);
        let member = fabric("a", "02", &[], &json!({"joinConfig": {}}));
        assert_eq!(names(&[discovery, member]), [None, None, Some("a"), None]);
    }

    #[test]
    fn a_record_of_a_command_and_an_object_of_another_name_ask_for_nothing() {
        for (name, by, is_source) in [
            ("submariner-broker", "subctl", true),
            ("submariner-broker", "trieste", false),
            ("other", "subctl", false),
        ] {
            let object = json!({"apiVersion": "submariner.io/v1alpha1", "kind": "Broker", "spec": {},
                "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": by}}});
            assert_eq!(Source::of(&Object::from_value(object).unwrap()).is_some(), is_source, "{name} {by}");
        }
    }
}

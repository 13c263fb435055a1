//! Objects on their way between an API server's documents and ours.

use serde::Deserialize;
use serde_json::Value;

use crate::api::{ApiError, Body, Kind, Object, ObjectMeta, label};
use crate::store::decode::{Bounded, describe};

/// An object as an API server sends it, decoded within `LIMIT` bytes of memory. Lists of Kubernetes' own kinds do not say each
/// object's kind: the reader knows. Any JSON value is one: of what makes no sense there is as much as says who it is, and why
/// the rest is withheld, so that it hides nothing beside it.
#[derive(Debug, Clone)]
pub(super) struct Raw<const LIMIT: usize> {
    metadata: ObjectMeta,
    body: Body,
    withheld: Option<String>,
}

impl<const LIMIT: usize> Raw<LIMIT> {
    /// Decodes an object of the kind that was asked for.
    pub(super) fn into_object(self, kind: Kind) -> Object {
        let Self { metadata, body, withheld, .. } = self;
        Object { body, withheld, ..Object::new(kind, metadata) }
    }

    pub(super) fn from_document(decoded: Bounded<LIMIT>) -> Self {
        let Bounded { document, exceeded: withheld } = decoded;
        let Value::Object(mut fields) = document else {
            let withheld = Some(ApiError::field(".", "is not an object").to_string());
            return Self { metadata: ObjectMeta::default(), body: Body::default(), withheld };
        };
        fields.remove("apiVersion");
        fields.remove("kind");
        let metadata = fields.remove("metadata").unwrap_or(Value::Null);
        match serde_path_to_error::deserialize(&metadata) {
            Ok(metadata) => Self { metadata, body: fields.into(), withheld },
            Err(error) => {
                let reason = describe(error.inner());
                let error = ApiError::field(format!("metadata.{}", error.path()), reason);
                let withheld = withheld.or_else(|| Some(error.to_string()));
                Self { metadata: identity(&metadata), body: Body::default(), withheld }
            }
        }
    }
}

/// Reads who an object is, and whose, out of metadata that has other fields of wrong types.
fn identity(metadata: &Value) -> ObjectMeta {
    let text = |key: &str| metadata.get(key).and_then(Value::as_str);
    let mut read = ObjectMeta::new(text("namespace").unwrap_or_default(), text("name").unwrap_or_default());
    read.resource_version = text("resourceVersion").map(str::to_owned);
    read.uid = text("uid").map(str::to_owned);
    read.creation_timestamp = text("creationTimestamp").and_then(|text| text.parse().ok());
    let origin = metadata.get("labels").and_then(|labels| labels.get(label::CLUSTER_ID)?.as_str());
    read.labels.extend(origin.map(|origin| (label::CLUSTER_ID.to_owned(), origin.to_owned())));
    read
}

impl<'de, const LIMIT: usize> Deserialize<'de> for Raw<LIMIT> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Bounded::deserialize(deserializer).map(Self::from_document)
    }
}

/// Returns the path of all objects of a kind, in one of its versions, in a namespace, or in all if that is empty. Names must
/// have been checked.
pub(super) fn collection(kind: Kind, version: &str, namespace: &str) -> String {
    let root = if kind.group().is_empty() { "/api" } else { "/apis" };
    let plural = kind.plural();
    match kind.is_namespaced() && !namespace.is_empty() {
        true => format!("{root}/{version}/namespaces/{namespace}/{plural}"),
        false => format!("{root}/{version}/{plural}"),
    }
}

/// Encodes the object as it is sent in a write of this version of its kind: without the fields that only the server sets. A write without uid keeps
/// the uid, and the version that is sent with an update is of one incarnation only.
pub(super) fn outgoing(mut object: Object, version: &str, with_version: bool) -> Vec<u8> {
    version.clone_into(&mut object.api_version);
    let metadata = &mut object.metadata;
    metadata.uid = None;
    metadata.generation = None;
    metadata.creation_timestamp = None;
    metadata.extra.remove("managedFields");
    if !with_version {
        metadata.resource_version = None;
    }
    serde_json::to_vec(&object).expect("keys are strings and values are JSON already")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn everything_but_managed_fields_survives_and_the_kind_is_the_readers() {
        let value = json!({"metadata": {"name": "n1", "resourceVersion": "7", "finalizers": ["a/b"],
            "managedFields": [{"manager": "x"}], "newField": {"a": 1}}, "spec": {"x": 1}, "other": [1]});
        let raw: Raw<{ 1 << 20 }> = serde_json::from_value(value).unwrap();
        let object = raw.into_object(Kind::Node);
        assert_eq!((object.kind, object.api_version.as_str()), (Kind::Node, "v1"));
        let extra = Value::Object(object.metadata.extra.clone());
        assert_eq!(extra, json!({"finalizers": ["a/b"], "newField": {"a": 1}}));
        assert_eq!(Value::Object(object.body.into()), json!({"spec": {"x": 1}, "other": [1]}));
    }

    #[test]
    fn what_is_no_object_is_withheld_with_as_much_as_says_who_it_is() {
        let read = |value: Value| {
            let raw: Raw<{ 1 << 20 }> = serde_json::from_value(value).unwrap();
            let object = raw.into_object(Kind::Cluster);
            assert!(object.body.is_empty(), "{object:?}");
            (object.metadata, object.withheld.unwrap())
        };
        for value in [json!(null), json!(7), json!("secret"), json!(["secret"])] {
            assert_eq!(read(value), (ObjectMeta::default(), "field `.`: is not an object".to_owned()));
        }
        for metadata in [json!(null), json!("secret"), json!(["secret"]), json!({"name": ["secret"]})] {
            let (metadata, reason) = read(json!({"metadata": metadata, "spec": "secret"}));
            assert_eq!(metadata, ObjectMeta::default());
            assert!(reason.starts_with("field `metadata.") && !reason.contains("secret"), "{reason}");
        }
        let labels = json!({"submariner-io/clusterID": "b", "x": 7});
        let metadata = json!({"name": "a", "namespace": "ns", "resourceVersion": "7", "uid": "u", "labels": labels,
            "creationTimestamp": "2024-01-01T00:00:00Z", "annotations": {"x": "y"}});
        let (metadata, reason) = read(json!({"metadata": metadata, "spec": {"a": 1}}));
        assert_eq!((metadata.name.as_str(), metadata.origin()), ("a", Some("b")));
        assert_eq!((metadata.resource_version.as_deref(), metadata.uid.as_deref()), (Some("7"), Some("u")));
        assert!(metadata.creation_timestamp.is_some() && metadata.annotations.is_empty());
        assert!(reason.starts_with("field `metadata.labels.x`: expected a string"), "{reason}");
    }

    #[test]
    fn paths_are_those_of_the_api() {
        let paths = [
            (Kind::Cluster, "/apis/submariner.io/v1/namespaces/ns/clusters"),
            (Kind::ClusterGlobalEgressIp, "/apis/submariner.io/v1/clusterglobalegressips"),
            (Kind::Lease, "/apis/coordination.k8s.io/v1/namespaces/ns/leases"),
            (Kind::Node, "/api/v1/nodes"),
            (Kind::Pod, "/api/v1/namespaces/ns/pods"),
        ];
        for (kind, path) in paths {
            assert_eq!(collection(kind, kind.api_version(), "ns"), path);
        }
        assert_eq!(collection(Kind::Pod, "v1", ""), "/api/v1/pods");
    }
}

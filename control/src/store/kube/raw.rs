//! Objects on their way between kube's types and ours.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta as KubeMeta;
use kube::core::DynamicResourceScope;
use serde::Deserialize;
use serde::de::Error as _;
use serde_json::{Map, Value};

use crate::api::{ApiError, Kind, Object, ObjectMeta};
use crate::store::decode::{Bounded, too_large};

/// An object as an API server sends it, decoded within `LIMIT` bytes of memory. Lists of Kubernetes' own kinds do not say each
/// object's kind: the reader knows.
#[derive(Debug, Clone)]
pub(super) struct Raw<const LIMIT: usize> {
    /// The part that kube's watcher looks at.
    meta: KubeMeta,
    metadata: ObjectMeta,
    body: Map<String, Value>,
    withheld: Option<String>,
}

impl<const LIMIT: usize> Raw<LIMIT> {
    /// The object, of the kind that was asked for.
    pub(super) fn into_object(self, kind: Kind) -> Object {
        let Self { metadata, body, withheld, .. } = self;
        Object { body, withheld, ..Object::new(kind, metadata) }
    }

    fn from_document(decoded: Bounded<LIMIT>) -> Result<Self, ApiError> {
        let Bounded { document, exceeded } = decoded;
        let Value::Object(mut fields) = document else {
            return Err(ApiError::field(".", "is not an object"));
        };
        let withheld = exceeded.map(|field| too_large(&field, LIMIT));
        fields.remove("apiVersion");
        fields.remove("kind");
        let metadata = fields.remove("metadata").unwrap_or(Value::Null);
        let metadata: ObjectMeta = serde_path_to_error::deserialize(metadata).map_err(|error| {
            ApiError::field(format!("metadata.{}", error.path()), error.inner().to_string())
        })?;
        let meta = KubeMeta {
            name: Some(metadata.name.clone()),
            resource_version: metadata.resource_version.clone(),
            ..KubeMeta::default()
        };
        Ok(Self { meta, metadata, body: fields, withheld })
    }
}

impl<'de, const LIMIT: usize> Deserialize<'de> for Raw<LIMIT> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_document(Bounded::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl<const LIMIT: usize> kube::Resource for Raw<LIMIT> {
    type DynamicType = Kind;
    type Scope = DynamicResourceScope;

    fn kind(kind: &Kind) -> Cow<'_, str> {
        Cow::Borrowed(kind.as_str())
    }

    fn group(kind: &Kind) -> Cow<'_, str> {
        Cow::Borrowed(kind.group())
    }

    fn version(kind: &Kind) -> Cow<'_, str> {
        Cow::Borrowed(kind.version())
    }

    fn plural(kind: &Kind) -> Cow<'_, str> {
        Cow::Borrowed(kind.plural())
    }

    fn meta(&self) -> &KubeMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut KubeMeta {
        &mut self.meta
    }
}

/// Path of all objects of a kind in a namespace, or in all if that is empty. Names must have been checked.
pub(super) fn collection(kind: Kind, namespace: &str) -> String {
    let root = if kind.group().is_empty() { "/api" } else { "/apis" };
    let plural = kind.plural();
    match kind.is_namespaced() && !namespace.is_empty() {
        true => format!("{root}/{}/namespaces/{namespace}/{plural}", kind.api_version()),
        false => format!("{root}/{}/{plural}", kind.api_version()),
    }
}

/// The object as it is sent in a write: without what only the server sets. A write without uid keeps the uid, and the
/// version that is sent with an update is of one incarnation only.
pub(super) fn outgoing(mut object: Object, with_version: bool) -> Vec<u8> {
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
        assert_eq!(Value::Object(object.body), json!({"spec": {"x": 1}, "other": [1]}));
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
            assert_eq!(collection(kind, "ns"), path);
        }
        assert_eq!(collection(Kind::Pod, ""), "/api/v1/pods");
    }
}

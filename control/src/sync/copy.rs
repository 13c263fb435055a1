//! What survives when an object is copied from one store to the other.

use crate::api::{Object, ObjectMeta, label};

/// A copy of `source` for another store. Of the metadata only name, generateName, labels and annotations come along:
/// versions, identities and times are each store's own, and finalizers or owners mean nothing elsewhere.
pub(super) fn copy(source: &Object, namespace: &str, origin: &str) -> Object {
    let mut labels = source.metadata.labels.clone();
    labels.insert(label::CLUSTER_ID.to_owned(), origin.to_owned());
    Object {
        api_version: source.api_version.clone(),
        kind: source.kind,
        metadata: ObjectMeta {
            generate_name: source.metadata.generate_name.clone(),
            labels,
            annotations: source.metadata.annotations.clone(),
            ..ObjectMeta::new(namespace, &source.metadata.name)
        },
        body: source.body.clone(),
    }
}

/// What to write so that `existing` says what `wanted` says; `None` when it does already.
pub(super) fn amend(existing: &Object, wanted: &Object) -> Option<Object> {
    if existing.same_content(wanted) {
        return None;
    }
    let mut amended = existing.clone();
    amended.metadata.labels.clone_from(&wanted.metadata.labels);
    amended.metadata.annotations.clone_from(&wanted.metadata.annotations);
    amended.body.clone_from(&wanted.body);
    Some(amended)
}

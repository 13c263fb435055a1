//! Copies of objects: the parts that survive the way from one store to the other, and the comparison.

use crate::api::{Object, ObjectMeta, label};

/// Annotations of our own. They travel with a copy, but nobody writes a copy anew because they are missing in it: a
/// member that runs upstream's agent writes whole objects without them, and two agents that correct each other never
/// end.
pub const OWN_ANNOTATIONS: &str = "trieste.io/";

/// Returns a copy of `source` for another store. Of the metadata only name, generateName, labels and annotations come
/// along: versions, identities and times are each store's own, and finalizers or owners mean nothing elsewhere.
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
        withheld: None,
    }
}

/// Returns `true` if `existing` has the content of a copy of `source`.
pub(super) fn agrees(existing: &Object, source: &Object, origin: &str) -> bool {
    existing.body == source.body
        && labels_agree(existing, source, origin)
        && annotations_agree(existing, source)
}

/// Returns `existing` with the content of a copy of `source`.
pub(super) fn amend(existing: &Object, source: &Object, origin: &str) -> Object {
    let mut amended = Object { withheld: None, ..existing.clone() };
    let labels = &mut amended.metadata.labels;
    labels.clone_from(&source.metadata.labels);
    labels.insert(label::CLUSTER_ID.to_owned(), origin.to_owned());
    amended.metadata.annotations.clone_from(&source.metadata.annotations);
    amended.body.clone_from(&source.body);
    amended
}

fn labels_agree(existing: &Object, source: &Object, origin: &str) -> bool {
    let (have, want) = (&existing.metadata.labels, &source.metadata.labels);
    let added = usize::from(!want.contains_key(label::CLUSTER_ID));
    existing.metadata.origin() == Some(origin)
        && have.len() == want.len() + added
        && want.iter().all(|(key, value)| key == label::CLUSTER_ID || have.get(key) == Some(value))
}

fn annotations_agree(existing: &Object, source: &Object) -> bool {
    let (have, want) = (&existing.metadata.annotations, &source.metadata.annotations);
    have.keys().all(|key| want.contains_key(key))
        && want.iter().all(|(key, value)| match have.get(key) {
            Some(found) => found == value,
            None => key.starts_with(OWN_ANNOTATIONS),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Kind;

    fn object(annotations: &[(&str, &str)]) -> Object {
        let mut object = Object::new(Kind::Cluster, ObjectMeta::new("ns", "b"));
        object.metadata.labels.insert(label::CLUSTER_ID.to_owned(), "b".to_owned());
        let texts = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        object.metadata.annotations.extend(texts);
        object
    }

    #[test]
    fn annotations_of_ours_that_somebody_dropped_are_no_reason_to_write_but_any_other_difference_is() {
        let source = object(&[("trieste.io/term", "7"), ("note", "x")]);
        for (annotations, agree) in [
            (&[("trieste.io/term", "7"), ("note", "x")][..], true),
            (&[("note", "x")], true),
            (&[("trieste.io/term", "6"), ("note", "x")], false),
            (&[("trieste.io/term", "7")], false),
            (&[("trieste.io/term", "7"), ("note", "y")], false),
            (&[("trieste.io/term", "7"), ("note", "x"), ("more", "z")], false),
        ] {
            assert_eq!(agrees(&object(annotations), &source, "b"), agree, "{annotations:?}");
        }
        assert!(!agrees(&source, &object(&[("note", "x")]), "b"), "what the source lost goes");
        assert_eq!(amend(&object(&[]), &source, "b").metadata.annotations, source.metadata.annotations);
    }
}

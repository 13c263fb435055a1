//! Imports and slices of services whose namespace a cluster does not have: they stand in the operator's namespace instead, where
//! neither upstream's programs nor a cluster's proxies take them for anything.
//!
//! An import there has the annotations by which the broker's import says whose it is, and the name `<service>.<namespace>`, which no
//! service can have; a slice keeps its name and its labels. Both have the annotation [`annotation::DISPLACED`]. It counts in the
//! operator's namespace alone: who may write in another one speaks for no other namespace by it.

use super::{Kind, Object, annotation, label};

/// Lets an import or a slice, which is in its own namespace, stand in the operator's.
pub fn displace(object: &mut Object, operator: &str) {
    let own = std::mem::replace(&mut object.metadata.namespace, operator.to_owned());
    object.metadata.annotations.insert(annotation::DISPLACED.to_owned(), "true".to_owned());
    if object.kind == Kind::ServiceImport {
        let displaced = format!("{}.{own}", object.metadata.name);
        let service = std::mem::replace(&mut object.metadata.name, displaced);
        let owner = [(label::SERVICE_NAME, service), (label::SOURCE_NAMESPACE, own)];
        object.metadata.annotations.extend(owner.map(|(key, value)| (key.to_owned(), value)));
    }
}

/// Returns an import or a slice as it would be in its own namespace, if it stands in the operator's instead; `None` for all others,
/// and where no operator's namespace is named.
pub fn placed(object: &Object, operator: &str) -> Option<Object> {
    let metadata = &object.metadata;
    let is_displaced = metadata.annotations.get(annotation::DISPLACED).is_some_and(|text| text == "true");
    let is_import = object.kind == Kind::ServiceImport;
    let has_kind = is_import || object.kind == Kind::EndpointSlice;
    if !is_displaced || !has_kind || operator.is_empty() || metadata.namespace != operator {
        return None;
    }
    let fields = if is_import { &metadata.annotations } else { &metadata.labels };
    let namespace = fields.get(label::SOURCE_NAMESPACE).filter(|namespace| *namespace != operator)?;
    let mut placed = object.clone();
    placed.metadata.namespace.clone_from(namespace);
    let annotations = &mut placed.metadata.annotations;
    annotations.remove(annotation::DISPLACED);
    if is_import {
        annotations.remove(label::SOURCE_NAMESPACE);
        placed.metadata.name = annotations.remove(label::SERVICE_NAME)?;
    }
    Some(placed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ObjectMeta;

    const OPERATOR: &str = "submariner-operator";

    fn object(kind: Kind) -> Object {
        let mut object = Object::new(kind, ObjectMeta::new("shop", "web"));
        if kind == Kind::EndpointSlice {
            let labels = [(label::SERVICE_NAME, "web"), (label::SOURCE_NAMESPACE, "shop")];
            object.metadata.labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        }
        object
    }

    #[test]
    fn what_is_displaced_is_read_as_it_would_be_in_its_own_namespace() {
        for (kind, name) in [(Kind::ServiceImport, "web.shop"), (Kind::EndpointSlice, "web")] {
            let original = object(kind);
            assert_eq!(placed(&original, OPERATOR), None, "{kind}: it is where it belongs");
            let mut displaced = original.clone();
            displace(&mut displaced, OPERATOR);
            let found = (displaced.metadata.namespace.as_str(), displaced.metadata.name.as_str());
            assert_eq!(found, (OPERATOR, name));
            assert_eq!(placed(&displaced, OPERATOR), Some(original));
        }
    }

    #[test]
    fn nobody_speaks_for_another_namespace_from_one_of_his_own() {
        for kind in [Kind::ServiceImport, Kind::EndpointSlice] {
            let mut displaced = object(kind);
            displace(&mut displaced, OPERATOR);
            for edit in [
                (|object: &mut Object| object.metadata.namespace = "tenant".to_owned()) as fn(&mut Object),
                |object| drop(object.metadata.annotations.remove(annotation::DISPLACED)),
                |object| {
                    let fields = [&mut object.metadata.annotations, &mut object.metadata.labels];
                    for field in fields {
                        field.insert(label::SOURCE_NAMESPACE.to_owned(), OPERATOR.to_owned());
                    }
                },
                |object| {
                    object.metadata.annotations.remove(label::SOURCE_NAMESPACE);
                    object.metadata.labels.remove(label::SOURCE_NAMESPACE);
                },
            ] {
                let mut edited = displaced.clone();
                edit(&mut edited);
                assert_eq!(placed(&edited, OPERATOR), None, "{kind}: {:?}", edited.metadata);
            }
        }
        assert_eq!(placed(&object(Kind::Service), OPERATOR), None);
    }
}

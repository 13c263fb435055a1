//! Which objects refer to which: where a change is of consequence.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::Ingress;
use super::objects::Objects;
use super::units::Name;
use crate::api::{IngressTarget, Kind, Object, internal_service_name};
use crate::sets::remove;

/// A label's key and value.
pub(super) type LabelKey = (String, String);

/// References between objects, by what is referred to.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// The names of GlobalIngressIPs, by the service that they name.
    ingresses: BTreeMap<Name, BTreeSet<String>>,
    /// The names of GlobalIngressIPs of whole services, by the internal Service's name.
    internals: BTreeMap<Name, BTreeSet<String>>,
    /// The names of pods, by namespace and label.
    pods: BTreeMap<(String, LabelKey), BTreeSet<String>>,
}

impl Index {
    /// Returns the GlobalIngressIPs that name a service.
    pub(super) fn ingresses_of(&self, (namespace, service): &Name) -> impl Iterator<Item = Name> {
        let names = self.ingresses.get(&(namespace.clone(), service.clone())).into_iter().flatten();
        names.map(move |name| (namespace.clone(), name.clone()))
    }

    /// Returns the names of the GlobalIngressIPs of whole services that an internal Service may stand for.
    pub(super) fn ingresses_behind(&self, internal: &Name) -> impl Iterator<Item = &String> {
        self.internals.get(internal).into_iter().flatten()
    }

    /// Returns the pods of a namespace with a label, or all of them, by name.
    pub(super) fn pods<'a>(
        &'a self,
        objects: &'a Objects,
        namespace: &'a str,
        label: Option<&LabelKey>,
    ) -> Box<dyn Iterator<Item = &'a Object> + 'a> {
        let Some(label) = label else { return Box::new(objects.inside(Kind::Pod, namespace)) };
        let names = self.pods.get(&(namespace.to_owned(), label.clone())).into_iter().flatten();
        Box::new(names.filter_map(move |name| objects.get(Kind::Pod, namespace, name)))
    }

    /// Returns the internal Service that a GlobalIngressIP's address may belong to.
    pub(super) fn internal_of(ingress: &Object) -> Option<Name> {
        let ingress = Ingress::new(ingress)?;
        let namespace = &ingress.object.metadata.namespace;
        let is_of_service = ingress.target == IngressTarget::ClusterIpService;
        is_of_service.then(|| (namespace.clone(), internal_service_name(ingress.service)))
    }

    /// Takes in a GlobalIngressIP instead of what it was before. Returns the internal Services that this may concern.
    pub(super) fn update_ingress(
        &mut self,
        before: Option<&Object>,
        after: Option<&Object>,
    ) -> BTreeSet<Name> {
        let mut concerned = BTreeSet::new();
        for (object, is_there) in [(before, false), (after, true)] {
            let Some(ingress) = object.and_then(Ingress::new) else { continue };
            let metadata = &ingress.object.metadata;
            let service = (metadata.namespace.clone(), ingress.service.to_owned());
            set(&mut self.ingresses, &service, &metadata.name, is_there);
            if let Some(internal) = Self::internal_of(ingress.object) {
                set(&mut self.internals, &internal, &metadata.name, is_there);
                concerned.insert(internal);
            }
        }
        concerned
    }

    /// Takes in a pod instead of what it was before.
    pub(super) fn update_pod(&mut self, before: Option<&Object>, after: Option<&Object>) {
        for (pod, is_there) in [(before, false), (after, true)] {
            for (key, value) in pod.into_iter().flat_map(|pod| &pod.metadata.labels) {
                let Some(metadata) = pod.map(|pod| &pod.metadata) else { continue };
                let label = (metadata.namespace.clone(), (key.clone(), value.clone()));
                set(&mut self.pods, &label, &metadata.name, is_there);
            }
        }
    }
}

fn set<K: Ord + Clone>(sets: &mut BTreeMap<K, BTreeSet<String>>, key: &K, name: &str, is_there: bool) {
    if is_there {
        sets.entry(key.clone()).or_default().insert(name.to_owned());
    } else {
        remove(sets, key, &name.to_owned());
    }
}

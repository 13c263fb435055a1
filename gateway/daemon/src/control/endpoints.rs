//! The Endpoints of the own store, each read once for each of its versions.

use std::collections::{BTreeMap, BTreeSet};

use trieste_control::api::{Endpoint, Object, Resource as _};
use trieste_control::store::{Mirror, StoreEvent};

/// A copy of the store's objects, and what was read of each.
#[derive(Debug, Default)]
pub(super) struct Endpoints {
    mirror: Mirror,
    /// What each object says, or why it cannot be read, by its name.
    read: BTreeMap<String, Result<Endpoint, String>>,
    changed: BTreeSet<String>,
}

impl Endpoints {
    /// Takes an event in. Returns `true` if something follows from it: nothing does before all were listed.
    pub(super) fn apply(&mut self, event: &StoreEvent) -> bool {
        let has_changed = self.mirror.apply(event);
        match event {
            StoreEvent::Applied(object) | StoreEvent::Deleted(object) if has_changed => {
                self.changed.insert(object.metadata.name.clone());
            }
            StoreEvent::Listed(objects) => {
                self.changed.extend(self.read.keys().cloned());
                self.changed.extend(objects.iter().map(|object| object.metadata.name.clone()));
            }
            StoreEvent::Applied(_) | StoreEvent::Deleted(_) | StoreEvent::Unavailable(_) | _ => {}
        }
        has_changed && self.is_complete()
    }

    /// Returns `true` once all were listed.
    pub(super) fn is_complete(&self) -> bool {
        self.mirror.is_complete()
    }

    /// Returns the objects as they are, by name.
    pub(super) fn objects(&self) -> impl Iterator<Item = &Object> {
        self.mirror.objects()
    }

    /// Reads those that have changed. Returns all that can be read, by name, and of the others the object and why not.
    pub(super) fn read(&mut self) -> (Vec<Endpoint>, Vec<(String, String)>) {
        for name in std::mem::take(&mut self.changed) {
            match self.mirror.get(&name) {
                Some(object) => {
                    let read = Endpoint::from_object(object).map_err(|error| error.to_string());
                    self.read.insert(name, read);
                }
                None => drop(self.read.remove(&name)),
            }
        }
        let (mut endpoints, mut unreadable) = (Vec::new(), Vec::new());
        for (name, read) in &self.read {
            match read {
                Ok(endpoint) => endpoints.push(endpoint.clone()),
                Err(error) => {
                    let object = self.mirror.get(name).map(|object| object.key().to_string());
                    unreadable.push((object.unwrap_or_default(), error.clone()));
                }
            }
        }
        (endpoints, unreadable)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str, hostname: &str) -> Object {
        let spec = json!({"cluster_id": "b", "cable_name": name, "hostname": hostname, "subnets": [],
            "private_ip": "192.0.2.1", "public_ip": "", "nat_enabled": false, "backend": "wireguard"});
        let spec = if hostname.is_empty() { json!(7) } else { spec };
        Object::from_value(json!({"apiVersion": "submariner.io/v1", "kind": "Endpoint",
            "metadata": {"name": name, "namespace": "ns"}, "spec": spec}))
        .unwrap()
    }

    #[test]
    fn what_is_read_follows_every_event() {
        let mut endpoints = Endpoints::default();
        assert!(!endpoints.apply(&StoreEvent::Applied(object("a", "early"))), "not all are listed");
        assert!(endpoints.apply(&StoreEvent::Listed(vec![object("a", "one"), object("b", "")])));
        let hosts = |endpoints: &mut Endpoints| {
            let (read, unreadable) = endpoints.read();
            let hosts: Vec<String> = read.into_iter().map(|endpoint| endpoint.spec.hostname).collect();
            (hosts.join(" "), unreadable.into_iter().map(|(object, _)| object).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(hosts(&mut endpoints), ("one".to_owned(), "Endpoint ns/b".to_owned()));
        assert!(!endpoints.apply(&StoreEvent::Applied(object("a", "one"))), "nothing has changed");
        assert!(endpoints.apply(&StoreEvent::Applied(object("b", "two"))));
        assert_eq!(hosts(&mut endpoints), ("one two".to_owned(), String::new()));
        assert!(endpoints.apply(&StoreEvent::Deleted(object("a", "one"))));
        assert_eq!(hosts(&mut endpoints).0, "two");
        assert!(endpoints.apply(&StoreEvent::Listed(vec![object("c", "three")])));
        assert_eq!(hosts(&mut endpoints).0, "three");
    }
}

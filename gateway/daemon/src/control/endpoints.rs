//! The Endpoints of the own store, each read once for each of its versions.

use std::collections::BTreeSet;
use std::sync::Arc;

use trieste_control::api::{Endpoint, Object, Resource as _};
use trieste_control::store::{ParsedCache, StoreEvent};

use crate::memory::without_bookkeeping;

/// A copy of the store's objects, what was read of each, and which are of our own cluster.
#[derive(Debug, Default)]
pub(super) struct Endpoints {
    cache: ParsedCache<Read>,
    cluster_id: String,
    /// Names of the objects that say that they are of our own cluster.
    near: BTreeSet<String>,
}

/// What was read of an object.
#[derive(Debug)]
struct Read {
    /// What it says, or the object and why it cannot be read.
    endpoint: Result<Arc<Endpoint>, (String, String)>,
    /// What is remembered of it over a restart.
    remembered: Arc<Object>,
}

impl Endpoints {
    /// Returns an empty copy for a gateway of this cluster.
    pub(super) fn of(cluster_id: &str) -> Self {
        Self { cluster_id: cluster_id.to_owned(), ..Self::default() }
    }

    /// Takes an event in. Returns `true` if something follows from it: nothing does before all were listed.
    pub(super) fn apply(&mut self, event: &StoreEvent) -> bool {
        let has_changed = self.cache.apply(event);
        if has_changed {
            self.index(event);
        }
        has_changed && self.is_complete()
    }

    fn index(&mut self, event: &StoreEvent) {
        let cluster_id = self.cluster_id.as_str();
        let is_near = |object: &Object| text(object, "cluster_id") == Some(cluster_id);
        match event {
            StoreEvent::Applied(object) if is_near(object) => {
                self.near.insert(object.metadata.name.clone());
            }
            StoreEvent::Applied(object) | StoreEvent::Deleted(object) => {
                self.near.remove(&object.metadata.name);
            }
            StoreEvent::Listed(_) | StoreEvent::Unavailable(_) | _ => {
                let near = self.cache.objects().filter(|object| is_near(object));
                self.near = near.map(|object| object.metadata.name.clone()).collect();
            }
        }
    }

    /// Returns `true` once all were listed.
    pub(super) fn is_complete(&self) -> bool {
        self.cache.is_complete()
    }

    /// Returns the sole Endpoints of our own cluster that belong to other gateways than that of this host name, parsed or not.
    pub(super) fn others_sole(&self, hostname: &str) -> impl Iterator<Item = &Object> {
        let near = self.near.iter().filter_map(|name| self.cache.get(name));
        near.filter(move |object| {
            object.metadata.origin().is_none()
                && text(object, "hostname").is_some_and(|name| name != hostname)
        })
    }

    /// Reads those that have changed. Returns all that can be read, by name, and of the others the object and why not.
    pub(super) fn read(&mut self) -> (Vec<Arc<Endpoint>>, Vec<(String, String)>) {
        self.refresh();
        let (mut endpoints, mut unreadable) = (Vec::new(), Vec::new());
        for (_, read) in self.cache.read() {
            match &read.endpoint {
                Ok(endpoint) => endpoints.push(Arc::clone(endpoint)),
                Err(why) => unreadable.push(why.clone()),
            }
        }
        (endpoints, unreadable)
    }

    /// Returns the objects to remember over a restart, by name.
    pub(super) fn remembered(&mut self) -> Vec<Arc<Object>> {
        self.refresh();
        self.cache.read().map(|(_, read)| Arc::clone(&read.remembered)).collect()
    }

    fn refresh(&mut self) {
        self.cache.refresh(|object| Read {
            endpoint: Endpoint::from_object(object)
                .map(Arc::new)
                .map_err(|error| (object.key().to_string(), error.to_string())),
            remembered: Arc::new(without_bookkeeping(object)),
        });
    }
}

/// Returns a text of an object's spec.
fn text<'a>(object: &'a Object, key: &str) -> Option<&'a str> {
    object.body.get("spec")?.get(key)?.as_str()
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
            let hosts: Vec<String> = read.iter().map(|endpoint| endpoint.spec.hostname.clone()).collect();
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

    #[test]
    fn endpoints_of_our_cluster_are_those_that_a_look_at_all_finds() {
        let mut endpoints = Endpoints::of("b");
        let mut random = 1_u32;
        let mut draw = |below: u32| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 8) % below
        };
        for round in 0..500 {
            let mut made = || {
                let host = ["", "own", "other"][usize::try_from(draw(3)).unwrap()];
                let mut made = object(&format!("e{}", draw(6)), host);
                if draw(2) == 0 && !host.is_empty() {
                    made.body["spec"]["cluster_id"] = json!("c");
                }
                made
            };
            let event = match round % 7 {
                0 => StoreEvent::Listed(vec![made(), made(), made()]),
                1 | 2 => StoreEvent::Deleted(made()),
                _ => StoreEvent::Applied(made()),
            };
            endpoints.apply(&event);
            let is_others = |object: &&Object| {
                text(object, "cluster_id") == Some("b")
                    && text(object, "hostname").is_some_and(|name| name != "own")
            };
            let all: Vec<&Object> = endpoints.cache.objects().filter(is_others).collect();
            assert_eq!(endpoints.others_sole("own").collect::<Vec<_>>(), all);
        }
    }
}

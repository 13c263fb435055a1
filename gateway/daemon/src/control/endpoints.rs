//! The Endpoints of the own store, each read once for each of its versions.

use trieste_control::api::{Endpoint, Object, Resource as _};
use trieste_control::store::{ParsedCache, StoreEvent};

/// A copy of the store's objects, and what was read of each: what it says, or the object and why it cannot be read.
#[derive(Debug, Default)]
pub(super) struct Endpoints(ParsedCache<Result<Endpoint, (String, String)>>);

impl Endpoints {
    /// Takes an event in. Returns `true` if something follows from it: nothing does before all were listed.
    pub(super) fn apply(&mut self, event: &StoreEvent) -> bool {
        self.0.apply(event) && self.is_complete()
    }

    /// Returns `true` once all were listed.
    pub(super) fn is_complete(&self) -> bool {
        self.0.is_complete()
    }

    /// Returns the objects as they are, by name.
    pub(super) fn objects(&self) -> impl Iterator<Item = &Object> {
        self.0.objects()
    }

    /// Reads those that have changed. Returns all that can be read, by name, and of the others the object and why not.
    pub(super) fn read(&mut self) -> (Vec<Endpoint>, Vec<(String, String)>) {
        self.0.refresh(|object| {
            Endpoint::from_object(object).map_err(|error| (object.key().to_string(), error.to_string()))
        });
        let (mut endpoints, mut unreadable) = (Vec::new(), Vec::new());
        for (_, read) in self.0.read() {
            match read {
                Ok(endpoint) => endpoints.push(endpoint.clone()),
                Err(why) => unreadable.push(why.clone()),
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

//! The networks of GatewayRoute objects, as controllers of plugins' databases follow them. Pure.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use trieste_control::api::{GatewayRoute, Object, Resource as _};
use trieste_control::store::StoreEvent;

/// The networks of each GatewayRoute.
#[derive(Debug, Default)]
pub(crate) struct RemoteNetworks {
    /// The networks of each object that could be read.
    routes: BTreeMap<String, BTreeSet<IpNet>>,
    /// Why objects cannot be read; their networks from before stay.
    unread: BTreeMap<String, String>,
}

/// An object whose networks are other ones now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// The object's name.
    pub(crate) route: String,
    /// Its networks before; none if it is new.
    pub(crate) before: BTreeSet<IpNet>,
    /// Its networks now; none if it is gone.
    pub(crate) after: BTreeSet<IpNet>,
}

impl RemoteNetworks {
    /// Takes in an event; returns what has changed.
    pub(crate) fn observe(&mut self, event: StoreEvent) -> Vec<Change> {
        match event {
            StoreEvent::Listed(objects) => {
                let listed: BTreeSet<&str> =
                    objects.iter().map(|object| object.metadata.name.as_str()).collect();
                let all = self.routes.keys().chain(self.unread.keys());
                let gone: BTreeSet<String> =
                    all.filter(|name| !listed.contains(name.as_str())).cloned().collect();
                let gone: Vec<Change> = gone.iter().filter_map(|name| self.put(name, None)).collect();
                let come =
                    objects.iter().filter_map(|object| self.put(&object.metadata.name, Some(read(object))));
                gone.into_iter().chain(come.collect::<Vec<_>>()).collect()
            }
            StoreEvent::Applied(object) => {
                self.put(&object.metadata.name, Some(read(&object))).into_iter().collect()
            }
            StoreEvent::Deleted(object) => self.put(&object.metadata.name, None).into_iter().collect(),
            StoreEvent::Unavailable(_) | _ => Vec::new(),
        }
    }

    /// Returns what cannot be read, and why.
    pub(crate) fn problems(&self) -> impl Iterator<Item = (String, String)> {
        self.unread.iter().map(|(name, problem)| (format!("GatewayRoute {name}"), problem.clone()))
    }

    /// Takes in an object, or that it is gone; returns what has changed.
    fn put(&mut self, route: &str, read: Option<Result<BTreeSet<IpNet>, String>>) -> Option<Change> {
        self.unread.remove(route);
        let after = match read {
            Some(Err(problem)) => {
                self.unread.insert(route.to_owned(), problem);
                return None;
            }
            Some(Ok(networks)) => Some(networks),
            None => None,
        };
        let before = self.routes.remove(route);
        self.routes.extend(after.clone().map(|networks| (route.to_owned(), networks)));
        (before != after).then(|| Change {
            route: route.to_owned(),
            before: before.unwrap_or_default(),
            after: after.unwrap_or_default(),
        })
    }
}

fn read(object: &Object) -> Result<BTreeSet<IpNet>, String> {
    let facts = GatewayRoute::from_object(object).and_then(|routes| routes.spec.parse());
    facts.map(|facts| facts.remote_cidrs.into_iter().collect()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use trieste_control::api::RouteSpec;

    use super::*;

    fn nets(texts: &[&str]) -> BTreeSet<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn route(name: &str, networks: &[&str]) -> Object {
        let networks: Vec<IpNet> = nets(networks).into_iter().collect();
        let spec = RouteSpec::new(&["172.31.1.11".parse().unwrap()], &networks);
        GatewayRoute::new("ns", name, spec).unwrap().to_object()
    }

    #[test]
    fn what_changes_is_told_once_and_what_cannot_be_read_changes_nothing() {
        let mut remote = RemoteNetworks::default();
        let change = |route: &str, before: &[&str], after: &[&str]| Change {
            route: route.to_owned(),
            before: nets(before),
            after: nets(after),
        };
        let b = || route("b", &["10.2.0.0/16", "fd00:2::/48"]);
        let listed = StoreEvent::Listed(vec![b(), route("c", &["10.3.0.0/16"])]);
        let all = ["10.2.0.0/16", "fd00:2::/48"];
        assert_eq!(remote.observe(listed), [change("b", &[], &all), change("c", &[], &["10.3.0.0/16"])]);
        assert_eq!(remote.observe(StoreEvent::Applied(b())), []);
        let mut broken = b();
        broken.body["spec"]["remoteCIDRs"] = serde_json::json!(["10.2.0.0/99"]);
        assert_eq!(remote.observe(StoreEvent::Applied(broken)), []);
        assert_eq!(remote.problems().map(|(name, _)| name).collect::<Vec<_>>(), ["GatewayRoute b"]);
        assert_eq!(
            remote.observe(StoreEvent::Listed(vec![b()])),
            [change("c", &["10.3.0.0/16"], &[])],
            "the broken one's networks have stayed"
        );
        assert_eq!(remote.problems().count(), 0);
        assert_eq!(remote.observe(StoreEvent::Deleted(b())), [change("b", &all, &[])]);
    }
}

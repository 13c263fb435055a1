//! The controller of GatewayRoute and NonGatewayRoute objects. Pure; [`spawn`] starts it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::stream::unfold;
use ipnet::IpNet;
use tokio::sync::watch;
use tracing::{info, warn};
use trieste_control::api::{Kind, Object, RouteSpec};
use trieste_control::runner::{
    self, Context, Controller, Fence, Handle, Limits, QueueView, Reconciled, Watch, Write, port,
};
use trieste_control::store::{Store, StoreEvent};

use super::{Hops, RouteKey, Zone, object};

/// The kinds that are written.
const KINDS: [Kind; 2] = [Kind::GatewayRoute, Kind::NonGatewayRoute];

/// Changes come in bursts, of which each object is written once.
const LIMITS: Limits = Limits { settle: Duration::from_millis(100), ..Limits::DEFAULT };

/// Starts to keep the objects, for as long as `zones` says what they are: while it says nothing, because another node has the
/// leading gateway, they stay as they are.
///
/// # Panics
/// Outside a tokio runtime.
pub fn spawn<S: Store>(store: S, namespace: &str, zones: watch::Receiver<Option<Zone>>) -> Handle {
    let inputs = unfold(zones, |mut zones| async move {
        zones.changed().await.ok()?;
        let zone = zones.borrow_and_update().clone();
        Some((zone, zones))
    });
    let controller = RoutesController::new(namespace);
    let mut last = None;
    let publish = move |problem: &Option<String>| {
        match problem {
            Some(problem) => warn!(problem, "routes for the network plugin's zones are not written"),
            None if last.is_some() => info!("routes for the network plugin's zones are written again"),
            None => {}
        }
        last.clone_from(problem);
    };
    runner::spawn(controller, vec![port(store)], Fence::Open, inputs.boxed(), LIMITS, publish)
}

/// Keeps one object of each kind for each remote cluster.
#[derive(Debug)]
pub struct RoutesController {
    namespace: String,
    hops: Hops,
    /// The networks by name; `None` where another node keeps the objects.
    wanted: Option<BTreeMap<String, Vec<IpNet>>>,
    found: BTreeMap<RouteKey, Object>,
    listed: BTreeSet<Kind>,
}

impl RoutesController {
    /// Returns a controller that has observed nothing.
    #[must_use]
    pub fn new(namespace: &str) -> Self {
        let (hops, found) = (Hops::default(), BTreeMap::new());
        Self { namespace: namespace.to_owned(), hops, wanted: None, found, listed: BTreeSet::new() }
    }

    /// Returns what the object of this key has to say; `None` if there is to be none.
    fn spec(&self, (kind, name): &RouteKey) -> Option<RouteSpec> {
        let networks = self.wanted.as_ref()?.get(name)?;
        match kind {
            // Upstream's agents take its first next hop without looking whether there is one.
            Kind::NonGatewayRoute if self.hops.others.is_empty() => None,
            Kind::NonGatewayRoute => Some(RouteSpec::new(&self.hops.others, networks)),
            Kind::GatewayRoute if self.hops.own.is_empty() => None,
            Kind::GatewayRoute | _ => Some(RouteSpec::new(&self.hops.own, networks)),
        }
    }

    /// Returns `true` if there are networks to say of an object of this name.
    fn is_wanted(&self, name: &str) -> bool {
        self.wanted.as_ref().is_some_and(|wanted| wanted.contains_key(name))
    }

    /// Returns the keys of objects that exist or are wanted.
    fn keys(&self) -> BTreeSet<RouteKey> {
        let wanted = self.wanted.iter().flat_map(BTreeMap::keys);
        let wanted = wanted.flat_map(|name| KINDS.map(|kind| (kind, name.clone())));
        wanted.chain(self.found.keys().cloned()).collect()
    }
}

impl Controller for RoutesController {
    type Key = RouteKey;
    type Status = Option<String>;
    type Input = Option<Zone>;

    fn name(&self) -> &'static str {
        "zone-routes"
    }

    fn watches(&self) -> BTreeSet<Watch> {
        KINDS.into_iter().map(|kind| Watch::new(0, kind, &*self.namespace)).collect()
    }

    fn observe(&mut self, watch: &Watch, event: StoreEvent, _: Instant) -> Vec<RouteKey> {
        match event {
            StoreEvent::Listed(objects) => {
                let is_other = |key: &RouteKey| key.0 != watch.kind;
                let gone: Vec<RouteKey> = self.found.keys().filter(|key| !is_other(key)).cloned().collect();
                self.found.retain(|key, _| is_other(key));
                self.listed.insert(watch.kind);
                let found = objects.into_iter().map(|object| (key(&object), object));
                self.found.extend(found);
                let all = self.keys();
                all.into_iter().chain(gone).collect()
            }
            StoreEvent::Applied(object) => {
                let key = key(&object);
                self.found.insert(key.clone(), object);
                vec![key]
            }
            StoreEvent::Deleted(object) => {
                let key = key(&object);
                self.found.remove(&key);
                vec![key]
            }
            StoreEvent::Unavailable(_) | _ => Vec::new(),
        }
    }

    fn handle_input(&mut self, zone: Option<Zone>, _: Instant) -> Vec<RouteKey> {
        let before = (self.hops.clone(), self.wanted.take());
        self.wanted = zone.as_ref().map(Zone::by_name);
        self.hops = zone.map(|zone| zone.hops).unwrap_or_default();
        let (hops, Some(old)) = before else { return self.keys().into_iter().collect() };
        if hops != self.hops {
            return self.keys().into_iter().collect();
        }
        let new = self.wanted.iter().flatten();
        let came = new.filter(|(name, networks)| old.get(*name) != Some(*networks)).map(|(name, _)| name);
        let is_gone = |name: &&String| !self.wanted.as_ref().is_some_and(|new| new.contains_key(*name));
        let changed: BTreeSet<&String> = came.chain(old.keys().filter(is_gone)).collect();
        changed.into_iter().flat_map(|name| KINDS.map(|kind| (kind, name.clone()))).collect()
    }

    fn reconcile(&mut self, key: &RouteKey, _: &Context) -> Reconciled {
        if self.wanted.is_none() || !self.listed.contains(&key.0) {
            return Reconciled::await_change();
        }
        let found = self.found.get(key);
        let wanted = self.spec(key).and_then(|spec| object(&self.namespace, key, spec).ok());
        Reconciled::write(match (wanted, found) {
            (Some(wanted), None) => vec![Write::Create(wanted)],
            (Some(wanted), Some(found)) if found.body.get("spec") != wanted.body.get("spec") => {
                // Labels and annotations of others stay.
                let mut object = found.clone();
                object.body.extend(wanted.body);
                object.withheld = None;
                vec![Write::Update(object)]
            }
            // While the way to the gateway is not known the network is there all the same: without an object it would be open.
            (None, Some(_)) if self.is_wanted(&key.1) => Vec::new(),
            (None, Some(found)) => vec![Write::Delete(found.clone())],
            (Some(_), Some(_)) | (None, None) => Vec::new(),
        })
    }

    fn status(&self, view: &QueueView<'_>) -> Option<String> {
        let outage = view.outages.first().map(|(_, reason)| *reason);
        let problem = view.problem().or(outage).map(str::to_owned);
        problem.filter(|_| self.wanted.is_some())
    }
}

fn key(object: &Object) -> RouteKey {
    (object.kind, object.metadata.name.clone())
}

#[cfg(test)]
mod tests;

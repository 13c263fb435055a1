//! The controller of GatewayRoute and NonGatewayRoute objects. Pure; [`spawn`] starts it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::stream::unfold;
use ipnet::IpNet;
use tokio::sync::watch;
use tracing::{info, warn};
use trieste_control::api::{Kind, RouteSpec};
use trieste_control::runner::{
    self, Context, Controller, Fence, Handle, Limits, QueueView, Reconciled, Watch, Write, port,
};
use trieste_control::store::{Cache, Store, StoreEvent};

use super::{Hops, RouteKey, Zone, object};

/// The controller's name in metrics and logs.
pub const NAME: &str = "zone-routes";

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
    /// The objects that there are, for each of [`KINDS`].
    found: BTreeMap<Kind, Cache>,
}

impl RoutesController {
    /// Returns a controller that has observed nothing.
    #[must_use]
    pub fn new(namespace: &str) -> Self {
        let found = KINDS.map(|kind| (kind, Cache::new())).into();
        Self { namespace: namespace.to_owned(), hops: Hops::default(), wanted: None, found }
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

    /// Returns the keys of the objects of a kind that exist or are wanted.
    fn keys_of(&self, kind: Kind) -> BTreeSet<RouteKey> {
        let wanted = self.wanted.iter().flat_map(BTreeMap::keys);
        let found = self.found[&kind].objects().map(|object| &object.metadata.name);
        wanted.chain(found).map(|name| (kind, name.clone())).collect()
    }

    /// Returns the keys of all objects that exist or are wanted.
    fn keys(&self) -> Vec<RouteKey> {
        KINDS.into_iter().flat_map(|kind| self.keys_of(kind)).collect()
    }
}

impl Controller for RoutesController {
    type Key = RouteKey;
    type Status = Option<String>;
    type Input = Option<Zone>;

    fn name(&self) -> &'static str {
        NAME
    }

    fn watches(&self) -> BTreeSet<Watch> {
        KINDS.into_iter().map(|kind| Watch::new(0, kind, &*self.namespace)).collect()
    }

    fn observe(&mut self, watch: &Watch, event: StoreEvent, _: Instant) -> Vec<RouteKey> {
        let Some(found) = self.found.get_mut(&watch.kind) else { return Vec::new() };
        let was_complete = found.is_complete();
        let changed = found.changes(event);
        let is_first_list = found.is_complete() && !was_complete;
        // What is wanted and was not listed is not among the changes.
        let missing = if is_first_list { self.keys_of(watch.kind) } else { BTreeSet::new() };
        changed.into_iter().map(|name| (watch.kind, name)).chain(missing).collect()
    }

    fn handle_input(&mut self, zone: Option<Zone>, _: Instant) -> Vec<RouteKey> {
        let before = (self.hops.clone(), self.wanted.take());
        self.wanted = zone.as_ref().map(Zone::by_name);
        self.hops = zone.map(|zone| zone.hops).unwrap_or_default();
        let (hops, Some(old)) = before else { return self.keys() };
        if hops != self.hops {
            return self.keys();
        }
        let new = self.wanted.iter().flatten();
        let came = new.filter(|(name, networks)| old.get(*name) != Some(*networks)).map(|(name, _)| name);
        let is_gone = |name: &&String| !self.wanted.as_ref().is_some_and(|new| new.contains_key(*name));
        let changed: BTreeSet<&String> = came.chain(old.keys().filter(is_gone)).collect();
        changed.into_iter().flat_map(|name| KINDS.map(|kind| (kind, name.clone()))).collect()
    }

    fn reconcile(&mut self, key: &RouteKey, _: &Context) -> Reconciled {
        let found = &self.found[&key.0];
        if self.wanted.is_none() || !found.is_complete() {
            return Reconciled::await_change();
        }
        let found = found.get(&key.1);
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

#[cfg(test)]
mod tests;

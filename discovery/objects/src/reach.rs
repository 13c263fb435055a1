//! Which clusters can be reached, from what the gateways say of their connections.
//!
//! * A cluster that any active gateway is connected to can be reached, unless that gateway says that no path reaches it any more
//!   (annotation `trieste.io/unreachable`, ours): it is known in milliseconds, and the connection's status takes seconds.
//! * A connection that is in no status any more leaves its cluster as it was: a gateway that has just started lists none. One
//!   that no gateway has ever listed is not connected.
//! * Without an active gateway nothing is known, and every cluster counts as connected.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use trieste_control::api::{
    ConnectionStatus, Gateway, GoDuration, HaStatus, Object, Resource as _, annotation,
};
use trieste_control::store::StoreEvent;
use trieste_dns::{Change, Health, HealthConfig, Label};

/// Namespace and name.
type Key = (String, String);

/// The gateways, and what follows from them.
#[derive(Debug)]
pub struct Reach {
    gateways: BTreeMap<Key, View>,
    /// Clusters that a gateway has listed.
    listed: BTreeSet<Label>,
    health: Health,
    are_unknown_up: bool,
    is_listed: bool,
}

/// What an active gateway says.
#[derive(Debug, Default, PartialEq, Eq)]
struct View {
    connections: BTreeMap<Label, Connection>,
    /// Whether there are more than it says.
    is_cut: bool,
}

/// Its connections to one cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Connection {
    is_up: bool,
    rtt: Option<Duration>,
}

impl Connection {
    fn and(self, other: Self) -> Self {
        let rtt = self.rtt.into_iter().chain(other.rtt).min();
        Self { is_up: self.is_up || other.is_up, rtt }
    }
}

impl Reach {
    /// Creates a state without gateways.
    #[must_use]
    pub fn new(config: HealthConfig) -> Self {
        Self {
            gateways: BTreeMap::new(),
            listed: BTreeSet::new(),
            health: Health::new(config),
            are_unknown_up: true,
            is_listed: false,
        }
    }

    /// Returns whether the gateways have been read once, or cannot be.
    #[must_use]
    pub fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// Handles that there are no gateways: their kind is not served here, or may not be read.
    pub fn handle_absent(&mut self, now: Instant) -> Vec<Change> {
        self.handle(StoreEvent::Listed(Vec::new()), now)
    }

    /// Handles an event of the Gateways. Returns the changes that follow.
    pub fn handle(&mut self, event: StoreEvent, now: Instant) -> Vec<Change> {
        match event {
            StoreEvent::Listed(objects) => {
                let there: BTreeSet<Key> = objects.iter().map(key).collect();
                let gone: Vec<Key> =
                    self.gateways.keys().filter(|key| !there.contains(*key)).cloned().collect();
                for key in gone {
                    self.set(key, None, now);
                }
                for object in &objects {
                    self.apply(object, now);
                }
                self.is_listed = true;
            }
            StoreEvent::Applied(object) => self.apply(&object, now),
            StoreEvent::Deleted(object) => self.set(key(&object), None, now),
            StoreEvent::Unavailable(_) | _ => {}
        }
        self.changes()
    }

    /// Handles that time has passed. Returns the changes that follow.
    pub fn handle_timeout(&mut self, now: Instant) -> Vec<Change> {
        self.health.handle_timeout(now);
        self.changes()
    }

    /// Returns when [`Reach::handle_timeout`] wants to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.health.poll_timeout()
    }

    fn changes(&mut self) -> Vec<Change> {
        let is_any = !self.gateways.is_empty();
        let are_unknown_up = !is_any || self.gateways.values().any(|view| view.is_cut);
        let mut changes = Vec::new();
        if !is_any {
            for cluster in std::mem::take(&mut self.listed) {
                self.health.handle_removed(&cluster);
            }
        }
        changes.extend(
            std::iter::from_fn(|| self.health.poll_event())
                .map(|(cluster, state)| Change::Cluster(cluster, state)),
        );
        if self.are_unknown_up != are_unknown_up {
            self.are_unknown_up = are_unknown_up;
            changes.push(Change::UnknownClusters { are_up: are_unknown_up });
        }
        changes
    }

    fn apply(&mut self, object: &Object, now: Instant) {
        // One that cannot be read is as it was.
        let Ok(gateway) = Gateway::from_object(object) else { return };
        let lost = object.metadata.annotations.get(annotation::UNREACHABLE);
        let lost: BTreeSet<&str> = lost.into_iter().flat_map(|text| text.split(',')).collect();
        let view = (gateway.status.ha_status == HaStatus::Active).then(|| View::of(&gateway, &lost));
        self.set(key(object), view, now);
    }

    /// Replaces what a gateway says, and evaluates the clusters that it says or said something of.
    fn set(&mut self, key: Key, view: Option<View>, now: Instant) {
        let mut clusters: BTreeSet<Label> =
            view.iter().flat_map(|view| view.connections.keys()).cloned().collect();
        let old = match view {
            Some(view) => self.gateways.insert(key, view),
            None => self.gateways.remove(&key),
        };
        clusters.extend(old.into_iter().flat_map(|view| view.connections.into_keys()));
        for cluster in clusters {
            let views = self.gateways.values();
            let found = views.filter_map(|view| view.connections.get(&cluster)).copied();
            if let Some(connection) = found.reduce(Connection::and) {
                self.health.handle_paths(&cluster, connection.is_up, connection.rtt, now);
                self.listed.insert(cluster);
            }
        }
    }
}

impl View {
    fn of(gateway: &Gateway, lost: &BTreeSet<&str>) -> Self {
        let mut connections = BTreeMap::<Label, Connection>::new();
        for connection in &gateway.status.connections {
            let Ok(cluster) = Label::new(&connection.endpoint.cluster_id) else { continue };
            let average =
                connection.latency_rtt.as_ref().and_then(|rtt| rtt.average.parse::<GoDuration>().ok());
            let nanos = average.and_then(|average| u64::try_from(average.as_nanos()).ok());
            let found = Connection {
                is_up: connection.status == ConnectionStatus::Connected
                    && !lost.contains(connection.endpoint.cluster_id.as_str()),
                rtt: nanos.filter(|nanos| *nanos > 0).map(Duration::from_nanos),
            };
            let entry = connections.entry(cluster).or_default();
            *entry = entry.and(found);
        }
        Self { connections, is_cut: gateway.left_out().total() > 0 }
    }
}

fn key(object: &Object) -> Key {
    (object.metadata.namespace.clone(), object.metadata.name.clone())
}

#[cfg(test)]
mod tests;

//! Remote clusters that no path of this gateway reaches, in its Gateway object within milliseconds.
//!
//! ```text
//!   path table (workers) ─┐
//!                         ├─▶ annotation trieste.io/unreachable of the own Gateway object ─▶ DNS servers, route agents
//!   cables by cluster ────┘
//! ```
//!
//! The status of a connection follows upstream's rules, which take 5 to 20 s to give a peer up, and is written with the
//! heartbeat. Paths that are watched are known to be down within 100 ms; names and clusterset IPs leave a cluster by this. Written
//! at changes alone, and at most five times a second. Level-driven: whoever removes the annotation gets it back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep_until;
use trieste_control::api::{Kind, Object, ObjectKey, annotation, ensure_valid_name};
use trieste_control::store::{AnyStore, Store as _, StoreError, StoreEvent};
use trieste_packet::CableId;
use trieste_pipeline::PathState;

use crate::paths::Paths;

/// Ours: two writes are at least so far apart.
const REST: Duration = Duration::from_millis(200);
/// Ours: how soon a write that has failed is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Ours: the same, where the store does not allow to set an annotation alone.
const RETRY_FORBIDDEN: Duration = Duration::from_secs(600);
/// Ours: most bytes of the annotation; what is beyond follows its connections' status.
const MAX_BYTES: usize = 16 << 10;

/// The cables to each remote cluster.
pub(crate) type Clusters = BTreeMap<String, BTreeSet<CableId>>;

/// The writer of the annotation. Ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Unreachable {
    clusters: watch::Sender<Clusters>,
    task: JoinHandle<()>,
}

impl Unreachable {
    /// Starts to follow the path table for the gateway on `hostname`. Needs a tokio runtime.
    pub(crate) fn start(store: AnyStore, (namespace, hostname): (&str, &str), paths: Paths) -> Self {
        let (clusters, known) = watch::channel(Clusters::default());
        let key = ObjectKey::new(Kind::Gateway, namespace, ensure_valid_name(hostname));
        let task = tokio::spawn(async move { keep(&store, &key, known, &paths).await });
        Self { clusters, task }
    }

    /// Sets the cables to remote clusters.
    pub(crate) fn set_clusters(&self, clusters: Clusters) {
        self.clusters.send_if_modified(|last| {
            let has_changed = *last != clusters;
            *last = clusters;
            has_changed
        });
    }
}

impl Drop for Unreachable {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Which clusters were reached, and are not any more.
#[derive(Debug, Default)]
struct Reached(BTreeSet<String>);

impl Reached {
    /// Returns the clusters that were reached once and have only paths that are down, separated by commas; `None` if there are
    /// none.
    fn lost(&mut self, clusters: &Clusters, paths: &Paths) -> Option<String> {
        self.0.retain(|cluster| clusters.contains_key(cluster));
        let mut text = String::new();
        for (cluster, cables) in clusters {
            let is_down = cables.iter().all(|cable| paths.table.state(*cable) == PathState::Down);
            if !is_down {
                if !self.0.contains(cluster) {
                    self.0.insert(cluster.clone());
                }
            } else if self.0.contains(cluster) && text.len() + cluster.len() < MAX_BYTES {
                if !text.is_empty() {
                    text.push(',');
                }
                text.push_str(cluster);
            }
        }
        (!text.is_empty()).then_some(text)
    }
}

/// The own Gateway object: enough of it to set the annotation, and the annotation.
type Own = (Object, Option<String>);

/// Keeps the annotation as it should be, until nobody says any more which cables there are.
async fn keep(store: &AnyStore, key: &ObjectKey, mut clusters: watch::Receiver<Clusters>, paths: &Paths) {
    let mut changes = paths.changed.subscribe();
    let mut events = store.watch_one(key);
    let mut reached = Reached::default();
    let mut own: Option<Own> = None;
    let mut not_before = Instant::now();
    loop {
        let wanted = reached.lost(&clusters.borrow_and_update(), paths);
        let is_due = own.as_ref().is_some_and(|(_, value)| *value != wanted);
        tokio::select! {
            () = sleep_until(not_before.into()), if is_due => {
                let wait = write(store, &mut own, wanted).await;
                not_before = Instant::now() + wait;
            }
            Ok(()) = changes.changed() => {}
            changed = clusters.changed() => if changed.is_err() {
                return;
            },
            event = events.next() => match event {
                Some(event) => observe(&event, &mut own),
                None => return,
            },
        }
    }
}

/// Sets the annotation. Returns how long the next write waits.
async fn write(store: &AnyStore, own: &mut Option<Own>, wanted: Option<String>) -> Duration {
    let Some((object, value)) = own else { return REST };
    match store.annotate(object, annotation::UNREACHABLE, wanted.as_deref()).await {
        Ok(_) => {
            tracing::info!(
                clusters = wanted.as_deref().unwrap_or("none"),
                "clusters without a path published"
            );
            *value = wanted;
            REST
        }
        Err(StoreError::NotFound(_) | StoreError::Conflict { .. }) => {
            // Its next incarnation comes with the watch.
            *own = None;
            REST
        }
        Err(error @ (StoreError::Forbidden { .. } | StoreError::Denied { .. })) => {
            tracing::info!(%error, "clusters without a path cannot be published before their connections' status says so");
            RETRY_FORBIDDEN
        }
        Err(error) => {
            tracing::debug!(%error, "clusters without a path not published");
            RETRY
        }
    }
}

/// Takes in what the watch says of the own object.
fn observe(event: &StoreEvent, own: &mut Option<Own>) {
    let of =
        |object: &Object| (object.stub(), object.metadata.annotations.get(annotation::UNREACHABLE).cloned());
    match event {
        StoreEvent::Listed(objects) => *own = objects.first().map(of),
        StoreEvent::Applied(object) => *own = Some(of(object)),
        StoreEvent::Deleted(_) => *own = None,
        StoreEvent::Unavailable(_) | _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trieste_control::api::ObjectMeta;
    use trieste_control::store::Location;

    use super::*;

    fn clusters(of: &[(&str, &[u16])]) -> Clusters {
        let one = |(cluster, cables): &(&str, &[u16])| {
            ((*cluster).to_owned(), cables.iter().map(|cable| CableId(*cable)).collect())
        };
        of.iter().map(one).collect()
    }

    #[test]
    fn a_cluster_is_lost_when_all_its_paths_are_down_that_were_not() {
        let (paths, mut reached) = (Paths::default(), Reached::default());
        let all = clusters(&[("east", &[1, 2]), ("south", &[3])]);
        let mut lost = |states: [PathState; 3], clusters: &Clusters| {
            for (cable, state) in (1..).zip(states) {
                paths.table.set_state(CableId(cable), state);
            }
            reached.lost(clusters, &paths)
        };
        use PathState::{Down, Draining, Held, Unwatched, Up};
        assert_eq!(lost([Down, Down, Down], &all), None, "they were never reached");
        assert_eq!(lost([Up, Down, Unwatched], &all), None);
        assert_eq!(lost([Down, Down, Unwatched], &all).as_deref(), Some("east"));
        assert_eq!(lost([Down, Down, Down], &all).as_deref(), Some("east,south"));
        assert_eq!(lost([Down, Held, Draining], &all), None);
        let without = clusters(&[("south", &[3])]);
        assert_eq!(lost([Down, Down, Up], &without), None);
        assert_eq!(lost([Down, Down, Up], &all), None, "it is new again");
    }

    #[test]
    fn the_annotation_is_bounded() {
        let (paths, mut reached) = (Paths::default(), Reached::default());
        let names: Vec<String> =
            (0..2_000).map(|number| format!("a-cluster-with-a-long-name-{number}")).collect();
        let all: Clusters = names.iter().map(|name| (name.clone(), [CableId(1)].into())).collect();
        paths.table.set_state(CableId(1), PathState::Up);
        assert_eq!(reached.lost(&all, &paths), None);
        paths.table.set_state(CableId(1), PathState::Down);
        let text = reached.lost(&all, &paths).unwrap();
        assert!((MAX_BYTES - 100..=MAX_BYTES).contains(&text.len()), "{}", text.len());
    }

    #[tokio::test]
    async fn the_object_has_what_is_lost_also_when_it_is_made_anew() {
        let directory = tempfile::tempdir().unwrap();
        let location: Location = format!("dir:{}", directory.path().display()).parse().unwrap();
        let store = AnyStore::open(&location).unwrap();
        let gateway = || {
            let mut object = Object::new(Kind::Gateway, ObjectMeta::new("ns", "gw"));
            let endpoint = json!({"cluster_id": "west", "cable_name": "c", "hostname": "gw", "subnets": [],
                "private_ip": "10.0.0.1", "public_ip": "", "nat_enabled": false, "backend": "wireguard"});
            let status = json!({"version": "1", "haStatus": "active", "localEndpoint": endpoint,
                "statusFailure": "", "connections": []});
            object.body.insert("status".to_owned(), status);
            object
        };
        let paths = Paths::default();
        let unreachable = Unreachable::start(store.clone(), ("ns", "gw"), paths.clone());
        paths.table.set_state(CableId(1), PathState::Up);
        unreachable.set_clusters(clusters(&[("east", &[1])]));
        store.create(gateway()).await.unwrap();
        let wait = async |wanted: Option<&str>| {
            let key = gateway().key();
            let until = Instant::now() + Duration::from_secs(20);
            loop {
                let object = store.get(&key).await.unwrap().unwrap();
                let found = object.metadata.annotations.get(annotation::UNREACHABLE);
                if found.map(String::as_str) == wanted {
                    return;
                }
                assert!(Instant::now() < until, "{found:?} is not {wanted:?}");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let set = |state| {
            paths.table.set_state(CableId(1), state);
            paths.changed.send_modify(|generation| *generation += 1);
        };
        // It has to be seen up once.
        tokio::time::sleep(Duration::from_millis(50)).await;
        set(PathState::Down);
        wait(Some("east")).await;
        store.delete(&gateway().key()).await.unwrap();
        store.create(gateway()).await.unwrap();
        wait(Some("east")).await;
        set(PathState::Held);
        wait(None).await;
    }
}

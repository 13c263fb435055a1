//! Clusters find each other through a directory broker, and outlive its absence.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use trieste_control::api::{ClusterSpec, Endpoint, EndpointSpec, Kind, Object, Resource};
use trieste_control::claims::Allowed;
use trieste_control::publish::{Publisher, withdraw_from_broker};
use trieste_control::runner::Write;
use trieste_control::store::{DirOptions, DirStore, Store};
use trieste_control::sync::{BrokerLink, Plan, SyncConfig, SyncHandle, Syncer, View, plan};

const LOCAL_NS: &str = "submariner-operator";
const BROKER_NS: &str = "submariner-k8s-broker";
const GRACE: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusters_find_each_other_through_a_broker_and_forget_who_leaves() {
    let lab = Lab::new();
    let mut members = Vec::new();
    for (index, id) in ["a", "b", "c"].into_iter().enumerate() {
        members.push(lab.join(id, &format!("10.{index}.0.0/16")).await);
    }
    for member in &members {
        wait_for(member, |endpoints| endpoints.len() == 3).await;
        bounded(async {
            while member.store.list(Kind::Cluster, LOCAL_NS).await.unwrap().len() != 3 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
        assert!(member.sync.refused.borrow().is_empty());
    }
    assert_eq!(lab.broker().list(Kind::Endpoint, BROKER_NS).await.unwrap().len(), 3, "something echoed");

    let gone = members.pop().unwrap();
    gone.sync.stop().await;
    withdraw_from_broker(&lab.broker(), BROKER_NS, "c").await.unwrap();
    for member in &members {
        wait_for(member, |endpoints| endpoints.len() == 2).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_endpoint_reaches_the_others() {
    let lab = Lab::new();
    let a = lab.join("a", "10.1.0.0/16").await;
    let b = lab.join("b", "10.2.0.0/16").await;
    wait_for(&b, |endpoints| endpoints.len() == 2).await;
    let mut moved = spec("a", "10.1.0.0/16");
    moved.public_ip = "198.51.100.9".to_owned();
    a.publisher.announce(&cluster("a"), &moved).await.unwrap();
    wait_for(&b, |endpoints| endpoints.iter().any(|e| e.spec.public_ip == "198.51.100.9")).await;

    // A restart with another key is another endpoint under the same name.
    moved.backend_config.insert("publicKey".to_owned(), "another".to_owned());
    a.publisher.announce(&cluster("a"), &moved).await.unwrap();
    wait_for(&b, |endpoints| endpoints.iter().any(|e| e.spec.backend_config.contains_key("publicKey"))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_later_of_two_overlapping_clusters_is_refused_with_a_reason_until_the_older_one_leaves() {
    let lab = Lab::new();
    let a = lab.join("a", "10.1.0.0/16").await;
    let older = lab.join("z-older", "10.2.0.0/16").await;
    wait_for(&a, |endpoints| endpoints.len() == 2).await;
    // Ages are whole seconds.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let _younger = lab.join("younger", "10.2.3.0/24").await;

    let mut refused = a.sync.refused.clone();
    let list = bounded(refused.wait_for(|list| !list.is_empty())).await.unwrap().clone();
    assert_eq!(list[0].cluster, "younger");
    assert!(
        list[0].reason.contains("10.2.3.0/24 overlaps 10.2.0.0/16 of cluster z-older"),
        "{}",
        list[0].reason
    );
    wait_for(&a, |endpoints| endpoints.len() == 2).await;

    older.sync.stop().await;
    withdraw_from_broker(&lab.broker(), BROKER_NS, "z-older").await.unwrap();
    wait_for(&a, |endpoints| endpoints.iter().any(|e| e.spec.cluster_id == "younger")).await;
    bounded(refused.wait_for(Vec::is_empty)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_known_survives_a_broker_that_goes_away_and_news_arrive_when_it_is_back() {
    let lab = Lab::new();
    let a = lab.join("a", "10.1.0.0/16").await;
    let b = lab.join("b", "10.2.0.0/16").await;
    wait_for(&a, |endpoints| endpoints.len() == 2).await;
    let mut state = a.sync.state.clone();
    bounded(state.wait_for(|state| state.state == BrokerLink::Synced)).await.unwrap();

    std::fs::rename(lab.broker_path(), lab.away_path()).unwrap();
    let away = bounded(state.wait_for(|state| state.state == BrokerLink::Away)).await.unwrap().clone();
    assert!(away.error.is_some_and(|error| error.contains("broker")), "the reason names the store");
    assert!(away.since.is_some() && away.next_try.is_some());
    let mut moved = spec("b", "10.2.0.0/16");
    moved.public_ip = "198.51.100.9".to_owned();
    b.publisher.announce(&cluster("b"), &moved).await.unwrap();
    wait_for(&a, |endpoints| endpoints.len() == 2).await;
    assert!(!lab.broker_path().exists(), "nobody may make a broker out of nothing");

    std::fs::rename(lab.away_path(), lab.broker_path()).unwrap();
    bounded(state.wait_for(|state| state.state == BrokerLink::Synced)).await.unwrap();
    wait_for(&a, |endpoints| endpoints.iter().any(|e| e.spec.public_ip == "198.51.100.9")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_starts_from_what_it_knew_while_the_broker_is_away() {
    let lab = Lab::new();
    let a = lab.join("a", "10.1.0.0/16").await;
    let _b = lab.join("b", "10.2.0.0/16").await;
    wait_for(&a, |endpoints| endpoints.len() == 2).await;
    a.sync.stop().await;
    std::fs::rename(lab.broker_path(), lab.away_path()).unwrap();

    let again = lab.join("a", "10.1.0.0/16").await;
    let mut state = again.sync.state.clone();
    bounded(state.wait_for(|state| state.state == BrokerLink::Away)).await.unwrap();
    assert_eq!(endpoints(&again.store, LOCAL_NS).await.len(), 2, "the cache was forgotten");
    std::fs::rename(lab.away_path(), lab.broker_path()).unwrap();
    bounded(state.wait_for(|state| state.state == BrokerLink::Synced)).await.unwrap();
    wait_for(&again, |endpoints| endpoints.len() == 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_clusters_with_one_id_do_not_wear_the_broker_out() {
    let lab = Lab::new();
    let one = lab.join_from("a", "10.1.0.0/16", "one").await;
    let two = lab.join_from("a", "10.2.0.0/16", "two").await;
    // Whoever wrote too often gives in and says why; the other one then has its way.
    let (mut first, mut second) = (one.sync.state.clone(), two.sync.state.clone());
    let told = bounded(async {
        tokio::select! {
            state = first.wait_for(|state| state.error.is_some()) => state.unwrap().clone(),
            state = second.wait_for(|state| state.error.is_some()) => state.unwrap().clone(),
        }
    });
    let error = told.await.error.unwrap();
    assert!(error.contains("does another cluster use our ID"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_not_mounted_is_away_and_nobody_is_forgotten() {
    let lab = Lab::new();
    let a = lab.join("a", "10.1.0.0/16").await;
    let _b = lab.join("b", "10.2.0.0/16").await;
    wait_for(&a, |endpoints| endpoints.len() == 2).await;
    let mut state = a.sync.state.clone();
    bounded(state.wait_for(|state| state.state == BrokerLink::Synced)).await.unwrap();

    std::fs::rename(lab.broker_path(), lab.away_path()).unwrap();
    std::fs::create_dir(lab.broker_path()).unwrap();
    let is_told = |state: &trieste_control::sync::BrokerState| {
        state.error.as_ref().is_some_and(|error| error.contains("is it mounted?"))
    };
    bounded(state.wait_for(is_told)).await.unwrap();
    a.publisher.announce(&cluster("a"), &spec("a", "10.3.0.0/16")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(endpoints(&a.store, LOCAL_NS).await.len(), 2, "an empty mount point was believed");
    assert_eq!(std::fs::read_dir(lab.broker_path()).unwrap().count(), 0, "it was written to");

    std::fs::remove_dir(lab.broker_path()).unwrap();
    std::fs::rename(lab.away_path(), lab.broker_path()).unwrap();
    bounded(state.wait_for(|state| state.state == BrokerLink::Synced)).await.unwrap();
    wait_for(&a, |endpoints| endpoints.len() == 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_other_cluster_is_forgotten_after_the_grace_only() {
    let lab = Lab::new();
    let a = lab.join("a", "10.1.0.0/16").await;
    let b = lab.join("b", "10.2.0.0/16").await;
    wait_for(&a, |endpoints| endpoints.len() == 2).await;
    b.sync.stop().await;
    // In one step: a withdrawal takes several.
    let emptied_at = Instant::now();
    std::fs::rename(lab.broker_path().join(BROKER_NS), lab.away_path()).unwrap();
    wait_for(&a, |endpoints| endpoints.len() == 1).await;
    assert!(emptied_at.elapsed() >= GRACE, "the copies were kept for {:?} only", emptied_at.elapsed());
    assert_eq!(lab.broker().list(Kind::Endpoint, BROKER_NS).await.unwrap().len(), 1, "ours is pushed");
}

#[test]
fn where_upstream_has_synced_there_is_nothing_to_do_and_what_we_push_is_what_it_pushed() {
    let read = |text: &str| -> Vec<Object> {
        let list: serde_json::Value = serde_saphyr::from_str(text).unwrap();
        list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| Object::from_value(item.clone()).unwrap())
            .collect()
    };
    let local = [
        read(include_str!("../golden/plain/a-clusters.yaml")),
        read(include_str!("../golden/plain/a-endpoints.yaml")),
    ]
    .concat();
    let broker = [
        read(include_str!("../golden/plain/broker-clusters.yaml")),
        read(include_str!("../golden/plain/broker-endpoints.yaml")),
    ]
    .concat();
    let plan_with = |local: &[&Object], broker: &[&Object]| {
        let subnets = ["100.1.0.0/16".parse().unwrap(), "10.1.0.0/16".parse().unwrap()];
        let (local_namespace, broker_namespace) = (LOCAL_NS, BROKER_NS);
        let view = View {
            cluster_id: "cluster-a",
            local_namespace,
            broker_namespace,
            local_subnets: &subnets,
            // Upstream's test clusters have their services in 100.0.0.0/8, which is not private space.
            allowed: &Allowed::of(vec!["10.0.0.0/8".parse().unwrap(), "100.0.0.0/8".parse().unwrap()]),
            local,
            broker,
        };
        plan(&view)
    };
    let (all_local, all_broker): (Vec<_>, Vec<_>) = (local.iter().collect(), broker.iter().collect());
    assert_eq!(plan_with(&all_local, &all_broker), Plan::default());

    let own: Vec<&Object> = local.iter().filter(|object| object.metadata.origin().is_none()).collect();
    let theirs: Vec<&Object> =
        broker.iter().filter(|object| object.metadata.origin() == Some("cluster-b")).collect();
    let writes = plan_with(&own, &theirs).writes;
    assert_eq!(writes.len(), 4);
    for (_, write) in &writes {
        let Write::Create(copy) = write else { panic!("{write:?}") };
        let recorded = local.iter().chain(&broker).find(|object| object.key() == copy.key()).unwrap();
        assert!(copy.same_content(recorded), "{copy:?} is not what was recorded: {recorded:?}");
    }
}

/// A broker's directory, and members' stores beside it.
struct Lab {
    root: TempDir,
}

struct Member {
    store: DirStore,
    publisher: Publisher<DirStore>,
    sync: SyncHandle,
}

impl Lab {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("broker")).unwrap();
        Self { root }
    }

    fn broker_path(&self) -> PathBuf {
        self.root.path().join("broker")
    }

    fn away_path(&self) -> PathBuf {
        self.root.path().join("away")
    }

    fn broker(&self) -> DirStore {
        DirStore::attach_with(self.broker_path(), quick())
    }

    async fn join(&self, id: &str, subnet: &str) -> Member {
        self.join_from(id, subnet, id).await
    }

    async fn join_from(&self, id: &str, subnet: &str, store: &str) -> Member {
        let path: &Path = &self.root.path().join(store);
        let store = DirStore::open_with(path, quick()).unwrap();
        let publisher = Publisher::new(store.clone(), LOCAL_NS, id, format!("{id}-gw1"));
        publisher.announce(&cluster(id), &spec(id, subnet)).await.unwrap();
        let mut config = SyncConfig::new(id, vec![subnet.parse().unwrap()]);
        config.retry_initial = Duration::from_millis(50);
        config.retry_max = Duration::from_millis(200);
        config.empty_grace = GRACE;
        let memory = self.root.path().join(format!("{id}-broker-id"));
        let broker = DirStore::attach_remembering_with(self.broker_path(), memory, quick());
        let sync = Syncer::spawn(store.clone(), broker, config);
        Member { store, publisher, sync }
    }
}

fn quick() -> DirOptions {
    DirOptions {
        debounce: Duration::from_millis(10),
        resync: Duration::from_secs(2),
        ..DirOptions::default()
    }
}

fn cluster(id: &str) -> ClusterSpec {
    ClusterSpec::new(id, &[], &[])
}

fn spec(id: &str, subnet: &str) -> EndpointSpec {
    EndpointSpec {
        cluster_id: id.to_owned(),
        cable_name: format!("submariner-cable-{id}-192-0-2-1"),
        hostname: format!("{id}-gw1"),
        subnets: vec![subnet.to_owned()],
        private_ip: "192.0.2.1".to_owned(),
        backend: "wireguard".to_owned(),
        ..EndpointSpec::default()
    }
}

async fn endpoints(store: &DirStore, namespace: &str) -> Vec<Endpoint> {
    let objects: Vec<Object> = store.list(Kind::Endpoint, namespace).await.unwrap();
    objects.iter().map(|object| Endpoint::from_object(object).unwrap()).collect()
}

async fn wait_for(member: &Member, is_reached: impl Fn(&[Endpoint]) -> bool) {
    let poll = async {
        while !is_reached(&endpoints(&member.store, LOCAL_NS).await) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let outcome = tokio::time::timeout(PATIENCE, poll).await;
    assert!(outcome.is_ok(), "not reached: {:?}", endpoints(&member.store, LOCAL_NS).await);
}

async fn bounded<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it should have happened by now")
}

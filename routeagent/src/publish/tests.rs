use trieste_control::api::ConnectionStatus;
use trieste_control::store::DirStore;

use super::*;
use crate::state::Endpoint;

/// Longer than anything takes that works at all.
const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn the_object_is_written_when_it_says_something_else_and_not_otherwise() {
    let (_folder, store) = store();
    let failed = Condition::Failed { change: "c".to_owned(), error: "e".to_owned() };
    let content =
        |conditions: &[Condition]| Content::new(&[remote()], &Checking::Off, node_conditions(conditions));
    let key = key();
    put(&store, &key, &content(&[])).await.unwrap();
    let mut first = store.get(&key).await.unwrap().unwrap();
    first.metadata.annotations.insert("theirs".to_owned(), "kept".to_owned());
    let first = store.update(first).await.unwrap();

    put(&store, &key, &content(&[])).await.unwrap();
    assert_eq!(store.get(&key).await.unwrap().unwrap(), first);
    put(&store, &key, &content(std::slice::from_ref(&failed))).await.unwrap();
    let second = store.get(&key).await.unwrap().unwrap();

    assert_eq!(second.metadata.annotations["theirs"], "kept");
    let told = RouteAgent::from_object(&second).unwrap();
    assert!(told.is_ours());
    assert_eq!(told.conditions()[0].message, failed.to_string());
    assert_eq!(told.status.status_failure, failed.to_string());
    put(&store, &key, &content(&[])).await.unwrap();
    let third = store.get(&key).await.unwrap().unwrap();
    assert!(!third.metadata.annotations.contains_key(annotation::CONDITIONS));
}

#[tokio::test]
async fn a_gateway_node_has_an_object_from_its_first_pass_until_it_stops() {
    let (_folder, store) = store();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (inputs, channels) = inputs();
    let publisher = Publisher::new(store.clone(), "ns", "n1", node(), Some(PingerConfig::default()));
    let task = tokio::spawn(publisher.run(inputs, async move { drop(stopped.await) }));
    channels.remotes.send_replace(vec![remote()]);
    channels.views.send_replace(Some(ClusterView {
        endpoints: vec![Endpoint::new("own", "a", "h1")],
        ..ClusterView::default()
    }));
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(store.get(&key()).await.unwrap().is_none(), "written before a pass was made");

    channels.reports.send_replace(Report { passes: 1, is_good: true, ..Report::default() });
    let object = wait(&store, |object| object.is_some()).await.unwrap();
    let of = |object: &Object| RouteAgent::from_object(object).unwrap().status.remote_endpoints;
    let remotes = of(&object);
    assert_eq!((remotes[0].status, &remotes[0].spec), (Some(ConnectionStatus::None), &remote()));
    // Remote gateways change while nothing else does.
    let moved = EndpointSpec { hostname: "moved".to_owned(), ..remote() };
    channels.remotes.send_replace(vec![moved.clone()]);
    wait(&store, |object| object.as_ref().is_some_and(|object| of(object)[0].spec == moved)).await.unwrap();
    stop.send(()).unwrap();
    task.await.unwrap();

    assert_eq!(store.get(&key()).await.unwrap(), None);
    assert!(!withdraw(&store, "ns", "n1").await.unwrap());
}

#[tokio::test]
async fn news_are_written_at_once_round_trips_and_deletions_within_a_minute_and_failures_wait() {
    let content =
        |conditions: &[Condition]| Content::new(&[remote()], &Checking::Off, node_conditions(conditions));
    let (quiet, bad) = (content(&[]), content(&[Condition::NoNft]));
    let mut timed = quiet.clone();
    timed.status.remote_endpoints[0].latency_rtt = Some(trieste_control::api::LatencyRtt::default());
    let start = Instant::now();
    let mut ledger = Ledger::default();
    assert_eq!(ledger.due(&quiet, start), start);
    ledger.note(Some(quiet.clone()), start);
    let due = |ledger: &Ledger, content| ledger.due(content, start).duration_since(start);
    assert_eq!([&bad, &timed, &quiet].map(|one| due(&ledger, one)), [AT_MOST_EVERY, REFRESH, REFRESH]);
    let mut waits = Vec::new();
    for _ in 0..8 {
        ledger.note(None, start);
        waits.push(due(&ledger, &quiet));
    }
    assert!(waits[0] < Duration::from_secs(4) && waits[7] >= Duration::from_secs(30), "{waits:?}");
}

struct Channels {
    views: watch::Sender<Option<ClusterView>>,
    remotes: watch::Sender<Vec<EndpointSpec>>,
    reports: watch::Sender<Report>,
}

fn inputs() -> (Inputs, Channels) {
    let (views, remotes, reports) =
        (watch::channel(None), watch::channel(Vec::new()), watch::channel(Report::default()));
    let inputs = Inputs { views: views.1, remotes: remotes.1, reports: reports.1 };
    (inputs, Channels { views: views.0, remotes: remotes.0, reports: reports.0 })
}

async fn wait(store: &DirStore, is_good: impl Fn(&Option<Object>) -> bool) -> Option<Object> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let object = store.get(&key()).await.unwrap();
        if is_good(&object) {
            return object;
        }
        assert!(Instant::now() < deadline, "{object:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn store() -> (tempfile::TempDir, DirStore) {
    let folder = tempfile::tempdir().unwrap();
    let store = DirStore::open(folder.path()).unwrap();
    (folder, store)
}

fn key() -> ObjectKey {
    ObjectKey::new(Kind::RouteAgent, "ns", "n1")
}

fn node() -> Node {
    Node { cluster: "a".to_owned(), hostname: "h1".to_owned(), ..Node::default() }
}

fn remote() -> EndpointSpec {
    let spec = json!({"cluster_id": "b", "cable_name": "cable", "healthCheckIP": "10.2.1.1", "hostname": "b-gw1",
        "subnets": ["10.2.0.0/16"], "private_ip": "172.31.2.11", "public_ip": "", "nat_enabled": false,
        "backend": "wireguard"});
    serde_json::from_value(spec).unwrap()
}

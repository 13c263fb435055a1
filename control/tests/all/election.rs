//! Candidates and leaders on a store with faults, under a paused clock.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use trieste_control::api::{
    ClusterNetworks, Endpoint, EndpointSpec, Kind, Object, Resource, cable_name, label,
};
use trieste_control::election::{
    Candidate, DEFAULT_RELEASE_TIMEOUT, ElectionConfig, ElectionEvent, GATEWAY_LEASE, Lease, LeaseSpec,
    LossReason, Timings, spawn,
};
use trieste_control::leader::{self, LeaderConfig, LeaderHandle, LeaderState, TERM_ANNOTATION};

use crate::memory_store::{Fault, MemoryStore};

const NS: &str = "submariner-operator";

#[tokio::test(start_paused = true)]
async fn the_lease_is_upstreams_field_by_field() {
    let store = MemoryStore::default();
    let one = candidate(&store, "a-gw1");
    leads(&one).await;
    let lease = store.peek(Kind::Lease, GATEWAY_LEASE).unwrap();
    let fields: Vec<&String> = lease.body["spec"].as_object().unwrap().keys().collect();
    assert_eq!(
        fields,
        ["acquireTime", "holderIdentity", "leaseDurationSeconds", "leaseTransitions", "renewTime"]
    );
    let spec = &lease.body["spec"];
    assert_eq!(
        (&spec["holderIdentity"], &spec["leaseDurationSeconds"]),
        (&"a-gw1-submariner-gateway".into(), &15.into())
    );
    assert_eq!(spec["leaseTransitions"], 0);
    assert_eq!(lease.api_version, "coordination.k8s.io/v1");
    let status = one.status().borrow().clone();
    assert_eq!(
        (status.lease.as_str(), status.is_leader, status.term),
        ("submariner-operator/submariner-gateway-lock", true, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn a_release_hands_over_at_once_and_a_silent_end_after_the_lease_duration() {
    let store = MemoryStore::default();
    let one = candidate(&store, "gw1");
    leads(&one).await;
    let two = candidate(&store, "gw2");
    sleep(Duration::from_secs(30)).await;
    assert!(!two.is_leader(now()));

    let start = Instant::now();
    assert!(one.release(DEFAULT_RELEASE_TIMEOUT).await);
    assert!(!one.is_leader(now()));
    leads(&two).await;
    assert!(start.elapsed() < Duration::from_millis(100), "{:?}", start.elapsed());

    let three = candidate(&store, "gw3");
    sleep(Duration::from_secs(5)).await;
    let start = Instant::now();
    drop(two);
    leads(&three).await;
    let took = start.elapsed();
    assert!((Duration::from_secs(13)..Duration::from_secs(16)).contains(&took), "{took:?}");
    assert_eq!(three.term(now()).unwrap().number(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_release_returns_in_time_although_the_api_hangs() {
    let store = MemoryStore::default();
    let one = candidate(&store, "gw1");
    leads(&one).await;
    store.set_fault(Fault::Hangs);
    let start = Instant::now();
    assert!(!one.release(DEFAULT_RELEASE_TIMEOUT).await);
    assert_eq!(start.elapsed(), DEFAULT_RELEASE_TIMEOUT);
    assert!(!one.is_leader(now()));
}

#[tokio::test(start_paused = true)]
async fn an_api_that_is_away_costs_the_leadership_after_the_deadline_and_is_told_with_time_and_reason() {
    for fault in [Fault::Hangs, Fault::Fails] {
        let store = MemoryStore::default();
        let one = candidate(&store, "gw1");
        leads(&one).await;
        let mut events = one.events();
        store.set_fault(fault);
        sleep(Duration::from_secs(8)).await;
        assert!(one.is_leader(now()), "{fault:?}: not before the deadline");
        sleep(Duration::from_secs(52)).await;
        assert!(!one.is_leader(now()), "{fault:?}");
        let lost = events.recv().await.unwrap();
        assert!(matches!(lost, ElectionEvent::Lost { reason: LossReason::RenewDeadline(_), .. }), "{lost:?}");
        let error = one.status().borrow().error.clone().unwrap();
        assert!(error.contains("(since 20"), "{error}");
        store.set_fault(Fault::None);
        leads(&one).await;
        assert_eq!(one.term(now()).unwrap().number(), 0, "nobody else has led meanwhile");
        assert_eq!(one.status().borrow().error, None);
    }
}

#[tokio::test(start_paused = true)]
async fn answers_that_take_five_seconds_or_get_lost_now_and_then_do_not_cost_the_leadership() {
    let store = MemoryStore::default();
    let one = candidate(&store, "gw1");
    leads(&one).await;
    let mut events = one.events();
    store.set_fault(Fault::Slow(Duration::from_secs(5)));
    sleep(Duration::from_secs(60)).await;
    for _ in 0..10 {
        store.set_fault(Fault::LosesReplies);
        sleep(Duration::from_secs(3)).await;
        store.set_fault(Fault::None);
        sleep(Duration::from_secs(7)).await;
    }
    assert!(one.is_leader(now()));
    assert!(events.try_recv().is_err(), "nothing has changed");
}

#[tokio::test(start_paused = true)]
async fn a_healthy_leader_writes_once_per_period_and_a_healthy_candidate_asks_nothing() {
    let store = MemoryStore::default();
    let one = candidate(&store, "gw1");
    leads(&one).await;
    let _two = candidate(&store, "gw2");
    sleep(Duration::from_secs(1)).await;
    store.take_log();
    sleep(Duration::from_secs(60)).await;
    let log = store.take_log();
    assert!((29..=31).contains(&log.len()) && log.iter().all(|entry| entry.starts_with("update")), "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn the_lease_edited_or_deleted_by_hand() {
    let store = MemoryStore::default();
    let one = candidate(&store, "gw1");
    leads(&one).await;
    store.edit(Kind::Lease, GATEWAY_LEASE, |lease| {
        lease.body.get_mut("spec").unwrap()["holderIdentity"] = "somebody".into();
    });
    sleep(Duration::from_millis(10)).await;
    assert!(!one.is_leader(now()), "another name is honoured at once");
    assert_eq!(one.status().borrow().holder, "somebody");
    leads(&one).await;
    assert_eq!(one.term(now()).unwrap().number(), 1, "for as long as the Lease says");

    store.remove(Kind::Lease, GATEWAY_LEASE);
    sleep(Duration::from_millis(10)).await;
    assert!(one.is_leader(now()));
    let lease = Lease::from_object(&store.peek(Kind::Lease, GATEWAY_LEASE).unwrap()).unwrap();
    assert_eq!(lease.spec.lease_transitions, Some(1), "it was made again, and the count kept");

    store.edit(Kind::Lease, GATEWAY_LEASE, |lease| drop(lease.body.remove("spec")));
    sleep(Duration::from_millis(10)).await;
    leads(&one).await;
}

#[tokio::test(start_paused = true)]
async fn a_candidate_told_not_to_run_gives_up_and_comes_back_when_told() {
    let store = MemoryStore::default();
    let one = candidate(&store, "gw1");
    leads(&one).await;
    one.set_eligible(false);
    sleep(Duration::from_secs(60)).await;
    assert!(!one.is_leader(now()));
    let lease = Lease::from_object(&store.peek(Kind::Lease, GATEWAY_LEASE).unwrap()).unwrap();
    assert_eq!(lease.spec.holder_identity, "");
    one.set_eligible(true);
    leads(&one).await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_becomes_the_one_endpoint_in_upstreams_order_of_writes() {
    let store = MemoryStore::default();
    store.put(Endpoint::new(NS, endpoint("192.0.2.9")).unwrap().to_object());
    let mut copy =
        Endpoint::new(NS, EndpointSpec { cluster_id: "b".to_owned(), ..endpoint("192.0.2.8") }).unwrap();
    copy.metadata.labels.insert(label::CLUSTER_ID.to_owned(), "b".to_owned());
    store.put(copy.to_object());
    let bed = Bed::start(&store, "gw1", "192.0.2.1");
    bed.announced().await;
    let writes = |entry: &String| !["get", "watch", "list"].iter().any(|verb| entry.starts_with(verb));
    let log: Vec<String> = store.take_log().into_iter().filter(writes).collect();
    assert_eq!(
        log,
        [
            "create Lease submariner-operator/submariner-gateway-lock",
            "delete Endpoint submariner-operator/a-submariner-cable-a-192-0-2-9",
            "create Cluster submariner-operator/a",
            "create Endpoint submariner-operator/a-submariner-cable-a-192-0-2-1",
        ]
    );
    sleep(Duration::from_secs(60)).await;
    assert!(store.take_log().iter().all(|entry| entry.starts_with("update Lease")), "it is done");
}

#[tokio::test(start_paused = true)]
async fn each_new_leader_takes_the_cluster_over_also_for_the_second_time() {
    let store = MemoryStore::default();
    let one = Bed::start(&store, "gw1", "192.0.2.1");
    one.announced().await;
    let two = Bed::start(&store, "gw2", "192.0.2.2");
    for (from, to, address) in
        [(&one, &two, "192-0-2-2"), (&two, &one, "192-0-2-1"), (&one, &two, "192-0-2-2")]
    {
        from.candidate.set_eligible(false);
        to.announced().await;
        assert_eq!(store.names(Kind::Endpoint), [format!("a-submariner-cable-a-{address}")]);
        from.candidate.set_eligible(true);
    }
    let spec = Endpoint::from_object(&store.peek(Kind::Endpoint, "a-submariner-cable-a-192-0-2-2").unwrap())
        .unwrap();
    assert_eq!(spec.metadata.annotations[TERM_ANNOTATION], "3");
}

#[tokio::test(start_paused = true)]
async fn what_others_change_about_our_objects_is_put_right() {
    let store = MemoryStore::default();
    let bed = Bed::start(&store, "gw1", "192.0.2.1");
    bed.announced().await;
    let name = "a-submariner-cable-a-192-0-2-1";
    store.remove(Kind::Endpoint, name);
    store.remove(Kind::Cluster, "a");
    store.put(Endpoint::new(NS, endpoint("192.0.2.7")).unwrap().to_object());
    sleep(Duration::from_millis(100)).await;
    bed.announced().await;
    assert_eq!(
        (store.names(Kind::Endpoint), store.names(Kind::Cluster)),
        (vec![name.to_owned()], vec!["a".to_owned()])
    );
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_own_endpoint_is_an_update_of_the_same_object() {
    let store = MemoryStore::default();
    let bed = Bed::start(&store, "gw1", "192.0.2.1");
    bed.announced().await;
    let uid = |object: Object| object.metadata.uid;
    let before = uid(store.peek(Kind::Endpoint, "a-submariner-cable-a-192-0-2-1").unwrap());
    bed.own.send_modify(|own| own.public_ip = "198.51.100.1".to_owned());
    sleep(Duration::from_millis(100)).await;
    let after = store.peek(Kind::Endpoint, "a-submariner-cable-a-192-0-2-1").unwrap();
    assert_eq!(after.body["spec"]["public_ip"], "198.51.100.1");
    assert_eq!(uid(after), before);
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_a_successor_removed_is_not_made_again_by_a_change() {
    let store = MemoryStore::default();
    let bed = Bed::start(&store, "gw1", "192.0.2.1");
    bed.announced().await;
    // A successor that this leader does not know of yet: its renewals hang, and it believes.
    store.set_fault(Fault::Slow(Duration::from_secs(5)));
    sleep(Duration::from_secs(3)).await;
    let mut lease = Lease::from_object(&store.peek(Kind::Lease, GATEWAY_LEASE).unwrap()).unwrap();
    lease.spec = LeaseSpec { holder_identity: "gw2".to_owned(), ..lease.spec };
    store.remove(Kind::Endpoint, "a-submariner-cable-a-192-0-2-1");
    bed.own.send_modify(|own| own.public_ip = "198.51.100.1".to_owned());
    sleep(Duration::from_millis(500)).await;
    assert!(bed.candidate.is_leader(now()), "it still believes");
    store.put(lease.to_object());
    sleep(Duration::from_secs(9)).await;
    assert_eq!(store.names(Kind::Endpoint), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_newer_term_on_the_endpoint_is_outbid_by_the_true_leader() {
    let store = MemoryStore::default();
    let mut old = Endpoint::new(NS, endpoint("192.0.2.9")).unwrap();
    old.metadata.annotations.insert(TERM_ANNOTATION.to_owned(), "41".to_owned());
    store.put(old.to_object());
    let bed = Bed::start(&store, "gw1", "192.0.2.1");
    bed.announced().await;
    assert_eq!(bed.candidate.term(now()).unwrap().number(), 42);
    let own = store.peek(Kind::Endpoint, "a-submariner-cable-a-192-0-2-1").unwrap();
    assert_eq!(own.metadata.annotations[TERM_ANNOTATION], "42");
}

#[tokio::test(start_paused = true)]
async fn failures_are_told_and_repeated_until_they_are_over() {
    let store = MemoryStore::default();
    let bed = Bed::start(&store, "gw1", "192.0.2.1");
    bed.announced().await;
    store.set_fault(Fault::Fails);
    bed.own.send_modify(|own| own.public_ip = "198.51.100.1".to_owned());
    sleep(Duration::from_secs(1)).await;
    let told = bed.leader.status.borrow().clone();
    assert_eq!(told.state, LeaderState::Announcing);
    assert!(told.problem.unwrap().contains("the API is away"));
    store.set_fault(Fault::None);
    bed.announced().await;
    assert_eq!(
        store.peek(Kind::Endpoint, "a-submariner-cable-a-192-0-2-1").unwrap().body["spec"]["public_ip"],
        "198.51.100.1"
    );
}

struct Bed {
    candidate: Candidate,
    leader: LeaderHandle,
    own: watch::Sender<EndpointSpec>,
}

impl Bed {
    fn start(store: &MemoryStore, host: &str, address: &str) -> Self {
        let candidate = candidate(store, host);
        let (own, receiver) = watch::channel(endpoint(address));
        let config = LeaderConfig {
            namespace: NS.to_owned(),
            cluster_id: "a".to_owned(),
            networks: watch::channel(ClusterNetworks::default()).1,
        };
        let leader = leader::spawn(store.clone(), config, candidate.clone(), receiver);
        Self { candidate, leader, own }
    }

    async fn announced(&self) {
        let mut status = self.leader.status.clone();
        let announced = status.wait_for(|status| status.state == LeaderState::Announced);
        drop(timeout(Duration::from_secs(30), announced).await.expect("it announces itself").unwrap());
    }
}

fn candidate(store: &MemoryStore, host: &str) -> Candidate {
    spawn(store.clone(), ElectionConfig::gateway(NS, host, Timings::default()))
}

async fn leads(candidate: &Candidate) {
    let mut leadership = candidate.leadership();
    let held = leadership.wait_for(Option::is_some);
    drop(timeout(Duration::from_secs(30), held).await.expect("it leads").unwrap());
}

fn now() -> std::time::Instant {
    Instant::now().into_std()
}

fn endpoint(address: &str) -> EndpointSpec {
    EndpointSpec {
        cluster_id: "a".to_owned(),
        cable_name: cable_name("a", address.parse().unwrap()),
        hostname: format!("host-{address}"),
        private_ip: address.to_owned(),
        backend: "wireguard".to_owned(),
        ..EndpointSpec::default()
    }
}

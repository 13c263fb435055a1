//! The loop on a store with faults, under a paused clock.

use std::time::Duration;

use serde_json::json;
use tokio::time::{sleep, timeout};
use trieste_control::api::{Kind, Object, annotation, internal_service_name};
use trieste_control::election::{self, Candidate, ElectionConfig, GLOBALNET_LEASE, Timings};
use trieste_control::globalnet::{GlobalnetConfig, GlobalnetHandle, GlobalnetPhase, spawn, withdraw};

use super::world::{GATEWAY, NS, World, addresses, egress, endpoints, export, ip, pod, service};
use crate::memory_store::{Fault, MemoryStore};

fn store() -> MemoryStore {
    let store = MemoryStore::default();
    let mut world = World::new("242.1.0.0/16");
    world.put(service("demo", "web", "100.1.0.7", "web"));
    world.put(export("demo", "web"));
    world.put(service("demo", "db", "None", "db"));
    world.put(export("demo", "db"));
    world.put(pod("demo", "db-0", "db", "10.1.0.1"));
    world.put(egress("demo", "e", 2, ""));
    world.objects.into_values().for_each(|object| store.put(object));
    store
}

fn candidate(store: &MemoryStore, node: &str) -> Candidate {
    election::spawn(store.clone(), ElectionConfig::globalnet(NS, node))
}

fn start(store: &MemoryStore, candidate: &Candidate) -> GlobalnetHandle {
    let config = GlobalnetConfig {
        namespace: NS.to_owned(),
        cluster_id: "cluster-a".to_owned(),
        gateway: Some(GATEWAY.to_owned()),
    };
    spawn(store.clone(), config, candidate.clone())
}

async fn reaches(handle: &GlobalnetHandle, phase: GlobalnetPhase) {
    let mut status = handle.status.clone();
    let reached = status.wait_for(|status| status.phase == phase);
    if timeout(Duration::from_secs(120), reached).await.is_err() {
        panic!("never {phase:?}: {:?}", *handle.status.borrow());
    }
}

fn writes(store: &MemoryStore) -> Vec<String> {
    let log = store.take_log();
    let is_ours = |line: &&String| {
        ["create", "update", "delete"].iter().any(|verb| line.starts_with(verb)) && !line.contains("Lease")
    };
    log.iter().filter(is_ours).cloned().collect()
}

#[tokio::test(start_paused = true)]
async fn the_leader_writes_everything_and_then_nothing() {
    let store = store();
    let one = candidate(&store, GATEWAY);
    let handle = start(&store, &one);
    reaches(&handle, GlobalnetPhase::Settled).await;
    let state = handle.state.borrow().clone().unwrap();
    assert_eq!((state.ingress.len(), state.egress.len()), (2, 3));
    assert!(store.peek(Kind::Service, &internal_service_name("web")).is_some());
    assert_eq!(state.gateway(GATEWAY), Some(ip("242.1.255.254")));
    let lease = store.peek(Kind::Lease, GLOBALNET_LEASE).unwrap();
    assert_eq!(lease.body["spec"]["holderIdentity"], "a-gw1-submariner-gateway");
    assert_eq!(lease.body["spec"]["leaseDurationSeconds"], 20);
    let _ = writes(&store);
    sleep(Duration::from_secs(600)).await;
    assert_eq!(writes(&store), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn who_does_not_lead_tells_the_same_state_and_writes_nothing() {
    let store = store();
    let one = candidate(&store, GATEWAY);
    let first = start(&store, &one);
    reaches(&first, GlobalnetPhase::Settled).await;
    let two = candidate(&store, "a-gw2");
    let second = start(&store, &two);
    reaches(&second, GlobalnetPhase::Standby).await;
    assert_eq!(*second.state.borrow(), *first.state.borrow());

    let before = store.peek(Kind::GlobalIngressIp, "web").unwrap();
    assert!(one.release(Duration::from_secs(1)).await);
    reaches(&second, GlobalnetPhase::Settled).await;
    reaches(&first, GlobalnetPhase::Standby).await;
    store.put(Object::from_value(service("demo", "late", "100.1.0.8", "x")).unwrap());
    store.put(Object::from_value(export("demo", "late")).unwrap());
    sleep(Duration::from_secs(5)).await;
    assert_eq!(store.peek(Kind::GlobalIngressIp, "web").unwrap(), before, "a successor moves nothing");
    assert_eq!(addresses(&store.peek(Kind::GlobalIngressIp, "late").unwrap()).len(), 1);
    assert_eq!(*second.state.borrow(), *first.state.borrow());
}

#[tokio::test(start_paused = true)]
async fn lost_answers_and_outages_end_in_the_same_objects() {
    for fault in [Fault::LosesReplies, Fault::Fails, Fault::Hangs, Fault::Slow(Duration::from_secs(2))] {
        let store = store();
        let one = candidate(&store, GATEWAY);
        let handle = start(&store, &one);
        sleep(Duration::from_millis(120)).await;
        store.set_fault(fault);
        sleep(Duration::from_secs(7)).await;
        store.set_fault(Fault::None);
        store.break_watches();
        sleep(Duration::from_secs(90)).await;
        reaches(&handle, GlobalnetPhase::Settled).await;
        let state = handle.state.borrow().clone().unwrap();
        assert_eq!((state.ingress.len(), state.egress.len()), (2, 3), "{fault:?}");
        assert_eq!(state.pool.unwrap().allocated, 13, "{fault:?}");
        let mut all: Vec<_> = state.ingress.iter().map(|pair| pair.global).collect();
        all.extend(
            state.egress.iter().filter(|rule| rule.name != "demo/pod-db-0").flat_map(|rule| &rule.addresses),
        );
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "{fault:?}: an address is given twice");
    }
}

#[tokio::test(start_paused = true)]
async fn somebody_who_undoes_every_write_does_not_make_a_loop_of_it() {
    let store = store();
    let one = candidate(&store, GATEWAY);
    let handle = start(&store, &one);
    reaches(&handle, GlobalnetPhase::Settled).await;
    let _ = writes(&store);
    let rival = store.clone();
    let undoing = tokio::spawn(async move {
        loop {
            rival.edit(Kind::Service, &internal_service_name("web"), |object| {
                object.body["spec"]["externalIPs"] = json!(["1.2.3.4"]);
            });
            sleep(Duration::from_millis(20)).await;
        }
    });
    sleep(Duration::from_secs(300)).await;
    let ours = writes(&store).len();
    assert!((3..30).contains(&ours), "{ours} writes in five minutes");
    // Others are served meanwhile.
    store.put(Object::from_value(egress("demo", "late", 1, "")).unwrap());
    sleep(Duration::from_secs(2)).await;
    assert_eq!(addresses(&store.peek(Kind::GlobalEgressIp, "late").unwrap()).len(), 1);
    undoing.abort();
}

#[tokio::test(start_paused = true)]
async fn a_restart_begins_with_what_is_there() {
    let store = store();
    let one = candidate(&store, GATEWAY);
    let handle = start(&store, &one);
    reaches(&handle, GlobalnetPhase::Settled).await;
    let before = handle.state.borrow().clone();
    drop((handle, one));
    let _ = writes(&store);
    let again = candidate(&store, GATEWAY);
    let handle = start(&store, &again);
    reaches(&handle, GlobalnetPhase::Settled).await;
    assert_eq!(*handle.state.borrow(), before);
    assert_eq!(writes(&store), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn the_gateways_annotation_is_written_beside_what_the_gateway_itself_writes() {
    let store = store();
    let one = candidate(&store, GATEWAY);
    let handle = start(&store, &one);
    let beats = store.clone();
    let beating = tokio::spawn(async move {
        for beat in 0_u32.. {
            beats.edit(Kind::Gateway, GATEWAY, |object| {
                object.metadata.annotations.insert("update-timestamp".to_owned(), beat.to_string());
            });
            sleep(Duration::from_millis(5)).await;
        }
    });
    reaches(&handle, GlobalnetPhase::Settled).await;
    sleep(Duration::from_secs(1)).await;
    let gateway = store.peek(Kind::Gateway, GATEWAY).unwrap();
    assert_eq!(gateway.metadata.annotations[annotation::GLOBAL_IP], "242.1.255.254");
    assert!(gateway.metadata.annotations.contains_key("update-timestamp"));
    beating.abort();
}

#[tokio::test(start_paused = true)]
async fn what_is_uninstalled_leaves_what_users_have_made_and_nothing_else() {
    let store = store();
    store.put(Object::from_value(service("demo", "out", "100.1.0.9", "")).unwrap());
    store.put(Object::from_value(export("demo", "out")).unwrap());
    store.put(Object::from_value(endpoints("demo", "out", &["10.1.9.1"])).unwrap());
    let one = candidate(&store, GATEWAY);
    let handle = start(&store, &one);
    reaches(&handle, GlobalnetPhase::Settled).await;
    assert_eq!(store.names(Kind::CoreEndpoints).len(), 2);
    drop((handle, one));
    for _ in 0..2 {
        withdraw(&store, NS).await.unwrap();
        assert_eq!(store.names(Kind::GlobalIngressIp), Vec::<String>::new());
        assert_eq!(store.names(Kind::ClusterGlobalEgressIp), Vec::<String>::new());
        assert_eq!(store.names(Kind::Lease), Vec::<String>::new());
        assert_eq!(store.names(Kind::CoreEndpoints), ["out"]);
        assert_eq!(store.names(Kind::Service), ["db", "out", "web"]);
        assert_eq!(store.names(Kind::GlobalEgressIp), ["e"]);
    }
}

#[test]
fn the_election_is_upstreams() {
    let config = ElectionConfig::globalnet(NS, "a-gw1");
    assert_eq!(
        (config.lease.as_str(), config.identity.as_str()),
        (GLOBALNET_LEASE, "a-gw1-submariner-gateway")
    );
    // A gateway that does the work itself is another candidate than the program beside it.
    let own = ElectionConfig::globalnet_of_gateway(NS, "a-gw1");
    assert_eq!((own.lease.as_str(), own.identity.as_str()), (GLOBALNET_LEASE, "a-gw1-trieste-gateway"));
    assert_eq!(own.timings, config.timings);
    let timings = Timings::globalnet();
    let seconds =
        [timings.lease_duration(), timings.renew_deadline(), timings.retry_period()].map(|t| t.as_secs());
    assert_eq!(seconds, [20, 15, 2]);
    let checked = Timings::new(timings.lease_duration(), timings.renew_deadline(), timings.retry_period());
    assert_eq!(checked, Ok(timings));
}

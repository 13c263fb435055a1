//! What a change costs in a large set: the same, however many services and clusters there are.

use std::time::{Duration, Instant};

use serde_json::json;
use trieste_control::api::{Kind, Object, annotation, label};
use trieste_control::election::{self, ElectionConfig};
use trieste_control::runner::Fence;
use trieste_discovery_agent::spawn;

use crate::api_store::ApiStore;
use crate::lab::{BROKER, Cluster, OPERATOR, clusters, endpoint, settle, slice, slices_of};
use crate::memory_store::Fault;

/// Puts a service of many clusters on the broker.
fn put_foreign(broker: &ApiStore, name: &str, clusters: usize) {
    let mut import = json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceImport",
        "metadata": {"name": format!("{name}-shop"), "namespace": BROKER,
            "annotations": {label::SERVICE_NAME: name, label::SOURCE_NAMESPACE: "shop"}},
        "spec": {"type": "ClusterSetIP", "ports": [{"name": "http", "protocol": "TCP", "port": 80}]},
        "status": {"clusters": []}});
    for cluster in 0..clusters {
        let id = format!("c{cluster}");
        import["metadata"]["annotations"][format!("{}{id}", annotation::TIMESTAMP_PREFIX)] = json!("1");
        import["status"]["clusters"].as_array_mut().unwrap().push(json!({"cluster": id}));
        let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "endpoints": [endpoint("10.97.0.7", true)], "ports": [{"name": "http", "protocol": "TCP", "port": 80}],
            "metadata": {"name": format!("{name}-{id}"), "namespace": BROKER, "labels": {label::MANAGED_BY: label::LIGHTHOUSE_AGENT,
                label::CLUSTER_ID: id, label::SOURCE_CLUSTER: id, label::SOURCE_NAMESPACE: "shop", label::SERVICE_NAME: name}}});
        broker.0.put(Object::from_value(slice).unwrap());
    }
    broker.0.put(Object::from_value(import).unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_change_costs_the_same_writes_however_many_clusters_export_the_service() {
    let mut costs = Vec::new();
    for count in [1, 200] {
        let broker = ApiStore::default();
        put_foreign(&broker, "web", count);
        let both = ["east", "west"].map(|id| Cluster::start(id, &broker));
        for cluster in &both {
            cluster.service("web", "10.96.0.7");
            cluster.export("web", 1_000);
        }
        settle().await;
        let [east, west] = &both;
        drop((broker.writes(), west.store.writes()));
        east.put(slice("web", "web-abcde", "IPv4", &json!([endpoint("10.1.0.1", false)])));
        settle().await;
        let readiness = (broker.writes().len(), west.store.writes().len());
        east.edit(Kind::Service, "shop", "web", |service| {
            service.body["spec"]["ports"] = json!([{"name": "http", "protocol": "TCP", "port": 80}, {"name": "more", "protocol": "TCP", "port": 81}]);
        });
        settle().await;
        costs.push((readiness, broker.writes().len()));
        assert_eq!(slices_of(&broker, BROKER, "east").len(), 1);
    }
    let ((to_broker, to_west), of_ports) = costs[0];
    assert_eq!(
        (to_broker, to_west),
        (1, 1),
        "a change of readiness is one write, and one where it is imported"
    );
    assert!(of_ports <= 3, "{of_ports}");
    assert_eq!(costs[0], costs[1]);
}

#[tokio::test(start_paused = true)]
async fn a_change_among_hundreds_of_services_is_planned_by_itself() {
    const SERVICES: usize = 600;
    let broker = ApiStore::default();
    let mut east = Cluster::new("east", &broker);
    for number in 0..SERVICES {
        let name = format!("s{number}");
        put_foreign(&broker, &name, 2);
        if number % 3 == 0 {
            east.service(&name, "10.96.0.7");
            east.export(&name, 1_000);
        }
    }
    east.run();
    settle().await;
    let agent = east.agent.as_ref().unwrap();
    assert!(agent.status.borrow().is_settled);
    assert_eq!((agent.status.borrow().imports, agent.status.borrow().exports), (SERVICES, SERVICES / 3));
    let reconciled = || agent.runner.metrics.snapshot(Instant::now()).reconciles;
    let before = reconciled();
    east.put(slice("s0", "s0-abcde", "IPv4", &json!([endpoint("10.1.0.1", false)])));
    settle().await;
    let plans = reconciled() - before;
    assert!(plans <= 20, "{plans} plans for one change");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_goes_on_leading_plans_nothing_for_it() {
    let broker = ApiStore::default();
    (0..50).for_each(|number| put_foreign(&broker, &format!("s{number}"), 2));
    let east = Cluster::new("east", &broker);
    let candidate = election::spawn(east.store.clone(), ElectionConfig::globalnet(OPERATOR, "host"));
    let fence = Fence::Term { candidate: candidate.clone(), settle: Duration::from_millis(500) };
    let agent = spawn(east.store.clone(), broker.clone(), east.config.clone(), fence);
    settle().await;
    assert_eq!(east.store.all(Kind::ServiceImport, "shop").len(), 50);
    let renewed = || candidate.leadership().borrow().map(|held| held.renewed);
    let reconciled = || agent.runner.metrics.snapshot(Instant::now()).reconciles;
    let before = (renewed(), reconciled());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_ne!(before.0, renewed(), "the lease is renewed");
    assert_eq!(before.1, reconciled());
}

#[tokio::test(start_paused = true)]
async fn a_hundred_exports_at_once_are_imported_within_five_seconds_of_slow_stores() {
    let broker = ApiStore::default();
    let [east, west] = ["east", "west"].map(|id| Cluster::start(id, &broker));
    for number in 0..100 {
        east.service(&format!("s{number}"), "10.96.0.7");
    }
    settle().await;
    // Farther than most brokers are.
    for store in [&broker, &east.store, &west.store] {
        store.0.set_fault(Fault::Slow(Duration::from_millis(50)));
    }
    let started = tokio::time::Instant::now();
    (0..100).for_each(|number| east.export(&format!("s{number}"), 1_000));
    let is_imported = || {
        let ready = west.store.all(Kind::ServiceImport, "shop");
        ready.len() == 100
            && ready.iter().all(|import| clusters(import) == ["east"])
            && west.slices_of("east").len() == 100
    };
    while !is_imported() {
        assert!(started.elapsed() < Duration::from_secs(60));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    settle().await;
    // For each: the import, the slice, and the import's status, which is written apart.
    let writes = broker.writes().len();
    assert!(writes <= 330, "{writes} writes");
    // The own import and the copy of the broker's, each with its status; the own slice; and the export's conditions, once: that it is
    // on its way is not written where it soon is there.
    let own = east.store.writes().len();
    assert!(own <= 600, "{own} writes");
}

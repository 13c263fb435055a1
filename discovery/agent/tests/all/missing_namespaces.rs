//! Services whose namespace a cluster does not have: imported into the operator's where that is set, and nowhere else.

use serde_json::json;
use trieste_control::api::{Kind, Object, annotation, label, placed};

use crate::api_store::ApiStore;
use crate::lab::{BROKER, Cluster, OPERATOR, addresses, endpoint, settle, slice, slices_of};

/// Returns east, which exports `shop/web`, and north and west, of which west lacks the namespace and is set to import all the same.
fn start() -> (ApiStore, [Cluster; 3]) {
    let broker = ApiStore::default();
    let [east, north] = ["east", "north"].map(|id| Cluster::start(id, &broker));
    let mut west = Cluster::new("west", &broker);
    west.store.0.remove(Kind::Namespace, "shop");
    west.config.imports_missing_namespaces = true;
    west.run();
    east.service("web", "10.96.0.7");
    east.export("web", 1_000);
    (broker, [east, north, west])
}

fn make_namespace(cluster: &Cluster) {
    cluster.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}));
}

/// Returns the imports and slices of other clusters' services in the operator's namespace.
fn displaced(cluster: &Cluster) -> Vec<Object> {
    let imports = cluster.store.all(Kind::ServiceImport, OPERATOR).into_iter();
    let is_part = |import: &Object| import.metadata.labels.contains_key(label::SERVICE_NAME);
    imports.filter(|import| !is_part(import)).chain(slices_of(&cluster.store, OPERATOR, "east")).collect()
}

/// Checks that neither kind of object is gone between two places.
fn assert_created_before_deleted(writes: &[String]) {
    for kind in ["ServiceImport", "EndpointSlice"] {
        let first = |verb: &str| writes.iter().position(|line| line.starts_with(&format!("{verb} {kind}")));
        assert!(first("create").is_some() && first("delete").is_some(), "{writes:?}");
        assert!(first("create") < first("delete"), "an answer is lost in between: {writes:?}");
    }
}

/// Returns what an object says, without what a store adds.
fn content(object: &Object) -> (String, String, String) {
    let metadata = &object.metadata;
    let says = format!("{:?} {:?}", metadata.labels, metadata.annotations);
    (object.key().to_string(), says, json!(*object.body).to_string())
}

#[tokio::test(start_paused = true)]
async fn services_of_a_missing_namespace_stand_in_the_operators_as_they_would_in_their_own() {
    let (_broker, [_east, north, west]) = start();
    settle().await;
    assert!(west.import("web").is_none() && west.slices_of("east").is_empty());
    let found = displaced(&west);
    let read: Vec<_> =
        found.iter().map(|object| content(&placed(object, OPERATOR).expect("it is displaced"))).collect();
    let elsewhere = [vec![north.import("web").unwrap()], north.slices_of("east")].concat();
    assert_eq!(read, elsewhere.iter().map(content).collect::<Vec<_>>());
    let status = west.agent.as_ref().unwrap().status.borrow().clone();
    assert!(status.is_settled && status.imports == 1, "{status:?}");
    west.store.writes();
    settle().await;
    assert_eq!(west.store.writes(), Vec::<String>::new(), "at rest");
}

#[tokio::test(start_paused = true)]
async fn they_move_when_their_namespace_comes_and_back_when_it_goes_and_go_with_the_export() {
    let (_broker, [east, _north, west]) = start();
    settle().await;
    west.store.writes();
    make_namespace(&west);
    settle().await;
    assert!(west.import("web").is_some() && west.slices_of("east").len() == 1);
    assert_eq!(displaced(&west), Vec::new());
    assert_created_before_deleted(&west.store.writes());
    west.store.0.remove(Kind::Namespace, "shop");
    settle().await;
    assert_created_before_deleted(&west.store.writes());
    assert!(west.import("web").is_none() && west.slices_of("east").is_empty());
    assert_eq!(displaced(&west).len(), 2);
    // What changes meanwhile changes there.
    east.put(slice("web", "web-abcde", "IPv4", &json!([endpoint("10.1.0.1", false)])));
    settle().await;
    let slices = slices_of(&west.store, OPERATOR, "east");
    assert_eq!(addresses(&slices[0]), [("10.96.0.7".to_owned(), false)]);
    east.unexport("web");
    settle().await;
    assert_eq!(displaced(&west), Vec::new());
}

#[tokio::test(start_paused = true)]
async fn they_go_when_that_is_not_set_any_more_and_with_the_agent() {
    for is_uninstalled in [false, true] {
        let (_broker, [_east, _north, mut west]) = start();
        settle().await;
        assert_eq!(displaced(&west).len(), 2);
        west.config.imports_missing_namespaces = is_uninstalled;
        west.config.withdraws = is_uninstalled;
        west.run();
        settle().await;
        assert_eq!(displaced(&west), Vec::new(), "uninstalled: {is_uninstalled}");
        let status = west.agent.as_ref().unwrap().status.borrow().clone();
        assert!(status.is_settled && status.imports == 0, "{status:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_has_lost_everything_is_not_believed_at_once() {
    let (broker, [mut east, mut north, west]) = start();
    settle().await;
    // Nobody makes it again.
    (east.agent, north.agent) = (None, None);
    for object in broker.0.snapshot() {
        broker.0.remove(object.kind, &object.metadata.name);
    }
    broker.0.break_watches();
    settle().await;
    assert_eq!(displaced(&west).len(), 2);
    tokio::time::sleep(trieste_discovery_agent::EMPTY_GRACE).await;
    settle().await;
    assert_eq!(displaced(&west), Vec::new());
}

#[tokio::test(start_paused = true)]
async fn nothing_in_the_operators_namespace_is_taken_for_a_copy_or_replaced_by_one() {
    let (broker, [_east, _north, west]) = start();
    settle().await;
    // A member gives a slice the name of one that Kubernetes has made for a service of the operator's namespace.
    let mut theirs = Object::from_value(slice("metrics", "metrics-x", "IPv4", &json!([]))).unwrap();
    OPERATOR.clone_into(&mut theirs.metadata.namespace);
    west.store.0.put(theirs);
    let before = west.store.find(Kind::EndpointSlice, OPERATOR, "metrics-x");
    let mut forged = slices_of(&broker, BROKER, "east").remove(0);
    "metrics-x".clone_into(&mut forged.metadata.name);
    forged.metadata.resource_version = None;
    broker.0.put(forged);
    // A tenant says in a namespace of his own what an agent says in the operator's.
    west.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tenant"}}));
    let mut import = west.store.find(Kind::ServiceImport, OPERATOR, "web.shop").unwrap();
    "tenant".clone_into(&mut import.metadata.namespace);
    assert!(import.metadata.annotations.contains_key(annotation::DISPLACED));
    west.store.0.put(import.clone());
    settle().await;
    assert_eq!(west.store.find(Kind::EndpointSlice, OPERATOR, "metrics-x"), before);
    assert!(west.store.find(Kind::ServiceImport, "tenant", "web.shop").is_some(), "it is nobody's of ours");
    assert_eq!(west.agent.as_ref().unwrap().status.borrow().imports, 1);
}

#[tokio::test(start_paused = true)]
async fn while_a_copy_cannot_be_made_in_its_namespace_the_displaced_one_stays_and_follows() {
    let (_broker, [east, _north, west]) = start();
    settle().await;
    let displaced_slice = slices_of(&west.store, OPERATOR, "east").remove(0);
    let name = displaced_slice.metadata.name.clone();
    west.put(slice("other", &name, "IPv4", &json!([])));
    make_namespace(&west);
    settle().await;
    assert!(
        west.import("web").is_some() && west.store.find(Kind::ServiceImport, OPERATOR, "web.shop").is_none()
    );
    assert_eq!(slices_of(&west.store, OPERATOR, "east"), [displaced_slice]);
    assert!(west.slices_of("east").is_empty());
    // No address is answered that is none any more.
    east.put(slice("web", "web-abcde", "IPv4", &json!([endpoint("10.1.0.1", false)])));
    settle().await;
    let slices = slices_of(&west.store, OPERATOR, "east");
    assert_eq!(addresses(&slices[0]), [("10.96.0.7".to_owned(), false)]);
}

#[tokio::test(start_paused = true)]
async fn an_import_that_is_refused_first_in_its_namespace_is_nowhere_missing() {
    let broker = ApiStore::default();
    let mut west = Cluster::new("west", &broker);
    // As upstream's definition: one address at most.
    west.store.3 = Some("shop");
    west.store.0.remove(Kind::Namespace, "shop");
    west.config.imports_missing_namespaces = true;
    west.config.clusterset_ip_ranges =
        ["243.0.0.0/8", "fd00:243::/64"].map(|range| range.parse().unwrap()).to_vec();
    west.run();
    let import = json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceImport",
        "metadata": {"name": "api-shop", "namespace": BROKER, "annotations": {
            label::SERVICE_NAME: "api", label::SOURCE_NAMESPACE: "shop",
            annotation::USE_CLUSTERSET_IP: "true", annotation::CLUSTERSET_IPV6: "fd00:243::1",
            format!("{}north", annotation::TIMESTAMP_PREFIX): "1"}},
        "spec": {"type": "ClusterSetIP", "ips": ["243.0.0.1"], "ports": []}});
    broker.0.put(Object::from_value(import).unwrap());
    settle().await;
    assert!(west.store.find(Kind::ServiceImport, OPERATOR, "api.shop").is_some());
    west.store.writes();
    make_namespace(&west);
    settle().await;
    assert!(west.import("api").is_some());
    let writes = west.store.writes();
    let is = |verb: &str| writes.iter().rposition(|line| line.starts_with(&format!("{verb} ServiceImport")));
    assert!(is("create") < is("delete"), "the displaced one went before: {writes:?}");
}

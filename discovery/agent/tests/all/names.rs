//! Names that somebody else has on the broker: of slices, which have other names then, and of imports, which wait.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;
use trieste_control::api::{Kind, Object, ObjectMeta, annotation, label};

use crate::api_store::ApiStore;
use crate::lab::{BROKER, Cluster, addresses, aggregate, clusters, endpoint, service, settle, slices_of};

/// Makes a slice of this name another cluster's, for a service of its own.
fn foreign(name: &str, address: &str) -> Object {
    let mut slice = Object::new(Kind::EndpointSlice, ObjectMeta::new(BROKER, name));
    slice.metadata.labels = [
        (label::MANAGED_BY, label::LIGHTHOUSE_AGENT),
        (label::CLUSTER_ID, "rogue"),
        (label::SOURCE_CLUSTER, "rogue"),
        (label::SOURCE_NAMESPACE, "shop"),
        (label::SERVICE_NAME, "evil"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into();
    slice.body.insert("addressType".to_owned(), json!("IPv4"));
    slice.body.insert("endpoints".to_owned(), json!([endpoint(address, true)]));
    slice.body.insert("ports".to_owned(), json!([]));
    slice
}

#[tokio::test(start_paused = true)]
async fn a_slice_whose_name_somebody_else_has_gets_another_one() {
    let makes: [fn(&str) -> Object; 3] = [
        |name| foreign(name, "10.97.0.7"),
        |name| foreign(name, "127.0.0.1"),
        |name| {
            let mut slice = foreign(name, "10.97.0.7");
            slice.metadata.labels.clear();
            slice
        },
    ];
    for thief in makes {
        let broker = ApiStore::default();
        let [mut east, west] = ["east", "west"].map(|id| Cluster::start(id, &broker));
        east.service("web", "10.96.0.7");
        east.export("web", 1_000);
        settle().await;
        for round in 0..3 {
            let name = slices_of(&broker, BROKER, "east")[0].metadata.name.clone();
            broker.0.remove(Kind::EndpointSlice, &name);
            broker.0.put(thief(&name));
            let stolen = broker.0.peek(Kind::EndpointSlice, &name);
            sleep(Duration::from_secs(20)).await;
            let published = slices_of(&broker, BROKER, "east");
            assert_eq!(published.len(), 1, "round {round}");
            assert_ne!(published[0].metadata.name, name);
            assert_eq!(addresses(&published[0]), [("10.96.0.7".to_owned(), true)]);
            assert_eq!(broker.0.peek(Kind::EndpointSlice, &name), stolen, "what is not ours stays");
            for cluster in [&east, &west] {
                let slices = cluster.slices_of("east");
                assert_eq!(slices.len(), 1);
                assert_eq!(slices[0].metadata.name, published[0].metadata.name);
            }
            assert_eq!(east.said("web", "Ready"), "True/Exported");
        }
        drop((broker.writes(), east.store.writes()));
        east.run();
        sleep(Duration::from_secs(600)).await;
        assert_eq!((broker.writes(), east.store.writes()), (vec![], vec![]), "a restart changes nothing");
        east.unexport("web");
        settle().await;
        assert!(slices_of(&broker, BROKER, "east").is_empty() && east.slices_of("east").is_empty());
    }
}

/// Puts the service `b-shop/a`, whose import has the name of that of `shop/a-b`, and exports it.
fn export_namesake(cluster: &Cluster) {
    cluster.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "b-shop"}}));
    let moved = |value: Value| {
        let mut object = Object::from_value(value).unwrap();
        object.metadata.namespace = "b-shop".to_owned();
        cluster.store.0.put(object);
    };
    let spec = json!({"type": "ClusterIP", "clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"],
        "sessionAffinity": "None", "ports": [{"name": "http", "protocol": "TCP", "port": 80}]});
    moved(service("a", &spec));
    moved(json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceExport",
        "metadata": {"name": "a", "creationTimestamp": "1970-01-01T00:33:20Z"}}));
}

/// Returns status and message of the condition `Ready` of the export `b-shop/a`.
fn namesake(cluster: &Cluster) -> (String, String) {
    let export = cluster.store.find(Kind::ServiceExport, "b-shop", "a").unwrap();
    let conditions = export.body["status"]["conditions"].as_array().unwrap().clone();
    let ready = conditions.into_iter().find(|condition| condition["type"] == "Ready").unwrap_or(Value::Null);
    let text = |field: &str| ready[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("message"))
}

fn holder(broker: &ApiStore) -> Option<String> {
    aggregate(broker, "a-b").map(|import| import.metadata.annotations[label::SERVICE_NAME].clone())
}

#[tokio::test(start_paused = true)]
async fn of_two_services_whose_imports_have_one_name_the_second_waits_until_the_first_is_gone() {
    let broker = ApiStore::default();
    let [east, west] = ["east", "west"].map(|id| Cluster::start(id, &broker));
    east.service("a-b", "10.96.0.7");
    east.export("a-b", 3_000);
    settle().await;
    // The older one came later: it takes nothing over.
    export_namesake(&west);
    settle().await;
    assert_eq!(holder(&broker).as_deref(), Some("a-b"));
    let (status, message) = namesake(&west);
    assert_eq!(status, "False");
    assert!(message.contains("the import of service shop/a-b has its name"), "{message}");
    assert_eq!(clusters(&aggregate(&broker, "a-b").unwrap()), ["east"]);
    assert!(slices_of(&broker, BROKER, "west").is_empty());
    assert_eq!((west.slices_of("east").len(), east.said("a-b", "Ready").as_str()), (1, "True/Exported"));

    east.unexport("a-b");
    settle().await;
    assert_eq!((holder(&broker).as_deref(), namesake(&west).0.as_str()), (Some("a"), "True"));
    east.export("a-b", 3_000);
    settle().await;
    assert_eq!(holder(&broker).as_deref(), Some("a"));
    assert_eq!(east.said("a-b", "Ready"), "False/Failed");
    // Who waits and gives up takes nothing with it.
    east.unexport("a-b");
    settle().await;
    assert_eq!((holder(&broker).as_deref(), slices_of(&broker, BROKER, "west").len()), (Some("a"), 1));
}

/// Lets an agent of upstream export `b-shop/a` from west: it takes any import of that name for its service's, and becomes a part
/// of it.
fn join_as_upstream(broker: &ApiStore, import: &str) {
    broker.0.edit(Kind::ServiceImport, import, |import| {
        let since = format!("{}west", annotation::TIMESTAMP_PREFIX);
        import.metadata.annotations.insert(since, "1".to_owned());
        let clusters = import.body["status"]["clusters"].as_array_mut().unwrap();
        clusters.push(json!({"cluster": "west"}));
    });
    let mut slice = foreign("a-x7k2p", "10.97.0.9");
    let names = [
        (label::CLUSTER_ID, "west"),
        (label::SOURCE_CLUSTER, "west"),
        (label::SOURCE_NAMESPACE, "b-shop"),
        (label::SERVICE_NAME, "a"),
    ];
    slice.metadata.labels.extend(names.map(|(key, value)| (key.to_owned(), value.to_owned())));
    broker.0.put(slice);
}

#[tokio::test(start_paused = true)]
async fn a_namesake_of_upstreams_that_joins_an_import_has_no_part_in_its_addresses() {
    let broker = ApiStore::default();
    let [east, north] = ["east", "north"].map(|id| Cluster::start(id, &broker));
    north.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "b-shop"}}));
    east.service("a-b", "10.96.0.7");
    east.export("a-b", 3_000);
    settle().await;
    let spec = aggregate(&broker, "a-b").unwrap().body["spec"].clone();
    join_as_upstream(&broker, "a-b-shop");
    settle().await;
    drop((broker.writes(), north.store.writes(), east.store.writes()));
    sleep(Duration::from_secs(600)).await;
    let writes = [&broker, &north.store, &east.store].map(ApiStore::writes);
    assert_eq!(writes.concat(), [""; 0], "nobody fights");
    let import = aggregate(&broker, "a-b").unwrap();
    assert_eq!(
        (&import.body["spec"], clusters(&import).len()),
        (&spec, 2),
        "what it says is of its own service"
    );
    assert_eq!(
        (east.said("a-b", "Ready").as_str(), east.said("a-b", "Conflict").as_str()),
        ("True/Exported", "none")
    );
    // A name is answered from the slices in its namespace, and only if there is an import of it.
    assert_eq!(addresses(&north.slices_of("east")[0])[0].0, "10.96.0.7");
    assert!(north.slices_of("west").is_empty());
    assert_eq!(slices_of(&north.store, "b-shop", "west").len(), 1);
    assert_eq!(north.store.find(Kind::ServiceImport, "b-shop", "a"), None);
    east.unexport("a-b");
    settle().await;
    assert_eq!(clusters(&aggregate(&broker, "a-b").unwrap()), ["west"], "what is another's stays");
    assert!(north.slices_of("east").is_empty() && north.slices_of("west").is_empty());
}

#[tokio::test(start_paused = true)]
async fn of_two_such_services_of_one_cluster_that_come_together_one_is_exported() {
    let broker = ApiStore::default();
    let mut east = Cluster::new("east", &broker);
    east.service("a-b", "10.96.0.7");
    east.export("a-b", 1_000);
    export_namesake(&east);
    east.run();
    settle().await;
    let first = holder(&broker).unwrap();
    let is_ready = [east.said("a-b", "Ready") == "True/Exported", namesake(&east).0 == "True"];
    assert_eq!(is_ready, [first == "a-b", first == "a"]);
    assert_eq!(slices_of(&broker, BROKER, "east").len(), 1);
    drop((broker.writes(), east.store.writes()));
    sleep(Duration::from_secs(600)).await;
    assert_eq!((broker.writes(), east.store.writes()), (vec![], vec![]));
    if first == "a-b" {
        east.unexport("a-b");
    } else {
        east.store.0.remove(Kind::ServiceExport, "a");
    }
    sleep(Duration::from_secs(120)).await;
    let second = holder(&broker);
    assert!(second.is_some() && second != Some(first), "{second:?}");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_no_import_of_the_service_and_has_its_name_is_named_and_left() {
    let broker = ApiStore::default();
    let east = Cluster::start("east", &broker);
    let import = json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceImport",
        "metadata": {"name": "web-shop", "namespace": BROKER}, "spec": {"type": "Headless", "ports": []}});
    broker.0.put(Object::from_value(import).unwrap());
    let before = broker.0.peek(Kind::ServiceImport, "web-shop");
    east.service("web", "10.96.0.7");
    east.export("web", 1_000);
    sleep(Duration::from_secs(60)).await;
    let (status, reason, message) = east.condition("web", "Ready").unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("False", "Failed"));
    assert!(message.contains("an object that is no import of it has its name"), "{message}");
    assert_eq!(broker.0.peek(Kind::ServiceImport, "web-shop"), before);
    assert!(slices_of(&broker, BROKER, "east").is_empty());
    drop(broker.writes());
    sleep(Duration::from_secs(600)).await;
    let tries = broker.writes().len();
    assert!(tries <= 60, "{tries} tries in ten minutes");
    broker.0.remove(Kind::ServiceImport, "web-shop");
    sleep(Duration::from_secs(120)).await;
    assert_eq!(east.said("web", "Ready"), "True/Exported");
}

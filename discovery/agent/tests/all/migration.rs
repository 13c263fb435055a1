//! What former releases of Lighthouse have left: it becomes what it is today, or goes.

use serde_json::json;
use trieste_control::api::{Kind, Object, ObjectMeta, annotation, label};

use crate::api_store::ApiStore;
use crate::lab::{BROKER, Cluster, addresses, aggregate, clusters, endpoint, settle, since, slices_of};

/// Makes a slice by which a former release exported `web`: without the label of its namespace.
fn former(name: &str, namespace: &str, cluster: &str) -> Object {
    let mut slice = Object::new(Kind::EndpointSlice, ObjectMeta::new(namespace, name));
    let labels = [
        (label::MANAGED_BY, label::LIGHTHOUSE_AGENT),
        (label::SOURCE_CLUSTER, cluster),
        (label::SERVICE_NAME, "web"),
    ];
    slice.metadata.labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    if namespace == BROKER {
        slice.metadata.labels.insert(label::CLUSTER_ID.to_owned(), cluster.to_owned());
    }
    slice.body.insert("addressType".to_owned(), json!("IPv4"));
    slice.body.insert("endpoints".to_owned(), json!([endpoint("10.96.0.1", true)]));
    slice.body.insert("ports".to_owned(), json!([]));
    slice
}

#[tokio::test(start_paused = true)]
async fn own_slices_of_a_former_release_go_and_others_are_not_touched() {
    let broker = ApiStore::default();
    let mut east = Cluster::new("east", &broker);
    for namespace in ["shop", BROKER] {
        let store = if namespace == BROKER { &broker } else { &east.store };
        for name in ["web-east", "web-shop-east"] {
            store.0.put(former(name, namespace, "east"));
        }
    }
    let others = former("web-shop-west", BROKER, "west");
    broker.0.put(others.clone());
    east.service("web", "10.96.0.7");
    east.export("web", 1_000);
    east.run();
    settle().await;
    for (store, namespace) in [(&east.store, "shop"), (&broker, BROKER)] {
        let slices = slices_of(store, namespace, "east");
        let found: Vec<_> = slices.iter().map(|slice| addresses(slice)[0].0.clone()).collect();
        assert_eq!(found, ["10.96.0.7"], "in {namespace}");
        assert!(!["web-east", "web-shop-east"].contains(&slices[0].metadata.name.as_str()));
    }
    let left = broker.0.peek(Kind::EndpointSlice, "web-shop-west").unwrap();
    assert!(left.same_content(&others));
    assert_eq!(east.said("web", "Ready"), "True/Exported");
    // Of a service that is not there any more, too.
    east.store.0.put(former("gone-east", "shop", "east"));
    east.unexport("web");
    settle().await;
    assert!(
        slices_of(&east.store, "shop", "east").is_empty() && slices_of(&broker, BROKER, "east").is_empty()
    );
}

#[tokio::test(start_paused = true)]
async fn an_import_of_a_former_release_that_says_nothing_of_clusters_and_affinity_is_taken_over() {
    let broker = ApiStore::default();
    let mut east = Cluster::new("east", &broker);
    let mut import = Object::new(Kind::ServiceImport, ObjectMeta::new(BROKER, "web-shop"));
    let annotations = [(label::SERVICE_NAME, "web"), (label::SOURCE_NAMESPACE, "shop")];
    import.metadata.annotations = annotations.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    import.body.insert("spec".to_owned(), json!({"type": "ClusterSetIP", "ports": []}));
    broker.0.put(import);
    east.service("web", "10.96.0.7");
    east.edit(Kind::Service, "shop", "web", |service| {
        service.body["spec"]["sessionAffinity"] = json!("ClientIP");
        service.body["spec"]["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": 10}});
    });
    east.export("web", 1_000);
    east.run();
    settle().await;
    let import = aggregate(&broker, "web").unwrap();
    assert_eq!((clusters(&import), since(&import, "east")), (vec!["east".to_owned()], Some("1000000000000")));
    assert_eq!(import.body["spec"]["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"], 10);
    assert_eq!(
        (east.said("web", "Ready").as_str(), east.said("web", "Conflict").as_str()),
        ("True/Exported", "none")
    );
}

#[tokio::test(start_paused = true)]
async fn exports_of_which_one_only_says_since_when_are_ordered_and_the_silent_one_is_older() {
    let broker = ApiStore::default();
    let [east, west] = ["east", "west"].map(|id| Cluster::start(id, &broker));
    west.service("web", "10.97.0.7");
    west.export("web", 1_000);
    settle().await;
    // West's agent is one that writes no time; it does not put it back.
    drop(west.agent);
    broker.0.edit(Kind::ServiceImport, "web-shop", |import| {
        import.metadata.annotations.remove(&format!("{}west", annotation::TIMESTAMP_PREFIX));
    });
    east.service("web", "None");
    east.export("web", 1);
    settle().await;
    let import = aggregate(&broker, "web").unwrap();
    assert_eq!(
        (clusters(&import), import.body["spec"]["type"].clone()),
        (vec!["west".to_owned()], json!("ClusterSetIP"))
    );
    assert_eq!(east.said("web", "Ready"), "False/Failed");
}

//! Objects of a member that mean harm, or make no sense: they are left alone, and hold up nothing.

use serde_json::{Value, json};
use trieste_control::api::{Kind, Object, ObjectMeta, annotation, label};

use crate::api_store::ApiStore;
use crate::lab::{BROKER, Cluster, addresses, aggregate, clusters, endpoint, settle};

/// Returns a slice of cluster `west` for service `shop/web` on the broker.
fn slice(name: &str, change: impl FnOnce(&mut Object)) -> Object {
    let mut slice = Object::new(Kind::EndpointSlice, ObjectMeta::new(BROKER, name));
    slice.metadata.labels = [
        (label::MANAGED_BY, label::LIGHTHOUSE_AGENT),
        (label::CLUSTER_ID, "west"),
        (label::SOURCE_CLUSTER, "west"),
        (label::SOURCE_NAMESPACE, "shop"),
        (label::SERVICE_NAME, "web"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into();
    slice.body.insert("addressType".to_owned(), json!("IPv4"));
    slice.body.insert("endpoints".to_owned(), json!([endpoint("10.97.0.7", true)]));
    slice.body.insert("ports".to_owned(), json!([{"name": "http", "protocol": "TCP", "port": 80}]));
    change(&mut slice);
    slice
}

fn set(label: &'static str, value: &str) -> impl FnOnce(&mut Object) {
    move |slice| drop(slice.metadata.labels.insert(label.to_owned(), value.to_owned()))
}

fn field(name: &'static str, value: Value) -> impl FnOnce(&mut Object) {
    move |slice| drop(slice.body.insert(name.to_owned(), value))
}

#[tokio::test(start_paused = true)]
async fn slices_that_pass_for_anothers_or_for_a_local_services_are_not_copied() {
    let broker = ApiStore::default();
    let east = Cluster::start("east", &broker);
    let address = |text: &str| field("endpoints", json!([endpoint(text, true)]));
    let bad = [
        slice("other", set(label::SOURCE_CLUSTER, "north")),
        slice("local", set("kubernetes.io/service-name", "web")),
        slice("cluster", set(label::CLUSTER_ID, "No Cluster")),
        slice("elsewhere", set(label::ORIGINATING_NAMESPACE, "kube-system")),
        slice("no-namespace", |slice| drop(slice.metadata.labels.remove(label::SOURCE_NAMESPACE))),
        slice("no-cluster", |slice| drop(slice.metadata.labels.remove(label::CLUSTER_ID))),
        slice("loopback", address("127.0.0.1")),
        slice("metadata", address("169.254.169.254")),
        slice("multicast", address("224.0.0.1")),
        slice("any", address("0.0.0.0")),
        slice("family", address("fd00::1")),
        slice("text", address("nowhere")),
        slice("none", field("addressType", json!("FQDN"))),
        slice("ports", field("ports", json!((0..101).map(|port| json!({"port": port})).collect::<Vec<_>>()))),
        slice("endpoints", field("endpoints", json!(vec![endpoint("10.0.0.1", true); 1001]))),
    ];
    let count = bad.len();
    bad.into_iter().for_each(|slice| broker.0.put(slice));
    broker.0.put(slice("good", |_| ()));
    settle().await;
    let copies: Vec<_> = east.store.0.names(Kind::EndpointSlice);
    assert_eq!(copies, ["good"]);
    let refused = east.agent.as_ref().unwrap().status.borrow().refused.clone();
    assert_eq!(refused.len(), count, "{refused:?}");
    broker.0.edit(Kind::EndpointSlice, "loopback", |slice| {
        slice.body["endpoints"] = json!([endpoint("10.97.0.8", true)])
    });
    broker.0.edit(Kind::EndpointSlice, "good", |slice| {
        slice.body["endpoints"] = json!([endpoint("127.0.0.1", true)])
    });
    broker.0.remove(Kind::EndpointSlice, "other");
    settle().await;
    assert_eq!(
        east.store.0.names(Kind::EndpointSlice),
        ["loopback"],
        "what is right comes, what is wrong goes"
    );
    assert_eq!(east.agent.as_ref().unwrap().status.borrow().refused.len(), count - 1);
}

#[tokio::test(start_paused = true)]
async fn a_slice_with_the_name_of_another_object_takes_nothings_place() {
    let broker = ApiStore::default();
    let east = Cluster::start("east", &broker);
    east.service("web", "10.96.0.7");
    east.export("web", 1_000);
    let mut bystander = east.store.find(Kind::EndpointSlice, "shop", "web-abcde").unwrap();
    bystander.metadata.name = "bystander".to_owned();
    bystander.metadata.labels.clear();
    east.store.0.put(bystander.clone());
    settle().await;
    let own = east.slices_of("east")[0].metadata.name.clone();
    for name in ["web-abcde", "bystander"] {
        broker.0.put(slice(name, |_| ()));
    }
    let before: Vec<_> = ["web-abcde", "bystander", &own]
        .iter()
        .map(|name| east.store.0.peek(Kind::EndpointSlice, name))
        .collect();
    drop(east.store.writes());
    tokio::time::sleep(std::time::Duration::from_secs(600)).await;
    let after: Vec<_> = ["web-abcde", "bystander", &own]
        .iter()
        .map(|name| east.store.0.peek(Kind::EndpointSlice, name))
        .collect();
    assert_eq!(before, after);
    let tries = east.store.writes().len();
    assert!(tries <= 30, "{tries} tries in ten minutes");
    assert_eq!(east.said("web", "Ready"), "True/Exported");
}

#[tokio::test(start_paused = true)]
async fn an_import_that_makes_no_sense_is_not_copied_and_one_with_forged_parts_starts_no_war() {
    let broker = ApiStore::default();
    let east = Cluster::start("east", &broker);
    let import = |name: &str, spec: Value, status: Value| {
        let mut import = Object::new(Kind::ServiceImport, ObjectMeta::new(BROKER, format!("{name}-shop")));
        import.metadata.annotations.insert(label::SERVICE_NAME.to_owned(), name.to_owned());
        import.metadata.annotations.insert(label::SOURCE_NAMESPACE.to_owned(), "shop".to_owned());
        import.body.insert("spec".to_owned(), spec);
        import.body.insert("status".to_owned(), status);
        broker.0.put(import);
    };
    let status = json!({"clusters": [{"cluster": "west"}]});
    import("type", json!({"type": "Nonsense", "ports": []}), status.clone());
    import(
        "ports",
        json!({"type": "Headless", "ports": (1..200).map(|port| json!({"port": port})).collect::<Vec<_>>()}),
        status.clone(),
    );
    import(
        "clusters",
        json!({"type": "Headless", "ports": []}),
        json!({"clusters": [{"cluster": "No Cluster"}]}),
    );
    import("ips", json!({"type": "ClusterSetIP", "ips": ["x"], "ports": []}), status.clone());
    import("good", json!({"type": "Headless", "ports": []}), status);
    settle().await;
    assert_eq!(east.store.0.names(Kind::ServiceImport), ["good"]);

    // Somebody writes over this cluster's part all the time.
    east.service("web", "10.96.0.7");
    east.export("web", 1_000);
    settle().await;
    drop(broker.writes());
    for _ in 0..600 {
        broker.0.edit(Kind::ServiceImport, "web-shop", |import| {
            import
                .metadata
                .annotations
                .insert(format!("{}east", annotation::TIMESTAMP_PREFIX), "7".to_owned());
            import.body["status"] = json!({"clusters": []});
        });
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let writes = broker.writes().len();
    assert!(writes < 200, "{writes} writes in a minute of 600 forgeries");
    tokio::time::sleep(std::time::Duration::from_secs(20)).await;
    assert_eq!(clusters(&aggregate(&broker, "web").unwrap()), ["east"]);
    assert_eq!(addresses(&east.slices_of("east")[0])[0].0, "10.96.0.7");
}

use std::path::Path;

use serde_json::{Value, json};
use trieste_control::api::{EndpointSpec, Object, ObjectMeta, annotation};

use super::*;
use crate::config::Options;
use crate::memory::RememberedNetworks;
use crate::stores;

const SETTINGS: &str = "cluster-id: a\ncluster-cidrs: [10.1.0.0/16]\nservice-cidrs: [10.101.0.0/16]\n";

fn config(folder: &Path) -> Config {
    let text = format!("{SETTINGS}store: 'dir:{}'\n", folder.display());
    Options::parse_file(&text).unwrap().resolve().unwrap()
}

fn object(kind: Kind, name: &str, field: &str, content: Value) -> Object {
    let mut object = Object::new(kind, ObjectMeta::new("submariner-operator", name));
    object.body.insert(field.to_owned(), content);
    object
}

fn said(extra: &str) -> Object {
    let data = json!({"pods": "10.1.0.0/16", "services": "10.101.0.0/16", "extra": extra});
    object(Kind::ConfigMap, ClusterNetworks::OBJECT, "data", data)
}

fn remote() -> Object {
    let spec = EndpointSpec {
        cluster_id: "b".to_owned(),
        cable_name: "submariner-cable-b-192-0-2-2".to_owned(),
        subnets: vec!["10.2.0.0/16".to_owned()],
        private_ip: "192.0.2.2".to_owned(),
        backend: "wireguard".to_owned(),
        ..EndpointSpec::default()
    };
    Endpoint::new("submariner-operator", spec).unwrap().to_object()
}

fn own_cluster(extra: &str) -> Object {
    let spec = json!({"cluster_id": "a", "color_codes": ["blue"], "service_cidr": ["10.101.0.0/16"],
        "cluster_cidr": ["10.1.0.0/16", extra], "global_cidr": []});
    let mut cluster = object(Kind::Cluster, "a", "spec", spec);
    cluster.metadata.annotations.insert(annotation::EXTRA_CIDRS.to_owned(), extra.to_owned());
    cluster
}

/// What is remembered, under these settings.
fn memory(settings: &ClusterNetworks, extra: &str) -> Remembered {
    let in_force = ClusterNetworks { extra: vec![extra.parse().unwrap()], ..settings.clone() };
    let networks = RememberedNetworks { settings: Some(settings.clone()), in_force };
    Remembered { networks: Some(networks), ..Remembered::default() }
}

/// The extra networks of a start with these objects and this memory.
async fn started(objects: Vec<Object>, memory: Option<&Remembered>) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    let store = stores::local(&config).unwrap();
    for object in objects {
        store.create(object).await.unwrap();
    }
    let networks = at_start(&config, &store, memory).await;
    assert_eq!((networks.pods.len(), networks.services.len()), (1, 1));
    networks.extra.iter().map(IpNet::to_string).collect()
}

#[tokio::test]
async fn a_start_takes_the_objects_networks_unless_they_are_anothers() {
    let folder = tempfile::tempdir().unwrap();
    let settings = config(folder.path()).networks;
    let known = memory(&settings, "10.9.0.0/24");
    assert_eq!(started(vec![said("10.77.0.0/24"), remote()], Some(&known)).await, ["10.77.0.0/24"]);
    assert!(started(vec![remote()], Some(&known)).await.is_empty(), "without the object the settings count");
    let taken = vec![said("10.2.9.0/24"), remote(), own_cluster("10.78.0.0/24")];
    assert_eq!(started(taken, Some(&known)).await, ["10.78.0.0/24"], "those in force");
    let invalid = vec![said("10.1.4.0/24"), own_cluster("10.78.0.0/24")];
    assert_eq!(started(invalid, None).await, ["10.78.0.0/24"]);
    assert!(started(vec![said("10.2.9.0/24"), remote()], None).await.is_empty());
}

#[tokio::test]
async fn networks_of_a_cluster_without_a_gateway_are_its_own_and_members_take_private_ones_alone() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    let endpoint = Arc::new(Endpoint::from_object(&remote()).unwrap());
    let spec = json!({"cluster_id": "c", "color_codes": ["blue"], "service_cidr": [],
        "cluster_cidr": ["10.3.0.0/16"], "global_cidr": []});
    let claims = claims("a", &[Arc::clone(&endpoint)], &[object(Kind::Cluster, "c", "spec", spec)]);
    let accepted = |extra: &str| accept(&said(extra), Some(&config.networks), &claims, &config);
    assert_eq!(accepted("10.2.9.0/24").unwrap_err(), "10.2.9.0/24 overlaps 10.2.0.0/16 of cluster b");
    assert_eq!(accepted("10.3.9.0/24").unwrap_err(), "10.3.9.0/24 overlaps 10.3.0.0/16 of cluster c");
    assert!(accepted("203.0.113.0/24").unwrap_err().starts_with("203.0.113.0/24: "));
    assert!(accepted("10.77.0.0/24\n10.76.0.0/24").is_ok());
    assert!(!is_triestes(&endpoint));
}

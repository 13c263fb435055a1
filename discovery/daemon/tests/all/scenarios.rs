//! What Lighthouse's end-to-end suite asks of names, from a ServiceExport in one cluster to the answer of another's DNS server:
//! three clusters, each with an agent and with what its server makes of its objects; names are asked for in west. More of clusterset
//! IPs is in `dns/tests/all/lighthouse.rs`.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use trieste_control::api::{Kind, Object};
use trieste_discovery::dns::follow::{Progress, follow};
use trieste_dns::{Label, Records, ServiceName, Writer};

use crate::api_store::ApiStore;
use crate::fixture::ask;
use crate::lab::{Cluster, OPERATOR, endpoint, service, slice};

const NXDOMAIN: u8 = 3;
/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Queries that see every turn of a round robin of a few.
const TURNS: usize = 8;

/// The clusters, the DNS server of west.
struct Set {
    east: Cluster,
    south: Cluster,
    west: Cluster,
    records: Records,
}

impl Set {
    fn new() -> Self {
        Self::with(|_| ())
    }

    /// Starts a set in which west is set up otherwise.
    fn with(set_up: impl FnOnce(&mut Cluster)) -> Self {
        let broker = ApiStore::default();
        let [east, south] = ["east", "south"].map(|id| Cluster::start(id, &broker));
        let mut west = Cluster::new("west", &broker);
        set_up(&mut west);
        west.run();
        let label = Label::new("west").unwrap();
        let (writer, records) = Writer::new(label.clone());
        let (followed, progress) = (west.store.clone(), watch::Sender::new(Progress::default()));
        tokio::spawn(async move { follow(&followed, OPERATOR, label, writer, &progress).await });
        Self { east, south, west, records }
    }

    /// Waits until a name of service discovery is answered with these addresses, over all turns.
    async fn becomes(&self, name: &str, addresses: &[&str]) {
        self.answers(name, 0, addresses).await;
    }

    /// Waits until there is no such name.
    async fn is_unknown(&self, name: &str) {
        self.answers(name, NXDOMAIN, &[]).await;
    }

    async fn answers(&self, name: &str, code: u8, addresses: &[&str]) {
        let name = format!("{name}.shop.svc.clusterset.local");
        let found = || {
            let all = (0..TURNS).map(|_| ask(&self.records, &name));
            let (codes, found): (Vec<u8>, Vec<Vec<String>>) = all.unzip();
            let mut found = found.concat();
            found.sort();
            found.dedup();
            (codes, found)
        };
        let expected = (vec![code; TURNS], addresses.iter().map(ToString::to_string).collect());
        let wait = async {
            while found() != expected {
                sleep(Duration::from_millis(5)).await;
            }
        };
        assert!(timeout(PATIENCE, wait).await.is_ok(), "{name}: {:?} and not {expected:?}", found());
    }
}

/// Exports `web` with one address and one back end.
fn export_web(cluster: &Cluster, ip: &str) {
    cluster.service("web", ip);
    cluster.export("web", 1_000);
}

/// Lets the one back end of `web` be ready, or not.
fn set_ready(cluster: &Cluster, is_ready: bool) {
    cluster.put(slice("web", "web-abcde", "IPv4", &json!([endpoint("10.1.0.1", is_ready)])));
}

/// Puts the headless service `db`, with what chooses its pods, if anything does.
fn headless(cluster: &Cluster, selector: Option<&str>) {
    let mut spec = json!({"clusterIP": "None", "ports": [{"name": "sql", "protocol": "TCP", "port": 5432}]});
    if let Some(app) = selector {
        spec["selector"] = json!({"app": app});
    }
    cluster.put(service("db", &spec));
    cluster.export("db", 1_000);
}

/// Gives `db` these pods, which have names if they are a StatefulSet's.
fn pods(cluster: &Cluster, addresses: &[&str], is_stateful: bool) {
    let pod = |(number, address): (usize, &&str)| {
        let mut pod = endpoint(address, true);
        if is_stateful {
            pod["hostname"] = json!(format!("db-{number}"));
        }
        pod
    };
    let pods: Vec<Value> = addresses.iter().enumerate().map(pod).collect();
    cluster.put(slice("db", "db-abcde", "IPv4", &json!(pods)));
}

/// Says to which clusters the gateway of west is connected, and to which not.
fn connected(west: &Cluster, clusters: &[(&str, &str)]) {
    let connection = |(cluster, status): &(&str, &str)| {
        json!({"status": status, "statusMessage": "", "usingIP": "10.0.0.1",
            "endpoint": {"cluster_id": cluster, "cable_name": format!("c-{cluster}"), "hostname": "h", "subnets": [],
                "private_ip": "10.0.0.1", "public_ip": "", "nat_enabled": false, "backend": "wireguard"}})
    };
    let connections: Vec<Value> = clusters.iter().map(connection).collect();
    let own = connection(&("west", ""))["endpoint"].clone();
    west.put(json!({"apiVersion": "submariner.io/v1", "kind": "Gateway", "metadata": {"name": "gw", "namespace": OPERATOR},
        "status": {"version": "1", "haStatus": "active", "localEndpoint": own, "statusFailure": "", "connections": connections}}));
}

#[tokio::test]
async fn a_remote_service_is_answered_and_by_its_clusters_id_and_not_any_more_when_it_is_not_exported() {
    let set = Set::new();
    set.is_unknown("web").await;
    export_web(&set.east, "10.96.0.7");
    set.becomes("web", &["10.96.0.7"]).await;
    set.becomes("east.web", &["10.96.0.7"]).await;
    set.is_unknown("south.web").await;
    set.east.unexport("web");
    set.is_unknown("web").await;
}

#[tokio::test]
async fn the_own_clusters_service_comes_first_and_the_others_are_asked_for_by_id() {
    let set = Set::new();
    export_web(&set.east, "10.96.0.7");
    export_web(&set.west, "10.97.0.7");
    set.becomes("web", &["10.97.0.7"]).await;
    set.becomes("east.web", &["10.96.0.7"]).await;
    set_ready(&set.west, false);
    set.becomes("web", &["10.96.0.7"]).await;
    set_ready(&set.west, true);
    set.becomes("web", &["10.97.0.7"]).await;
}

#[tokio::test]
async fn an_export_before_its_service_is_answered_once_there_is_one() {
    let set = Set::new();
    set.east.export("web", 1_000);
    set.is_unknown("web").await;
    set.east.service("web", "10.96.0.7");
    set.becomes("web", &["10.96.0.7"]).await;
}

#[tokio::test]
async fn without_active_pods_there_is_no_address_and_clusters_that_have_some_are_answered() {
    let set = Set::new();
    export_web(&set.east, "10.96.0.7");
    set_ready(&set.east, false);
    set.becomes("web", &[]).await;
    export_web(&set.south, "10.98.0.7");
    set.becomes("web", &["10.98.0.7"]).await;
    set_ready(&set.east, true);
    set.becomes("web", &["10.96.0.7", "10.98.0.7"]).await;
    set.south.store.0.remove(Kind::EndpointSlice, "web-abcde");
    set.becomes("web", &["10.96.0.7"]).await;
}

#[tokio::test]
async fn two_remote_clusters_have_turns_and_one_that_is_not_connected_has_none() {
    let set = Set::new();
    connected(&set.west, &[("east", "connected"), ("south", "connected")]);
    export_web(&set.east, "10.96.0.7");
    export_web(&set.south, "10.98.0.7");
    set.becomes("web", &["10.96.0.7", "10.98.0.7"]).await;
    let name = "web.shop.svc.clusterset.local";
    let turns: Vec<String> = (0..4).flat_map(|_| ask(&set.records, name).1).collect();
    assert_eq!(
        (turns[0] == turns[2], turns[1] == turns[3], turns[0] == turns[1]),
        (true, true, false),
        "{turns:?}"
    );
    connected(&set.west, &[("east", "error"), ("south", "connected")]);
    set.becomes("web", &["10.98.0.7"]).await;
    set.becomes("east.web", &["10.96.0.7"]).await;
}

#[tokio::test]
async fn a_service_of_both_families_is_answered_by_a_clusterset_ip_of_each() {
    let mut set = Set::new();
    set.east.config.clusterset_ip_cidrs =
        ["243.0.0.0/29", "fd00:243::/125"].map(|block| block.parse().unwrap()).to_vec();
    set.east.config.gives_clusterset_ips = true;
    let ranges = ["243.0.0.0/8", "fd00:243::/64"].map(|range| range.parse().unwrap());
    for cluster in [&mut set.east, &mut set.west] {
        cluster.config.clusterset_ip_ranges = ranges.to_vec();
        cluster.run();
    }
    let both = json!({"clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7", "fd96::7"], "ports": []});
    set.east.put(service("web", &both));
    set.east.export("web", 1_000);
    set.becomes("web", &["243.0.0.1"]).await;
    let name = ServiceName::parse("shop", "web").unwrap();
    let ips = set.records.survey(&name).unwrap().ips;
    assert_eq!(ips.iter().map(ToString::to_string).collect::<Vec<_>>(), ["243.0.0.1", "fd00:243::1"]);
}

#[tokio::test]
async fn a_headless_service_has_the_pods_of_one_cluster_or_of_both_however_many_there_are() {
    let set = Set::new();
    headless(&set.east, Some("db"));
    pods(&set.east, &["10.2.0.1", "10.2.0.2"], false);
    set.becomes("db", &["10.2.0.1", "10.2.0.2"]).await;
    headless(&set.west, Some("db"));
    pods(&set.west, &["10.1.0.1"], false);
    set.becomes("db", &["10.1.0.1", "10.2.0.1", "10.2.0.2"]).await;
    set.becomes("east.db", &["10.2.0.1", "10.2.0.2"]).await;
    set.becomes("west.db", &["10.1.0.1"]).await;
    pods(&set.east, &["10.2.0.1", "10.2.0.2", "10.2.0.3"], false);
    set.becomes("db", &["10.1.0.1", "10.2.0.1", "10.2.0.2", "10.2.0.3"]).await;
    pods(&set.east, &["10.2.0.3"], false);
    set.becomes("db", &["10.1.0.1", "10.2.0.3"]).await;
    pods(&set.east, &[], false);
    set.becomes("db", &["10.1.0.1"]).await;
    set.east.unexport("db");
    set.becomes("db", &["10.1.0.1"]).await;
    set.is_unknown("east.db").await;
}

#[tokio::test]
async fn a_headless_service_without_a_selector_has_the_endpoints_that_somebody_has_put_there() {
    let set = Set::new();
    headless(&set.east, None);
    set.becomes("db", &[]).await;
    let mut own =
        slice("db", "db-mine", "IPv4", &json!([endpoint("172.16.7.1", true), {"addresses": ["172.16.7.2"]}]));
    own["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"] = json!("staff");
    set.east.store.0.put(Object::from_value(own).unwrap());
    set.becomes("db", &["172.16.7.1", "172.16.7.2"]).await;
    set.becomes("east.db", &["172.16.7.1", "172.16.7.2"]).await;
    set.east.store.0.remove(Kind::EndpointSlice, "db-mine");
    set.becomes("db", &[]).await;
}

#[tokio::test]
async fn pods_of_a_stateful_set_have_names_in_their_own_cluster_and_elsewhere_as_long_as_there_are_any() {
    let set = Set::new();
    for (cluster, addresses) in [(&set.east, ["10.2.0.1", "10.2.0.2"]), (&set.west, ["10.1.0.1", "10.1.0.2"])]
    {
        headless(cluster, Some("db"));
        pods(cluster, &addresses, true);
    }
    set.becomes("db-0.east.db", &["10.2.0.1"]).await;
    set.becomes("db-1.east.db", &["10.2.0.2"]).await;
    set.becomes("db-1.west.db", &["10.1.0.2"]).await;
    set.is_unknown("db-2.east.db").await;
    set.is_unknown("db-0.south.db").await;
    pods(&set.east, &["10.2.0.1", "10.2.0.2", "10.2.0.3"], true);
    set.becomes("db-2.east.db", &["10.2.0.3"]).await;
    pods(&set.east, &["10.2.0.1"], true);
    set.is_unknown("db-1.east.db").await;
    set.becomes("db-0.east.db", &["10.2.0.1"]).await;
    pods(&set.west, &["10.1.0.1"], true);
    set.is_unknown("db-1.west.db").await;
    set.becomes("db", &["10.1.0.1", "10.2.0.1"]).await;
}

#[tokio::test]
async fn without_the_namespace_in_the_asking_cluster_there_is_no_such_name() {
    let set = Set::new();
    set.west.store.0.remove(Kind::Namespace, "shop");
    export_web(&set.east, "10.96.0.7");
    export_web(&set.south, "10.98.0.7");
    let is_exported = async {
        while set.south.slices_of("east").is_empty() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, is_exported).await.unwrap();
    set.is_unknown("web").await;
    set.is_unknown("east.web").await;
    assert!(set.west.slices_of("east").is_empty());
    set.west.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}));
    set.becomes("web", &["10.96.0.7", "10.98.0.7"]).await;
}

#[tokio::test]
async fn where_that_is_set_names_of_a_missing_namespace_are_answered_and_while_it_comes() {
    let set = Set::with(|west| {
        west.config.imports_missing_namespaces = true;
        west.store.0.remove(Kind::Namespace, "shop");
    });
    export_web(&set.east, "10.96.0.7");
    set.becomes("web", &["10.96.0.7"]).await;
    headless(&set.south, Some("db"));
    pods(&set.south, &["10.3.0.1", "10.3.0.2"], true);
    set.becomes("db", &["10.3.0.1", "10.3.0.2"]).await;
    set.becomes("db-1.south.db", &["10.3.0.2"]).await;
    assert!(set.west.slices_of("east").is_empty() && set.west.import("web").is_none());
    set.west.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}));
    let has_moved = async {
        let is_left = || set.west.store.find(Kind::ServiceImport, OPERATOR, "web.shop").is_some();
        while set.west.import("web").is_none() || is_left() {
            let (code, found) = ask(&set.records, "web.shop.svc.clusterset.local");
            assert_eq!((code, found), (0, vec!["10.96.0.7".to_owned()]), "while the namespace comes");
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, has_moved).await.unwrap();
    set.becomes("web", &["10.96.0.7"]).await;
    set.becomes("db-1.south.db", &["10.3.0.2"]).await;
    set.east.unexport("web");
    set.is_unknown("web").await;
}

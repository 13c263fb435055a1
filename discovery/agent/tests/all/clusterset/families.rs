//! Addresses of both families: each service gets one of each that it has, apart from the other. The broker has upstream's definition,
//! by which an import has one address in its specification.

use super::*;

/// Returns the addresses of an import: those of its specification, and that of our annotation.
type Ips = (Vec<String>, Option<String>);

fn start(id: &str, broker: &ApiStore) -> Cluster {
    let mut cluster = Cluster::new(id, broker);
    cluster.config.gives_clusterset_ips = true;
    let blocks = match id {
        "east" => ["243.0.0.0/29", "fd00:243::/125"],
        _ => ["243.0.16.0/29", "fd00:243::1:0/125"],
    };
    cluster.config.clusterset_ip_cidrs = blocks.map(|block| block.parse().unwrap()).to_vec();
    cluster.config.clusterset_ip_ranges =
        ["243.0.0.0/8", "fd00:243::/64"].map(|range| range.parse().unwrap()).to_vec();
    cluster.run();
    cluster
}

fn two() -> (ApiStore, Cluster, Cluster) {
    let broker = ApiStore(Default::default(), None, None, Some(BROKER));
    let (east, west) = (start("east", &broker), start("west", &broker));
    (broker, east, west)
}

/// Puts a service with addresses of the families of these, the first of which is `clusterIP`.
fn put(cluster: &Cluster, name: &str, ips: &[&str]) {
    let families: Vec<&str> = ips.iter().map(|ip| if ip.contains(':') { "IPv6" } else { "IPv4" }).collect();
    cluster.put(service(
        name,
        &json!({"type": "ClusterIP", "clusterIP": ips[0], "clusterIPs": ips, "ipFamilies": families, "ports": []}),
    ));
}

const BOTH: [&str; 2] = ["10.96.0.7", "fd96::7"];

fn ips(import: &Object) -> Ips {
    let list = import.body["spec"].get("ips").and_then(Value::as_array).cloned().unwrap_or_default();
    let list = list.iter().map(|ip| ip.as_str().unwrap().to_owned()).collect();
    (list, import.metadata.annotations.get(annotation::CLUSTERSET_IPV6).cloned())
}

/// Returns what the broker has of a service.
fn given(broker: &ApiStore, name: &str) -> Ips {
    ips(&aggregate(broker, name).unwrap())
}

/// Returns what a cluster's copy has.
fn copied(cluster: &Cluster, name: &str) -> Vec<String> {
    let (list, annotated) = ips(&cluster.import(name).unwrap());
    let six = list.iter().find(|ip| ip.contains(':'));
    assert_eq!(six, annotated.as_ref(), "{list:?}");
    list
}

fn expected(four: &str, six: &str) -> Ips {
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    (text(four).into_iter().collect(), text(six))
}

#[tokio::test(start_paused = true)]
async fn a_service_gets_an_address_of_each_of_its_families() {
    let (broker, east, west) = two();
    put(&east, "both", &BOTH);
    put(&east, "six", &["fd96::8"]);
    put(&east, "four", &["10.96.0.9"]);
    for name in ["both", "six", "four"] {
        east.export(name, 1_000);
        settle().await;
        assert_eq!(east.said(name, "Ready"), "True/Exported", "{name}");
        assert_eq!(said(&broker, name)[0].as_deref(), Some("true"), "{name}");
    }
    assert_eq!(given(&broker, "both"), expected("243.0.0.1", "fd00:243::1"));
    assert_eq!(given(&broker, "six"), expected("", "fd00:243::2"));
    assert_eq!(given(&broker, "four"), expected("243.0.0.2", ""));
    // Upstream's word is about the address that upstream knows.
    let giver = |name: &str| said(&broker, name)[2].clone();
    assert_eq!(["both", "six", "four"].map(giver), texts(["east", "", "east"]));
    for cluster in [&east, &west] {
        assert_eq!(copied(cluster, "both"), ["243.0.0.1", "fd00:243::1"]);
        assert_eq!(copied(cluster, "six"), ["fd00:243::2"]);
        assert_eq!(copied(cluster, "four"), ["243.0.0.2"]);
    }
    east.unexport("six");
    put(&west, "other", &BOTH);
    west.export("other", 1_000);
    settle().await;
    assert_eq!(given(&broker, "other"), expected("243.0.16.1", "fd00:243::1:1"));
    // What is given back is given first.
    put(&east, "more", &["fd96::9"]);
    east.export("more", 1_000);
    settle().await;
    assert_eq!(given(&broker, "more"), expected("", "fd00:243::2"));
}

#[tokio::test(start_paused = true)]
async fn addresses_of_both_families_outlive_a_restart_and_a_broker_that_loses_them() {
    let (broker, mut east, west) = two();
    for name in ["b", "a", "c"] {
        put(&east, name, &BOTH);
        east.export(name, 1_000);
        settle().await;
    }
    let all = || ["a", "b", "c"].map(|name| given(&broker, name));
    let before = all();
    assert_eq!(before[1], expected("243.0.0.1", "fd00:243::1"));
    drop((broker.writes(), east.store.writes(), west.store.writes()));
    east.run();
    settle().await;
    assert_eq!((broker.writes(), east.store.writes(), west.store.writes()), (vec![], vec![], vec![]));
    for name in ["a", "b", "c"] {
        broker.0.remove(Kind::ServiceImport, &format!("{name}-shop"));
    }
    settle().await;
    assert_eq!(all(), before);
    sleep(Duration::from_secs(300)).await;
    drop((broker.writes(), east.store.writes(), west.store.writes()));
    sleep(Duration::from_secs(600)).await;
    assert_eq!(
        (broker.writes(), east.store.writes(), west.store.writes()),
        (vec![], vec![], vec![]),
        "at rest"
    );
}

#[tokio::test(start_paused = true)]
async fn a_service_that_changes_its_families_gets_an_address_or_gives_one_back() {
    let (broker, east, west) = two();
    put(&east, "web", &BOTH);
    east.export("web", 1_000);
    put(&west, "web", &BOTH);
    west.export("web", 2_000);
    settle().await;
    assert_eq!(given(&broker, "web"), expected("243.0.0.1", "fd00:243::1"));
    put(&east, "web", &BOTH[..1]);
    settle().await;
    assert_eq!(given(&broker, "web"), expected("243.0.0.1", ""));
    assert_eq!(copied(&west, "web"), ["243.0.0.1"]);
    put(&east, "next", &["fd96::9"]);
    east.export("next", 1_000);
    settle().await;
    assert_eq!(given(&broker, "next"), expected("", "fd00:243::1"), "it is nobody's meanwhile");
    put(&east, "web", &BOTH);
    settle().await;
    assert_eq!(given(&broker, "web"), expected("243.0.0.1", "fd00:243::2"));
    put(&east, "web", &BOTH[1..]);
    settle().await;
    assert_eq!(given(&broker, "web"), expected("", "fd00:243::2"));
    assert_eq!(said(&broker, "web"), texts(["true", "", ""]));
    assert_eq!(copied(&west, "web"), ["fd00:243::2"]);
    // Who has been asked for both stays so when another one decides.
    east.unexport("web");
    settle().await;
    assert_eq!(given(&broker, "web"), expected("243.0.16.1", "fd00:243::2"));
    ask(&west, "web", "false");
    settle().await;
    assert_eq!((given(&broker, "web"), said(&broker, "web")), (expected("", ""), texts(["false", "", ""])));
}

#[tokio::test(start_paused = true)]
async fn who_lacks_one_of_two_addresses_is_told_and_gets_it_once_it_is_free() {
    let broker = ApiStore(Default::default(), None, None, Some(BROKER));
    let mut east = start("east", &broker);
    east.config.clusterset_ip_cidrs[1] = "fd00:243::/126".parse().unwrap();
    east.run();
    for (number, name) in ["one", "two", "web"].into_iter().enumerate() {
        put(&east, name, &BOTH);
        east.export(name, 1_000 + i64::try_from(number).unwrap());
        settle().await;
    }
    assert_eq!(given(&broker, "web"), expected("243.0.0.3", ""));
    let (_, reason, message) = east.condition("web", "Ready").unwrap();
    assert_eq!(format!("True/{reason}"), WITHOUT);
    assert!(message.contains("with a clusterset IP of IPv4 alone: all 2 IPv6 clusterset IPs"), "{message}");
    east.unexport("one");
    settle().await;
    assert_eq!(given(&broker, "web"), expected("243.0.0.3", "fd00:243::1"));
    assert_eq!(east.said("web", "Ready"), "True/Exported");
    // A cluster with one of the two blocks says which one is missing.
    east.config.clusterset_ip_cidrs.truncate(1);
    east.run();
    put(&east, "new", &BOTH);
    east.export("new", 1_000);
    settle().await;
    let message = east.condition("new", "Ready").unwrap().2;
    assert!(message.contains("IPv4 alone: this cluster has no block of IPv6 clusterset IPs"), "{message}");
    assert_eq!(given(&broker, "web"), expected("243.0.0.3", "fd00:243::1"), "what was given stays");
}

#[tokio::test(start_paused = true)]
async fn where_the_definition_takes_one_address_a_copy_has_the_first_and_the_annotation() {
    let (broker, east, mut west) = two();
    west.store.3 = Some("shop");
    west.run();
    put(&east, "web", &BOTH);
    put(&east, "six", &["fd96::8"]);
    for name in ["web", "six"] {
        east.export(name, 1_000);
    }
    settle().await;
    assert_eq!(copied(&east, "web"), ["243.0.0.1", "fd00:243::2"]);
    for _ in 0..2 {
        let copy = |name: &str| ips(&west.import(name).unwrap());
        assert_eq!(copy("web"), given(&broker, "web"));
        assert_eq!(copy("six").0, [given(&broker, "six").1.unwrap()]);
        drop(west.store.writes());
        sleep(Duration::from_secs(600)).await;
        assert_eq!(west.store.writes(), Vec::<String>::new(), "at rest");
        west.run();
        settle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_address_of_one_family_that_does_not_count_leaves_the_other_alone() {
    let (broker, east, west) = two();
    put(&east, "web", &BOTH);
    east.export("web", 1_000);
    settle().await;
    put_foreign(&broker, "thief", "1", "fd00:243::1");
    settle().await;
    assert_eq!(given(&broker, "web"), expected("243.0.0.1", "fd00:243::2"), "it is given another one");
    register(&broker, "south", "fd00:243::/125");
    settle().await;
    assert_eq!(copied(&west, "web"), ["243.0.0.1"]);
    let message = east.condition("web", "Ready").unwrap().2;
    assert!(
        message.contains("IPv4 alone") && message.contains("in the networks of cluster south"),
        "{message}"
    );
    broker.0.remove(Kind::Cluster, "south");
    settle().await;
    assert_eq!(copied(&west, "web"), ["243.0.0.1", "fd00:243::2"]);
    assert_eq!(east.said("web", "Ready"), "True/Exported");
}

#[tokio::test(start_paused = true)]
async fn beside_upstreams_agents_its_address_stays_and_ours_goes_with_it() {
    let (broker, east, west) = two();
    put_foreign(&broker, "web", "5000000000000", "243.0.48.1");
    put(&east, "web", &BOTH);
    east.export("web", 1_000);
    settle().await;
    assert_eq!(said(&broker, "web"), texts(["true", "243.0.48.1", "north"]));
    assert_eq!(given(&broker, "web"), expected("243.0.48.1", "fd00:243::1"));
    assert_eq!(copied(&west, "web"), ["243.0.48.1", "fd00:243::1"]);
    // Upstream's agent decides and wants none: it does not know our annotation.
    east.unexport("web");
    settle().await;
    let mut import = aggregate(&broker, "web").unwrap();
    import.metadata.annotations.insert(annotation::USE_CLUSTERSET_IP.to_owned(), "false".to_owned());
    import.body.get_mut("spec").unwrap().as_object_mut().unwrap().remove("ips");
    broker.0.put(import);
    settle().await;
    assert_eq!(given(&broker, "web"), expected("", "fd00:243::1"));
    assert_eq!(copied(&west, "web"), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_set_without_a_range_of_ipv6_gives_dual_stack_services_one_of_ipv4() {
    let broker = ApiStore::default();
    let east = super::start("east", &broker, &["243.0.0.0/29"]);
    put(&east, "web", &BOTH);
    put(&east, "six", &["fd96::8"]);
    for name in ["web", "six"] {
        east.export(name, 1_000);
    }
    settle().await;
    assert_eq!(given(&broker, "web"), expected("243.0.0.1", ""));
    assert_eq!(east.said("web", "Ready"), "True/Exported");
    assert_eq!((given(&broker, "six"), said(&broker, "six")), (expected("", ""), texts(["false", "", ""])));
    assert_eq!(east.said("six", "Ready"), WITHOUT);
    let message = east.condition("six", "Ready").unwrap().2;
    assert!(
        message.contains("it has no IPv4 address, and the set has no clusterset IPs of IPv6"),
        "{message}"
    );
    assert!(message.contains("deploy-broker --clusterset-ip-cidr-range"), "{message}");
}

/// Registers a cluster with Globalnet, since this second.
fn register_with_globalnet(broker: &ApiStore, id: &str, since: i64, [net, global]: [&str; 2]) {
    let nets = |net: &str| vec![net.to_owned()];
    let spec =
        ClusterSpec { cluster_cidr: nets(net), global_cidr: nets(global), ..ClusterSpec::new(id, &[], &[]) };
    let mut object = Registered::new(BROKER, spec).unwrap().to_object();
    object.metadata.labels.insert(label::CLUSTER_ID.to_owned(), id.to_owned());
    object.metadata.creation_timestamp = Some(jiff::Timestamp::from_second(since).unwrap());
    broker.0.put(object);
}

#[tokio::test(start_paused = true)]
async fn with_globalnet_one_of_ipv6_is_given_where_others_take_the_address_as_it_is() {
    let broker = ApiStore(Default::default(), None, None, Some(BROKER));
    let mut east = start("east", &broker);
    east.config.has_globalnet = true;
    east.run();
    register_with_globalnet(&broker, "east", 2, ["fd96::/64", "242.1.0.0/16"]);
    put(&east, "web", &BOTH);
    put(&east, "six", &["fd96::8"]);
    let global = json!({"apiVersion": "submariner.io/v1", "kind": "GlobalIngressIP",
        "metadata": {"name": "web", "namespace": "shop"}, "status": {"allocatedIP": "242.1.0.9", "conditions": []},
        "spec": {"target": "ClusterIPService", "serviceRef": {"name": "web"}}});
    east.put(global);
    for name in ["web", "six"] {
        east.export(name, 1_000);
        settle().await;
    }
    assert_eq!(given(&broker, "web"), expected("243.0.0.1", "fd00:243::1"));
    assert_eq!(given(&broker, "six"), expected("", "fd00:243::2"));
    // Another cluster had the same network first.
    register_with_globalnet(&broker, "north", 1, ["fd96::/48", "242.2.0.0/16"]);
    settle().await;
    assert_eq!(given(&broker, "web"), expected("243.0.0.1", ""));
    assert_eq!((given(&broker, "six"), said(&broker, "six")), (expected("", ""), texts(["false", "", ""])));
    for (name, what) in [("web", "a clusterset IP of IPv4 alone"), ("six", "without the clusterset IP")] {
        assert_eq!(east.said(name, "Ready"), WITHOUT);
        let message = east.condition(name, "Ready").unwrap().2;
        assert!(message.contains(what), "{message}");
        assert!(message.contains("its network fd96::/64 overlaps fd96::/48 of cluster north"), "{message}");
    }
    // Where the set has none of IPv6, that is no lack.
    let told = east.config.clone();
    east.config.clusterset_ip_cidrs.truncate(1);
    east.config.clusterset_ip_ranges.truncate(1);
    east.run();
    settle().await;
    assert_eq!(
        (east.said("web", "Ready").as_str(), east.said("six", "Ready").as_str()),
        ("True/Exported", WITHOUT)
    );
    east.config = told;
    east.run();
    broker.0.remove(Kind::Cluster, "north");
    settle().await;
    let all = ["web", "six"].map(|name| given(&broker, name).1.unwrap());
    assert_eq!(BTreeSet::from(all), ["fd00:243::1", "fd00:243::2"].map(str::to_owned).into());
    assert_eq!(east.said("web", "Ready"), "True/Exported");
}

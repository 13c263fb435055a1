//! The test bed for Kubernetes: real API servers with the rights, tokens and definitions of a Submariner installation,
//! and the faults that tests put before them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use trieste_tests::cluster::{BROKER_NAMESPACE, NAMESPACE};
use trieste_tests::guard::root_test;
use trieste_tests::kubernetes::credentials::{self, Identity};
use trieste_tests::kubernetes::{
    ApiServer, Client, Faults, KubernetesLab, Mode, Options, objects, rbac, status_code,
};
use trieste_tests::lab::Lab;
use trieste_tests::topology::{Families, NodePlan, Topology};
use trieste_tests::traffic;
use trieste_tests::wait::eventually;

const TIMEOUT: Duration = Duration::from_secs(20);

#[test]
fn a_server_serves_our_definitions_and_keeps_its_objects_over_a_restart() {
    let Some(_turn) = root_test("a_server_serves_our_definitions_and_keeps_its_objects_over_a_restart")
    else {
        return;
    };
    let lab = Lab::new().unwrap();
    let start = Instant::now();
    let mut server = ApiServer::alone(&lab, "api").unwrap();
    eprintln!(
        "ready after {:?}, {} MiB resident",
        start.elapsed(),
        server.process().unwrap().resident_bytes().unwrap() >> 20
    );
    rbac::prepare_cluster(server.client()).unwrap();
    objects::install_definitions(server.client()).unwrap();
    let cluster = cluster_object("east");

    server.client().post(CLUSTERS, &cluster).unwrap();
    let before = server.requests().unwrap();
    let stored = server.client().get(&format!("{CLUSTERS}/east")).unwrap();
    let after = server.requests().unwrap();
    let key = ("GET".to_owned(), "clusters".to_owned());
    assert_eq!(after[&key] - before.get(&key).copied().unwrap_or_default(), 1);

    server.stop().unwrap();
    assert!(server.client().get("/api").is_err());
    server.restart().unwrap();
    server.kill().unwrap();
    server.restart().unwrap();
    assert_eq!(server.client().get(&format!("{CLUSTERS}/east")).unwrap(), stored);
    eprintln!("{} MiB resident", server.process().unwrap().resident_bytes().unwrap() >> 20);
}

#[test]
fn a_paused_server_answers_when_it_goes_on() {
    let Some(_turn) = root_test("a_paused_server_answers_when_it_goes_on") else { return };
    let lab = Lab::new().unwrap();
    let server = ApiServer::alone(&lab, "api").unwrap();
    let client = server.client().clone();

    server.pause().unwrap();
    let start = Instant::now();
    // Not whether it is ready: its etcd may say no for a moment, having missed its own beats.
    let asked = std::thread::spawn(move || client.text("/version").map(|_| start.elapsed()));
    std::thread::sleep(Duration::from_millis(300));
    server.resume().unwrap();

    assert!(asked.join().unwrap().unwrap() >= Duration::from_millis(300));
}

#[test]
fn service_accounts_have_upstreams_rights_and_no_more() {
    let Some(_turn) = root_test("service_accounts_have_upstreams_rights_and_no_more") else { return };
    let lab = Lab::new().unwrap();
    let server = ApiServer::alone(&lab, "api").unwrap();
    rbac::prepare_cluster(server.client()).unwrap();
    rbac::prepare_broker(server.client()).unwrap();
    rbac::join_broker(server.client(), "east").unwrap();
    objects::install_definitions(server.client()).unwrap();
    let client_of = |namespace: &str, account: &str| {
        let kubeconfig = server.kubeconfig_of(namespace, account).unwrap();
        Client::new(Some(server.namespace()), &kubeconfig).unwrap()
    };
    let gateway = client_of(NAMESPACE, rbac::GATEWAY);
    let member = client_of(BROKER_NAMESPACE, &rbac::cluster_account("east"));

    gateway.post(CLUSTERS, &cluster_object("east")).unwrap();
    gateway.list("/api/v1/nodes").unwrap();
    member.list(&format!("/apis/submariner.io/v1/namespaces/{BROKER_NAMESPACE}/endpoints")).unwrap();
    assert_eq!(code(gateway.list("/api/v1/secrets")), 403);
    assert_eq!(code(gateway.list(&format!("/api/v1/namespaces/{NAMESPACE}/events"))), 403);
    assert_eq!(code(member.get(CLUSTERS)), 403);
    assert_eq!(code(member.list("/api/v1/nodes")), 403);
}

#[test]
fn a_token_dies_with_the_secret_that_it_is_bound_to() {
    let Some(_turn) = root_test("a_token_dies_with_the_secret_that_it_is_bound_to") else { return };
    let lab = Lab::new().unwrap();
    let server = ApiServer::alone(&lab, "api").unwrap();
    rbac::prepare_broker(server.client()).unwrap();
    rbac::join_broker(server.client(), "east").unwrap();
    let account = rbac::cluster_account("east");
    let secrets = format!("/api/v1/namespaces/{BROKER_NAMESPACE}/secrets");
    server.create_secret(BROKER_NAMESPACE, "first").unwrap();
    server.create_secret(BROKER_NAMESPACE, "second").unwrap();
    let directory = lab.directory().join("broker-secret");
    let write = |secret| {
        let token = server.token(BROKER_NAMESPACE, &account, Some(secret)).unwrap();
        server.write_credentials(&directory, BROKER_NAMESPACE, &token).unwrap();
    };
    write("first");
    let identity = Identity::TokenFile(directory.join("token"));
    let kubeconfig = lab.directory().join("member.conf");
    let text = credentials::kubeconfig(&server.url(), &directory.join("ca.crt"), &identity);
    std::fs::write(&kubeconfig, text).unwrap();
    let member = || Client::new(Some(server.namespace()), &kubeconfig).unwrap();
    let old = member();
    old.list(&secrets).unwrap();

    server.delete_secret(BROKER_NAMESPACE, "first").unwrap();
    eventually("the token to be refused", TIMEOUT, || {
        let refused = old.list(&secrets).err();
        anyhow::ensure!(refused.as_ref().and_then(status_code) == Some(401), "{refused:?}");
        Ok(())
    })
    .unwrap();
    write("second");

    member().list(&secrets).unwrap();
}

#[test]
fn a_replaced_authority_voids_the_old_one_and_keeps_tokens() {
    let Some(_turn) = root_test("a_replaced_authority_voids_the_old_one_and_keeps_tokens") else { return };
    let lab = Lab::new().unwrap();
    let mut server = ApiServer::alone(&lab, "api").unwrap();
    rbac::prepare_cluster(server.client()).unwrap();
    let kubeconfig = server.kubeconfig_of(NAMESPACE, rbac::GATEWAY).unwrap();
    let old = Client::new(Some(server.namespace()), &kubeconfig).unwrap();
    old.list("/api/v1/nodes").unwrap();

    server.replace_authority().unwrap();

    assert!(old.list("/api/v1/nodes").is_err());
    Client::new(Some(server.namespace()), &kubeconfig).unwrap().list("/api/v1/nodes").unwrap();
}

#[test]
fn connections_are_refused_cut_held_and_delayed_by_the_relay() {
    let Some(_turn) = root_test("connections_are_refused_cut_held_and_delayed_by_the_relay") else { return };
    let lab = Lab::new().unwrap();
    let server = ApiServer::alone(&lab, "api").unwrap();
    let mut faults = Faults::on_loopback(&server).unwrap();
    let client = || Client::new(None, &faults.admin().unwrap()).unwrap();
    let (first, second, third, fourth) = (client(), client(), client(), client());
    first.text("/readyz").unwrap();
    assert_eq!((faults.accepted(), faults.open()), (1, 1));

    faults.set(Mode::Refuse).unwrap();
    assert!(second.text("/readyz").is_err());
    first.text("/readyz").unwrap();
    assert_eq!(faults.accepted(), 1);
    faults.set(Mode::Pass).unwrap();
    second.text("/readyz").unwrap();

    let namespaces = "/api/v1/namespaces";
    let version = server.client().get(namespaces).unwrap()["metadata"]["resourceVersion"].clone();
    let watch = second.watch(namespaces, version.as_str().unwrap()).unwrap();
    faults.cut();
    let ended = watch.next(TIMEOUT);
    assert!(!matches!(ended, Ok(Some(_))), "{ended:?}");
    eventually("both connections to be gone", TIMEOUT, || {
        anyhow::ensure!(faults.open() == 0, "{} are open", faults.open());
        Ok(())
    })
    .unwrap();

    faults.set(Mode::Hang).unwrap();
    let asked = std::thread::spawn(move || third.text("/readyz"));
    std::thread::sleep(Duration::from_millis(300));
    assert!(!asked.is_finished() && faults.open() == 1);
    faults.set(Mode::Pass).unwrap();
    asked.join().unwrap().unwrap();

    let delay = Duration::from_millis(700);
    faults.set(Mode::Delay(delay)).unwrap();
    let start = Instant::now();
    fourth.text("/readyz").unwrap();
    let first_answer = start.elapsed();
    assert!(first_answer >= delay && first_answer < 3 * delay, "{first_answer:?}");
}

#[test]
fn a_watch_from_before_a_compaction_hears_that_its_version_is_gone() {
    let Some(_turn) = root_test("a_watch_from_before_a_compaction_hears_that_its_version_is_gone") else {
        return;
    };
    let lab = Lab::new().unwrap();
    let server = ApiServer::alone_with(&lab, "api", Options { watch_cache: false }).unwrap();
    let old = changes(&server);

    let resumed = server.client().watch(CONFIG_MAPS, &old).unwrap();
    assert_eq!(resumed.next(TIMEOUT).unwrap().unwrap()["type"], "ADDED");
    server.compact().unwrap();

    assert_eq!(verdict(&server, &old), 410);
}

#[test]
fn a_watch_from_before_a_restart_hears_that_its_version_is_gone() {
    let Some(_turn) = root_test("a_watch_from_before_a_restart_hears_that_its_version_is_gone") else {
        return;
    };
    let lab = Lab::new().unwrap();
    let mut server = ApiServer::alone(&lab, "api").unwrap();
    let old = changes(&server);

    server.restart().unwrap();

    assert_eq!(verdict(&server, &old), 410);
}

#[test]
fn clusters_have_their_own_servers_and_nodes_follow_their_endpoint() {
    let Some(_turn) = root_test("clusters_have_their_own_servers_and_nodes_follow_their_endpoint") else {
        return;
    };
    let start = Instant::now();
    let lab = KubernetesLab::two_clusters().unwrap();
    eprintln!("three servers and six nodes after {:?}", start.elapsed());
    let east = lab.cluster("east");
    let client = east.server.client();
    let (gw1, worker) = (lab.gateway_node("east", 0), &east.plan.workers()[0]);
    gw1.namespace
        .ip("link add submariner type veth peer name far\nlink set far up\nlink set submariner up")
        .unwrap();
    let routes = |node: &NodePlan| {
        let shown = node.namespace.run("ip").args(["route", "show", "proto", "150"]).stdout().unwrap();
        shown.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>()
    };
    let wait_routes = |node: &NodePlan, wanted: &[&str]| {
        eventually("routes", TIMEOUT, || {
            let found = routes(node);
            anyhow::ensure!(found == wanted, "{}: {found:?}", node.name);
            Ok(())
        })
        .unwrap();
    };

    assert_eq!(client.list("/api/v1/nodes?labelSelector=submariner.io/gateway%3Dtrue").unwrap().len(), 2);
    let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app%3Dsubmariner-gateway");
    assert_eq!(client.list(&pods).unwrap().len(), 2);
    client.apply(&endpoint_object("east", "east-gw1", "172.31.1.1", "10.1.0.0/16")).unwrap();
    client.apply(&endpoint_object("west", "west-gw1", "172.31.2.1", "10.2.0.0/16")).unwrap();
    wait_routes(gw1, &["10.2.0.0/16 dev submariner scope link src 10.1.1.1"]);
    wait_routes(worker, &["10.2.0.0/16 via 172.31.1.1 dev eth0 src 10.1.3.1"]);

    // The cut lasts while the Endpoint moves: the worker hears of it afterwards.
    let cut = lab.cut_api(&east.server, worker).unwrap();
    client.apply(&endpoint_object("east", "east-gw2", "172.31.1.2", "10.1.0.0/16")).unwrap();
    wait_routes(gw1, &["10.2.0.0/16 via 172.31.1.2 dev eth0 src 10.1.1.1"]);
    assert_eq!(routes(worker), ["10.2.0.0/16 via 172.31.1.1 dev eth0 src 10.1.3.1"]);
    drop(cut);
    wait_routes(worker, &["10.2.0.0/16 via 172.31.1.2 dev eth0 src 10.1.3.1"]);

    let reaches = |address| traffic::ping(&worker.namespace, address, 2, &[]).unwrap().received > 0;
    let isolation = lab.isolate(gw1).unwrap();
    assert!(!reaches(gw1.underlay_address()) && reaches(lab.broker.address().ip()));
    drop(isolation);
    assert!(reaches(gw1.underlay_address()));
}

#[test]
fn a_container_has_a_name_files_and_an_environment_of_its_own() {
    let Some(_turn) = root_test("a_container_has_a_name_files_and_an_environment_of_its_own") else { return };
    let mut topology = Topology::two_clusters().with_underlay(Families::V4);
    topology.clusters.truncate(1);
    let lab = KubernetesLab::start(&topology, Options::default()).unwrap();
    let node = lab.gateway_node("east", 0);
    let files = lab.gateway_files("east", 0).unwrap();
    lab.write_service_account("east", &files, rbac::GATEWAY).unwrap();
    let environment = lab.settings("east", 0).unwrap().environment;
    let inside = |script: &str| {
        files.command(node, "sh", &environment).args(["-c", script]).stdout().unwrap().trim().to_owned()
    };

    assert_eq!(inside("uname -n"), "east-gw1");
    assert_eq!(inside("echo $SUBMARINER_CLUSTERID $BROKER_K8S_APISERVER $HOME"), "east 172.31.250.100:6443");
    let token = std::fs::read_to_string(files.service_account().join("token")).unwrap();
    assert_eq!(inside("cat /var/run/secrets/kubernetes.io/serviceaccount/token"), token);
    inside("mkdir /run/trieste /var/lib/trieste && echo kept >/var/lib/trieste/state");
    assert!(files.outside("run/trieste").is_dir());
    assert_eq!(inside("cat /var/lib/trieste/state"), "kept");
    files.forget_state().unwrap();
    assert_eq!(inside("ls /var/lib"), "");

    let old = lab.broker_token("east").unwrap();
    let member = broker_client(&lab, &old);
    let endpoints = format!("/apis/submariner.io/v1/namespaces/{BROKER_NAMESPACE}/endpoints");
    member.list(&endpoints).unwrap();
    lab.revoke_broker_tokens("east").unwrap();
    broker_client(&lab, &lab.broker_token("east").unwrap()).list(&endpoints).unwrap();
    eventually("the old token to be refused", TIMEOUT, || {
        let refused = member.list(&endpoints).err();
        anyhow::ensure!(refused.as_ref().and_then(status_code) == Some(401), "{refused:?}");
        Ok(())
    })
    .unwrap();
}

const CLUSTERS: &str = "/apis/submariner.io/v1/namespaces/submariner-operator/clusters";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn cluster_object(id: &str) -> Value {
    json!({
        "apiVersion": "submariner.io/v1",
        "kind": "Cluster",
        "metadata": {"name": id, "namespace": NAMESPACE},
        "spec": {"cluster_id": id, "color_codes": ["blue"], "cluster_cidr": ["10.1.0.0/16"],
            "service_cidr": ["10.101.0.0/16"], "global_cidr": []},
    })
}

fn endpoint_object(cluster: &str, hostname: &str, private_ip: &str, subnet: &str) -> Value {
    json!({
        "apiVersion": "submariner.io/v1",
        "kind": "Endpoint",
        "metadata": {"name": cluster, "namespace": NAMESPACE},
        "spec": {"cluster_id": cluster, "cable_name": format!("submariner-cable-{cluster}"),
            "hostname": hostname, "private_ip": private_ip, "public_ip": "", "nat_enabled": false,
            "backend": "wireguard", "backend_config": {"interface-name": "submariner"}, "subnets": [subnet]},
    })
}

fn broker_client(lab: &KubernetesLab, token: &str) -> Client {
    let path = lab.lab.directory().join("member.conf");
    let identity = Identity::Token(token.to_owned());
    std::fs::write(&path, credentials::kubeconfig(&lab.broker.url(), &lab.broker.ca_file(), &identity))
        .unwrap();
    Client::new(Some(lab.broker.namespace()), &path).unwrap()
}

/// The HTTP status of a refusal.
fn code<T: std::fmt::Debug>(answer: anyhow::Result<T>) -> u16 {
    status_code(&answer.unwrap_err()).expect("the server has answered")
}

/// Writes some objects and returns the resource version from before.
fn changes(server: &ApiServer) -> String {
    server.client().create_namespace("default").unwrap();
    let list = server.client().get(CONFIG_MAPS).unwrap();
    for number in 0..3 {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": "default", "name": format!("change-{number}")}});
        server.client().apply(&object).unwrap();
    }
    list["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

/// The code of the event with which the server ends a watch from this version, or of its refusal.
fn verdict(server: &ApiServer, version: &str) -> u64 {
    match server.client().watch(CONFIG_MAPS, version) {
        Ok(watch) => {
            let event = watch.next(TIMEOUT).unwrap().unwrap();
            assert_eq!(event["type"], "ERROR", "{event}");
            event["object"]["code"].as_u64().unwrap()
        }
        Err(error) => u64::from(status_code(&error).expect("the server has answered")),
    }
}

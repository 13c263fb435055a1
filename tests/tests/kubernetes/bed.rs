//! The test bed for Kubernetes: real API servers with the rights, tokens and definitions of a Submariner installation,
//! and the faults that tests put before them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use trieste_tests::cluster::{BROKER_NAMESPACE, NAMESPACE};
use trieste_tests::guard::root_test;
use trieste_tests::kubernetes::credentials::{self, Identity};
use trieste_tests::kubernetes::{ApiServer, Client, Faults, Mode, Options, objects, rbac, status_code};
use trieste_tests::lab::Lab;
use trieste_tests::wait::eventually;

use crate::shared;

const TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn a_server_keeps_its_objects_and_tokens_over_pauses_restarts_and_another_authority() {
    let name = "a_server_keeps_its_objects_and_tokens_over_pauses_restarts_and_another_authority";
    let Some(_turn) = root_test(name) else { return };
    let lab = Lab::new().unwrap();
    let mut server = ApiServer::alone(&lab, "api").unwrap();
    rbac::prepare_cluster(server.client()).unwrap();
    objects::install_definitions(server.client()).unwrap();
    server.client().post(CLUSTERS, &cluster_object("east")).unwrap();
    let before = server.requests().unwrap();
    let stored = server.client().get(&format!("{CLUSTERS}/east")).unwrap();
    let after = server.requests().unwrap();
    let key = ("GET".to_owned(), "clusters".to_owned());
    assert_eq!(after[&key] - before.get(&key).copied().unwrap_or_default(), 1);

    // Not whether it is ready: its etcd may say no for a moment, having missed its own beats.
    let client = server.client().clone();
    server.pause().unwrap();
    let asked = std::thread::spawn(move || client.text("/version"));
    std::thread::sleep(Duration::from_millis(300));
    assert!(!asked.is_finished(), "a paused server answers");
    server.resume().unwrap();
    asked.join().unwrap().unwrap();

    let old = changes(&server);
    server.stop().unwrap();
    assert!(server.client().get("/api").is_err());
    server.restart().unwrap();
    assert_eq!(verdict(&server, &old), 410, "a watch from before a restart goes on");
    server.kill().unwrap();
    server.restart().unwrap();
    assert_eq!(server.client().get(&format!("{CLUSTERS}/east")).unwrap(), stored);

    let kubeconfig = server.kubeconfig_of(NAMESPACE, rbac::GATEWAY).unwrap();
    let old = Client::new(Some(server.namespace()), &kubeconfig).unwrap();
    old.list("/api/v1/nodes").unwrap();
    server.replace_authority().unwrap();
    assert!(old.list("/api/v1/nodes").is_err(), "the old authority is believed");
    Client::new(Some(server.namespace()), &kubeconfig).unwrap().list("/api/v1/nodes").unwrap();
}

#[test]
fn service_accounts_have_upstreams_rights_and_no_more() {
    let Some(server) = shared::server("service_accounts_have_upstreams_rights_and_no_more") else { return };
    rbac::prepare_cluster(server.client()).unwrap();
    rbac::prepare_broker(server.client()).unwrap();
    rbac::join_broker(server.client(), "east").unwrap();
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
    let Some(server) = shared::server("a_token_dies_with_the_secret_that_it_is_bound_to") else { return };
    let scratch = tempfile::tempdir().unwrap();
    rbac::prepare_broker(server.client()).unwrap();
    rbac::join_broker(server.client(), "east").unwrap();
    let account = rbac::cluster_account("east");
    let secrets = format!("/api/v1/namespaces/{BROKER_NAMESPACE}/secrets");
    server.create_secret(BROKER_NAMESPACE, "first").unwrap();
    server.create_secret(BROKER_NAMESPACE, "second").unwrap();
    let directory = scratch.path().join("broker-secret");
    let write = |secret| {
        let token = server.token(BROKER_NAMESPACE, &account, Some(secret)).unwrap();
        server.write_credentials(&directory, BROKER_NAMESPACE, &token).unwrap();
    };
    write("first");
    let identity = Identity::TokenFile(directory.join("token"));
    let kubeconfig = scratch.path().join("member.conf");
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
fn connections_are_refused_cut_held_and_delayed_by_the_relay() {
    let Some(server) = shared::server("connections_are_refused_cut_held_and_delayed_by_the_relay") else {
        return;
    };
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
    assert!(first_answer >= delay, "{first_answer:?}");
}

#[test]
fn a_watch_from_before_a_compaction_hears_that_its_version_is_gone() {
    let Some(_turn) = root_test("a_watch_from_before_a_compaction_hears_that_its_version_is_gone") else {
        return;
    };
    let lab = Lab::new().unwrap();
    let server =
        ApiServer::alone_with(&lab, "api", Options { watch_cache: false, ..Options::default() }).unwrap();
    let old = changes(&server);

    let resumed = server.client().watch(CONFIG_MAPS, &old).unwrap();
    assert_eq!(resumed.next(TIMEOUT).unwrap().unwrap()["type"], "ADDED");
    server.compact().unwrap();

    assert_eq!(verdict(&server, &old), 410);
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

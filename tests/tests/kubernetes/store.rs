//! The store on a real API server: the same contract as the directory's, and what becomes of it when connection,
//! credentials or server fail.

use std::path::Path;
use std::pin::pin;
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt as _};
use serde_json::json;
use trieste_control::api::{Kind, ObjectKey};
use trieste_control::store::kube::{Access, Outcome, ServerSettings, Verb};
use trieste_control::store::{
    AnyStore, Cache, KubeStore, Location, Store, StoreError, StoreEvent, conformance,
};
use trieste_tests::cluster::{BROKER_NAMESPACE, NAMESPACE};
use trieste_tests::guard::root_test;
use trieste_tests::kubernetes::{ApiServer, Faults, Mode, objects, rbac};
use trieste_tests::lab::Lab;

use crate::shared;

/// Longer than anything takes that works at all.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn an_api_server_is_a_store_like_any_other() {
    let Some(server) = shared::server("an_api_server_is_a_store_like_any_other") else { return };
    let faults = Faults::on_loopback(&server).unwrap();
    for namespace in ["one", "two"] {
        server.client().create_namespace(namespace).unwrap();
    }
    let location: Location = format!("kube:{}", faults.admin().unwrap().display()).parse().unwrap();

    run(async {
        let store = AnyStore::open(&location).unwrap();
        conformance::run(&store, "one", "two").await;
        let requests = store.requests().unwrap();
        eprintln!("{} requests", requests.total());
        assert_eq!(requests.count(Verb::Get, Outcome::Lost), 0);
    });
}

#[test]
fn kinds_without_a_namespace_and_those_of_kubernetes_are_stored_too() {
    let name = "kinds_without_a_namespace_and_those_of_kubernetes_are_stored_too";
    let Some(server) = shared::server(name) else { return };
    let faults = Faults::on_loopback(&server).unwrap();
    rbac::prepare_cluster(server.client()).unwrap();
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"namespace": NAMESPACE, "name": "lock"}, "spec": {"holderIdentity": "a"}});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
        "spec": {"podCIDR": "10.0.0.0/24"}});
    for object in [&lease, &node] {
        server.client().apply(object).unwrap();
    }
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    server.client().patch("/api/v1/nodes/n1/status", &status).unwrap();

    run(async {
        let store = store(&faults);
        let mut node = store.get(&ObjectKey::new(Kind::Node, "", "n1")).await.unwrap().unwrap();
        assert!(node.metadata.extra.get("managedFields").is_none());
        node.metadata.annotations.insert("seen".to_owned(), "yes".to_owned());
        // An update neither loses nor writes the status of a kind that has it apart.
        node.body.remove("status");
        let node = store.update(node).await.unwrap();
        assert_eq!(node.body["status"]["conditions"][0]["type"], "Ready");
        assert_eq!(store.list(Kind::Node, "").await.unwrap(), [node]);
        let events = store.watch_one(&ObjectKey::new(Kind::Lease, NAMESPACE, "lock"));
        let first = pin!(events).next().await.unwrap();
        assert!(
            matches!(&first, StoreEvent::Listed(leases) if leases[0].body["spec"]["holderIdentity"] == "a")
        );
        let misplaced = store.list(Kind::Node, "default").await;
        assert!(matches!(misplaced, Err(StoreError::Invalid { .. })), "{misplaced:?}");
    });
}

#[test]
fn refusals_say_what_is_missing() {
    let Some(_turn) = root_test("refusals_say_what_is_missing") else { return };
    let lab = Lab::new().unwrap();
    let server = ApiServer::alone(&lab, "api").unwrap();
    let faults = Faults::on_loopback(&server).unwrap();
    rbac::prepare_broker(server.client()).unwrap();
    rbac::join_broker(server.client(), "east").unwrap();
    let token = server.token(BROKER_NAMESPACE, &rbac::cluster_account("east"), None).unwrap();

    run(async {
        let admin = store(&faults);
        let no_kind = admin.list(Kind::Cluster, "default").await.unwrap_err();
        assert!(
            no_kind.is_unavailable() && no_kind.to_string().contains("is the CRD installed?"),
            "{no_kind}"
        );
        objects::install_definitions(server.client()).unwrap();
        let no_namespace = admin.create(conformance::sample("nowhere", "c")).await.unwrap_err();
        assert!(no_namespace.to_string().contains("no namespace nowhere"), "{no_namespace}");
        let mut shapeless = conformance::sample("default", "c");
        shapeless.body["spec"]["cluster_cidr"] = json!("10.0.0.0/8");
        let Err(StoreError::Invalid { source, .. }) = admin.create(shapeless).await else { panic!() };
        assert_eq!(source.field_path(), Some("spec.cluster_cidr"));

        let member = KubeStore::new(broker(&faults, Some(token), server.ca_file().as_path()));
        let forbidden = member.list(Kind::Cluster, "default").await.unwrap_err();
        assert!(matches!(forbidden, StoreError::Forbidden { .. }), "{forbidden}");
        assert!(
            forbidden.is_unavailable() && forbidden.to_string().contains("does not allow this"),
            "{forbidden}"
        );
        let nobody = KubeStore::new(broker(&faults, Some("no-token".to_owned()), &server.ca_file()));
        let unknown = nobody.list(Kind::Cluster, BROKER_NAMESPACE).await.unwrap_err();
        assert!(unknown.to_string().contains("does not accept our credentials"), "{unknown}");
        let stranger = broker(&faults, None, Path::new("/etc/ssl/certs/ca-certificates.crt"));
        let untrusted = KubeStore::new(stranger).list(Kind::Cluster, "default").await.unwrap_err();
        assert!(untrusted.to_string().contains("not from an authority that we trust"), "{untrusted}");
    });
}

#[test]
fn a_cut_watch_resumes_and_a_silent_one_is_noticed() {
    let Some(server) = shared::server("a_cut_watch_resumes_and_a_silent_one_is_noticed") else { return };
    let mut faults = Faults::on_loopback(&server).unwrap();
    server.client().create_namespace("cut").unwrap();

    run(async {
        let store = store(&faults);
        let mut events = store.list_watch(Kind::Cluster, "cut");
        let mut mirror = Cache::new();
        follow(&mut events, &mut mirror, 0).await;

        faults.cut();
        // Written past the relay: what is asked of a connection at the moment of its death fails, and may have been done.
        let cluster = conformance::sample("cut", "after-cut").to_value();
        server.client().post("/apis/submariner.io/v1/namespaces/cut/clusters", &cluster).unwrap();
        let event = next(&mut events).await;
        assert!(
            matches!(&event, StoreEvent::Applied(object) if object.metadata.name == "after-cut"),
            "{event:?}"
        );
        assert_eq!(store.requests().of(Verb::List), 1, "a cut watch was listed again");

        let start = Instant::now();
        faults.set(Mode::Hang).unwrap();
        let event = next(&mut events).await;
        eprintln!("noticed after {:?}: {event:?}", start.elapsed());
        assert!(matches!(event, StoreEvent::Unavailable(_)), "{event:?}");

        faults.set(Mode::Refuse).unwrap();
        faults.cut();
        let before = store.requests().total();
        let watched = async {
            loop {
                let event = next(&mut events).await;
                assert!(matches!(event, StoreEvent::Unavailable(_)), "{event:?}");
            }
        };
        let _: Result<(), _> = tokio::time::timeout(Duration::from_secs(15), watched).await;
        eprintln!("{} requests in 15 s", store.requests().total() - before);
        assert!(store.requests().total() - before < 12, "a storm of requests against a server that is away");
        faults.set(Mode::Pass).unwrap();
        follow(&mut events, &mut Cache::new(), 1).await;
    });
}

#[test]
fn a_version_too_old_to_resume_from_is_listed_again() {
    let Some(_turn) = root_test("a_version_too_old_to_resume_from_is_listed_again") else { return };
    let lab = Lab::new().unwrap();
    let (mut server, faults) = server(&lab);
    server.client().create_namespace("one").unwrap();

    run(async {
        let store = store(&faults);
        store.create(conformance::sample("one", "old")).await.unwrap();
        let mut events = store.list_watch(Kind::Cluster, "one");
        let mut mirror = Cache::new();
        follow(&mut events, &mut mirror, 1).await;
        for step in 0..5 {
            let change = json!({"metadata": {"annotations": {"step": step.to_string()}}});
            server.client().patch("/apis/submariner.io/v1/namespaces/one/clusters/old", &change).unwrap();
        }
        server.compact().unwrap();
        server.restart().unwrap();
        let deleted = server.client().delete("/apis/submariner.io/v1/namespaces/one/clusters/old").unwrap();
        assert!(deleted);
        follow(&mut events, &mut mirror, 0).await;
    });
}

#[test]
fn a_brokers_token_and_authority_are_read_again() {
    let Some(_turn) = root_test("a_brokers_token_and_authority_are_read_again") else { return };
    let lab = Lab::new().unwrap();
    let (mut server, faults) = server(&lab);
    rbac::prepare_broker(server.client()).unwrap();
    rbac::join_broker(server.client(), "east").unwrap();
    let account = rbac::cluster_account("east");
    let directory = lab.directory().join("broker-secret");
    server.create_secret(BROKER_NAMESPACE, "first").unwrap();
    server.create_secret(BROKER_NAMESPACE, "second").unwrap();
    let write = |server: &ApiServer, secret| {
        let token = server.token(BROKER_NAMESPACE, &account, Some(secret)).unwrap();
        server.write_credentials(&directory, BROKER_NAMESPACE, &token).unwrap();
        token
    };
    let first = KubeStore::new(broker(&faults, Some(write(&server, "first")), &server.ca_file()));
    let settings =
        ServerSettings { server: faults.server(), system_roots: true, ..ServerSettings::default() };
    let store = KubeStore::new(Access::server(settings.with_secret_dir(&directory)).unwrap());

    run(async {
        store.create(conformance::sample(BROKER_NAMESPACE, "east")).await.unwrap();
        write(&server, "second");
        server.delete_secret(BROKER_NAMESPACE, "first").unwrap();
        // The server believes a token for a while after its end.
        let the_first_to_die = async {
            while first.list(Kind::Cluster, BROKER_NAMESPACE).await.is_ok() {
                store.list(Kind::Cluster, BROKER_NAMESPACE).await.unwrap();
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        tokio::time::timeout(PATIENCE, the_first_to_die).await.expect("the first token to die");
        store.list(Kind::Cluster, BROKER_NAMESPACE).await.unwrap();

        server.replace_authority().unwrap();
        faults.cut();
        let untrusted = store.list(Kind::Cluster, BROKER_NAMESPACE).await.unwrap_err();
        assert!(untrusted.to_string().contains("not from an authority that we trust"), "{untrusted}");
        write(&server, "second");
        let the_authority_to_be_read = async {
            while store.list(Kind::Cluster, BROKER_NAMESPACE).await.is_err() {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        tokio::time::timeout(PATIENCE, the_authority_to_be_read).await.expect("the new authority to be read");
    });
}

fn server(lab: &Lab) -> (ApiServer, Faults) {
    let server = ApiServer::alone(lab, "api").unwrap();
    objects::install_definitions(server.client()).unwrap();
    let faults = Faults::on_loopback(&server).unwrap();
    (server, faults)
}

fn store(faults: &Faults) -> KubeStore {
    KubeStore::new(Access::kubeconfig(faults.admin().unwrap(), None))
}

fn broker(faults: &Faults, token: Option<String>, ca_file: &Path) -> Access {
    let ca_file = Some(ca_file.to_owned());
    Access::server(ServerSettings { server: faults.server(), token, ca_file, ..ServerSettings::default() })
        .unwrap()
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(test);
}

async fn next(events: &mut (impl Stream<Item = StoreEvent> + Unpin)) -> StoreEvent {
    tokio::time::timeout(PATIENCE, events.next()).await.expect("an event").expect("a watch never ends")
}

/// Takes in events until as many objects are known.
async fn follow(events: &mut (impl Stream<Item = StoreEvent> + Unpin), mirror: &mut Cache, count: usize) {
    while !(mirror.is_complete() && mirror.objects().count() == count) {
        let event = next(events).await;
        mirror.apply(&event);
    }
}

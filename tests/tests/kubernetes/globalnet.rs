//! Globalnet on a real API server, with the rights that `trieste join` gives: upstream's recorded scenario is replayed, and
//! the objects compared, field by field.

use std::time::Duration;

use serde_json::{Value, json};
use trieste_control::api::{Kind, Object, ObjectKey, annotation, internal_service_name};
use trieste_control::election::{self, Candidate, ElectionConfig, GLOBALNET_LEASE};
use trieste_control::globalnet::{GlobalnetConfig, GlobalnetHandle, GlobalnetPhase, spawn, withdraw};
use trieste_control::members::paths_namespace;
use trieste_control::store::kube::{Access, Outcome, ServerSettings, Verb};
use trieste_control::store::{KubeStore, Store as _};
use trieste_deploy::objects::names::GATEWAY;
use trieste_deploy::objects::{BrokerAccess, MemberOptions, Secret, member};
use trieste_tests::cluster::NAMESPACE;
use trieste_tests::guard::root_test;
use trieste_tests::kubernetes::{ApiServer, Client, Faults, objects};
use trieste_tests::lab::Lab;

/// Longer than anything takes that works at all.
const PATIENCE: Duration = Duration::from_secs(60);

const RECORDED: [&str; 4] = [
    include_str!("../../../control/tests/golden/globalnet/a-clusterglobalegressips.yaml"),
    include_str!("../../../control/tests/golden/globalnet/a-globalegressips.yaml"),
    include_str!("../../../control/tests/golden/globalnet/a-globalingressips.yaml"),
    include_str!("../../../control/tests/golden/globalnet/a-demo-services.yaml"),
];

#[test]
fn the_recorded_scenario_ends_in_upstreams_objects_and_a_successor_changes_none() {
    let name = "the_recorded_scenario_ends_in_upstreams_objects_and_a_successor_changes_none";
    let Some(_turn) = root_test(name) else { return };
    let lab = Lab::new().unwrap();
    let server = ApiServer::alone(&lab, "api").unwrap();
    let faults = Faults::on_loopback(&server).unwrap();
    let client = server.client();
    install(client);

    run(async {
        let gateway = store(&server, &faults);
        let one = Gateway::start(&gateway, "a-gw1");
        one.settles().await;
        scenario(client);
        one.until(|state| state.ingress.len() == 2 && state.egress.len() == 4).await;
        one.settles().await;
        let admin = KubeStore::new(Access::kubeconfig(faults.admin().unwrap(), None));
        compare(&admin).await;
        let requests = gateway.requests();
        assert_eq!(
            requests
                .iter()
                .filter(|(_, outcome, _)| *outcome == Outcome::Denied)
                .map(|all| all.2)
                .sum::<u64>(),
            0
        );

        let key = ObjectKey::new(Kind::Gateway, NAMESPACE, "a-gw1");
        let own = gateway.get(&key).await.unwrap().unwrap();
        assert_eq!(own.metadata.annotations[annotation::GLOBAL_IP], "242.1.255.254");

        let before = one.handle.state.borrow().clone();
        let count = |verb| gateway.requests().of(verb);
        let (creates, updates) = (count(Verb::Create), count(Verb::Update));
        drop(one);
        let again = Gateway::start(&gateway, "a-gw1");
        again.settles().await;
        assert_eq!(*again.handle.state.borrow(), before);
        assert_eq!(count(Verb::Create), creates, "a restart makes nothing");
        // The Lease is renewed meanwhile, and nothing else written.
        assert_eq!(again.handle.status.borrow().writes, 0);
        assert!(count(Verb::Update) >= updates);

        unexport(client, &admin, &again).await;
        drop(again);
        withdraw(&gateway, NAMESPACE).await.unwrap();
        for kind in [Kind::GlobalIngressIp, Kind::ClusterGlobalEgressIp] {
            assert_eq!(gateway.list(kind, "").await.unwrap(), []);
        }
        assert_eq!(
            gateway.get(&ObjectKey::new(Kind::Lease, NAMESPACE, GLOBALNET_LEASE)).await.unwrap(),
            None
        );
    });
}

#[test]
fn a_service_without_selector_and_objects_of_users_go_the_same_way() {
    let Some(_turn) = root_test("a_service_without_selector_and_objects_of_users_go_the_same_way") else {
        return;
    };
    let lab = Lab::new().unwrap();
    let server = ApiServer::alone(&lab, "api").unwrap();
    let faults = Faults::on_loopback(&server).unwrap();
    let client = server.client();
    install(client);

    run(async {
        let gateway = store(&server, &faults);
        let one = Gateway::start(&gateway, "a-gw1");
        let spec = json!({"ports": [{"port": 80}]});
        let subsets = json!([{"addresses": [{"ip": "10.1.9.1"}], "ports": [{"port": 80}]}]);
        for name in ["out", "heads"] {
            let mut spec = spec.clone();
            if name == "heads" {
                spec["clusterIP"] = json!("None");
            }
            client.apply(&object("v1", "Service", name, json!({ "spec": spec }))).unwrap();
            let endpoints = object("v1", "Endpoints", name, json!({ "subsets": subsets }));
            client.post("/api/v1/namespaces/demo/endpoints", &endpoints).unwrap();
            client.apply(&export(name)).unwrap();
        }
        one.until(|state| state.ingress.len() == 2).await;
        one.settles().await;
        let copy = ObjectKey::new(Kind::CoreEndpoints, "demo", internal_service_name("out"));
        let copy = gateway.get(&copy).await.unwrap().unwrap();
        assert_eq!(copy.body["subsets"][0]["addresses"][0]["ip"], "10.1.9.1");
        let names: Vec<String> = gateway
            .list(Kind::GlobalIngressIp, "demo")
            .await
            .unwrap()
            .into_iter()
            .map(|object| object.metadata.name)
            .collect();
        assert_eq!(names, ["ep-heads-10.1.9.1", "out"]);

        // Settled is settled: the server's defaults are no reason to write again.
        let writes = one.handle.status.borrow().writes;
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(one.handle.status.borrow().writes, writes);
    });
}

/// A gateway's Globalnet.
struct Gateway {
    candidate: Candidate,
    handle: GlobalnetHandle,
}

impl Gateway {
    fn start(store: &KubeStore, name: &str) -> Self {
        let candidate = election::spawn(store.clone(), ElectionConfig::globalnet(NAMESPACE, name));
        let config = GlobalnetConfig {
            namespace: NAMESPACE.to_owned(),
            cluster_id: "cluster-a".to_owned(),
            gateway: Some(name.to_owned()),
        };
        Self { handle: spawn(store.clone(), config, candidate.clone()), candidate }
    }

    async fn settles(&self) {
        let mut status = self.handle.status.clone();
        let settled = status.wait_for(|status| status.phase == GlobalnetPhase::Settled);
        if tokio::time::timeout(PATIENCE, settled).await.is_err() {
            panic!("{:?}, leads: {:?}", *self.handle.status.borrow(), self.candidate.status());
        }
        let status = self.handle.status.borrow().clone();
        assert_eq!((status.problem, status.refused), (None, Vec::new()));
    }

    async fn until(&self, is_so: impl Fn(&trieste_control::globalnet::GlobalnetState) -> bool) {
        let mut state = self.handle.state.clone();
        let reached = state.wait_for(|state| state.as_ref().is_some_and(|state| is_so(state)));
        if tokio::time::timeout(PATIENCE, reached).await.is_err() {
            panic!("{:#?}\n{:?}", *self.handle.state.borrow(), *self.handle.status.borrow());
        }
    }
}

/// What `trieste join` installs and what a gateway's leader has written, but for programs.
fn install(client: &Client) {
    objects::install_definitions(client).unwrap();
    objects::install_service_exports(client).unwrap();
    for namespace in [NAMESPACE, &paths_namespace(NAMESPACE), "demo"] {
        client.create_namespace(namespace).unwrap();
    }
    client
        .apply(&json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"namespace": "demo", "name": "default"}}))
        .unwrap();
    let mut options = MemberOptions::new(
        "cluster-a",
        BrokerAccess::new("none:1", None, Secret::default()),
        Secret::default(),
    );
    options.global_cidrs = vec!["242.1.0.0/16".parse().unwrap()];
    let rights = ["ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"];
    for manifest in member(&options).iter().filter(|manifest| rights.contains(&manifest.kind())) {
        client.apply(manifest.as_value()).unwrap();
    }
    let spec = json!({"cluster_id": "cluster-a", "color_codes": ["blue"], "cluster_cidr": ["10.1.0.0/16"],
        "service_cidr": ["100.1.0.0/16"], "global_cidr": ["242.1.0.0/16"]});
    let local = json!({"backend": "vxlan", "backend_config": {}, "cable_name": "c", "cluster_id": "cluster-a",
        "healthCheckIP": "", "hostname": "a-gw1", "nat_enabled": true, "private_ip": "172.31.1.11", "public_ip": "",
        "subnets": ["242.1.0.0/16"]});
    let status = json!({"version": "1", "haStatus": "active", "localEndpoint": local, "statusFailure": "",
        "connections": []});
    for (kind, name, rest) in
        [("Cluster", "cluster-a", json!({ "spec": spec })), ("Gateway", "a-gw1", json!({ "status": status }))]
    {
        let mut object = object("submariner.io/v1", kind, name, rest);
        object["metadata"]["namespace"] = json!(NAMESPACE);
        client.apply(&object).unwrap();
    }
}

/// What upstream's recorded users had made.
fn scenario(client: &Client) {
    for (name, spec) in [
        ("demo-egress", json!({"numberOfIPs": 2})),
        ("demo-egress-pods", json!({"numberOfIPs": 1, "podSelector": {"matchLabels": {"app": "web"}}})),
    ] {
        client.apply(&object("submariner.io/v1", "GlobalEgressIP", name, json!({ "spec": spec }))).unwrap();
    }
    let mut pod = object(
        "v1",
        "Pod",
        "web-0",
        json!({"spec": {"nodeName": "a-w1", "containers": [{"name": "web", "image": "lab"}],
            "serviceAccountName": "default", "automountServiceAccountToken": false}}),
    );
    pod["metadata"]["labels"] = json!({"app": "web"});
    client.apply(&pod).unwrap();
    let status =
        json!({"status": {"phase": "Running", "podIP": "10.1.3.10", "podIPs": [{"ip": "10.1.3.10"}]}});
    client.patch("/api/v1/namespaces/demo/pods/web-0/status", &status).unwrap();
    let ports = json!([{"name": "http", "port": 8080, "protocol": "TCP"}]);
    for (name, spec) in [
        ("web", json!({"clusterIP": "None", "ports": ports, "selector": {"app": "web"}})),
        ("web-cip", json!({"ports": ports, "selector": {"app": "web"}})),
    ] {
        client.apply(&object("v1", "Service", name, json!({ "spec": spec }))).unwrap();
        client.apply(&export(name)).unwrap();
    }
}

async fn compare(store: &KubeStore) {
    let mut count = 0;
    for text in RECORDED {
        let list: Value = serde_saphyr::from_str(text).unwrap();
        for item in list["items"].as_array().unwrap() {
            let recorded = Object::from_value(item.clone()).unwrap();
            let key = recorded.key();
            let ours = store.get(&key).await.unwrap().unwrap_or_else(|| panic!("there is no {key}"));
            assert_eq!(bare(&ours), bare(&recorded), "{key}");
            count += 1;
        }
    }
    assert_eq!(count, 10);
    for (kind, expected) in
        [(Kind::GlobalIngressIp, 2), (Kind::GlobalEgressIp, 2), (Kind::ClusterGlobalEgressIp, 1)]
    {
        assert_eq!(store.list(kind, "").await.unwrap().len(), expected, "{kind}");
    }
    assert_eq!(store.list(Kind::Service, "demo").await.unwrap().len(), 3);
}

/// What can be compared: not who wrote it when, nor which cluster IP the server chose.
fn bare(object: &Object) -> Value {
    let mut value = object.to_value();
    let metadata = value["metadata"].as_object_mut().unwrap();
    for field in ["resourceVersion", "uid", "creationTimestamp", "generation"] {
        metadata.remove(field);
    }
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        annotations.remove(annotation::POD_SELECTOR);
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    let conditions = value.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        condition.as_object_mut().unwrap().remove("lastTransitionTime");
    }
    if object.kind == Kind::Service && value["spec"]["clusterIP"] != "None" {
        let spec = value["spec"].as_object_mut().unwrap();
        spec.remove("clusterIP");
        spec.remove("clusterIPs");
    }
    if object.kind == Kind::Service {
        // What this server fills in, and the recorded one did not where nobody could tell the difference.
        let spec = value["spec"].as_object_mut().unwrap();
        for field in ["externalTrafficPolicy", "internalTrafficPolicy"] {
            spec.remove(field);
        }
    }
    value
}

/// An internal service goes although it has a finalizer, and its address with it.
async fn unexport(client: &Client, store: &KubeStore, gateway: &Gateway) {
    client.delete("/apis/multicluster.x-k8s.io/v1alpha1/namespaces/demo/serviceexports/web-cip").unwrap();
    gateway.until(|state| state.ingress.len() == 1).await;
    let path = format!("/api/v1/namespaces/demo/services/{}", internal_service_name("web-cip"));
    client.wait_gone(&path, PATIENCE).unwrap();
    gateway.settles().await;
    let ingress = ObjectKey::new(Kind::GlobalIngressIp, "demo", "web-cip");
    assert_eq!(store.get(&ingress).await.unwrap(), None);
}

fn object(api_version: &str, kind: &str, name: &str, rest: Value) -> Value {
    let mut object =
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"namespace": "demo", "name": name}});
    let Value::Object(rest) = rest else { panic!("the rest of an object is fields") };
    object.as_object_mut().unwrap().extend(rest);
    object
}

fn export(name: &str) -> Value {
    object("multicluster.x-k8s.io/v1alpha1", "ServiceExport", name, json!({}))
}

/// A store with the rights of the gateway's account.
fn store(server: &ApiServer, faults: &Faults) -> KubeStore {
    let token = server.token(NAMESPACE, GATEWAY, None).unwrap();
    let settings = ServerSettings {
        server: faults.server(),
        token: Some(token),
        ca_file: Some(server.ca_file()),
        ..ServerSettings::default()
    };
    KubeStore::new(Access::server(settings).unwrap())
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(test);
}

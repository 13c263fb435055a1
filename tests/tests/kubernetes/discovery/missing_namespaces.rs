//! Services whose namespace a cluster does not have, imported all the same: what API servers and the rights of an agent let it do.

use std::time::Duration;

use serde_json::json;
use tokio::runtime::Builder;
use trieste_control::api::{Kind, Object, ObjectKey, annotation, label};
use trieste_control::runner::Fence;
use trieste_control::store::kube::{Access, Outcome, Verb};
use trieste_control::store::{KubeStore, Store as _};
use trieste_discovery_agent::{AgentConfig, spawn};
use trieste_tests::cluster::NAMESPACE;
use trieste_tests::guard::root_test;
use trieste_tests::kubernetes::{ApiServer, Faults};
use trieste_tests::lab::Lab;

use super::bed::{BROKER, install, slices, store, until};

const MISSING: &str = "elsewhere";

/// Exports `elsewhere/api` from cluster north: what its agent has put on the broker.
async fn put_exported(broker: &KubeStore) {
    let import = json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceImport",
        "metadata": {"name": format!("api-{MISSING}"), "namespace": BROKER, "annotations": {
            label::SERVICE_NAME: "api", label::SOURCE_NAMESPACE: MISSING,
            format!("{}north", annotation::TIMESTAMP_PREFIX): "1"}},
        "spec": {"type": "ClusterSetIP", "ports": [{"name": "http", "protocol": "TCP", "port": 80}]}});
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.98.0.7"], "conditions": {"ready": true}}],
        "ports": [{"name": "http", "protocol": "TCP", "port": 80}],
        "metadata": {"name": "api-north1", "namespace": BROKER, "labels": {
            label::MANAGED_BY: label::LIGHTHOUSE_AGENT, label::CLUSTER_ID: "north", label::SOURCE_CLUSTER: "north",
            label::SERVICE_NAME: "api", label::SOURCE_NAMESPACE: MISSING, label::IS_HEADLESS: "false"}}});
    for value in [import, slice] {
        broker.create(Object::from_value(value).unwrap()).await.unwrap();
    }
}

#[test]
fn services_of_a_missing_namespace_are_imported_and_move_with_the_rights_of_upstreams_account() {
    let name = "services_of_a_missing_namespace_are_imported_and_move_with_the_rights_of_upstreams_account";
    let Some(_turn) = root_test(name) else { return };
    for version in ["v1alpha1", "v1beta1"] {
        let lab = Lab::new().unwrap();
        let server = ApiServer::alone(&lab, "east").unwrap();
        let relay = Faults::on_loopback(&server).unwrap();
        install(server.client(), version);
        let local = store(&server, &relay);
        let admin = KubeStore::new(Access::kubeconfig(relay.admin().unwrap(), None));
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let config = AgentConfig {
                namespace: NAMESPACE.to_owned(),
                imports_missing_namespaces: true,
                ..AgentConfig::new("east")
            };
            let agent = spawn(local.clone(), local.clone(), config, Fence::Open);
            put_exported(&admin).await;
            let displaced = ObjectKey::new(Kind::ServiceImport, NAMESPACE, format!("api.{MISSING}"));
            until("the displaced import", async || {
                let import = admin.get(&displaced).await.unwrap();
                import.is_some_and(|import| import.body["spec"]["ports"][0]["port"] == 80)
                    && slices(&admin, NAMESPACE).await.len() == 1
                    && agent.status.borrow().is_settled
            })
            .await;
            let writes = || [Verb::Create, Verb::Update, Verb::Delete].map(|verb| local.requests().of(verb));
            let before = writes();
            tokio::time::sleep(Duration::from_secs(5)).await;
            assert_eq!(writes(), before, "{version}: what servers add is no reason to write");

            server.client().create_namespace(MISSING).unwrap();
            let placed = ObjectKey::new(Kind::ServiceImport, MISSING, "api");
            until("the move", async || {
                admin.get(&placed).await.unwrap().is_some()
                    && admin.get(&displaced).await.unwrap().is_none()
                    && slices(&admin, MISSING).await.len() == 1
                    && slices(&admin, NAMESPACE).await.is_empty()
            })
            .await;
            let requests = local.requests();
            let denied = requests.iter().filter(|(_, outcome, _)| *outcome == Outcome::Denied);
            assert_eq!(denied.map(|all| all.2).sum::<u64>(), 0, "{version}");
        });
    }
}

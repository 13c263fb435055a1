//! Agents of service discovery on real API servers, with the rights that their page names and definitions that drop what they do
//! not name: the broker is in one of the two clusters.

mod asker;
mod bed;
#[path = "../../../../discovery/agent/tests/all/differences.rs"]
mod differences;
mod faults;
mod missing_namespaces;
mod takeover;

use std::time::Duration;

use serde_json::{Value, json};
use trieste_control::api::{Kind, Object, ObjectKey, annotation};
use trieste_control::store::kube::{Access, Outcome, Verb};
use trieste_control::store::{KubeStore, Store as _};
use trieste_tests::guard::root_test;
use trieste_tests::kubernetes::{ApiServer, Faults};
use trieste_tests::lab::Lab;

use self::bed::{export, install, put_import, slices, spawn_agent, store, until};

#[test]
fn a_service_is_exported_imported_and_withdrawn_with_the_rights_of_upstreams_account() {
    let name = "a_service_is_exported_imported_and_withdrawn_with_the_rights_of_upstreams_account";
    let Some(_turn) = root_test(name) else { return };
    let spec = exported_and_withdrawn("v1alpha1");
    assert!(spec.get("ipFamilies").is_none(), "the definition does not know it: {spec}");
}

#[test]
fn clusters_that_serve_v1beta1_alone_export_and_import_with_its_fields() {
    let name = "clusters_that_serve_v1beta1_alone_export_and_import_with_its_fields";
    let Some(_turn) = root_test(name) else { return };
    let spec = exported_and_withdrawn("v1beta1");
    let fields = ["ipFamilies", "internalTrafficPolicy"].map(|field| spec[field].clone());
    assert_eq!(fields, [json!(["IPv4"]), json!("Cluster")]);
}

#[test]
fn a_copy_of_an_import_has_as_many_clusterset_ips_as_the_definition_takes() {
    let name = "a_copy_of_an_import_has_as_many_clusterset_ips_as_the_definition_takes";
    let Some(_turn) = root_test(name) else { return };
    let (four, six) = ("243.0.0.1", "fd00:243::1");
    for (version, ips) in [("v1alpha1", json!([four])), ("v1beta1", json!([four, six]))] {
        let lab = Lab::new().unwrap();
        let server = ApiServer::alone(&lab, "east").unwrap();
        let relay = Faults::on_loopback(&server).unwrap();
        install(server.client(), version);
        let local = store(&server, &relay);
        let admin = KubeStore::new(Access::kubeconfig(relay.admin().unwrap(), None));
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let agent = spawn_agent("east", &local, &local);
            put_import(&admin).await;
            let key = ObjectKey::new(Kind::ServiceImport, "shop", "api");
            until("the copy", async || {
                let copy = admin.get(&key).await.unwrap();
                let has_them = |copy: Object| {
                    copy.body["spec"]["ips"] == ips
                        && copy
                            .metadata
                            .annotations
                            .get(annotation::CLUSTERSET_IPV6)
                            .is_some_and(|ip| ip == six)
                };
                copy.is_some_and(has_them) && agent.status.borrow().is_settled
            })
            .await;
            let before = local.requests().of(Verb::Update);
            tokio::time::sleep(Duration::from_secs(5)).await;
            assert_eq!(local.requests().of(Verb::Update), before, "{version}");
        });
    }
}

/// Exports services from one cluster, whose definitions are of this version, to another, and withdraws them. Returns what the
/// import of one was like.
fn exported_and_withdrawn(version: &str) -> Value {
    let lab = Lab::new().unwrap();
    let servers = ["east", "west"].map(|name| ApiServer::alone(&lab, name).unwrap());
    let faults = servers.each_ref().map(|server| Faults::on_loopback(server).unwrap());
    servers.iter().for_each(|server| install(server.client(), version));
    let store = |of: usize| store(&servers[of], &faults[of]);
    let admin = |of: usize| KubeStore::new(Access::kubeconfig(faults[of].admin().unwrap(), None));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let (east, west) = (store(0), store(1));
        let agents = [spawn_agent("east", &east, &east), spawn_agent("west", &west, &store(0))];
        let (on_east, on_west) = (admin(0), admin(1));
        export(&on_east).await;
        let import = ObjectKey::new(Kind::ServiceImport, "shop", "web");
        let is_imported = async || {
            let status =
                on_west.get(&import).await.unwrap().and_then(|import| import.body.get("status").cloned());
            status == Some(json!({"clusters": [{"cluster": "east"}]}))
                && slices(&on_west, "shop").await.len() == 2
        };
        until("the import", is_imported).await;
        until("the conditions and copies", async || {
            let exports = on_east.list(Kind::ServiceExport, "shop").await.unwrap();
            let is_exported = |export: &Object| {
                export.body.get("status").is_some_and(|status| status.to_string().contains("\"Exported\""))
            };
            let copies = on_west.list(Kind::ServiceImport, "shop").await.unwrap();
            let is_whole =
                |copy: &Object| copy.body.get("status").is_some_and(|status| status["clusters"] != json!([]));
            exports.len() == 2
                && exports.iter().all(is_exported)
                && copies.len() == 2
                && copies.iter().all(is_whole)
                && agents.iter().all(|agent| agent.status.borrow().is_settled)
        })
        .await;
        let writes = || {
            [&east, &west].map(|store| {
                let requests = store.requests();
                [Verb::Create, Verb::Update, Verb::Delete].map(|verb| requests.of(verb))
            })
        };
        let before = writes();
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(writes(), before, "what servers add is no reason to write");
        let denied = |store: &KubeStore| {
            let requests = store.requests();
            requests
                .iter()
                .filter(|(_, outcome, _)| *outcome == Outcome::Denied)
                .map(|all| all.2)
                .sum::<u64>()
        };
        assert_eq!((denied(&east), denied(&west)), (0, 0));
        let spec = on_west.get(&import).await.unwrap().unwrap().body["spec"].clone();

        for name in ["web", "db"] {
            on_east.delete(&ObjectKey::new(Kind::ServiceExport, "shop", name)).await.unwrap();
        }
        until("the unexport", async || {
            on_west.get(&import).await.unwrap().is_none() && slices(&on_west, "shop").await.is_empty()
        })
        .await;
        until("the broker", async || {
            on_east.list(Kind::ServiceImport, "").await.unwrap().is_empty()
                && slices(&on_east, "").await.is_empty()
        })
        .await;
        spec
    })
}

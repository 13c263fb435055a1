//! A member that was deleted without leaving the set: it is removed on the broker, and the others forget it.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use trieste_tests::command::Run;
use trieste_tests::guard::root_test;
use trieste_tests::kubernetes::{ApiServer, Fleet, Place};
use trieste_tests::pages;
use trieste_tests::programs;
use trieste_tests::wait::eventually;

const TIMEOUT: Duration = Duration::from_secs(90);

#[test]
fn a_member_that_is_gone_is_removed_everywhere_and_one_that_lives_is_not() {
    let Some(_turn) = root_test("a_member_that_is_gone_is_removed_everywhere_and_one_that_lives_is_not")
    else {
        return;
    };
    let mut fleet = Fleet::new(2).unwrap();
    for cluster in ["east", "west"] {
        fleet.start(cluster, 0).unwrap();
    }
    for (of, at) in [("west", "east"), ("east", "west")] {
        fleet.wait_endpoint(of, 0, Place::Cluster(at)).unwrap();
    }
    // Without them nobody answers a health check.
    let _agents = ["east", "west"].map(|cluster| {
        let node = fleet.lab.gateway_node(cluster, 0);
        fleet.lab.route_agent(cluster, node).unwrap().start(&[]).unwrap()
    });
    let kubeconfig = both(&fleet);
    let namespace = fleet.lab.gateway_node("east", 0).namespace.clone();
    let remove = |words: &[&str]| -> Run {
        let run = namespace.run(&programs::path("trieste").unwrap().to_string_lossy());
        run.args(words).env("KUBECONFIG", &kubeconfig).timeout(TIMEOUT)
    };
    let page = "docs/operations/install.md";
    let shown =
        pages::command(page, "trieste remove-member west --context broker --member-context east").unwrap();
    let shown: Vec<&str> = shown.iter().skip(1).map(String::as_str).collect();
    // As the command finds it: the gateway itself knows a moment before its object says so.
    let at = Place::Cluster("east");
    eventually("east's Gateway to be connected to west", TIMEOUT, || {
        let gateways = at.client(&fleet.lab).list(&at.path("gateways"))?;
        let mut connections =
            gateways.iter().filter_map(|gateway| gateway["status"]["connections"].as_array()).flatten();
        anyhow::ensure!(
            connections.any(|connection| connection["status"] == "connected"),
            "it is not: {gateways:?}"
        );
        Ok(())
    })
    .unwrap();
    let refused = remove(&shown).output().unwrap();
    let names_it = refused.stderr.contains("gateway east-gw1 of cluster \"east\" is connected to it");
    assert!(!refused.status.success() && names_it, "{refused:?}");
    let refused = remove(&[&["remove-member", "wets"], &shown[2..]].concat()).output().unwrap();
    assert!(refused.stderr.contains("registered are: east, west"), "{refused:?}");
    fleet.wait_endpoint("west", 0, Place::Broker).unwrap();

    fleet.take("west", 0).kill().unwrap();
    eventually("west to be seen as gone, and removed", TIMEOUT, || {
        let removed = remove(&shown).output()?;
        anyhow::ensure!(removed.status.success(), "{removed:?}");
        Ok(())
    })
    .unwrap();
    assert!(fleet.endpoints("west", Place::Broker).unwrap().is_empty());
    // The command has waited for this, but no longer than half a minute.
    eventually("east to have no copies of west's Endpoints", TIMEOUT, || {
        let copies = fleet.endpoints("west", Place::Cluster("east"))?;
        anyhow::ensure!(copies.is_empty(), "{copies:?}");
        Ok(())
    })
    .unwrap();
    let clusters = Place::Broker.client(&fleet.lab).list(&Place::Broker.path("clusters")).unwrap();
    let ids: Vec<&Value> = clusters.iter().map(|cluster| &cluster["spec"]["cluster_id"]).collect();
    assert_eq!(ids, ["east"]);
    eventually("east to have no cable", TIMEOUT, || {
        let cables = fleet.gateway("east", 0).status()?.connections.len();
        anyhow::ensure!(cables == 0, "{cables}");
        Ok(())
    })
    .unwrap();
}

/// A kubeconfig with the contexts `broker` and `east`.
fn both(fleet: &Fleet) -> PathBuf {
    let servers: [(&str, &ApiServer); 2] =
        [("broker", &fleet.lab.broker), ("east", &fleet.lab.cluster("east").server)];
    let read = |server: &ApiServer| -> Value {
        serde_json::from_str(&std::fs::read_to_string(server.kubeconfig()).unwrap()).unwrap()
    };
    let list = |field: &str, part: &str| -> Vec<Value> {
        let one =
            |(name, server): &(&str, &ApiServer)| json!({"name": name, part: read(server)[field][0][part]});
        servers.iter().map(one).collect()
    };
    let contexts = servers.map(|(name, _)| json!({"name": name, "context": {"cluster": name, "user": name}}));
    let text = json!({"apiVersion": "v1", "kind": "Config", "clusters": list("clusters", "cluster"),
        "users": list("users", "user"), "contexts": contexts, "current-context": "broker"});
    let path = fleet.lab.lab.directory().join("both.conf");
    std::fs::write(&path, text.to_string()).unwrap();
    path
}

//! OVN's northbound database where all nodes share it: of several workers one is elected to write.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;
use trieste_control::api::{Kind, Object, ObjectKey, ObjectMeta};
use trieste_control::store::{AnyStore, Location, Store as _};

use crate::rows::ovn::{Addresses, Ovn};
use crate::worker::{NAMESPACE, PATIENCE, Worker, command_for};

const IDENTITIES: [&str; 2] = ["node1", "node2"];

/// Returns the command of a node's worker.
fn command(directory: &Path, node: &str, remote: &str) -> Command {
    let mut command = command_for("OVNKubernetes", directory, node);
    command
        .args(["--cluster-id=a", "--cluster-cidrs=10.128.0.0/14", "--node-name", node])
        .args(["--ovn-northbound", remote]);
    command
}

/// Returns what leads to a network of a remote cluster: the management port of node1.
fn route(cluster: &str, network: &str) -> Object {
    let mut object = Object::new(Kind::GatewayRoute, ObjectMeta::new(NAMESPACE, cluster));
    object.body.insert("spec".to_owned(), json!({"nextHops": ["10.128.0.2"], "remoteCIDRs": [network]}));
    object
}

async fn holder(store: &AnyStore) -> String {
    let lease = ObjectKey::new(Kind::Lease, NAMESPACE, "trieste-plugin-sync-lock");
    let lease = store.get(&lease).await.unwrap().unwrap();
    lease.body["spec"]["holderIdentity"].as_str().unwrap().to_owned()
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so().await {
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Returns the policies by their UUIDs.
fn policies(ovn: &Ovn) -> String {
    let columns = "--columns=_uuid,priority,match,action,nexthop,nexthops,external_ids";
    ovn.nbctl(&["-f", "csv", "--no-headings", columns, "list", "Logical_Router_Policy"])
}

async fn until_led(ovn: &Ovn, network: &str) {
    let rows = ["20000,", "19999,"].map(|priority| format!("{priority}\"\"\"ip4.dst == {network}"));
    until(network, async || {
        let policies = policies(ovn);
        rows.iter().all(|row| policies.contains(row))
    })
    .await;
}

#[tokio::test]
async fn plugin_ovn_of_two_workers_on_a_shared_database_one_writes_and_the_other_takes_it_over_as_it_is() {
    let ovn = Ovn::start();
    ovn.add_kubernetes(&IDENTITIES, Addresses::V4);
    ovn.add_management_port("node1", "0a:58:0a:80:00:02 10.128.0.2");
    ovn.sync();
    let (remote, before) = (ovn.share_northbound(), ovn.everything());
    let directory = tempfile::tempdir().unwrap();
    let store = AnyStore::open(&Location::Dir(directory.path().join("store"))).unwrap();
    store.create(route("b", "10.132.0.0/14")).await.unwrap();

    let run = |node: &str| command(directory.path(), node, &remote);
    let mut workers = IDENTITIES.map(|node| Worker(run(node).spawn().unwrap()));
    until_led(&ovn, "10.132.0.0/14").await;
    let is_well = |node: &str| run(node).arg("--check").status().unwrap().success();
    for node in IDENTITIES {
        until(node, async || is_well(node)).await;
    }
    let (first, written) = (policies(&ovn), ovn.written());

    // Whichever leads is killed: the other one leads, and writes nothing.
    let leader = holder(&store).await;
    let dying = usize::from(leader == IDENTITIES[1]);
    assert_eq!(leader, IDENTITIES[dying]);
    workers[dying].0.kill().unwrap();
    until("another leader", async || holder(&store).await == IDENTITIES[1 - dying]).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((policies(&ovn), ovn.written()), (first.clone(), written));

    // It does its work from then on, on rows that are the first one's.
    store.create(route("c", "10.136.0.0/14")).await.unwrap();
    until_led(&ovn, "10.136.0.0/14").await;
    let both = policies(&ovn);
    assert!(first.lines().all(|row| both.contains(row)), "{first}\n{both}");
    ovn.nbctl(&["lr-policy-del", "ovn_cluster_router", "20000", "ip4.dst == 10.132.0.0/14"]);
    until_led(&ovn, "10.132.0.0/14").await;

    let survivor = &mut workers[1 - dying].0;
    let stopped = Command::new("kill").args(["-s", "TERM", &survivor.id().to_string()]).status().unwrap();
    assert!(stopped.success() && survivor.wait().unwrap().success());
    assert!(!is_well(IDENTITIES[1 - dying]), "it has ended");
    let removal = run("node3").arg("--uninstall").status().unwrap();
    assert!(removal.success());
    assert_eq!(ovn.everything(), before);
}

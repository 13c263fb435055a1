//! Pods of real clusters reach pods and services of another cluster: DP-1..11, ST-1, RD-1..5 and XT-1.. of upstream's
//! list, with one gateway each.

mod flows;
mod networks;
mod redundancy;
mod without_proxy;

use anyhow::Context;
use serde_json::Value;
use trieste_tests::clusters::{Cluster, MEMBER};
use trieste_tests::table::Table;

use crate::outside;
use crate::shared::{PLAIN, SOON, lease};
use crate::sides::Side;

#[test]
fn pods_reach_the_other_cluster_from_and_to_every_node_and_through_every_handover() {
    let name =
        "plain::dataplane::pods_reach_the_other_cluster_from_and_to_every_node_and_through_every_handover";
    let Some(mut two) = lease(&PLAIN, name) else { return };
    two.joined();
    let sides = two.sides();
    connected(&sides).unwrap();
    two.say("pods ready and connected");

    let table = Table::default();
    flows::run(&two.lab, &sides, &table);
    two.say("flows checked");
    outside::of_sides(&two, &sides, &table);
    connected(&sides).unwrap();
    networks::run(&two, &sides, &table);
    two.say("networks changed");
    redundancy::run(&sides, &table);
    two.say("gateways gone and come");
    without_proxy::run(&two.lab, &sides, &table);

    two.say(&format!("all checked:\n{table}"));
    table.assert_no_failure();
}

/// Waits until both are connected with each other.
fn connected(sides: &[Side<'_>; 2]) -> anyhow::Result<()> {
    let [east, west] = sides.each_ref().map(|side| side.cluster);
    connect(east, west)
}

/// Waits until the active gateways of both are connected with each other, with a round trip measured.
pub(crate) fn connect(east: &Cluster, west: &Cluster) -> anyhow::Result<()> {
    for (cluster, other) in [(east, west), (west, east)] {
        cluster.wait("gateways to be connected", SOON, || connection(cluster, other))?;
    }
    Ok(())
}

/// Its Gateway objects.
fn gateways(cluster: &Cluster) -> anyhow::Result<Vec<Value>> {
    cluster.client().list(&format!("/apis/submariner.io/v1/namespaces/{MEMBER}/gateways"))
}

/// Whether a Gateway object says that its gateway is active.
fn is_active(gateway: &Value) -> bool {
    gateway["status"]["haStatus"] == "active"
}

/// The active gateway's connection with another cluster, connected and with a round trip measured.
fn connection(cluster: &Cluster, other: &Cluster) -> anyhow::Result<Value> {
    let (ours, theirs) = (gateways(cluster)?, gateways(other)?);
    let status = &ours.iter().find(|gateway| is_active(gateway)).context("no gateway is active")?["status"];
    let mut connections = status["connections"].as_array().into_iter().flatten();
    let found = connections.find(|entry| entry["endpoint"]["cluster_id"] == other.name());
    let found = found.with_context(|| format!("there is no connection with {}", other.name()))?;
    anyhow::ensure!(found["status"] == "connected", "{found}");
    let active = theirs.iter().find(|gateway| is_active(gateway)).context("no gateway is active there")?;
    let (known, there) = (&found["endpoint"]["hostname"], &active["metadata"]["name"]);
    anyhow::ensure!(known == there, "it is with {known}, and {there} is active there");
    let average = found["latencyRTT"]["average"].as_str().unwrap_or_default();
    anyhow::ensure!(!["", "0s"].contains(&average), "no round trip was measured yet: {found}");
    Ok(found.clone())
}

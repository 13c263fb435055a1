//! A network comes and goes by `join`, and no pod is replaced.

use std::net::SocketAddr;

use anyhow::Context;
use trieste_tests::clusters::{Cluster, MEMBER, RESPONDER_PORT};
use trieste_tests::table::Table;

use crate::shared::{SOON, Two};
use crate::sides::Side;

/// A network beside west's pods, and an address in it.
const EXTRA: &str = "10.99.0.0/24";
const ADDRESS: &str = "10.99.0.5";
const PROGRAMS: [&str; 2] = ["submariner-gateway", "submariner-routeagent"];

/// West announces a network that its pod on the gateway's node has an address in, and takes it back.
pub(crate) fn run(two: &Two, sides: &[Side<'_>; 2], table: &Table) {
    let [east, west] = sides;
    let pod = &west.on_gateway.pod;
    let device = pod.netns().run("ip").args(["-o", "route", "get", "192.0.2.1"]).stdout().unwrap();
    let device = device.split_whitespace().skip_while(|word| *word != "dev").nth(1).unwrap();
    pod.netns().ip(&format!("address add {ADDRESS}/32 dev {device}")).unwrap();
    let own = pod.addresses[0];
    west.on_gateway.node.exec(&["ip", "route", "add", ADDRESS, "via", &own.to_string()]).unwrap();
    let to = SocketAddr::new(ADDRESS.parse().unwrap(), RESPONDER_PORT);
    let ask = || east.on_worker.pod.tcp(to, 64);

    let before = pods(west.cluster).unwrap();
    table.row("NW-1", "a network is announced by join, and reached", || {
        anyhow::ensure!(ask().is_err(), "it is reached already");
        two.set.join_with(west.cluster, &["--extra-cidrs", EXTRA])?;
        let seen = west.cluster.wait("the new network to be reached", SOON, || Ok(ask()?.seen_as))?;
        anyhow::ensure!(pods(west.cluster)? == before, "pods were replaced");
        Ok(format!("seen as {}", seen.ip()))
    });
    table.row("NW-2", "a join without the flag keeps it, an empty one takes it back", || {
        two.set.join_with(west.cluster, &[])?;
        ask().context("after a join without the flag")?;
        two.set.join_with(west.cluster, &["--extra-cidrs", ""])?;
        west.cluster.wait("the network to be closed", SOON, || {
            anyhow::ensure!(ask().is_err(), "it still answers");
            Ok(())
        })?;
        anyhow::ensure!(pods(west.cluster)? == before, "pods were replaced");
        Ok("no pod was replaced".to_owned())
    });
    west.on_gateway.node.exec(&["ip", "route", "del", ADDRESS]).unwrap();
    pod.netns().ip(&format!("address del {ADDRESS}/32 dev {device}")).unwrap();
}

/// Our pods, and how often each has started.
fn pods(cluster: &Cluster) -> anyhow::Result<Vec<(String, u64)>> {
    let all = cluster.client().list(&format!("/api/v1/namespaces/{MEMBER}/pods"))?;
    let ours =
        all.iter().filter(|pod| PROGRAMS.iter().any(|program| pod["metadata"]["labels"]["app"] == *program));
    let mut found: Vec<_> = ours
        .map(|pod| {
            let restarts = pod["status"]["containerStatuses"][0]["restartCount"].as_u64().unwrap_or_default();
            (pod["metadata"]["name"].as_str().unwrap_or_default().to_owned(), restarts)
        })
        .collect();
    found.sort();
    anyhow::ensure!(!found.is_empty(), "there are no pods");
    Ok(found)
}

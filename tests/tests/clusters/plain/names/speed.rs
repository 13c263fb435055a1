//! How soon answers follow: many exports at once, and an endpoint that becomes ready.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use trieste_tests::clusters::{Asker, Cluster, MEMBER, Pod};
use trieste_tests::guard;
use trieste_tests::wait::eventually;

use crate::shared::{SOON, Two, in_parallel};

const EXPORTS: usize = 100;
/// How long it may take until all of them are answered, on a machine that does something else as well.
const EXPORTED: Duration = Duration::from_secs(30);
/// An address of the other cluster's pods, which nobody has to have.
const ADDRESS: &str = "10.20.1.250";
/// How often an endpoint becomes ready.
const TIMES: usize = 10;
/// How soon it then has to be in the answers, half of the times.
const READY: Duration = Duration::from_millis(100);

/// Exports a hundred services at once.
pub(super) fn exports(two: &Two, asker: &Pod) {
    let west = two.west();
    let names: Vec<String> = (0..EXPORTS).map(|number| format!("many-{number}")).collect();
    // With slices of their own, nobody waits for Kubernetes' controllers.
    let apply = |objects: fn(&str) -> Vec<Value>| {
        let chunks: Vec<&[String]> = names.chunks(EXPORTS / 4).collect();
        in_parallel(&chunks, |names| {
            names
                .iter()
                .flat_map(|name| objects(name))
                .for_each(|one| drop(west.client().apply(&one).unwrap()));
        });
    };
    apply(|name| vec![service(name), slice(name, true)]);
    let client = Asker::new(two.east(), asker).unwrap();
    two.say("a hundred services");

    let begun = Instant::now();
    apply(|name| vec![export(name)]);
    let written = begun.elapsed();
    let mut waiting: Vec<&String> = names.iter().collect();
    eventually("a hundred names to be answered", EXPORTED, || {
        while let Some(name) = waiting.last() {
            let count = client.count(&format!("{name}.default.svc.clusterset.local"))?;
            anyhow::ensure!(count == 1, "{name} has {count} addresses; {} wait", waiting.len());
            waiting.pop();
        }
        Ok(())
    })
    .unwrap();
    let answered = begun.elapsed();
    for (group, kind) in [
        ("apis/multicluster.x-k8s.io/v1alpha1", "serviceexports"),
        ("api/v1", "services"),
        ("apis/discovery.k8s.io/v1", "endpointslices"),
    ] {
        let all = format!("/{group}/namespaces/default/{kind}?labelSelector=lab%3Dmany");
        west.client().delete(&all).unwrap();
    }
    two.say(&format!(
        "{EXPORTS} exports at once: written in {written:.1?}, all answered after {answered:.1?}"
    ));
}

/// Measures how long after an endpoint's readiness is written it is in the answers of all servers of the other cluster, and
/// in none any more.
pub(super) fn readiness(two: &Two, asker: &Pod) {
    let west = two.west();
    let name = "turns";
    west.client().apply(&service(name)).unwrap();
    west.client().apply(&slice(name, true)).unwrap();
    west.client().apply(&export(name)).unwrap();
    let clients = all_servers(two.east(), asker).unwrap();
    let known = format!("{name}.default.svc.clusterset.local");
    let becomes = |count: u16| {
        let begun = Instant::now();
        for client in &clients {
            eventually("the endpoint", SOON, || {
                let found = client.count(&known)?;
                anyhow::ensure!(found == count, "there are {found}");
                Ok(())
            })
            .unwrap();
        }
        begun.elapsed()
    };
    becomes(1);
    let mut took = [Vec::new(), Vec::new()];
    for _ in 0..TIMES {
        for (is_ready, took) in [false, true].into_iter().zip(&mut took) {
            patch(west, name, is_ready);
            took.push(becomes(u16::from(is_ready)));
        }
    }
    let shown = took.map(|mut times| {
        times.sort_unstable();
        let (median, longest) = (times[TIMES / 2], times[TIMES - 1]);
        // Beside other tests nobody knows who has had the processors.
        assert!(median < READY || !guard::is_alone(), "{times:?}");
        format!("{median:.0?} ({longest:.0?} at most)")
    });
    west.kubectl(&["delete", "serviceexport,service,endpointslice", name]).unwrap().success().unwrap();
    two.say(&format!(
        "an endpoint that is not ready is in no answer after {}, one that is in all after {}",
        shown[0], shown[1]
    ));
}

/// Asks each of the DNS servers, and CoreDNS, which forwards to any of them.
fn all_servers(cluster: &Cluster, asker: &Pod) -> anyhow::Result<Vec<Asker>> {
    let mut all = vec![Asker::new(cluster, asker)?];
    for pod in cluster.wait_pods(MEMBER, "app=submariner-lighthouse-coredns")? {
        let ip = pod["status"]["podIP"].as_str().unwrap_or_default().parse()?;
        let mut ports = pod["spec"]["containers"][0]["ports"].as_array().into_iter().flatten();
        let port = ports.find(|port| port["name"] == "dns").and_then(|port| port["containerPort"].as_u64());
        all.push(Asker::of_server(asker, SocketAddr::new(ip, port.unwrap_or_default().try_into()?))?);
    }
    anyhow::ensure!(all.len() == 3, "there are {} servers", all.len());
    Ok(all)
}

fn patch(cluster: &Cluster, name: &str, is_ready: bool) {
    let path = format!("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/{name}");
    let change = json!({"endpoints": slice(name, is_ready)["endpoints"]});
    cluster.client().patch(&path, &change).unwrap();
}

fn metadata(name: &str) -> Value {
    json!({"name": name, "namespace": "default", "labels": {"lab": "many", "kubernetes.io/service-name": name}})
}

fn service(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata(name),
        "spec": {"ports": [{"name": "tcp", "port": 80}]}})
}

fn slice(name: &str, is_ready: bool) -> Value {
    let endpoint = json!({"addresses": [ADDRESS], "conditions": {"ready": is_ready}});
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata(name),
        "addressType": "IPv4", "endpoints": [endpoint], "ports": [{"name": "tcp", "port": 7000}]})
}

fn export(name: &str) -> Value {
    json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceExport", "metadata": metadata(name)})
}

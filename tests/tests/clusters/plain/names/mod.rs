//! Names across real clusters, asked for in pods by the C library's resolver and by others, through the cluster's own CoreDNS.

mod failover;
mod hundred;
mod speed;
mod stateful;
mod virtual_ip;

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::Value;
use trieste_tests::clusters::{Cluster, MEMBER, Pod, PodShape, RELOADED};
use trieste_tests::guard::slack;
use trieste_tests::wait::eventually;

use super::dataplane::connect;
use super::on_each;
use crate::lookups;
use crate::shared::{PLAIN, SOON, Two, lease};

const NAME: &str = "web.default.svc.clusterset.local";
/// How soon a cluster that is cut off is in no answer: alone on the machine, before the connection's status could say so,
/// which is five pings and a heartbeat.
const UNREACHED: Duration = Duration::from_secs(2);

#[test]
fn names_are_answered_in_both_clusters_and_follow_what_can_be_reached() {
    let Some(mut two) =
        lease(&PLAIN, "plain::names::names_are_answered_in_both_clusters_and_follow_what_can_be_reached")
    else {
        return;
    };
    two.joined();
    let two = &*two;
    let (east, west) = (two.east(), two.west());
    let corefiles = two.in_both(corefile);
    two.set.deploy_broker_with_services().unwrap();
    let said = two.in_both(|cluster| two.set.join(cluster).unwrap());
    for text in &said {
        assert!(text.contains("ConfigMap kube-system/coredns: clusterset.local to "), "{text}");
    }
    two.say("joined with service discovery");
    let [in_east, _] = two.in_both(on_each).try_into().unwrap();
    connect(east, west).unwrap();

    let asker = in_east[2].clone();
    let server = west.start_pod(PodShape::on(west.node(1), "server")).unwrap();
    let virtual_ips = west.start_service("web", "server").unwrap();
    let pods: Vec<IpAddr> =
        west.start_headless("each", "server").unwrap().iter().map(|each| each.ip()).collect();

    two.set.export(west, "export", "each").unwrap();
    two.set.export(west, "export", "web").unwrap();
    let each = "each.default.svc.clusterset.local";
    // The first answer waits for CoreDNS to read its Corefile.
    asker.wait_resolved(NAME, &virtual_ips, RELOADED).unwrap();
    two.say("the first answer");
    // The other cluster's CoreDNS, which is asked below as well, reads it in its own time.
    west.restart_dns().unwrap();
    asker.wait_resolved(each, &pods, SOON).unwrap();
    asker.wait_resolved(&format!("west.{NAME}"), &virtual_ips, SOON).unwrap();
    assert!(asker.resolve(&format!("none.{NAME}")).unwrap().is_empty());
    // By a program that asks the C library, all the way to the server.
    asker.reach(NAME, 80).unwrap();

    commands(two);
    quick(two, &asker, &virtual_ips);
    stateful::followed(two, &asker);
    hundred::answered(two, &asker, &server);
    speed::exports(two, &asker);
    speed::readiness(two, &asker);
    local_first(two, &asker, &virtual_ips);
    virtual_ip::leads(two, &asker);
    cut_off(two, &asker, &virtual_ips);
    failover::follows(two, &asker, &virtual_ips);
    agent_dies(two, &asker, &virtual_ips);
    drop(server);
    left_out(two, &corefiles);
}

/// What a cluster says of its services, and the walk that ends with a question asked in the agent's pod.
fn commands(two: &Two) {
    // A path that a busy machine holds up for some tenths of a second is down, and names of the other cluster have no answer then.
    let run = |words: &[&str]| {
        eventually(&format!("{words:?} to find nothing wrong"), SOON, || {
            let output = two.set.trieste(two.east()).args(words).output()?;
            anyhow::ensure!(output.status.success(), "{}{}", output.stdout, output.stderr);
            Ok(output.stdout)
        })
        .unwrap()
    };
    let shown = run(&["show", "services"]);
    assert!(shown.contains("default/web") && shown.contains("default/each"), "{shown}");
    let walked = run(&["diagnose", "service-discovery"]);
    // In both clusters, each from its own agent's pod.
    assert_eq!(walked.matches("✓ Asking the DNS").count(), 2, "{walked}");
    let name = format!("west.{NAME}");
    let source = two.east().pod("default", "on-east-3").unwrap().addresses[0].to_string();
    let traced = run(&["trace", &source, &name, "--context", "east"]);
    assert!(traced.contains("of cluster west"), "{traced}");
}

/// A service that is exported, and one that is not any more, are known soon.
fn quick(two: &Two, asker: &Pod, virtual_ips: &[IpAddr]) {
    two.set.export(two.west(), "unexport", "web").unwrap();
    let begun = Instant::now();
    asker.wait_resolved(NAME, &[], SOON).unwrap();
    let gone = begun.elapsed();
    two.set.export(two.west(), "export", "web").unwrap();
    let begun = Instant::now();
    asker.wait_resolved(NAME, virtual_ips, SOON).unwrap();
    // CoreDNS and the servers let answers be kept for five seconds.
    let known = begun.elapsed();
    two.say(&format!(
        "no answer {gone:.1?} after it was unexported, and an answer {known:.1?} after it was exported"
    ));
}

/// The own cluster's is preferred while it has something that is ready.
fn local_first(two: &Two, asker: &Pod, virtual_ips: &[IpAddr]) {
    let east = two.east();
    let pod = east.start_pod(PodShape::on(east.node(1), "server")).unwrap();
    let own = east.start_service("web", "server").unwrap();
    two.set.export(east, "export", "web").unwrap();
    asker.wait_resolved(NAME, &own, SOON).unwrap();
    east.kubectl(&["delete", "pod", "server", "--grace-period=1"]).unwrap().success().unwrap();
    drop(pod);
    asker.wait_resolved(NAME, virtual_ips, SOON).unwrap();
    two.set.export(east, "unexport", "web").unwrap();
    east.kubectl(&["delete", "service", "web"]).unwrap().success().unwrap();
    two.say("the own cluster first");
}

/// A cluster that gateways do not reach is in no answer, and comes back.
fn cut_off(two: &Two, asker: &Pod, virtual_ips: &[IpAddr]) {
    let begun = Instant::now();
    set_link(two, "down");
    asker.wait_resolved(NAME, &[], SOON).unwrap();
    let gone = begun.elapsed();
    two.say(&format!("cut off: no answer {gone:.1?} later"));
    assert!(gone < UNREACHED + slack(), "{gone:?}: the gateway knows at once");
    eventually("the gateway's status to say so, too", SOON, || {
        let status = connection(two.east(), "west")?;
        ensure!(status != "connected", "it is {status}");
        Ok(())
    })
    .unwrap();
    set_link(two, "up");
    asker.wait_resolved(NAME, virtual_ips, SOON).unwrap();
    connect(two.east(), two.west()).unwrap();
    two.say("cut off and back");
}

/// Takes the link of west's gateway away, or gives it back.
fn set_link(two: &Two, state: &str) {
    lookups::set_link(&two.set.clusters, two.west().node(2), state);
}

/// Names are answered while nobody writes anything, and a new agent goes on.
fn agent_dies(two: &Two, asker: &Pod, virtual_ips: &[IpAddr]) {
    for app in ["submariner-lighthouse-agent", "submariner-lighthouse-coredns"] {
        let selector = format!("--selector=app={app}");
        let delete =
            ["delete", "pods", "-n", MEMBER, &selector, "--grace-period=0", "--force", "--wait=false"];
        two.east().kubectl(&delete).unwrap().success().unwrap();
        if app.ends_with("agent") {
            asker.wait_resolved(NAME, virtual_ips, Duration::ZERO).unwrap();
        }
        two.east().wait_rollout(MEMBER, &format!("deployment/{app}")).unwrap();
        asker.wait_resolved(NAME, virtual_ips, SOON).unwrap();
    }
    two.say("programs were killed");
}

/// A cluster that takes no part any more has nothing left of it.
fn left_out(two: &Two, corefiles: &[String]) {
    let said = two.in_both(|cluster| two.set.join_with(cluster, &["--service-discovery=false"]).unwrap());
    for text in said {
        assert!(!text.contains("were not withdrawn"), "{text}");
    }
    assert_eq!(two.in_both(corefile), corefiles);
    for cluster in [two.east(), two.west()] {
        let imports = "/apis/multicluster.x-k8s.io/v1alpha1/serviceimports";
        assert_eq!(cluster.client().list(imports).unwrap(), [Value::Null; 0], "{}", cluster.name());
        let slices = "/apis/discovery.k8s.io/v1/endpointslices?labelSelector=multicluster.kubernetes.io/source-cluster";
        assert_eq!(cluster.client().list(slices).unwrap(), [Value::Null; 0], "{}", cluster.name());
        for kind in ["deployments", "poddisruptionbudgets", "pods", "serviceaccounts", "clusterroles"] {
            let get = ["get", kind, "-n", MEMBER, "-o", "name"];
            let gone = cluster.wait(&format!("the {kind} of service discovery to go"), SOON, || {
                let found = cluster.kubectl(&get)?.success()?;
                ensure!(!found.contains("lighthouse"), "{found}");
                Ok(())
            });
            gone.unwrap();
        }
        let delete = ["delete", "serviceexports", "-n", "default", "--all"];
        cluster.kubectl(&delete).unwrap().success().unwrap();
    }
    two.set.deploy_broker().unwrap();
    two.say("left out again");
}

/// Returns what an active gateway says of its connection to another cluster.
fn connection(cluster: &Cluster, to: &str) -> anyhow::Result<String> {
    let path = format!("/apis/submariner.io/v1/namespaces/{MEMBER}/gateways");
    let gateways = cluster.client().list(&path)?;
    let mut connections =
        gateways.iter().flat_map(|gateway| gateway["status"]["connections"].as_array().into_iter().flatten());
    let found = connections.find(|connection| connection["endpoint"]["cluster_id"] == to);
    let status = found.and_then(|connection| connection["status"].as_str());
    Ok(status.context("no connection")?.to_owned())
}

fn corefile(cluster: &Cluster) -> String {
    let get = ["get", "configmap", "coredns", "-n", "kube-system", "-o", "jsonpath={.data.Corefile}"];
    cluster.kubectl(&get).unwrap().success().unwrap()
}

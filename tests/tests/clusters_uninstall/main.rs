//! Nothing stays: whatever is installed on real clusters is taken away again, also when a command was killed on its way.

#![expect(clippy::unwrap_used, reason = "helpers of tests: what cannot go on has failed")]

mod rights;

use serde_json::json;
use std::time::{Duration, Instant};

use trieste_deploy::objects::names::GATEWAY_LABEL;
use trieste_tests::clusters::{Cluster, ClusterSet, ClusterShape, Footprint, MEMBER, PodShape};
use trieste_tests::command::Run;
use trieste_tests::daemon::Daemon;
use trieste_tests::guard::root_test;
use trieste_tests::lab::Lab;
use trieste_tests::wait::eventually;

/// Longer than any step of a command takes.
const STEP: Duration = Duration::from_secs(120);

#[test]
fn nothing_stays() {
    let Some(_turn) = root_test("nothing_stays") else { return };
    let clock = Instant::now();
    let lab = Lab::new().unwrap();
    let set = ClusterSet::bare(&lab, &ClusterShape::two()).unwrap();
    let (east, west) = (set.clusters.cluster("east"), set.clusters.cluster("west"));
    for cluster in [east, west] {
        for node in cluster.nodes() {
            cluster.start_pod(PodShape::on(node, &format!("on-{}", node.name()))).unwrap();
        }
    }
    let before = [east, west].map(|cluster| Footprint::of(cluster).unwrap());
    eprintln!("{:.1?}: up", clock.elapsed());
    for (cluster, before) in [east, west].into_iter().zip(&before) {
        assert_eq!(before.changes(&Footprint::of(cluster).unwrap()), Vec::<String>::new());
    }
    set.deploy_broker().unwrap();
    eprintln!("{:.1?}: broker", clock.elapsed());
    let with_broker = Footprint::of(east).unwrap();
    let mut faults = Vec::new();
    for moment in JOIN {
        killed(&lab, &join(&set, west), moment);
        uninstall(&set, west);
        faults.extend(differences(moment, &with_broker, east));
        faults.extend(differences(moment, &before[1], west));
        eprintln!("{:.1?}: join killed after {moment:?}", clock.elapsed());
    }
    join_balanced(&set, east);
    set.join(west).unwrap();
    eprintln!("{:.1?}: joined", clock.elapsed());
    use_everything(&set);
    eprintln!("{:.1?}: used", clock.elapsed());
    for moment in UNINSTALL {
        killed(&lab, &uninstalling(&set, west), moment);
        eprintln!("{:.1?}: uninstall killed after {moment:?}", clock.elapsed());
    }
    uninstall(&set, west);
    uninstall(&set, east);
    faults.extend(differences("uninstall", &before[0], east));
    faults.extend(differences("uninstall", &before[1], west));
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    rights::assert_least(&[east, west]);
    eprintln!("{:.1?}: done", clock.elapsed());
}

const UNINSTALL: [&str; 3] = ["Cleaning the gateway nodes", "Leaving the broker", "Cleaning all nodes"];

const JOIN: [&str; 3] = ["Creating the account", "Deploying the gateway", "Waiting for the gateway"];

fn join(set: &ClusterSet, cluster: &Cluster) -> Run {
    let nets: Vec<_> = cluster.pod_nets().iter().map(ToString::to_string).collect();
    set.trieste(cluster).args(["join", "broker-info.subm", "--air-gapped", "--clustercidr", &nets.join(",")])
}

/// Runs a command and kills it as soon as it says that a step is done.
fn killed(lab: &Lab, command: &Run, moment: &str) {
    let daemon = Daemon::start(lab, &format!("killed after {moment}").replace(' ', "-"), command).unwrap();
    daemon.wait_log(moment, STEP).unwrap();
    daemon.kill().unwrap();
}

/// With a load balancer, whose Service a gateway reads.
fn join_balanced(set: &ClusterSet, cluster: &Cluster) {
    let join = join(set, cluster).arg("--load-balancer").timeout(STEP * 2);
    let output = join.output().unwrap();
    assert!(output.status.success(), "{}{}", output.stdout, output.stderr);
}

/// Does what needs rights: traffic, a gateway that is made anew, the gateway on another node, every diagnosis.
fn use_everything(set: &ClusterSet) {
    let (east, west) = (set.clusters.cluster("east"), set.clusters.cluster("west"));
    let (client, server) =
        (east.pod("default", "on-east-2").unwrap(), west.pod("default", "on-west-2").unwrap());
    let reach = |when: &str| {
        east.wait(when, STEP, || {
            server.responders().into_iter().try_for_each(|to| client.tcp(to, 64).map(drop))
        })
        .unwrap();
    };
    reach("joined");
    let path = |node: usize| format!("/api/v1/nodes/{}", east.node(node).name());
    let label = |node: usize, value: &str| {
        east.client().patch(&path(node), &json!({"metadata": {"labels": {GATEWAY_LABEL: value}}})).unwrap();
    };
    let is_gateway = east.client().get(&path(1)).unwrap()["metadata"]["labels"][GATEWAY_LABEL] == "true";
    let (first, second) = if is_gateway { (1, 2) } else { (2, 1) };
    label(second, "true");
    east.wait_rollout(MEMBER, "daemonset/submariner-gateway").unwrap();
    let pods = format!("/api/v1/namespaces/{MEMBER}/pods");
    for pod in east.wait_pods(MEMBER, "gateway.submariner.io/status=active").unwrap() {
        east.client().delete(&format!("{pods}/{}", pod["metadata"]["name"].as_str().unwrap())).unwrap();
    }
    east.wait_rollout(MEMBER, "daemonset/submariner-gateway").unwrap();
    reach("a gateway was made anew");
    label(first, "false");
    east.wait_rollout(MEMBER, "daemonset/submariner-gateway").unwrap();
    reach("the gateway has moved");
    let output = set.trieste(east).args(["diagnose", "all"]).timeout(STEP).output().unwrap();
    eprintln!("{}{}", output.stdout, output.stderr);
}

fn uninstalling(set: &ClusterSet, cluster: &Cluster) -> Run {
    set.trieste(cluster).args(["uninstall", "--yes"])
}

fn uninstall(set: &ClusterSet, cluster: &Cluster) {
    let output = uninstalling(set, cluster).timeout(STEP * 2).output().unwrap();
    eprintln!("{}{}", output.stdout, output.stderr);
    assert!(output.status.success());
}

/// Compares with what was there before; what Kubernetes takes away by and by has some time.
fn differences(when: &str, before: &Footprint, cluster: &Cluster) -> Option<String> {
    let is_same = || {
        let changes = before.changes(&Footprint::of(cluster)?);
        anyhow::ensure!(changes.is_empty(), "{}", changes.join("\n"));
        Ok(())
    };
    let error = eventually("everything to be as before", Duration::from_secs(10), is_same).err()?;
    Some(format!("{}, after {when}: {}", cluster.name(), error.root_cause()))
}

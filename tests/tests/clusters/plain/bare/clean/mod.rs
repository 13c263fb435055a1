//! Nothing stays: whatever is installed on real clusters is taken away again, also when a command was killed on its way.

mod rights;

use serde_json::json;
use std::time::{Duration, Instant};

use trieste_deploy::objects::names::{
    BROKER_NAMESPACE, CLUSTERSET_IP_INFO, CLUSTERSET_IPV6_INFO, GATEWAY_LABEL,
};
use trieste_tests::clusters::{Cluster, ClusterSet, Footprint, MEMBER, Node, Pod, RELOADED, RESPONDER_PORT};
use trieste_tests::command::Run;
use trieste_tests::daemon::Daemon;
use trieste_tests::lab::Lab;
use trieste_tests::pages;
use trieste_tests::wait::eventually;

use crate::plain::on_each;
use crate::shared::{PLAIN, Two, fresh};

/// Longer than any step of a command takes.
const STEP: Duration = Duration::from_secs(120);
/// Less than it takes until clusters that are not heard of are swept from the broker: that would hide what an uninstall
/// leaves there.
const LEFT: Duration = Duration::from_secs(30);

#[test]
fn nothing_stays() {
    let Some(two) = fresh(&PLAIN, "plain::bare::clean::nothing_stays") else { return };
    let Two { set, lab, .. } = &*two;
    let (east, west) = (two.east(), two.west());
    two.in_both(on_each);
    let before = [east, west].map(|cluster| Footprint::at_rest(cluster).unwrap());
    let requests = [east, west].map(|cluster| cluster.requests().unwrap().len());
    let page = pages::read("docs/operations/install.md").unwrap();
    let shown =
        |command: &str, said: &str| assert_eq!(pages::missing(&page, command, said), [""; 0], "{said}");
    shown("trieste deploy-broker", &set.deploy_broker_with_services().unwrap());
    let with_broker = Footprint::of(east).unwrap();

    let mut faults = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| join_balanced(set, east));
        for moment in JOIN {
            killed(lab, &join(set, west), moment);
            uninstall(set, west);
            faults.extend(differences(moment, &before[1], west));
            faults.extend(left_of_west(&with_broker, east));
            two.say(&format!("join killed after {moment:?}"));
        }
    });
    shown("trieste join", &set.join(west).unwrap());
    two.say("joined");
    use_everything(set);
    two.say("used");

    let away = Paused::kubelet(east.node(2));
    crash(west);
    for moment in UNINSTALL {
        killed(lab, &alone(set, west), moment);
    }
    uninstall_alone(set, west);
    faults.extend(differences("uninstall", &before[1], west));
    two.say("west has left");
    east.wait_node(east.node(2), false, STEP).unwrap();
    for other in [east.node(1), east.node(3)] {
        east.wait_node(other, true, STEP).unwrap();
    }
    let text = refused(set, east);
    assert!(
        text.contains("were not cleaned: east-2;") && text.contains("repeat trieste uninstall"),
        "{text}"
    );
    away.resume();
    east.wait_node(east.node(2), true, STEP).unwrap();
    uninstall(set, east);
    faults.extend(differences("uninstall", &before[0], east));
    faults.extend(rights::faults([east, west].into_iter().zip(requests)));
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    two.say("all");
}

/// Moments in which a command is killed: what it says when a step begins.
const UNINSTALL: [&str; 4] =
    ["Leaving service discovery", "Cleaning the gateway nodes", "Leaving the broker", "Cleaning all nodes"];

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

/// Ends the programs of every node, without any farewell.
fn crash(cluster: &Cluster) {
    for node in cluster.nodes() {
        // A probe of kubelet's has the same name, and may be gone before its turn.
        node.exec(&["sh", "-c", "pkill -KILL -x 'trieste-gateway|trieste-routea' || true"]).unwrap();
    }
}

/// The kubelet of a node that does not answer; its pods go on.
struct Paused<'a> {
    node: &'a Node,
    ids: Vec<String>,
}

impl<'a> Paused<'a> {
    fn kubelet(node: &'a Node) -> Self {
        let found = node.exec(&["pgrep", "-f", "^trieste-kubernetes kubelet"]).unwrap();
        let paused = Self { node, ids: found.split_whitespace().map(str::to_owned).collect() };
        paused.signal("-STOP");
        paused
    }

    fn resume(self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        for id in &self.ids {
            self.node.exec(&["kill", signal, id]).unwrap();
        }
    }
}

/// With a load balancer, whose Service a gateway reads: not in an air-gapped deployment.
fn join_balanced(set: &ClusterSet, cluster: &Cluster) {
    let nets: Vec<_> = cluster.pod_nets().iter().map(ToString::to_string).collect();
    set.join_with(cluster, &["--load-balancer", "--clustercidr", &nets.join(",")]).unwrap();
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
    let label = |node: &Node, value: &str| {
        let change = json!({"metadata": {"labels": {GATEWAY_LABEL: value}}});
        east.client().patch(&format!("/api/v1/nodes/{}", node.name()), &change).unwrap();
    };
    let (gateways, workers) = east.gateways_and_workers().unwrap();
    let (first, second) = (gateways[0], workers[0]);
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
    export(set, &client);
    another_service_network(set);
    // What it finds is other tests' matter.
    set.trieste(east).args(["diagnose", "all"]).timeout(STEP * 3).output().unwrap();
    for words in [["show", "gateways"].as_slice(), &["gather", "--dir", "gathered-by-hand"]] {
        let output = set.trieste(east).args(words).timeout(STEP).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}{}", output.stdout, output.stderr);
    }
}

/// Another network for services appears in a cluster by itself, is announced, and goes.
fn another_service_network(set: &ClusterSet) {
    let (east, west) = (set.clusters.cluster("east"), set.clusters.cluster("west"));
    let (ranges, range) = ("/apis/networking.k8s.io/v1/servicecidrs", "10.211.77.0/24");
    let endpoints = format!("/apis/submariner.io/v1/namespaces/{MEMBER}/endpoints");
    let until = |what: &str, is_there: bool| {
        east.wait(what, STEP, || {
            let all = east.client().list(&endpoints)?;
            let mut of_west = all.iter().filter(|endpoint| endpoint["spec"]["cluster_id"] == "west");
            let has_it = of_west.any(|endpoint| endpoint["spec"]["subnets"].to_string().contains(range));
            anyhow::ensure!(has_it == is_there, "{all:?}");
            Ok(())
        })
        .unwrap();
    };
    let object = json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
        "metadata": {"name": "more"}, "spec": {"cidrs": [range]}});
    west.client().post(ranges, &object).unwrap();
    until("the new network of services to be announced", true);
    west.client().delete(&format!("{ranges}/more")).unwrap();
    until("the network of services to be withdrawn", false);
}

/// A service of each cluster is exported, answered in the other, and exported no more.
fn export(set: &ClusterSet, asker: &Pod) {
    let (east, west) = (set.clusters.cluster("east"), set.clusters.cluster("west"));
    for (cluster, service) in [(east, "of-east"), (west, "of-west")] {
        cluster.start_service(service, &format!("on-{}-2", cluster.name())).unwrap();
        set.export(cluster, "export", service).unwrap();
    }
    east.wait("an answer to a name", RELOADED, || {
        let found = asker.resolve("of-west.default.svc.clusterset.local")?;
        anyhow::ensure!(!found.is_empty(), "there is none");
        Ok(())
    })
    .unwrap();
    // What has changed is written again.
    let change = json!({"spec": {"ports": [{"name": "tcp", "port": 81, "targetPort": RESPONDER_PORT}]}});
    west.client().patch("/api/v1/namespaces/default/services/of-west", &change).unwrap();
    let import = "/apis/multicluster.x-k8s.io/v1alpha1/namespaces/default/serviceimports/of-west";
    east.wait("the import of another port", STEP, || {
        let found = east.client().find(import)?.unwrap_or_default();
        anyhow::ensure!(found["spec"]["ports"].to_string().contains("81"), "{found}");
        Ok(())
    })
    .unwrap();
    for (cluster, service) in [(east, "of-east"), (west, "of-west")] {
        set.export(cluster, "unexport", service).unwrap();
        cluster.kubectl(&["delete", "service", "-n", "default", service]).unwrap().success().unwrap();
    }
}

fn uninstalling(set: &ClusterSet, cluster: &Cluster) -> Run {
    set.trieste(cluster).args(["uninstall", "--yes"])
}

fn uninstall(set: &ClusterSet, cluster: &Cluster) {
    let clock = Instant::now();
    set.uninstall(cluster).unwrap();
    eprintln!("{} has left within {:.1?}", cluster.name(), clock.elapsed());
}

/// Without the join file: by the member's own token.
fn alone(set: &ClusterSet, cluster: &Cluster) -> Run {
    cluster.command(set.program()).args(["uninstall", "--yes"])
}

fn uninstall_alone(set: &ClusterSet, cluster: &Cluster) {
    let output = alone(set, cluster).timeout(STEP * 2).output().unwrap();
    assert!(output.status.success(), "{}{}", output.stdout, output.stderr);
}

/// What an uninstall says that does not come to an end.
fn refused(set: &ClusterSet, cluster: &Cluster) -> String {
    let output = uninstalling(set, cluster).timeout(STEP * 2).output().unwrap();
    assert!(!output.status.success(), "{}{}", output.stdout, output.stderr);
    format!("{}{}", output.stdout, output.stderr)
}

/// What the broker's cluster still has of a member that has left, while it is joining itself.
fn left_of_west(before: &Footprint, broker: &Cluster) -> Option<String> {
    let is_gone = || {
        let mut changes = before.changes(&Footprint::of_objects(broker)?);
        // What it had copied of west its gateway keeps for a minute, as of any cluster that goes.
        changes.retain(|change| change.contains("west") && change.contains(BROKER_NAMESPACE));
        // A cluster that leaves keeps its blocks for when it comes back (docs/operations/install.md).
        let blocks = [CLUSTERSET_IP_INFO, CLUSTERSET_IPV6_INFO];
        changes.retain(|change| !blocks.iter().any(|name| change.contains(name)));
        anyhow::ensure!(changes.is_empty(), "{}", changes.join("\n"));
        Ok(())
    };
    let error = eventually("nothing of west to be left", LEFT, is_gone).err()?;
    Some(format!("left of west: {}", error.root_cause()))
}

/// Compares with what was there before; what Kubernetes takes away by and by has some time.
fn differences(when: &str, before: &Footprint, cluster: &Cluster) -> Option<String> {
    let is_same = || {
        let changes = before.changes(&Footprint::of(cluster)?);
        anyhow::ensure!(changes.is_empty(), "{}", changes.join("\n"));
        Ok(())
    };
    let error = eventually("everything to be as before", STEP, is_same).err()?;
    Some(format!("{}, after {when}: {}", cluster.name(), error.root_cause()))
}

//! The same set by two Fabrics, which the operator's pod carries out in each cluster.

use std::time::{Duration, Instant};

use anyhow::Context;
use ipnet::IpNet;
use serde_json::{Value, json};
use trieste_deploy::objects::names::{BROKER_INFO, BROKER_NAMESPACE, OPERATOR};

use super::Actors;
use crate::clusters::{Cluster, ClusterSet, Costs, MEMBER, PodFlow, condition};
use crate::demo::Options;
use crate::demo::screen::Screen;
use crate::wait::eventually;

/// How long a Fabric may take, and how long it may take to go.
const CARRIED_OUT: Duration = Duration::from_secs(240);
/// The image that takes the place of the one before: the same programs under another name.
const NEXT: &str = "localhost/trieste:next";
/// How long an edit may take, of a Fabric or of what it has made.
const EDITED: Duration = Duration::from_secs(60);

/// Makes a set of two clusters.
pub(super) fn install(screen: &Screen, set: &ClusterSet, options: &Options) -> anyhow::Result<()> {
    let (east, west) = (set.clusters.cluster("east"), set.clusters.cluster("west"));
    screen.heading("Installed by a resource in each cluster");
    for cluster in [east, west] {
        let title =
            format!("{} $ trieste manifests operator | kubectl apply --server-side -f -", cluster.name());
        screen.step(&title, || {
            let apply = cluster.kubectl_run().args(["apply", "--server-side", "-f", "-"]);
            apply.input(manifest(set, cluster)?).stdout()?;
            cluster.wait_rollout(OPERATOR, &format!("deployment/{OPERATOR}"))?;
            Ok(vec![])
        })?;
    }
    let begun = Instant::now();
    screen.step("east $ kubectl apply -f fabric.yaml      # the broker, and a member", || {
        let words = ["config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}"];
        let url = east.kubectl(&words)?.success()?;
        let broker = json!({"publicAPIServerURL": url.trim()});
        apply(east, &json!({"brokerConfig": broker, "joinConfig": member(east, options)}))?;
        wait_ready(east)
    })?;
    screen.step("west $ kubectl apply -f -      # the Secret that east has published", || {
        let path = format!("/api/v1/namespaces/{BROKER_NAMESPACE}/secrets/{BROKER_INFO}");
        let data = east.client().get(&path)?["data"].clone();
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "data": data,
            "metadata": {"namespace": OPERATOR, "name": BROKER_INFO}});
        west.apply(&secret.to_string())?;
        Ok(vec![])
    })?;
    screen.step("west $ kubectl apply -f fabric.yaml      # a member", || {
        let mut join = member(west, options);
        join["brokerInfoRef"] = json!({});
        apply(west, &json!({"joinConfig": join}))?;
        let mut lines = wait_ready(west)?;
        lines.push(format!(
            "both clusters are ready {:.0} s after the first resource",
            begun.elapsed().as_secs_f32()
        ));
        Ok(lines)
    })
}

/// What `joinConfig` has here: networks are named, since nothing in such a cluster has more of them than the share of each node, and
/// nobody outside can be asked for a public address.
fn member(cluster: &Cluster, options: &Options) -> Value {
    let networks: Vec<String> = cluster.pod_nets().iter().map(IpNet::to_string).collect();
    json!({"clusterCIDR": networks.join(","), "airGapped": true, "cableDriver": options.cable})
}

fn manifest(set: &ClusterSet, cluster: &Cluster) -> anyhow::Result<String> {
    set.trieste(cluster).args(["manifests", "operator"]).stdout()
}

fn apply(cluster: &Cluster, spec: &Value) -> anyhow::Result<String> {
    let fabric = json!({"apiVersion": "trieste.io/v1alpha1", "kind": "Fabric", "spec": spec,
        "metadata": {"name": cluster.name()}});
    cluster.apply(&fabric.to_string())
}

/// Waits until a cluster is what its Fabric says; returns what kubectl shows of that.
fn wait_ready(cluster: &Cluster) -> anyhow::Result<Vec<String>> {
    let path = format!("/apis/trieste.io/v1alpha1/fabrics/{}", cluster.name());
    cluster.wait(&format!("{}'s Fabric to be ready", cluster.name()), CARRIED_OUT, || {
        let fabric = cluster.client().get(&path)?;
        let ready = condition(&fabric, "Ready").unwrap_or_default();
        let is_about_now = ready["observedGeneration"] == fabric["metadata"]["generation"];
        anyhow::ensure!(ready["status"] == "True" && is_about_now, "{}", fabric["status"]);
        Ok(())
    })?;
    let shown = cluster.kubectl(&["get", "fabrics"])?.success()?;
    Ok(shown.lines().map(str::to_owned).collect())
}

/// Edits a member's Fabric, and then by hand what it has made.
pub(super) fn edit(screen: &Screen, west: &Cluster) -> anyhow::Result<()> {
    screen.heading("Edited");
    screen.step("west $ kubectl patch fabric west      # a setting that takes effect at once", || {
        let patch = json!({"spec": {"joinConfig": {"settings": {"path-probe-interval": "50"}}}});
        west.kubectl(&["patch", "fabric", "west", "--type", "merge", "-p", &patch.to_string()])?.success()?;
        let path = format!("/api/v1/namespaces/{MEMBER}/configmaps/trieste-settings");
        west.wait("the setting", EDITED, || {
            let settings = west.client().get(&path)?;
            anyhow::ensure!(settings["data"]["path-probe-interval"] == "50", "{}", settings["data"]);
            Ok(())
        })?;
        wait_ready(west)?;
        Ok(vec!["trieste-settings: path-probe-interval 50".to_owned()])
    })?;
    screen.step(
        "west $ kubectl patch daemonset submariner-gateway      # by hand: the operator undoes it",
        || {
            let gateway = format!("/apis/apps/v1/namespaces/{MEMBER}/daemonsets/submariner-gateway");
            let update =
                |set: &Value| set["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"].clone();
            let before = update(&west.client().get(&gateway)?);
            let patch = json!({"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 7}}}});
            let words = ["patch", "daemonset", "submariner-gateway", "-n", MEMBER, "-p", &patch.to_string()];
            west.kubectl(&words)?.success()?;
            west.wait("the edit to be undone", EDITED, || {
                let now = update(&west.client().get(&gateway)?);
                anyhow::ensure!(now == before, "{now}");
                Ok(())
            })?;
            let told = eventually("an Event about it", EDITED, || repaired(west))?;
            Ok(vec![told])
        },
    )
}

/// Upgrades a member under traffic, by the operator of another image.
pub(super) fn upgrade(screen: &Screen, set: &ClusterSet, actors: &Actors) -> anyhow::Result<()> {
    let west = set.clusters.cluster("west");
    screen.heading("Upgraded under traffic");
    screen.step("west $ kubectl patch fabric west      # two gateways", || {
        let patch = json!({"spec": {"joinConfig": {"gateways": west.nodes().len()}}});
        west.kubectl(&["patch", "fabric", "west", "--type", "merge", "-p", &patch.to_string()])?.success()?;
        west.wait("both gateways", CARRIED_OUT, || {
            let (gateways, _) = west.gateways_and_workers()?;
            anyhow::ensure!(gateways.len() == west.nodes().len(), "{} nodes have the label", gateways.len());
            west.gateways_carry()
        })?;
        Ok(vec![])
    })?;
    let Actors { client, server, .. } = actors;
    let title = format!(
        "west $ trieste manifests operator --image {NEXT} | kubectl apply …      # the same programs"
    );
    screen.step(&title, || {
        let gateways =
            || west.client().get(&format!("/apis/apps/v1/namespaces/{MEMBER}/daemonsets/submariner-gateway"));
        let image = gateways()?["spec"]["template"]["spec"]["containers"][0]["image"].clone();
        let image = image.as_str().context("the gateways have no image")?;
        for node in west.nodes() {
            node.exec(&["ctr", "-n", "k8s.io", "images", "tag", "--force", image, NEXT])?;
        }
        let flows = [PodFlow::start(client, server, 0)?, PodFlow::start(server, client, 0)?];
        let begun = Instant::now();
        let costs = Costs::begin(&flows);
        let operator = set.trieste(west).args(["manifests", "operator", "--image", NEXT]).stdout()?;
        west.kubectl_run().args(["apply", "--server-side", "-f", "-"]).input(operator).stdout()?;
        west.wait("the gateways to be replaced", CARRIED_OUT, || replaced(&gateways()?))?;
        west.wait_rollout(MEMBER, "daemonset/submariner-gateway")?;
        let took = begun.elapsed().as_secs_f32();
        let mut lines = vec![format!("operator, route agents and both gateways replaced after {took:.0} s")];
        lines.extend(costs.lines()?);
        Ok(lines)
    })
}

/// Makes sure that gateways are of the next version, and Kubernetes' own rule is in force again: that is the end of the roll.
fn replaced(set: &Value) -> anyhow::Result<()> {
    let is_done = set["spec"]["template"]["spec"]["containers"][0]["image"] == NEXT
        && set["spec"]["updateStrategy"]["type"] == "RollingUpdate";
    anyhow::ensure!(is_done, "{}", set["status"]);
    Ok(())
}

/// Returns the Event about what was repaired.
fn repaired(cluster: &Cluster) -> anyhow::Result<String> {
    let events = cluster.client().list("/api/v1/namespaces/default/events")?;
    let mut about = events.iter().filter(|event| event["reason"] == "Repaired");
    let event = about.find_map(|event| event["message"].as_str()).context("there is none")?;
    Ok(event.to_owned())
}

/// Deletes both resources, the member's that is not the broker's first, and then the operators.
pub(super) fn uninstall(screen: &Screen, set: &ClusterSet) -> anyhow::Result<()> {
    for name in ["west", "east"] {
        let cluster = set.clusters.cluster(name);
        screen.step(&format!("{name} $ kubectl delete fabric {name}"), || {
            let delete = cluster.kubectl_run().args(["delete", "fabric", name]).timeout(CARRIED_OUT);
            let told = delete.output()?;
            anyhow::ensure!(told.status.success(), "{}{}\n{}", told.stdout, told.stderr, cluster.explain());
            Ok(vec![told.stdout.trim().to_owned()])
        })?;
    }
    for name in ["west", "east"] {
        let cluster = set.clusters.cluster(name);
        screen.step(&format!("{name} $ trieste manifests operator | kubectl delete -f -"), || {
            let delete = cluster.kubectl_run().args(["delete", "-f", "-"]).input(manifest(set, cluster)?);
            delete.timeout(CARRIED_OUT).stdout()?;
            Ok(vec![])
        })?;
    }
    Ok(())
}

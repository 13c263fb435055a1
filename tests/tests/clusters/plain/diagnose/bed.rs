//! Two joined clusters, and where on them something can be broken.

use anyhow::Context;
use serde_json::{Value, json};
use trieste_tests::clusters::{MEMBER, Node, Pod, PodShape, TOOLS_IMAGE};
use trieste_tests::wait::eventually;

use super::faults::Fault;
use crate::shared::{SOON, Two};

/// Prints what the route agent keeps on a node. Pods that come and go are left out.
const STATE: &str = "ip rule; ip route show table all | grep -v -e veth -e cni | sort; \
    ip -o link show type vxlan | cut -d: -f2-; bridge fdb show dev vx-submariner | sort; \
    cat /proc/sys/net/ipv4/conf/vx-submariner/rp_filter";

/// Where a script runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The source pod's node.
    EastWorker,
    /// The node of its gateway.
    EastGateway,
    /// The node of the other gateway.
    WestGateway,
    /// The destination pod's node.
    WestWorker,
    /// Between the clusters.
    Fabric,
    /// kubectl for the destination's cluster.
    West,
}

/// Two clusters; `far` pods are on workers, `near` pods on the gateways' nodes.
pub(super) struct Bed<'a> {
    pub(super) two: &'a Two,
    east: Nodes<'a>,
    west: Nodes<'a>,
    pub(super) source: Pod,
    pub(super) destination: Pod,
    names: Vec<(&'static str, String)>,
}

/// Which node is which.
struct Nodes<'a> {
    gateway: &'a Node,
    worker: &'a Node,
}

impl<'a> Bed<'a> {
    pub(super) fn new(two: &'a Two) -> anyhow::Result<Self> {
        let mut found = Vec::new();
        for cluster in two.set.clusters.all() {
            let (gateways, workers) = cluster.gateways_and_workers()?;
            let (gateway, worker) = (gateways[0], workers[0]);
            let shapes = [PodShape::on(worker, "far"), PodShape::on(gateway, "near")];
            let far = cluster.start_pods(&shapes)?.swap_remove(0);
            cluster.apply(&others(&far.node).to_string())?;
            found.push((Nodes { gateway, worker }, far));
        }
        let [(east, source), (west, destination)] =
            <[_; 2]>::try_from(found).ok().context("there are two clusters")?;
        let mut bed = Self { two, east, west, source, destination, names: Vec::new() };
        bed.names = bed.names()?;
        Ok(bed)
    }

    pub(super) fn node(&self, place: Place) -> Option<&Node> {
        match place {
            Place::EastWorker => Some(self.east.worker),
            Place::EastGateway => Some(self.east.gateway),
            Place::WestGateway => Some(self.west.gateway),
            Place::WestWorker => Some(self.west.worker),
            Place::Fabric | Place::West => None,
        }
    }

    /// Runs a shell script at a place, or kubectl with these words; names such as `$WEST_GATEWAY` are replaced before.
    pub(super) fn run(&self, place: Place, script: &str) -> anyhow::Result<()> {
        let mut text = script.to_owned();
        for (name, value) in &self.names {
            text = text.replace(name, value);
        }
        let run = match place {
            Place::Fabric => self.two.set.clusters.fabric().run("sh").args(["-ec", &text]),
            Place::West => self.two.west().kubectl_run().args(text.split_whitespace()),
            Place::EastWorker | Place::EastGateway | Place::WestGateway | Place::WestWorker => {
                self.node(place).context("it is a node")?.command("sh")?.args(["-ec", &text])
            }
        };
        run.stdout().with_context(|| format!("at {place:?}: {text}")).map(drop)
    }

    /// Routes, rules and devices of the nodes that a breakage touches.
    pub(super) fn states(&self, fault: &Fault) -> anyhow::Result<Vec<(Place, String)>> {
        let mut places: Vec<Place> = fault.inject.iter().map(|(place, _)| *place).collect();
        places.dedup();
        let nodes = places.into_iter().filter(|place| self.node(*place).is_some());
        nodes.map(|place| Ok((place, self.state(place)?))).collect()
    }

    fn state(&self, place: Place) -> anyhow::Result<String> {
        self.node(place).context("it is a node")?.exec(&["sh", "-c", STATE])
    }

    /// Waits until nothing of a breakage is left, so that the next one is not taken for it.
    pub(super) fn as_before(&self, states: &[(Place, String)]) -> anyhow::Result<()> {
        for (place, before) in states {
            eventually(&format!("{place:?} to be as before"), SOON, || {
                let found = self.state(*place)?;
                anyhow::ensure!(found == *before, "before:\n{before}\nsince:\n{found}");
                Ok(())
            })?;
        }
        Ok(())
    }

    /// What scripts call by name; no name is the beginning of a later one.
    fn names(&self) -> anyhow::Result<Vec<(&'static str, String)>> {
        let name = |place| self.node(place).map(|node| node.name().to_owned()).unwrap_or_default();
        let v4 = |place| self.node(place).map(|node| node.addresses()[0].to_string()).unwrap_or_default();
        let port = |place| self.node(place).map(Node::port).unwrap_or_default();
        let key = self.key()?;
        let pods = self.two.west().pod_nets().iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        Ok(vec![
            ("$WEST_GATEWAY_NAME", name(Place::WestGateway)),
            ("$EAST_GATEWAY", v4(Place::EastGateway)),
            ("$WEST_GATEWAY", v4(Place::WestGateway)),
            ("$EAST_API", self.two.east().api().to_string()),
            ("$EAST_PORT", port(Place::EastWorker)),
            ("$WEST_PORT", port(Place::WestWorker)),
            ("$WEST_PODS", pods),
            ("$SOURCE", self.source.addresses[0].to_string()),
            ("$DESTINATION", self.destination.addresses[0].to_string()),
            ("$PSK", key),
            ("$OTHER", "x".repeat(48)),
        ])
    }

    /// The preshared key, as the Secret has it.
    fn key(&self) -> anyhow::Result<String> {
        let secret = format!("/api/v1/namespaces/{MEMBER}/secrets/submariner-ipsec-psk");
        Ok(self.two.west().client().get(&secret)?["data"]["psk"].as_str().unwrap_or_default().to_owned())
    }

    /// What nobody may read who reads what was gathered.
    pub(super) fn secrets(&self) -> anyhow::Result<Vec<String>> {
        let key = self.key()?;
        anyhow::ensure!(key.len() > 16, "no key");
        Ok(vec![key])
    }

    /// `trieste diagnose path` from `source` in the east to `destination` in the west.
    pub(super) fn diagnose(&self, source: &str, destination: &str, more: &[&str]) -> anyhow::Result<Value> {
        let words = ["diagnose", "path", source, destination, "--context", "east", "--remotecontext", "west"];
        let run = self.two.set.trieste(self.two.east()).args(words).args(["-o", "json"]).args(more);
        let output = run.timeout(SOON).output()?;
        let verdict: Value = serde_json::from_str(&output.stdout)
            .with_context(|| format!("{}{}", output.stdout, output.stderr))?;
        let is_broken = verdict["health"] == "broken";
        anyhow::ensure!(output.status.success() != is_broken, "exit status {} of {verdict:#}", output.status);
        Ok(verdict)
    }

    /// Waits until packets pass and nothing is wrong.
    pub(super) fn healthy(&self) -> anyhow::Result<()> {
        eventually("a healthy path", SOON, || {
            let verdict = self.diagnose("far", "far", &[])?;
            anyhow::ensure!(verdict["health"] == "healthy", "{verdict:#}");
            Ok(())
        })?;
        self.two.say("healthy");
        Ok(())
    }
}

/// A pod that never gets ready, and a service of which no pod is.
fn others(node: &str) -> Value {
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "unready", "namespace": "default", "labels": {"app": "unready"}},
        "spec": {
            "nodeName": node, "terminationGracePeriodSeconds": 1, "tolerations": [{"operator": "Exists"}],
            "containers": [{
                "name": "unready", "image": TOOLS_IMAGE, "imagePullPolicy": "Never", "command": ["sleep", "1d"],
                "readinessProbe": {"exec": {"command": ["false"]}}}]}});
    let service = |name: &str, app: &str| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
            "spec": {"selector": {"app": app}, "ports": [{"port": 80, "targetPort": 7000}]}})
    };
    json!({"apiVersion": "v1", "kind": "List", "items": [pod, service("web", "far"), service("empty", "unready")]})
}

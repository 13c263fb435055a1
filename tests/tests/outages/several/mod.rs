//! Two clusters of two active gateways and a worker each: what the loss of a gateway costs, what must not cost anything, and
//! which ways packets go. Figures are those of `trieste-bench failover`; here unoptimised programs on a busy machine are held
//! to looser bars. `./dev test` runs this program alone; where the machine was busy all the same a trial is done again
//! (`Bed::undisturbed`).

mod broker;
mod clocks;
mod discovery;
mod drivers;
mod joins;
mod losses;
mod one_active;
mod translated;
mod ways;

use std::net::SocketAddr;
use std::time::Duration;

use trieste_tests::daemon::Daemon;
use trieste_tests::flow::{Conversations, Echo, FlowOutage, FlowSpec, Outages, Probing};
use trieste_tests::lab::Lab;
use trieste_tests::mesh::Mesh;
use trieste_tests::mesh::carriers::Carriers;
use trieste_tests::mesh::scenario::{Scenario, Target, Trial};
use trieste_tests::mesh::waits::Waits;
use trieste_tests::topology::{Families, Topology};

/// UDP port of the echo in every pod.
pub(crate) const PORT: u16 = 7777;

/// How often each flow asks: unoptimised gateways on a busy machine carry no more of them.
pub(crate) const INTERVAL: Duration = Duration::from_millis(10);

/// A gateway's worker that waits for a processor for longer than this is what a trial shows, not what it looks for: half of
/// the shortest time-out of a path.
pub(crate) const WAIT: Duration = Duration::from_millis(35);
/// The longest that a flow may miss its gateway here.
pub(crate) const BAR: Duration = Duration::from_secs(2);
/// Packets, ten milliseconds apart, that a pod on the node of a gateway that is started again may lose.
const OWN_NODE: u32 = 5;
/// How often a trial is done while the machine disturbs it.
pub(crate) const TRIES: u32 = 3;

/// Two clusters of two gateways and a worker, with two pods on every node.
pub(crate) fn topology() -> Topology {
    Topology::two_clusters().with_underlay(Families::V4).with_nodes(2, 1).with_pods(2)
}

/// Clusters, echoes in all of their first pods, and the notes about who carries what. The fields are in the order in which
/// they have to end.
pub(crate) struct Bed {
    pub(crate) carriers: Carriers,
    _echoes: Vec<Echo>,
    pub(crate) mesh: Mesh,
    next_port: u16,
}

impl Bed {
    /// Starts everything and waits until all gateways have all of their paths.
    pub(crate) fn start(extra: &[&str]) -> Self {
        let lab = Lab::new().unwrap();
        Self::around(Mesh::start(&lab, &topology(), extra).unwrap())
    }

    /// Waits until all gateways have all of their paths and packets go everywhere.
    pub(crate) fn around(mesh: Mesh) -> Self {
        mesh.wait_traffic().and_then(|()| mesh.settle()).unwrap_or_else(|error| {
            mesh.lab.show_logs();
            panic!("{error:#}")
        });
        Self::of(mesh)
    }

    /// The same without waiting.
    pub(crate) fn of(mut mesh: Mesh) -> Self {
        mesh.interval = INTERVAL;
        let nodes = mesh.plan.clusters.iter().flat_map(|cluster| &cluster.nodes);
        let echoes = nodes.map(|node| Echo::start(&node.pods[0].namespace, PORT).unwrap()).collect();
        let carriers = Carriers::watch(&mesh, PORT).unwrap();
        Self { carriers, _echoes: echoes, mesh, next_port: 20_000 }
    }

    /// Flows between workers, and between workers and gateways' nodes, each way.
    pub(crate) fn flows(&mut self) -> Vec<FlowSpec> {
        // Gateways' nodes come first, the worker last.
        self.flows_of(&[(2, 2), (2, 2), (0, 2), (2, 1)])
    }

    /// Flows between nodes of these numbers, each way.
    pub(crate) fn flows_of(&mut self, nodes: &[(usize, usize)]) -> Vec<FlowSpec> {
        let mut flows = Vec::new();
        for (from, to) in [("east", "west"), ("west", "east")] {
            for &(node, other) in nodes {
                let [from, to] =
                    [(from, node), (to, other)].map(|(id, n)| &self.mesh.plan.cluster(id).nodes[n]);
                flows.push(FlowSpec {
                    name: format!("{} to {}", from.name, to.name),
                    from: from.pods[0].namespace.clone(),
                    to: SocketAddr::new(to.pods[0].ips()[0], PORT),
                    port: self.next_port,
                });
                self.next_port += 1;
            }
        }
        flows
    }

    /// Does something to a gateway while all flows are probed, and waits until everything is well again.
    pub(crate) fn trial(&mut self, scenario: Scenario, cluster: &str, gateway: usize) -> Trial {
        let target = Target { cluster: cluster.to_owned(), gateway };
        let flows = self.flows();
        let watched = Duration::from_millis(2000);
        let trial = self.mesh.trial(scenario, &target, &flows, Some(&self.carriers), watched).unwrap();
        eprintln!("{scenario} {cluster}-gw{}: {}", gateway + 1, trial.line());
        self.mesh.settle().unwrap();
        trial
    }

    /// What is complained of in a trial that the machine does not disturb.
    pub(crate) fn undisturbed(&mut self, trial: impl FnMut(&mut Self) -> Vec<String>) -> Vec<String> {
        undisturbed(self, |bed| &bed.mesh, trial)
    }

    /// TCP connections from the worker of east to that of west.
    pub(crate) fn converse(&self, count: usize) -> Conversations {
        let [from, to] = ["east", "west"].map(|cluster| self.mesh.pod(cluster, 2, 1));
        let address = to.ips()[0];
        let to_port = |port| SocketAddr::new(address, port);
        Conversations::start(&from.namespace, &to.namespace, to_port, count).unwrap()
    }
}

/// Shows the flows that were silent for too long.
pub(crate) fn slow(outages: &Outages) -> Vec<String> {
    let slow = outages.flows.iter().filter(|flow| flow.longest() >= BAR);
    slow.map(|flow| format!("{flow:?}")).collect()
}

/// Shows the flows that have lost packets. The device of a node whose gateway is `restarted` has no carrier for a moment, and
/// then has: what is in it at that moment is gone.
pub(crate) fn lost(outages: &Outages, restarted: Option<&str>) -> Vec<String> {
    let is_own = |flow: &FlowOutage| restarted.is_some_and(|node| flow.name.contains(node));
    let may_lose = |flow: &FlowOutage| if is_own(flow) { OWN_NODE } else { 0 };
    let lost = outages.flows.iter().filter(|flow| flow.lost > may_lose(flow));
    lost.map(|flow| format!("{flow:?}")).collect()
}

/// Starts to probe flows; it counts from when each has had an answer.
pub(crate) fn probe(flows: &[FlowSpec]) -> Probing {
    let probing = Probing::start_every(INTERVAL, flows).unwrap();
    probing.wait_through(Duration::from_secs(10)).unwrap();
    probing.mark();
    probing
}

/// Does a trial until there is nothing to complain of, or no gateway's worker had to wait long for a processor meanwhile.
/// Returns the complaints; after some tries without such a one, those of the last.
pub(crate) fn undisturbed<B>(
    bed: &mut B,
    mesh: impl Fn(&B) -> &Mesh,
    mut trial: impl FnMut(&mut B) -> Vec<String>,
) -> Vec<String> {
    for attempt in 1.. {
        let waits = watch_waits(mesh(bed));
        let complaints = trial(bed);
        let longest = waits.finish();
        if complaints.is_empty() || longest < WAIT || attempt == TRIES {
            return complaints;
        }
        eprintln!("once more: a worker waited {longest:?} for a processor meanwhile: {complaints:#?}");
    }
    unreachable!("tries end")
}

/// Begins to look at how long gateways' workers wait for a processor.
pub(crate) fn watch_waits(mesh: &Mesh) -> Waits {
    let gateways = mesh.sides.iter().flat_map(|side| {
        (0..side.plan().gateways().len()).filter_map(|gateway| side.gateway(gateway).ok()).map(Daemon::id)
    });
    Waits::watch(&gateways.collect::<Vec<_>>(), "worker-")
}

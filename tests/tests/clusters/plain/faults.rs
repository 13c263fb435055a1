//! Faults on real clusters: what each costs the packets between pods of two clusters, and that nothing of them is seen in
//! clear on the underlay meanwhile. What they cost is judged where no other test runs beside this one.
//!
//! ```text
//!   east-3 worker, pod ─┐                                  ┌─ west-1 worker, pod
//!                       ├─ east-2 gateway (leads) ══ west-2 ┤
//!                       └─ east-1 gateway         ══        ┘
//! ```

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use trieste_tests::cables;
use trieste_tests::clusters::{
    Cluster, Cost, MEMBER, Node, Pod, PodFlow, PodShape, Witness, seen_within, worst,
};
use trieste_tests::{guard, pages};

use super::on_each;
use crate::shared::{PLAIN, SOON, Two, in_parallel, lease, node};

const GATEWAY: &str = "submariner-gateway";
const ROUTE_AGENT: &str = "submariner-routeagent";

/// The longest gap that is allowed where nothing on the path of packets ends: a busy machine's pauses.
const NOTHING: Duration = Duration::from_millis(500);
/// Where a process on the path is started anew, or another gateway takes over, one by one in an upgrade: under a second
/// when the machine has nothing else to do.
const HANDOVER: Duration = Duration::from_secs(3);
/// Where a cluster with one gateway changes its cable driver.
const CHANGE: Duration = Duration::from_secs(2);
/// Where pods have no device for a second, and find their node again.
const PLUGIN: Duration = Duration::from_secs(10);

#[test]
fn faults_heal_and_nothing_is_seen_in_clear() {
    let Some(mut two) = lease(&PLAIN, "plain::faults::faults_heal_and_nothing_is_seen_in_clear") else {
        return;
    };
    two.joined();
    let bed = Bed::new(&two);
    two.say("flows run");
    for cluster in two.set.clusters.all() {
        let seen = seen_within(&two.lab, &two.set.clusters, cluster).unwrap();
        assert!(seen > 0, "the capture does not see the marker");
    }
    let mut table = Table::default();

    bed.agents_die(&mut table);
    bed.rules_are_flushed(&mut table);
    bed.the_network_plugin_starts_anew(&mut table);
    bed.gateways_die(&mut table);
    bed.the_label_moves(&mut table);
    bed.a_node_is_drained(&mut table);
    bed.the_cable_driver_is_changed(&mut table);
    bed.images_are_exchanged(&mut table);
    two.say("faults without reboots");
    bed.the_gateway_node_reboots(&mut table);
    bed.a_worker_reboots(bed.east.node(3), &mut table);
    table.print();
    two.say("all faults");
}

struct Bed<'a> {
    two: &'a Two,
    east: &'a Cluster,
    /// The pod on west's worker.
    far: Pod,
    /// Both directions, both families; between workers.
    flows: Vec<PodFlow>,
}

impl<'a> Bed<'a> {
    fn new(two: &'a Two) -> Self {
        let [in_east, in_west] = two.in_both(on_each).try_into().unwrap();
        let (near, far) = (&in_east[2], &in_west[0]);
        let flows = vec![PodFlow::start(near, far, 0).unwrap(), PodFlow::start(far, near, 1).unwrap()];
        let bed = Self { two, east: two.east(), far: far.clone(), flows };
        bed.label("east-1", true);
        bed.wait_well();
        assert_eq!(bed.leader(), "east-2");
        bed
    }

    fn label(&self, name: &str, is_gateway: bool) {
        self.east.label_gateway(self.node(name), is_gateway).unwrap();
    }

    /// The node whose gateway leads.
    fn leader(&self) -> String {
        self.east.wait("one gateway that leads", SOON, || self.east.leader()).unwrap()
    }

    fn node(&self, name: &str) -> &'a Node {
        node(self.east, name)
    }

    /// Everything runs, but for what is on nodes that are off, and packets pass.
    fn wait_well(&self) {
        let is_whole = |cluster: &&Cluster| cluster.nodes().iter().all(Node::is_on);
        for cluster in self.two.set.clusters.all().iter().filter(is_whole) {
            for daemon in [GATEWAY, ROUTE_AGENT] {
                cluster.wait_rollout(MEMBER, &format!("daemonset/{daemon}")).unwrap();
            }
            cluster.wait("the gateways to be ready", SOON, || cluster.gateways_carry()).unwrap();
        }
        for flow in &self.flows {
            flow.wait_through(SOON).unwrap();
        }
    }

    /// Every route agent of east that is on finds the network of its node as it should be.
    fn wait_repaired(&self) {
        let on: Vec<_> = self.east.nodes().iter().filter(|node| node.is_on()).collect();
        in_parallel(&on, |node| {
            let what = format!("the route agent of {} to plan nothing", node.name());
            self.east.wait(&what, SOON, || self.plans_nothing(node)).unwrap();
        });
    }

    fn plans_nothing(&self, node: &Node) -> anyhow::Result<()> {
        let (name, _) = self.east.own_pod(ROUTE_AGENT, node)?;
        // Not by the Service: where somebody has flushed all rules, kube-proxy takes half a minute to make its own again.
        let api = format!("KUBERNETES_SERVICE_HOST={}", self.east.api());
        let exec = ["exec", "-n", MEMBER, &name, "-c", ROUTE_AGENT, "--", "env", &api];
        let dry_run = ["KUBERNETES_SERVICE_PORT=6443", "trieste-routeagent", "--dry-run"];
        let said = self.east.kubectl(&[&exec[..], &dry_run].concat())?.success()?;
        anyhow::ensure!(said.lines().any(|line| line == "nothing to change"), "{said}");
        Ok(())
    }

    /// Breaks something and waits until that was noticed, waits until all is well, and notes what it cost.
    fn fault(&self, table: &mut Table, name: &str, bar: Duration, breaking: impl FnOnce()) {
        self.fault_for(table, name, bar, &self.flows, || {
            breaking();
            self.wait_repaired();
            self.wait_well();
        });
    }

    fn fault_for(
        &self,
        table: &mut Table,
        name: &str,
        bar: Duration,
        flows: &[PodFlow],
        work: impl FnOnce(),
    ) {
        let witness = Witness::start(&self.two.lab, &self.two.set.clusters, flows).unwrap();
        work();
        let costs = witness.finish().unwrap_or_else(|error| panic!("{name}: {error:#}"));
        let cost = worst(&costs).unwrap();
        table.add(name, cost);
        let is_judged = guard::is_alone();
        assert!(!is_judged || cost.longest_gap <= bar, "{name}: {costs:?}, the bar is {bar:?}");
    }

    /// Deletes the pod of a DaemonSet on this node, as an administrator does it.
    fn delete_pod(&self, app: &str, node: &str) {
        let selector = format!("--selector=app={app}");
        let on = format!("--field-selector=spec.nodeName={node}");
        let words = ["delete", "pod", "-n", MEMBER, &selector, &on];
        let said = self.east.kubectl(&words).unwrap().success().unwrap();
        assert!(said.contains("deleted"), "{said}");
    }

    /// Ends our program on a node without any farewell, and waits until the kubelet has started it again.
    fn kill(&self, app: &str, program: &str, node: &Node) {
        let ready = || self.east.own_pod(app, node);
        let before = self.east.wait("a pod to kill", SOON, ready).unwrap();
        node.exec(&["pkill", "-KILL", "-x", program]).unwrap();
        let again = || {
            let now = ready()?;
            anyhow::ensure!(now != before, "{now:?} has not been started again");
            Ok(())
        };
        self.east.wait(&format!("{program} to be started again"), SOON, again).unwrap();
    }

    fn agents_die(&self, table: &mut Table) {
        for (place, node) in [("worker", "east-3".to_owned()), ("leader's node", self.leader())] {
            let name = format!("route agent killed, {place}");
            self.fault(table, &name, NOTHING, || {
                self.kill(ROUTE_AGENT, "trieste-routeag", self.node(&node));
            });
        }
    }

    fn rules_are_flushed(&self, table: &mut Table) {
        for (place, node) in [("worker", "east-3".to_owned()), ("leader's node", self.leader())] {
            let node = self.node(&node);
            let tables = || -> BTreeSet<String> {
                let all = node.exec(&["nft", "list", "tables"]).unwrap();
                all.lines().filter(|line| line.contains("trieste")).map(str::to_owned).collect()
            };
            let before = tables();
            assert!(!before.is_empty());
            self.fault(table, &format!("nft flush ruleset, {place}"), NOTHING, || {
                node.exec(&["nft", "flush", "ruleset"]).unwrap();
                self.east
                    .wait("the tables to be back", SOON, || {
                        anyhow::ensure!(tables() == before, "{:?} of {before:?}", tables());
                        Ok(())
                    })
                    .unwrap();
            });
        }
    }

    /// As a plugin that is installed anew does it: other configuration, its bridge made again, pods plugged in again.
    fn the_network_plugin_starts_anew(&self, table: &mut Table) {
        for (place, node) in [("worker", "east-3".to_owned()), ("leader's node", self.leader())] {
            let node = self.node(&node);
            let newcomer = format!("new-{}", node.name());
            self.fault(table, &format!("network plugin started anew, {place}"), PLUGIN, || {
                node.exec(&["sh", "-ec", RESTART_PLUGIN]).unwrap();
                self.east.start_pod(PodShape::on(node, &newcomer)).unwrap();
            });
        }
    }

    fn gateways_die(&self, table: &mut Table) {
        let leader = self.leader();
        self.fault(table, "leading gateway killed, comes back on its node", HANDOVER, || {
            self.kill(GATEWAY, "trieste-gateway", self.node(&leader));
        });
        let leader = self.leader();
        self.fault(table, "leader's pod deleted, another is active", HANDOVER, || {
            self.delete_pod(GATEWAY, &leader);
        });
    }

    fn the_label_moves(&self, table: &mut Table) {
        let old = self.leader();
        self.fault(table, "gateway label removed from its node", HANDOVER, || {
            self.label(&old, false);
            self.wait_other(&old);
        });
        self.fault(table, "gateway label given back", NOTHING, || self.label(&old, true));
    }

    fn wait_other(&self, old: &str) {
        self.east
            .wait("another gateway to lead", SOON, || {
                anyhow::ensure!(self.leader() != old, "{old} is");
                Ok(())
            })
            .unwrap();
    }

    fn a_node_is_drained(&self, table: &mut Table) {
        let leader = self.leader();
        self.fault(table, "leader's node drained, its gateway deleted", HANDOVER, || {
            let words = ["drain", &leader, "--ignore-daemonsets", "--force", "--delete-emptydir-data"];
            self.east.kubectl(&words).unwrap().success().unwrap();
            self.delete_pod(GATEWAY, &leader);
        });
        self.east.kubectl(&["uncordon", &leader]).unwrap().success().unwrap();
        let pod = format!("on-{leader}");
        self.east.start_pod(PodShape::on(self.node(&leader), &pod)).unwrap();
    }

    /// East has two gateways, west has one: one cluster joins after the other with another driver, then both with the one that
    /// they had.
    fn the_cable_driver_is_changed(&self, table: &mut Table) {
        let former = cables::driver();
        // One that nobody can read either.
        let newer = if former == "wireguard" { "libreswan" } else { "wireguard" };
        let set = &self.two.set;
        let join = |cluster: &Cluster, driver: &str| {
            let page = "docs/operations/install.md";
            let shown = pages::command(page, "trieste join broker-info.subm --cable-driver").unwrap();
            // Faults before have left fields to others.
            let flags = [&shown[3], driver, "--force-conflicts"];
            let said = set.join_with(cluster, &flags).unwrap();
            assert!(said.contains("The cable driver changes from"), "{said}");
            cluster.wait_rollout(MEMBER, "daemonset/submariner-gateway").unwrap();
        };
        for (cluster, in_use) in [(self.east, former.as_str()), (self.two.west(), newer)] {
            let what = format!("{} joins with --cable-driver {newer}", cluster.name());
            self.fault(table, &what, CHANGE, || join(cluster, newer));
            for cluster in set.clusters.all() {
                let shown = set.trieste(cluster).args(["show", "connections"]).stdout().unwrap();
                assert!(shown.contains(in_use), "{what}: {shown}");
            }
        }
        self.two.in_both(|cluster| join(cluster, &former));
        self.wait_repaired();
        self.wait_well();
    }

    /// The same programs as another image, there and back by `trieste upgrade`: with two gateways nothing on the path of packets
    /// ends that has not handed them over. And one that nobody has, which goes no further than it is noticed.
    fn images_are_exchanged(&self, table: &mut Table) {
        let image = |daemon: &str| {
            let path = format!("/apis/apps/v1/namespaces/{MEMBER}/daemonsets/{daemon}");
            let object = self.east.client().get(&path).unwrap();
            let container = &object["spec"]["template"]["spec"]["containers"][0];
            container["image"].as_str().unwrap().to_owned()
        };
        let (old, new) = (image(GATEWAY), "localhost/trieste:upgraded");
        for node in self.east.nodes() {
            node.exec(&["ctr", "-n", "k8s.io", "images", "tag", "--force", &old, new]).unwrap();
        }
        // Faults before have left fields to others.
        let upgrade = |words: &[&str]| {
            let run = self.two.set.trieste(self.east).args(["upgrade", "--force-conflicts"]);
            run.args(words).timeout(2 * SOON).output().unwrap()
        };
        for (what, to) in [("upgrade", new), ("back again", old.as_str())] {
            self.fault(table, &format!("{what}, route agents and two gateways"), NOTHING, || {
                let told = upgrade(&["--image", to]);
                let text = format!("{}{}", told.stdout, told.stderr);
                assert!(told.status.success(), "{text}\n{}", self.east.explain());
                // One after the other has handed its flows over, and none was the only one.
                assert_eq!(text.matches("its pod is replaced; drained before").count(), 2, "{text}");
                assert!(text.contains(&format!("runs {to}")), "{text}");
            });
            assert_eq!((image(GATEWAY), image(ROUTE_AGENT)), (to.to_owned(), to.to_owned()));
        }
        self.fault(table, "upgrade to an image that nobody has, and back", NOTHING, || {
            let told = upgrade(&["--image", "localhost/trieste:nowhere", "--wait-timeout", "10"]);
            assert!(!told.status.success(), "{}", told.stdout);
            let next = "everything is applied, and the command can be repeated";
            assert!(told.stderr.contains("not all pods of") && told.stderr.contains(next), "{}", told.stderr);
            let gateways = self
                .east
                .client()
                .list(&format!("/api/v1/namespaces/{MEMBER}/pods?labelSelector=app%3D{GATEWAY}"));
            let gateways = gateways.unwrap();
            let is_old = |pod: &serde_json::Value| pod["spec"]["containers"][0]["image"] == old.as_str();
            assert!(gateways.len() == 2 && gateways.iter().all(is_old), "{gateways:#?}");
            let told = upgrade(&["--image", &old]);
            assert!(told.status.success(), "{}{}", told.stdout, told.stderr);
        });
    }

    fn the_gateway_node_reboots(&self, table: &mut Table) {
        // The broker is on the other gateway's node.
        if self.leader() == "east-1" {
            self.label("east-1", false);
            self.wait_other("east-1");
            self.label("east-1", true);
            self.wait_well();
        }
        let node = self.east.node(2);
        self.fault(table, "leader's node lost, another is active", HANDOVER, || {
            node.kill().unwrap();
            for flow in &self.flows {
                flow.wait_through(SOON).unwrap();
            }
        });
        self.fault(table, "that node is back", NOTHING, || {
            node.start().unwrap();
            self.east.wait_node(node, true, SOON).unwrap();
        });
    }

    /// Its pods are other ones afterwards: what counts is others' packets, and that the new ones get through.
    fn a_worker_reboots(&self, worker: &Node, table: &mut Table) {
        let other = self.east.pod("default", "on-east-1").unwrap();
        let flows =
            [PodFlow::start(&self.far, &other, 0).unwrap(), PodFlow::start(&other, &self.far, 1).unwrap()];
        self.fault_for(table, "worker rebooted: pods of other nodes", NOTHING, &flows, || {
            worker.kill().unwrap();
            worker.start().unwrap();
            self.east.wait_ready().unwrap();
            self.wait_repaired();
        });
        let clock = Instant::now();
        let own = self.east.start_pod(PodShape::on(worker, "after")).unwrap();
        let _through = PodFlow::start(&self.far, &own, 0).unwrap();
        eprintln!("a pod on the rebooted worker is reached {:.1?} after the node was ready", clock.elapsed());
    }
}

/// What is plugged into the bridge is plugged in again once there is a new one. It keeps its link address: pods would use
/// the former one until their neighbour entries are too old, whatever anybody does.
const RESTART_PLUGIN: &str = "
    touch /etc/cni/net.d/10-lab.conflist
    ports=$(ls /sys/class/net/cni0/brif)
    addresses=$(ip -o addr show dev cni0 scope global | awk '{print $4}')
    mac=$(cat /sys/class/net/cni0/address)
    ip link del cni0
    sleep 1
    ip link add cni0 address $mac type bridge
    for address in $addresses; do ip addr add $address dev cni0 $(case $address in *:*) echo nodad ;; esac); done
    ip link set cni0 up
    for port in $ports; do ip link set $port master cni0; bridge link set dev $port hairpin on; done";

/// What is printed at the end.
#[derive(Default)]
struct Table(Vec<(String, Cost)>);

impl Table {
    fn add(&mut self, name: &str, cost: Cost) {
        eprintln!("{}", line(name, &cost));
        self.0.push((name.to_owned(), cost));
    }

    fn print(&self) {
        eprintln!("\n| fault | all well again after | packets | lost | longest gap |\n|---|---|---|---|---|");
        for (name, cost) in &self.0 {
            eprintln!("{}", line(name, cost));
        }
    }
}

fn line(name: &str, cost: &Cost) -> String {
    let gap = cost.longest_gap.as_millis();
    let late = if cost.late > 0 { format!(" ({} late)", cost.late) } else { String::new() };
    format!("| {name} | {:.1} s | {} | {}{late} | {gap} ms |", cost.took.as_secs_f64(), cost.sent, cost.lost)
}

//! A cluster with OVN-Kubernetes and one without: real gateways and their cable, the route agent, the worker that writes OVN's
//! database, and a real OVN with its data plane.
//!
//! ```text
//!   east pod ─▶ br-int, OVN's routers ─▶ ovn-k8s-mp0 ─▶ table 150 ─▶ gateway ══ WAN bridge ══ gateway ─▶ west pod
//!        rows: trieste-plugin-sync ◀─ GatewayRoutes ◀─ route agent
//! ```

use std::net::SocketAddr;
use std::time::Duration;

use trieste_tests::capture::Capture;
use trieste_tests::cluster::{Cluster, NAMESPACE, Settings};
use trieste_tests::command::Run;
use trieste_tests::daemon::Daemon;
use trieste_tests::guard::root_test;
use trieste_tests::lab::Lab;
use trieste_tests::netns::Namespace;
use trieste_tests::ovn::OvnNode;
use trieste_tests::pair::CONNECT_TIMEOUT;
use trieste_tests::programs;
use trieste_tests::topology::{Families, Plan, Topology};
use trieste_tests::traffic::{self, Responder, pattern};
use trieste_tests::wait::eventually;

/// Inner addresses of both clusters, in tcpdump's words.
const INNER: &str =
    "net 10.1.0.0/16 or net 10.2.0.0/16 or net 10.101.0.0/16 or net fd00:1::/48 or net fd00:2::/48";
/// Long enough for a SYN that is sent twice.
const SOON: Duration = Duration::from_secs(4);

/// Both clusters. The fields are in the order in which they have to end.
struct Bed {
    sync: Option<Daemon>,
    east: Cluster,
    west: Cluster,
    ovn: OvnNode,
    plan: Plan,
    lab: Lab,
}

impl Bed {
    fn start() -> anyhow::Result<Self> {
        let lab = Lab::new()?;
        let plan = lab.build(&Topology::two_clusters().with_underlay(Families::V4))?;
        let ovn = OvnNode::install(&lab, plan.cluster("east"))?;
        let mut settings = Settings::of(&lab);
        let west = Cluster::start(&lab, plan.cluster("west"), &settings)?;
        settings.wrap = ["env", "SUBMARINER_NETWORKPLUGIN=OVNKubernetes"].map(str::to_owned).into();
        let east = Cluster::start(&lab, plan.cluster("east"), &settings)?;
        let mut bed = Self { sync: None, east, west, ovn, plan, lab };
        bed.start_sync()?;
        bed.east.wait_handshakes(1, CONNECT_TIMEOUT)?;
        bed.west.wait_handshakes(1, CONNECT_TIMEOUT)?;
        Ok(bed)
    }

    fn sync_run(&self) -> anyhow::Result<Run> {
        let cluster = self.plan.cluster("east");
        let list = |networks: &[ipnet::IpNet]| {
            networks.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
        };
        Ok(Run::new(programs::path("trieste-plugin-sync")?)
            .args(["--store", &format!("dir:{}", self.east.store().display()), "--namespace", NAMESPACE])
            .args([
                "--network-plugin=OVNKubernetes",
                "--cluster-id=east",
                "--node-name",
                &self.east.node().name,
            ])
            .args([
                "--cluster-cidrs",
                &list(&cluster.pod_cidrs),
                "--service-cidrs",
                &list(&cluster.service_cidrs),
            ])
            .args(["--ovn-northbound", &self.ovn.northbound()])
            .env("TRIESTE_PASS_FILE", self.lab.directory().join("plugin-sync.json")))
    }

    fn start_sync(&mut self) -> anyhow::Result<()> {
        self.sync = Some(Daemon::start(&self.lab, "plugin-sync", &self.sync_run()?)?);
        Ok(())
    }

    fn pod(&self, cluster: &str, number: usize) -> &Namespace {
        &self.plan.cluster(cluster).pod(number).namespace
    }

    /// Waits until OVN leads to every network of the other cluster.
    fn wait_policies(&self, count: usize) -> anyhow::Result<()> {
        eventually(&format!("{count} policies"), CONNECT_TIMEOUT, || {
            let found = self.policies()?;
            anyhow::ensure!(found == count, "there are {found}");
            Ok(())
        })?;
        self.ovn.nbctl(&["--wait=hv", "sync"]).map(drop)
    }

    fn policies(&self) -> anyhow::Result<usize> {
        Ok(self.ovn.nbctl(&["lr-policy-list", "ovn_cluster_router"])?.matches("reroute").count())
    }
}

fn targets(addresses: &[std::net::IpAddr], port: u16) -> Vec<SocketAddr> {
    addresses.iter().map(|address| SocketAddr::new(*address, port)).collect()
}

/// Sends to each of these; all have to arrive with the sender's own address.
fn reach(from: &Namespace, to: &[SocketAddr]) {
    let bytes = pattern(200_000);
    for target in to {
        let receipt =
            eventually("an answer", CONNECT_TIMEOUT, || traffic::send_tcp(from, *target, &bytes, SOON));
        receipt
            .unwrap()
            .check(&bytes)
            .unwrap_or_else(|error| panic!("{} to {target}: {error:#}", from.name()));
    }
}

#[test]
fn plugin_ovn_pods_behind_a_real_ovn_talk_with_another_cluster_and_nothing_leaves_in_clear() {
    let name = "plugin_ovn_pods_behind_a_real_ovn_talk_with_another_cluster_and_nothing_leaves_in_clear";
    let Some(_turn) = root_test(name) else { return };
    let mut bed = Bed::start().unwrap();
    let wire = Capture::start(&bed.lab, &bed.plan.wan, "br0", "").unwrap();
    let networks = bed.plan.cluster("west").subnets().len();
    bed.wait_policies(networks).unwrap();

    // Out and in, both families, addresses kept; the node itself too.
    let [east, west] = ["east", "west"].map(|cluster| Responder::start(bed.pod(cluster, 0)).unwrap());
    let there = targets(&bed.plan.cluster("west").pod(0).ips(), west.port());
    let here = targets(&bed.plan.cluster("east").pod(0).ips(), east.port());
    reach(bed.pod("east", 0), &there);
    reach(bed.pod("east", 1), &there);
    reach(&bed.east.node().namespace, &there);
    reach(bed.pod("west", 0), &here);
    reach(&bed.west.node().namespace, &here);

    // A service of OVN's load balancer, whose back end is a pod.
    let address = bed.plan.cluster("east").service_cidrs[0].hosts().nth(9).unwrap();
    let backend = SocketAddr::new(bed.plan.cluster("east").pod(0).v4().unwrap(), east.port());
    let service = SocketAddr::new(address, 80);
    bed.ovn.add_service("web", service, backend).unwrap();
    reach(bed.pod("west", 0), &[service]);

    // Somebody removes what leads to the other cluster while the worker is dead: nothing arrives, and nothing leaves.
    bed.sync.take().unwrap().kill().unwrap();
    let leading = ["--bare", "--columns=_uuid", "find", "Logical_Router_Policy", "action=reroute"];
    for policy in bed.ovn.nbctl(&leading).unwrap().split_whitespace() {
        bed.ovn.nbctl(&["lr-policy-del", "ovn_cluster_router", policy]).unwrap();
    }
    bed.ovn.nbctl(&["--wait=hv", "sync"]).unwrap();
    assert_eq!(
        bed.policies().unwrap(),
        0,
        "{}",
        bed.ovn.nbctl(&["lr-policy-list", "ovn_cluster_router"]).unwrap()
    );
    for target in &there {
        assert!(traffic::send_tcp(bed.pod("east", 0), *target, b"x", SOON).is_err(), "{target}");
    }
    bed.start_sync().unwrap();
    bed.wait_policies(networks).unwrap();
    reach(bed.pod("east", 0), &there);

    // The gateway is killed: packets come to its node and are refused there.
    bed.east.kill_gateway().unwrap();
    for target in &there {
        assert!(traffic::send_tcp(bed.pod("east", 0), *target, b"x", SOON).is_err(), "{target}");
    }
    bed.east.start_gateway().unwrap();
    reach(bed.pod("east", 0), &there);

    // Nothing of ours stays in the database.
    bed.sync.take().unwrap().stop().unwrap();
    bed.sync_run().unwrap().arg("--uninstall").finish().unwrap();
    assert_eq!(bed.policies().unwrap(), 0);
    let left = bed.ovn.nbctl(&["--bare", "--columns=external_ids", "list", "Logical_Router_Policy"]).unwrap();
    assert_eq!(left.trim(), "", "rows are left");
    let frames = wire.finish().unwrap();
    assert_eq!(frames.count(INNER).unwrap(), 0, "inner addresses on the underlay: {}", frames.kinds(4500));
}

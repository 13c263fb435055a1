//! The same faults with wireguard-go: one gateway on each side, as it is usually set up.
//!
//! Nobody takes over, so every fault has an end: the killed process is started again after 200 ms, what stood still goes on and
//! what was cut is whole again after a second. What the flow misses beyond that is the protocol's.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use ipnet::IpNet;
use nix::sys::signal::Signal;
use trieste_tests::fault::Fault;
use trieste_tests::flow::{Echo, FlowSpec, Probing};
use trieste_tests::interrupt::pause;
use trieste_tests::lab::Lab;
use trieste_tests::mesh::scenario::{FLAP, Scenario};
use trieste_tests::peer::{KeyPair, Peer, PeerConfig};
use trieste_tests::topology::{Families, Plan, Topology};
use trieste_tests::wait::eventually;

use super::PORT;

/// The killed process is back after so long.
const BACK: Duration = Duration::from_millis(200);
/// So long the other faults last.
const LASTS: Duration = Duration::from_secs(1);
/// The protocol may need so long afterwards.
const WATCHED: Duration = Duration::from_secs(18);
const INNER_MTU: u16 = 1420;

/// The longest silence of a flow in milliseconds; nothing for what only several gateways can do.
///
/// # Errors
/// When wireguard-go does not start or carries nothing.
pub(super) fn run(scenario: Scenario) -> anyhow::Result<Option<f64>> {
    if matches!(scenario, Scenario::Drain | Scenario::Restart) {
        return Ok(None);
    }
    let lab = Lab::new()?;
    let plan = lab.build(&Topology::two_clusters().with_underlay(Families::V4).with_pods(1))?;
    let (east, west) = (KeyPair::generate()?, KeyPair::generate()?);
    let peers = [
        Peer::start(&lab, &config(&plan, ["east", "west"], &east, &west))?,
        Peer::start(&lab, &config(&plan, ["west", "east"], &west, &east))?,
    ];
    let (from, to) = (plan.cluster("east").pod(0), plan.cluster("west").pod(0));
    let address = to.v4().context("the pod has no IPv4 address")?;
    eventually("wireguard-go to carry packets", Duration::from_secs(20), || {
        let ping = trieste_tests::traffic::ping(&from.namespace, address, 1, &[])?;
        anyhow::ensure!(ping.received == 1, "no answer");
        Ok(())
    })?;
    let _echo = Echo::start(&to.namespace, PORT)?;
    let flow = FlowSpec {
        name: "wireguard-go".to_owned(),
        from: from.namespace.clone(),
        to: SocketAddr::new(address, PORT),
        port: 0,
    };
    let probing = Probing::start(&[flow])?;
    pause(Duration::from_millis(500))?;
    probing.mark();
    suffer(scenario, &plan, &peers[1])?;
    pause(if scenario == Scenario::Kill { WATCHED } else { 4 * LASTS })?;
    let longest = probing.finish().longest();
    drop(peers);
    lab.remove()?;
    Ok(Some(longest.as_secs_f64() * 1e3))
}

/// West's gateway suffers it.
fn suffer(scenario: Scenario, plan: &Plan, west: &Peer) -> anyhow::Result<()> {
    let node = plan.cluster("west").gateway();
    let drop_all = "counter drop";
    let (arriving, leaving) = match scenario {
        Scenario::Kill | Scenario::Drain | Scenario::Restart => {
            west.kill()?;
            pause(BACK)?;
            return west.restart();
        }
        Scenario::Stop => {
            let processes = west.processes()?;
            processes.iter().try_for_each(|process| process.signal(Signal::SIGSTOP))?;
            pause(LASTS)?;
            return processes.iter().try_for_each(|process| process.signal(Signal::SIGCONT));
        }
        Scenario::Flap => {
            let fault = Fault::link_down(&plan.wan, node.wan_port())?;
            pause(FLAP)?;
            drop(fault);
            return Ok(());
        }
        Scenario::Cut | Scenario::Node => (drop_all, drop_all),
        Scenario::Deaf => ("", drop_all),
        Scenario::Mute => (drop_all, ""),
    };
    let fault = Fault::around(&plan.wan, node.wan_port(), arriving, leaving)?;
    pause(LASTS)?;
    drop(fault);
    Ok(())
}

fn config(plan: &Plan, [own, other]: [&str; 2], key: &KeyPair, other_key: &KeyPair) -> PeerConfig {
    let (own, other) = (plan.cluster(own), plan.cluster(other));
    let port = 4500;
    PeerConfig {
        name: "wireguard-go".to_owned(),
        namespace: own.gateway().namespace.clone(),
        local: SocketAddr::new(own.gateway().underlay_address(), port),
        remote: Some(SocketAddr::new(other.gateway().underlay_address(), port)),
        addresses: Vec::new(),
        subnets: other.pod_cidrs.iter().filter(|net| matches!(net, IpNet::V4(_))).copied().collect(),
        private_key: key.private.clone(),
        remote_public_key: other_key.public.clone(),
        psk: None,
        keepalive: Some(1),
        mtu: INNER_MTU,
    }
}

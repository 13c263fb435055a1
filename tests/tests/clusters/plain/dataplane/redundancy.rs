//! RD-1..5: gateways and route agents go and come; what that costs is measured by a pod that sends all the time.

use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};
use trieste_tests::clusters::{MEMBER, Node};
use trieste_tests::flow::{Flow, Stream};
use trieste_tests::table::Table;
use trieste_tests::wait::eventually;

use super::{connected, gateways, is_active};
use crate::several::losses::{BYTES, echo_service, stands};
use crate::shared::SOON;
use crate::sides::{Actor, Side};

const SIZES: [usize; 2] = [64, 9000];
/// How often the prober sends.
const PACE: Duration = Duration::from_millis(10);
const GATEWAY: &str = "submariner-gateway";
const ROUTE_AGENT: &str = "submariner-routeagent";
/// Where the Role of the gateway is.
const ROLE: &str =
    "/apis/rbac.authorization.k8s.io/v1/namespaces/submariner-operator/roles/submariner-gateway";

/// The ones that change least first; the handover to another gateway last.
pub(crate) fn run(sides: &[Side<'_>; 2], table: &Table) {
    let [east, west] = sides;
    let measured = |work: &dyn Fn() -> anyhow::Result<()>| measured(sides, work);
    table.row("RD-5", "route agent on nGW restarted", || {
        measured(&|| replace(east, ROUTE_AGENT, east.on_worker.node))
    });
    table.row("RD-4", "route agent on GW restarted", || {
        measured(&|| replace(east, ROUTE_AGENT, east.on_gateway.node))
    });
    table.row("RD-1", "the only gateway's pod deleted", || {
        measured(&|| {
            replace(west, GATEWAY, west.on_gateway.node)?;
            connected(sides)
        })
    });
    table.row("RD-3", "the only gateway cannot renew its Lease", || measured(&|| lease_blocked(sides)));
    table.row("RD-2", "label moved to another node", || {
        measured(&|| {
            let (_echo, to) = echo_service(east)?;
            let connection = Stream::start(west.on_worker.pod.netns(), to, BYTES)?;
            label_moved(sides)?;
            connection.wait_on(stands()).context("a connection to a service")?;
            connection.finish().map(drop)
        })
    });
}

/// Does something while a pod of east asks one of west all the time; afterwards everything has to work at once.
fn measured(sides: &[Side<'_>; 2], work: &dyn Fn() -> anyhow::Result<()>) -> anyhow::Result<String> {
    let (client, server) = (&sides[0].on_worker, &sides[1].on_worker);
    let flow = Flow::start(client.pod.netns(), (server.pod.netns(), server.pod.addresses[0]), &[], PACE)?;
    let result = work();
    let seen = flow.finish();
    result?;
    for (from, to) in [(client, server), (server, client)] {
        works(from, to).context("afterwards")?;
    }
    Ok(format!(
        "{} of {} datagrams without answer, at most {:.2?} between answers",
        seen.lost,
        seen.sent,
        seen.longest()
    ))
}

/// Both protocols and families, with the sender's own address.
fn works(from: &Actor<'_>, to: &Actor<'_>) -> anyhow::Result<()> {
    for address in to.pod.responders() {
        from.pod.exchange(address, &SIZES, from.pod.address_like(address.ip())?)?;
    }
    Ok(())
}

/// Deletes our pod on a node and waits for another one.
fn replace(side: &Side<'_>, app: &str, node: &Node) -> anyhow::Result<()> {
    let (old, _) = ready_pod(side, app, node)?;
    side.cluster.client().delete(&format!("/api/v1/namespaces/{MEMBER}/pods/{old}"))?;
    eventually(&format!("another pod of {app} on {}", node.name()), SOON, || {
        let (new, _) = side.cluster.own_pod(app, node)?;
        anyhow::ensure!(new != old, "{old} is still there");
        Ok(())
    })
}

/// Returns the name of our pod on a node and how often it has started, once it is ready: kubelet asks it now and then.
fn ready_pod(side: &Side<'_>, app: &str, node: &Node) -> anyhow::Result<(String, u64)> {
    eventually(&format!("{app} on {} to be ready", node.name()), SOON, || side.cluster.own_pod(app, node))
}

/// Takes the right to write Leases from west's gateway and gives it back.
fn lease_blocked(sides: &[Side<'_>; 2]) -> anyhow::Result<()> {
    let west = &sides[1];
    let before = ready_pod(west, GATEWAY, west.on_gateway.node)?;
    let role = west.cluster.client().get(ROLE)?;
    let rules = role["rules"].as_array().context("a Role has rules")?.clone();
    let mut fewer = rules.clone();
    for rule in fewer.iter_mut().filter(|rule| names(&rule["resources"], "leases")) {
        rule["verbs"] = json!(["get", "list", "watch"]);
    }
    set_rules(west, &fewer)?;
    let leads = |wanted: bool| {
        eventually(&format!("the gateway to lead: {wanted}"), SOON, || {
            let leader = west.cluster.leader();
            anyhow::ensure!(leader.is_ok() == wanted, "it is otherwise: {leader:?}");
            Ok(())
        })
    };
    let lost = leads(false);
    let flows =
        lost.and_then(|()| works(&sides[0].on_worker, &sides[1].on_worker).context("without the Lease"));
    set_rules(west, &rules)?;
    flows?;
    leads(true)?;
    anyhow::ensure!(ready_pod(west, GATEWAY, west.on_gateway.node)? == before, "its pod was restarted");
    connected(sides)
}

fn names(list: &Value, name: &str) -> bool {
    list.as_array().is_some_and(|list| list.iter().any(|entry| entry == name))
}

fn set_rules(side: &Side<'_>, rules: &[Value]) -> anyhow::Result<()> {
    side.cluster.client().patch(ROLE, &json!({"rules": rules})).map(drop)
}

/// A second gateway is active in east; then the first one's node loses the label.
fn label_moved(sides: &[Side<'_>; 2]) -> anyhow::Result<()> {
    let east = &sides[0];
    let other = east.cluster.node(3);
    east.cluster.label_gateway(other, true)?;
    eventually("two active gateways", SOON, || {
        let gateways = gateways(east.cluster)?;
        let active = gateways.iter().filter(|gateway| is_active(gateway)).count();
        anyhow::ensure!(active == 2, "{gateways:?}");
        Ok(())
    })?;
    works(&sides[0].on_worker, &sides[1].on_worker).context("with two active gateways")?;

    east.cluster.label_gateway(east.on_gateway.node, false)?;
    eventually(&format!("{} to lead", other.name()), SOON, || {
        let leader = east.cluster.leader()?;
        anyhow::ensure!(leader == other.name(), "{leader} does");
        Ok(())
    })?;
    eventually("west to know the new Endpoint", SOON, || {
        let path = format!("/apis/submariner.io/v1/namespaces/{MEMBER}/endpoints");
        let all = sides[1].cluster.client().list(&path)?;
        let hosts: Vec<_> = all
            .iter()
            .filter(|one| one["spec"]["cluster_id"] == "east")
            .map(|one| &one["spec"]["hostname"])
            .collect();
        anyhow::ensure!(hosts == [other.name()], "east's are at {hosts:?}");
        Ok(())
    })?;
    connected(sides)?;
    // Also to what is on the node that is no gateway any more, and from the one that is.
    works(&sides[1].on_worker, &east.on_gateway)
}

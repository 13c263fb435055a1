//! `./dev demo --globalnet`: two clusters whose pods and services have the same addresses, and how each is known to the
//! other.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;

use super::screen::Screen;
use super::{Options, end};
use crate::capture::{Capture, LEAVES_A_CLUSTER};
use crate::cluster::Cluster;
use crate::globalnet::{Actors, Client, Scene, Server, list};
use crate::lab::Lab;
use crate::programs;
use crate::traffic;
use crate::wait::eventually;

/// Bytes of one exchange: more than a packet, so that all there is to a packet takes part.
const BYTES: usize = 3000;
/// How long the first packet may take to find its way.
const FIRST_PACKET: Duration = Duration::from_secs(30);

/// Runs it in a lab.
pub(super) fn run_in(lab: &Lab, screen: &Screen, options: &Options) -> anyhow::Result<()> {
    let cable = &options.cable;
    screen.heading(&format!("Two clusters with the same addresses, one {cable} cable (lab {})", lab.id()));
    let title = "a gateway node and a worker each, 16 pods, services, exports; connected";
    let scene = screen.step_with(title, || {
        let cable = format!("cable-driver: {}", options.cable);
        let scene = Scene::start_in(lab, &[&cable])?;
        Ok(([&scene.pair.east, &scene.pair.west].map(describe).to_vec(), scene))
    })?;
    let wire = Capture::start(lab, &scene.pair.plan.wan, "br0", LEAVES_A_CLUSTER)?;

    screen.heading("A service by its global address: whose address its pod in west sees");
    show_service(screen, &scene)?;
    screen.heading("Headless pods: each has an address of its own, in both directions");
    show_headless(screen, &scene)?;
    screen.step("meanwhile on the wire between the nodes (tcpdump on the WAN bridge)", || {
        let (form, _) = options.form();
        let kinds = wire.finish()?.kinds_with(form, 4500);
        anyhow::ensure!(kinds.others.is_empty(), "frames that are not the cable's: {kinds}");
        Ok(vec![format!("{} frames between the clusters, every one the cable's", kinds.cable)])
    })?;

    screen.heading("What east's gateway says");
    for words in [["show", "globalnet"], ["show", "connections"]] {
        screen.line(&format!(
            "$ trieste {} --socket {}",
            words.join(" "),
            scene.pair.east.socket().display()
        ));
        screen.quote(&scene.pair.east.trieste(&words)?.stdout()?);
    }
    if options.keep {
        lab.keep()?;
        screen.heading("Left up. Things to try:");
        for line in suggestions(lab, &scene)? {
            screen.line(&line);
        }
        return Ok(());
    }
    end(lab, screen, "everything removed again", scene)
}

fn describe(cluster: &Cluster) -> String {
    let plan = cluster.plan();
    let joined = |nets: &[ipnet::IpNet]| nets.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    format!(
        "{:<5} pods {}, services {}; known to others as {}",
        plan.id,
        joined(&plan.pod_cidrs),
        joined(&plan.service_cidrs),
        joined(&plan.global_cidrs)
    )
}

fn show_service(screen: &Screen, scene: &Scene) -> anyhow::Result<()> {
    let (here, server) = (&scene.east.worker, &scene.west.worker.server);
    screen.step(&format!("the first answer of west's service at {}", server.service), || {
        let ask = || here.plain.tcp(server.service, BYTES);
        eventually("an answer", FIRST_PACKET, ask).map(|_| vec![])
    })?;
    for (title, client, rule) in clients(here) {
        screen.step(&format!("{title} → {}", server.service), || {
            let (tcp, udp) = (client.tcp(server.service, BYTES)?, client.udp(server.service, BYTES)?);
            anyhow::ensure!(tcp == udp, "TCP is seen as {tcp}, UDP as {udp}");
            client.expect(tcp)?;
            Ok(vec![format!("seen as {tcp}: {rule} {}", list(&client.leaves_as))])
        })?;
    }
    Ok(())
}

fn clients(here: &Actors) -> [(&'static str, &Client, &'static str); 4] {
    [
        ("a pod", &here.plain, "one of the cluster's"),
        ("a pod of the namespace \"team\"", &here.team, "one of its GlobalEgressIP's"),
        ("a pod with a chosen label", &here.chosen, "its GlobalEgressIP's"),
        ("the node itself", &here.host, "one of the cluster's"),
    ]
}

fn show_headless(screen: &Screen, scene: &Scene) -> anyhow::Result<()> {
    let client = &scene.east.worker.plain;
    for server in [&scene.west.gateway.server, &scene.west.worker.server] {
        screen.step(&format!("a pod → {}, which is {}", server.headless, server.name), || {
            let ping = traffic::ping_sized(&client.netns, server.headless.ip(), BYTES)?;
            let seen = client.tcp(server.headless, BYTES)?;
            client.expect(seen)?;
            Ok(vec![format!("{} of {} pings answered, TCP seen as {seen}", ping.received, ping.sent)])
        })?;
    }
    let (from, to) = (&scene.west.worker.server, &scene.east.worker.server);
    screen.step(&format!("{} itself → {}", from.name, to.headless), || {
        let seen = as_client(from).tcp(to.headless, BYTES)?;
        anyhow::ensure!(
            SocketAddr::new(seen.into(), from.headless.port()) == from.headless,
            "seen as {seen}"
        );
        Ok(vec![format!("seen as {seen}: the address at which it is asked")])
    })
}

fn as_client(server: &Server) -> Client {
    Client { name: server.name.clone(), netns: server.netns.clone(), leaves_as: Vec::new() }
}

fn suggestions(lab: &Lab, scene: &Scene) -> anyhow::Result<Vec<String>> {
    let (pod, server) = (&scene.east.worker.plain, &scene.west.worker.server);
    let (trieste, socket) = (programs::path("trieste")?, scene.pair.east.socket());
    let (trieste, socket) = (trieste.display(), socket.display());
    let folder = scene.pair.east.store();
    let folder =
        folder.parent().and_then(|state| state.parent()).context("a store lies in a state directory")?;
    Ok(vec![
        format!("ip netns exec {} ping {}", pod.netns.name(), server.headless.ip()),
        format!("{trieste} show globalnet --socket {socket}"),
        format!("{trieste} capture --socket {socket} -w - | tcpdump -n -r -"),
        format!("ls {}/state/store/*/global*      (objects of globalnet)", folder.display()),
        format!("tail -f {}/*.log", lab.directory().join("logs").display()),
        String::new(),
        "./dev clean      removes it all".to_owned(),
    ])
}

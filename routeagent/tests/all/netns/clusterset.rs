//! Clusterset IPs, led by every node to where a service is served.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::cluster::{NODES, cluster, everything, talk};
use super::lab::{Lab, NAMESPACE, Process, SEEN, eventually, finish};

const RANGE: (&str, &str) = ("TRIESTE_CLUSTERSET_IP_RANGE", "243.0.0.0/8,fd00:243::/112");

/// The addresses of one family.
struct Side {
    /// The service's clusterset IP, and another one.
    vip: &'static str,
    other_vip: &'static str,
    /// Those by which clusters b and c export it.
    targets: [&'static str; 2],
    /// Those of the pods on nodes w1 and w2.
    pods: [&'static str; 2],
    /// What the remote cluster sees of node w1 and of the pod on the gateway's node.
    sources: [&'static str; 2],
    /// What the own cluster exports it by.
    own: &'static str,
    /// Node w2 in its pods' network.
    w2: &'static str,
    /// `ip` or `ip6`, as nftables calls the family.
    protocol: &'static str,
}

const FOUR: Side = Side {
    vip: "243.0.0.7",
    other_vip: "243.9.9.9",
    targets: ["10.2.0.9", "10.2.0.10"],
    pods: ["10.1.3.10", "10.1.4.10"],
    sources: ["10.1.3.1", "10.1.1.10"],
    own: "100.65.0.10",
    w2: "10.1.4.1",
    protocol: "ip",
};
const SIX: Side = Side {
    vip: "fd00:243::7",
    other_vip: "fd00:243::8",
    targets: ["fd00:2::9", "fd00:2::10"],
    pods: ["fd00:1:0:3::10", "fd00:1:0:4::10"],
    sources: ["fd00:1:0:3::1", "fd00:1:0:1::10"],
    own: "fd00:65::10",
    w2: "fd00:1:0:4::1",
    protocol: "ip6",
};

/// Returns an address and port as text.
fn at(ip: &str, port: u16) -> String {
    SocketAddr::new(ip.parse().unwrap(), port).to_string()
}

impl Side {
    /// Returns what the table says of leading to a target alone.
    fn led(&self, target: &str) -> String {
        format!("dnat {} to {}", self.protocol, at(target, 8080))
    }

    /// Returns the service at its port.
    fn web(&self) -> String {
        at(self.vip, 80)
    }
}

/// Writes an object into the store as an API server would have it.
fn put(lab: &Lab, (namespace, plural): (&str, &str), name: &str, mut object: Value, labels: &Value) {
    object["metadata"] = json!({"name": name, "namespace": namespace, "labels": labels});
    lab.put_object(plural, &object);
}

/// Imports `web` with these clusterset IPs.
fn import(lab: &Lab, ips: &[&str], affinity: &str) {
    let spec = json!({"type": "ClusterSetIP", "ips": ips, "sessionAffinity": affinity, "ports": [
        {"name": "http", "protocol": "TCP", "port": 80}, {"name": "dns", "protocol": "UDP", "port": 53}]});
    let object = json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceImport", "spec": spec,
        "status": {"clusters": []}});
    put(lab, ("shop", "serviceimports"), "web", object, &json!({}));
}

/// Has a cluster export `web` by an address.
fn export(lab: &Lab, cluster: &str, address: &str) {
    let family = if address.contains(':') { "IPv6" } else { "IPv4" };
    let object = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family,
        "endpoints": [{"addresses": [address], "conditions": {"ready": true}}],
        "ports": [{"name": "http", "protocol": "TCP", "port": 8080}, {"name": "dns", "protocol": "UDP", "port": 5353}]});
    let labels = json!({
        "endpointslice.kubernetes.io/managed-by": "lighthouse-agent.submariner.io",
        "multicluster.kubernetes.io/service-name": "web",
        "lighthouse.submariner.io/sourceNamespace": "shop",
        "multicluster.kubernetes.io/source-cluster": cluster,
        "lighthouse.submariner.io/is-headless": "false",
    });
    put(
        lab,
        ("shop", "endpointslices"),
        &format!("web-{cluster}-{}", family.to_lowercase()),
        object,
        &labels,
    );
}

/// Says that `web` has these pods in the own cluster, of one family.
fn put_pods(lab: &Lab, side: &Side, pods: &[&str]) {
    let family = if side.protocol == "ip" { "IPv4" } else { "IPv6" };
    let endpoint = |address: &&str| json!({"addresses": [address], "conditions": {"ready": true}});
    let object = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family,
        "endpoints": pods.iter().map(endpoint).collect::<Vec<_>>(),
        "ports": [{"name": "http", "protocol": "TCP", "port": 8080}]});
    let name = format!("web-{}", side.protocol);
    put(lab, ("shop", "endpointslices"), &name, object, &json!({"kubernetes.io/service-name": "web"}));
}

/// Says which clusters the gateway reaches.
fn reach(lab: &Lab, clusters: &[(&str, bool)]) {
    let endpoint = |cluster: &str| {
        json!({"cluster_id": cluster, "cable_name": cluster, "hostname": "h", "private_ip": "203.0.113.21",
            "public_ip": "", "subnets": [], "nat_enabled": false, "backend": "wireguard"})
    };
    let connection = |(cluster, is_up): &(&str, bool)| json!({"status": if *is_up { "connected" } else { "error" }, "statusMessage": "", "endpoint": endpoint(cluster)});
    let object = json!({"apiVersion": "submariner.io/v1", "kind": "Gateway", "status": {
        "version": "1", "haStatus": "active", "localEndpoint": endpoint("a"), "statusFailure": "",
        "connections": clusters.iter().map(connection).collect::<Vec<_>>()}});
    put(lab, (NAMESPACE, "gateways"), "a-gw1", object, &json!({}));
}

fn start(lab: &Lab) -> Vec<Process> {
    NODES.iter().map(|(place, hostname, ..)| lab.start_agent_with(place, hostname, &[RANGE])).collect()
}

/// What the table says; nothing while there is none.
fn table(lab: &Lab, place: &str) -> String {
    lab.run(place, "sh", &["-c", "nft list table inet trieste-clusterset 2>/dev/null || true"])
}

/// Waits until a node leads to a target, and to another not.
fn wait_led(lab: &Lab, place: &str, to: &str, not_to: &str) {
    eventually(&format!("{place} leads to {to}"), || {
        let table = table(lab, place);
        table.contains(to) && !table.contains(not_to)
    });
}

/// Sends a datagram by a client's socket, and returns the address in cluster b or c that has it.
fn ask(lab: &Lab, side: &Side, client: &UdpSocket) -> String {
    let servers = side.targets.map(|address| {
        let socket = lab.inside("remote", || UdpSocket::bind(at(address, 5353))).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    });
    let (mut buffer, mut found) = ([0; 64], None);
    eventually("a server is asked", || {
        client.send(b"which").unwrap();
        std::thread::sleep(Duration::from_millis(20));
        found = servers.iter().find(|server| server.recv(&mut buffer).is_ok());
        found.is_some()
    });
    found.unwrap().local_addr().unwrap().ip().to_string()
}

/// Returns the error of a connection, and how long it took.
fn refused(lab: &Lab, place: &str, to: &str) -> (ErrorKind, Duration) {
    let to: SocketAddr = to.parse().unwrap();
    let begun = Instant::now();
    let error = lab.inside(place, || TcpStream::connect_timeout(&to, Duration::from_secs(5))).unwrap_err();
    (error.kind(), begun.elapsed())
}

/// Returns a client on node w1's pod that always sends from the same port.
fn client(lab: &Lab, side: &Side) -> UdpSocket {
    let client = lab.inside("pod-w1", || UdpSocket::bind(at(side.pods[0], 4000))).unwrap();
    client.connect(at(side.vip, 53)).unwrap();
    client
}

/// Goes from a cluster that is reached to another one, and to none, with a service of these families.
fn moves(lab: &Lab, sides: &[&Side]) {
    // Two clusters behind one gateway: their addresses are all that the nodes see of them.
    lab.address("remote", "tun0", &["10.2.0.10/16", "fd00:2::10/48"]);
    import(lab, &sides.iter().map(|side| side.vip).collect::<Vec<_>>(), "None");
    sides.iter().for_each(|side| export(lab, "b", side.targets[0]));
    reach(lab, &[("b", true), ("c", true)]);
    let _agents = start(lab);
    for (place, side) in NODES.iter().flat_map(|(place, ..)| sides.iter().map(move |side| (place, side))) {
        wait_led(lab, place, &side.led(side.targets[0]), &side.led(side.targets[1]));
    }
    for side in sides {
        // From a pod by its own address, from a node and a gateway's node by the one that is known there.
        let server = at(side.targets[0], 8080);
        let seen = talk(lab, "pod-w1", "remote", &server, &side.web()).unwrap();
        assert_eq!(seen.to_string(), side.pods[0]);
        for (from, source) in [("w1", side.sources[0]), ("pod-gw1", side.sources[1])] {
            let seen = talk(lab, from, "remote", &server, &side.web()).unwrap();
            assert_eq!(seen.to_string(), source, "{from}");
        }
    }
    let clients: Vec<UdpSocket> = sides.iter().map(|side| client(lab, side)).collect();
    for (side, client) in sides.iter().zip(&clients) {
        assert_eq!(ask(lab, side, client), side.targets[0]);
    }
    for (side, client) in sides.iter().zip(&clients) {
        export(lab, "c", side.targets[1]);
        wait_led(lab, "w1", &format!("{} . 8080", side.targets[1]), &side.led(side.targets[0]));
        assert_eq!(ask(lab, side, client), side.targets[0], "it has a flow there");
    }
    reach(lab, &[("b", false), ("c", true)]);
    let begun = Instant::now();
    for side in sides {
        wait_led(lab, "w1", &side.led(side.targets[1]), &format!("{} . 8080", side.targets[0]));
    }
    assert!(begun.elapsed() < SEEN, "{:?}", begun.elapsed());
    for (side, client) in sides.iter().zip(&clients) {
        talk(lab, "pod-w1", "remote", &at(side.targets[1], 8080), &side.web()).unwrap();
        // The flow is taken from connection tracking when the table has changed.
        eventually("the flow to be led anew", || ask(lab, side, client) == side.targets[1]);
    }
    reach(lab, &[("b", false), ("c", false)]);
    for side in sides {
        eventually("w1 leads nowhere", || !table(lab, "w1").contains(&side.led(side.targets[1])));
    }
}

/// Checks that what leads nowhere is refused at once.
fn refuses(lab: &Lab, side: &Side) {
    for from in ["pod-w1", "w1"] {
        let (error, took) = refused(lab, from, &side.web());
        assert_eq!(error, ErrorKind::HostUnreachable, "{from}");
        // A client that nobody answers waits for much longer (`PATIENCE` of `talk`).
        assert!(took < Duration::from_secs(3), "{from}: {took:?}");
    }
    // Another port, and an address that no service has.
    for to in [at(side.vip, 81), at(side.other_vip, 80)] {
        assert_eq!(refused(lab, "pod-w1", &to).0, ErrorKind::HostUnreachable, "{to}");
    }
    let digit = if side.protocol == "ip" { 4 } else { 6 };
    assert!(table(lab, "w1").contains(&format!("counter refused{digit} {{\n\t\tpackets")));
}

#[test]
fn a_clusterset_ip_leads_to_a_cluster_that_is_reached_and_new_connections_to_another_when_it_is_not() {
    let Some(lab) = cluster() else { return };
    moves(&lab, &[&FOUR]);
    refuses(&lab, &FOUR);
    assert_eq!(lab.leaked(), (0, 0));
}

#[test]
fn a_service_of_ipv6_alone_is_led_by_a_clusterset_ip_of_ipv6() {
    let Some(lab) = cluster() else { return };
    moves(&lab, &[&SIX]);
    refuses(&lab, &SIX);
    assert_eq!(lab.leaked(), (0, 0));
}

#[test]
fn a_service_of_both_families_is_led_by_a_clusterset_ip_of_each() {
    let Some(lab) = cluster() else { return };
    moves(&lab, &[&FOUR, &SIX]);
    refuses(&lab, &FOUR);
    refuses(&lab, &SIX);
    assert_eq!(lab.leaked(), (0, 0));
}

#[test]
fn the_own_clusters_pods_come_first_and_one_that_is_led_to_itself_is_answered() {
    let Some(lab) = cluster() else { return };
    let sides = [&FOUR, &SIX];
    import(&lab, &sides.map(|side| side.vip), "ClientIP");
    for side in sides {
        export(&lab, "b", side.targets[0]);
        export(&lab, "a", side.own);
        put_pods(&lab, side, &side.pods[1..]);
    }
    reach(&lab, &[("b", true)]);
    let agents = start(&lab);
    for (place, side) in NODES.iter().flat_map(|(place, ..)| sides.map(move |side| (place, side))) {
        wait_led(&lab, place, &side.led(side.pods[1]), side.targets[0]);
    }
    for side in sides {
        let pod = at(side.pods[1], 8080);
        let seen = talk(&lab, "pod-w1", "pod-w2", &pod, &side.web()).unwrap();
        assert_eq!(seen.to_string(), side.pods[0], "its own source");
        let seen = talk(&lab, "pod-w2", "pod-w2", &pod, &side.web()).unwrap();
        assert_eq!(seen.to_string(), side.w2, "the node's, or it would answer itself");
        put_pods(&lab, side, &side.pods);
        let stays = format!("jhash {} saddr mod 64", side.protocol);
        for place in ["w1", "w2"] {
            eventually("clients stay by their address", || table(&lab, place).contains(&stays));
        }
    }

    let good = table(&lab, "w2");
    for damage in [
        "delete table inet trieste-clusterset",
        "flush map inet trieste-clusterset frontends4",
        "flush map inet trieste-clusterset frontends6",
        "flush chain inet trieste-clusterset translate",
        "add element inet trieste-clusterset range4 { 192.0.2.0/24 }",
        "add element inet trieste-clusterset range6 { 2001:db8::/32 }",
        "delete element inet trieste-clusterset loops4 { 10.1.4.10 . 10.1.4.10 }",
        "delete element inet trieste-clusterset loops6 { fd00:1:0:4::10 . fd00:1:0:4::10 }",
    ] {
        lab.nft("w2", damage);
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        eventually(damage, || sorted(&table(&lab, "w2")) == sorted(&good));
    }
    drop(agents);
    let plan = finish(lab.agent_on("w2", "a-w2", &["--dry-run"]).env(RANGE.0, RANGE.1));
    assert!(plan.contains("nothing to change"), "{plan}");
    // Without the range, as with --uninstall, nothing stays.
    finish(&mut lab.agent_on("w2", "a-w2", &["--once"]));
    assert!(!lab.run("w2", "nft", &["list", "tables"]).contains("trieste-clusterset"));
    lab.uninstall_on("w1");
    assert!(!everything(&lab, "w1").contains("trieste-clusterset"));
}

//! Clusterset IPs, led by every node to where a service is served.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::cluster::{NODES, cluster, everything, talk};
use super::lab::{Lab, NAMESPACE, Process, SEEN, eventually, finish};

const RANGE: (&str, &str) = ("TRIESTE_CLUSTERSET_IP_RANGE", "243.0.0.0/8,fd00:243::/112");
const VIP: &str = "243.0.0.7:80";
const VIP6: &str = "[fd00:243::7]:80";

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

/// Says that `web` has these pods in the own cluster.
fn put_pods(lab: &Lab, pods: &[&str]) {
    let endpoint = |address: &&str| json!({"addresses": [address], "conditions": {"ready": true}});
    let object = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "endpoints": pods.iter().map(endpoint).collect::<Vec<_>>(),
        "ports": [{"name": "http", "protocol": "TCP", "port": 8080}]});
    put(lab, ("shop", "endpointslices"), "web-x1", object, &json!({"kubernetes.io/service-name": "web"}));
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
fn ask(lab: &Lab, client: &UdpSocket) -> String {
    let servers = ["10.2.0.9:5353", "10.2.0.10:5353"].map(|address| {
        let socket = lab.inside("remote", || UdpSocket::bind(address)).unwrap();
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

#[test]
fn a_clusterset_ip_leads_to_a_cluster_that_is_reached_and_new_connections_to_another_when_it_is_not() {
    let Some(lab) = cluster() else { return };
    // Two clusters behind one gateway: their addresses are all that the nodes see of them.
    lab.address("remote", "tun0", &["10.2.0.10/16"]);
    import(&lab, &["243.0.0.7", "fd00:243::7"], "None");
    export(&lab, "b", "10.2.0.9");
    export(&lab, "b", "fd00:2::9");
    reach(&lab, &[("b", true), ("c", true)]);
    let _agents = start(&lab);
    for (place, ..) in NODES {
        wait_led(&lab, place, "dnat ip to 10.2.0.9:8080", "10.2.0.10");
    }
    // From a pod by its own address, from a node and a gateway's node by the one that is known there.
    for (from, source) in [("pod-w1", "10.1.3.10"), ("w1", "10.1.3.1"), ("pod-gw1", "10.1.1.10")] {
        let seen = talk(&lab, from, "remote", "10.2.0.9:8080", VIP).unwrap();
        assert_eq!(seen.to_string(), source, "{from}");
    }
    let seen = talk(&lab, "pod-w1", "remote", "[fd00:2::9]:8080", VIP6).unwrap();
    assert_eq!(seen.to_string(), "fd00:1:0:3::10");

    // A client that always sends from the same port.
    let client = lab.inside("pod-w1", || UdpSocket::bind("10.1.3.10:4000")).unwrap();
    client.connect("243.0.0.7:53").unwrap();
    assert_eq!(ask(&lab, &client), "10.2.0.9");

    export(&lab, "c", "10.2.0.10");
    wait_led(&lab, "w1", "10.2.0.10 . 8080", "dnat ip to 10.2.0.9:8080");
    assert_eq!(ask(&lab, &client), "10.2.0.9", "it has a flow there");
    reach(&lab, &[("b", false), ("c", true)]);
    let begun = Instant::now();
    wait_led(&lab, "w1", "dnat ip to 10.2.0.10:8080", "10.2.0.9");
    assert!(begun.elapsed() < SEEN, "{:?}", begun.elapsed());
    talk(&lab, "pod-w1", "remote", "10.2.0.10:8080", VIP).unwrap();
    // The flow is taken from connection tracking when the table has changed.
    eventually("the flow to be led anew", || ask(&lab, &client) == "10.2.0.10");

    reach(&lab, &[("b", false), ("c", false)]);
    eventually("w1 leads nowhere", || !table(&lab, "w1").contains("10.2.0.10"));
    for from in ["pod-w1", "w1"] {
        let (error, took) = refused(&lab, from, VIP);
        assert_eq!(error, ErrorKind::HostUnreachable, "{from}");
        // A client that nobody answers waits for much longer (`PATIENCE` of `talk`).
        assert!(took < Duration::from_secs(3), "{from}: {took:?}");
    }
    // Another port, and an address that no service has.
    for to in ["243.0.0.7:81", "243.9.9.9:80", "[fd00:243::8]:80"] {
        assert_eq!(refused(&lab, "pod-w1", to).0, ErrorKind::HostUnreachable, "{to}");
    }
    assert!(table(&lab, "w1").contains("counter refused4 {\n\t\tpackets"));
    assert_eq!(lab.leaked(), (0, 0));
}

#[test]
fn the_own_clusters_pods_come_first_and_one_that_is_led_to_itself_is_answered() {
    let Some(lab) = cluster() else { return };
    import(&lab, &["243.0.0.7"], "ClientIP");
    export(&lab, "b", "10.2.0.9");
    export(&lab, "a", "100.65.0.10");
    put_pods(&lab, &["10.1.4.10"]);
    reach(&lab, &[("b", true)]);
    let agents = start(&lab);
    for (place, ..) in NODES {
        wait_led(&lab, place, "dnat ip to 10.1.4.10:8080", "10.2.0.9");
    }
    let seen = talk(&lab, "pod-w1", "pod-w2", "10.1.4.10:8080", VIP).unwrap();
    assert_eq!(seen.to_string(), "10.1.3.10", "its own source");
    let seen = talk(&lab, "pod-w2", "pod-w2", "10.1.4.10:8080", VIP).unwrap();
    assert_eq!(seen.to_string(), "10.1.4.1", "the node's, or it would answer itself");
    put_pods(&lab, &["10.1.4.10", "10.1.3.10"]);
    for place in ["w1", "w2"] {
        eventually("clients stay by their address", || table(&lab, place).contains("jhash ip saddr mod 64"));
    }

    let good = table(&lab, "w2");
    for damage in [
        "delete table inet trieste-clusterset",
        "flush map inet trieste-clusterset frontends4",
        "flush chain inet trieste-clusterset translate",
        "add element inet trieste-clusterset range4 { 192.0.2.0/24 }",
        "delete element inet trieste-clusterset loops4 { 10.1.4.10 . 10.1.4.10 }",
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

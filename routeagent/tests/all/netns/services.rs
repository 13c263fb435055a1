//! Services whose packets a gateway sends to the node that has a back end.
//!
//! gw1's kernel stands for the gateway process: it sends the packets of the remote cluster to w2 as they are, over the
//! VXLAN between nodes. The answers leave by w1, which is made to have a way to the remote cluster as well: neither of
//! the two sees the other half of the flow. Every node has kube-proxy's chains of both kinds besides those of
//! `cluster.rs`: what connection tracking calls invalid is dropped.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use serde_json::json;

use super::cluster::{NODES, cluster, everything, talk};
use super::lab::{Lab, Process, eventually, finish};

/// kube-proxy in nftables mode, and somebody who counts.
const KUBE_PROXY: &str = "
table ip kube-proxy {
    counter lost { }
    chain forward-invalid {
        type filter hook forward priority 0
        ct state invalid counter name lost drop
    }
    chain pre {
        type nat hook prerouting priority -100
        ip daddr 100.65.0.0/16 tcp dport { 80, 81, 82 } dnat to 10.1.99.99:8080
    }
    chain post {
        type nat hook postrouting priority 100
        ip saddr 10.1.0.0/16 ip daddr != 10.1.0.0/16 masquerade
        ip saddr != 10.1.0.0/16 masquerade
    }
}
";

fn put_services(lab: &Lab) {
    let service = |address: &str, affinity: &str| {
        json!({"clusterIP": address, "clusterIPs": [address], "sessionAffinity": affinity,
            "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]})
    };
    put(lab, "services", "Service", "v1", "pods", "", &json!({"spec": service("100.65.0.10", "None")}));
    put(lab, "services", "Service", "v1", "host", "", &json!({"spec": service("100.65.0.11", "ClientIP")}));
    put_slice(lab, "pods", 8080, &[("10.1.4.10", "a-w2"), ("10.1.3.10", "a-w1")]);
    put_slice(lab, "host", 9090, &[("172.31.4.22", "a-w2")]);
}

fn put_slice(lab: &Lab, service: &str, port: u16, endpoints: &[(&str, &str)]) {
    let endpoint = |(address, node): &(&str, &str)| json!({"addresses": [address], "nodeName": node, "conditions": {"ready": true}});
    let body = json!({
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
        "endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>(),
    });
    let name = format!("{service}-1");
    put(lab, "endpointslices", "EndpointSlice", "discovery.k8s.io/v1", &name, service, &body);
}

fn put(
    lab: &Lab,
    plural: &str,
    kind: &str,
    api_version: &str,
    name: &str,
    service: &str,
    body: &serde_json::Value,
) {
    let mut object = body.clone();
    object["apiVersion"] = json!(api_version);
    object["kind"] = json!(kind);
    object["metadata"] =
        json!({"name": name, "namespace": "shop", "labels": {"kubernetes.io/service-name": service}});
    lab.put_object(plural, &object);
}

/// A table as several gateways have it, by which agents know that there were some.
const SEVERAL: &str = "table inet trieste-services { set own4 { type ipv4_addr; flags interval; elements = { 10.1.0.0/16 }; }; }";

/// Starts the agent of every node of a cluster that has several gateways, one of which is left.
fn start(lab: &Lab) -> Vec<Process> {
    NODES.iter().for_each(|(place, ..)| lab.nft(place, SEVERAL));
    start_with_one_gateway(lab)
}

fn start_with_one_gateway(lab: &Lab) -> Vec<Process> {
    let start =
        |place: &str, hostname: &str| lab.start_agent_with(place, hostname, &[("NODE_NAME", hostname)]);
    NODES.iter().map(|(place, hostname, ..)| start(place, hostname)).collect()
}

/// Returns the table; empty where there is none.
fn table(lab: &Lab, place: &str) -> String {
    let listing = lab.command(place, "nft").args(["list", "table", "inet", "trieste-services"]).output();
    String::from_utf8(listing.unwrap().stdout).unwrap()
}

/// Has gw1 send packets for services to w2 as a gateway process does, and w2's answers leave by w1.
fn cross(lab: &Lab) {
    lab.run("gw1", "iptables-nft", &["-t", "nat", "-F", "PREROUTING"]);
    lab.nft("gw1", "flush table ip kube-proxy");
    lab.nft(
        "gw1",
        "table ip stand-in { chain pre { type filter hook prerouting priority raw; ip daddr 100.65.0.0/16 notrack; }; }",
    );
    lab.ip(
        "gw1",
        &[
            "route",
            "add",
            "100.65.0.0/24",
            "via",
            "240.31.4.22",
            "dev",
            "vx-submariner",
            "table",
            "149",
            "proto",
            "99",
        ],
    );
    // w2 knows the one gateway alone.
    let mac = "02:54:ac:1f:03:15";
    lab.run("w2", "bridge", &["fdb", "append", mac, "dev", "vx-submariner", "dst", "172.31.3.21"]);
    lab.ip("w2", &["neigh", "add", "240.31.3.21", "lladdr", mac, "dev", "vx-submariner", "nud", "permanent"]);
    lab.pair("w1", "submariner", "remote", "tun1");
    lab.address("w1", "submariner", &["169.254.8.1/24"]);
    lab.address("remote", "tun1", &["169.254.8.2/24"]);
    for (place, via) in [("w2", "240.31.3.21"), ("w1", "169.254.8.2")] {
        let device = if place == "w2" { "vx-submariner" } else { "submariner" };
        lab.ip(place, &["route", "add", "10.2.0.0/16", "via", via, "dev", device, "onlink", "table", "77"]);
        lab.ip(place, &["rule", "add", "to", "10.2.0.0/16", "lookup", "77", "priority", "80"]);
    }
}

#[test]
fn a_service_is_served_by_the_node_it_was_sent_to_and_answers_may_leave_by_another_gateway() {
    let Some(lab) = cluster() else { return };
    put_services(&lab);
    for (place, ..) in NODES {
        lab.nft(place, KUBE_PROXY);
    }
    let agents = start(&lab);
    eventually("w2 serves both services", || {
        let table = table(&lab, "w2");
        table.contains("dnat ip to 10.1.4.10:8080") && table.contains("dnat ip to 172.31.4.22:9090")
    });
    eventually("w1 serves its own back end alone", || {
        let table = table(&lab, "w1");
        table.contains("dnat ip to 10.1.3.10:8080") && !table.contains("172.31.4.22:9090")
    });
    // Its object says where the node takes them.
    let object = lab.store().join(super::lab::NAMESPACE).join("routeagents").join("a-w2.yaml");
    eventually("w2 says that it takes packets for services", || {
        std::fs::read_to_string(&object).is_ok_and(|text| text.contains("trieste.io/services"))
    });
    // What they have written stays; what the test adds would not, with them.
    drop(agents);
    cross(&lab);

    // Strict by reverse path (`cluster.rs`), then loose.
    for rp_filter in ["1", "2"] {
        for (place, ..) in NODES {
            lab.run(place, "sysctl", &["-qw", &format!("net.ipv4.conf.all.rp_filter={rp_filter}")]);
        }
        let seen = talk(&lab, "remote", "pod-w2", "10.1.4.10:8080", "100.65.0.10:80").unwrap();
        assert_eq!(seen.to_string(), "10.2.0.9", "a pod, rp_filter {rp_filter}");
        let seen = talk(&lab, "remote", "w2", "172.31.4.22:9090", "100.65.0.11:80").unwrap();
        assert_eq!(seen.to_string(), "10.2.0.9", "a pod in the host's network, rp_filter {rp_filter}");
    }
    for place in ["w1", "w2"] {
        let counter = lab.run(place, "nft", &["list", "counter", "ip", "kube-proxy", "lost"]);
        assert!(counter.contains("packets 0 "), "{place}: {counter}");
    }
    assert_eq!(lab.leaked(), (0, 0));
}

#[test]
fn the_table_follows_back_ends_a_second_run_plans_nothing_and_uninstall_removes_it() {
    let Some(lab) = cluster() else { return };
    put_services(&lab);
    let before = everything(&lab, "w2");
    let agents = start(&lab);
    eventually("w2 serves", || table(&lab, "w2").contains("dnat ip to 10.1.4.10:8080"));

    put_slice(&lab, "pods", 8080, &[("10.1.4.10", "a-w2"), ("10.1.4.11", "a-w2"), ("10.1.4.12", "a-w2")]);
    eventually("clients are spread over three back ends by address and port", || {
        let table = table(&lab, "w2");
        table.contains("jhash ip saddr . tcp sport mod 64")
            && ["10.1.4.10 . 8080", "10.1.4.11 . 8080", "10.1.4.12 . 8080"]
                .iter()
                .all(|one| table.contains(one))
            && !table.contains("dnat ip to 10.1.4.10:8080")
    });
    put_slice(&lab, "host", 9090, &[("172.31.4.22", "a-w2"), ("10.1.4.13", "a-w2")]);
    eventually("with affinity by address alone, with both back ends", || {
        let table = table(&lab, "w2");
        table.contains("jhash ip saddr mod 64") && table.contains("10.1.4.13")
    });

    for damage in [
        "delete table inet trieste-services",
        "flush map inet trieste-services frontends4",
        "flush chain inet trieste-services deliver",
        "add element inet trieste-services own4 { 192.0.2.0/24 }",
    ] {
        let good = table(&lab, "w2");
        lab.nft("w2", damage);
        if damage.starts_with("delete") {
            // Without it nothing says that there were several gateways.
            lab.nft("w2", SEVERAL);
        }
        eventually(damage, || {
            let sorted = |text: &str| {
                let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
                lines.sort();
                lines
            };
            sorted(&table(&lab, "w2")) == sorted(&good)
        });
    }
    drop(agents);
    let plan = finish(lab.agent_on("w2", "a-w2", &["--dry-run"]).env("NODE_NAME", "a-w2"));
    assert!(plan.contains("nothing to change"), "{plan}");

    lab.uninstall_on("w2");
    assert_eq!(everything(&lab, "w2"), before);
}

#[test]
fn one_gateway_has_its_nodes_serve_and_kube_proxy_translates_what_they_do_not() {
    let Some(lab) = cluster() else { return };
    put_services(&lab);
    NODES.iter().for_each(|(place, ..)| lab.nft(place, KUBE_PROXY));
    let _agents = start_with_one_gateway(&lab);
    eventually("w2 serves both services", || {
        let table = table(&lab, "w2");
        table.contains("dnat ip to 10.1.4.10:8080") && table.contains("dnat ip to 172.31.4.22:9090")
    });
    eventually("gw1 leaves answers of services alone untracked", || {
        let table = table(&lab, "gw1");
        table.contains("100.65.0.0/16") && !table.contains("10.1.0.0/16")
    });

    // A service without a back end on a node of ours: kube-proxy of the gateway's node translates it, and the answers.
    lab.run("gw1", "iptables-nft", &["-t", "nat", "-F", "PREROUTING"]);
    lab.nft("gw1", "flush chain ip kube-proxy pre");
    lab.nft("gw1", "add rule ip kube-proxy pre ip daddr 100.65.0.20 tcp dport 80 dnat to 10.1.3.10:8081");
    let seen = talk(&lab, "remote", "pod-w1", "10.1.3.10:8081", "100.65.0.20:80").unwrap();
    assert_eq!(seen.to_string(), "10.2.0.9", "translated by kube-proxy");

    // What the gateway sends to w2 as it is comes back by gw1, whose kernel has not seen the request.
    lab.nft(
        "gw1",
        "table ip stand-in { chain pre { type filter hook prerouting priority raw; iifname submariner ip daddr 100.65.0.10 notrack; }; }",
    );
    let to_w2 =
        ["100.65.0.10/32", "via", "240.31.4.22", "dev", "vx-submariner", "table", "149", "proto", "99"];
    lab.ip("gw1", &[&["route", "add"][..], &to_w2].concat());
    let seen = talk(&lab, "remote", "pod-w2", "10.1.4.10:8080", "100.65.0.10:80").unwrap();
    assert_eq!(seen.to_string(), "10.2.0.9", "served by w2");
    let counter = lab.run("gw1", "nft", &["list", "counter", "ip", "kube-proxy", "lost"]);
    assert!(counter.contains("packets 0 "), "{counter}");
    assert_eq!(lab.leaked(), (0, 0));
}

/// Sends a datagram from `remote` to `to`, and has a socket of a node that binds any address answer it. Returns whom the
/// server saw.
fn ask_any(lab: &Lab, place: &str, port: u16, to: &str) -> std::io::Result<IpAddr> {
    let server = lab.inside(place, || UdpSocket::bind(("0.0.0.0", port)))?;
    let client = lab.inside("remote", || UdpSocket::bind("0.0.0.0:0"))?;
    for socket in [&server, &client] {
        socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    }
    client.connect(to)?;
    client.send(b"question")?;
    let mut received = [0; 64];
    let (bytes, seen) = server.recv_from(&mut received)?;
    server.send_to(&received[..bytes], seen)?;
    client.recv(&mut received)?;
    Ok(seen.ip())
}

#[test]
fn a_udp_server_of_the_host_is_reached_and_what_nobody_serves_or_somebody_forges_goes_nowhere() {
    let Some(lab) = cluster() else { return };
    let spec = json!({"clusterIP": "100.65.0.53", "clusterIPs": ["100.65.0.53"],
        "ports": [{"name": "dns", "port": 53, "protocol": "UDP"}]});
    put(&lab, "services", "Service", "v1", "dns", "", &json!({"spec": spec}));
    let slice = json!({"addressType": "IPv4", "ports": [{"name": "dns", "port": 5353, "protocol": "UDP"}],
        "endpoints": [{"addresses": ["172.31.1.11"], "nodeName": "a-gw1", "conditions": {"ready": true}}]});
    put(&lab, "endpointslices", "EndpointSlice", "discovery.k8s.io/v1", "dns-1", "dns", &slice);
    let _agents = start_with_one_gateway(&lab);
    eventually("gw1 serves", || table(&lab, "gw1").contains("dnat ip to 172.31.1.11:5353"));
    lab.run("gw1", "iptables-nft", &["-t", "nat", "-F", "PREROUTING"]);
    // Whom the host's firewall lets in is the administrator's.
    lab.run("gw1", "iptables-nft", &["-A", "INPUT", "-p", "udp", "--dport", "5353", "-j", "ACCEPT"]);
    lab.run("gw1", "sysctl", &["-qw", "net.ipv4.conf.all.rp_filter=2"]);

    let seen = ask_any(&lab, "gw1", 5353, "100.65.0.53:53").unwrap();
    assert_eq!(seen.to_string(), "172.31.1.11", "the node's own address");

    let unserved = || lab.run("gw1", "nft", &["list", "counter", "inet", "trieste-services", "unserved4"]);
    assert!(unserved().contains("packets 0 "), "{}", unserved());
    let refused = ask_any(&lab, "gw1", 5354, "100.65.0.54:53").unwrap_err();
    assert!(unserved().contains("packets 1 "), "{refused}: {}", unserved());

    let to: SocketAddr = "100.65.0.99:80".parse().unwrap();
    let refused =
        lab.inside("remote", || TcpStream::connect_timeout(&to, Duration::from_secs(5))).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{refused}");

    // A pod of another node in the name of the gateway's node.
    for device in ["all", "eth0", "cni0", "vx-submariner"] {
        for place in ["gw1", "w1"] {
            lab.run(place, "sysctl", &["-qw", &format!("net.ipv4.conf.{device}.rp_filter=0")]);
        }
    }
    lab.ip("pod-w1", &["address", "add", "172.31.1.11/32", "dev", "lo"]);
    let forger = lab.inside("pod-w1", || UdpSocket::bind("172.31.1.11:0")).unwrap();
    forger.send_to(b"forged", "10.2.0.9:9").unwrap();
    eventually("the forged packet to be dropped", || {
        let forged = lab.run("gw1", "nft", &["list", "counter", "inet", "trieste-services", "forged4"]);
        forged.contains("packets 1 ")
    });
}

//! Nodes of OVN-Kubernetes, whose pods are behind OVN's routers and not behind the node.
//!
//! ```text
//!   pod-gw1 ──┐ br-gw1 10.1.1.1 ── ovn-k8s-mp0 10.1.1.2 ┌─────┐ eth0 172.31.1.11 ─┐
//!             │                                         │ gw1 │ submariner ── remote (10.2.0.9, fd00:2::9)
//!         ┌─────┐                                       └─────┘                   │ ┌─────┐
//!         │ ovn │ br-w1 10.1.3.1 ─── ovn-k8s-mp0 10.1.3.2 ── w1 ─ eth0 172.31.3.21 ─┼─┤ wan │ counts what is for the
//!         └─────┘                                                                   │ └─────┘ remote cluster in clear
//!   pod-w1 ───┘ 10.1.3.10
//! ```
//!
//! The namespace `ovn` stands for OVN's routers and load balancer: routes in place of policies, netfilter's translation for
//! the service 100.65.0.10:80. `plugins/ovn` has the rows of a real OVN, and its packets.

use super::cluster::{connect_remote, everything, put_gateway, talk};
use super::lab::{Lab, NAMESPACE, eventually, finish};

/// Place, host name, third octet of its networks, host part of its address.
const NODES: [(&str, &str, u8, u8); 2] = [("gw1", "a-gw1", 1, 11), ("w1", "a-w1", 3, 21)];
const PLACES: [&str; 7] = ["gw1", "w1", "ovn", "pod-gw1", "pod-w1", "wan", "remote"];
pub(crate) const PLUGIN: [(&str, &str); 2] =
    [("SUBMARINER_NETWORKPLUGIN", "OVNKubernetes"), ("TRIESTE_PLUGIN_SYNC", "true")];

pub(crate) fn cluster() -> Option<Lab> {
    let lab = Lab::bare(&PLACES)?;
    for place in ["gw1", "w1", "ovn", "wan"] {
        lab.run(place, "sysctl", &["-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"]);
    }
    for (place, _, net, host) in NODES {
        let (pod, bridge) = (format!("pod-{place}"), format!("br-{place}"));
        lab.pair(place, "eth0", "wan", place);
        lab.address(place, "eth0", &[&format!("172.31.{net}.{host}/24"), &format!("fd31:{net}::{host}/64")]);
        lab.address("wan", place, &[&format!("172.31.{net}.1/24"), &format!("fd31:{net}::1/64")]);
        lab.ip("ovn", &["link", "add", &bridge, "type", "bridge"]);
        lab.address("ovn", &bridge, &[&format!("10.1.{net}.1/24"), &format!("fd00:1:0:{net}::1/64")]);
        lab.pair(place, "ovn-k8s-mp0", "ovn", &format!("k8s-{place}"));
        lab.pair(&pod, "eth0", "ovn", &pod);
        for port in [format!("k8s-{place}"), pod.clone()] {
            lab.ip("ovn", &["link", "set", &port, "master", &bridge, "up"]);
        }
        let own = [format!("10.1.{net}.2/24"), format!("fd00:1:0:{net}::2/64")];
        lab.address(place, "ovn-k8s-mp0", &[&own[0], &own[1]]);
        lab.address(&pod, "eth0", &[&format!("10.1.{net}.10/24"), &format!("fd00:1:0:{net}::10/64")]);
        let (v4, v6) = (format!("10.1.{net}.1"), format!("fd00:1:0:{net}::1"));
        let ways = [
            (place, "10.1.0.0/16", &v4, "ovn-k8s-mp0"),
            (place, "fd00:1::/48", &v6, "ovn-k8s-mp0"),
            // As ovnkube-node makes it: services by the external bridge, which makes the node the source.
            (place, "100.65.0.0/16", &format!("172.31.{net}.1"), "eth0"),
            (place, "default", &format!("172.31.{net}.1"), "eth0"),
            (place, "default", &format!("fd31:{net}::1"), "eth0"),
            (&pod, "default", &v4, "eth0"),
            (&pod, "default", &v6, "eth0"),
        ];
        for (place, destination, via, device) in ways {
            let family = if via.contains(':') { "-6" } else { "-4" };
            lab.ip(place, &[family, "route", "add", destination, "via", via, "dev", device]);
        }
    }
    // What trieste-plugin-sync writes, and a load balancer. Without the routes OVN has none.
    lab.ip("ovn", &["route", "add", "10.2.0.0/16", "via", "10.1.1.2"]);
    lab.ip("ovn", &["-6", "route", "add", "fd00:2::/48", "via", "fd00:1:0:1::2"]);
    let service = "-t nat -A PREROUTING -d 100.65.0.10 -p tcp --dport 80 -j DNAT --to 10.1.3.10:8080";
    lab.run("ovn", "iptables-nft", &service.split(' ').collect::<Vec<_>>());
    lab.nft("wan", super::lab::COUNTING);
    connect_remote(&lab, "gw1");
    std::fs::create_dir_all(lab.store().join(NAMESPACE)).unwrap();
    for (_, name, net, host) in NODES {
        let pods = [format!("10.1.{net}.0/24"), format!("fd00:1:0:{net}::/64")];
        lab.put_node(name, &format!("172.31.{net}.{host}"), &pods);
    }
    put_gateway(&lab, "a-gw1", "172.31.1.11", "10.1.1.2");
    lab.put_endpoint("b", "b-gw1", &["10.2.0.0/16", "fd00:2::/48"], "203.0.113.21", "");
    Some(lab)
}

fn install(lab: &Lab) {
    for (place, hostname, ..) in NODES {
        finish(lab.agent_on(place, hostname, &["--once"]).envs(PLUGIN));
    }
}

/// Talks in both families: to `remote`, or from it to a pod.
fn both(lab: &Lab, from: &str, to: &str, addresses: [&str; 2]) -> [Result<String, String>; 2] {
    addresses.map(|address| talk(lab, from, to, address, address).map(|source| source.to_string()))
}

const REMOTE: [&str; 2] = ["10.2.0.9:80", "[fd00:2::9]:80"];

#[test]
fn plugin_ovn_pods_services_and_nodes_reach_the_remote_cluster_and_are_reached_with_their_own_sources() {
    let Some(lab) = cluster() else { return };
    install(&lab);
    for (place, _, net, _) in NODES {
        let pod = format!("pod-{place}");
        let own = [format!("10.1.{net}.10"), format!("fd00:1:0:{net}::10")];
        assert_eq!(both(&lab, &pod, "remote", REMOTE), own.clone().map(Ok));
        let there = [format!("{}:80", own[0]), format!("[{}]:80", own[1])];
        let seen = both(&lab, "remote", &pod, [&there[0], &there[1]]);
        assert_eq!(seen, ["10.2.0.9", "fd00:2::9"].map(|text| Ok(text.to_owned())));
        // The node itself is known over there by its management port's address.
        let node = [format!("10.1.{net}.2"), format!("fd00:1:0:{net}::2")];
        assert_eq!(both(&lab, place, "remote", REMOTE), node.clone().map(Ok));
        let there = [format!("{}:80", node[0]), format!("[{}]:80", node[1])];
        let seen = both(&lab, "remote", place, [&there[0], &there[1]]);
        assert_eq!(seen, ["10.2.0.9", "fd00:2::9"].map(|text| Ok(text.to_owned())), "{place}");
    }
    // A service, by OVN's load balancer and not by the external bridge.
    let seen = talk(&lab, "remote", "pod-w1", "10.1.3.10:8080", "100.65.0.10:80").unwrap();
    assert_eq!(seen.to_string(), "10.2.0.9");
    assert_eq!(lab.leaked(), (0, 0));

    // A second run plans nothing, and nothing goes between the nodes by a device of ours.
    for (place, hostname, ..) in NODES {
        let plan = lab.agent_on(place, hostname, &["--dry-run"]).envs(PLUGIN).output().unwrap();
        assert_eq!(String::from_utf8(plan.stdout).unwrap(), "nothing to change\n", "{place}");
        assert!(!lab.ip(place, &["link"]).contains("vx-submariner"));
    }
}

#[test]
fn plugin_ovn_nothing_leaves_in_clear_while_a_device_or_a_gateway_is_away() {
    let Some(lab) = cluster() else { return };
    install(&lab);
    let fails = |from: &str| both(&lab, from, "remote", REMOTE).iter().all(Result::is_err);
    lab.ip("gw1", &["link", "set", "submariner", "down"]);
    for from in ["pod-gw1", "pod-w1", "gw1", "w1"] {
        assert!(fails(from), "{from}: the gateway's device is down");
    }
    lab.ip("gw1", &["link", "set", "submariner", "up"]);
    lab.ip("gw1", &["-6", "address", "add", "fd99::1/64", "dev", "submariner", "nodad"]);
    install(&lab);
    for place in ["gw1", "w1"] {
        lab.ip(place, &["link", "set", "ovn-k8s-mp0", "down"]);
    }
    for from in ["pod-gw1", "pod-w1", "w1"] {
        assert!(fails(from), "{from}: the management ports are down");
    }
    // What comes from the remote cluster does not go on by the external bridge instead.
    let before = lab.counter("gw1", "trieste", "stray4");
    assert!(talk(&lab, "remote", "pod-w1", "10.1.3.10:80", "10.1.3.10:80").is_err());
    assert!(lab.counter("gw1", "trieste", "stray4") > before);
    assert_eq!(lab.leaked(), (0, 0));
}

#[test]
fn plugin_ovn_a_source_of_the_remote_cluster_comes_by_its_own_way_alone() {
    let Some(lab) = cluster() else { return };
    install(&lab);
    let forged = |place: &str, from: &str| {
        let before = lab.counter(place, "trieste", "spoofed4");
        lab.ip(from, &["address", "add", "10.2.0.77/32", "dev", "lo"]);
        let target = if place == "gw1" { "172.31.1.11" } else { "172.31.3.21" };
        let _ = lab.command(from, "ping").args(["-c1", "-W1", "-I", "10.2.0.77", target]).output().unwrap();
        lab.ip(from, &["address", "del", "10.2.0.77/32", "dev", "lo"]);
        lab.counter(place, "trieste", "spoofed4") > before
    };
    for place in ["gw1", "w1"] {
        assert!(forged(place, "wan"), "from the underlay to {place}");
    }
    // On the gateway's node nothing of the remote cluster comes out of OVN.
    let before = lab.counter("gw1", "trieste", "spoofed4");
    lab.ip("pod-gw1", &["address", "add", "10.2.0.77/32", "dev", "lo"]);
    let _ = lab.command("pod-gw1", "ping").args(["-c1", "-W1", "-I", "10.2.0.77", "10.1.1.2"]).output();
    assert!(lab.counter("gw1", "trieste", "spoofed4") > before);
}

#[test]
fn plugin_ovn_the_management_port_is_followed_and_an_uninstall_leaves_nothing() {
    let Some(lab) = cluster() else { return };
    let before = NODES.map(|(place, ..)| everything(&lab, place));
    let mut agents = NODES.map(|(place, hostname, ..)| lab.start_agent_with(place, hostname, &PLUGIN));
    let route = |place: &str, table: &str| lab.try_ip(place, &["route", "show", "table", table]);
    eventually("both nodes have routes", || {
        route("gw1", "150").contains("10.2.0.0/16 dev submariner")
            && route("w1", "150").contains("10.2.0.0/16 via 10.1.3.1")
    });
    // The node gets another network from OVN-Kubernetes.
    lab.address("ovn", "br-gw1", &["10.1.7.1/24"]);
    lab.ip("gw1", &["address", "del", "10.1.1.2/24", "dev", "ovn-k8s-mp0"]);
    lab.address("gw1", "ovn-k8s-mp0", &["10.1.7.2/24"]);
    lab.ip("gw1", &["route", "replace", "10.1.0.0/16", "via", "10.1.7.1", "dev", "ovn-k8s-mp0"]);
    eventually("the routes follow", || {
        route("gw1", "149").contains("10.1.0.0/16 via 10.1.7.1 dev ovn-k8s-mp0")
            && route("gw1", "150").contains("10.2.0.0/16 dev submariner")
            && route("gw1", "150").contains("src 10.1.7.2")
    });
    // And back.
    lab.ip("gw1", &["address", "del", "10.1.7.2/24", "dev", "ovn-k8s-mp0"]);
    lab.address("gw1", "ovn-k8s-mp0", &["10.1.1.2/24"]);
    lab.ip("gw1", &["route", "replace", "10.1.0.0/16", "via", "10.1.1.1", "dev", "ovn-k8s-mp0"]);
    eventually("the routes follow back", || route("gw1", "149").contains("10.1.0.0/16 via 10.1.1.1"));
    agents.iter_mut().for_each(|agent| agent.kill());
    for (index, (place, ..)) in NODES.into_iter().enumerate() {
        lab.uninstall_on(place);
        assert_eq!(everything(&lab, place), before[index], "{place}");
    }
}

#[test]
fn plugin_ovn_under_upstreams_operator_what_is_served_and_what_is_missing_is_logged() {
    let Some(lab) = cluster() else { return };
    let once = |place: &str, hostname: &str, variables: &[(&str, &str)]| {
        finish(lab.agent_on(place, hostname, &["--once"]).envs(variables.iter().copied()))
    };
    let missing = "driver ovn-kubernetes needs trieste-plugin-sync, and nothing shows that it runs";
    // Upstream's operator sets the plugin and nothing of ours.
    let text = once("gw1", "a-gw1", &PLUGIN[..1]);
    assert!(text.contains(missing), "{text}");
    for field in
        ["ovn-kubernetes", "ovn-k8s-mp0", "delivers_to_pods=network plugin", "has_synchronizer=false"]
    {
        assert!(text.contains(field), "{field}: {text}");
    }
    assert!(
        !once("w1", "a-w1", &PLUGIN[..1]).contains(missing),
        "it is the leading gateway's node that serves"
    );
    let text = once("gw1", "a-gw1", &PLUGIN);
    assert!(!text.contains(missing) && text.contains("has_synchronizer=true"), "{text}");
    // What no driver has a name for is served as kube-proxy's, and the log has it.
    let text = once("w1", "a-w1", &[("SUBMARINER_NETWORKPLUGIN", "antrea")]);
    assert!(text.contains("antrea") && text.contains("kubeproxy"), "{text}");
}

/// The leading gateway's node writes routes for the plugin's worker, and its numbers are served where that is wanted.
#[test]
fn plugin_ovn_the_numbers_of_the_routes_controller_are_served() {
    let Some(lab) = cluster() else { return };
    let address = ("TRIESTE_ROUTEAGENT_METRICS", "127.0.0.1:32782");
    let _agent = lab.start_agent_with("gw1", "a-gw1", &[PLUGIN[0], PLUGIN[1], address]);
    let get = |path: &str| {
        let script =
            format!(r#"exec 3<>/dev/tcp/127.0.0.1/32782; printf 'GET {path} HTTP/1.0\r\n\r\n' >&3; cat <&3"#);
        let output = lab.command("gw1", "bash").args(["-c", &script]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let writes = "trieste_controller_writes_total{controller=\"zone-routes\"} ";
    eventually("routes are written, and counted", || {
        let page = get("/metrics");
        let count = page.lines().find_map(|line| line.strip_prefix(writes)?.parse::<u64>().ok());
        count.is_some_and(|count| count > 0)
    });
    eventually("the agent to be ready", || get("/ready").starts_with("HTTP/1.0 200"));
    assert!(get("/metrics").contains("\nprocess_resident_memory_bytes "));
}

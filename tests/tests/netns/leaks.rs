//! What is for another cluster does not leave in clear, whatever others do to the node: one case after the other, both
//! families, from a pod and from the node itself, and a witness on the underlay that looks for a marker.
//!
//! ```text
//!   east pod ──▶ cni0 ─ east gateway node ─ eth0 ══ WAN bridge (tcpdump) ══ west gateway node ──▶ west pod
//!                         │ table 1100: default via the WAN's router
//! ```
//! A third cluster, `north`, has no gateway: its networks are closed and not routed.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use trieste_tests::capture::{Capture, Frames};
use trieste_tests::cluster::BROKER_NAMESPACE;
use trieste_tests::guard::{root_test, skip};
use trieste_tests::netns::Namespace;
use trieste_tests::pair::{CONNECT_TIMEOUT, Pair};
use trieste_tests::topology::Families;
use trieste_tests::traffic::{self, Responder};
use trieste_tests::wait::eventually;

const TEST: &str = "nothing_leaves_in_clear_whatever_others_do_to_a_node";
const MARKER: &[u8] = b"nobody-but-the-west-may-read-this";
/// Leads everywhere in clear, by the rule that follows.
const ASTRAY: &str = "for family in -4 -6; do \
    test $family = -4 && router=172.31.255.254 || router=fd00:31::ffff; \
    ip $family route replace default via $router dev eth0 table 1100; done";
const MASQUERADE: &str = "table inet cni { chain post { type nat hook postrouting priority srcnat; \
    ip saddr 10.1.0.0/16 ip daddr != 10.1.0.0/16 masquerade; \
    ip6 saddr fd00:1::/48 ip6 daddr != fd00:1::/48 masquerade; }; }";
/// A plugin that marks what pods send, before and after routing.
const MARKING: &str = "table inet plugin { \
    chain early { type filter hook prerouting priority mangle; iifname cni0 meta mark set 0x540000; }; \
    chain late { type filter hook postrouting priority mangle; iifname cni0 meta mark set 0x540001; }; }";

/// Something that others do, in shell, and its end.
struct Case {
    name: &'static str,
    begin: String,
    end: String,
}

impl Case {
    /// A routing rule before ours that leads to the table.
    fn rule(name: &'static str, rule: &str) -> Self {
        let each = |verb: &str| format!("for family in -4 -6; do ip $family rule {verb} {rule}; done");
        Self { name, begin: format!("{ASTRAY}; {}", each("add")), end: each("del") }
    }

    /// The same beside further commands.
    fn beside(mut self, begin: &str, end: &str) -> Self {
        self.begin = format!("{begin}; {}", self.begin);
        self.end = format!("{}; {end}", self.end);
        self
    }
}

#[test]
fn nothing_leaves_in_clear_whatever_others_do_to_a_node() {
    let Some(_turn) = root_test(TEST) else { return };
    let mut pair = Pair::connected(Families::Dual).unwrap();
    let node = pair.east.node().namespace.clone();
    let responder = Responder::start(pair.pod_namespace("west")).unwrap();
    let foreign_rule = || Case::rule("a rule before ours", "pref 100 lookup 1100");

    claim_north(&pair);

    let mut cases = vec![
        foreign_rule(),
        Case::rule("a table of a pod's device", "pref 10 iif cni0 lookup 1100"),
        Case::rule("what is forwarded is marked", "pref 80 fwmark 0x540000/0xff0000 lookup 1100")
            .beside(&format!("nft '{MARKING}'"), "nft delete table inet plugin"),
        Case { name: "all tables are flushed", begin: "nft flush ruleset".into(), end: "true".into() },
    ];
    match node.run("ip").args(["link", "add", "vrf0", "type", "vrf", "table", "1100"]).output().unwrap() {
        made if made.status.success() => cases.push(Case {
            name: "pods are in a VRF",
            begin: format!("ip link set vrf0 up; {ASTRAY}; ip link set cni0 master vrf0"),
            end: "ip link del vrf0".into(),
        }),
        refused => {
            skip(TEST, &format!("the case of a VRF (ip link add type vrf: {})", refused.stderr.trim()))
        }
    }
    for case in cases {
        assert_closed(&pair, &case);
        wait_guarded(&node);
        assert_connected(&pair, responder.port(), case.name);
    }

    // From here on nobody puts anything right.
    pair.east.kill_route_agent().unwrap();
    assert_closed(&pair, &Case { name: "a rule, and no agent", ..foreign_rule() });
    assert_bridge_closed(&node);
    let plugin = Case {
        name: "a network plugin starts anew, and there is no agent",
        begin: format!(
            "nft flush ruleset; nft '{MASQUERADE}'; ip link set cni0 down; ip link set cni0 up; \
             ip -6 addr add fd00:1:0:1::1/64 dev cni0 nodad"
        ),
        end: "nft delete table inet cni".into(),
    };
    assert_closed(&pair, &plugin);
    assert_connected(&pair, responder.port(), plugin.name);
    pair.east.kill_gateway().unwrap();
    assert_closed(&pair, &Case { name: "the same without a gateway", ..plugin });

    // Shows that a leak would be noticed: with neither filter nor routes all four are seen.
    let frames = watch(&pair, &foreign_rule());
    assert!(leaks(&frames, false) > 0 && leaks(&frames, true) > 0, "the witness sees nothing");

    // As after a reboot: all that is left is what the agent has kept.
    let reboot = "ip link del submariner; for family in -4 -6; do ip $family route flush type unreachable; \
                  ip $family route flush table 150; ip $family rule del pref 150; done; nft flush ruleset";
    node.run("sh").args(["-c", reboot]).stdout().unwrap();
    pair.east.start_route_agent().unwrap();
    wait_guarded(&node);
    assert_closed(&pair, &Case { name: "a rule, after a reboot", ..foreign_rule() });
}

/// A cluster without a gateway joins.
fn claim_north(pair: &Pair) {
    let object = serde_json::json!({
        "apiVersion": "submariner.io/v1", "kind": "Cluster",
        "metadata": {"name": "north", "labels": {"submariner-io/clusterID": "north"}},
        "spec": {"cluster_id": "north", "service_cidr": [], "cluster_cidr": ["10.3.0.0/16", "fd00:3::/48"], "global_cidr": []},
    });
    let folder = pair.lab.directory().join("broker").join(BROKER_NAMESPACE).join("clusters");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("north.yaml"), object.to_string()).unwrap();
    eventually("its networks are closed", Duration::from_secs(15), || {
        let node = &pair.east.node().namespace;
        let routes = node.run("sh").args(["-c", "ip route; ip -6 route"]).stdout()?;
        let is_closed = |net: &str| routes.contains(&format!("unreachable {net}"));
        anyhow::ensure!(is_closed("10.3.0.0/16") && is_closed("fd00:3::/48"), "{routes}");
        Ok(())
    })
    .unwrap();
}

/// What others do is done, and nothing of what is sent meanwhile is on the underlay.
fn assert_closed(pair: &Pair, case: &Case) {
    let frames = watch(pair, case);
    let seen = (leaks(&frames, false), leaks(&frames, true));
    let first =
        frames.frames.iter().find(|frame| shows_marker(frame)).map(|frame| frame.escape_ascii().to_string());
    assert_eq!(seen, (0, 0), "{}: IPv4 and IPv6 packets in clear; the first: {first:?}", case.name);
}

/// While the plugin's bridge is down, an ICMP error that quotes a pod's refused packet finds no way to the pod, and not the
/// default route either.
fn assert_bridge_closed(node: &Namespace) {
    let look =
        "ip link set cni0 down; for pod in 10.1.1.99 fd00:1:0:1::99; do ip route get $pod 2>&1; done; true";
    let ways = node.run("sh").args(["-c", look]).stdout().unwrap();
    let back = "ip link set cni0 up; ip -6 addr add fd00:1:0:1::1/64 dev cni0 nodad";
    node.run("sh").args(["-ec", back]).stdout().unwrap();
    let is_refused = |line: &&str| line.contains("No route to host");
    assert_eq!(ways.lines().filter(is_refused).count(), 2, "{ways}");
}

/// Sends before, while and after others do this, and returns what was on the underlay.
fn watch(pair: &Pair, case: &Case) -> Frames {
    let wire = Capture::start(&pair.lab, &pair.plan.wan, "br0", "").unwrap();
    let node = &pair.east.node().namespace;
    let places = [pair.pod_namespace("east"), node];
    let north: [IpAddr; 2] = ["10.3.0.5".parse().unwrap(), "fd00:3::5".parse().unwrap()];
    let targets: Vec<IpAddr> = pair.pod("west").ips().into_iter().chain(north).collect();
    let each = |place| targets.iter().map(move |ip| (socket(place, *ip), SocketAddr::new(*ip, 9)));
    let sockets: Vec<(UdpSocket, SocketAddr)> = places.into_iter().flat_map(each).collect();
    let send = |rounds: u32| {
        for _ in 0..rounds {
            for (socket, to) in &sockets {
                // Who is refused at once is told so.
                let _ = socket.send_to(MARKER, to);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| send(120));
        std::thread::sleep(Duration::from_millis(100));
        node.run("sh").args(["-ec", &case.begin]).stdout().unwrap();
        sending.join().unwrap();
    });
    node.run("sh").args(["-ec", &case.end]).stdout().unwrap();
    wire.finish().unwrap()
}

fn socket(place: &Namespace, to: IpAddr) -> UdpSocket {
    let any: SocketAddr = if to.is_ipv4() { ([0; 4], 0).into() } else { ([0_u16; 8], 0).into() };
    place.enter(|| Ok(UdpSocket::bind(any)?)).unwrap()
}

/// Counts frames of a family that show the marker.
fn leaks(frames: &Frames, is_v6: bool) -> usize {
    let kind: &[u8] = if is_v6 { &[0x86, 0xdd] } else { &[0x08, 0x00] };
    let of_family = |frame: &&Vec<u8>| frame.get(12..14) == Some(kind);
    frames.frames.iter().filter(of_family).filter(|frame| shows_marker(frame)).count()
}

fn shows_marker(frame: &[u8]) -> bool {
    frame.windows(MARKER.len()).any(|window| window == MARKER)
}

fn assert_connected(pair: &Pair, port: u16, after: &str) {
    for ip in pair.pod("west").ips() {
        let answer =
            traffic::send_udp(pair.pod_namespace("east"), (ip, port).into(), MARKER, CONNECT_TIMEOUT);
        answer
            .and_then(|receipt| receipt.check(MARKER))
            .unwrap_or_else(|error| panic!("after {after}: {error:#}"));
    }
}

/// Waits until the filter is there.
fn wait_guarded(node: &Namespace) {
    eventually("the filter", Duration::from_secs(15), || {
        let listed = node.run("nft").args(["-t", "list", "table", "inet", "trieste"]).output()?;
        anyhow::ensure!(listed.status.success(), "{}", listed.stderr);
        Ok(())
    })
    .unwrap();
}

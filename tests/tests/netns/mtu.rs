//! What does not fit the cable: the pod is told (and really hears it), or the packet is cut; TCP never gets there.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use trieste_tests::capture::Capture;
use trieste_tests::guard::root_test;
use trieste_tests::pair::Pair;
use trieste_tests::topology::Families;
use trieste_tests::traffic::{self, Responder};

/// IPv4 or IPv6 header and ICMP echo header, in bytes.
fn echo_overhead_bytes(address: IpAddr) -> u32 {
    if address.is_ipv4() { 28 } else { 48 }
}

#[test]
fn too_big_with_df_is_answered_with_the_mtu_and_one_byte_less_passes() {
    let Some(_turn) = root_test("too_big_with_df_is_answered_with_the_mtu_and_one_byte_less_passes") else {
        return;
    };
    for underlay in [Families::V4, Families::V6] {
        let pair = Pair::connected(underlay).unwrap();
        let mtu = path_mtu_bytes(&pair);
        let pod = pair.pod_namespace("east");
        for address in pair.pod("west").ips() {
            let fits = (mtu - echo_overhead_bytes(address)).to_string();
            let exceeds = (mtu - echo_overhead_bytes(address) + 1).to_string();

            // The pod's kernel remembers a path's MTU: what exceeds it goes first, and is told by the gateway.
            let run =
                pod.run("ping").args(["-n", "-c", "2", "-i", "0.2", "-W", "1", "-M", "do", "-s", &exceeds]);
            let output = run.arg(address.to_string()).output().unwrap();
            let said = output.stdout + &output.stderr;
            let told = said.contains(&format!("mtu = {mtu}")) || said.contains(&format!("mtu={mtu}"));
            assert!(told, "{exceeds} bytes to {address} over {underlay:?}, MTU {mtu}:\n{said}");
            let ping = traffic::ping(pod, address, 3, &["-M", "do", "-s", &fits]).unwrap();
            assert_eq!(ping.received, 3, "{fits} bytes to {address} over {underlay:?}");
        }
    }
}

#[test]
fn too_big_without_df_is_fragmented() {
    let Some(_turn) = root_test("too_big_without_df_is_fragmented") else { return };
    let pair = Pair::connected(Families::V4).unwrap();
    let address = pair.pod("west").v4().unwrap();

    for size in ["1400", "1472", "3000", "9000"] {
        let ping =
            traffic::ping(pair.pod_namespace("east"), address, 3, &["-M", "dont", "-s", size]).unwrap();
        assert_eq!(ping.received, 3, "{size} bytes");
    }
}

#[test]
fn tcp_segments_are_clamped_in_both_directions() {
    let Some(_turn) = root_test("tcp_segments_are_clamped_in_both_directions") else { return };
    let pair = Pair::connected(Families::V4).unwrap();
    let mtu = path_mtu_bytes(&pair);
    let responder = Responder::start(pair.pod_namespace("west")).unwrap();
    for address in pair.pod("west").ips() {
        let header_bytes = if address.is_ipv4() { 40 } else { 60 };
        let captures = [("west", "syn"), ("east", "syn-ack")].map(|(cluster, what)| {
            let node = &pair.plan.cluster(cluster).gateway().namespace;
            (what, Capture::start(&pair.lab, node, "cni0", "tcp or ip6").unwrap())
        });

        let target = SocketAddr::new(address, responder.port());
        traffic::send_tcp(pair.pod_namespace("east"), target, b"x", Duration::from_secs(10)).unwrap();

        for (what, capture) in captures {
            let frames = capture.finish().unwrap();
            let listing =
                std::process::Command::new("tcpdump").arg("-nvr").arg(&frames.file).output().unwrap();
            let text = String::from_utf8_lossy(&listing.stdout).into_owned();
            let flags = if what == "syn" { "Flags [S]" } else { "Flags [S.]" };
            let syn = text
                .lines()
                .find(|line| line.contains(flags))
                .unwrap_or_else(|| panic!("no {what}:\n{text}"));
            let mss = format!("mss {}", mtu - header_bytes);
            assert!(syn.contains(&mss), "{what} to {address} should say {mss}: {syn}");
        }
    }
}

fn path_mtu_bytes(pair: &Pair) -> u32 {
    let status = pair.east.status().unwrap();
    let mtu = status.connections[0].lane.path_mtu_bytes.expect("a connected lane knows its MTU");
    assert!((1280..1500).contains(&mtu), "{mtu}");
    mtu
}

//! Gateway and route agent with the rights that their containers have, with fewer, and with all of root's.

use std::time::Duration;

use trieste_tests::cluster::{Cluster, Settings};
use trieste_tests::command::Run;
use trieste_tests::daemon::Daemon;
use trieste_tests::guard::root_test;
use trieste_tests::lab::Lab;
use trieste_tests::pair::Pair;
use trieste_tests::topology::{Families, Topology};
use trieste_tests::traffic;
use trieste_tests::wait::eventually;

/// What a container runtime does with a pod of ours: nothing can be written but what is mounted, kernel parameters only
/// under another name, and no rights but these. The lab's directory stands for the node's that is mounted.
const CONTAINER: &str = r#"set -e
lab=$(dirname "$1")
rights=$2
host=$1/host/proc/sys
shift 2
mkdir -p "$host/net"
mount --bind "$lab" "$lab"
mount --bind /proc/sys/net "$host/net"
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
mount -o remount,bind,ro /
for file in /etc/written /proc/sys/net/ipv4/conf/all/rp_filter; do
    if (: >"$file") 2>/dev/null; then
        echo "$file can be written: this is no container" >&2
        exit 1
    fi
done
TRIESTE_PROC_SYS=$host exec setpriv --bounding-set="-all$rights" --inh-caps=-all --no-new-privs -- "$@""#;

/// Bits of capabilities, as `/proc/PID/status` has them.
const NET_ADMIN: u64 = 1 << 12;
const NET_RAW: u64 = 1 << 13;

/// The words that confine a program to these rights.
pub(crate) fn confined(rights: &str) -> [&str; 10] {
    [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        CONTAINER,
        "container",
        "DIRECTORY",
        rights,
    ]
}

/// One set of a process's capabilities.
fn rights(daemon: &Daemon, set: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.id().pid)).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(set)).unwrap();
    u64::from_str_radix(line.trim_start_matches(':').trim(), 16).unwrap()
}

fn assert_pods_reach_each_other(pair: &Pair) {
    for address in pair.pod("west").ips() {
        eventually("the pods to reach each other", Duration::from_secs(15), || {
            let ping = traffic::ping(pair.pod_namespace("east"), address, 3, &["-s", "1300"])?;
            anyhow::ensure!(ping.received == 3, "{} of 3 from {address}", ping.received);
            Ok(())
        })
        .unwrap();
    }
}

/// What was complained of in a log.
fn complaints(daemon: &Daemon) -> Vec<String> {
    let log = daemon.log_text();
    log.lines().filter(|line| line.contains(" WARN ") || line.contains("ERROR")).map(str::to_owned).collect()
}

#[test]
fn two_capabilities_and_a_read_only_root_are_enough_for_everything() {
    let Some(_turn) = root_test("two_capabilities_and_a_read_only_root_are_enough_for_everything") else {
        return;
    };
    let topology = Topology::two_clusters().with_underlay(Families::V4);
    let pair = Pair::connected_confined(&topology, &[], &confined(",+net_admin,+net_raw")).unwrap();

    assert_pods_reach_each_other(&pair);
    for cluster in [&pair.east, &pair.west] {
        for daemon in [cluster.gateway().unwrap(), cluster.route_agent().unwrap()] {
            for set in ["CapEff", "CapPrm", "CapBnd"] {
                assert_eq!(rights(daemon, set), NET_ADMIN | NET_RAW, "{set} of {}", daemon.log().display());
            }
            let about_rights: Vec<_> = complaints(daemon)
                .into_iter()
                .filter(|line| {
                    line.contains("sysctl") || line.contains("apabilit") || line.contains("Permission")
                })
                .collect();
            assert!(about_rights.is_empty(), "{about_rights:?}");
        }
        let of_device = cluster.node().namespace.run("cat").args(
            ["rp_filter", "accept_local", "forwarding"]
                .map(|key| format!("/proc/sys/net/ipv4/conf/submariner/{key}")),
        );
        assert_eq!(of_device.stdout().unwrap(), "0\n1\n1\n");
        // Pings of the health check need the right to raw sockets.
        eventually("the health check to get answers", Duration::from_secs(20), || {
            let status = cluster.status()?;
            let names: Vec<_> = status.conditions.iter().map(|condition| condition.name.as_str()).collect();
            anyhow::ensure!(
                !names.contains(&"CannotProbe") && !names.contains(&"CapabilityMissing"),
                "{names:?}"
            );
            anyhow::ensure!(!names.contains(&"StateNotKept"), "{names:?}");
            let latency =
                status.connections.iter().filter_map(|cable| cable.connection.latency_rtt.as_ref()).count();
            anyhow::ensure!(latency == 1, "no round trips yet");
            Ok(())
        })
        .unwrap();
    }
}

#[test]
fn a_gateway_without_its_vital_right_ends_with_what_is_missing_and_how_to_grant_it() {
    let name = "a_gateway_without_its_vital_right_ends_with_what_is_missing_and_how_to_grant_it";
    let Some(_turn) = root_test(name) else { return };
    let lab = Lab::new().unwrap();
    let plan = lab.build(&Topology::two_clusters()).unwrap();
    let wrap = confined("").map(str::to_owned).to_vec();
    let settings = Settings { wrap, ..Settings::of(&lab) };
    let cluster = Cluster::start(&lab, plan.cluster("east"), &settings).unwrap();

    for (daemon, cost) in [
        (cluster.gateway().unwrap(), "cannot make its TUN device"),
        (cluster.route_agent().unwrap(), "cannot program links, routes, rules and filters"),
    ] {
        assert!(daemon.id().wait_end(Duration::from_secs(20)), "it goes on without any right");
        let log = daemon.log_text();
        for part in [
            "misses the capabilities NET_ADMIN, NET_RAW",
            cost,
            "without NET_RAW it cannot ping remote gateways",
            "securityContext.capabilities.add: [NET_ADMIN, NET_RAW]",
            "--cap-add NET_ADMIN --cap-add NET_RAW",
        ] {
            assert!(log.contains(part), "{part:?} is not in: {log}");
        }
    }
    let links =
        Run::in_namespace(cluster.node().namespace.name(), "ip").args(["-o", "link"]).stdout().unwrap();
    assert!(!links.contains("submariner"), "{links}");
}

#[test]
fn without_raw_sockets_pods_reach_each_other_and_the_status_says_what_is_missing() {
    let name = "without_raw_sockets_pods_reach_each_other_and_the_status_says_what_is_missing";
    let Some(_turn) = root_test(name) else { return };
    let topology = Topology::two_clusters().with_underlay(Families::V4);
    let pair = Pair::connected_confined(&topology, &[], &confined(",+net_admin")).unwrap();

    assert_pods_reach_each_other(&pair);
    let status = pair.east.status().unwrap();
    let missing = status.conditions.iter().find(|condition| condition.name == "CapabilityMissing").unwrap();
    assert_eq!(missing.subject, "NET_RAW");
    assert!(missing.message.contains("ping remote gateways"), "{missing:?}");
    let said = complaints(pair.east.gateway().unwrap());
    assert!(said.iter().any(|line| line.contains("--cap-add NET_RAW")), "{said:?}");
}

#[test]
fn started_as_root_they_give_up_every_right_that_they_do_not_need() {
    let Some(_turn) = root_test("started_as_root_they_give_up_every_right_that_they_do_not_need") else {
        return;
    };
    let pair = Pair::connected(Families::V4).unwrap();

    assert_pods_reach_each_other(&pair);
    for daemon in [pair.east.gateway().unwrap(), pair.east.route_agent().unwrap()] {
        for set in ["CapEff", "CapPrm", "CapBnd"] {
            assert_eq!(rights(daemon, set), NET_ADMIN | NET_RAW, "{set} of {}", daemon.log().display());
        }
        assert_eq!(rights(daemon, "NoNewPrivs"), 1);
    }
    // The gateway's memory has keys in it.
    let limits =
        std::fs::read_to_string(format!("/proc/{}/limits", pair.east.gateway().unwrap().id().pid)).unwrap();
    let core = limits.lines().find_map(|line| line.strip_prefix("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().take(2).collect::<Vec<_>>(), ["0", "0"]);
}

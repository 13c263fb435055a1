//! A gateway that cannot work says why, names what is wrong and where, and ends with an error; clusters that cannot
//! be connected are refused and shown.

use std::net::UdpSocket;
use std::path::PathBuf;
use std::time::Duration;

use trieste_tests::cluster::{Cluster, Settings};
use trieste_tests::command::Run;
use trieste_tests::guard::root_test;
use trieste_tests::lab::Lab;
use trieste_tests::pair::CONNECT_TIMEOUT;
use trieste_tests::topology::{ClusterShape, Families, Plan, Topology};
use trieste_tests::wait::eventually;
use trieste_tests::{programs, traffic};

/// A lab with a node, and a configuration that works.
struct Bench {
    plan: Plan,
    lab: Lab,
}

impl Bench {
    fn new() -> Self {
        let lab = Lab::new().unwrap();
        let plan = lab.build(&Topology::two_clusters()).unwrap();
        Self { plan, lab }
    }

    fn good(&self) -> Vec<String> {
        let directory = self.lab.directory().display().to_string();
        [
            "cluster-id: east",
            "cluster-cidrs: [10.1.0.0/16]",
            "service-cidrs: [10.101.0.0/16]",
            "private-ip: 172.31.1.1",
            "psk: secret",
            &format!("state-dir: {directory}/state"),
            &format!("admin-socket: {directory}/gateway.sock"),
        ]
        .map(str::to_owned)
        .to_vec()
    }

    fn gateway(&self, lines: &[String]) -> Run {
        let path: PathBuf = self.lab.directory().join("gateway.yaml");
        std::fs::write(&path, lines.join("\n") + "\n").unwrap();
        let program = programs::path("trieste-gateway").unwrap();
        let node = &self.plan.cluster("east").gateway().namespace;
        node.run("env").args(["RUST_BACKTRACE=0"]).arg(program).arg("--config").arg(path)
    }

    /// Runs a gateway that has to fail, and returns what it said.
    fn complaint(&self, run: &Run) -> String {
        let output = run.clone().timeout(Duration::from_secs(10)).output().unwrap();
        assert!(!output.status.success(), "the gateway must not succeed");
        assert!(!output.stderr.contains("panicked"), "{}", output.stderr);
        output.stderr + &output.stdout
    }
}

#[test]
fn a_bad_configuration_is_refused_with_key_and_value() {
    let Some(_turn) = root_test("a_bad_configuration_is_refused_with_key_and_value") else { return };
    let bench = Bench::new();
    let replaced = |key: &str, line: &str| {
        let mut lines = bench.good();
        lines.retain(|other| !other.starts_with(key));
        lines.push(line.to_owned());
        lines
    };
    let cases = [
        (replaced("cluster-id", ""), vec!["cluster-id"]),
        (replaced("cluster-id", "cluster-id: Not_A_Name"), vec!["cluster-id", "Not_A_Name"]),
        (replaced("cluster-cidrs", "cluster-cidrs: [10.1.0.0/33]"), vec!["cluster-cidrs", "10.1.0.0/33"]),
        (replaced("nothing", "wrokers: 2"), vec!["wrokers", "gateway.yaml"]),
        (replaced("nothing", "udp-port: 70000"), vec!["udp-port", "70000"]),
        (replaced("nothing", "broker: ftp://somewhere"), vec!["broker", "dir:"]),
        (replaced("nothing", "cable-driver: carrier-pigeon"), vec!["carrier-pigeon", "wireguard"]),
        (
            replaced("nothing", "global-cidrs: [10.1.16.0/20]"),
            vec!["global-cidrs", "10.1.16.0/20", "10.1.0.0/16"],
        ),
        (replaced("nothing", "global-cidrs: ['fd00:2::/64']"), vec!["global-cidrs", "IPv6"]),
        (replaced("nothing", "globalnet: {udp-timeout: 0}"), vec!["globalnet.udp-timeout", "0 s"]),
        (replaced("nothing", "globalnet: {max-sessions: 7}"), vec!["globalnet.max-sessions", "1024"]),
        (replaced("nothing", "globalnet: {udp-timeouts: 7}"), vec!["udp-timeouts", "gateway.yaml"]),
    ];

    for (lines, words) in cases {
        let said = bench.complaint(&bench.gateway(&lines));
        for word in words {
            assert!(said.contains(word), "\"{word}\" is not named in:\n{said}");
        }
    }
}

#[test]
fn a_node_that_lacks_something_is_told_what() {
    let Some(_turn) = root_test("a_node_that_lacks_something_is_told_what") else { return };
    let bench = Bench::new();
    let node = &bench.plan.cluster("east").gateway().namespace;

    let taken = node.enter(|| Ok(UdpSocket::bind("0.0.0.0:4500")?)).unwrap();
    let said = bench.complaint(&bench.gateway(&bench.good()));
    assert!(said.contains("4500") && said.contains("in use"), "{said}");
    drop(taken);

    let mut lines = bench.good();
    lines.retain(|line| !line.starts_with("state-dir"));
    lines.push("state-dir: /dev/null/state".to_owned());
    let said = bench.complaint(&bench.gateway(&lines));
    assert!(said.contains("/dev/null/state"), "{said}");

    let no_rights = ["--inh-caps=-all", "--bounding-set=-all", "--ambient-caps=-all"];
    let said = bench.complaint(&wrapped(&bench, "setpriv", &no_rights));
    assert!(said.contains("CAP_NET_ADMIN") || said.contains("root"), "{said}");

    let no_tun = ["--mount", "sh", "-c", "mount -t tmpfs none /dev/net && exec \"$@\"", "sh"];
    let said = bench.complaint(&wrapped(&bench, "unshare", &no_tun));
    assert!(said.contains("/dev/net/tun"), "{said}");
}

/// The gateway with a good configuration, started by another program.
fn wrapped(bench: &Bench, by: &str, words: &[&str]) -> Run {
    let config = bench.lab.directory().join("gateway.yaml");
    std::fs::write(&config, bench.good().join("\n") + "\n").unwrap();
    let node = &bench.plan.cluster("east").gateway().namespace;
    let run = node.run(by).args(words).arg(programs::path("trieste-gateway").unwrap());
    run.arg("--config").arg(config)
}

#[test]
fn a_cluster_with_overlapping_prefixes_is_refused_and_the_first_stays() {
    let test = "a_cluster_with_overlapping_prefixes_is_refused_and_the_first_stays";
    let Some(_turn) = root_test(test) else { return };
    let lab = Lab::new().unwrap();
    let mut topology = Topology::two_clusters().with_underlay(Families::V4);
    topology.clusters.push(ClusterShape {
        id: "north".to_owned(),
        network: 2,
        nodes: 1,
        gateways: 1,
        pods: 1,
        inner: Families::Dual,
        is_global: false,
    });
    let plan = lab.build(&topology).unwrap();
    let settings = Settings::of(&lab);
    let east = Cluster::start(&lab, plan.cluster("east"), &settings).unwrap();
    let _west = Cluster::start(&lab, plan.cluster("west"), &settings).unwrap();
    east.wait_handshakes(1, CONNECT_TIMEOUT).unwrap();
    // Objects carry their time of creation in whole seconds: north has to be later than west.
    std::thread::sleep(Duration::from_millis(1100));

    let _north = Cluster::start(&lab, plan.cluster("north"), &settings).unwrap();

    let refused = eventually("north to be refused", CONNECT_TIMEOUT, || {
        let refused = east.status()?.refused;
        anyhow::ensure!(!refused.is_empty(), "nothing is refused");
        Ok(refused)
    })
    .unwrap();
    assert_eq!(refused[0].cluster, "north", "{refused:?}");
    assert!(refused[0].reason.contains("overlaps") && refused[0].reason.contains("west"), "{refused:?}");
    let status = east.wait_handshakes(1, CONNECT_TIMEOUT).unwrap();
    assert_eq!(status.connections.len(), 1);
    let (from, to) = (plan.cluster("east").pod(0), plan.cluster("west").pod(0));
    assert_eq!(traffic::ping(&from.namespace, to.v4().unwrap(), 3, &[]).unwrap().received, 3);
}

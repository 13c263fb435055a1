//! What a neighbour does to the metrics port keeps no kubelet from its answer: idle connections, heads that never end,
//! readers that do not read.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use trieste_tests::cluster::{Cluster, Settings};
use trieste_tests::guard::root_test;
use trieste_tests::lab::Lab;
use trieste_tests::netns::Namespace;
use trieste_tests::topology::Topology;
use trieste_tests::traffic;
use trieste_tests::wait::eventually;

const PORT: u16 = 32780;
/// A kubelet gives up after two seconds.
const PROBE: Duration = Duration::from_secs(2);
/// How long the neighbour goes on: at night for as long as a kubelet needs to have the pod killed, ten times over.
const FLOOD: Duration = Duration::from_secs(6);
const NIGHTLY_FLOOD: Duration = Duration::from_secs(180);

#[test]
fn a_neighbour_that_takes_all_connections_it_can_get_keeps_no_kubelet_from_its_answer() {
    let name = "a_neighbour_that_takes_all_connections_it_can_get_keeps_no_kubelet_from_its_answer";
    let Some(_turn) = root_test(name) else { return };
    let lab = Lab::new().unwrap();
    let plan = lab.build(&Topology::two_clusters()).unwrap();
    let east = Cluster::start(&lab, plan.cluster("east"), &Settings::of(&lab)).unwrap();
    let node = &east.node().namespace;
    let neighbour = &plan.cluster("west").gateway().namespace;
    let port = SocketAddr::new("172.31.1.1".parse().unwrap(), PORT);
    let loopback = SocketAddr::new("127.0.0.1".parse().unwrap(), PORT);
    eventually("an answer", Duration::from_secs(20), || ask(node, loopback, "/healthz")).unwrap();

    let is_night = std::env::var_os("TRIESTE_NIGHTLY").is_some();
    let end = Instant::now() + if is_night { NIGHTLY_FLOOD } else { FLOOD };
    let mut held = Vec::new();
    let (mut probes, mut slowest) = (0, Duration::ZERO);
    while Instant::now() < end {
        // Some say nothing, some a byte every time, some ask and do not read.
        while held.len() < 100 {
            let stream = neighbour.enter(|| Ok(TcpStream::connect_timeout(&port, PROBE)?)).unwrap();
            stream.set_nonblocking(true).unwrap();
            held.push(stream);
        }
        for (number, stream) in held.iter_mut().enumerate() {
            let _ = match number % 3 {
                0 => Ok(()),
                1 => stream.write_all(b"G"),
                _ => stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"),
            };
        }
        for address in [loopback, port] {
            let start = Instant::now();
            ask(node, address, "/healthz")
                .unwrap_or_else(|error| panic!("{address}, probe {probes}: {error:?}"));
            (probes, slowest) = (probes + 1, slowest.max(start.elapsed()));
        }
        let is_open = |stream: &TcpStream| match stream.peek(&mut [0]) {
            Ok(count) => count > 0,
            Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
        };
        held.retain(is_open);
        std::thread::sleep(Duration::from_millis(100));
    }
    eprintln!("{probes} probes were answered, the slowest within {slowest:?}");
    let page = ask(node, loopback, "/metrics").unwrap();
    let refused =
        page.lines().find_map(|line| line.strip_prefix("trieste_metrics_refused_connections_total "));
    assert!(refused.unwrap().parse::<u64>().unwrap() > 90, "{refused:?}");
    // Another neighbour still gets its page: one alone does not take what all have.
    ask(&plan.wan, port, "/metrics").unwrap();
}

/// What is answered from inside a namespace, if it is 200 in time.
fn ask(from: &Namespace, to: SocketAddr, path: &str) -> anyhow::Result<String> {
    traffic::get(from, to, path, PROBE)
}

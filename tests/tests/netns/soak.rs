//! Minutes of mixed load with peers that are killed and restarted: memory stays, no packet is unaccounted for.
//!
//! East's gateway is watched and lives on; west's is killed every few seconds, so that handshakes happen all the time.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use trieste_tests::flow::Flow;
use trieste_tests::guard::root_test;
use trieste_tests::pair::Pair;
use trieste_tests::process::ProcessId;
use trieste_tests::topology::Families;
use trieste_tests::traffic::{self, Responder};

/// How long, unless `TRIESTE_SOAK_SECONDS` says otherwise (`./dev test --nightly`: 300).
const SECONDS: u64 = 90;
const SAMPLE: Duration = Duration::from_secs(2);
const LIFE: Duration = Duration::from_secs(8);
/// What is between two transfers: without it they would take the processors from the tests beside this one.
const REST: Duration = Duration::from_millis(250);

#[test]
fn memory_stays_and_every_packet_is_accounted_for() {
    let Some(_turn) = root_test("memory_stays_and_every_packet_is_accounted_for") else { return };
    let mut pair = Pair::connected(Families::Dual).unwrap();
    let responder = Responder::start(pair.pod_namespace("west")).unwrap();
    let targets: Vec<_> =
        pair.pod("west").ips().into_iter().map(|ip| SocketAddr::new(ip, responder.port())).collect();
    let [pod, far] = ["east", "west"].map(|cluster| pair.pod_namespace(cluster).clone());
    let gateway = pair.east.gateway().unwrap().id();
    let (is_over, transfers, mut samples) = (AtomicBool::new(false), AtomicU64::new(0), Vec::new());

    std::thread::scope(|scope| {
        let flow = |to: &SocketAddr| {
            Flow::start(&pod, (&far, to.ip()), &[7; 1200], Duration::from_millis(2)).unwrap()
        };
        let flows: Vec<_> = targets.iter().map(flow).collect();
        for target in &targets {
            scope.spawn(|| {
                let bytes = vec![1; 4 << 20];
                while !is_over.load(Ordering::Relaxed) {
                    // Fails whenever its peer is killed in the middle; what counts is that later ones succeed.
                    let sent = traffic::send_tcp(&pod, *target, &bytes, Duration::from_secs(3));
                    transfers.fetch_add(u64::from(sent.is_ok()), Ordering::Relaxed);
                    std::thread::sleep(REST);
                }
            });
        }
        samples = live(&mut pair, gateway, duration());
        is_over.store(true, Ordering::Relaxed);
        for flow in flows {
            let seen = flow.finish();
            assert!(seen.answered() > seen.sent / 3, "{seen:?}");
        }
    });

    assert!(transfers.load(Ordering::Relaxed) > 10, "{transfers:?} transfers succeeded");
    let growth = growth_per_minute(&samples);
    eprintln!(
        "{transfers:?} transfers; memory {:?} bytes, growing {growth:.0} bytes a minute",
        samples.last()
    );
    // Queues and caches reach their size in the first two minutes; a short soak sees little else.
    let limit = if duration() < Duration::from_secs(300) { 4 << 20 } else { 1 << 20 };
    assert!(growth < f64::from(limit), "memory grows by {growth:.0} bytes a minute: {samples:?}");
    pair.west.wait_handshakes(1, Duration::from_secs(20)).unwrap();
    let status = pair.east.wait_handshakes(1, Duration::from_secs(20)).unwrap();
    assert!(status.conservation.holds(), "{:?}", status.conservation);
    assert!(status.workers.iter().all(|worker| worker.restarts == 0), "{:?}", status.workers);
}

/// Kills and restarts west again and again; returns the watched gateway's memory over time.
fn live(pair: &mut Pair, gateway: ProcessId, duration: Duration) -> Vec<u64> {
    let (start, mut last_kill, mut samples) = (Instant::now(), Instant::now(), Vec::new());
    while start.elapsed() < duration {
        trieste_tests::interrupt::pause(SAMPLE).unwrap();
        samples.push(gateway.resident_bytes().unwrap());
        if last_kill.elapsed() > LIFE {
            pair.west.kill_gateway().unwrap();
            pair.west.start_gateway().unwrap();
            last_kill = Instant::now();
        }
    }
    samples
}

/// Bytes per minute over the last three fifths of the samples, from the medians of its first and last third.
fn growth_per_minute(samples: &[u64]) -> f64 {
    let late = &samples[samples.len() * 2 / 5..];
    let third = late.len() / 3;
    let median = |part: &[u64]| {
        let mut part = part.to_vec();
        part.sort_unstable();
        part[part.len() / 2] as f64
    };
    let minutes = SAMPLE.as_secs_f64() * (late.len() - third) as f64 / 60.0;
    (median(&late[late.len() - third..]) - median(&late[..third])) / minutes
}

fn duration() -> Duration {
    let seconds = std::env::var("TRIESTE_SOAK_SECONDS");
    Duration::from_secs(
        seconds.map_or(SECONDS, |text| text.parse().expect("TRIESTE_SOAK_SECONDS is a number")),
    )
}

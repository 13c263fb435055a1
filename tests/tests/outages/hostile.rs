//! Bad input from the underlay and from pods: it is counted and dropped, nothing grows, good traffic goes on.
//!
//! ```text
//!   east pod ── east gateway ══ WAN ══ west gateway ── west pod      (a prober sends all the time)
//!                                └── attacker: sockets in the WAN namespace
//! ```

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use trieste_simulator::Random;
use trieste_tests::capture::Capture;
use trieste_tests::cluster::Cluster;
use trieste_tests::flow::Flow;
use trieste_tests::guard::root_test;
use trieste_tests::pair::Pair;
use trieste_tests::topology::Families;
use trieste_tests::traffic;
use trieste_tests::wait::eventually;

const INTERVAL: Duration = Duration::from_millis(5);
/// What a flood may add to the gateway's memory, in bytes: queues and pools may fill once.
const GROWTH_LIMIT_BYTES: u64 = 16 << 20;

#[test]
fn garbage_truncated_and_oversized_datagrams_are_dropped() {
    let Some(_turn) = root_test("garbage_truncated_and_oversized_datagrams_are_dropped") else { return };
    for underlay in [Families::V4, Families::V6] {
        let pair = Pair::connected(underlay).unwrap();
        under_attack(&pair, |attacker| {
            let mut random = Random::new(0x5eed);
            for round in 0..20_000_u32 {
                let length = match round % 10 {
                    0..8 => random.below(256),
                    8 => 1400,
                    // Larger than any MTU: arrives in fragments.
                    _ => {
                        if round % 1000 == 9 {
                            60_000
                        } else {
                            0
                        }
                    }
                };
                let mut bytes: Vec<u8> = (0..length).map(|_| random.between(0, 255)).collect();
                // Half of them look like WireGuard at first sight.
                if round % 2 == 0 && length >= 4 {
                    bytes[..4].copy_from_slice(&[random.below(5), 0, 0, 0]);
                }
                let _ = attacker.send(&bytes);
                if round % 200 == 0 {
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        });
    }
}

#[test]
fn replayed_datagrams_open_once() {
    let Some(_turn) = root_test("replayed_datagrams_open_once") else { return };
    let pair = Pair::connected(Families::V4).unwrap();
    let (east, west) = (pair.pod("east"), pair.pod("west"));
    let wire = Capture::start(&pair.lab, &pair.plan.wan, "br0", "udp dst port 4500 and dst host 172.31.1.1")
        .unwrap();
    assert_eq!(traffic::ping_many(&west.namespace, east.v4().unwrap(), 50, &[]).unwrap().received, 50);
    let recorded: Vec<Vec<u8>> =
        wire.finish().unwrap().frames.iter().map(|frame| frame[42..].to_vec()).collect();
    assert!(recorded.len() >= 50);
    let inside = Capture::start(&pair.lab, &east.namespace, "eth0", "icmp").unwrap();

    under_attack(&pair, |attacker| {
        for datagram in recorded.iter().cycle().take(recorded.len() * 20) {
            let _ = attacker.send(datagram);
        }
    });

    assert_eq!(inside.finish().unwrap().frames.len(), 0, "a replayed packet reached a pod");
    eventually("replays to be counted", Duration::from_secs(5), || {
        let drops = pair.east.status()?.drops;
        anyhow::ensure!(
            drops.iter().any(|drop| drop.reason.contains("replay") && drop.packets >= 500),
            "{drops:?}"
        );
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_flood_of_handshake_initiations_does_not_stop_traffic() {
    let Some(_turn) = root_test("a_flood_of_handshake_initiations_does_not_stop_traffic") else { return };
    let mut pair = Pair::connected(Families::V4).unwrap();
    let filter = "udp dst port 4500 and dst host 172.31.1.1 and udp[8] = 1";
    let wire = Capture::start(&pair.lab, &pair.plan.wan, "br0", filter).unwrap();
    // A restarted gateway shakes hands anew: its initiation carries a valid mac1.
    pair.west.kill_gateway().unwrap();
    pair.west.start_gateway().unwrap();
    pair.west.wait_handshakes(1, Duration::from_secs(20)).unwrap();
    let initiation = wire.finish().unwrap().frames.first().expect("an initiation was sent")[42..].to_vec();
    assert_eq!(initiation.len(), 148);

    under_attack(&pair, |attacker| {
        for round in 0..20_000 {
            let mut datagram = initiation.clone();
            if round % 2 == 1 {
                // A wrong mac1: not even worth a look at the key.
                datagram[120] ^= 1;
            }
            let _ = attacker.send(&datagram);
            if round % 50 == 0 {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    });
}

#[test]
fn a_pod_with_a_foreign_source_is_not_carried() {
    let Some(_turn) = root_test("a_pod_with_a_foreign_source_is_not_carried") else { return };
    let pair = Pair::connected(Families::V4).unwrap();
    let (east, west) = (pair.pod("east"), pair.pod("west"));
    east.namespace.ip("addr add 192.0.2.7/32 dev eth0\naddr add 10.2.1.77/32 dev eth0").unwrap();
    let inside = Capture::start(&pair.lab, &west.namespace, "eth0", "icmp").unwrap();
    let before = dropped(&pair.east);

    for source in ["192.0.2.7", "10.2.1.77"] {
        let ping = traffic::ping(&east.namespace, west.v4().unwrap(), 5, &["-I", source]).unwrap();
        assert_eq!(ping.received, 0, "from {source}");
    }

    assert_eq!(inside.finish().unwrap().frames.len(), 0);
    // The second source belongs to the remote cluster: the node's own guard may take it before the gateway does.
    wait_dropped(&pair.east, before + 5);
}

/// Sends what `attack` sends to east's gateway while a prober measures, then checks what must hold after any attack.
fn under_attack(pair: &Pair, attack: impl FnOnce(&UdpSocket)) {
    let target = SocketAddr::new(pair.east.node().underlay_address(), 4500);
    let attacker = pair
        .plan
        .wan
        .enter(|| {
            let any: SocketAddr = if target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }.parse()?;
            let socket = UdpSocket::bind(any)?;
            socket.connect(target)?;
            Ok(socket)
        })
        .unwrap();
    let gateway = pair.east.gateway().unwrap().id();
    let (before, memory) = (dropped(&pair.east), gateway.resident_bytes().unwrap());
    let to = (pair.pod_namespace("west"), pair.pod("west").v4().unwrap());
    let flow = Flow::start(pair.pod_namespace("east"), to, b"good traffic", INTERVAL).unwrap();

    attack(&attacker);
    std::thread::sleep(Duration::from_millis(300));
    let seen = flow.finish();

    assert!(seen.answered() * 10 >= seen.sent * 9, "{seen:?}");
    assert!(seen.longest() < Duration::from_secs(1), "{seen:?}");
    let grown = gateway.resident_bytes().unwrap().saturating_sub(memory);
    assert!(grown < GROWTH_LIMIT_BYTES, "memory grew by {grown} bytes");
    wait_dropped(&pair.east, before + 1);
    let status = pair.east.wait_handshakes(1, Duration::from_secs(5)).unwrap();
    assert!(status.workers.iter().all(|worker| worker.restarts == 0), "{:?}", status.workers);
    assert!(status.conservation.holds(), "{:?}", status.conservation);
}

fn dropped(cluster: &Cluster) -> u64 {
    cluster.status().unwrap().drops.iter().map(|drop| drop.packets).sum()
}

/// Counters are published a few times a second.
fn wait_dropped(cluster: &Cluster, at_least: u64) {
    eventually("drops to be counted", Duration::from_secs(5), || {
        let now = dropped(cluster);
        anyhow::ensure!(now >= at_least, "{now} dropped, {at_least} expected");
        Ok(())
    })
    .unwrap();
}

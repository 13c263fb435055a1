//! Nodes that go back to Submariner's route agent, as it was recorded: flows go on, and nothing of ours is left.
//!
//! Workers come first, as `docs/operations/running.md` has it: ours is removed from a node, and then Submariner's agent writes
//! what it writes when it starts. In between the node has neither, and what is sent then does not arrive. The gateway's new device
//! has another MAC address than workers remember.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::cluster::{NODES, accept, cluster, everything, install};
use super::lab::{Ends, Lab};
use super::takeover::{Node, answered_meanwhile, as_upstreams_agent, open};

const RESTORE: &str = "iptables-nft-restore";
const INTERVAL: Duration = Duration::from_millis(10);
/// Longer than TCP needs to send again what was lost in a gap of a second or two.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(30);
/// What one message of the connection is.
const LENGTH: usize = size_of::<u64>();

/// Sends a numbered message every ten milliseconds over one connection while `work` runs, and has each sent back; returns how many
/// there were. Fails unless each came back, in its order.
fn connected_meanwhile(lab: &Lab, from: &str, work: impl FnOnce()) -> u64 {
    let listener = lab.inside("remote", || TcpListener::bind("10.2.0.9:7100")).unwrap();
    let mut client = lab.inside(from, || TcpStream::connect("10.2.0.9:7100")).unwrap();
    let (mut server, _) = accept(&listener).unwrap();
    let mut receiver = client.try_clone().unwrap();
    for stream in [&client, &server] {
        stream.set_read_timeout(Some(RECOVERY_TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(RECOVERY_TIMEOUT)).unwrap();
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = Ends(&is_over);
        scope.spawn(move || {
            let mut buffer = [0; LENGTH];
            while server.read_exact(&mut buffer).is_ok() {
                server.write_all(&buffer).unwrap();
            }
        });
        let sender = scope.spawn(|| {
            let mut count = 0_u64;
            while !is_over.load(Ordering::Relaxed) {
                client.write_all(&count.to_be_bytes()).unwrap();
                count += 1;
                thread::sleep(INTERVAL);
            }
            client.shutdown(std::net::Shutdown::Write).unwrap();
            count
        });
        let back = scope.spawn(move || {
            let (mut count, mut buffer) = (0_u64, [0; LENGTH]);
            while receiver.read_exact(&mut buffer).is_ok() {
                assert_eq!(u64::from_be_bytes(buffer), count);
                count += 1;
            }
            count
        });
        work();
        is_over.store(true, Ordering::Relaxed);
        let (sent, back) = (sender.join().unwrap(), back.join().unwrap());
        assert_eq!(back, sent, "messages that came back");
        sent
    })
}

/// Moves a node back; returns how long it had no agent's routes, at most.
fn go_back(lab: &Lab, node: Node) -> Duration {
    let began = Instant::now();
    lab.uninstall_on(node.0);
    as_upstreams_agent(lab, node, RESTORE);
    if node.0 == "gw1" {
        for worker in ["w1", "w2"] {
            lab.ip(worker, &["neigh", "flush", "dev", "vx-submariner"]);
        }
    }
    began.elapsed()
}

/// Returns how many datagrams were lost while `work` ran.
fn lost(lab: &Lab, work: impl FnOnce()) -> usize {
    let (sent, answered, _) = answered_meanwhile(lab, "pod-w1", INTERVAL, work);
    assert!(sent >= answered, "{answered} answers to {sent}");
    sent - answered
}

/// Returns everything on a node, without the index of the device between nodes, which is made anew.
fn state(lab: &Lab, place: &str) -> String {
    let without_index = |line: &str| match line.split_once(": ") {
        Some((_, rest)) if rest.starts_with("vx-submariner: ") => format!("{rest}\n"),
        _ => format!("{line}\n"),
    };
    everything(lab, place).lines().map(without_index).collect()
}

/// Returns the lines that only one of two states of a node has. The kernel lists entries of the FDB in any order.
fn different<'a>(found: &'a str, wanted: &'a str) -> Vec<&'a str> {
    let only = |one: &'a str, other: &str| -> Vec<&'a str> {
        one.lines().filter(|line| !other.lines().any(|there| there == *line)).collect()
    };
    [only(found, wanted), only(wanted, found)].concat()
}

#[test]
fn nodes_move_back_to_upstreams_route_agent_under_traffic() {
    let Some(lab) = cluster() else { return };
    NODES.iter().for_each(|(place, ..)| open(&lab, place));
    NODES.iter().for_each(|node| as_upstreams_agent(&lab, *node, RESTORE));
    let theirs = NODES.map(|(place, ..)| state(&lab, place));
    install(&lab);

    let mut gaps = Vec::new();
    let messages = connected_meanwhile(&lab, "pod-w1", || {
        for node in NODES.into_iter().rev() {
            let mut took = Duration::ZERO;
            let lost_in_gap = lost(&lab, || took = go_back(&lab, node));
            let lost_later = lost(&lab, || thread::sleep(Duration::from_secs(1)));
            gaps.push((node.0, took, lost_in_gap, lost_later));
        }
    });

    eprintln!(
        "{messages} messages came back; node, time without routes, datagrams lost then and later: {gaps:?}"
    );
    for (place, took, lost, lost_later) in gaps {
        assert_eq!(lost_later, 0, "{place} is back, and others may not be");
        // The other worker's gap concerns nobody else.
        let most = if place == "w2" { 0 } else { took.as_millis() / INTERVAL.as_millis() };
        assert!(lost as u128 <= most, "{place}: {lost} datagrams were lost in {took:?}");
    }
    for ((place, ..), theirs) in NODES.into_iter().zip(&theirs) {
        assert_eq!(different(&state(&lab, place), theirs), [""; 0], "{place}");
    }
}

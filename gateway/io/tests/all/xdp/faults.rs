//! What goes wrong around the rings: foreign programs, dying processes, links and addresses that change, full rings.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use trieste_io::Error;
use trieste_io::poll::{Interest, Poller};
use trieste_io::xdp::XdpMode;
use trieste_packet::Layout;

use super::{Cable, FAR, datagrams, drain, to, wait_until, warm_up};
use crate::support::{Side, noise};

/// The variable that makes a test the process that is killed.
const CHILD: &str = "TRIESTE_XDP_CHILD";

#[test]
fn each_step_down_has_a_reason_and_copy_mode_is_found() {
    let Some(cable) = Cable::new() else { return };
    let wire = cable.open(false, Some(XdpMode::ZeroCopy));
    assert_eq!(wire.xdp().mode(), XdpMode::Native, "veth has no zero-copy");
    let fallbacks = trieste_io::PacketIo::fallbacks(wire.xdp());
    let reason = fallbacks.iter().find(|fallback| fallback.feature == "xdp-zero-copy");
    assert!(reason.is_some_and(|fallback| fallback.reason.contains("not supported")), "{fallbacks:?}");
    assert!(cable.far.ip("link show vb").contains("xdp"));
    drop(wire);
    wait_until(|| !cable.far.ip("link show vb").contains("xdp"));
}

#[test]
fn a_foreign_program_stays_and_the_error_says_so() {
    let Some(cable) = Cable::new() else { return };
    let first = cable.open(false, Some(XdpMode::Generic));
    for mode in [XdpMode::ZeroCopy, XdpMode::Generic] {
        let before = cable.far.ip("link show vb");
        let result = cable.far.run(move || {
            let mut sockets = vec![trieste_io::UdpIo::open(&trieste_io::UdpConfig::new(0)).unwrap()];
            let config = trieste_io::xdp::XdpConfig { mode, ..trieste_io::xdp::XdpConfig::new("vb") };
            let error = trieste_io::xdp::XdpIo::open_group(&config, &mut sockets).map(drop);
            assert_eq!(sockets.len(), 1, "the sockets stay the caller's");
            error
        });
        assert!(matches!(result, Err(Error::ForeignProgram { .. })), "{mode}: {result:?}");
        assert_eq!(cable.far.ip("link show vb"), before);
    }
    drop(first);
}

#[test]
fn three_capabilities_are_enough_and_without_them_nothing_is_attached() {
    let Some(cable) = Cable::new() else { return };
    let all = CapabilitySet::BPF | CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW;
    for (kept, is_enough) in [(all.difference(CapabilitySet::BPF), false), (all, true)] {
        let result = cable.far.run(move || {
            let former = capabilities(None).unwrap();
            set_capabilities(None, rustix::thread::CapabilitySets { effective: kept, ..former }).unwrap();
            let mut sockets = vec![trieste_io::UdpIo::open(&trieste_io::UdpConfig::new(0)).unwrap()];
            let config =
                trieste_io::xdp::XdpConfig { ring_frames: 256, ..trieste_io::xdp::XdpConfig::new("vb") };
            let result =
                trieste_io::xdp::XdpIo::open_group(&config, &mut sockets).map(|group| group[0].mode());
            set_capabilities(None, former).unwrap();
            result
        });
        match result {
            Ok(mode) => assert!(is_enough && mode == XdpMode::Native),
            Err(error) => assert!(!is_enough && matches!(error, Error::NotPermitted { .. }), "{error}"),
        }
    }
}

#[test]
fn interfaces_that_are_not_there_or_not_ethernet_are_refused() {
    let Some(cable) = Cable::new() else { return };
    for name in ["nothing", "lo"] {
        let result = cable.open_with(false, Some(XdpMode::Generic), |config| trieste_io::xdp::XdpConfig {
            interface: name.to_owned(),
            ..config
        });
        assert!(matches!(result.map(drop), Err(Error::NoXdp { .. })), "{name}");
    }
}

#[test]
fn the_program_goes_with_a_killed_process_and_the_queue_can_be_had_again() {
    let Some(cable) = Cable::new() else { return };
    let mut child = cable.far.run(|| {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "xdp::faults::the_process_that_is_killed", "--nocapture"])
            .env(CHILD, "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    });
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("attached")));
    assert!(cable.far.ip("link show vb").contains("xdp"));
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until(|| !cable.far.ip("link show vb").contains("xdp"));
    // The kernel takes its time to free what the dead process had, and until then there is a lesser mode.
    wait_until(|| cable.open(false, Some(XdpMode::Native)).xdp().mode() == XdpMode::Native);
}

#[test]
fn the_process_that_is_killed() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let mut sockets = vec![trieste_io::UdpIo::open(&trieste_io::UdpConfig::new(super::PORT)).unwrap()];
    let _group =
        trieste_io::xdp::XdpIo::open_group(&trieste_io::xdp::XdpConfig::new("vb"), &mut sockets).unwrap();
    println!("attached");
    loop {
        std::thread::park();
    }
}

#[test]
fn a_new_address_is_ours_and_a_former_one_is_the_kernels() {
    let Some(cable) = Cable::new() else { return };
    let (mut near, mut far) = (cable.open(true, None), cable.open(false, Some(XdpMode::Native)));
    let (mut from, mut side) = (Side::new(), Side::new());
    cable.far.ip("addr add 10.79.0.77/24 dev vb");
    let mut came_by_rings = |host: &str| {
        let before = far.xdp().counters().received;
        from.push(b"which way").outer = to(host);
        from.send(&mut near);
        let got = datagrams(&drain(&mut side, &mut far, 1));
        assert_eq!(got[0].0.local, Some(host.parse().unwrap()));
        far.xdp().counters().received > before
    };
    wait_until(|| came_by_rings("10.79.0.77"));
    cable.far.ip("addr del 10.79.0.77/24 dev vb");
    // It is an address of the machine still, on an interface that has no program.
    cable.far.ip("addr add 10.79.0.77/32 dev lo");
    wait_until(|| !came_by_rings("10.79.0.77"));
    assert!(came_by_rings(FAR[0]));
}

#[test]
fn traffic_returns_after_the_link_was_down_and_goes_on_by_sockets_when_a_neighbour_is_unknown() {
    let Some(cable) = Cable::new() else { return };
    let (mut near, mut far) = (cable.open(true, Some(XdpMode::Native)), cable.open(false, None));
    let (mut from, mut side) = (Side::new(), Side::new());
    warm_up(&mut from, &mut near, FAR);
    cable.near.ip("link set va down");
    wait_until(|| {
        let before = near.xdp().counters();
        from.push(b"lost").outer = to(FAR[0]);
        from.send(&mut near);
        near.xdp().counters().sent == before.sent
    });
    cable.near.ip("link set va up");
    cable.near.ip("addr replace fd79::1/64 dev va nodad");
    warm_up(&mut from, &mut near, FAR);
    drain(&mut side, &mut far, 1);
    let before = near.xdp().counters().unresolved;
    cable.near.ip("neigh flush dev va");
    wait_until(|| {
        from.push(b"asked for").outer = to(FAR[0]);
        from.send(&mut near) == 1 && near.xdp().counters().unresolved > before
    });
    warm_up(&mut from, &mut near, FAR);
    assert!(!drain(&mut side, &mut far, 1).is_empty());
}

#[test]
fn another_station_of_a_neighbour_is_sent_to_and_a_smaller_link_makes_packets_go_by_sockets() {
    let Some(cable) = Cable::new() else { return };
    let (mut near, mut far) = (cable.open(true, Some(XdpMode::Native)), cable.open(false, None));
    let (mut from, mut side) = (Side::new(), Side::new());
    warm_up(&mut from, &mut near, FAR);
    drain(&mut side, &mut far, 1);
    let mut number = 0;
    let mut arrives = |near: &mut super::Wire, bytes: usize| {
        number += 1;
        let payload = noise(number, bytes);
        from.push(&payload).outer = to(FAR[0]);
        assert_eq!(from.send(near), 1);
        let limit = Instant::now() + Duration::from_secs(3);
        while Instant::now() < limit {
            if datagrams(&drain(&mut side, &mut far, 0)).iter().any(|(_, bytes)| *bytes == payload) {
                return true;
            }
        }
        false
    };
    assert!(arrives(&mut near, 1250));
    cable.near.ip("neigh replace 10.79.0.2 lladdr 02:00:00:00:00:77 dev va nud permanent");
    wait_until(|| !arrives(&mut near, 1250));
    cable.near.ip("neigh del 10.79.0.2 dev va");
    wait_until(|| arrives(&mut near, 1250));
    cable.near.ip("link set va mtu 1270");
    wait_until(|| {
        let before = near.xdp().counters().oversized;
        assert!(arrives(&mut near, 1250), "the kernel fragments");
        near.xdp().counters().oversized > before
    });
}

#[test]
fn esp_without_udp_goes_by_the_rings_where_it_is_ours() {
    let Some(cable) = Cable::new() else { return };
    for mode in [XdpMode::Generic, XdpMode::Native] {
        let esp = |config| trieste_io::xdp::XdpConfig { esp: true, ..config };
        let mut near = cable.open_with(true, Some(mode), esp).unwrap();
        let mut far = cable.open_with(false, Some(mode), esp).unwrap();
        let (mut from, mut side) = (Side::new(), Side::new());
        warm_up(&mut from, &mut near, FAR);
        drain(&mut side, &mut far, 0);
        for host in FAR {
            let before = far.xdp().counters().received_in_place;
            for number in 0..3 {
                let packet = from.push(&noise(number, 80));
                packet.outer = to(host);
                packet.outer.peer.set_port(0);
            }
            assert_eq!(from.send(&mut near), 3);
            let got = datagrams(&drain(&mut side, &mut far, 3));
            for (number, (outer, bytes)) in got.iter().enumerate() {
                assert_eq!((outer.peer.port(), bytes), (0, &noise(number as u64, 80)), "{mode} {host}");
            }
            assert_eq!(far.xdp().counters().received_in_place - before, 3);
        }
    }
}

#[test]
fn a_removed_device_leaves_everything_to_the_sockets() {
    let Some(cable) = Cable::new() else { return };
    let mut near = cable.open(true, Some(XdpMode::Native));
    let mut from = Side::new();
    warm_up(&mut from, &mut near, FAR);
    cable.near.ip("link del va");
    wait_until(|| {
        let before = near.xdp().counters().sent;
        from.push(b"nowhere").outer = to(FAR[0]);
        let sent = from.send(&mut near) as u64;
        assert_eq!(sent, near.xdp().counters().sent - before);
        near.xdp().counters().sent == before
    });
    assert!(from.drops.of(trieste_packet::DropReason::SocketWrite) > 0, "the sockets have no route");
    // Nothing is ready that nobody could take.
    let mut poller = Poller::new().unwrap();
    for fd in near.fds() {
        poller.add(fd, 0, Interest::Readable).unwrap();
    }
    assert!(poller.wait(Some(Duration::from_millis(20))).unwrap().is_empty());
    from.assert_nothing_leaked();
}

#[test]
fn full_rings_and_missing_frames_are_counted_and_nothing_is_stuck() {
    let Some(cable) = Cable::new() else { return };
    let small = |config| trieste_io::xdp::XdpConfig { ring_frames: 512, ..config };
    let mut near = cable.open(true, Some(XdpMode::Native));
    let mut far = cable.open_with(false, Some(XdpMode::Native), small).unwrap();
    let (mut from, mut side) = (Side::new(), Side::new());
    warm_up(&mut from, &mut near, FAR);
    drain(&mut side, &mut far, 0);
    let (sent, received) = (near.xdp().counters().sent, far.xdp().counters().received);
    for _ in 0..60 {
        let train = from.push(&noise(9, 40 * 200));
        train.layout = Layout::datagrams(200, 40);
        train.outer = to(FAR[0]);
        wait_until(|| {
            from.send(&mut near);
            from.batch.is_empty()
        });
    }
    let sent = near.xdp().counters().sent - sent;
    assert_eq!(sent, 2400);
    let mut count = 0;
    wait_until(|| {
        // Goes on with what the ring still has.
        from.send(&mut near);
        let more = drain(&mut side, &mut far, 0).len();
        count += more;
        count > 0 && more == 0 && far.xdp().counters().kernel_drops > 0
    });
    let counters = far.xdp().counters();
    // On a busy machine the veth's own queue is full now and then, which its sockets do not count.
    assert!(counters.received - received + counters.kernel_drops <= sent, "{counters:?}");
    // And it goes on.
    from.push(b"after").outer = to(FAR[1]);
    from.send(&mut near);
    assert_eq!(datagrams(&drain(&mut side, &mut far, 1))[0].1, b"after");
    assert_eq!(near.xdp().counters().kernel_refusals, 0);
}

#[test]
fn copies_are_counted_trains_both_ways_and_single_datagrams_on_the_way_out_only() {
    let Some(cable) = Cable::new() else { return };
    let (mut near, mut far) =
        (cable.open(true, Some(XdpMode::Generic)), cable.open(false, Some(XdpMode::Generic)));
    let (mut from, mut side) = (Side::new(), Side::new());
    warm_up(&mut from, &mut near, FAR);
    drain(&mut side, &mut far, 0);
    let (before_near, before_far) = (near.xdp().counters(), far.xdp().counters());
    let train = from.push(&noise(9, 10 * 900));
    train.layout = Layout::datagrams(900, 10);
    train.outer = to(FAR[0]);
    from.push(b"alone").outer = to(FAR[1]);
    assert_eq!(from.send(&mut near), 11);
    let packets = drain(&mut side, &mut far, 11);
    assert_eq!(packets.iter().map(|packet| packet.layout.count).collect::<Vec<_>>(), [10, 1]);
    let (near, far) = (near.xdp().counters(), far.xdp().counters());
    assert_eq!(near.sent_copied - before_near.sent_copied, 11);
    assert_eq!(far.received_copied - before_far.received_copied, 10);
    assert_eq!(far.received_in_place - before_far.received_in_place, 1);
    drop(packets);
}

#[test]
fn a_received_frame_is_sent_back_from_where_it_is() {
    let Some(cable) = Cable::new() else { return };
    let (mut near, mut far) = (cable.open(true, None), cable.open(false, Some(XdpMode::Native)));
    let (mut from, mut side) = (Side::new(), Side::new());
    // The first answers leave by the sockets: nobody has asked for the way from this address of ours.
    wait_until(|| {
        let before = far.xdp().counters();
        from.push(b"there and back").outer = to(FAR[0]);
        from.send(&mut near);
        let mut packets = drain(&mut side, &mut far, 1);
        packets[0].buf.bytes_mut()[0] = b'T';
        side.batch.push(packets.remove(0)).unwrap();
        assert_eq!(side.send(&mut far), 1);
        assert_eq!(datagrams(&drain(&mut from, &mut near, 1))[0].1, b"There and back");
        let after = far.xdp().counters();
        assert_eq!(after.sent_copied, 0);
        after.sent_in_place > before.sent_in_place
    });
}

//! One suite over all pairs of implementations: whoever sends and whoever receives, the same datagrams arrive.

use std::time::Duration;

use trieste_io::poll::{Interest, Poller};
use trieste_io::xdp::XdpMode;
use trieste_packet::{Layout, Outer};

use super::{Cable, FAR, NEAR, Wire, datagrams, drain, drain_for, to, warm_up};
use crate::support::{Side, noise};

const GENERIC: Option<XdpMode> = Some(XdpMode::Generic);
const NATIVE: Option<XdpMode> = Some(XdpMode::Native);

/// All pairs: who sends, who receives.
const PAIRS: [(Option<XdpMode>, Option<XdpMode>); 9] = [
    (None, None),
    (GENERIC, None),
    (None, GENERIC),
    (GENERIC, GENERIC),
    (NATIVE, None),
    (None, NATIVE),
    (NATIVE, NATIVE),
    (GENERIC, NATIVE),
    (NATIVE, GENERIC),
];

/// Both ends open, and peers resolved in both directions.
struct Ends {
    near: Wire,
    far: Wire,
    from: Side,
    to: Side,
}

impl Ends {
    fn open(cable: &Cable, modes: (Option<XdpMode>, Option<XdpMode>)) -> Self {
        let (near, far) = (cable.open(true, modes.0), cable.open(false, modes.1));
        let mut ends = Self { near, far, from: Side::new(), to: Side::new() };
        if modes.0.is_some() {
            warm_up(&mut ends.from, &mut ends.near, FAR);
        }
        if modes.1.is_some() {
            warm_up(&mut ends.to, &mut ends.far, NEAR);
        }
        drain(&mut ends.to, &mut ends.far, 0);
        drain(&mut ends.from, &mut ends.near, 0);
        ends
    }
}

fn for_all_pairs(mut check: impl FnMut(&mut Ends, (Option<XdpMode>, Option<XdpMode>))) {
    for modes in PAIRS {
        let Some(cable) = Cable::new() else { return };
        let mut ends = Ends::open(&cable, modes);
        check(&mut ends, modes);
        ends.from.assert_nothing_leaked();
        ends.to.assert_nothing_leaked();
    }
}

#[test]
fn trains_and_single_datagrams_arrive_whole_and_in_order() {
    for_all_pairs(|ends, modes| {
        for host in FAR {
            let bytes = noise(1, 40 * 1000 + 300);
            let packet = ends.from.push(&bytes);
            packet.layout = Layout::datagrams(1000, 41);
            packet.outer = Outer { tos: 0xb9, ..to(host) };
            for number in 0..10u8 {
                ends.from.push(&noise(u64::from(number), 64)).outer = to(host);
            }
            ends.from.push(&[]).outer = to(host);
            assert_eq!(ends.from.send(&mut ends.near), 52);
            assert!(!ends.near.is_blocked() && ends.from.batch.is_empty());
            let packets = drain(&mut ends.to, &mut ends.far, 52);
            let got = datagrams(&packets);
            assert_eq!(got.len(), 52, "{modes:?} {host}");
            let train: Vec<u8> =
                got.iter().filter(|(outer, _)| outer.tos == 0xb9).flat_map(|(_, one)| one.clone()).collect();
            assert!(train == bytes, "{modes:?} {host}: the train is another one");
            let singles: Vec<_> =
                got.iter().filter(|(outer, one)| outer.tos == 0 && !one.is_empty()).collect();
            for (number, (outer, one)) in singles.iter().enumerate() {
                assert_eq!(*one, noise(number as u64, 64), "{modes:?}");
                assert_eq!(outer.local, Some(host.parse().unwrap()));
                assert_eq!(outer.peer.port(), super::PORT);
                assert!(NEAR.iter().any(|near| outer.peer.ip() == near.parse::<std::net::IpAddr>().unwrap()));
            }
            assert_eq!(singles.len(), 10);
            for packet in packets {
                ends.to.pool.recycle(packet.buf);
            }
        }
        assert_eq!((ends.from.drops.total(), ends.to.drops.total()), (0, 0), "{modes:?}");
    });
}

#[test]
fn trains_that_fit_one_frame_keep_their_datagrams() {
    for_all_pairs(|ends, modes| {
        for host in FAR {
            for (stride, count) in [(100, 5), (64, 9), (700, 2)] {
                let train = ends.from.push(&noise(7, usize::from(stride * count)));
                train.layout = Layout::datagrams(stride, count);
                train.outer = to(host);
                ends.from.send(&mut ends.near);
                let got = datagrams(&drain(&mut ends.to, &mut ends.far, count.into()));
                assert!(got.iter().all(|(_, one)| one.len() == usize::from(stride)), "{modes:?} {host}");
                assert_eq!(got.len(), usize::from(count), "{modes:?} {host}");
            }
        }
    });
}

#[test]
fn answers_leave_from_the_address_that_was_asked() {
    for_all_pairs(|ends, modes| {
        for (near, far) in NEAR.into_iter().zip(FAR) {
            ends.from.push(b"question").outer = to(far);
            ends.from.send(&mut ends.near);
            let question = drain(&mut ends.to, &mut ends.far, 1).remove(0);
            ends.to.push(b"answer").outer = Outer { tos: 2, ..question.outer };
            ends.to.send(&mut ends.far);
            let answer = drain(&mut ends.from, &mut ends.near, 1).remove(0);
            let expected = Outer { local: Some(near.parse().unwrap()), tos: 2, ..to(far) };
            assert_eq!(answer.outer, expected, "{modes:?}");
        }
    });
}

#[test]
fn what_is_larger_than_the_link_arrives_all_the_same() {
    for_all_pairs(|ends, modes| {
        for host in FAR {
            ends.from.push(&noise(4, 4000)).outer = to(host);
            ends.from.push(b"behind it").outer = to(host);
            assert_eq!(ends.from.send(&mut ends.near), 2);
            let got: Vec<_> =
                datagrams(&drain(&mut ends.to, &mut ends.far, 2)).into_iter().map(|(_, one)| one).collect();
            assert!(
                got.contains(&noise(4, 4000)) && got.contains(&b"behind it".to_vec()),
                "{modes:?} {host}"
            );
        }
    });
}

#[test]
fn a_wait_ends_when_something_comes_and_not_before() {
    for_all_pairs(|ends, modes| {
        let mut poller = Poller::new().unwrap();
        for fd in ends.far.fds() {
            poller.add(fd, 0, Interest::Readable).unwrap();
        }
        // What was sent before, until there was an answer, may still come.
        drain_for(&mut ends.to, &mut ends.far, 0, Duration::from_millis(500));
        assert!(poller.wait(Some(Duration::from_millis(5))).unwrap().is_empty(), "{modes:?}");
        ends.from.push(b"wake up").outer = to(FAR[0]);
        ends.from.send(&mut ends.near);
        assert!(poller.wait(Some(crate::support::PATIENCE)).unwrap().is_readable(0), "{modes:?}");
        assert_eq!(drain(&mut ends.to, &mut ends.far, 1).len(), 1);
    });
}

//! What is small, sleeps, or comes back: few frames, rings that the kernel leaves full, interfaces that are made anew.

use std::time::Duration;

use trieste_io::PacketIo as _;
use trieste_io::poll::{Interest, Poller};
use trieste_io::xdp::{XdpConfig, XdpMode};

use super::{Cable, FAR, NEAR, Wire, datagrams, drain, to, wait_until, warm_up};
use crate::support::{Namespace, PATIENCE, Side, noise};

#[test]
fn the_smallest_rings_receive_and_send() {
    let Some(cable) = Cable::new() else { return };
    let small = |config| XdpConfig { ring_frames: 1, ..config };
    let mut near = cable.open_with(true, Some(XdpMode::Native), small).unwrap();
    let mut far = cable.open_with(false, Some(XdpMode::Native), small).unwrap();
    let (mut from, mut side) = (Side::new(), Side::new());
    warm_up(&mut from, &mut near, FAR);
    drain(&mut side, &mut far, 0);
    let before = far.xdp().counters().received;
    for number in 0..40 {
        from.push(&noise(number, 100)).outer = to(FAR[0]);
        from.send(&mut near);
        assert_eq!(datagrams(&drain(&mut side, &mut far, 1))[0].1, noise(number, 100));
    }
    assert_eq!(far.xdp().counters().received - before, 40);
}

#[test]
fn what_the_kernel_has_not_taken_yet_leaves_soon_without_anything_behind_it() {
    let Some(cable) = Cable::new() else { return };
    let (mut near, mut far) = (cable.open(true, Some(XdpMode::Native)), cable.open(false, None));
    let (mut from, mut side) = (Side::new(), Side::new());
    // As long as the link is down the kernel takes nothing; what is sent before that has been noticed stays in the ring.
    wait_until(|| {
        cable.near.ip("link set va up");
        warm_up(&mut from, &mut near, [FAR[0]; 2]);
        assert_eq!(near.xdp().retry_after(), None, "nothing is left");
        // A change just before makes the next one wait.
        cable.near.ip("addr add 10.99.0.1/32 dev lo");
        cable.near.ip("addr del 10.99.0.1/32 dev lo");
        cable.near.ip("link set va down");
        from.push(b"the tail").outer = to(FAR[0]);
        // Once the change has been noticed the sockets have it, which lose it.
        from.send(&mut near);
        near.xdp().retry_after().is_some()
    });
    assert!(near.xdp().retry_after().unwrap() >= Duration::from_micros(50), "not at once");
    assert!(!near.is_blocked(), "there is room: to wait for that would end at once");
    drain(&mut side, &mut far, 0);
    cable.near.ip("link set va up");
    wait_until(|| {
        near.recv(&mut from.pool, &mut from.batch, &mut from.drops).unwrap();
        near.xdp().retry_after().is_none()
    });
    assert!(datagrams(&drain(&mut side, &mut far, 1)).iter().any(|(_, bytes)| bytes == b"the tail"));
}

#[test]
fn an_interface_that_was_made_anew_is_taken_again_by_every_worker() {
    for mode in [XdpMode::Generic, XdpMode::Native] {
        let Some(cable) = Cable::new() else { return };
        // Both ends go. In the stack a datagram of a socket's, with its checksum unfinished, would go to the sockets.
        let (mut near, mut far) = (cable.open(true, Some(mode)), cable.open(false, Some(mode)));
        let (mut from, mut side) = (Side::new(), Side::new());
        warm_up(&mut side, &mut far, NEAR);
        let before = far.xdp().counters();
        assert_eq!(far.xdp().rings().unwrap().mode, Some(mode));
        cable.far.ip("link del vb");
        wait_until(|| far.xdp().rings().unwrap().mode.is_none());
        cable.join(1);
        is_taken_again(&mut near, &mut from, &mut far, &mut side, before.received);
        warm_up(&mut side, &mut far, NEAR);
        let state = far.xdp().rings().unwrap();
        assert_eq!((state.mode, state.counters.reopened), (Some(mode), 1));
        assert!(state.counters.sent > before.sent && state.counters.kernel_refusals == 0);
        // Other descriptors are to be waited for.
        assert_eq!(far.xdp().generation(), 1);
        drain(&mut side, &mut far, 0);
        let mut poller = Poller::new().unwrap();
        for fd in far.fds() {
            poller.add(fd, 0, Interest::Readable).unwrap();
        }
        from.push(b"wake up").outer = to(FAR[0]);
        from.send(&mut near);
        assert!(poller.wait(Some(PATIENCE)).unwrap().is_readable(0), "{mode}");
        assert_eq!(drain(&mut side, &mut far, 1).len(), 1);
        side.assert_nothing_leaked();
    }
}

#[test]
fn an_interface_that_comes_back_with_our_program_on_it_is_taken_again() {
    for mode in [XdpMode::Generic, XdpMode::Native] {
        // The last is back before anybody can have asked.
        for (is_moved, is_hurried) in [(false, false), (true, false), (true, true)] {
            let Some(cable) = Cable::new() else { return };
            let (mut near, mut far) = (cable.open(true, Some(mode)), cable.open(false, Some(mode)));
            let (mut from, mut side) = (Side::new(), Side::new());
            warm_up(&mut side, &mut far, NEAR);
            let before = far.xdp().counters();
            let thread = |end: &Namespace| end.run(rustix::thread::gettid).as_raw_nonzero();
            cable.far.ip("link set vb down");
            if is_moved {
                cable.far.ip(&format!("link set vb netns {}", thread(&cable.near)));
            } else {
                cable.far.ip("link set vb name vb-other");
            }
            if !is_hurried {
                wait_until(|| far.xdp().rings().unwrap().mode.is_none());
            }
            if is_moved {
                cable.near.ip(&format!("link set vb netns {}", thread(&cable.far)));
            } else {
                cable.far.ip("link set vb-other name vb");
            }
            cable.far.ip(&format!("addr replace {}/24 dev vb", FAR[0]));
            cable.far.ip("link set vb up");
            is_taken_again(&mut near, &mut from, &mut far, &mut side, before.received);
            let state = far.xdp().rings().unwrap();
            assert_eq!(
                (state.mode, state.counters.reopened),
                (Some(mode), 1),
                "moved: {is_moved}, hurried: {is_hurried}"
            );
            side.assert_nothing_leaked();
        }
    }
}

/// Sends until a frame has come by the far end's rings: by whichever way, nothing but what was under way is lost.
fn is_taken_again(near: &mut Wire, from: &mut Side, far: &mut Wire, side: &mut Side, received: u64) {
    wait_until(|| {
        from.push(b"welcome back").outer = to(FAR[0]);
        from.send(near);
        let came = datagrams(&drain(side, far, 0));
        assert!(came.iter().all(|(_, bytes)| bytes == b"welcome back"));
        far.xdp().counters().received > received && !came.is_empty()
    });
}

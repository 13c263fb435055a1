//! The host's IPsec policies: what they are about goes through the kernel, which applies them.

use trieste_io::PacketIo as _;
use trieste_io::xdp::XdpMode;

use super::{Cable, FAR, NEAR, datagrams, drain, to, wait_until, warm_up};
use crate::support::Side;

#[test]
fn what_a_policy_of_the_host_protects_leaves_by_the_sockets_for_as_long_as_there_is_one() {
    let Some(cable) = Cable::new() else { return };
    let mut near = cable.open(true, Some(XdpMode::Native));
    let mut from = Side::new();
    warm_up(&mut from, &mut near, FAR);
    let mut goes_by_policy = |host: &str| {
        assert!(!near.xdp().rings().unwrap().is_aside, "none is about what arrives");
        let before = near.xdp().counters();
        from.push(b"protect me").outer = to(host);
        from.send(&mut near);
        let after = near.xdp().counters();
        assert_eq!(after.unresolved, before.unresolved);
        assert_eq!(after.policies - before.policies + after.sent - before.sent, 1);
        after.policies > before.policies
    };
    assert!(!goes_by_policy(FAR[0]));
    let selector = "dir out src 10.79.0.0/24 dst 10.79.0.2/32 proto udp";
    cable.near.ip(&format!("xfrm policy add {selector} tmpl proto esp mode transport"));
    wait_until(|| goes_by_policy(FAR[0]));
    assert!(!goes_by_policy(FAR[1]), "it is about the other family");
    cable.near.ip(&format!("xfrm policy del {selector}"));
    wait_until(|| !goes_by_policy(FAR[0]));
    // One that protects nothing, and one for other packets.
    cable.near.ip(&format!("xfrm policy add {selector}"));
    cable.near.ip("xfrm policy add dir out src ::/0 dst ::/0 proto tcp tmpl proto esp mode transport");
    cable.near.ip(&format!("xfrm policy add {selector} mark 0x77 action block"));
    for host in FAR.into_iter().cycle().take(200) {
        assert!(!goes_by_policy(host));
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn what_the_host_refuses_in_clear_does_not_come_by_the_rings() {
    let Some(cable) = Cable::new() else { return };
    // What was there before counts as well as what comes.
    for is_there in [true, false] {
        let selector = format!("dir in src {}/32 dst {}/32 proto udp dport 4500", NEAR[0], FAR[0]);
        let policy = format!("xfrm policy add {selector} tmpl proto esp mode transport");
        let mut near = cable.open(true, None);
        if is_there {
            cable.far.ip(&policy);
        }
        let mut far = cable.open(false, Some(XdpMode::Native));
        let (mut from, mut side) = (Side::new(), Side::new());
        if !is_there {
            cable.far.ip(&policy);
        }
        wait_until(|| far.xdp().rings().unwrap().is_aside);
        drain(&mut side, &mut far, 0);
        let before = far.xdp().counters().received;
        for host in FAR {
            from.push(b"in clear").outer = to(host);
        }
        from.send(&mut near);
        let came = datagrams(&drain(&mut side, &mut far, 1));
        assert_eq!(came.len(), 1, "the kernel refuses one and hands over the other");
        assert!(came[0].0.peer.is_ipv6());
        assert_eq!(far.xdp().counters().received, before);
        cable.far.ip(&format!("xfrm policy del {selector}"));
        wait_until(|| !far.xdp().rings().unwrap().is_aside);
        wait_until(|| {
            from.push(b"as ever").outer = to(FAR[0]);
            from.send(&mut near);
            !drain(&mut side, &mut far, 1).is_empty() && far.xdp().counters().received > before
        });
    }
}

//! Hostile frames by both ways: what sockets would hand over the rings hand over, and nothing else.

use std::collections::BTreeMap;
use std::time::Duration;

use etherparse::PacketBuilder;
use trieste_io::xdp::XdpMode;

use super::raw::FrameSender;
use super::{Cable, FAR, NEAR, PORT, Wire, datagrams, drain_for};
use crate::support::{Namespace, Side};

type Mac = [u8; 6];

fn mac(namespace: &Namespace, device: &'static str) -> Mac {
    let text = namespace.ip(&format!("link show {device}"));
    let at = text.find("link/ether ").unwrap() + "link/ether ".len();
    let mut mac = [0; 6];
    for (byte, part) in mac.iter_mut().zip(text[at..at + 17].split(':')) {
        *byte = u8::from_str_radix(part, 16).unwrap();
    }
    mac
}

/// Frames of both families, each with a payload that names it.
struct Frames {
    from: Mac,
    to: Mac,
}

impl Frames {
    fn udp(&self, family: usize, source: &str, port: u16, name: &str) -> Vec<u8> {
        let ethernet = PacketBuilder::ethernet2(self.from, self.to);
        let mut frame = Vec::new();
        if family == 0 {
            let (source, to): (std::net::Ipv4Addr, std::net::Ipv4Addr) =
                (source.parse().unwrap(), FAR[0].parse().unwrap());
            ethernet.ipv4(source.octets(), to.octets(), 64)
        } else {
            let (source, to): (std::net::Ipv6Addr, std::net::Ipv6Addr) =
                (source.parse().unwrap(), FAR[1].parse().unwrap());
            ethernet.ipv6(source.octets(), to.octets(), 64)
        }
        .udp(7777, port)
        .write(&mut frame, name.as_bytes())
        .unwrap();
        frame
    }

    /// The table: each frame with its name in the payload, as far as it has any.
    fn all(&self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        for (family, near) in NEAR.into_iter().enumerate() {
            let good = |name: &str| self.udp(family, near, PORT, name);
            let ip = 14 + if family == 0 { 20 } else { 40 };
            frames.push(good("good"));
            frames.push(good("odd"));
            frames.push(changed(good("padded"), &[], 60));
            frames.push(changed(good("checksum-wrong"), &[(ip + 6, &[0x12, 0x34])], 0));
            frames.push(changed(good("checksum-none"), &[(ip + 6, &[0, 0])], 0));
            frames.push(changed(good("length-nothing"), &[(ip + 4, &[0, 0])], 0));
            frames.push(changed(good("length-short"), &[(ip + 4, &[0, 7])], 0));
            frames.push(changed(good("length-long"), &[(ip + 4, &[1, 0])], 0));
            frames.push(changed(good("station-other"), &[(0, &[2, 9, 9, 9, 9, 9])], 0));
            frames.push(changed(good("broadcast"), &[(0, &[0xff; 6])], 0));
            frames.push(tagged(&good("vlan"), 1));
            frames.push(tagged(&good("vlans"), 3));
            frames.push(self.udp(family, near, PORT + 1, "port-other"));
            let truncated = good("truncated");
            frames.extend((14..truncated.len()).step_by(3).map(|end| truncated[..end].to_vec()));
            frames.push(good("after"));
        }
        frames.extend(self.of_ipv4());
        for source in ["127.0.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255", FAR[0]] {
            frames.push(self.udp(0, source, PORT, "source-impossible"));
        }
        for source in ["::1", "::", "ff02::1", "::ffff:10.79.0.9"] {
            frames.push(self.udp(1, source, PORT, "source-impossible"));
        }
        frames
    }

    fn of_ipv4(&self) -> Vec<Vec<u8>> {
        let good = |name: &str| self.udp(0, NEAR[0], PORT, name);
        let options = {
            let plain = good("options");
            let mut frame = plain[..34].to_vec();
            frame[14] = 0x46;
            let total = u16::from_be_bytes([plain[16], plain[17]]) + 4;
            frame[16..18].copy_from_slice(&total.to_be_bytes());
            frame.extend([1, 1, 1, 1]);
            frame.extend(&plain[34..]);
            with_header_checksum(frame)
        };
        vec![
            options,
            changed(good("header-checksum-wrong"), &[(24, &[0, 1])], 0),
            with_header_checksum(changed(good("version"), &[(14, &[0x55])], 0)),
            with_header_checksum(changed(good("total-long"), &[(16, &[4, 0])], 0)),
            with_header_checksum(changed(good("total-short"), &[(16, &[0, 24])], 0)),
            with_header_checksum(changed(good("fragment-alone"), &[(20, &[0x20, 0])], 0)),
            with_header_checksum(changed(good("reserved-bit"), &[(20, &[0x80, 0])], 0)),
            with_header_checksum(changed(good("dont-fragment"), &[(20, &[0x40, 0])], 0)),
            with_header_checksum(changed(good("hops-none-left"), &[(22, &[1])], 0)),
        ]
    }
}

fn changed(mut frame: Vec<u8>, changes: &[(usize, &[u8])], least: usize) -> Vec<u8> {
    for (at, bytes) in changes {
        frame[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    frame.resize(frame.len().max(least), 0);
    frame
}

fn tagged(frame: &[u8], tags: u8) -> Vec<u8> {
    let mut tagged = frame[..12].to_vec();
    for tag in 1..=tags {
        tagged.extend([0x81, 0, 0, tag]);
    }
    tagged.extend(&frame[12..]);
    tagged
}

fn with_header_checksum(mut frame: Vec<u8>) -> Vec<u8> {
    let header = 14..14 + usize::from(frame[14] & 0xf) * 4;
    frame[24..26].copy_from_slice(&[0, 0]);
    let sum = trieste_packet::checksum::Sum::ZERO.bytes(&frame[header]).checksum();
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// How often each payload arrived, by whom it was from.
fn arrived(cable: &Cable, mode: Option<XdpMode>) -> (BTreeMap<String, usize>, Wire, Side) {
    let mut far = cable.open(false, mode);
    let mut side = Side::new();
    let frames = Frames { from: mac(&cable.near, "va"), to: mac(&cable.far, "vb") }.all();
    cable.near.run(move || {
        let sender = FrameSender::new("va");
        for frame in frames {
            sender.send(&frame);
        }
    });
    let mut seen = BTreeMap::new();
    for (outer, bytes) in datagrams(&drain_for(&mut side, &mut far, 2, Duration::from_secs(1))) {
        let name = format!("{} {:?} {}", outer.peer, outer.local, String::from_utf8_lossy(&bytes));
        *seen.entry(name).or_default() += 1;
    }
    (seen, far, side)
}

#[test]
fn the_same_frames_have_the_same_fate_by_sockets_and_by_rings() {
    let Some(cable) = Cable::new() else { return };
    let (by_sockets, sockets, _) = arrived(&cable, None);
    drop(sockets);
    assert!(by_sockets.keys().any(|name| name.ends_with(" good")), "{by_sockets:?}");
    assert!(by_sockets.keys().any(|name| name.ends_with(" options")), "the kernel takes those");
    for mode in [XdpMode::Generic, XdpMode::Native] {
        let (by_rings, wire, side) = arrived(&cable, Some(mode));
        assert_eq!(wire.xdp().mode(), mode);
        assert_eq!(by_rings, by_sockets, "{mode}");
        let counters = wire.xdp().counters();
        assert!(counters.received >= 10, "{counters:?}");
        // What the rings brought is handed on or dropped, with a reason.
        let handed = counters.received_in_place + counters.received_copied;
        assert_eq!(counters.received, handed + side.drops.total(), "{counters:?} {:?}", side.drops);
        assert!(side.drops.of(trieste_packet::DropReason::OuterChecksum) >= 2);
    }
}

//! Headers that we write against another implementation's reading, and the other way round; and what is refused.

use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use proptest::prelude::*;

use super::*;

const PEERS: [(&str, &str); 2] =
    [("198.51.100.7:9999", "192.0.2.1"), ("[2001:db8:9::7]:9999", "2001:db8::ff")];

fn hop(source: &str) -> Hop {
    Hop { to: [1, 2, 3, 4, 5, 6], from: [2, 0, 0, 0, 0, 9], source: source.parse().unwrap(), mtu_bytes: 1500 }
}

fn header(peer: &str) -> Header {
    Header { peer: peer.parse().unwrap(), port: 4500, tos: 0xb9, identification: 77, dont_fragment: true }
}

fn written(header: &Header, source: &str, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0xee; header.frame_bytes()];
    header.write(&mut frame, &hop(source), Sum::ZERO.bytes(payload), payload.len()).unwrap();
    frame.extend(payload);
    frame
}

/// A frame from the peer, made by the other implementation.
fn built(peer: SocketAddr, local: IpAddr, payload: &[u8]) -> Vec<u8> {
    let ethernet = PacketBuilder::ethernet2([9; 6], [8; 6]);
    let mut frame = Vec::new();
    match (peer.ip(), local) {
        (IpAddr::V4(source), IpAddr::V4(to)) => ethernet.ipv4(source.octets(), to.octets(), 9),
        (IpAddr::V6(source), IpAddr::V6(to)) => ethernet.ipv6(source.octets(), to.octets(), 9),
        _ => unreachable!(),
    }
    .udp(peer.port(), 4500)
    .write(&mut frame, payload)
    .unwrap();
    frame
}

fn pair(index: usize) -> (SocketAddr, IpAddr) {
    (PEERS[index].0.parse().unwrap(), PEERS[index].1.parse().unwrap())
}

proptest! {
    #[test]
    fn what_is_written_another_implementation_reads(index in 0..2usize, payload: Vec<u8>) {
        let header = header(PEERS[index].0);
        let frame = written(&header, PEERS[index].1, &payload);
        let read = SlicedPacket::from_ethernet(&frame).unwrap();
        let Some(TransportSlice::Udp(udp)) = read.transport else { panic!("no UDP") };
        prop_assert_eq!((udp.source_port(), udp.destination_port()), (4500, 9999));
        prop_assert_eq!(udp.payload(), &payload[..]);
        let checksum = match read.net.unwrap() {
            NetSlice::Ipv4(ip) => {
                let ip = ip.header().to_header();
                prop_assert_eq!(ip.header_checksum, ip.calc_header_checksum());
                prop_assert_eq!((ip.identification, ip.dont_fragment, ip.time_to_live), (77, true, 64));
                prop_assert_eq!((ip.dscp.value() << 2) | ip.ecn.value(), 0xb9);
                udp.to_header().calc_checksum_ipv4(&ip, &payload).unwrap()
            }
            NetSlice::Ipv6(ip) => {
                let ip = ip.header().to_header();
                prop_assert_eq!((ip.traffic_class, ip.flow_label.value(), ip.hop_limit), (0xb9, 0, 64));
                udp.to_header().calc_checksum_ipv6(&ip, &payload).unwrap()
            }
            NetSlice::Arp(_) => panic!("no ARP"),
        };
        prop_assert_eq!(udp.checksum(), checksum);
    }

    #[test]
    fn what_another_implementation_writes_is_read(index in 0..2usize, payload: Vec<u8>) {
        let (peer, local) = pair(index);
        let parsed = parse(&built(peer, local, &payload), false).unwrap();
        prop_assert_eq!(parsed.outer, Outer { peer, local: Some(local), tos: 0 });
        prop_assert!(!parsed.is_partial);
        prop_assert_eq!(parsed.bytes, payload.len());
    }

    #[test]
    fn no_bytes_do_any_harm(mut frame: Vec<u8>, index in 0..2usize, at in 0..80usize, byte: u8) {
        let _ = parse(&frame, false);
        let (peer, local) = pair(index);
        frame = built(peer, local, &frame);
        if let Some(place) = frame.get_mut(at) {
            *place = byte;
        }
        if let Ok(parsed) = parse(&frame, true) {
            prop_assert!(parsed.start + parsed.bytes <= frame.len());
        }
    }
}

#[test]
fn trailing_bytes_and_an_earlier_end_of_the_datagram_are_cut() {
    for index in 0..2 {
        let (peer, local) = pair(index);
        let mut frame = built(peer, local, b"payload");
        frame.extend([0; 9]);
        let parsed = parse(&frame, false).unwrap();
        assert_eq!(&frame[parsed.start..parsed.start + parsed.bytes], b"payload");
    }
}

#[test]
fn checksums_are_right_left_to_a_device_or_refused() {
    for index in 0..2 {
        let (peer, local) = pair(index);
        let whole = built(peer, local, b"payload");
        let field = if index == 0 { 40 } else { 60 };
        let with = |value: u16| {
            let mut frame = whole.clone();
            put16(&mut frame, field, value);
            frame
        };
        let packet = &whole[ETHERNET_BYTES..];
        let partial = pseudo_sum(packet, 15).folded();
        assert!(parse(&with(partial), false).unwrap().is_partial);
        assert_eq!(parse(&with(be16(&whole, field) ^ 1), false), Err(DropReason::OuterChecksum));
        assert_eq!(parse(&with(0), false).is_ok(), index == 0);
        assert!(parse(&with(0), true).is_ok());
    }
}

#[test]
fn sources_that_cannot_be_outside_are_refused() {
    let local: IpAddr = "192.0.2.1".parse().unwrap();
    for source in ["127.0.0.1", "0.0.0.0", "0.1.2.3", "224.0.0.1", "255.255.255.255", "192.0.2.1"] {
        let frame = built(SocketAddr::new(source.parse().unwrap(), 5), local, b"x");
        assert_eq!(parse(&frame, false), Err(DropReason::MalformedHeader), "{source}");
    }
    let local: IpAddr = "2001:db8::ff".parse().unwrap();
    for source in ["::1", "ff02::1", "2001:db8::ff", "::ffff:203.0.113.7"] {
        let frame = built(SocketAddr::new(source.parse().unwrap(), 5), local, b"x");
        assert_eq!(parse(&frame, false), Err(DropReason::MalformedHeader), "{source}");
    }
    let frame = built("198.51.100.7:0".parse().unwrap(), "192.0.2.1".parse().unwrap(), b"x");
    assert_eq!(parse(&frame, false), Err(DropReason::MalformedHeader), "port 0 stands for ESP");
}

#[test]
fn esp_has_no_ports_and_families_do_not_mix() {
    for (peer, local) in PEERS {
        let peer = peer.replace("9999", "0");
        let header = header(&peer);
        let frame = written(&header, local, &[5; 40]);
        let parsed = parse(&frame, false).unwrap();
        assert_eq!((parsed.outer.peer.port(), parsed.bytes), (0, 40));
        assert_eq!(&frame[parsed.start..], [5; 40]);
    }
    let header = header(PEERS[0].0);
    let mut space = vec![0; header.frame_bytes()];
    assert!(header.write(&mut space, &hop(PEERS[1].1), Sum::ZERO, 9).is_none());
    assert!(header.write(&mut space, &hop(PEERS[0].1), Sum::ZERO, 65_508).is_none());
}

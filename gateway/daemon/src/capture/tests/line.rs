//! What the points of the line look like in a capture.

use trieste_control::admin::CaptureProtocol;
use trieste_packet::checksum::{self, transport_is_valid};
use trieste_packet::wire::{Inner, be32, put16};
use trieste_packet::{CableId, Checksum, DropReason, Layout, LayoutKind};

use super::*;

const A: [u8; 4] = [10, 1, 0, 1];
const B: [u8; 4] = [10, 2, 0, 2];
const PEER: &str = "192.0.2.9:51820";

#[tokio::test]
async fn every_point_has_its_interface_and_its_direction() {
    let mut bench = Bench::new(&CaptureRequest::default());
    let before = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
    let packet = tcp(A, B, 80, b"hello");
    bench.show_datagram(Point::OuterRx, PEER, b"sealed");
    bench.show_bytes(Point::Opened, &packet);
    bench.show_bytes(Point::InnerTx, &packet);
    bench.show_bytes(Point::InnerRx, &packet);
    bench.show_datagram(Point::OuterTx, PEER, b"sealed");
    bench.witness.as_mut().unwrap().dropped(CableId(7), DropReason::Loop, &packet);
    let capture = bench.finish().await;
    let names = ["outer-rx", "opened", "inner-tx", "inner-rx", "outer-tx", "drops"];
    assert_eq!(capture.interfaces, names.map(|name| (name.to_owned(), 12, hub::DEFAULT_SNAP_BYTES)));
    let seen: Vec<_> = capture.frames.iter().map(|frame| (frame.point.as_str(), frame.flags)).collect();
    assert_eq!(
        seen,
        [("outer-rx", 1), ("opened", 1), ("inner-tx", 1), ("inner-rx", 2), ("outer-tx", 2), ("drops", 1)]
    );
    for frame in &capture.frames {
        assert!(frame.timestamp_ns.abs_diff(before) < 60_000_000_000, "{frame:?}");
        assert_eq!(frame.original_bytes as usize, frame.bytes.len());
        let is_outer = frame.point.starts_with("outer");
        assert_eq!(frame.bytes == packet, !is_outer, "{frame:?}");
    }
    assert_eq!(capture.frames[5].comment, "reason=loop cable=7");
    let (rx, tx) = (&capture.frames[0].bytes, &capture.frames[4].bytes);
    assert_eq!((&rx[12..20], &rx[28..]), (&[192, 0, 2, 9, 192, 0, 2, 1][..], &b"sealed"[..]));
    assert_eq!((&tx[12..20], &tx[28..]), (&[192, 0, 2, 1, 192, 0, 2, 9][..], &b"sealed"[..]));
}

#[tokio::test]
async fn tcp_trains_are_shown_as_the_packets_that_they_stand_for() {
    for is_v6 in [false, true] {
        let payload: Vec<u8> = (0..3000u32).map(|i| (i % 251) as u8).collect();
        let bytes = if is_v6 {
            let mut bytes = Vec::new();
            PacketBuilder::ipv6([0xfd; 16], [0xfc; 16], 64)
                .tcp(40_000, 80, 1000, 4000)
                .write(&mut bytes, &payload)
                .unwrap();
            bytes
        } else {
            tcp(A, B, 80, &payload)
        };
        let header = u16::try_from(bytes.len() - payload.len()).unwrap();
        let mut bench = Bench::at("inner-rx");
        let mut packet = bench.packet(&bytes);
        packet.layout = Layout::train(LayoutKind::Tcp, header, 1400, 3);
        packet.checksum = Checksum::Partial { start: header - 20, field: header - 4 };
        bench.show(Point::InnerRx, &packet);
        assert_eq!(packet.bytes(), bytes, "the line's own packet is left alone");
        let capture = bench.finish().await;
        let mut stream = Vec::new();
        for frame in capture.at("inner-rx") {
            let inner = Inner::parse(frame).unwrap();
            assert_eq!(usize::from(inner.total_bytes), frame.len());
            assert!(transport_is_valid(frame, usize::from(inner.transport_offset)));
            let sequence = be32(frame, usize::from(inner.transport_offset) + 4);
            assert_eq!(sequence as usize, 1000 + stream.len());
            stream.extend(&frame[inner.header_bytes()..]);
        }
        assert_eq!((capture.frames.len(), stream), (3, payload));
    }
}

#[tokio::test]
async fn udp_trains_with_gaps_are_cut_too() {
    // Three payloads of ten bytes, sixteen apart, as they lie after being opened in place.
    let mut bytes = Vec::new();
    PacketBuilder::ipv4(A, B, 64).udp(40_000, 53).write(&mut bytes, &[0; 42]).unwrap();
    for (index, byte) in [b'a', b'b', b'c'].into_iter().enumerate() {
        bytes[28 + index * 16..][..10].fill(byte);
    }
    let mut bench = Bench::at("inner-tx");
    let mut packet = bench.packet(&bytes);
    packet.layout = Layout { stride_bytes: 16, ..Layout::train(LayoutKind::Udp, 28, 10, 3) };
    bench.show(Point::InnerTx, &packet);
    let capture = bench.finish().await;
    let payloads: Vec<_> = capture.at("inner-tx").iter().map(|frame| frame[28..].to_vec()).collect();
    assert_eq!(payloads, [[b'a'; 10], [b'b'; 10], [b'c'; 10]]);
    assert!(capture.at("inner-tx").iter().all(|frame| transport_is_valid(frame, 20)));
}

#[tokio::test]
async fn a_checksum_left_to_the_device_is_finished_in_the_copy() {
    let mut bytes = tcp(A, B, 80, b"hello");
    let pseudo = checksum::pseudo_sum(&bytes, 6, bytes.len() - 20).folded();
    put16(&mut bytes, 36, pseudo);
    let mut bench = Bench::at("inner-rx");
    let mut packet = bench.packet(&bytes);
    packet.checksum = Checksum::Partial { start: 20, field: 36 };
    bench.show(Point::InnerRx, &packet);
    assert_eq!(packet.bytes(), bytes);
    assert_eq!(bench.finish().await.at("inner-rx"), [tcp(A, B, 80, b"hello")]);
}

#[tokio::test]
async fn packets_side_by_side_are_shown_without_holes_and_padding() {
    let (first, second) = (tcp(A, B, 80, b"one"), tcp(A, B, 81, b"three"));
    let mut bytes = vec![0; 3 * 64];
    bytes[..first.len()].copy_from_slice(&first);
    bytes[64..128].fill(0x45);
    bytes[128..128 + second.len()].copy_from_slice(&second);
    let layout = Layout {
        kind: LayoutKind::Packets,
        header_bytes: 0,
        segment_bytes: 64,
        stride_bytes: 64,
        count: 3,
        present: 0b101,
    };
    for (port, expected) in [(None, vec![&first[..], &second]), (Some(81), vec![&second])] {
        let request = CaptureRequest { point: Some("opened".to_owned()), port, ..CaptureRequest::default() };
        let mut bench = Bench::new(&request);
        let mut packet = bench.packet(&bytes);
        packet.layout = layout;
        bench.show(Point::Opened, &packet);
        assert_eq!(bench.finish().await.at("opened"), expected);
    }
}

#[tokio::test]
async fn a_train_of_datagrams_is_shown_one_by_one() {
    let mut bench = Bench::at("outer-rx");
    let mut packet = bench.packet(b"aaaabbbbcc");
    packet.layout = Layout::datagrams(4, 3);
    packet.outer = Outer {
        peer: "[2001:db8::9]:51820".parse().unwrap(),
        local: Some("2001:db8::1".parse().unwrap()),
        tos: 3,
    };
    bench.show(Point::OuterRx, &packet);
    let capture = bench.finish().await;
    let payloads: Vec<_> = capture.at("outer-rx").iter().map(|frame| &frame[48..]).collect();
    assert_eq!(payloads, [&b"aaaa"[..], b"bbbb", b"cc"]);
    for frame in capture.at("outer-rx") {
        assert!(transport_is_valid(frame, 40));
        assert_eq!(trieste_packet::wire::tos(frame), 3);
    }
}

#[tokio::test]
async fn filters_look_inside_at_inner_points_and_outside_at_outer_ones() {
    let filter = |host: Option<&str>, port, proto| CaptureRequest {
        point: Some("outer-rx,inner-rx".to_owned()),
        host: host.map(|host| host.parse().unwrap()),
        port,
        proto,
        snaplen: None,
    };
    for (request, expected) in [
        (filter(None, None, None), vec!["inner-rx", "inner-rx", "outer-rx"]),
        (filter(Some("10.2.0.2"), None, None), vec!["inner-rx"]),
        (filter(Some("192.0.2.9"), None, None), vec!["outer-rx"]),
        (filter(Some("192.0.2.1"), Some(4500), None), vec!["outer-rx"]),
        (filter(None, Some(53), None), vec!["inner-rx"]),
        (filter(None, None, Some(CaptureProtocol::Tcp)), vec!["inner-rx"]),
        (filter(None, None, Some(CaptureProtocol::Udp)), vec!["inner-rx", "outer-rx"]),
        (filter(None, None, Some(CaptureProtocol::Icmp)), vec![]),
    ] {
        let mut bench = Bench::new(&request);
        bench.show_bytes(Point::InnerRx, &tcp(A, B, 80, b"x"));
        bench.show_bytes(Point::InnerRx, &udp6(53, b"x"));
        bench.show_datagram(Point::OuterRx, PEER, b"sealed");
        bench.show_bytes(Point::Opened, &tcp(A, B, 80, b"not asked for"));
        let capture = bench.finish().await;
        let points: Vec<_> = capture.frames.iter().map(|frame| frame.point.as_str()).collect();
        assert_eq!(points, expected, "{request:?}");
    }
}

#[tokio::test]
async fn the_snap_length_cuts_what_is_kept_and_keeps_what_it_was() {
    let request = CaptureRequest { snaplen: Some(30), ..CaptureRequest::default() };
    let mut bench = Bench::new(&request);
    let packet = tcp(A, B, 80, b"hello");
    bench.show_bytes(Point::InnerRx, &packet);
    bench.show_datagram(Point::OuterTx, PEER, &[9; 100]);
    let capture = bench.finish().await;
    assert!(capture.interfaces.iter().all(|interface| interface.2 == 30));
    let sizes: Vec<_> =
        capture.frames.iter().map(|frame| (frame.bytes.len(), frame.original_bytes)).collect();
    assert_eq!(sizes, [(30, 45), (30, 128)]);
}

#[tokio::test]
async fn dropped_datagrams_are_wrapped_and_dropped_packets_are_not() {
    let hub = Arc::new(
        CaptureHub::new("192.0.2.1".parse().unwrap(), 4500)
            .with_cable_names(|cable| (cable.0 == 2).then(|| "cable-b".to_owned())),
    );
    let stream = hub.start(&CaptureRequest::default()).unwrap();
    let mut witness = hub.attach(0).1.unwrap();
    let packet = tcp(A, B, 80, b"hello");
    witness.dropped(CableId(2), DropReason::SourceNotAllowed, &packet);
    witness.dropped(CableId(2), DropReason::BadTag, b"message");
    witness.dropped(CableId(0), DropReason::UnknownDatagram, &packet);
    witness.dropped(CableId(3), DropReason::SocketFull, b"message");
    witness.dropped(CableId(0), DropReason::NotIp, b"");
    let bench = Bench { hub, stream, tap: None, witness: None, pool: Pool::new(PoolConfig::default()) };
    let frames = bench.finish().await.frames;
    assert_eq!(frames[0].bytes, packet);
    assert_eq!(frames[0].comment, "reason=source_not_allowed cable=cable-b");
    for (frame, payload, comment, ends) in [
        (&frames[1], &b"message"[..], "reason=bad_tag cable=cable-b", [0, 0, 0, 0, 192, 0, 2, 1]),
        (&frames[2], &packet, "reason=unknown_datagram cable=none", [0, 0, 0, 0, 192, 0, 2, 1]),
        (&frames[3], b"message", "reason=socket_full cable=3", [192, 0, 2, 1, 0, 0, 0, 0]),
        (&frames[4], b"", "reason=not_ip cable=none", [0, 0, 0, 0, 192, 0, 2, 1]),
    ] {
        assert_eq!((&frame.bytes[28..], &frame.bytes[12..20]), (payload, &ends[..]));
        assert_eq!(frame.comment, comment);
    }
}

#[tokio::test]
async fn strange_layouts_and_bytes_are_shown_and_break_nothing() {
    let mut bench = Bench::new(&CaptureRequest::default());
    for kind in
        [LayoutKind::Single, LayoutKind::Tcp, LayoutKind::Udp, LayoutKind::Datagrams, LayoutKind::Packets]
    {
        for (bytes, stride, count) in
            [(&b""[..], 0, 0), (b"", 100, 3), (b"\x45", 1, 200), (&[0x60; 50], 7, 90), (&[0x45; 90], 9000, 2)]
        {
            for point in Point::ALL {
                let mut packet = bench.packet(bytes);
                packet.layout = Layout {
                    kind,
                    header_bytes: stride,
                    segment_bytes: stride,
                    stride_bytes: stride,
                    count,
                    present: u64::MAX,
                };
                packet.checksum = Checksum::Partial { start: 70, field: 10 };
                bench.show(point, &packet);
                bench.pool.recycle(packet.buf);
            }
        }
    }
    bench.finish().await;
}

#[tokio::test]
async fn several_captures_see_the_same_packet_each_in_its_way() {
    let hub = hub();
    let mut request = CaptureRequest { point: Some("inner-rx".to_owned()), ..CaptureRequest::default() };
    let whole = hub.start(&request).unwrap();
    request.snaplen = Some(20);
    let short = hub.start(&request).unwrap();
    let tap = hub.attach(0).0;
    let pool = Pool::new(PoolConfig { slots: 4, ..PoolConfig::default() });
    let mut bench = Bench { hub: Arc::clone(&hub), stream: whole, tap, witness: None, pool };
    let packet = tcp(A, B, 80, b"hello");
    bench.show_bytes(Point::InnerRx, &packet);
    assert_eq!(bench.finish().await.at("inner-rx"), [&packet[..]]);
    let pieces: Vec<_> = short.map(|piece| piece.unwrap()).collect().await;
    assert_eq!(Capture::read(&pieces.concat()).at("inner-rx"), [&packet[..20]]);
}

//! Batches through two lanes.

use super::*;

fn tcp_train(payload: &[u8], mss: u16) -> (Vec<u8>, Layout) {
    let mut bytes = Vec::new();
    PacketBuilder::ipv4([10, 1, 0, 1], [10, 2, 0, 1], 64)
        .tcp(1, 2, 3, 4)
        .ack(9)
        .write(&mut bytes, payload)
        .unwrap();
    let count = u16::try_from(payload.len().div_ceil(usize::from(mss))).unwrap();
    (bytes, Layout::train(LayoutKind::Tcp, 40, mss, count))
}

#[test]
fn a_train_leaves_as_one_train_and_is_opened_in_its_own_buffer() {
    let now = start();
    let (mut a, mut b) = connected(&recipe(1, now), now);
    let payload: Vec<u8> = (0..60_000u32).map(|byte| (byte % 251) as u8).collect();
    let (bytes, layout) = tcp_train(&payload, 1380);
    let mut train = a.packet(&bytes);
    train.layout = layout;
    train.checksum = trieste_packet::Checksum::Partial { start: 20, field: 36 };

    let sealed = a.seal(vec![train], now);

    assert_eq!(sealed.len(), 1);
    assert_eq!((sealed[0].layout.kind, sealed[0].layout.count), (LayoutKind::Datagrams, 44));
    assert_eq!(usize::from(sealed[0].layout.stride_bytes), sealed_bytes(1420));
    let received = b.receive(&sealed, A);
    let before = b.pool.available();
    let opened = b.open(received, now);
    assert_eq!((opened.len(), b.pool.available()), (1, before), "no other buffer is taken");
    assert_eq!((opened[0].layout.kind, opened[0].layout.present), (LayoutKind::Packets, (1 << 44) - 1));
    let mut stream = Vec::new();
    let mut trains = 0;
    for packet in opened {
        coalesce(packet, |piece| {
            trains += 1;
            let header = usize::from(piece.layout.header_bytes);
            for index in 0..usize::from(piece.layout.count) {
                let (start, end) = piece.segment_range(index);
                stream.extend_from_slice(&piece.bytes()[start..end]);
            }
            assert_eq!((header, piece.layout.kind), (40, LayoutKind::Tcp));
        });
    }
    assert_eq!((trains, stream), (1, payload), "and it is a train again");
    assert_eq!((a.drops.total(), b.drops.total()), (0, 0));
}

#[test]
fn a_lone_packet_is_sealed_and_opened_where_it_is() {
    let now = start();
    let (mut a, mut b) = connected(&recipe(1, now), now);
    for bytes in [udp4(&[7; 33]), udp6(&[7; 1000])] {
        let packet = a.packet(&bytes);
        let before = a.pool.available();
        let sealed = a.seal(vec![packet], now);
        assert_eq!((sealed.len(), a.pool.available()), (1, before));
        assert_eq!(sealed[0].layout, Layout::SINGLE);
        assert_eq!(sealed[0].buf.len(), sealed_bytes(bytes.len()));
        assert_eq!(sealed[0].outer, outer(B));
        let received = b.receive(&sealed, A);
        let opened = b.open(received, now);
        assert_eq!((opened.len(), opened[0].layout), (1, Layout::SINGLE));
        assert_eq!((opened[0].bytes(), opened[0].outer), (&bytes[..], outer(A)));
    }
}

#[test]
fn a_packet_without_headroom_is_sealed_elsewhere() {
    let now = start();
    let (mut a, mut b) = connected(&recipe(1, now), now);
    let bytes = udp4(&[7; 33]);
    let mut packet = a.packet(&[0; 8]);
    let headroom = packet.buf.headroom();
    packet.buf.prepend(headroom);
    let filler = packet.buf.len();
    packet.buf.extend(bytes.len()).copy_from_slice(&bytes);
    drop(packet.buf.split_to(filler));

    let sealed = a.seal(vec![packet], now);

    let received = b.receive(&sealed, A);
    assert_eq!(inner_packets(b.open(received, now)), [bytes]);
}

#[test]
fn single_packets_of_one_length_leave_as_one_train() {
    let now = start();
    let (mut a, mut b) = connected(&recipe(1, now), now);
    let bytes: Vec<Vec<u8>> = (0..50u8).map(|number| udp4(&[number; 1000])).collect();
    let packets = bytes.iter().map(|bytes| a.packet(bytes)).collect();
    let sealed = a.seal(packets, now);
    assert_eq!((sealed.len(), sealed[0].layout.count), (1, 50));

    // One by one they come in without GRO: side by side they are opened, and become a train for the cluster.
    let received = b.receive_singly(&sealed, A);
    let opened = b.open(received, now);
    assert_eq!((opened.len(), opened[0].layout.kind), (1, LayoutKind::Packets));
    assert!(inner_packets(opened) == bytes);
}

#[test]
fn order_is_kept_among_trains_and_single_packets() {
    let now = start();
    let (mut a, mut b) = connected(&recipe(1, now), now);
    let lengths = [700, 700, 20, 900, 100, 100, 100, 40, 1300, 1300, 1200, 8];
    let bytes: Vec<Vec<u8>> =
        (0u8..).zip(lengths).map(|(number, length)| udp4(&vec![number; length])).collect();
    let packets = bytes.iter().map(|bytes| a.packet(bytes)).collect();
    let sealed = a.seal(packets, now);
    let numbers: Vec<u8> = datagrams(&sealed).iter().map(|datagram| datagram[7]).collect();
    assert_eq!(numbers, (1..=12).collect::<Vec<_>>(), "they leave in the order of their numbers");

    let trains = b.receive(&sealed, A);
    assert!(inner_packets(b.open(trains, now)) == bytes);
    let packets = bytes.iter().map(|bytes| a.packet(bytes)).collect();
    let sealed = a.seal(packets, now);
    let singles = b.receive_singly(&sealed, A);
    assert!(inner_packets(b.open(singles, now)) == bytes);
}

#[test]
fn a_spoiled_and_a_repeated_message_leave_holes_and_the_rest_goes_on() {
    let now = start();
    let (mut a, mut b) = (end(A, B, now), end(B, A, now));
    let (_, meter) = add(&mut a, &mut b, &recipe(1, now), now);
    let bytes: Vec<Vec<u8>> = (0..4u8).map(|number| udp4(&[number; 600])).collect();
    let packets = bytes.iter().map(|bytes| a.packet(bytes)).collect();
    let sealed = a.seal(packets, now);
    let stride = usize::from(sealed[0].layout.stride_bytes);
    let mut received = b.receive(&sealed, A);
    received[0].buf.bytes_mut()[stride + 40] ^= 1;
    let first = sealed[0].bytes()[..stride].to_vec();
    received[0].buf.bytes_mut()[3 * stride..4 * stride].copy_from_slice(&first);

    let opened = b.open(received, now);

    assert_eq!(opened[0].layout.present, 0b0101);
    assert_eq!(inner_packets(opened), [bytes[0].clone(), bytes[2].clone()]);
    assert_eq!((b.drops.of(DropReason::BadTag), b.drops.of(DropReason::Replay), b.drops.total()), (1, 1, 2));
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    assert_eq!((count(&meter.bad), count(&meter.replayed), count(&meter.rx_packets)), (1, 1, 2));
}

#[test]
fn a_message_of_an_sa_that_is_not_there_is_dropped() {
    let now = start();
    let (mut a, mut b) = connected(&recipe(1, now), now);
    let (mut c, _) = connected(&recipe(2, now), now);
    let packet = c.packet(&udp4(&[1; 100]));
    let foreign = c.seal(vec![packet], now);
    let mut received = b.receive(&foreign, A);
    for bytes in [&[][..], &[1, 2, 3], &Spi::new(LANE, 1).to_bytes()] {
        received.push(b.datagram(bytes, A));
    }
    assert!(b.open(received, now).is_empty());
    assert_eq!((b.drops.of(DropReason::NoSession), b.drops.of(DropReason::MalformedHeader)), (1, 3));
    let packet = a.packet(&udp4(&[1; 100]));
    let sealed = a.seal(vec![packet], now);
    let received = b.receive(&sealed, A);
    assert_eq!(b.open(received, now).len(), 1);
}

#[test]
fn a_train_longer_than_a_bitmap_is_opened_in_pieces() {
    let now = start();
    let (mut a, mut b) = connected(&recipe(1, now), now);
    let bytes: Vec<Vec<u8>> = (0..150u8).map(|number| udp4(&[number; 100])).collect();
    let packets = bytes.iter().map(|bytes| a.packet(bytes)).collect();
    let all = datagrams(&a.seal(packets, now));
    let mut train = b.datagram(&all.concat(), A);
    train.layout = Layout::datagrams(u16::try_from(all[0].len()).unwrap(), 150);
    let opened = b.open(vec![train], now);
    assert_eq!(opened.iter().map(|packet| packet.layout.count).collect::<Vec<_>>(), [64, 64, 22]);
    assert!(inner_packets(opened) == bytes);
}

#[test]
fn a_train_may_carry_several_sas() {
    let now = start();
    let (mut a, mut b) = connected(&Recipe { remote: &["10.2.0.0/16"], ..recipe(1, now) }, now);
    add(&mut a, &mut b, &Recipe { remote: &["10.3.0.0/16"], ..recipe(2, now) }, now);
    let bytes: Vec<Vec<u8>> = (0..6u8)
        .map(|number| udp4_between([10, 1, 0, 1], [10, 2 + number % 2, 0, 1], &[number; 90]))
        .collect();
    let packets = bytes.iter().map(|bytes| a.packet(bytes)).collect();
    let sealed = a.seal(packets, now);
    assert_eq!(sealed.len(), 1);
    let spis: Vec<u8> = datagrams(&sealed).iter().map(|datagram| datagram[3]).collect();
    assert_eq!(spis, [1, 2, 1, 2, 1, 2]);
    let received = b.receive(&sealed, A);
    assert_eq!(inner_packets(b.open(received, now)), bytes);
}

#[test]
fn congestion_marks_are_copied_and_end_a_train() {
    let now = start();
    let (mut a, _) = connected(&recipe(1, now), now);
    let marked = |tos: u8| {
        let mut bytes = udp4(&[1; 100]);
        bytes[1] = tos;
        bytes
    };
    let packets = [0, 0, 0x2a, 0x29, 3].map(|tos| a.packet(&marked(tos))).into();
    let sealed = a.seal(packets, now);
    let tos: Vec<(u8, u16)> = sealed.iter().map(|packet| (packet.outer.tos, packet.layout.count)).collect();
    assert_eq!(tos, [(0, 2), (2, 1), (1, 1), (3, 1)], "the DSCP stays inside");
}

#[test]
fn bytes_and_packets_are_counted_on_both_ends() {
    let now = start();
    let (mut a, mut b) = (end(A, B, now), end(B, A, now));
    let (left, right) = add(&mut a, &mut b, &recipe(1, now), now);
    let bytes = udp4(&[1; 100]);
    let packets = vec![a.packet(&bytes), a.packet(&bytes), a.packet(&bytes)];
    let later = now + Duration::from_secs(7);
    let sealed = a.seal(packets, later);
    let received = b.receive(&sealed, A);
    b.open(received, later);
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    assert_eq!((count(&left.tx_packets), count(&left.tx_bytes)), (3, 3 * bytes.len() as u64));
    assert_eq!((count(&right.rx_packets), count(&right.rx_bytes)), (3, 3 * bytes.len() as u64));
    assert_eq!((left.last_tx(), right.last_rx(), right.last_tx()), (Some(later), Some(later), None));
    let (sent, got) = (a.cable.stats(later), b.cable.stats(later));
    let sealed = 3 * sealed_bytes(bytes.len()) as u64;
    assert_eq!((sent.tx_packets, sent.tx_bytes, got.rx_packets, got.rx_bytes), (3, sealed, 3, sealed));
    assert_eq!((got.handshakes, got.handshake_age), (1, Some(Duration::from_secs(7))));
}

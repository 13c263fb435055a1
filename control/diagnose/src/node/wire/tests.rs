use super::*;

const RUN: Run = Run([0x10, 0x20, 3, 4, 5, 6]);

fn probe(source: &str, destination: &str, ports: Option<(u16, u16)>, length: u16) -> Probe {
    let mark = Mark { run: RUN, probe: 3, number: 1 };
    Probe { mark, source: source.parse().unwrap(), destination: destination.parse().unwrap(), ports, length }
}

fn v4_echo() -> Vec<u8> {
    probe("10.0.0.1", "10.1.0.2", None, 100).emit().unwrap()
}

#[test]
fn an_echo_request_is_seen_as_it_was_sent() {
    for (source, destination) in [("10.0.0.1", "10.1.0.2"), ("fd00::1", "fd01::2")] {
        let packet = probe(source, destination, None, 1400).emit().unwrap();
        assert_eq!(packet.len(), 1400);
        let seen = seen(&packet[..200], RUN).unwrap();
        assert_eq!((seen.what, seen.probe, seen.number), (What::EchoRequest, 3, Some(1)));
        assert_eq!((seen.source.to_string().as_str(), seen.length), (source, 1400));
        assert_eq!(seen.carrier, None);
    }
}

#[test]
fn a_datagram_is_seen_with_its_ports() {
    for (source, destination) in [("10.0.0.1", "10.1.0.2"), ("fd00::1", "fd01::2")] {
        let packet = probe(source, destination, Some((40000, 4500)), 0).emit().unwrap();
        assert_eq!(packet.len(), usize::from(MIN_PROBE_BYTES), "a length too small for the mark is raised");
        let what = seen(&packet, RUN).unwrap().what;
        assert_eq!(what, What::Udp { source_port: 40000, destination_port: 4500 });
        let outer = outer(&packet).unwrap();
        assert_eq!((outer.source_port, outer.destination_port), (40000, 4500));
    }
}

#[test]
fn checksums_are_those_that_a_receiver_computes() {
    let packet = v4_echo();
    assert_eq!(checksum(&packet[..20], 0), 0);
    assert_eq!(checksum(&packet[20..], 0), 0);
    let packet = probe("fd00::1", "fd01::2", Some((1, 2)), 101).emit().unwrap();
    assert_eq!(checksum(&packet[40..], pseudo(&packet[8..40], UDP, 61)), 0);
}

#[test]
fn a_probe_between_nodes_is_seen_inside_its_carrier() {
    let inner = v4_echo();
    let mut datagram = vec![0; 8];
    datagram[2..4].copy_from_slice(&VX_PORT.to_be_bytes());
    datagram.extend([0x08, 0, 0, 0, 0, 0, 100, 0]);
    datagram.extend([0; 12]);
    datagram.extend([0x08, 0x00]);
    datagram.extend(&inner);
    let mut packet = vec![0x45, 0, 0, 178, 0, 0, 0, 0, 64, UDP, 0, 0, 172, 18, 0, 3, 172, 18, 0, 2];
    packet.extend(datagram);

    let seen = seen(&packet, RUN).unwrap();

    assert_eq!(seen.what, What::EchoRequest);
    assert_eq!(seen.source, IpAddr::from([10, 0, 0, 1]));
    let carrier = Carrier { source: [172, 18, 0, 3].into(), destination: [172, 18, 0, 2].into() };
    assert_eq!(seen.carrier, Some(carrier));
}

/// An ICMP error around the beginning of a packet.
fn error(kind: u8, code: u8, rest: [u8; 4], quoted: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 96, 0, 0, 0, 0, 64, ICMP, 0, 0, 10, 9, 9, 9, 10, 0, 0, 1];
    packet.extend([kind, code, 0, 0]);
    packet.extend(rest);
    packet.extend(quoted);
    packet
}

#[test]
fn an_error_names_the_probe_that_it_quotes() {
    let packet = error(3, 4, [0, 0, 0x05, 0x78], &v4_echo()[..60]);
    let seen = seen(&packet, RUN).unwrap();
    let probed = "10.1.0.2".parse().unwrap();
    assert_eq!(seen.what, What::Error { reason: Refusal::TooBig, mtu: Some(1400), probed });
    assert_eq!((seen.source, seen.number), ("10.9.9.9".parse().unwrap(), Some(1)));
}

#[test]
fn an_error_that_quotes_eight_bytes_names_the_probe_by_its_identifier() {
    let packet = error(3, 1, [0; 4], &v4_echo()[..28]);
    let found = seen(&packet, RUN).unwrap();
    assert_eq!((found.probe, found.number), (3, None));
    assert_eq!(seen(&packet, Run([9; 6])), None);
}

#[test]
fn other_peoples_packets_are_not_ours() {
    assert_eq!(seen(&v4_echo(), Run([9; 6])), None);
    let mut fragment = v4_echo();
    fragment[7] = 1;
    assert_eq!(seen(&fragment, RUN), None);
}

#[test]
fn no_bytes_make_the_parser_panic() {
    // Every cut of every kind of packet, and every value of every byte near the front.
    let kinds = [
        v4_echo(),
        probe("fd00::1", "fd01::2", Some((4500, VX_PORT)), 150).emit().unwrap(),
        error(3, 4, [0; 4], &v4_echo()[..40]),
    ];
    for packet in kinds {
        for cut in 0..packet.len() {
            let _ = (seen(&packet[..cut], RUN), outer(&packet[..cut]));
        }
        for at in 0..packet.len().min(64) {
            for value in 0..=u8::MAX {
                let mut changed = packet.clone();
                changed[at] = value;
                let _ = (seen(&changed, RUN), outer(&changed));
            }
        }
    }
}

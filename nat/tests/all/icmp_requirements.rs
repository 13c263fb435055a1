//! What RFC 4787 (UDP), RFC 5382 (TCP) and RFC 7857 ask about ICMP, sizes and headers, with packets as bytes. Fragments (RFC 4787,
//! requirement 14) have their tests beside the store that keeps them.

use trieste_nat::Refusal;
use trieste_packet::checksum::fill_ipv4_header;
use trieste_packet::fragment::fragment_v4;
use trieste_packet::wire::{Inner, be16, put16};
use trieste_packet::{Pool, PoolConfig, icmp};

use crate::bed::{
    Bed, GLOBAL, POD, REMOTE, REMOTE_ROUTER, Stop, assert_right, destination, error, mend, mtu_of, quoted,
    source, source_port, tcp, udp,
};

const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
/// Every type and code of errors that a host on the way could make up.
const KINDS: [(u8, u8); 8] = [(3, 0), (3, 1), (3, 2), (3, 3), (3, 4), (3, 13), (11, 0), (12, 0)];

//= https://www.rfc-editor.org/rfc/rfc4787#section-9
//= type=test
//# REQ-12:  Receipt of any sort of ICMP message MUST NOT terminate the
//# NAT mapping.
#[test]
fn rfc4787_req12_no_icmp_message_ends_a_mapping() {
    let mut bed = Bed::new();
    let out = bed.outbound(&udp((POD, 4000), (REMOTE, 53))).unwrap();
    for icmp_type in 0..=255 {
        for code in [0, 1, 3, 4] {
            // Whether it goes through is another question.
            let _ = bed.inbound(&error(REMOTE, (icmp_type, code), &out, 576));
        }
    }
    assert_eq!(bed.sessions(), 1);
    assert!(bed.inbound(&udp((REMOTE, 53), (GLOBAL, source_port(&out)))).is_ok());
}

//= https://www.rfc-editor.org/rfc/rfc4787#section-9
//= type=test
//# a)  The NAT's default configuration SHOULD NOT filter ICMP messages
//# based on their source IP address.
#[test]
fn rfc4787_req12a_errors_are_taken_from_any_source() {
    let mut bed = Bed::new();
    let sent = udp((POD, 4000), (REMOTE, 53));
    let out = bed.outbound(&sent).unwrap();
    for from in [REMOTE, REMOTE_ROUTER, "198.51.100.7".parse().unwrap(), "10.1.0.7".parse().unwrap()] {
        let back = bed.inbound(&error(from, (11, 0), &out, 576)).unwrap();
        assert_eq!((source(&back), quoted(&back)), (from, &sent[..]), "from {from}");
    }
}

//= https://www.rfc-editor.org/rfc/rfc4787#section-9
//= type=test
//# b)  It is RECOMMENDED that a NAT support ICMP Destination
//# Unreachable messages.
#[test]
fn rfc4787_req12b_destination_unreachable_is_translated_with_every_code() {
    let mut bed = Bed::new();
    let sent = udp((POD, 4000), (REMOTE, 53));
    let out = bed.outbound(&sent).unwrap();
    for code in 0..=15 {
        let back = bed.inbound(&error(REMOTE_ROUTER, (3, code), &out, 28)).unwrap();
        assert_eq!((back[20], back[21], destination(&back), quoted(&back)), (3, code, POD, &sent[..28]));
        assert_right(&back);
    }
}

//= https://www.rfc-editor.org/rfc/rfc4787#section-10
//= type=test
//# REQ-13:  If the packet received on an internal IP address has DF=1,
//# the NAT MUST send back an ICMP message "Fragmentation needed and DF
//# set" to the host, as described in [RFC0792].
#[test]
fn rfc4787_req13_a_packet_with_df_that_is_too_big_is_answered_in_the_form_that_its_sender_knows() {
    let mut bed = Bed::new();
    let mut sent = udp((POD, 4000), (REMOTE, 53));
    put16(&mut sent, 6, 0x4000);
    fill_ipv4_header(&mut sent);
    let inner = Inner::parse(&sent).unwrap();
    let mut pool = Pool::new(PoolConfig { slots: 1, slot_bytes: 2048 });
    let mut answer = pool.alloc().unwrap();
    // Ours is about what was sent, not about what it became.
    assert!(bed.outbound(&sent).is_ok() && icmp::may_answer(&sent, &inner));
    assert!(icmp::too_big(&sent, &inner, REMOTE_ROUTER.into(), 1380, &mut answer));
    assert_eq!((quoted(answer.bytes()), destination(answer.bytes())), (&sent[..], POD));
    // One from a router further on says the same after translation.
    let mut further = error(REMOTE_ROUTER, (3, 4), &bed.outbound(&sent).unwrap(), 576);
    put16(&mut further, 26, 1380);
    mend(&mut further);
    let further = bed.inbound(&further).unwrap();
    assert_eq!((quoted(&further), mtu_of(&further)), (&sent[..], 1380));
    assert_eq!(further[20..], answer.bytes()[20..]);
}

//= https://www.rfc-editor.org/rfc/rfc4787#section-10
//= type=test
//# a)  If the packet has DF=0, the NAT MUST fragment the packet and
//# SHOULD send the fragments in order.
#[test]
fn rfc4787_req13a_a_packet_without_df_leaves_in_fragments_in_order() {
    let mut bed = Bed::new();
    let mut sent = udp((POD, 4000), (REMOTE, 53));
    put16(&mut sent, 6, 0);
    fill_ipv4_header(&mut sent);
    let out = bed.outbound(&sent).unwrap();
    let mut pool = Pool::new(PoolConfig { slots: 8, slot_bytes: 512 });
    let mut offsets = Vec::new();
    let count = fragment_v4(&out, 36, &mut pool, |piece| {
        assert_eq!(source(piece.bytes()), GLOBAL);
        offsets.push(be16(piece.bytes(), 6) & 0x1fff);
    });
    assert_eq!((count, offsets), (Ok(2), vec![0, 2]));
}

//= https://www.rfc-editor.org/rfc/rfc5382#section-7.3
//= type=test
//# REQ-9:  If a NAT translates TCP, it SHOULD translate ICMP Destination
//# Unreachable (Type 3) messages.
#[test]
fn rfc5382_req9_destination_unreachable_about_tcp_is_translated() {
    let mut bed = Bed::new();
    let sent = tcp((POD, 4000), (REMOTE, 80), SYN);
    let out = bed.outbound(&sent).unwrap();
    for code in 0..=15 {
        for bytes in [28, 576] {
            let back = bed.inbound(&error(REMOTE_ROUTER, (3, code), &out, bytes)).unwrap();
            assert_eq!((back[20], back[21], destination(&back)), (3, code, POD));
            assert_eq!(quoted(&back), &sent[..bytes.min(sent.len())]);
            assert_right(&back);
        }
    }
}

//= https://www.rfc-editor.org/rfc/rfc5382#section-7.3
//= type=test
//# REQ-10:  Receipt of any sort of ICMP message MUST NOT terminate the
//# NAT mapping or TCP connection for which the ICMP was generated.
#[test]
fn rfc5382_req10_no_icmp_message_ends_a_connection() {
    let mut bed = Bed::new();
    let out = bed.outbound(&tcp((POD, 4000), (REMOTE, 80), SYN)).unwrap();
    let outside = (GLOBAL, source_port(&out));
    bed.inbound(&tcp((REMOTE, 80), outside, SYN | ACK)).unwrap();
    let out = bed.outbound(&tcp((POD, 4000), (REMOTE, 80), ACK)).unwrap();
    for kind in KINDS {
        assert!(bed.inbound(&error(REMOTE, kind, &out, 576)).is_ok());
    }
    bed.pass(2 * 3600);
    assert!(bed.inbound(&tcp((REMOTE, 80), outside, ACK)).is_ok(), "as long as without errors");
    let stranger = tcp((REMOTE, 81), outside, ACK);
    assert_eq!(bed.inbound(&stranger), Err(Stop::Refused(Refusal::NoSession)));
}

/// RFC 7857 section 10 asks for identifications that are unique among all that leave with one address (RFC 6864). They are
/// kept as they are, a documented exception: rewriting them takes state for each packet.
#[test]
fn rfc7857_section10_the_identification_is_kept() {
    let mut bed = Bed::new();
    for (field, number) in [(0x4000, 0), (0, 7), (0x2000, 8)] {
        let mut sent = udp((POD, 4000), (REMOTE, 53));
        put16(&mut sent, 4, number);
        put16(&mut sent, 6, field);
        fill_ipv4_header(&mut sent);
        let out = bed.outbound(&sent).unwrap();
        assert_eq!((be16(&out, 4), be16(&out, 6)), (number, field));
    }
}

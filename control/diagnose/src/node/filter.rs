//! The kernel's filter of a capture: on a busy gateway almost nothing may come by.
//!
//! A capture looks at IP packets from their header on (`SOCK_DGRAM`). Taken are ICMP and ICMPv6, and UDP from or to
//! the ports that are asked for, of which only the beginning is copied. What comes over the VXLAN between nodes is
//! taken unless it carries TCP.

use socket2::SockFilter;
use trieste_vxlan::VX_PORT;

// From the kernel's `linux/filter.h`.
const LOAD_BYTE: u16 = 0x30;
const LOAD_WORD: u16 = 0x28;
const LOAD_WORD_AFTER_X: u16 = 0x48;
const LOAD_BYTE_AFTER_X: u16 = 0x50;
const LOAD_HEADER_LENGTH: u16 = 0xb1;
const SET_X: u16 = 0x01;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_SET: u16 = 0x45;
const RETURN: u16 = 0x06;

const TCP: u32 = 6;
/// UDP header, VXLAN header, Ethernet header, IPv4's protocol field.
const CARRIED_PROTOCOL: u32 = 8 + 8 + 14 + 9;
/// Bytes kept of each packet: the headers of a probe in a quotation in a carrier.
pub(super) const SNAP_BYTES: usize = 384;
/// Most ports.
pub(super) const MAX_PORTS: usize = 16;

/// The filter for these UDP ports; at most [`MAX_PORTS`] count.
pub(super) fn filter(ports: &[u16]) -> Vec<SockFilter> {
    program(ports).into_iter().map(|(code, jt, jf, k)| SockFilter::new(code, jt, jf, k)).collect()
}

type Step = (u16, u8, u8, u32);

/// The program; jumps count from the step after them.
fn program(ports: &[u16]) -> Vec<Step> {
    let ports = &ports[..ports.len().min(MAX_PORTS)];
    let mut v4 = vec![
        (LOAD_BYTE, 0, 0, 9),
        (JUMP_IF_EQUAL, TAKE, 0, 1),
        (JUMP_IF_EQUAL, 0, LEAVE, 17),
        (LOAD_WORD, 0, 0, 6),
        (JUMP_IF_SET, LEAVE, 0, 0x1fff),
        (LOAD_HEADER_LENGTH, 0, 0, 0),
    ];
    v4.extend(by_port(ports));
    let mut v6 = vec![
        (LOAD_BYTE, 0, 0, 6),
        (JUMP_IF_EQUAL, TAKE, 0, 58),
        (JUMP_IF_EQUAL, 0, LEAVE, 17),
        (SET_X, 0, 0, 40),
    ];
    v6.extend(by_port(ports));
    let v4_len = u32::try_from(v4.len()).unwrap_or(0);
    let mut steps =
        vec![(LOAD_BYTE, 0, 0, 0), (AND, 0, 0, 0xf0), (JUMP_IF_EQUAL, 1, 0, 0x40), (JUMP, 0, 0, v4_len)];
    steps.extend(v4);
    // What is neither was sent here with IPv6; its first four bits are asked for now.
    let is_v6 = [(LOAD_BYTE, 0, 0, 0), (AND, 0, 0, 0xf0), (JUMP_IF_EQUAL, 0, LEAVE, 0x60)];
    steps.extend(is_v6);
    steps.extend(v6);
    let leave = steps.len();
    steps.push((RETURN, 0, 0, 0));
    steps.push((RETURN, 0, 0, u32::try_from(SNAP_BYTES).unwrap_or(0)));
    steps.into_iter().enumerate().map(|(at, step)| resolve(step, at, leave)).collect()
}

/// Placeholders for jumps to the end.
const TAKE: u8 = 254;
const LEAVE: u8 = 255;

fn resolve((code, jt, jf, k): Step, at: usize, leave: usize) -> Step {
    let target = |jump: u8| match jump {
        LEAVE => u8::try_from(leave - at - 1).unwrap_or(0),
        TAKE => u8::try_from(leave - at).unwrap_or(0),
        near => near,
    };
    if code == JUMP_IF_EQUAL || code == JUMP_IF_SET {
        (code, target(jt), target(jf), k)
    } else {
        (code, jt, jf, k)
    }
}

/// X is the length of the IP header.
fn by_port(ports: &[u16]) -> Vec<Step> {
    let mut steps = vec![(LOAD_WORD_AFTER_X, 0, 0, 2)];
    // Over the VXLAN between nodes, everything but TCP.
    steps.push((JUMP_IF_EQUAL, 0, 2, u32::from(VX_PORT)));
    steps.push((LOAD_BYTE_AFTER_X, 0, 0, CARRIED_PROTOCOL));
    steps.push((JUMP_IF_EQUAL, LEAVE, TAKE, TCP));
    steps.extend(ports.iter().map(|port| (JUMP_IF_EQUAL, TAKE, 0, u32::from(*port))));
    steps.push((LOAD_WORD_AFTER_X, 0, 0, 0));
    steps.extend(ports.iter().map(|port| (JUMP_IF_EQUAL, TAKE, 0, u32::from(*port))));
    steps.push((JUMP_IF_EQUAL, LEAVE, LEAVE, 0));
    steps
}

#[cfg(test)]
mod tests {
    use super::super::token::{Mark, Run};
    use super::super::wire::Probe;
    use super::*;

    /// Runs the program as the kernel does: how many bytes are kept. A load beyond the end keeps nothing.
    fn run(packet: &[u8], ports: &[u16]) -> u32 {
        let program = program(ports);
        let (mut a, mut x, mut at) = (0_u32, 0_u32, 0_usize);
        let byte = |at: u32| packet.get(at as usize).copied().map(u32::from);
        loop {
            let (code, jt, jf, k) = program[at];
            at += 1;
            let word = |at: u32| Some(byte(at)? << 8 | byte(at + 1)?);
            let loaded = match code {
                LOAD_BYTE => byte(k),
                LOAD_WORD => word(k),
                LOAD_WORD_AFTER_X => word(x + k),
                LOAD_BYTE_AFTER_X => byte(x + k),
                _ => Some(a),
            };
            let Some(loaded) = loaded else { return 0 };
            a = loaded;
            match code {
                LOAD_HEADER_LENGTH => x = (byte(k).unwrap() & 0xf) * 4,
                SET_X => x = k,
                AND => a &= k,
                JUMP => at += k as usize,
                JUMP_IF_EQUAL => at += usize::from(if a == k { jt } else { jf }),
                JUMP_IF_SET => at += usize::from(if a & k != 0 { jt } else { jf }),
                RETURN => return k,
                _ => {}
            }
        }
    }

    fn packet(source: &str, destination: &str, ports: Option<(u16, u16)>) -> Vec<u8> {
        let mark = Mark { run: Run([1; 6]), probe: 1, number: 1 };
        let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
        Probe { mark, source, destination, ports, length: 120 }.emit().unwrap()
    }

    #[test]
    fn pings_and_the_ports_asked_for_are_taken() {
        for (source, destination) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            let taken = |ports| run(&packet(source, destination, ports), &[4500, 4490]) > 0;
            assert!(taken(None));
            assert!(taken(Some((1, 4490))) && taken(Some((4500, 1))));
            assert!(!taken(Some((1, 2))));
        }
    }

    #[test]
    fn between_nodes_everything_but_tcp_is_taken() {
        let mut datagram = packet("10.0.0.1", "10.0.0.2", Some((1, 4800)));
        datagram[20 + CARRIED_PROTOCOL as usize] = 1;
        assert!(run(&datagram, &[]) > 0);
        datagram[20 + CARRIED_PROTOCOL as usize] = 6;
        assert_eq!(run(&datagram, &[4800]), 0);
    }

    #[test]
    fn tcp_fragments_and_what_is_no_ip_are_left() {
        let mut tcp = packet("10.0.0.1", "10.0.0.2", Some((4500, 4500)));
        tcp[9] = 6;
        assert_eq!(run(&tcp, &[4500]), 0);
        let mut fragment = packet("10.0.0.1", "10.0.0.2", Some((4500, 4500)));
        fragment[7] = 3;
        assert_eq!(run(&fragment, &[4500]), 0);
        assert_eq!(run(&[0x10, 1, 2, 3], &[4500]), 0);
        assert_eq!(run(&[], &[4500]), 0);
    }

    #[test]
    fn the_most_ports_fit_into_jumps_of_one_byte() {
        let ports: Vec<u16> = (0..40).collect();
        let program = program(&ports);
        assert!(program.len() < 200, "{}", program.len());
        assert!(run(&packet("10.0.0.1", "10.0.0.2", Some((900, 15))), &ports) > 0);
    }
}

//! The program run by the kernel over crafted frames (`BPF_PROG_TEST_RUN`), against a table of verdicts. Needs root.

use etherparse::PacketBuilder;

use self::skip::skip;
use super::super::bpf::test_run::run;
use super::super::bpf::{Program, SocketMap};
use super::*;

#[path = "../../../tests/all/skip.rs"]
mod skip;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const OTHER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const OURS4: [u8; 4] = [192, 0, 2, 1];
const OURS6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff];
const THEIRS4: [u8; 4] = [198, 51, 100, 7];
const THEIRS6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];

/// What the program of the tests answers for what is ours: no queue has a socket (`XDP_TX`).
const OURS: u32 = 3;
const KERNEL: u32 = PASS as u32;

fn config() -> FilterConfig {
    FilterConfig {
        mac: MAC,
        ipv4: vec!["203.0.113.200".parse().unwrap(), OURS4.into()],
        ipv6: vec!["2001:db8::fe".parse().unwrap(), OURS6.into()],
        ports: vec![4500, 4800],
        esp: true,
        partial: true,
        frame_bytes: 1792,
    }
}

/// The program of `config`; without root, says that the test is skipped.
fn program(config: &FilterConfig) -> Option<(Program, SocketMap)> {
    let map = match SocketMap::new(4) {
        Ok(map) => map,
        Err(error) => {
            let code = error.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
            let reasons = [rustix::io::Errno::PERM, rustix::io::Errno::NOSYS];
            assert!(code.is_some_and(|code| reasons.contains(&code)), "cannot make a map: {error}");
            skip(&format!("no BPF here ({error}); needs root"));
            return None;
        }
    };
    let instructions = assemble(config, map.descriptor(), 3).unwrap();
    Some((Program::load(&instructions).unwrap(), map))
}

fn udp4(to: [u8; 4], port: u16, payload: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(OTHER_MAC, MAC)
        .ipv4(THEIRS4, to, 64)
        .udp(9999, port)
        .write(&mut frame, &vec![7; payload])
        .unwrap();
    frame
}

fn udp6(to: [u8; 16], port: u16, payload: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(OTHER_MAC, MAC)
        .ipv6(THEIRS6, to, 64)
        .udp(9999, port)
        .write(&mut frame, &vec![7; payload])
        .unwrap();
    frame
}

fn changed(mut frame: Vec<u8>, changes: &[(usize, &[u8])]) -> Vec<u8> {
    for (at, bytes) in changes {
        frame[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    frame
}

/// The frame with tags in front of its Ethernet type.
fn tagged(frame: &[u8], tags: &[u16]) -> Vec<u8> {
    let mut tagged = frame[..12].to_vec();
    for tag in tags {
        tagged.extend(tag.to_be_bytes());
        tagged.extend([0, 5]);
    }
    tagged.extend(&frame[12..]);
    tagged
}

/// An IPv6 packet whose UDP header stands behind an extension header.
fn behind(header: u8) -> Vec<u8> {
    let plain = udp6(OURS6, 4500, 40);
    let mut frame = plain[..54].to_vec();
    frame[18..20].copy_from_slice(&56u16.to_be_bytes());
    frame[20] = header;
    frame.extend([17, 0, 0, 0, 0, 0, 0, 0]);
    frame.extend(&plain[54..]);
    frame
}

fn cases() -> Vec<(&'static str, Vec<u8>, u32)> {
    let (four, six) = (udp4(OURS4, 4500, 100), udp6(OURS6, 4500, 100));
    let mut cases = ours(&four, &six);
    cases.extend(of_the_kernel(&four, &six));
    cases.extend(malformed(&four, &six));
    cases
}

fn ours(four: &[u8], six: &[u8]) -> Vec<(&'static str, Vec<u8>, u32)> {
    let dont_fragment = changed(four.to_vec(), &[(20, &[0x40, 0])]);
    let mut padded = udp4(OURS4, 4500, 0);
    padded.resize(60, 0);
    vec![
        ("UDP over IPv4", four.to_vec(), OURS),
        ("UDP over IPv6", six.to_vec(), OURS),
        ("the second port", udp4(OURS4, 4800, 20), OURS),
        ("the second port over IPv6", udp6(OURS6, 4800, 20), OURS),
        ("another address of ours", udp4([203, 0, 113, 200], 4500, 20), OURS),
        ("DF", dont_fragment, OURS),
        ("a type of service", changed(four.to_vec(), &[(15, &[0xb9])]), OURS),
        ("a flow label", changed(six.to_vec(), &[(14, &[0x6f, 0xff, 0xff, 0xff])]), OURS),
        ("no payload, padded", padded, OURS),
        ("ESP", changed(four.to_vec(), &[(23, &[50])]), OURS),
        ("ESP over IPv6", changed(six.to_vec(), &[(20, &[50])]), OURS),
        ("the largest frame", udp4(OURS4, 4500, 1792 - 42), OURS),
        ("a wrong checksum: that is for us to find", changed(four.to_vec(), &[(24, &[1, 2])]), OURS),
    ]
}

fn of_the_kernel(four: &[u8], six: &[u8]) -> Vec<(&'static str, Vec<u8>, u32)> {
    let mut arp = vec![0; 60];
    arp[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 6]);
    let tcp = changed(four.to_vec(), &[(23, &[6])]);
    vec![
        ("another port", udp4(OURS4, 4501, 20), KERNEL),
        ("the port in the other byte order", udp4(OURS4, 4500u16.swap_bytes(), 20), KERNEL),
        ("another port over IPv6", udp6(OURS6, 53, 20), KERNEL),
        ("another address", udp4([192, 0, 2, 2], 4500, 20), KERNEL),
        ("another address over IPv6", udp6(THEIRS6, 4500, 20), KERNEL),
        ("multicast", udp4([224, 0, 0, 1], 4500, 20), KERNEL),
        ("TCP to the port", tcp, KERNEL),
        ("ICMP", changed(four.to_vec(), &[(23, &[1])]), KERNEL),
        ("ICMPv6", changed(six.to_vec(), &[(20, &[58])]), KERNEL),
        ("ARP", arp, KERNEL),
        ("another station", changed(four.to_vec(), &[(0, &OTHER_MAC)]), KERNEL),
        ("another station in the first byte", changed(four.to_vec(), &[(0, &[3])]), KERNEL),
        ("broadcast", changed(four.to_vec(), &[(0, &[0xff; 6])]), KERNEL),
        ("a VLAN tag", tagged(four, &[0x8100]), KERNEL),
        ("a VLAN tag over IPv6", tagged(six, &[0x8100]), KERNEL),
        ("two VLAN tags", tagged(four, &[0x88a8, 0x8100]), KERNEL),
        ("a stack of VLAN tags", tagged(four, &[0x8100; 9]), KERNEL),
        ("MPLS", tagged(four, &[0x8847]), KERNEL),
        ("IPv4 as IPv6", changed(four.to_vec(), &[(12, &[0x86, 0xdd])]), KERNEL),
        ("IPv6 as IPv4", changed(six.to_vec(), &[(12, &[8, 0])]), KERNEL),
        ("a first fragment", changed(four.to_vec(), &[(20, &[0x20, 0])]), KERNEL),
        ("a later fragment", changed(four.to_vec(), &[(20, &[0, 0x10])]), KERNEL),
        ("the last fragment", changed(four.to_vec(), &[(20, &[0x1f, 0xff])]), KERNEL),
        ("the reserved bit", changed(four.to_vec(), &[(20, &[0x80, 0])]), KERNEL),
        ("a fragment over IPv6", behind(44), KERNEL),
        ("hop-by-hop options", behind(0), KERNEL),
        ("destination options", behind(60), KERNEL),
        ("a routing header", behind(43), KERNEL),
        ("IP options", changed(four.to_vec(), &[(14, &[0x46])]), KERNEL),
        ("larger than a frame", udp4(OURS4, 4500, 1792 - 41), KERNEL),
        ("much larger", udp6(OURS6, 4500, 3000), KERNEL),
    ]
}

fn malformed(four: &[u8], six: &[u8]) -> Vec<(&'static str, Vec<u8>, u32)> {
    vec![
        ("version 6 in IPv4", changed(four.to_vec(), &[(14, &[0x65])]), KERNEL),
        ("version 4 in IPv6", changed(six.to_vec(), &[(14, &[0x45])]), KERNEL),
        ("a short header", changed(four.to_vec(), &[(14, &[0x44])]), KERNEL),
        ("a total length of nothing", changed(four.to_vec(), &[(16, &[0, 0])]), KERNEL),
        ("a total length below the headers", changed(four.to_vec(), &[(16, &[0, 27])]), KERNEL),
        (
            "a total length beyond the frame: that is for us to find",
            changed(four.to_vec(), &[(16, &[0, 129])]),
            OURS,
        ),
        ("the largest total length", changed(four.to_vec(), &[(16, &[0xff, 0xff])]), OURS),
        ("no payload length", changed(six.to_vec(), &[(18, &[0, 0])]), KERNEL),
        ("a payload length below the header", changed(six.to_vec(), &[(18, &[0, 7])]), KERNEL),
        ("a payload length beyond the frame", changed(six.to_vec(), &[(18, &[0, 109])]), OURS),
        ("a jumbogram", changed(six.to_vec(), &[(18, &[0, 0]), (20, &[0])]), KERNEL),
    ]
}

#[test]
fn frames_are_ours_or_the_kernels_as_the_table_says() {
    let Some((program, _map)) = program(&config()) else { return };
    let wrong: Vec<_> = cases()
        .into_iter()
        .map(|(what, frame, verdict)| (what, verdict, run(&program, &frame).unwrap()))
        .filter(|(_, wanted, found)| wanted != found)
        .collect();
    assert!(wrong.is_empty(), "what, wanted, found: {wrong:?}");
}

#[test]
fn checksums_left_to_a_device_are_the_kernels_in_the_stack_and_ours_in_the_driver() {
    let mut stack = config();
    stack.partial = false;
    let (Some((in_driver, _map)), Some((in_stack, _other))) = (program(&config()), program(&stack)) else {
        return;
    };
    for (what, frame, verdict) in cases() {
        assert_eq!(run(&in_stack, &frame).unwrap(), verdict, "{what}: nothing else differs");
    }
    for payload in 0..300 {
        for mut frame in [udp4(OURS4, 4500, payload), udp6(OURS6, 4500, payload)] {
            let (addresses, field) = if frame[12] == 8 { (26..34, 40) } else { (22..54, 60) };
            let length = u16::try_from(payload + 8).unwrap();
            // Addresses that vary, so that every carry comes about.
            frame[addresses.start + 1] = u8::try_from(payload % 251).unwrap();
            frame[addresses.start + 3] = 0xff - u8::try_from(payload % 241).unwrap();
            assert_eq!(run(&in_stack, &frame).unwrap(), OURS, "{payload}");
            let sum = trieste_packet::checksum::Sum::ZERO.bytes(&frame[addresses]).word(17).word(length);
            frame[field..field + 2].copy_from_slice(&sum.folded().to_be_bytes());
            assert_eq!(run(&in_stack, &frame).unwrap(), KERNEL, "{payload}");
            assert_eq!(run(&in_driver, &frame).unwrap(), OURS, "{payload}");
        }
    }
}

#[test]
fn truncated_headers_go_to_the_kernel() {
    let Some((program, _map)) = program(&config()) else { return };
    for frame in [udp4(OURS4, 4500, 0), udp6(OURS6, 4500, 3)] {
        let headers = if frame[12] == 8 { 14 + 20 + 8 } else { 14 + 40 + 8 };
        for len in 14..headers {
            assert_eq!(run(&program, &frame[..len]).unwrap(), KERNEL, "{len} of {}", frame.len());
        }
        assert_eq!(run(&program, &frame).unwrap(), OURS);
    }
}

#[test]
fn nothing_is_ours_without_addresses_ports_or_esp() {
    let esp = changed(udp4(OURS4, 4500, 100), &[(23, &[50])]);
    let stack = FilterConfig { partial: false, ..config() };
    for (config, frame) in [
        (FilterConfig { ports: Vec::new(), ..stack.clone() }, udp4(OURS4, 4500, 9)),
        (FilterConfig { ipv4: Vec::new(), ..stack }, udp4(OURS4, 4500, 9)),
        (FilterConfig { ipv4: Vec::new(), ..config() }, udp4(OURS4, 4500, 9)),
        (FilterConfig { ipv6: Vec::new(), ..config() }, udp6(OURS6, 4500, 9)),
        (FilterConfig { ports: Vec::new(), ..config() }, udp4(OURS4, 4500, 9)),
        (FilterConfig { esp: false, ..config() }, esp),
    ] {
        let Some((program, _map)) = program(&config) else { return };
        assert_eq!(run(&program, &frame).unwrap(), KERNEL, "{config:?}");
    }
}

#[test]
fn the_verifier_takes_the_largest_program_and_more_is_an_error() {
    let many = FilterConfig {
        partial: false,
        ipv4: (0..64).map(|last| [10, 0, 0, last].into()).collect(),
        ipv6: (0..64).map(|last| [last; 16].into()).collect(),
        ports: (1..=64).collect(),
        ..config()
    };
    let Some((program, _map)) = program(&many) else { return };
    assert_eq!(run(&program, &udp6([63; 16], 64, 9)).unwrap(), OURS);
    assert_eq!(run(&program, &udp4([10, 0, 0, 63], 1, 9)).unwrap(), OURS);
    let ports = (1..=65).collect();
    assert!(matches!(
        assemble(&FilterConfig { ports, ..many }, 0, PASS),
        Err(Error::Count { count: 65, .. })
    ));
}

/// The instructions of the program of [`config`], as reviewed; `map` is descriptor 9.
const LISTING: &str = include_str!("listing.txt");

#[test]
#[cfg(target_endian = "little")]
fn the_instructions_are_those_that_were_reviewed() {
    let instructions = assemble(&config(), 9, PASS).unwrap();
    let listing: String =
        instructions.iter().enumerate().map(|(at, instruction)| format!("{at:3} {instruction}\n")).collect();
    if std::env::var_os("TRIESTE_WRITE_LISTING").is_some() {
        std::fs::write("src/xdp/filter/listing.txt", &listing).unwrap();
    }
    assert!(
        listing == LISTING,
        "the program has changed: TRIESTE_WRITE_LISTING=1 writes the new one\n{listing}"
    );
}

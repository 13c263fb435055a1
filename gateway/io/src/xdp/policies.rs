//! The host's IPsec policies (`ip xfrm policy`), which the kernel applies to what goes through its stack and cannot apply to
//! frames: read, and compared with what is ours.
//!
//! What a policy protects or blocks steps aside and goes through the sockets. The comparison errs on that side: priorities
//! are not weighed, and ports of peers count as any.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};
use trieste_packet::wire::protocol;

/// `XFRM_MSG_NEWPOLICY` and `XFRM_MSG_GETPOLICY`.
const NEW_POLICY: u16 = 0x13;
const GET_POLICY: u16 = 0x15;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const DUMP: u16 = 0x301;
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// The multicast group of policies, as a bit (`XFRMGRP_POLICY`): `XFRMNLGRP_POLICY` is 4, and the first group is bit 0.
const GROUP: u32 = 1 << 3;
/// Attributes: templates of what protects, the mark, the interface that a policy is for.
const TEMPLATES: u16 = 5;
const MARK: u16 = 21;
const IF_ID: u16 = 31;
/// `XFRM_POLICY_BLOCK`.
const BLOCK: u8 = 1;
/// Bytes of `struct nlmsghdr`, `struct xfrm_selector`, `struct xfrm_userpolicy_info`.
const HEADER_BYTES: usize = 16;
const SELECTOR_BYTES: usize = 56;
const POLICY_BYTES: usize = 168;
/// Bytes that one read takes: more than the kernel puts into one.
const READ_BYTES: usize = 64 << 10;
/// Most policies that are compared one by one; of more all of ours counts as touched.
const MOST: usize = 4096;

/// Whose packets a policy is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// Those that arrive.
    In,
    /// Those that leave.
    Out,
}

/// Packets of ours.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flow<'a> {
    pub(super) local: IpAddr,
    /// `None` for anybody.
    pub(super) remote: Option<IpAddr>,
    /// Our UDP ports.
    pub(super) ports: &'a [u16],
    /// Whether ESP without UDP is among them.
    pub(super) esp: bool,
    pub(super) interface: u32,
    pub(super) mark: u32,
}

/// A policy that protects or blocks something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Policy {
    direction: Direction,
    source: (IpAddr, u8),
    destination: (IpAddr, u8),
    /// Port and mask, host order.
    source_port: (u16, u16),
    destination_port: (u16, u16),
    /// 0 for any.
    protocol: u8,
    /// 0 for any.
    interface: u32,
    /// Value and mask.
    mark: (u32, u32),
}

impl Policy {
    fn touches(&self, direction: Direction, flow: &Flow<'_>) -> bool {
        let (local, remote, port) = match direction {
            Direction::In => (self.destination, self.source, self.destination_port),
            Direction::Out => (self.source, self.destination, self.source_port),
        };
        let is_port = |ours: &u16| (ours ^ port.0) & port.1 == 0;
        let is_udp = [0, protocol::UDP].contains(&self.protocol) && flow.ports.iter().any(is_port);
        let is_esp = flow.esp && [0, protocol::ESP].contains(&self.protocol);
        direction == self.direction
            && (is_udp || is_esp)
            && is_within(flow.local, local)
            && flow.remote.is_none_or(|address| is_within(address, remote))
            && [0, flow.interface].contains(&self.interface)
            && (flow.mark ^ self.mark.0) & self.mark.1 == 0
    }
}

fn is_within(address: IpAddr, (prefix, bits): (IpAddr, u8)) -> bool {
    let is_same = |address: u128, prefix: u128, width: u32| {
        let shift = width.saturating_sub(u32::from(bits));
        address.checked_shr(shift).unwrap_or(0) == prefix.checked_shr(shift).unwrap_or(0)
    };
    match (address, prefix) {
        (IpAddr::V4(address), IpAddr::V4(prefix)) => {
            is_same(u32::from(address).into(), u32::from(prefix).into(), 32)
        }
        (IpAddr::V6(address), IpAddr::V6(prefix)) => is_same(address.into(), prefix.into(), 128),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
    }
}

/// The policies as they were read last.
#[derive(Debug)]
pub(super) struct Policies {
    /// `None` where the kernel has no IPsec.
    socket: Option<OwnedFd>,
    list: Vec<Policy>,
    is_cut: bool,
    sequence: u32,
}

impl Policies {
    /// Opens a socket in the thread's network namespace. A kernel without IPsec has no policies.
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self { socket: open(0)?, list: Vec::new(), is_cut: false, sequence: 0 })
    }

    /// Returns `true` if a policy protects or blocks something of the flow.
    pub(super) fn touch(&self, direction: Direction, flow: &Flow<'_>) -> bool {
        self.is_cut || self.list.iter().any(|policy| policy.touches(direction, flow))
    }

    /// Reads all policies.
    ///
    /// # Errors
    /// There is no answer; the former ones stay.
    pub(super) fn refresh(&mut self) -> io::Result<()> {
        let Some(socket) = &self.socket else { return Ok(()) };
        self.sequence = self.sequence.wrapping_add(1);
        let mut question = Vec::with_capacity(HEADER_BYTES);
        question.extend(16u32.to_ne_bytes());
        question.extend(GET_POLICY.to_ne_bytes());
        question.extend(DUMP.to_ne_bytes());
        question.extend(self.sequence.to_ne_bytes());
        question.extend(0u32.to_ne_bytes());
        send(socket, &question, SendFlags::empty())?;
        let (mut list, mut buffer, mut is_cut) = (Vec::new(), vec![0; READ_BYTES], false);
        loop {
            let (count, _) = recv(socket, &mut buffer[..], RecvFlags::empty())?;
            let mut rest = buffer.get(..count).unwrap_or_default();
            while let Some((kind, sequence, body, next)) = message(rest) {
                rest = next;
                match kind {
                    _ if sequence != self.sequence => {}
                    NEW_POLICY if list.len() < MOST => list.extend(parse(body)),
                    NEW_POLICY => is_cut = true,
                    ERROR => return Err(error(body)),
                    DONE => {
                        (self.list, self.is_cut) = (list, is_cut);
                        return Ok(());
                    }
                    _ => {}
                }
            }
        }
    }
}

/// A socket that becomes readable when policies have changed.
#[derive(Debug)]
pub(super) struct PolicyNotices(OwnedFd);

impl PolicyNotices {
    /// Opens a socket in the thread's network namespace; `None` where the kernel has no IPsec.
    pub(super) fn open() -> io::Result<Option<Self>> {
        Ok(open(GROUP)?.map(Self))
    }

    /// Reads all notices.
    pub(super) fn drain(&self) {
        let mut buffer = [0; 1024];
        loop {
            match recv(&self.0, &mut buffer[..], RecvFlags::DONTWAIT) {
                Ok(_) | Err(rustix::io::Errno::NOBUFS | rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }
}

impl AsFd for PolicyNotices {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn open(groups: u32) -> io::Result<Option<OwnedFd>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let protocol = Some(rustix::net::netlink::XFRM);
    match socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol) {
        Err(rustix::io::Errno::PROTONOSUPPORT) => Ok(None),
        Err(error) => Err(error.into()),
        Ok(socket) => {
            bind(&socket, &SocketAddrNetlink::new(0, groups))?;
            Ok(Some(socket))
        }
    }
}

/// Takes the first message apart: kind, sequence number, body, and what is behind it.
fn message(bytes: &[u8]) -> Option<(u16, u32, &[u8], &[u8])> {
    let length = usize::try_from(word(bytes, 0)?).ok()?;
    let body = bytes.get(HEADER_BYTES..length)?;
    let next = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((half(bytes, 4)?, word(bytes, 8)?, body, next))
}

fn error(body: &[u8]) -> io::Error {
    let code = word(body, 0).map_or(libc::EIO, |code| 0i32.wrapping_sub(code.cast_signed()));
    io::Error::from_raw_os_error(code)
}

/// Reads a policy; `None` if it lets packets pass as they are, is about forwarding, or belongs to an interface of its own.
fn parse(body: &[u8]) -> Option<Policy> {
    let (info, mut attributes) = body.split_at_checked(POLICY_BYTES)?;
    let selector = info.get(..SELECTOR_BYTES)?;
    let (mut is_protecting, mut mark, mut if_id) = (*info.get(161)? == BLOCK, (0, 0), 0);
    while let (Some(length), Some(kind)) = (half(attributes, 0), half(attributes, 2)) {
        let value = attributes.get(4..usize::from(length))?;
        match kind {
            TEMPLATES => is_protecting |= !value.is_empty(),
            MARK => mark = (word(value, 0)?, word(value, 4)?),
            IF_ID => if_id = word(value, 0)?,
            _ => {}
        }
        attributes = attributes.get(usize::from(length).next_multiple_of(4)..).unwrap_or_default();
    }
    let direction = match *info.get(160)? {
        0 => Direction::In,
        1 => Direction::Out,
        _ => return None,
    };
    let is_ipv6 = match half(selector, 40)? {
        family if family == AddressFamily::INET.as_raw() => false,
        family if family == AddressFamily::INET6.as_raw() => true,
        _ => return None,
    };
    let address = |at: usize| -> Option<IpAddr> {
        let bytes: [u8; 16] = selector.get(at..at + 16)?.try_into().ok()?;
        let [a, b, c, d, ..] = bytes;
        Some(if is_ipv6 { Ipv6Addr::from(bytes).into() } else { Ipv4Addr::new(a, b, c, d).into() })
    };
    let port = |at: usize| -> Option<(u16, u16)> {
        Some((u16::from_be(half(selector, at)?), u16::from_be(half(selector, at + 2)?)))
    };
    let policy = Policy {
        direction,
        destination: (address(0)?, selector[42]),
        source: (address(16)?, selector[43]),
        destination_port: port(32)?,
        source_port: port(36)?,
        protocol: selector[44],
        interface: word(selector, 48)?,
        mark,
    };
    (is_protecting && if_id == 0).then_some(policy)
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn within(prefix: &str) -> (IpAddr, u8) {
        let (address, bits) = prefix.split_once('/').unwrap();
        (address.parse().unwrap(), bits.parse().unwrap())
    }

    fn out(source: &str, destination: &str) -> Policy {
        Policy {
            direction: Direction::Out,
            source: within(source),
            destination: within(destination),
            source_port: (0, 0),
            destination_port: (0, 0),
            protocol: 0,
            interface: 0,
            mark: (0, 0),
        }
    }

    #[test]
    fn a_policy_touches_what_its_selector_and_mark_match_and_nothing_else() {
        let any = out("0.0.0.0/0", "0.0.0.0/0");
        let flow = Flow {
            local: "10.0.0.1".parse().unwrap(),
            remote: Some("10.0.0.2".parse().unwrap()),
            ports: &[4500],
            esp: false,
            interface: 3,
            mark: 0x10,
        };
        let cases = [
            ("everything", any, true),
            ("the other direction", Policy { direction: Direction::In, ..any }, false),
            ("the hosts", out("10.0.0.1/32", "10.0.0.2/32"), true),
            ("their networks", out("10.0.0.0/31", "10.0.0.2/31"), true),
            ("another source", out("10.0.0.2/31", "10.0.0.2/31"), false),
            ("another peer", out("0.0.0.0/0", "10.0.0.3/32"), false),
            ("the other family", out("::/0", "::/0"), false),
            ("UDP", Policy { protocol: 17, ..any }, true),
            ("TCP", Policy { protocol: 6, ..any }, false),
            ("ESP, which is not ours", Policy { protocol: 50, ..any }, false),
            ("our port", Policy { source_port: (4500, 0xffff), ..any }, true),
            ("another port", Policy { source_port: (500, 0xffff), ..any }, false),
            ("our interface", Policy { interface: 3, ..any }, true),
            ("another interface", Policy { interface: 4, ..any }, false),
            ("our mark", Policy { mark: (0x10, 0xf0), ..any }, true),
            ("another mark", Policy { mark: (0xe00, 0xf00), ..any }, false),
        ];
        for (name, policy, expected) in cases {
            assert_eq!(policy.touches(Direction::Out, &flow), expected, "{name}");
        }
        let esp = Flow { esp: true, ..flow };
        assert!(Policy { protocol: 50, ..any }.touches(Direction::Out, &esp));
    }

    #[test]
    fn prefixes_of_all_lengths_are_compared() {
        for (address, prefix, expected) in [
            ("10.0.0.1", "0.0.0.0/0", true),
            ("10.0.0.1", "11.0.0.0/7", true),
            ("10.0.0.1", "12.0.0.0/7", false),
            ("fd00::1", "::/0", true),
            ("fd00::1", "fd00::1/128", true),
            ("fd00::1", "fd00::2/127", false),
            ("fd00::1", "fd00::2/126", true),
        ] {
            assert_eq!(is_within(address.parse().unwrap(), within(prefix)), expected, "{address} {prefix}");
        }
    }

    #[test]
    fn answers_that_are_cut_off_anywhere_name_no_policy() {
        let mut body = vec![0; POLICY_BYTES];
        body[40..42].copy_from_slice(&AddressFamily::INET.as_raw().to_ne_bytes());
        (body[160], body[161]) = (1, BLOCK);
        assert_eq!(parse(&body), Some(out("0.0.0.0/0", "0.0.0.0/0")));
        for length in 0..POLICY_BYTES {
            assert_eq!(parse(&body[..length]), None, "{length}");
        }
        for (length, kind) in [(3u16, TEMPLATES), (200, TEMPLATES), (6, MARK), (5, IF_ID)] {
            let mut more = body.clone();
            more.extend(length.to_ne_bytes());
            more.extend(kind.to_ne_bytes());
            more.extend([0; 2]);
            assert_eq!(parse(&more), None, "{length} {kind}");
        }
    }
}

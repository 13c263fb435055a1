//! The health check's raw sockets, one per IP version.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use socket2::{Domain, Protocol, SockFilter, SockRef, Socket, Type};
use tokio::net::UdpSocket;

use super::{EchoReply, Probe, parse_v4, parse_v6};
use crate::admin::Severity;
use crate::conditions::Conditions;

/// Name of the condition that probes cannot be sent at all; its subject is the IP version.
pub const NOT_PROBING: &str = "CannotProbe";

/// Ours: packets read at once, before other things get their turn.
const READ_BUDGET: usize = 64;
/// Longest IPv4 header and our message are 92 bytes; what is longer is no answer to us, and may be cut.
const BUFFER_BYTES: usize = 128;

/// The two sockets, opened when first needed and again after they failed. They are raw sockets in the type of another
/// kind of datagram socket: the runtime has none for them, and calls of the same names do the same with both.
pub(super) struct Sockets {
    sources: Vec<IpAddr>,
    device: Option<String>,
    conditions: Conditions,
    v4: Option<UdpSocket>,
    v6: Option<UdpSocket>,
}

impl Sockets {
    /// Creates an empty set of sockets. They will be bound to the source of their IP version and to the device, where
    /// these are given.
    pub(super) fn new(sources: Vec<IpAddr>, device: Option<String>, conditions: Conditions) -> Self {
        Self { sources, device, conditions, v4: None, v6: None }
    }

    /// Sends a probe, or says why that is not possible.
    pub(super) fn send(&mut self, probe: &Probe) -> Result<(), String> {
        let is_v4 = probe.to.is_ipv4();
        let socket = self.socket(is_v4)?;
        let message = if is_v4 { probe.request.emit_v4() } else { probe.request.emit_v6() };
        // Not through the runtime, which lets nothing be sent on a socket of which it has not heard yet.
        match SockRef::from(socket).send_to(&message, &SocketAddr::new(probe.to, 0).into()) {
            Ok(_) => Ok(()),
            // A full queue has lost this packet, and says nothing about the way.
            Err(error) if is_full(&error) => Ok(()),
            Err(error) => {
                if is_device_gone(&error) {
                    // Bound to a device that is no more: to be bound to the one that takes its place.
                    *(if is_v4 { &mut self.v4 } else { &mut self.v6 }) = None;
                }
                Err(error.to_string())
            }
        }
    }

    /// Waits for packets, and gives the echo replies among them.
    pub(super) async fn recv(&mut self) -> Vec<EchoReply> {
        let (outcome, slot) = tokio::select! {
            outcome = readable(self.v4.as_ref(), parse_v4) => (outcome, &mut self.v4),
            outcome = readable(self.v6.as_ref(), parse_v6) => (outcome, &mut self.v6),
        };
        match outcome {
            Ok(replies) => replies,
            Err(error) => {
                // Opened again with the next probe.
                tracing::debug!(%error, "probing socket failed");
                *slot = None;
                Vec::new()
            }
        }
    }

    fn socket(&mut self, is_v4: bool) -> Result<&UdpSocket, String> {
        let (slot, version) = if is_v4 { (&mut self.v4, "IPv4") } else { (&mut self.v6, "IPv6") };
        if slot.is_none() {
            let source = self.sources.iter().find(|source| source.is_ipv4() == is_v4).copied();
            let device = self.device.as_deref();
            let opened = open(is_v4, source, device).map_err(|error| explain(&error, source, device));
            let problem = opened.as_ref().err().map(|problem| {
                format!(
                    "remote gateways cannot be pinged over {version}: {problem}; until then connections are \
                     judged by their cables alone"
                )
            });
            self.conditions.put(NOT_PROBING, Severity::Warning, version, problem);
            *slot = Some(opened?);
        }
        slot.as_ref().ok_or_else(|| "no socket".to_owned())
    }
}

/// Reads what is there once something is.
async fn readable(
    socket: Option<&UdpSocket>,
    parse: fn(&[u8]) -> Option<EchoReply>,
) -> io::Result<Vec<EchoReply>> {
    let Some(socket) = socket else { return std::future::pending().await };
    socket.readable().await?;
    let mut replies = Vec::new();
    let mut buffer = [0; BUFFER_BYTES];
    for _ in 0..READ_BUDGET {
        match socket.try_recv(&mut buffer) {
            Ok(length) => replies.extend(parse(&buffer[..length])),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(replies)
}

fn open(is_v4: bool, source: Option<IpAddr>, device: Option<&str>) -> io::Result<UdpSocket> {
    let (domain, protocol) =
        if is_v4 { (Domain::IPV4, Protocol::ICMPV4) } else { (Domain::IPV6, Protocol::ICMPV6) };
    let socket = Socket::new(domain, Type::RAW.nonblocking().cloexec(), Some(protocol))?;
    let filter: &[SockFilter] = if is_v4 { &ONLY_REPLIES_V4 } else { &ONLY_REPLIES_V6 };
    if let Err(error) = socket.attach_filter(filter) {
        // Every ICMP packet of the host then comes by; the parser's first look at it is cheap.
        tracing::debug!(%error, "probing socket without filter");
    }
    if let Some(device) = device {
        socket.bind_device(Some(device.as_bytes()))?;
    }
    if let Some(source) = source {
        socket.bind(&SocketAddr::new(source, 0).into())?;
    }
    UdpSocket::from_std(OwnedFd::from(socket).into())
}

fn explain(error: &io::Error, source: Option<IpAddr>, device: Option<&str>) -> String {
    if let (true, Some(device)) = (is_device_gone(error), device) {
        return format!("{error}: this node has no device {device} yet");
    }
    match (error.kind(), source) {
        (ErrorKind::PermissionDenied, _) => format!("{error} (grant the capability NET_RAW)"),
        (ErrorKind::AddrNotAvailable, Some(source)) => format!("{error}: this node has no address {source}"),
        _ => error.to_string(),
    }
}

/// Returns `true` for `ENODEV` and `ENXIO`, for which the standard library has no kinds.
fn is_device_gone(error: &io::Error) -> bool {
    const ENXIO: i32 = 6;
    const ENODEV: i32 = 19;
    matches!(error.raw_os_error(), Some(ENXIO | ENODEV))
}

/// Returns `true` for `ENOBUFS`, for which the standard library has no kind, and for a full socket buffer.
fn is_full(error: &io::Error) -> bool {
    const ENOBUFS: i32 = 105;
    error.kind() == ErrorKind::WouldBlock || error.raw_os_error() == Some(ENOBUFS)
}

// Classic BPF, as in linux/bpf_common.h. A raw socket sees a copy of every ICMP packet of the host; these let echo
// replies through only.
const LOAD_HEADER_LENGTH: u16 = 0xb1; // X = 4 * (byte[k] & 15)
const LOAD_BYTE_AFTER_X: u16 = 0x50; // A = byte[X + k]
const LOAD_BYTE: u16 = 0x30; // A = byte[k]
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;

/// IPv4's raw sockets see the IP header; type 0 is the echo reply.
const ONLY_REPLIES_V4: [SockFilter; 5] = [
    SockFilter::new(LOAD_HEADER_LENGTH, 0, 0, 0),
    SockFilter::new(LOAD_BYTE_AFTER_X, 0, 0, 0),
    SockFilter::new(JUMP_IF_EQUAL, 0, 1, 0),
    SockFilter::new(RETURN, 0, 0, u32::MAX),
    SockFilter::new(RETURN, 0, 0, 0),
];

/// IPv6's do not; type 129.
const ONLY_REPLIES_V6: [SockFilter; 4] = [
    SockFilter::new(LOAD_BYTE, 0, 0, 0),
    SockFilter::new(JUMP_IF_EQUAL, 0, 1, 129),
    SockFilter::new(RETURN, 0, 0, u32::MAX),
    SockFilter::new(RETURN, 0, 0, 0),
];

//! Sends probes and says what came back.
//!
//! With `NET_RAW` a probe is written with its whole IP header, in the name of any source (a pod's, so that it takes
//! the way that the pod's packets take), never to be fragmented; answers are seen as they go by, wherever they are
//! delivered to. Without it (in a pod) the kernel's ping socket does, or UDP and TCP as an application has them.

use std::io::{ErrorKind, Read};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, Socket, Type};

use super::NodeError;
use super::capture::Capture;
use super::token::{Mark, Run};
use super::wire::{self, MIN_PROBE_BYTES, Probe, Refusal, What};

/// Ours: most packets of one request.
const MAX_PACKETS: usize = 64;
/// Ours: longest wait for answers.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// Ours: pause between packets.
const PAUSE: Duration = Duration::from_millis(20);

/// How a probe travels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// ICMP echo.
    #[default]
    Icmp,
    /// A datagram.
    Udp,
    /// A connection that is opened and closed.
    Tcp,
}

/// What to send.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendRequest {
    /// The run that the probe belongs to.
    pub run: Run,
    /// Which probe it is.
    pub probe: u16,
    /// Where to.
    pub destination: IpAddr,
    /// In whose name; the kernel chooses where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// How it travels.
    #[serde(default)]
    pub transport: Transport,
    /// The port that it goes to; not for ICMP.
    #[serde(default)]
    pub port: u16,
    /// Lengths of IP packets in bytes, one after the other; each is sent once for each time it is named.
    #[serde(default)]
    pub sizes: Vec<u16>,
    /// How long to wait for answers after the last packet, in milliseconds.
    pub wait_ms: u32,
    /// Whether to do without `NET_RAW`.
    #[serde(default)]
    pub plain: bool,
}

/// What became of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SendReport {
    /// The source that was written; absent where the kernel chose and does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// The packets, in order.
    pub sent: Vec<SentPacket>,
}

/// One packet of a probe.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SentPacket {
    /// Its number, from 1.
    pub number: u16,
    /// Its length in bytes.
    pub size: u16,
    /// Why the kernel did not take it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Microseconds until the answer; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answered_us: Option<u64>,
    /// Who sent an error, and which.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<SendError>,
}

/// An error that a packet met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendError {
    /// Who says so.
    pub from: IpAddr,
    /// Why.
    pub reason: Refusal,
    /// The largest packet that would do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
}

impl SentPacket {
    fn is_known(&self) -> bool {
        self.answered_us.is_some() || self.error.is_some() || self.refused.is_some()
    }
}

impl SendReport {
    /// Returns the lengths of which nothing is known: none was answered, and nobody says that they are too long.
    pub(crate) fn lost_sizes(&self) -> Vec<u16> {
        let is_known = |size: u16| self.sent.iter().any(|packet| packet.size == size && packet.is_known());
        let mut lost: Vec<u16> =
            self.sent.iter().map(|packet| packet.size).filter(|size| !is_known(*size)).collect();
        lost.dedup();
        lost
    }

    /// Takes over what became of the same lengths when they were sent again.
    pub(crate) fn take_answers(&mut self, again: &Self) {
        for packet in self.sent.iter_mut().filter(|packet| !packet.is_known()) {
            let same = again.sent.iter().filter(|later| later.size == packet.size);
            if let Some(later) = same.into_iter().find(|later| later.is_known()) {
                (packet.answered_us, packet.error) = (later.answered_us, later.error.clone());
            }
        }
    }

    /// How many packets were answered.
    #[must_use]
    pub fn answered(&self) -> usize {
        self.sent.iter().filter(|packet| packet.answered_us.is_some()).count()
    }
}

/// Sends and waits; blocks.
///
/// # Errors
/// [`NodeError::Request`] for addresses of two families, [`NodeError::Socket`] if the kernel gives no socket.
pub fn send(request: &SendRequest) -> Result<SendReport, NodeError> {
    let source = match request.source {
        Some(source) => source,
        None => source_towards(request.destination)?,
    };
    if source.is_ipv4() != request.destination.is_ipv4() {
        let text = format!("{source} and {} are of two families", request.destination);
        return Err(NodeError::Request(text));
    }
    let mut report = match (request.transport, request.plain) {
        (Transport::Tcp, _) => connect(request),
        (Transport::Icmp | Transport::Udp, true) => plain(request, source)?,
        (Transport::Icmp | Transport::Udp, false) => raw(request, source)?,
    };
    report.source = Some(source);
    Ok(report)
}

/// The address that the kernel would use.
fn source_towards(destination: IpAddr) -> Result<IpAddr, NodeError> {
    let any: SocketAddr =
        if destination.is_ipv4() { ([0; 4], 0).into() } else { (std::net::Ipv6Addr::UNSPECIFIED, 0).into() };
    let ask = || {
        let socket = UdpSocket::bind(any)?;
        socket.connect((destination, 9))?;
        Ok(socket.local_addr()?.ip())
    };
    ask().map_err(NodeError::socket("find a source address: the node has no route there"))
}

fn sizes(request: &SendRequest) -> Vec<u16> {
    let sizes = if request.sizes.is_empty() { &[100][..] } else { &request.sizes };
    sizes.iter().take(MAX_PACKETS).map(|size| (*size).max(MIN_PROBE_BYTES)).collect()
}

fn probe(request: &SendRequest, source: IpAddr, number: u16, length: u16) -> Probe {
    let mark = Mark { run: request.run, probe: request.probe, number };
    let ports = (request.transport == Transport::Udp).then(|| (source_port(request), request.port));
    Probe { mark, source, destination: request.destination, ports, length }
}

/// The port that an error is recognised by.
fn source_port(request: &SendRequest) -> u16 {
    request.run.identifier(request.probe)
}

fn wait(request: &SendRequest) -> Duration {
    Duration::from_millis(request.wait_ms.into()).min(MAX_WAIT)
}

fn numbered() -> impl Iterator<Item = u16> {
    1..=u16::MAX
}

fn raw(request: &SendRequest, source: IpAddr) -> Result<SendReport, NodeError> {
    let mut capture = Capture::open(&[request.port])?;
    let socket = raw_socket(request.destination)?;
    let to = SocketAddr::new(request.destination, 0).into();
    let mut report = SendReport::default();
    let mut times = Vec::new();
    for (number, size) in numbered().zip(sizes(request)) {
        let packet = probe(request, source, number, size).emit().unwrap_or_default();
        // Before it leaves: an answer may be there before this thread goes on.
        times.push(Instant::now());
        let refused = socket.send_to(&packet, &to).err().map(|error| error.to_string());
        report.sent.push(SentPacket { number, size, refused, ..SentPacket::default() });
        observe(&mut capture, request, Instant::now() + PAUSE, &times, &mut report)?;
    }
    observe(&mut capture, request, Instant::now() + wait(request), &times, &mut report)?;
    Ok(report)
}

fn raw_socket(destination: IpAddr) -> Result<Socket, NodeError> {
    let open = || {
        // 255: raw IP, with our own header.
        let protocol = Some(Protocol::from(255));
        if destination.is_ipv4() {
            let socket = Socket::new(Domain::IPV4, Type::RAW.cloexec(), protocol)?;
            socket.set_header_included_v4(true)?;
            Ok(socket)
        } else {
            let socket = Socket::new(Domain::IPV6, Type::RAW.cloexec(), protocol)?;
            socket.set_header_included_v6(true)?;
            Ok(socket)
        }
    };
    open().map_err(NodeError::socket("send raw packets"))
}

/// Sees answers go by until a time, or until all have come.
fn observe(
    capture: &mut Capture,
    request: &SendRequest,
    until: Instant,
    times: &[Instant],
    report: &mut SendReport,
) -> Result<(), NodeError> {
    let is_last = times.len() == sizes(request).len();
    while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        if is_last && report.sent.iter().all(is_settled) {
            break;
        }
        let Some(packet) = capture.next(left)? else { continue };
        let seen = wire::seen(packet.bytes, request.run).filter(|seen| seen.probe == request.probe);
        let Some(seen) = seen.filter(|seen| seen.carrier.is_none()) else { continue };
        // What quotes no number means the newest packet.
        let number = seen.number.map_or(times.len(), usize::from);
        let Some(at) = number.checked_sub(1).filter(|at| *at < times.len()) else { continue };
        let sent = &mut report.sent[at];
        match seen.what {
            What::EchoReply if sent.answered_us.is_none() => {
                sent.answered_us = u64::try_from(times[at].elapsed().as_micros()).ok();
            }
            What::Error { reason, mtu, .. } => {
                sent.error = Some(SendError { from: seen.source, reason, mtu });
            }
            What::EchoReply | What::EchoRequest | What::Udp { .. } => {}
        }
    }
    Ok(())
}

fn is_settled(packet: &SentPacket) -> bool {
    packet.refused.is_some() || packet.answered_us.is_some() || packet.error.is_some()
}

/// As an application does it: a connected socket, whose errors are the network's.
fn plain(request: &SendRequest, source: IpAddr) -> Result<SendReport, NodeError> {
    let is_icmp = request.transport == Transport::Icmp;
    let socket = plain_socket(request, is_icmp).map_err(NodeError::socket("open a socket for pings"))?;
    let mut report = SendReport::default();
    for (number, size) in numbered().zip(sizes(request)) {
        let mut probe = probe(request, source, number, size);
        probe.ports = probe.ports.filter(|_| !is_icmp);
        let message = probe.emit_message();
        let payload = if is_icmp { &message[..] } else { &message[8..] };
        let started = Instant::now();
        let mut sent = SentPacket { number, size, ..SentPacket::default() };
        match socket.send(payload) {
            Err(error) => sent.refused = Some(error.to_string()),
            Ok(_) => answer(&socket, request, started, &mut sent),
        }
        report.sent.push(sent);
    }
    Ok(report)
}

fn plain_socket(request: &SendRequest, is_icmp: bool) -> std::io::Result<Socket> {
    let (domain, icmp) = match request.destination {
        IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4),
        IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6),
    };
    let protocol = if is_icmp { icmp } else { Protocol::UDP };
    let socket = Socket::new(domain, Type::DGRAM.cloexec(), Some(protocol))?;
    if let Some(source) = request.source {
        socket.bind(&SocketAddr::new(source, 0).into())?;
    }
    socket.connect(&SocketAddr::new(request.destination, request.port).into())?;
    socket.set_read_timeout(Some(wait(request).max(Duration::from_millis(1))))?;
    Ok(socket)
}

/// One packet's answer, or its error.
fn answer(socket: &Socket, request: &SendRequest, started: Instant, sent: &mut SentPacket) {
    let mut buffer = vec![0; 65_536];
    let mut reader = socket;
    while started.elapsed() < wait(request) {
        match reader.read(&mut buffer) {
            Ok(length) => {
                let mark = Mark::parse(buffer.get(8..length).unwrap_or_default());
                if mark.is_some_and(|mark| mark.run == request.run && mark.number == sent.number) {
                    sent.answered_us = u64::try_from(started.elapsed().as_micros()).ok();
                    return;
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                sent.refused = Some(error.to_string());
                return;
            }
        }
    }
}

/// Opens and closes a connection; its time is until the answer to the first packet.
fn connect(request: &SendRequest) -> SendReport {
    let to = SocketAddr::new(request.destination, request.port);
    let mut sent = SentPacket { number: 1, ..SentPacket::default() };
    let started = Instant::now();
    match TcpStream::connect_timeout(&to, wait(request).max(Duration::from_millis(1))) {
        Ok(_) => sent.answered_us = u64::try_from(started.elapsed().as_micros()).ok(),
        Err(error) => sent.refused = Some(error.to_string()),
    }
    SendReport { source: None, sent: vec![sent] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_by_chance_is_known_once_it_was_sent_again() {
        let packet = |number: u16, size: u16, answered_us: Option<u64>| SentPacket {
            number,
            size,
            answered_us,
            ..SentPacket::default()
        };
        let sent = vec![
            packet(1, 600, Some(9)),
            packet(2, 600, None),
            packet(3, 1200, None),
            packet(4, 1200, None),
            packet(5, 1400, None),
        ];
        let mut report = SendReport { sent, ..SendReport::default() };
        assert_eq!(report.lost_sizes(), [1200, 1400]);
        let again = vec![packet(1, 1200, None), packet(2, 1200, Some(7)), packet(3, 1400, None)];
        report.take_answers(&SendReport { sent: again, ..SendReport::default() });
        assert_eq!(report.lost_sizes(), [1400]);
        assert_eq!(report.sent[2], packet(3, 1200, Some(7)), "its number is that of its sights");
    }
}

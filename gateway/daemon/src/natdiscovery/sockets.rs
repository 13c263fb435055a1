//! The sockets: one per family on the discovery port, each datagram with the address of ours that it was sent to.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use nix::libc::{in_addr, in_pktinfo, in6_addr, in6_pktinfo, sa_family_t, sockaddr_in};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrIn, SockaddrStorage, connect, recvmsg, sendmsg,
    setsockopt, sockopt,
};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use trieste_control::admin::Severity;
use trieste_control::conditions::Conditions;
use trieste_control::natdiscovery::{MAX_DATAGRAM, Transmit};

/// Ours: datagrams that are taken in before anything else gets its turn.
pub(super) const BATCH: usize = 64;
/// Ours: so long until a port that is taken is tried again.
const RETRY: Duration = Duration::from_secs(5);
/// `AF_UNSPEC`, in the width that an address has for it.
const UNSPECIFIED: sa_family_t = 0;
/// Ours: a condition's name.
const NOT_LISTENING: &str = "NatDiscoveryNotListening";

/// Returns a buffer one byte larger than the largest datagram, so that larger ones are noticed.
pub(super) fn buffer() -> Vec<u8> {
    vec![0; MAX_DATAGRAM + 1]
}

/// A datagram that came in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Received {
    pub(super) length: usize,
    pub(super) from: SocketAddr,
    pub(super) to: Option<IpAddr>,
}

/// IPv4's socket and IPv6's.
#[derive(Debug)]
pub(super) struct Sockets {
    mark: u32,
    conditions: Conditions,
    port: u16,
    open: [Option<UdpSocket>; 2],
    /// Sockets that nothing is sent by: what the kernel chooses as their source is looked at.
    probes: [Option<Socket>; 2],
    retry_at: Option<Instant>,
}

impl Sockets {
    /// Returns an empty set; its sockets will have this mark.
    pub(super) fn new(mark: u32, conditions: Conditions) -> Self {
        Self { mark, conditions, port: 0, open: [None, None], probes: [None, None], retry_at: None }
    }

    /// Listens on this port, or on none for 0, as far as that is possible; tries again when it is time.
    pub(super) fn follow(&mut self, port: u16, now: Instant) {
        let is_other = port != self.port;
        if !is_other && self.retry_at.is_none_or(|at| at > now) {
            return;
        }
        if is_other {
            self.conditions.clear(NOT_LISTENING, &subject(self.port));
            self.open = [None, None];
            self.port = port;
        }
        self.retry_at = None;
        if port == 0 {
            return;
        }
        let mut problems = Vec::new();
        for (slot, open) in self.open.iter_mut().enumerate().filter(|(_, open)| open.is_none()) {
            match listen(slot, port, self.mark) {
                Ok(socket) => *open = Some(socket),
                Err(error) => {
                    self.retry_at = Some(now + RETRY);
                    // A host without IPv6 is no problem.
                    if !is_family_missing(&error) {
                        problems.push(format!("{}: {error}", if slot == 0 { "IPv4" } else { "IPv6" }));
                    }
                }
            }
        }
        let message = (!problems.is_empty()).then(|| {
            format!(
                "cannot listen for NAT discovery ({}), so that peers do not learn how to reach this gateway; free the \
                 port or set another with natt-discovery-port; tried again every {} s",
                problems.join(", "),
                RETRY.as_secs(),
            )
        });
        self.conditions.put(NOT_LISTENING, Severity::Warning, &subject(port), message);
    }

    /// Returns when [`Sockets::follow`] has to retry.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Waits for the next datagram; gives the slot of its socket.
    pub(super) async fn readable(&self) -> usize {
        let wait = async |slot: usize| match &self.open[slot] {
            // An error is read from the socket like a datagram.
            Some(socket) => drop(socket.readable().await),
            None => std::future::pending().await,
        };
        tokio::select! {
            () = wait(0) => 0,
            () = wait(1) => 1,
        }
    }

    /// Receives the next datagram. A broken socket is closed, and opened again after a while.
    pub(super) fn recv(&mut self, slot: usize, buffer: &mut [u8], now: Instant) -> Option<Received> {
        let socket = self.open[slot].as_ref()?;
        loop {
            match socket.try_io(Interest::READABLE, || recv(socket, buffer)) {
                Ok(received) => return Some(received),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) if is_of_the_network(&error) => {}
                Err(error) => {
                    tracing::warn!(port = self.port, %error, "NAT discovery: cannot receive");
                    self.open[slot] = None;
                    self.retry_at = Some(now + RETRY);
                    return None;
                }
            }
        }
    }

    /// Sends a datagram. A failed one is dropped, since requests are repeated, ours and peers'.
    pub(super) fn send(&self, transmit: &Transmit) {
        let Some(socket) = &self.open[slot_of(transmit.to)] else { return };
        let sent = socket.try_io(Interest::WRITABLE, || send(socket, transmit));
        if let Err(error) = sent {
            tracing::debug!(to = %transmit.to, %error, "NAT discovery: cannot send");
        }
    }

    /// Returns the source address that the kernel selects for `target`, for a connected socket with the same mark. Nothing is
    /// sent. `None` without a route, or without a socket of that family.
    pub(super) fn source_to(&mut self, target: SocketAddr) -> Option<IpAddr> {
        let slot = slot_of(target);
        self.open[slot].as_ref()?;
        let probe = match self.probes[slot].take() {
            Some(probe) => probe,
            None => {
                let socket =
                    Socket::new(Domain::for_address(target), Type::DGRAM, Some(Protocol::UDP)).ok()?;
                // Without the right to mark, nothing is marked; see listen().
                let _ = socket.set_mark(self.mark);
                socket
            }
        };
        let local = probe.connect(&target.into()).and_then(|()| probe.local_addr()).ok();
        // One that stayed connected would keep its source.
        self.probes[slot] = disconnect(&probe).is_ok().then_some(probe);
        let source = local?.as_socket()?.ip();
        (!source.is_unspecified()).then_some(source)
    }
}

/// Undoes a UDP socket's connection, and with it the choice of its source address and port (udp(7): `AF_UNSPEC`).
fn disconnect(socket: &Socket) -> nix::Result<()> {
    let nowhere = sockaddr_in {
        sin_family: UNSPECIFIED,
        sin_port: 0,
        sin_addr: in_addr { s_addr: 0 },
        sin_zero: [0; 8],
    };
    connect(socket.as_raw_fd(), &SockaddrIn::from(nowhere))
}

fn subject(port: u16) -> String {
    format!("UDP port {port}")
}

fn slot_of(address: SocketAddr) -> usize {
    usize::from(address.is_ipv6())
}

fn listen(slot: usize, port: u16, mark: u32) -> io::Result<UdpSocket> {
    let (domain, any): (_, IpAddr) = match slot {
        0 => (Domain::IPV4, Ipv4Addr::UNSPECIFIED.into()),
        _ => (Domain::IPV6, Ipv6Addr::UNSPECIFIED.into()),
    };
    let socket = Socket::new(domain, Type::DGRAM.nonblocking().cloexec(), Some(Protocol::UDP))?;
    if slot == 0 {
        setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?;
    } else {
        socket.set_only_v6(true)?;
        setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?;
    }
    socket.bind(&SocketAddr::new(any, port).into())?;
    if let Err(error) = socket.set_mark(mark) {
        // As the cables' sockets: it matters only where a remote network contains a remote gateway's address.
        tracing::warn!(port, mark, %error, "NAT discovery: cannot set the socket's mark");
    }
    UdpSocket::from_std(socket.into())
}

fn recv(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<Received> {
    let mut control = nix::cmsg_space!(in_pktinfo, in6_pktinfo);
    let mut slices = [IoSliceMut::new(buffer)];
    let message = recvmsg::<SockaddrStorage>(
        socket.as_raw_fd(),
        &mut slices,
        Some(&mut control),
        MsgFlags::MSG_DONTWAIT,
    )?;
    let mut to = None;
    for ancillary in message.cmsgs()? {
        if let ControlMessageOwned::Ipv4PacketInfo(info) = ancillary {
            // Where an answer is to come from; after a broadcast that is not where the datagram went.
            to = Some(IpAddr::V4(Ipv4Addr::from(info.ipi_spec_dst.s_addr.to_ne_bytes())));
        } else if let ControlMessageOwned::Ipv6PacketInfo(info) = ancillary {
            let address = Ipv6Addr::from(info.ipi6_addr.s6_addr);
            to = (!address.is_multicast()).then_some(IpAddr::V6(address));
        }
    }
    let from = message.address.as_ref().and_then(|address| {
        let v4 = address.as_sockaddr_in().map(|v4| SocketAddr::from(*v4));
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| SocketAddr::from(*v6)))
    });
    let from = from.ok_or_else(|| io::Error::from(io::ErrorKind::Interrupted))?;
    Ok(Received { length: message.bytes, from, to })
}

fn send(socket: &UdpSocket, transmit: &Transmit) -> io::Result<usize> {
    let payload = [IoSlice::new(&transmit.payload)];
    let to = SockaddrStorage::from(transmit.to);
    let send = |ancillary: &[ControlMessage<'_>]| {
        sendmsg(socket.as_raw_fd(), &payload, ancillary, MsgFlags::MSG_DONTWAIT, Some(&to))
            .map_err(io::Error::from)
    };
    match transmit.from {
        None => send(&[]),
        Some(IpAddr::V4(from)) => {
            let ipi_spec_dst = in_addr { s_addr: u32::from_ne_bytes(from.octets()) };
            let info = in_pktinfo { ipi_ifindex: 0, ipi_spec_dst, ipi_addr: in_addr { s_addr: 0 } };
            send(&[ControlMessage::Ipv4PacketInfo(&info)])
        }
        Some(IpAddr::V6(from)) => {
            let info = in6_pktinfo { ipi6_addr: in6_addr { s6_addr: from.octets() }, ipi6_ifindex: 0 };
            send(&[ControlMessage::Ipv6PacketInfo(&info)])
        }
    }
}

fn is_family_missing(error: &io::Error) -> bool {
    use nix::libc::{EADDRNOTAVAIL, EAFNOSUPPORT, EPROTONOSUPPORT};
    matches!(error.raw_os_error(), Some(EADDRNOTAVAIL | EAFNOSUPPORT | EPROTONOSUPPORT))
}

/// Returns `true` for errors about an earlier datagram, after which the next call works.
fn is_of_the_network(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionRefused, ConnectionReset, HostUnreachable, Interrupted, NetworkDown, NetworkUnreachable,
    };
    matches!(
        error.kind(),
        ConnectionRefused
            | ConnectionReset
            | HostUnreachable
            | Interrupted
            | NetworkDown
            | NetworkUnreachable
    )
}

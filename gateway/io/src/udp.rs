//! UDP sockets, and raw ones for ESP: where sealed datagrams leave and arrive.
//!
//! One UDP socket per worker and address family, all on one port; [`steering`] hands each datagram to the worker that
//! owns its lane. Every received datagram says which of our addresses it was sent to and with which TOS byte, every
//! sent one may choose both. Trains cross the socket whole (`UDP_SEGMENT`, `UDP_GRO`) where the kernel does that.
//! Groups that carry ESP have raw sockets besides ([`UdpIo::carry_esp`]); what has port 0 goes through those.

mod message;
mod raw;
mod receive;
mod send;
mod socket;
pub mod steering;
mod transmit;

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use trieste_packet::{Batch, CableId, Drops, Pool};

use crate::link::Family;
use crate::{Capabilities, Error, Fallback, Offloads, PacketIo, RECV_BYTES};
use receive::{Message, Receiver};
use socket::Socket;
use steering::Key;
use transmit::{MAX_BYTES, MAX_SEGMENTS, Transmitter};

/// Most workers that can share a port.
pub const MAX_WORKERS: usize = 256;

/// What happens to outer packets that are larger than a link on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OuterFragments {
    /// They are fragmented: no DF over IPv4, as the kernel's WireGuard does; over IPv6 here, to the path MTU that the
    /// kernel has learnt. A link smaller than we believe costs speed and nothing else.
    #[default]
    Allowed,
    /// DF is set and what the kernel believes of the path is ignored; larger than the interface is `EMSGSIZE`. For
    /// whoever probes the path itself (RFC 8899).
    Forbidden,
}

/// How a worker's sockets should be.
#[derive(Debug, Clone)]
pub struct UdpConfig {
    /// Port, host order; 0 lets the kernel choose one for both families.
    pub port: u16,
    /// Address to bind for IPv4; `None` for no IPv4.
    pub ipv4: Option<Ipv4Addr>,
    /// Address to bind for IPv6; `None` for no IPv6.
    pub ipv6: Option<Ipv6Addr>,
    /// Mark of everything that is sent (`SO_MARK`).
    pub mark: Option<u32>,
    /// Bytes of each socket's receive and send buffer.
    pub buffer_bytes: usize,
    /// Whether trains may be sent whole.
    pub gso: bool,
    /// Whether trains may be received.
    pub gro: bool,
    /// What happens to outer packets that are too large.
    pub fragments: OuterFragments,
}

impl UdpConfig {
    /// Sockets on `port` of all addresses, with everything that the kernel offers.
    #[must_use]
    pub fn new(port: u16) -> Self {
        Self {
            port,
            ipv4: Some(Ipv4Addr::UNSPECIFIED),
            ipv6: Some(Ipv6Addr::UNSPECIFIED),
            mark: None,
            // A few milliseconds at 10 Gbit/s.
            buffer_bytes: 8 << 20,
            gso: true,
            gro: true,
            fragments: OuterFragments::default(),
        }
    }
}

/// One worker's sockets, one per address family; for ESP as many raw ones.
#[derive(Debug)]
pub struct UdpIo {
    /// UDP over IPv4, UDP over IPv6, then raw ESP over both.
    sockets: [Option<Socket>; SLOTS],
    /// Whether the raw sockets are this worker's to read.
    reads_esp: bool,
    receiver: Receiver,
    transmitter: Transmitter,
    fallbacks: Vec<Fallback>,
    /// Which socket is asked first next time.
    turn: usize,
    pace: [Pace; SLOTS],
    /// The socket whose buffer was full at the last send.
    blocked: Option<usize>,
}

/// Address families.
const FAMILIES: usize = 2;
/// Sockets: one of each protocol per family.
const SLOTS: usize = 2 * FAMILIES;

/// What to expect from a socket, so that neither buffers nor system calls are spent on silence.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// Messages to ask for.
    messages: usize,
    /// Bytes per message, at the last call that brought any.
    bytes: usize,
    /// Calls to leave it out while another socket has something.
    rest: u8,
}

/// How often the kernel may choose a port that is free in one family only.
const PORT_TRIES: u32 = 16;

/// How often a silent socket is asked while another is busy: each time it would cost a system call.
const REST: u8 = 8;

impl UdpIo {
    /// Opens one worker's sockets.
    ///
    /// # Errors
    /// As [`UdpIo::open_group`].
    pub fn open(config: &UdpConfig) -> Result<Self, Error> {
        let mut group = Self::open_group(config, 1)?;
        Ok(group.pop().expect("a group of one"))
    }

    /// Opens the sockets of `workers` workers on one port, with [`steering`] attached. Worker *i* gets the *i*-th
    /// value, and keeps it as long as the group lives: see [`steering::attach`].
    ///
    /// # Errors
    /// When the port is taken, neither family can be had, or the kernel refuses what is needed. A missing IPv6 is a
    /// fallback.
    pub fn open_group(config: &UdpConfig, workers: usize) -> Result<Vec<Self>, Error> {
        if workers == 0 || workers > MAX_WORKERS {
            return Err(Error::Count { what: "workers", count: workers, most: MAX_WORKERS });
        }
        let mut tries = if config.port == 0 { PORT_TRIES } else { 1 };
        loop {
            tries -= 1;
            match Self::bind_group(config, workers) {
                // The port that the kernel chose for one family is taken in the other.
                Err(Error::PortInUse(_)) if tries > 0 => {}
                result => return result,
            }
        }
    }

    fn bind_group(config: &UdpConfig, workers: usize) -> Result<Vec<Self>, Error> {
        let mut port = config.port;
        let mut group: Vec<Self> = Vec::with_capacity(workers);
        for worker in 0..workers {
            let mut sockets = [const { None }; SLOTS];
            let mut fallbacks = Vec::new();
            for (slot, address) in socket::bind_addresses(config).into_iter().enumerate() {
                let Some(address) = address else { continue };
                let target = SocketAddr::new(address, port);
                match Socket::bind(target, worker == 0, workers > 1, config, &mut fallbacks) {
                    Ok(socket) => {
                        port = local_port(&socket)?;
                        sockets[slot] = Some(socket);
                    }
                    Err(error) if slot == 1 && sockets[0].is_some() && is_no_ipv6(&error) => {
                        fallbacks.push(Fallback::new("ipv6", error.to_string()));
                    }
                    Err(error) => return Err(error),
                }
            }
            group.push(Self::from_sockets(sockets, fallbacks)?);
        }
        if workers > 1 {
            steer(&mut group, Key::ReceiverIndex);
        }
        Ok(group)
    }

    /// Takes over sockets that somebody else bound (the process before us, or a supervisor), one per family at most.
    /// Port and addresses of `config` are not used; the rest is set.
    ///
    /// # Errors
    /// When a descriptor is no UDP socket, two are of one family, or there is none.
    pub fn adopt(fds: impl IntoIterator<Item = OwnedFd>, config: &UdpConfig) -> Result<Self, Error> {
        let mut sockets = [const { None }; SLOTS];
        let mut fallbacks = Vec::new();
        for fd in fds {
            let socket = Socket::adopt(fd, config, &mut fallbacks)?;
            let slot = slot_of(socket.family);
            if sockets[slot].is_some() {
                return Err(Error::Inherited("is a second socket of the same family"));
            }
            sockets[slot] = Some(socket);
        }
        Self::from_sockets(sockets, fallbacks)
    }

    /// Makes a group's sockets carry VXLAN: datagrams, which name no worker, are shared out by the addresses and ports of
    /// both ends, and over IPv6 they may come without a checksum.
    pub fn carry_vxlan(group: &mut [Self]) {
        let mut fallbacks = Vec::new();
        for io in &*group {
            for socket in io.sockets[..FAMILIES].iter().flatten() {
                if let Err(error) = socket.carry_vxlan() {
                    fallbacks
                        .push(Fallback::new("udp6-zero-checksum", format!("the kernel refused it: {error}")));
                }
            }
        }
        let first = group.first().filter(|_| group.len() > 1);
        for socket in first.iter().flat_map(|io| io.sockets[..FAMILIES].iter().flatten()) {
            // Without a program there is nothing to detach.
            let _ = steering::detach(socket);
        }
        for io in group {
            io.fallbacks.extend(fallbacks.iter().take(1).cloned());
        }
    }

    fn from_sockets(sockets: [Option<Socket>; SLOTS], fallbacks: Vec<Fallback>) -> Result<Self, Error> {
        if sockets.iter().all(Option::is_none) {
            return Err(Error::Count { what: "UDP sockets", count: 0, most: 2 });
        }
        // Both sockets meet the same kernel.
        let mut seen: Vec<Fallback> = Vec::with_capacity(fallbacks.len());
        for fallback in fallbacks {
            if !seen.contains(&fallback) {
                seen.push(fallback);
            }
        }
        let pace = Pace { messages: 2, bytes: 0, rest: 0 };
        Ok(Self {
            sockets,
            reads_esp: false,
            receiver: Receiver::new(),
            transmitter: Transmitter::new(),
            fallbacks: seen,
            turn: 0,
            pace: [pace; SLOTS],
            blocked: None,
        })
    }

    /// Other handles to the same sockets, for whoever restarts the worker.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn try_clone(&self) -> io::Result<Self> {
        let mut sockets = [const { None }; SLOTS];
        for (slot, socket) in self.sockets.iter().enumerate() {
            sockets[slot] = socket.as_ref().map(Socket::try_clone).transpose()?;
        }
        let clone = Self::from_sockets(sockets, self.fallbacks.clone());
        let clone = clone.expect("as many sockets as here, which is not none");
        Ok(Self { reads_esp: self.reads_esp, ..clone })
    }

    /// The sockets that are read, to be waited for: UDP over IPv4 first.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let read = if self.reads_esp { SLOTS } else { FAMILIES };
        self.sockets[..read].iter().flatten().map(AsFd::as_fd)
    }

    /// The socket that has to become writable before the last [`PacketIo::send`] can go on; `None` when that left
    /// nothing behind.
    #[must_use]
    pub fn blocked(&self) -> Option<BorrowedFd<'_>> {
        self.sockets[self.blocked?].as_ref().map(AsFd::as_fd)
    }

    /// The port that the sockets are bound to, host order.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn port(&self) -> io::Result<u16> {
        let socket = self.sockets.iter().flatten().next().expect("there is one");
        Ok(socket.local_address()?.port())
    }

    /// Which sockets to ask, in order: in turns, those that were silent last.
    fn order(&mut self) -> impl Iterator<Item = usize> + use<> {
        let turn = self.turn;
        self.turn = (turn + 1) % SLOTS;
        let read = if self.reads_esp { SLOTS } else { FAMILIES };
        let is_silent = self.pace.map(|pace| pace.rest > 0);
        let all = move || (turn..turn + SLOTS).map(|slot| slot % SLOTS).filter(move |slot| *slot < read);
        all().filter(move |slot| !is_silent[*slot]).chain(all().filter(move |slot| is_silent[*slot]))
    }

    fn recv_from(
        &mut self,
        slot: usize,
        budget: usize,
        pool: &mut Pool,
        batch: &mut Batch,
        drops: &mut Drops,
    ) -> io::Result<(usize, usize)> {
        let Some(socket) = &self.sockets[slot] else { return Ok((0, 0)) };
        let pace = &mut self.pace[slot];
        let (mut received, mut bytes, mut transient) = (0, 0, 0);
        while bytes < budget && !batch.is_full() {
            let fitting = (budget - bytes) / pace.bytes.max(1) + 1;
            let most = pace.messages.min(batch.room()).min(fitting);
            let before = bytes;
            let result = self.receiver.recv(socket, most, pool, |message, pool| match message {
                Message::Packet(packet) => {
                    received += usize::from(packet.layout.count);
                    bytes += packet.buf.len();
                    batch.push(packet).expect("no more than there was room for");
                }
                Message::Unusable(buf, reason) => {
                    received += 1;
                    drops.lose(CableId::default(), reason, buf.bytes());
                    pool.recycle(buf);
                }
            });
            let (count, asked) = match result {
                Ok(counts) => counts,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => (0, most),
                // An old ICMP error, or a signal: the next call gets past it.
                Err(error) if is_transient(&error) && transient < 16 => {
                    transient += 1;
                    continue;
                }
                Err(_) if received > 0 => break,
                Err(error) => return Err(error),
            };
            pace.bytes = (bytes - before).checked_div(count).unwrap_or(pace.bytes);
            if count < asked || asked == 0 {
                pace.messages = (count + 1).clamp(2, receive::MESSAGES);
                break;
            }
            pace.messages = (pace.messages * 2).min(receive::MESSAGES);
        }
        Ok((received, bytes))
    }
}

impl PacketIo for UdpIo {
    fn recv(&mut self, pool: &mut Pool, batch: &mut Batch, drops: &mut Drops) -> io::Result<usize> {
        let (mut received, mut bytes) = (0, 0);
        for slot in self.order() {
            if received > 0 && self.pace[slot].rest > 0 {
                self.pace[slot].rest -= 1;
                continue;
            }
            let budget = RECV_BYTES.saturating_sub(bytes);
            match self.recv_from(slot, budget, pool, batch, drops) {
                Ok((count, taken)) => {
                    self.pace[slot].rest = if count == 0 { REST } else { 0 };
                    received += count;
                    bytes += taken;
                }
                Err(_) if received > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(received)
    }

    fn send(&mut self, batch: &mut Batch, pool: &mut Pool, drops: &mut Drops) -> io::Result<usize> {
        self.send_batch(batch, pool, drops)
    }

    fn capabilities(&self) -> Capabilities {
        let all = |has: fn(&Socket) -> bool| self.sockets[..FAMILIES].iter().flatten().all(has);
        let mut offloads = Offloads::NONE;
        if all(|socket| socket.gso) {
            offloads = offloads.with(Offloads::UDP_GSO);
        }
        if all(|socket| socket.gro) {
            offloads = offloads.with(Offloads::UDP_GRO);
        }
        for (socket, esp) in self.sockets[FAMILIES..].iter().zip([Offloads::RAW_ESP4, Offloads::RAW_ESP6]) {
            if socket.is_some() {
                offloads = offloads.with(esp);
            }
        }
        Capabilities {
            mtu_bytes: MAX_BYTES,
            headroom: 0,
            offloads,
            max_segments: MAX_SEGMENTS,
            max_train_bytes: MAX_BYTES,
        }
    }

    fn fallbacks(&self) -> &[Fallback] {
        &self.fallbacks
    }
}

fn slot_of(family: Family) -> usize {
    match family {
        Family::Ipv4 => 0,
        Family::Ipv6 => 1,
    }
}

fn local_port(socket: &Socket) -> Result<u16, Error> {
    let address = socket.local_address().map_err(|error| Error::kernel("read the UDP port", error))?;
    Ok(address.port())
}

fn is_no_ipv6(error: &Error) -> bool {
    let Error::Kernel { source, .. } = error else { return false };
    matches!(source.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL | libc::EPROTONOSUPPORT))
}

/// Without steering everything still arrives, at some worker, which hands it over.
fn steer(group: &mut [UdpIo], key: Key) {
    let workers = u32::try_from(group.len()).expect("at most MAX_WORKERS");
    let mut refusal = None;
    for socket in group[0].sockets[..FAMILIES].iter().flatten() {
        if let Err(error) = steering::attach(socket, key, workers) {
            refusal = Some(Fallback::new("steering", format!("the kernel refused the program: {error}")));
        }
    }
    if let Some(fallback) = refusal {
        for io in group {
            io.fallbacks.push(fallback.clone());
        }
    }
}

/// Errors of the network and not of the socket; reading them takes them away.
fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::EINTR
                | libc::ECONNREFUSED
                | libc::ECONNRESET
                | libc::EHOSTUNREACH
                | libc::EHOSTDOWN
                | libc::ENETUNREACH
                | libc::ENETDOWN
                | libc::EMSGSIZE
                | libc::EPERM
                | libc::EACCES
                | libc::EPROTO
                | libc::ENOBUFS
                | libc::ENOMEM
        )
    )
}

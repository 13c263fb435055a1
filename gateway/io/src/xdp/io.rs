//! The outer side by AF_XDP, with sockets for whatever frames are not made for.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use trieste_packet::{Batch, Drops, LayoutKind, MAX_BATCH, Packet, Pool};

use super::config::XdpConfig;
use super::frame::{Header, Hop};
use super::open;
use super::plan::Part;
use super::receive::{self, Receiving};
use super::resolver::{NoHop, Peer};
use super::routes::{Lookup, Routes, Snapshot};
use super::send::{self, Outcome};
use crate::rings::{RingState, XdpCounters, XdpMode};
use crate::udp::UdpIo;
use crate::{Capabilities, Error, Fallback, PacketIo};

/// How often the sockets are asked while the rings have something.
const SOCKET_TURNS: u8 = 16;
/// After how long the rings are asked again that have no room, or hold what the kernel would not send. Ours: the kernel reports
/// room while a ring is less than half full, whatever it waits for.
const RETRY: Duration = Duration::from_micros(200);
/// The same where nothing has moved, time after time: the interface is down.
const LONGEST_RETRY: Duration = Duration::from_millis(50);

/// One worker's AF_XDP sockets, and its UDP sockets.
#[derive(Debug)]
pub struct XdpIo {
    worker: usize,
    part: Part,
    sockets: UdpIo,
    routes: Arc<Routes>,
    interface: Arc<str>,
    port: u16,
    dont_fragment: bool,
    receiving: Receiving,
    identification: u16,
    turn: u8,
    /// Packets on their way to the sockets, and those behind them; empty between calls.
    detour: Batch,
    rest: Vec<Packet>,
    blocked: Option<Blocked>,
    retry: Duration,
    counters: XdpCounters,
    fallbacks: Vec<Fallback>,
    /// How many of the sockets' fallbacks are among `fallbacks`.
    of_sockets: usize,
}

/// What has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blocked {
    Ring,
    Sockets,
}

/// How a packet leaves.
enum Departure {
    Frame(Header, Hop),
    Socket(Detour),
    /// By the sockets, and the peer is to be asked for.
    Missing(Peer),
}

/// Why it leaves by the sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Detour {
    Unresolved,
    Oversized,
    Unfit,
    NoRing,
    Policy,
}

impl XdpIo {
    /// Puts AF_XDP in front of a group's sockets, whose order and port stay what they are. Takes them out of `sockets` only
    /// when all is open.
    ///
    /// # Errors
    /// [`Error::ForeignProgram`] where another program is attached, [`Error::NotPermitted`] without `CAP_BPF`,
    /// `CAP_NET_ADMIN` and `CAP_NET_RAW`, [`Error::NoXdp`] where no mode works.
    pub fn open_group(config: &XdpConfig, sockets: &mut Vec<UdpIo>) -> Result<Vec<Self>, Error> {
        let Some(first) = sockets.first() else {
            return Err(Error::Count { what: "workers", count: 0, most: crate::udp::MAX_WORKERS });
        };
        let port = first.port().map_err(|error| Error::kernel("cannot read the sockets' port", error))?;
        let opened = open::open(config, port, sockets.len())?;
        let interface: Arc<str> = config.interface.as_str().into();
        let io = |(worker, (sockets, part)): (usize, (UdpIo, Part))| {
            let mut fallbacks = opened.fallbacks.clone();
            let of_sockets = sockets.fallbacks().len();
            fallbacks.extend_from_slice(sockets.fallbacks());
            Self {
                worker,
                part,
                sockets,
                routes: Arc::clone(&opened.routes),
                interface: Arc::clone(&interface),
                port,
                dont_fragment: config.dont_fragment,
                receiving: Receiving { trains: config.trains, zero_checksum6: config.zero_checksum6 },
                // Workers that send to one peer are far apart from one another.
                identification: u16::try_from(worker).unwrap_or_default().rotate_right(4),
                turn: 0,
                detour: Batch::with_limit(MAX_BATCH),
                rest: Vec::with_capacity(MAX_BATCH),
                blocked: None,
                retry: RETRY,
                counters: XdpCounters::default(),
                fallbacks,
                of_sockets,
            }
        };
        Ok(sockets.drain(..).zip(opened.parts).enumerate().map(io).collect())
    }

    /// Returns the mode that was found.
    #[must_use]
    pub fn mode(&self) -> XdpMode {
        self.part.mode
    }

    /// Returns a number that changes with the descriptors: some are to be waited for anew then.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.part.generation
    }

    /// Returns what was counted, the kernel's own counters among it: a few system calls.
    #[must_use]
    pub fn counters(&self) -> XdpCounters {
        let mut counters = self.counters;
        for (drops, refusals) in self.part.sockets.iter().map(|socket| socket.statistics()) {
            counters.kernel_drops += drops;
            counters.kernel_refusals += refusals;
        }
        counters
    }

    /// Releases the part of an interface that has gone, and takes that of one that has come back.
    fn renew(&mut self) {
        if self.part.held.is_some() && self.routes.is_released(self.part.generation) {
            self.counters = self.counters();
            self.part.release();
            self.blocked = None;
            self.routes.note_release();
        }
        let Some(mut part) = self.routes.part(self.worker) else { return };
        self.counters = self.counters();
        self.part.detach();
        match part.lead() {
            Ok(()) => self.counters.reopened += 1,
            Err(error) => {
                tracing::warn!(%error, worker = self.worker, "cannot use the interface that came back; its sockets carry everything");
                part.release();
            }
        }
        // What is left of a packet goes by the new rings, or by the sockets.
        (self.part, self.blocked) = (part, None);
    }

    /// Returns all that is to be waited for.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.part.sockets.iter().map(|queue| queue.as_fd()).chain(self.sockets.fds())
    }

    /// Returns the sockets that other workers read and this one only sends with.
    pub fn send_only_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.send_only_fds()
    }

    /// Returns what has to become writable before the last [`PacketIo::send`] can go on; `None` when that left nothing, or when
    /// only time helps ([`PacketIo::retry_after`]).
    #[must_use]
    pub fn blocked(&self) -> Option<BorrowedFd<'_>> {
        match self.blocked? {
            // Of a ring with fewer entries than that the kernel always reports room.
            Blocked::Ring => {
                let mut sockets = self.part.sockets.iter();
                sockets.next().filter(|queue| queue.transmit.is_over_half()).map(|queue| queue.as_fd())
            }
            Blocked::Sockets => self.sockets.blocked(),
        }
    }

    /// Returns the port, host order.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns how a packet leaves.
    fn departure(&self, packet: &Packet, snapshot: &Snapshot, last: &mut Option<(Peer, Hop)>) -> Departure {
        let largest = match packet.layout.kind {
            LayoutKind::Single => packet.buf.len(),
            LayoutKind::Datagrams => usize::from(packet.layout.stride_bytes).min(packet.buf.len()),
            LayoutKind::Tcp | LayoutKind::Udp | LayoutKind::Packets => {
                return Departure::Socket(Detour::Unfit);
            }
        };
        if packet.outer.peer.ip().is_unspecified() {
            return Departure::Socket(Detour::Unfit);
        }
        if self.part.sockets.is_empty() || snapshot.generation != self.part.generation {
            return Departure::Socket(Detour::NoRing);
        }
        let peer = (packet.outer.peer.ip(), packet.outer.local);
        let hop = match last {
            Some((of, hop)) if *of == peer => *hop,
            _ => match snapshot.get(&peer) {
                Lookup::Found(hop) => hop,
                Lookup::None(NoHop::Unresolved) => return Departure::Socket(Detour::Unresolved),
                Lookup::None(NoHop::Policy) => return Departure::Socket(Detour::Policy),
                Lookup::Missing => return Departure::Missing(peer),
            },
        };
        *last = Some((peer, hop));
        let header = Header {
            peer: packet.outer.peer,
            port: self.port,
            tos: packet.outer.tos,
            identification: 0,
            dont_fragment: self.dont_fragment || packet.is_whole,
        };
        let is_small = header.packet_bytes() + largest <= hop.mtu_bytes
            && header.frame_bytes() + largest <= self.part.frames.most();
        if is_small { Departure::Frame(header, hop) } else { Departure::Socket(Detour::Oversized) }
    }

    /// Sends the batch's first `count` packets through the sockets. Returns the number sent, and whether more can be.
    fn take_detour(
        &mut self,
        detour: Detour,
        count: usize,
        batch: &mut Batch,
        pool: &mut Pool,
        drops: &mut Drops,
    ) -> io::Result<(usize, bool)> {
        for packet in batch.drain_front(count) {
            self.detour.append(packet);
        }
        let result = self.sockets.send(&mut self.detour, pool, drops);
        if !self.detour.is_empty() {
            // What is left goes back to where it came from.
            batch.move_to(&mut self.rest);
            for packet in self.detour.drain().chain(self.rest.drain(..)) {
                batch.append(packet);
            }
        }
        let is_blocked = self.sockets.blocked().is_some();
        if is_blocked {
            self.blocked = Some(Blocked::Sockets);
        }
        let known = self.of_sockets;
        self.of_sockets = self.sockets.fallbacks().len();
        self.fallbacks.extend_from_slice(self.sockets.fallbacks().get(known..).unwrap_or_default());
        let sent = result?;
        let counter = match detour {
            Detour::Unresolved => &mut self.counters.unresolved,
            Detour::Oversized => &mut self.counters.oversized,
            Detour::Unfit => &mut self.counters.unfit,
            Detour::NoRing => &mut self.counters.no_ring,
            Detour::Policy => &mut self.counters.policies,
        };
        *counter += sent as u64;
        Ok((sent, !is_blocked))
    }

    /// Gives back the first `count` packets' buffers.
    fn recycle(count: usize, batch: &mut Batch, pool: &mut Pool) {
        for packet in batch.drain_front(count) {
            // A frame goes home to its own pool by being dropped there.
            pool.recycle(packet.buf);
        }
    }

    fn send_all(&mut self, batch: &mut Batch, pool: &mut Pool, drops: &mut Drops) -> io::Result<usize> {
        let routes = Arc::clone(&self.routes);
        let snapshot = routes.snapshot();
        let (mut last, mut sent, mut done) = (None, 0, 0);
        let mut asked: Option<Peer> = None;
        while let Some(packet) = batch.as_slice().get(done) {
            let (header, hop) = match self.departure(packet, &snapshot, &mut last) {
                Departure::Frame(header, hop) => (header, hop),
                other @ (Departure::Socket(_) | Departure::Missing(_)) => {
                    Self::recycle(std::mem::take(&mut done), batch, pool);
                    let (detour, count) = self.detoured(other, batch, &snapshot, &mut last, &mut asked);
                    let (count, is_free) = self.take_detour(detour, count, batch, pool, drops)?;
                    sent += count;
                    if !is_free {
                        break;
                    }
                    continue;
                }
            };
            let Part { sockets, frames, .. } = &mut self.part;
            let Some(socket) = sockets.first_mut() else { break };
            let mut out = send::Out {
                socket,
                frames,
                counters: &mut self.counters,
                identification: &mut self.identification,
            };
            let (count, outcome) = send::put(&mut batch.as_mut_slice()[done], header, &hop, &mut out);
            sent += count;
            if outcome == Outcome::Full {
                self.blocked = Some(Blocked::Ring);
                break;
            }
            done += 1;
        }
        if asked.is_some() {
            routes.wake();
        }
        Self::recycle(done, batch, pool);
        Ok(sent)
    }

    /// Returns why the batch's first packet, whose way is known, leaves by the sockets, and how many behind it do for the
    /// same reason. Peers that nobody has asked for are asked for.
    fn detoured(
        &self,
        first: Departure,
        batch: &Batch,
        snapshot: &Snapshot,
        last: &mut Option<(Peer, Hop)>,
        asked: &mut Option<Peer>,
    ) -> (Detour, usize) {
        let (mut next, mut detour, mut count) = (first, None, 0);
        loop {
            let why = match next {
                Departure::Frame(..) => break,
                Departure::Socket(why) => why,
                Departure::Missing(peer) => {
                    if *asked != Some(peer) && self.routes.request(peer) {
                        *asked = Some(peer);
                    }
                    Detour::Unresolved
                }
            };
            if *detour.get_or_insert(why) != why {
                break;
            }
            count += 1;
            let Some(packet) = batch.as_slice().get(count) else { break };
            next = self.departure(packet, snapshot, last);
        }
        (detour.unwrap_or(Detour::Unfit), count)
    }
}

impl PacketIo for XdpIo {
    fn recv(&mut self, pool: &mut Pool, batch: &mut Batch, drops: &mut Drops) -> io::Result<usize> {
        self.renew();
        self.turn = self.turn.wrapping_add(1);
        // In turn each comes first: a batch may be full before all have been read.
        let is_sockets_turn = self.turn.is_multiple_of(SOCKET_TURNS);
        let mut of_sockets = if is_sockets_turn { self.sockets.recv(pool, batch, drops) } else { Ok(0) };
        let mut received = 0;
        let mut is_stuck = false;
        let Self { part: Part { sockets: queues, frames, .. }, counters, retry, .. } = self;
        let first = usize::from(self.turn).checked_rem(queues.len()).unwrap_or(0);
        let (before, from_first) = queues.split_at_mut(first);
        for queue in from_first.iter_mut().chain(before) {
            send::reap(queue, frames, counters);
            let pending = queue.transmit.pending();
            if pending > 0 {
                send::flush(queue, counters);
                is_stuck |= queue.transmit.pending() == pending;
            }
            let mut into = receive::Into {
                frames: &mut *frames,
                pool: &mut *pool,
                batch,
                drops,
                counters: &mut *counters,
            };
            received += receive::receive(queue, self.receiving, &mut into);
        }
        *retry = if is_stuck { (*retry * 2).min(LONGEST_RETRY) } else { RETRY };
        if !is_sockets_turn && received == 0 && !batch.is_full() {
            of_sockets = self.sockets.recv(pool, batch, drops);
        }
        match of_sockets {
            Ok(count) => Ok(received + count),
            Err(_) if received > 0 => Ok(received),
            Err(error) => Err(error),
        }
    }

    fn send(&mut self, batch: &mut Batch, pool: &mut Pool, drops: &mut Drops) -> io::Result<usize> {
        self.renew();
        self.blocked = None;
        if let Some(queue) = self.part.sockets.first_mut() {
            send::reap(queue, &mut self.part.frames, &mut self.counters);
        }
        let result = self.send_all(batch, pool, drops);
        if let Some(queue) = self.part.sockets.first_mut() {
            send::flush(queue, &mut self.counters);
        }
        result
    }

    fn capabilities(&self) -> Capabilities {
        self.sockets.capabilities()
    }

    fn fallbacks(&self) -> &[Fallback] {
        &self.fallbacks
    }

    fn rings(&self) -> Option<RingState> {
        Some(RingState {
            interface: Arc::clone(&self.interface),
            mode: (!self.routes.is_gone()).then_some(self.part.mode),
            steps: Arc::clone(&self.part.steps),
            is_aside: self.routes.is_aside(),
            counters: self.counters(),
        })
    }

    fn retry_after(&self) -> Option<Duration> {
        let is_waiting = |queue: &super::socket::QueueSocket| queue.transmit.has_pending();
        let is_left = !self.routes.is_gone() && self.part.sockets.iter().any(is_waiting);
        (self.blocked == Some(Blocked::Ring) || is_left).then_some(self.retry)
    }
}

impl Drop for XdpIo {
    fn drop(&mut self) {
        // From here on the kernel's sockets have it.
        self.part.detach();
    }
}

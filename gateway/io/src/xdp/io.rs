//! The outer side by AF_XDP, with sockets for whatever frames are not made for.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

use trieste_packet::{Batch, Drops, LayoutKind, MAX_BATCH, Packet, Pool};

use super::attach::Attachment;
use super::config::{XdpConfig, XdpCounters, XdpMode};
use super::frame::{Header, Hop};
use super::frames::Frames;
use super::open::{self, Part};
use super::receive::{self, Receiving};
use super::routes::{Lookup, Peer, Routes, Snapshot};
use super::send::{self, Outcome};
use super::socket::QueueSocket;
use crate::udp::UdpIo;
use crate::{Capabilities, Error, Fallback, PacketIo};

/// How often the sockets are asked while the rings have something.
const SOCKET_TURNS: u8 = 16;

/// One worker's AF_XDP sockets, and its UDP sockets.
#[derive(Debug)]
pub struct XdpIo {
    // In this order: the kernel must have let go of the frames before they go.
    queues: Vec<QueueSocket>,
    frames: Frames,
    sockets: UdpIo,
    routes: Arc<Routes>,
    attachment: Arc<Attachment>,
    mode: XdpMode,
    port: u16,
    dont_fragment: bool,
    receiving: Receiving,
    identification: u16,
    turn: u8,
    /// Packets on their way to the sockets, and those behind them; empty between calls.
    detour: Batch,
    rest: Vec<Packet>,
    blocked: Option<Blocked>,
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
        let mut group = Vec::with_capacity(sockets.len());
        for (number, (sockets, Part { sockets: queues, frames })) in
            sockets.drain(..).zip(opened.parts).enumerate()
        {
            let mut fallbacks = opened.fallbacks.clone();
            let of_sockets = sockets.fallbacks().len();
            fallbacks.extend_from_slice(sockets.fallbacks());
            let mut io = Self {
                queues,
                frames,
                sockets,
                routes: Arc::clone(&opened.routes),
                attachment: Arc::clone(&opened.attachment),
                mode: opened.mode,
                port,
                dont_fragment: config.dont_fragment,
                receiving: Receiving { trains: config.trains, zero_checksum6: config.zero_checksum6 },
                // Workers that send to one peer are far apart from one another.
                identification: u16::try_from(number).unwrap_or_default().rotate_right(4),
                turn: 0,
                detour: Batch::with_limit(MAX_BATCH),
                rest: Vec::with_capacity(MAX_BATCH),
                blocked: None,
                counters: XdpCounters::default(),
                fallbacks,
                of_sockets,
            };
            for queue in &mut io.queues {
                receive::refill(queue, &mut io.frames, &mut io.counters);
            }
            group.push(io);
        }
        Ok(group)
    }

    /// Returns the mode that was found.
    #[must_use]
    pub fn mode(&self) -> XdpMode {
        self.mode
    }

    /// Returns what was counted, the kernel's own counters among it: a few system calls.
    #[must_use]
    pub fn counters(&self) -> XdpCounters {
        let mut counters = self.counters;
        for (drops, refusals) in self.queues.iter().map(QueueSocket::statistics) {
            counters.kernel_drops += drops;
            counters.kernel_refusals += refusals;
        }
        counters
    }

    /// Returns all that is to be waited for.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.queues.iter().map(|queue| queue.as_fd()).chain(self.sockets.fds())
    }

    /// Returns the sockets that other workers read and this one only sends with.
    pub fn send_only_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.send_only_fds()
    }

    /// Returns what has to become writable before the last [`PacketIo::send`] can go on; `None` when that left nothing.
    #[must_use]
    pub fn blocked(&self) -> Option<BorrowedFd<'_>> {
        match self.blocked? {
            Blocked::Ring => self.queues.first().map(|queue| queue.as_fd()),
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
        if self.queues.is_empty() || packet.outer.peer.ip().is_unspecified() {
            return Departure::Socket(Detour::Unfit);
        }
        let peer = (packet.outer.peer.ip(), packet.outer.local);
        let hop = match last {
            Some((of, hop)) if *of == peer => *hop,
            _ => match snapshot.get(&peer) {
                Lookup::Found(hop) => hop,
                Lookup::Unresolved => return Departure::Socket(Detour::Unresolved),
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
            && header.frame_bytes() + largest <= self.frames.most();
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
            let Some(socket) = self.queues.first_mut() else { break };
            let mut out = send::Out {
                socket,
                frames: &mut self.frames,
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
        self.turn = self.turn.wrapping_add(1);
        // In turn each comes first: a batch may be full before all have been read.
        let is_sockets_turn = self.turn.is_multiple_of(SOCKET_TURNS);
        let mut of_sockets = if is_sockets_turn { self.sockets.recv(pool, batch, drops) } else { Ok(0) };
        let mut received = 0;
        let Self { queues, frames, counters, .. } = self;
        let first = usize::from(self.turn).checked_rem(queues.len()).unwrap_or(0);
        let (before, from_first) = queues.split_at_mut(first);
        for queue in from_first.iter_mut().chain(before) {
            send::reap(queue, frames, counters);
            if queue.transmit.pending() > 0 {
                send::flush(queue, counters);
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
        self.blocked = None;
        if let Some(queue) = self.queues.first_mut() {
            send::reap(queue, &mut self.frames, &mut self.counters);
        }
        let result = self.send_all(batch, pool, drops);
        if let Some(queue) = self.queues.first_mut() {
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
}

impl Drop for XdpIo {
    fn drop(&mut self) {
        // From here on the kernel's sockets have it; the program stays while other workers do.
        for queue in &self.queues {
            self.attachment.clear(queue.queue);
        }
    }
}

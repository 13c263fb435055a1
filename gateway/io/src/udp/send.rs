//! Sending a batch: what the kernel takes, what it refuses, and what can be done about that.

use std::io;
use std::net::SocketAddr;

use trieste_packet::{Batch, DropReason, Drops, LayoutKind, Packet, Pool};

use super::socket::Socket;
use super::transmit::{MAX_SEGMENTS, Piece};
use super::{FAMILIES, Fallback, UdpIo};

/// What to do after the kernel refused a piece.
#[derive(Debug)]
enum Verdict {
    /// Something was changed; ask again.
    Again,
    /// Send the packet segment by segment.
    Split,
    /// The socket's buffer is full.
    Full,
    /// The piece cannot be sent.
    Lose(DropReason),
    /// The socket is broken.
    Broken,
}

impl UdpIo {
    pub(super) fn send_batch(
        &mut self,
        batch: &mut Batch,
        pool: &mut Pool,
        drops: &mut Drops,
    ) -> io::Result<usize> {
        self.blocked = None;
        let (mut sent, mut done, mut is_split) = (0, 0, false);
        let mut broken = None;
        while let Some(first) = batch.as_slice().get(done) {
            let slot = slot_of(first);
            let is_whole = first.is_whole;
            let result = match &mut self.sockets[slot] {
                Some(socket) if is_sendable(first) => {
                    socket.set_whole(is_whole);
                    let segments = if socket.gso { MAX_SEGMENTS } else { 1 };
                    let run = batch.as_slice()[done..].iter().take_while(|packet| {
                        slot_of(packet) == slot && packet.is_whole == is_whole && is_sendable(packet)
                    });
                    self.transmitter.send(&*socket, run, if is_split { 1 } else { segments }, segments)
                }
                _ => {
                    lose_front(batch, &mut done, None, DropReason::SocketWrite, pool, drops);
                    continue;
                }
            };
            let error = match result {
                Ok(taken) => {
                    for piece in &self.transmitter.pieces()[..taken] {
                        sent += usize::from(piece.segments);
                        if trim(&mut batch.as_mut_slice()[done], *piece) {
                            done += 1;
                            is_split = false;
                        }
                    }
                    continue;
                }
                Err(error) => error,
            };
            let piece = self.transmitter.pieces()[0];
            match self.judge(slot, &error, piece, &mut batch.as_mut_slice()[done]) {
                Verdict::Again => {}
                Verdict::Split => is_split = true,
                Verdict::Full => {
                    self.blocked = Some(slot);
                    break;
                }
                Verdict::Lose(reason) => {
                    if lose_front(batch, &mut done, Some(piece), reason, pool, drops) {
                        is_split = false;
                    }
                }
                Verdict::Broken => {
                    broken = Some(error);
                    break;
                }
            }
        }
        recycle_front(batch, done, pool);
        match broken {
            Some(error) if sent == 0 => Err(error),
            _ => Ok(sent),
        }
    }

    /// What the kernel's refusal of `piece`, the front of `packet`, means. Every verdict but `Full` and `Broken` brings
    /// the batch nearer to its end: a train is split once, an address is forgotten once, what is lost is gone.
    fn judge(&mut self, slot: usize, error: &io::Error, piece: Piece, packet: &mut Packet) -> Verdict {
        let is_train = piece.segments > 1;
        match error.raw_os_error() {
            Some(libc::EAGAIN) => Verdict::Full,
            Some(libc::EINTR) => Verdict::Again,
            Some(libc::EBADF | libc::ENOTSOCK) => Verdict::Broken,
            // The interface cannot finish checksums, and without that the kernel cuts no train.
            Some(libc::EIO | libc::EOPNOTSUPP | libc::ENOPROTOOPT) if is_train => {
                self.give_up_gso(slot, error);
                Verdict::Again
            }
            // One segment is larger than the path: only single datagrams may be fragmented.
            Some(libc::EINVAL | libc::EMSGSIZE) if is_train => Verdict::Split,
            // The address that the peer used is no longer ours; from another one it hears us at least.
            Some(libc::EINVAL | libc::EADDRNOTAVAIL | libc::ENETUNREACH) if packet.outer.local.is_some() => {
                packet.outer.local = None;
                Verdict::Again
            }
            // What a raw socket says of its full buffer, and any of the system's memory.
            Some(libc::ENOBUFS) if self.sockets[slot].as_ref().is_some_and(Socket::is_full) => Verdict::Full,
            Some(libc::ENOBUFS | libc::ENOMEM) => Verdict::Lose(DropReason::SocketFull),
            _ => Verdict::Lose(DropReason::SocketWrite),
        }
    }

    fn give_up_gso(&mut self, slot: usize, error: &io::Error) {
        let Some(socket) = self.sockets[slot].as_mut() else { return };
        socket.gso = false;
        let family = if slot == 0 { "IPv4" } else { "IPv6" };
        let reason = format!("refused while sending over {family} ({error}); datagrams are sent one by one");
        tracing::warn!(reason, "UDP segmentation offload is off");
        self.fallbacks.push(Fallback::new("udp-gso", reason));
    }
}

/// Takes what was sent or lost off the front of a packet. `true` when nothing is left of it.
fn trim(packet: &mut Packet, piece: Piece) -> bool {
    if piece.bytes >= packet.buf.len() {
        return true;
    }
    packet.buf.advance(piece.bytes);
    packet.layout.count = packet.layout.count.saturating_sub(piece.segments).max(1);
    false
}

/// Loses `piece`, or all of the packet behind the `done` first ones; those are given back before. `true` when nothing
/// is left of the packet.
fn lose_front(
    batch: &mut Batch,
    done: &mut usize,
    piece: Option<Piece>,
    reason: DropReason,
    pool: &mut Pool,
    drops: &mut Drops,
) -> bool {
    recycle_front(batch, *done, pool);
    *done = 0;
    let packet = &mut batch.as_mut_slice()[0];
    if let Some(piece) = piece
        && piece.bytes < packet.buf.len()
    {
        let cable = packet.decision.cable;
        drops.lose(cable, reason, &packet.bytes()[..piece.bytes]);
        drops.count(cable, reason, u64::from(piece.segments) - 1);
        trim(packet, piece);
        return false;
    }
    for packet in batch.drain_front(1) {
        drops.discard(packet, reason, pool);
    }
    true
}

fn recycle_front(batch: &mut Batch, count: usize, pool: &mut Pool) {
    for packet in batch.drain_front(count) {
        pool.recycle(packet.buf);
    }
}

/// Port 0 is raw ESP.
fn slot_of(packet: &Packet) -> usize {
    let family = match packet.outer.peer {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(_) => 1,
    };
    if packet.outer.peer.port() == 0 { FAMILIES + family } else { family }
}

/// The kernel takes no address for the machine's own.
fn is_sendable(packet: &Packet) -> bool {
    match packet.layout.kind {
        LayoutKind::Single | LayoutKind::Datagrams => !packet.outer.peer.ip().is_unspecified(),
        LayoutKind::Tcp | LayoutKind::Udp | LayoutKind::Packets => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Offloads, PacketIo as _, UdpConfig};
    use trieste_packet::{Layout, Outer, PoolConfig};

    fn packet(pool: &mut Pool) -> Packet {
        let mut packet = Packet::new(pool.alloc_copy(&[1; 2500]).unwrap());
        packet.layout = Layout::datagrams(1000, 3);
        packet.outer = Outer { local: Some("127.0.0.1".parse().unwrap()), ..Outer::NONE };
        packet
    }

    #[test]
    fn every_refusal_brings_the_batch_nearer_to_its_end() {
        let mut io = UdpIo::open(&UdpConfig::new(0)).unwrap();
        let mut pool = Pool::new(PoolConfig { slots: 1, slot_bytes: 4096 });
        let mut packet = packet(&mut pool);
        let (train, single) = (Piece { bytes: 2500, segments: 3 }, Piece { bytes: 1000, segments: 1 });
        for errno in 1..200 {
            let error = io::Error::from_raw_os_error(errno);
            let had_gso = io.sockets[0].as_ref().unwrap().gso;
            let had_local = packet.outer.local.is_some();
            match io.judge(0, &error, train, &mut packet) {
                Verdict::Again if errno != libc::EINTR => {
                    let has_gso = io.sockets[0].as_ref().unwrap().gso;
                    assert!(had_gso && !has_gso || had_local && packet.outer.local.is_none(), "{error}");
                }
                Verdict::Again | Verdict::Split | Verdict::Full | Verdict::Lose(_) | Verdict::Broken => {}
            }
            assert!(!matches!(io.judge(0, &error, single, &mut packet), Verdict::Split), "{error}");
            packet.outer.local = Some("127.0.0.1".parse().unwrap());
            io.sockets[0].as_mut().unwrap().gso = true;
        }
    }

    #[test]
    fn segmentation_that_an_interface_refuses_is_given_up_and_said_once() {
        let mut io = UdpIo::open(&UdpConfig::new(0)).unwrap();
        let mut pool = Pool::new(PoolConfig { slots: 2, slot_bytes: 4096 });
        let before = io.fallbacks().len();
        let error = io::Error::from_raw_os_error(libc::EIO);
        let verdict = io.judge(0, &error, Piece { bytes: 2500, segments: 3 }, &mut packet(&mut pool));
        assert!(matches!(verdict, Verdict::Again));
        assert_eq!(io.fallbacks().len(), before + 1);
        assert!(!io.capabilities().offloads.contains(Offloads::UDP_GSO));

        // From then on trains leave as single datagrams, and arrive.
        let mut batch = Batch::new();
        let mut train = packet(&mut pool);
        train.outer.peer = SocketAddr::from(([127, 0, 0, 1], io.port().unwrap()));
        batch.push(train).unwrap();
        assert_eq!(io.send(&mut batch, &mut pool, &mut Drops::default()).unwrap(), 3);
        assert_eq!(io.fallbacks().len(), before + 1);
        assert_eq!(io.transmitter.pieces().len(), 3);
    }
}

//! One end of a wire: what a line is given as a socket gives it, and what it delivers as the inside sees it.

use std::net::SocketAddr;
use std::time::Instant;

use trieste_packet::segment::Segmenter;
use trieste_packet::{Batch, Packet};
use trieste_pipeline::Pipeline;

/// Copies of datagrams, with their senders, come in, 64 at a time.
pub(crate) fn receive(
    line: &mut Pipeline,
    datagrams: impl IntoIterator<Item = (SocketAddr, Packet)>,
    now: Instant,
) {
    let mut datagrams = datagrams.into_iter().peekable();
    while datagrams.peek().is_some() {
        let mut batch = Batch::new();
        for (from, packet) in datagrams.by_ref().take(64) {
            batch.push(arrived(line, from, &packet)).unwrap();
        }
        line.inbound(&mut batch, now);
    }
}

/// A datagram of another gateway in a buffer of this one's.
pub(crate) fn arrived(line: &mut Pipeline, from: SocketAddr, packet: &Packet) -> Packet {
    let mut copy = Packet::new(line.pool.alloc_copy(packet.bytes()).unwrap());
    copy.layout = packet.layout;
    copy.outer = packet.outer;
    copy.outer.peer = from;
    copy
}

/// Takes out what was delivered, cut into packets.
pub(crate) fn delivered(line: &mut Pipeline) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for mut packet in line.to_tun.drain() {
        line.counters.tun_out += packet.segments();
        let mut segmenter = Segmenter::new(&mut packet).unwrap();
        while let Some(segment) = segmenter.next_segment() {
            all.push(segment.to_vec());
        }
    }
    all
}

//! A lane that swallows everything: what is left of the line's time is everything but the lane's.

use std::net::SocketAddr;
use std::time::Instant;

use trieste_cables::{Cable, CableEvent, CableStats, Jobs, Lane, Overhead, Transmit};
use trieste_packet::{Drops, Outer};

/// The lane. It is always up.
#[derive(Debug, Default)]
pub(crate) struct Sink;

impl Lane for Sink {
    fn overhead(&self) -> Overhead {
        Overhead { message_bytes: 32 }
    }

    fn seal(&mut self, jobs: &mut Jobs<'_>, _now: Instant) {
        for packet in jobs.input.drain(..) {
            jobs.pool.recycle(packet.buf);
        }
    }

    fn open(&mut self, jobs: &mut Jobs<'_>, now: Instant) {
        self.seal(jobs, now);
    }
}

impl Cable for Sink {
    fn handle_datagram(&mut self, _: &[u8], _: &Outer, _: Instant, _: &mut Drops) {}

    fn handle_timeout(&mut self, _: Instant, _: &mut Drops) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn poll_transmit(&mut self) -> Option<Transmit> {
        None
    }

    fn poll_event(&mut self) -> Option<CableEvent> {
        None
    }

    fn rekey(&mut self, _: Instant) {}

    fn set_peer(&mut self, _: Option<SocketAddr>, _: Instant) {}

    fn stats(&self, _: Instant) -> CableStats {
        CableStats { is_up: true, ..CableStats::default() }
    }
}

//! One turn of a worker: what came is taken in, and what follows is sent.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use trieste_io::PacketIo;
use trieste_packet::DropReason;
use trieste_pipeline::Pipeline;

use super::command::{Command, TraceJob};
use super::handle::SharedState;
use super::{IDLE_WAIT, Worker};

/// Packets taken from the inbox per turn, so that the devices get their share.
const INBOX_BUDGET: usize = 64;
/// While this many trains wait for the socket, no more are taken from the TUN device.
pub(super) const BACKLOG: usize = 64;

impl<T: PacketIo, W: PacketIo> Worker<T, W> {
    pub(super) fn turn(&mut self, now: Instant) -> io::Result<bool> {
        let beat = now.saturating_duration_since(self.begun).as_nanos();
        self.view.beat.store(u64::try_from(beat).unwrap_or(u64::MAX), Ordering::Relaxed);
        let mut is_busy = self.take_commands(now);
        self.follow_captures();
        is_busy |= self.take_inbox(now)?;
        is_busy |= self.take_wire(now)?;
        is_busy |= self.take_tun(now)?;
        if now >= self.next_timer {
            self.pipeline.handle_timeout(now);
            self.next_timer =
                self.pipeline.poll_timeout().unwrap_or(now + IDLE_WAIT).max(now + Duration::from_millis(1));
        }
        if self.pipeline.poll_probes().is_some_and(|due| due <= now) {
            self.pipeline.handle_probes(now);
        }
        // Probes and replication messages may be made at any step, also without packets.
        self.flush(now)?;
        self.publish_path_changes();
        is_busy |= self.sessions.follow(&mut self.pipeline, now);
        // A packet may have a peer tried that would not have been for long.
        if let Some(due) = self.pipeline.poll_lanes() {
            self.next_timer = self.next_timer.min(due);
        }
        if now >= self.next_publish {
            self.publish(now, false);
        }
        Ok(is_busy)
    }

    /// Wakes who follows the state of paths, when it has changed.
    fn publish_path_changes(&mut self) {
        let generation = self.pipeline.board().generation();
        if generation != self.paths_generation {
            self.paths_generation = generation;
            // Every worker notices; the first one says it.
            self.paths_changed.send_if_modified(|known| {
                let changed = *known != generation;
                *known = generation;
                changed
            });
        }
    }

    fn take_commands(&mut self, now: Instant) -> bool {
        let mut is_busy = false;
        while let Ok(command) = self.commands.try_recv() {
            is_busy = true;
            // Counted after the command took effect, so that tables may name what it added; also when it panics.
            let _handled = Handled(Arc::clone(&self.view));
            self.next_timer = now;
            match command {
                Command::Lane(command) => self.pipeline.command(command, now),
                Command::Transmit(transmit) => self.pipeline.transmit(&transmit),
                Command::Trace(TraceJob { question, reply }) => {
                    // The receiver may have been dropped.
                    let _ = reply.send(self.pipeline.trace(&question, now));
                }
                Command::Restore(restore) => self.sessions.restore(&mut self.pipeline, &restore, now),
                Command::Settings(settings) => {
                    self.pipeline.set_health(settings.health, now);
                    self.pipeline.set_nat(settings.nat);
                }
                Command::Stop => self.is_stopping = true,
            }
        }
        is_busy
    }

    fn follow_captures(&mut self) {
        let Some(hub) = &self.hub else { return };
        let generation = hub.generation();
        if generation != self.hub_generation {
            self.hub_generation = generation;
            let (tap, witness) = hub.attach(self.id.0);
            self.pipeline.set_tap(tap);
            self.pipeline.drops.set_witness(witness);
        }
    }

    fn take_inbox(&mut self, now: Instant) -> io::Result<bool> {
        let (exchange, id) = (Arc::clone(&self.exchange), self.id);
        let mut count = 0;
        let inbox = std::iter::from_fn(|| exchange.take(id)).take(INBOX_BUDGET).inspect(|_| count += 1);
        self.pipeline.handed_over(inbox, now);
        if count > 0 {
            self.flush(now)?;
        }
        Ok(count > 0)
    }

    fn take_wire(&mut self, now: Instant) -> io::Result<bool> {
        if self.is_stopping {
            return Ok(false);
        }
        let pipeline = &mut self.pipeline;
        let count = self.wire.recv(&mut pipeline.pool, &mut self.batch, &mut pipeline.drops)? as u64;
        // Packets that the device refused are counted as dropped already.
        pipeline.counters.wire_in += count.saturating_sub(self.batch.segments());
        if self.batch.is_empty() {
            return Ok(count > 0);
        }
        pipeline.inbound(&mut self.batch, now);
        self.flush(now)?;
        Ok(true)
    }

    fn take_tun(&mut self, now: Instant) -> io::Result<bool> {
        // While datagrams wait for the socket, the TUN device's queue fills, which TCP notices.
        if self.is_stopping || self.pipeline.to_wire.len() >= BACKLOG {
            return Ok(false);
        }
        let pipeline = &mut self.pipeline;
        let count = self.tun.recv(&mut pipeline.pool, &mut self.batch, &mut pipeline.drops)? as u64;
        pipeline.counters.tun_in += count.saturating_sub(self.batch.segments());
        if self.batch.is_empty() {
            return Ok(count > 0);
        }
        pipeline.outbound(&mut self.batch, now);
        self.flush(now)?;
        Ok(true)
    }

    /// Sends what the pipeline has left in its output batches.
    pub(super) fn flush(&mut self, now: Instant) -> io::Result<()> {
        let is_shut = self.pipeline.board().is_shut();
        let Pipeline { pool, drops, to_tun, counters, .. } = &mut self.pipeline;
        if is_shut {
            to_tun.drain().for_each(|packet| drops.discard(packet, DropReason::NodeNotReady, pool));
        }
        if !to_tun.is_empty() {
            counters.tun_out += self.tun.send(to_tun, pool, drops)? as u64;
        }
        if !self.pipeline.to_wire.is_empty() {
            self.pipeline.look_outgoing(now);
            let Pipeline { pool, drops, to_wire, .. } = &mut self.pipeline;
            let sent = self.wire.send(to_wire, pool, drops)? as u64;
            self.pipeline.sent(sent);
        }
        self.hand_over();
        Ok(())
    }

    fn hand_over(&mut self) {
        if self.pipeline.to_workers.is_empty() {
            return;
        }
        let Pipeline { pool, drops, to_workers, counters, .. } = &mut self.pipeline;
        let (mut handed, mut refused) = (0, 0);
        let handoffs = to_workers.drain(..).map(|handoff| {
            handed += handoff.packet.segments();
            (handoff.to, handoff)
        });
        self.exchange.send(handoffs, |handoff| {
            refused += handoff.packet.segments();
            drops.discard(handoff.packet, DropReason::HandoffFull, pool);
        });
        counters.handed_out += handed - refused;
    }

    /// Returns `true` if datagrams wait for room in the socket.
    #[must_use]
    pub fn wants_write(&self) -> bool {
        !self.pipeline.to_wire.is_empty()
    }
}

/// Counts a command as handled when it goes.
struct Handled(Arc<SharedState>);

impl Drop for Handled {
    fn drop(&mut self) {
        self.0.handled.fetch_add(1, Ordering::Release);
    }
}

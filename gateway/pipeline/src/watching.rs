//! Probes of paths in the line: made here and sealed by their lanes like packets, taken out after opening.
//!
//! ```text
//!   handle_probes ─▶ Watcher of each lane ─▶ probe ─▶ seal ─▶ to the wire
//!   from the wire ─▶ open ─▶ take_messages ─▶ Watcher ─▶ Board          (all else goes on to be classified)
//! ```

use std::time::{Duration, Instant};

use trieste_cables::Jobs;
use trieste_packet::wire::{self, Inner, protocol};
use trieste_packet::{CableId, Checksum, DropReason, LaneId, LayoutKind, Packet, Pool};

use crate::board::{Board, PathState};
use crate::deadlines::{Deadlines, Entry};
use crate::health::awake::Awake;
use crate::health::{Config, Outgoing, Probe, Report, Watch, Watcher, idle_interval};
use crate::inside::{self, Kind};
use crate::pipeline::Pipeline;

/// Probes that are due together are sent together. Ours: with hundreds of paths a thousand wake-ups a second, and no
/// more.
const SLACK: Duration = Duration::from_millis(1);

/// A lane's probing.
pub(crate) struct Watching {
    pub(crate) watch: Watch,
    watcher: Watcher,
    /// The board's uses when they were looked at last.
    uses: u64,
    /// When it is called, in awake time.
    pub(crate) entry: Entry,
}

impl Watching {
    /// Writes down what has changed.
    fn write(&self, cable: CableId, board: &Board, now: Instant) {
        let state = self.watcher.state();
        if state == PathState::Down {
            board.set_down(cable, now);
        } else {
            board.set_state(cable, state);
        }
        board.set_mtu(cable, self.watcher.mtu());
        if let Some(rtt) = self.watcher.rtt() {
            board.set_rtt(cable, rtt);
        }
    }

    /// Notes that the lane has sealed packets, at `time`, awake time.
    pub(crate) fn saw_sealed(&mut self, time: Instant) {
        self.watcher.handle_traffic(time);
    }

    /// A sibling's path is used while any other path is.
    fn follow_use(&mut self, board: &Board, time: Instant) {
        let uses = board.uses();
        if self.watch.is_sibling && std::mem::replace(&mut self.uses, uses) != uses {
            self.watcher.handle_traffic(time);
        }
    }

    /// Has siblings' paths follow this one, if it is no sibling's. As often as probes: all workers share what is written.
    fn note_use(&self, board: &Board, time: Instant) {
        if !self.watch.is_sibling && self.watcher.is_active(time) {
            board.note_use();
        }
    }

    /// What is told of the path.
    pub(crate) fn report(&self, now: Instant, awake: &Awake) -> Report {
        self.watcher.report(awake.time(now))
    }
}

/// When probes are due, by whose clock.
pub(crate) struct Schedule {
    pub(crate) awake: Awake,
    pub(crate) is_draining: bool,
    /// In awake time.
    deadlines: Deadlines,
    /// Lanes whose probing follows the use of others.
    siblings: Vec<LaneId>,
    /// Lanes that are being called; empty between calls.
    due: Vec<LaneId>,
    looked: Instant,
}

impl Schedule {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            awake: Awake::default(),
            is_draining: false,
            deadlines: Deadlines::default(),
            siblings: Vec::new(),
            due: Vec::new(),
            looked: now,
        }
    }

    /// Calls a lane no more.
    pub(crate) fn remove(&mut self, lane: LaneId, entry: Option<&mut Entry>) {
        self.siblings.retain(|sibling| *sibling != lane);
        if let Some(entry) = entry {
            self.deadlines.set(lane, entry, None);
        }
    }

    /// Calls a lane when it wants to be, if that is sooner. What turns out to have been due before is due now: nobody came
    /// late for it.
    pub(crate) fn hasten(&mut self, lane: LaneId, watching: &mut Watching, now: Instant) {
        let time = self.awake.time(now);
        let due = watching.watcher.poll_timeout(time).max(time);
        self.deadlines.hasten(lane, &mut watching.entry, due);
    }

    /// Returns when the first lane wants to be called, in real time.
    fn first(&self) -> Option<Instant> {
        self.deadlines.first().map(|time| self.awake.real(time))
    }
}

impl Pipeline {
    /// Does what is due about the health of paths: probes, time-outs. Cheap when nothing is; [`Self::poll_probes`] says
    /// when something will be.
    pub fn handle_probes(&mut self, now: Instant) {
        if self.poll_probes().is_none_or(|due| due > now) {
            return;
        }
        let time = self.notice(now);
        self.schedule.looked = now;
        for index in 0..self.schedule.siblings.len() {
            self.follow_use(index, now, time);
        }
        let mut due = std::mem::take(&mut self.schedule.due);
        self.schedule.deadlines.due(time, &mut due);
        for lane in due.drain(..) {
            self.watch_one(lane, now, time);
        }
        self.schedule.due = due;
    }

    /// Probes a sibling's path as quickly as those that are used.
    fn follow_use(&mut self, index: usize, now: Instant, time: Instant) {
        let Some(lane) = self.schedule.siblings.get(index).copied() else { return };
        let watching = self.lanes.find(lane).and_then(|slot| slot.watching.as_deref_mut());
        if let Some(watching) = watching {
            watching.follow_use(&self.config.board, time);
            self.schedule.hasten(lane, watching, now);
        }
    }

    /// When [`Self::handle_probes`] wants to be called next; `None` while no path is watched.
    #[must_use]
    pub fn poll_probes(&self) -> Option<Instant> {
        self.schedule.first().map(|due| due.max(self.schedule.looked + SLACK))
    }

    /// How often this worker came late for its probes, and for how long in all: time in which no far end's silence
    /// counts.
    #[must_use]
    pub fn stalls(&self) -> (u64, Duration) {
        self.schedule.awake.stalls()
    }

    /// Probes all paths by another setting from now on.
    pub fn set_health(&mut self, config: Config, now: Instant) {
        let time = self.notice(now);
        self.config.health = config;
        for slot in self.lanes.iter_mut() {
            let Some(watching) = slot.watching.as_deref_mut() else { continue };
            watching.watcher.set_config(config, watching.watch.most_bytes, time);
            // What it finds is written down when it is called, which is now.
            self.schedule.deadlines.hasten(slot.lane, &mut watching.entry, time);
        }
    }

    /// Begins, changes or ends the probing of a lane.
    pub(crate) fn set_watch(&mut self, lane: LaneId, watch: Option<Watch>, now: Instant) {
        let time = self.notice(now);
        let (config, seed) = (self.config.health, self.config.seed ^ u64::from(lane.0).rotate_left(32));
        let is_draining = self.schedule.is_draining;
        let Some(slot) = self.lanes.find(lane) else { return };
        self.schedule.siblings.retain(|sibling| *sibling != lane);
        let Some(watch) = watch else {
            self.schedule.remove(lane, slot.watching.as_mut().map(|before| &mut before.entry));
            slot.watching = None;
            self.config.board.reset(slot.cable);
            return;
        };
        if watch.is_sibling {
            self.schedule.siblings.push(lane);
        }
        match &mut slot.watching {
            Some(watching) if watching.watch.most_bytes == watch.most_bytes => watching.watch = watch,
            _ => {
                let mut watcher = Watcher::new(config, watch.most_bytes, seed, time);
                watcher.set_draining(is_draining, time);
                if let Some(before) = &mut slot.watching {
                    self.schedule.deadlines.set(lane, &mut before.entry, None);
                }
                let watching = Watching { watch, watcher, uses: 0, entry: None };
                watching.write(slot.cable, &self.config.board, now);
                slot.watching = Some(Box::new(watching));
            }
        }
        if let Some(watching) = slot.watching.as_deref_mut() {
            self.schedule.deadlines.hasten(lane, &mut watching.entry, time);
        }
    }

    /// Takes messages between gateways out of what `lane` has opened: of the opened batch, all that follow the `before`
    /// first. `is_alive` says that datagrams without a packet were there as well.
    pub(crate) fn saw_opened(&mut self, lane: LaneId, before: usize, is_alive: bool, now: Instant) {
        if self.opened.len() == before && !is_alive {
            return;
        }
        let Some(slot) = self.lanes.find(lane) else { return };
        let time = self.schedule.awake.time(now);
        let mut watching = slot.watching.as_deref_mut();
        if let Some(watching) = &mut watching {
            watching.watcher.handle_arrival(time);
        }
        let mut taken = Taken::default();
        for packet in &mut self.opened.as_mut_slice()[before..] {
            taken.take(packet, watching.as_deref_mut(), (time, now));
        }
        let Taken { probes, bad, has_data } = taken;
        self.counters.control_in += probes;
        self.counters.path_probes_in += probes;
        self.drops.count(slot.cable, DropReason::BadControl, bad);
        if let Some(watching) = watching {
            if has_data {
                watching.watcher.handle_traffic(time);
            }
            watching.write(slot.cable, &self.config.board, now);
            self.schedule.hasten(lane, watching, now);
        }
        if probes + bad > 0 {
            let pool = &mut self.pool;
            let keep = |packet: &mut Packet| if packet.segments() > 0 { Ok(()) } else { Err(()) };
            self.opened.retain_or(keep, |packet, ()| pool.recycle(packet.buf));
        }
    }

    /// Has all probes say whether this gateway is about to stop, at once.
    pub(crate) fn set_draining(&mut self, is_draining: bool, now: Instant) {
        let time = self.notice(now);
        self.schedule.is_draining = is_draining;
        for slot in self.lanes.iter_mut() {
            let Some(watching) = slot.watching.as_deref_mut() else { continue };
            watching.watcher.set_draining(is_draining, time);
            self.schedule.hasten(slot.lane, watching, now);
        }
    }

    /// Takes into account that this worker may have come late; returns awake time. To be called before anything that
    /// has arrived is looked at.
    pub(crate) fn notice(&mut self, now: Instant) -> Instant {
        if let Some(due) = self.schedule.first() {
            self.schedule.awake.notice(due, now);
        }
        self.schedule.awake.time(now)
    }

    /// Does what is due for one lane.
    fn watch_one(&mut self, lane: LaneId, now: Instant, time: Instant) {
        let Some(slot) = self.lanes.find(lane) else { return };
        let Some(watching) = slot.watching.as_deref_mut() else { return };
        let mut has_sealed = false;
        // What would be held until there are keys would push packets out of the lane's queue.
        let has_keys = slot.tunnel.stats(now).is_up;
        if watching.watcher.poll_timeout(time) <= time {
            watching.watcher.set_idle_interval(idle_interval(self.schedule.deadlines.len()));
            watching.watcher.handle_timeout(time);
            watching.note_use(&self.config.board, time);
            while has_keys && let Some(outgoing) = watching.watcher.poll_transmit(time, now) {
                self.counters.made += 1;
                let Some(packet) = make(&watching.watch, &outgoing, &mut self.pool) else {
                    self.drops.count(slot.cable, DropReason::NoBuffer, 1);
                    continue;
                };
                self.counters.path_probes_out += 1;
                self.group.push(packet);
                let from = self.to_wire.len();
                let mut jobs = Jobs {
                    input: &mut self.group,
                    output: &mut self.to_wire,
                    pool: &mut self.pool,
                    drops: &mut self.drops,
                    consumed: &mut self.counters.control_in,
                };
                slot.tunnel.seal(&mut jobs, now);
                has_sealed = true;
                if outgoing.padded_to.is_some() {
                    self.to_wire.as_mut_slice()[from..].iter_mut().for_each(|packet| packet.is_whole = true);
                }
            }
            watching.write(slot.cable, &self.config.board, now);
        }
        // Without keys there is nothing to come for but what the far end was given until now; keys have it called.
        let watcher = &watching.watcher;
        let due =
            if has_keys { Some(watcher.poll_timeout(time)) } else { watcher.poll_timeout_of_far_end(time) };
        self.schedule.deadlines.set(lane, &mut watching.entry, due.map(|due| due.max(time)));
        if has_sealed {
            self.service(lane, now);
        }
    }
}

/// What was found among opened packets.
#[derive(Default)]
struct Taken {
    /// Probes.
    probes: u64,
    /// Messages that are malformed.
    bad: u64,
    /// Whether there were packets besides that make a path one that is used.
    has_data: bool,
}

impl Taken {
    /// Takes messages out of a packet, or a train of opened ones; nothing is left of it if there was nothing else.
    fn take(
        &mut self,
        packet: &mut Packet,
        mut watching: Option<&mut Watching>,
        (time, now): (Instant, Instant),
    ) {
        for index in 0..usize::from(packet.layout.count) {
            if packet.layout.present & (1 << (index % 64)) == 0 {
                continue;
            }
            let (start, end) = packet.segment_range(index);
            let bytes = &packet.bytes()[start..end];
            if !inside::is_message(bytes) {
                self.has_data |= is_data(bytes);
                continue;
            }
            let probe = match inside::parse(bytes) {
                Ok((Kind::PathProbe, body)) => Probe::parse(body),
                // Further down the line.
                Ok((Kind::Sessions, _)) => continue,
                Err(_) => None,
            };
            match probe {
                Some(probe) => {
                    self.probes += 1;
                    if let Some(watching) = &mut watching {
                        watching.watcher.handle_probe(&probe, time, now);
                    }
                }
                None => self.bad += 1,
            }
            packet.layout.present &= !(1 << (index % 64));
            // Of a single packet this is all that says so.
            if packet.layout.kind == LayoutKind::Single {
                packet.layout.count = 0;
            }
        }
    }
}

/// Says whether a packet makes its path one that is used: what gateways say to each other all the time does not, nor do the pings of
/// health checks. Anybody else's pings do.
pub(crate) fn is_data(packet: &[u8]) -> bool {
    match wire::first_header(packet) {
        (None | Some(inside::PROTOCOL), _) => false,
        (Some(protocol::ICMP | protocol::ICMPV6), header_bytes) => {
            !wire::is_health_check_at(packet, header_bytes)
        }
        (Some(_), _) => true,
    }
}

/// Counts the pings of health checks among parsed packets, and the answers to them.
pub(crate) fn health_checks(packets: &[Packet], headers: &[Inner]) -> u64 {
    let is_check = |(packet, header): &(&Packet, &Inner)| {
        matches!(header.flow.protocol, protocol::ICMP | protocol::ICMPV6)
            && wire::is_health_check_at(packet.bytes(), usize::from(header.transport_offset))
    };
    packets.iter().zip(headers).filter(is_check).count() as u64
}

fn make(watch: &Watch, outgoing: &Outgoing, pool: &mut Pool) -> Option<Packet> {
    let mut buf = pool.alloc()?;
    let body = outgoing.probe.emit();
    let padded_to = outgoing.padded_to.map_or(0, usize::from);
    if !inside::emit((watch.from, watch.to), Kind::PathProbe, &body, padded_to, &mut buf) {
        pool.recycle(buf);
        return None;
    }
    let mut packet = Packet::new(buf);
    packet.checksum = Checksum::Verified;
    Some(packet)
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;

    use super::is_data;

    #[test]
    fn of_all_packets_only_messages_and_health_checks_make_no_path_used() {
        let echo = |is_v6: bool, data: usize| {
            let (mut bytes, data) = (Vec::new(), vec![0; data]);
            if is_v6 {
                let builder = PacketBuilder::ipv6([1; 16], [2; 16], 64);
                builder.icmpv6_echo_request(1, 1).write(&mut bytes, &data).unwrap();
            } else {
                let builder = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
                builder.icmpv4_echo_request(1, 1).write(&mut bytes, &data).unwrap();
            }
            bytes
        };
        for is_v6 in [false, true] {
            assert!(is_data(&echo(is_v6, 56)) && is_data(&echo(is_v6, 25)));
            let mut check = echo(is_v6, 24);
            assert!(!is_data(&check));
            check.extend([0; 12]);
            assert!(!is_data(&check), "padded by the cable");
            for end in 0..check.len() {
                // No piece of it is too short.
                let _ = is_data(&check[..end]);
            }
            let message_type = if is_v6 { 40 } else { 20 };
            check[message_type] = 3;
            assert!(is_data(&check), "an error is about a flow");
        }
    }
}

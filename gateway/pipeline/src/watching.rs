//! Probes of paths in the line: made here and sealed by their lanes like packets, taken out after opening.
//!
//! ```text
//!   handle_probes ─▶ Watcher of each lane ─▶ probe ─▶ seal ─▶ to the wire
//!   from the wire ─▶ open ─▶ take_messages ─▶ Watcher ─▶ Board          (all else goes on to be classified)
//! ```

use std::time::{Duration, Instant};

use trieste_cables::Jobs;
use trieste_packet::wire::{IPV6_HEADER_BYTES, Inner, be16, protocol, version};
use trieste_packet::{CableId, Checksum, DropReason, LaneId, LayoutKind, Packet, Pool};

use crate::board::{Board, PathState};
use crate::health::awake::Awake;
use crate::health::{Outgoing, Probe, Report, Watch, Watcher};
use crate::inside::{self, Kind};
use crate::pipeline::Pipeline;

/// Probes that are due together are sent together. Ours: with hundreds of paths a thousand wake-ups a second, and no
/// more.
const SLACK: Duration = Duration::from_millis(1);

/// Length of a health check's ICMP message in bytes (upstream's, as measured).
const HEALTH_CHECK_BYTES: usize = 32;
/// Types of echo messages: reply and request (RFC 792), request and reply (RFC 4443).
const ECHO: [u8; 4] = [0, 8, 128, 129];

/// A lane's probing.
pub(crate) struct Watching {
    pub(crate) watch: Watch,
    watcher: Watcher,
    /// The board's uses when they were looked at last.
    uses: u64,
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
    due: Option<Instant>,
    looked: Instant,
}

impl Schedule {
    pub(crate) fn new(now: Instant) -> Self {
        Self { awake: Awake::default(), is_draining: false, due: None, looked: now }
    }

    /// A lane has sealed packets.
    pub(crate) fn saw_sealed(&mut self, watching: &mut Watching, now: Instant) {
        let time = self.awake.time(now);
        watching.watcher.handle_traffic(time);
        self.hasten(watching.watcher.poll_timeout(time), now);
    }

    /// Something is due at `time`, awake time. What turns out to have been due before is due now: nobody came late for it.
    fn hasten(&mut self, time: Instant, now: Instant) {
        let real = self.awake.real(time).max(now);
        self.due = Some(self.due.map_or(real, |due| due.min(real)));
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
        self.schedule.due = None;
        self.schedule.looked = now;
        for index in 0..self.lanes.len() {
            self.watch_one(index, now, time);
        }
    }

    /// When [`Self::handle_probes`] wants to be called next; `None` while no path is watched.
    #[must_use]
    pub fn poll_probes(&self) -> Option<Instant> {
        self.schedule.due.map(|due| due.max(self.schedule.looked + SLACK))
    }

    /// How often this worker came late for its probes, and for how long in all: time in which no far end's silence
    /// counts.
    #[must_use]
    pub fn stalls(&self) -> (u64, Duration) {
        self.schedule.awake.stalls()
    }

    /// Begins, changes or ends the probing of a lane.
    pub(crate) fn set_watch(&mut self, lane: LaneId, watch: Option<Watch>, now: Instant) {
        let time = self.notice(now);
        let (config, seed) = (self.config.health, self.config.seed ^ u64::from(lane.0).rotate_left(32));
        let is_draining = self.schedule.is_draining;
        let Some(slot) = self.lanes.find(lane) else { return };
        let Some(watch) = watch else {
            slot.watching = None;
            self.config.board.reset(slot.cable);
            return;
        };
        match &mut slot.watching {
            Some(watching) if watching.watch.most_bytes == watch.most_bytes => watching.watch = watch,
            _ => {
                let mut watcher = Watcher::new(config, watch.most_bytes, seed, time);
                watcher.set_draining(is_draining, time);
                let watching = Watching { watch, watcher, uses: 0 };
                watching.write(slot.cable, &self.config.board, now);
                slot.watching = Some(Box::new(watching));
            }
        }
        self.schedule.hasten(time, now);
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
            self.schedule.hasten(watching.watcher.poll_timeout(time), now);
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
        for watching in self.lanes.iter_mut().filter_map(|slot| slot.watching.as_deref_mut()) {
            watching.watcher.set_draining(is_draining, time);
            self.schedule.hasten(time, now);
        }
    }

    /// Takes into account that this worker may have come late; returns awake time. To be called before anything that
    /// has arrived is looked at.
    pub(crate) fn notice(&mut self, now: Instant) -> Instant {
        let Schedule { awake, due, .. } = &mut self.schedule;
        if let Some(due) = due
            && awake.notice(*due, now).is_some()
        {
            *due = now;
        }
        awake.time(now)
    }

    /// Does what is due for one lane.
    fn watch_one(&mut self, index: usize, now: Instant, time: Instant) {
        let Some(slot) = self.lanes.at_mut(index) else { return };
        let Some(watching) = slot.watching.as_deref_mut() else { return };
        let lane = slot.lane;
        let mut has_sealed = false;
        watching.follow_use(&self.config.board, time);
        if watching.watcher.poll_timeout(time) <= time {
            watching.watcher.handle_timeout(time);
            watching.note_use(&self.config.board, time);
            // What would be held until there are keys would push packets out of the lane's queue.
            let has_keys = slot.tunnel.stats(now).is_up;
            while let Some(outgoing) = watching.watcher.poll_transmit(time, now) {
                if !has_keys {
                    continue;
                }
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
        self.schedule.hasten(watching.watcher.poll_timeout(time), now);
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
    let (protocol, header_bytes) = match version(packet) {
        4 => (packet.get(9), packet.first().map_or(0, |first| usize::from(first & 0xf) * 4)),
        _ => (packet.get(6), IPV6_HEADER_BYTES),
    };
    match protocol {
        None | Some(&inside::PROTOCOL) => false,
        Some(&(protocol::ICMP | protocol::ICMPV6)) => !is_health_check(packet, header_bytes),
        Some(_) => true,
    }
}

/// Counts the pings of health checks among parsed packets, and the answers to them.
pub(crate) fn health_checks(packets: &[Packet], headers: &[Inner]) -> u64 {
    let is_check = |(packet, header): &(&Packet, &Inner)| {
        matches!(header.flow.protocol, protocol::ICMP | protocol::ICMPV6)
            && is_health_check(packet.bytes(), usize::from(header.transport_offset))
    };
    packets.iter().zip(headers).filter(is_check).count() as u64
}

/// Says whether an ICMP packet has the shape of health checks, upstream's and ours: echo of 8 bytes of header and 24 of data,
/// which no usual `ping` sends.
fn is_health_check(packet: &[u8], header_bytes: usize) -> bool {
    // Cables pad: the header tells the length.
    let word = |at: usize| packet.get(at..at + 2).map_or(0, |_| usize::from(be16(packet, at)));
    let length = if version(packet) == 4 { word(2) } else { IPV6_HEADER_BYTES + word(4) };
    length == header_bytes + HEALTH_CHECK_BYTES
        && packet.get(header_bytes).is_some_and(|message_type| ECHO.contains(message_type))
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

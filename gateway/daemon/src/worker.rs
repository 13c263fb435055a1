//! The worker loop: one thread, one TUN queue, one set of sockets, one pipeline; run to completion.
//!
//! ```text
//!   commands ─▶┐
//!   inbox ────▶│ turn: wire ▸ inbound ▸ TUN,  TUN ▸ outbound ▸ wire,  timers ──▶ published view
//!   stop ─────▶┘   nothing to do: wait for a descriptor, a wake-up or the next timer
//! ```
//!
//! A panic inside a turn costs the packets that were in its hands and nothing else: lanes keep their keys, the
//! other workers do not notice, and the next turn begins at once. One that panics turn after turn ends, and so does one
//! that panics elsewhere: that is always told ([`WorkerHandle::watch_over`]), and the process starts anew.

mod sessions;

use std::any::Any;
use std::io;
use std::os::fd::{AsRawFd as _, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender};
use tokio::sync::{oneshot, watch};
use trieste_cables::{CableEvent, Transmit};
use trieste_io::poll::{Interest, Poller, Waker};
use trieste_io::{PacketIo, TunQueue, UdpIo};
use trieste_packet::{Batch, CableId, DropReason, LaneId, WorkerId};
use trieste_pipeline::{Counters, LaneCommand, LaneReport, Pipeline, Trace, TraceQuestion};

use crate::capture::CaptureHub;
use crate::globalnet::sessions::feed::Feed;
use crate::handoff::Exchange;
use sessions::Sessions;
pub use sessions::{PublishedSessions, Restore};

/// How often counters are published, and the longest wait.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(100);
/// The longest wait of an idle worker: a lane's timers are finer when there is a lane.
const IDLE_WAIT: Duration = Duration::from_secs(1);
/// The longest wait while all buffers are out: they come back from other workers without a word.
const BUFFER_WAIT: Duration = Duration::from_millis(2);
/// Turns in a row that may panic. Ours: a packet that nobody could read costs one; what panics time and again does so over
/// what the worker holds, which only a new process can leave behind.
const PANICS: u32 = 16;
/// Packets taken from the inbox per turn, so that the devices get their share.
const INBOX_BUDGET: usize = 64;
/// While this many trains wait for the socket, no more are taken from the TUN device.
const BACKLOG: usize = 64;

/// Tokens of the poller.
const TUN: u8 = 0;
const WIRE: u8 = 1;

/// What a worker is told.
#[derive(Debug)]
pub enum Command {
    /// About a lane.
    Lane(LaneCommand),
    /// To send a datagram of the slow half that all cables share.
    Transmit(Transmit),
    /// To take over sessions of the process before.
    Restore(Restore),
    /// To say what becomes of a packet.
    Trace(TraceJob),
    /// To end: no more packets are taken in, and what is queued is sent.
    Stop,
}

/// A packet that somebody asks about.
#[derive(Debug)]
pub struct TraceJob {
    /// The packet.
    pub question: TraceQuestion,
    /// Where the answer goes.
    pub reply: oneshot::Sender<Trace>,
}

/// What a worker says of itself.
#[derive(Debug, Clone, Default)]
pub struct Published {
    /// Counters.
    pub counters: Counters,
    /// Drop counters above zero.
    pub drops: Vec<(CableId, DropReason, u64)>,
    /// Lanes.
    pub lanes: Vec<LaneReport>,
    /// Translated sessions.
    pub sessions: PublishedSessions,
    /// How often the worker came back after a panic.
    pub restarts: u64,
    /// How often it came late for its probes, and for how long in all.
    pub stalls: (u64, Duration),
    /// The newest panic's message, or the device error that ended it.
    pub last_error: Option<String>,
    /// Whether it has ended.
    pub is_stopped: bool,
}

/// The outside of a worker, shared with the control plane.
#[derive(Debug, Clone)]
pub struct WorkerHandle {
    /// Its number.
    pub id: WorkerId,
    /// The CPU it is pinned to.
    pub cpu: Option<usize>,
    commands: Sender<Command>,
    waker: Option<Waker>,
    feed: Option<Arc<Feed>>,
    view: Arc<View>,
    sent: Arc<AtomicU64>,
    begun: Instant,
}

#[derive(Debug, Default)]
struct View {
    published: Mutex<Published>,
    events: Mutex<Vec<(LaneId, CableEvent)>>,
    handled: AtomicU64,
    /// When it last began a turn, in nanoseconds since it was made.
    beat: AtomicU64,
}

impl WorkerHandle {
    /// Tells the worker something.
    pub fn command(&self, command: Command) {
        self.sent.fetch_add(1, Ordering::Relaxed);
        // A worker that has ended needs no telling.
        let _ = self.commands.send(command);
        self.wake();
    }

    /// Ends the worker's waiting.
    pub fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake();
        }
    }

    /// Where it says what becomes of its sessions, if anybody listens.
    #[must_use]
    pub fn feed(&self) -> Option<&Arc<Feed>> {
        self.feed.as_ref()
    }

    /// Whether all commands so far have been carried out.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let is_stopped = self.view.published.lock().unwrap_or_else(PoisonError::into_inner).is_stopped;
        is_stopped || self.view.handled.load(Ordering::Acquire) >= self.sent.load(Ordering::Relaxed)
    }

    /// Returns how long ago the worker last began a turn. It does so every second, whether there is anything to do or not.
    #[must_use]
    pub fn silence(&self, now: Instant) -> Duration {
        let beat = Duration::from_nanos(self.view.beat.load(Ordering::Relaxed));
        now.saturating_duration_since(self.begun).saturating_sub(beat)
    }

    /// Runs the worker's whole life, and sees to it that its end is known however it ends. Gives why it ended, unless it
    /// was told to.
    ///
    /// # Errors
    /// What its device said, or the panic's message.
    pub fn watch_over(&self, life: impl FnOnce() -> io::Result<()>) -> Result<(), String> {
        let why = match catch_unwind(AssertUnwindSafe(life)) {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error.to_string(),
            Err(panic) => panic_message(&*panic),
        };
        let mut published = self.view.published.lock().unwrap_or_else(PoisonError::into_inner);
        published.is_stopped = true;
        published.last_error = Some(why.clone());
        Err(why)
    }

    /// What the worker last said of itself; up to 0.1 s old while it is busy.
    #[must_use]
    pub fn published(&self) -> Published {
        self.view.published.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What happened to its lanes since the last call.
    #[must_use]
    pub fn take_events(&self) -> Vec<(LaneId, CableEvent)> {
        std::mem::take(&mut *self.view.events.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A worker, on its own thread once it runs.
pub struct Worker<T, W> {
    id: WorkerId,
    pipeline: Pipeline,
    tun: T,
    wire: W,
    exchange: Arc<Exchange>,
    hub: Option<Arc<CaptureHub>>,
    hub_generation: u64,
    commands: Receiver<Command>,
    view: Arc<View>,
    sessions: Sessions,
    paths_generation: u64,
    paths_changed: watch::Sender<u64>,
    batch: Batch,
    next_publish: Instant,
    next_timer: Instant,
    begun: Instant,
    restarts: u64,
    panics_in_a_row: u32,
    last_error: Option<String>,
    is_stopping: bool,
}

/// What a worker is made of.
pub struct WorkerParts<T, W> {
    /// Its number.
    pub id: WorkerId,
    /// The CPU that it will be pinned to.
    pub cpu: Option<usize>,
    /// The packet path.
    pub pipeline: Pipeline,
    /// The inside.
    pub tun: T,
    /// The outside.
    pub wire: W,
    /// The inboxes.
    pub exchange: Arc<Exchange>,
    /// Captures, if there can be any.
    pub hub: Option<Arc<CaptureHub>>,
    /// Where it says what becomes of its sessions, if anybody listens.
    pub feed: Option<Arc<Feed>>,
    /// Ends its waiting.
    pub waker: Option<Waker>,
    /// Told the board's generation whenever the state of a path has changed; one for all workers.
    pub paths_changed: watch::Sender<u64>,
}

impl<T: PacketIo, W: PacketIo> Worker<T, W> {
    /// A worker and its handle.
    #[must_use]
    pub fn new(parts: WorkerParts<T, W>, now: Instant) -> (Self, WorkerHandle) {
        let (commands, receiver) = crossbeam::channel::unbounded();
        let view = Arc::new(View::default());
        let handle = WorkerHandle {
            id: parts.id,
            cpu: parts.cpu,
            commands,
            waker: parts.waker,
            feed: parts.feed.clone(),
            view: Arc::clone(&view),
            sent: Arc::default(),
            begun: now,
        };
        let worker = Self {
            id: parts.id,
            pipeline: parts.pipeline,
            tun: parts.tun,
            wire: parts.wire,
            exchange: parts.exchange,
            hub: parts.hub,
            hub_generation: 0,
            commands: receiver,
            view,
            sessions: Sessions::new(parts.feed, now),
            paths_generation: 0,
            paths_changed: parts.paths_changed,
            batch: Batch::new(),
            next_publish: now,
            next_timer: now,
            begun: now,
            restarts: 0,
            panics_in_a_row: 0,
            last_error: None,
            is_stopping: false,
        };
        (worker, handle)
    }

    /// Runs until told to stop, or until a device is of no use any more.
    ///
    /// # Errors
    /// What the device said.
    pub fn run(mut self, mut wait: impl FnMut(&mut Self, Duration) -> io::Result<()>) -> io::Result<()> {
        let result = loop {
            let now = Instant::now();
            match self.guarded_turn(now) {
                Ok(_) if self.is_stopping => break Ok(()),
                Ok(true) => {}
                Ok(false) => {
                    let probes = self.pipeline.poll_probes().unwrap_or(self.next_timer);
                    let timer = self.next_timer.min(probes).saturating_duration_since(now).min(IDLE_WAIT);
                    if let Err(error) = wait(&mut self, timer) {
                        break Err(error);
                    }
                }
                Err(error) => break Err(error),
            }
        };
        if let Err(error) = &result {
            self.last_error = Some(error.to_string());
        }
        self.publish(Instant::now(), true);
        result
    }

    /// One turn, a panic in which is caught, counted and shown. Returns whether there was anything to do.
    ///
    /// # Errors
    /// What a device says that is of no use any more.
    pub fn guarded_turn(&mut self, now: Instant) -> io::Result<bool> {
        match catch_unwind(AssertUnwindSafe(|| self.turn(now))) {
            Ok(result) => {
                self.panics_in_a_row = 0;
                result
            }
            Err(panic) => {
                self.restarts += 1;
                self.panics_in_a_row += 1;
                let message = panic_message(&*panic);
                if self.panics_in_a_row >= PANICS {
                    return Err(io::Error::other(format!(
                        "{PANICS} turns in a row have panicked: {message}"
                    )));
                }
                self.last_error = Some(message);
                self.batch.drain();
                self.pipeline.recover(now);
                self.publish(now, false);
                Ok(true)
            }
        }
    }

    fn turn(&mut self, now: Instant) -> io::Result<bool> {
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
        // Probes and what siblings are told may be made at any step, also at one that had no packets.
        self.flush(now)?;
        self.tell_of_paths();
        is_busy |= self.sessions.follow(&mut self.pipeline, now);
        if now >= self.next_publish {
            self.publish(now, false);
        }
        Ok(is_busy)
    }

    /// Wakes who follows the state of paths, when it has changed.
    fn tell_of_paths(&mut self) {
        let generation = self.pipeline.board().generation();
        if generation != self.paths_generation {
            self.paths_generation = generation;
            // Every worker notices; the first one says it.
            self.paths_changed.send_if_modified(|known| {
                let is_news = *known != generation;
                *known = generation;
                is_news
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
                    // Whoever asked may have gone.
                    let _ = reply.send(self.pipeline.trace(&question, now));
                }
                Command::Restore(restore) => self.sessions.restore(&mut self.pipeline, &restore, now),
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
        // What the device could not use is counted as dropped already.
        pipeline.counters.wire_in += count.saturating_sub(self.batch.segments());
        if self.batch.is_empty() {
            return Ok(count > 0);
        }
        pipeline.inbound(&mut self.batch, now);
        self.flush(now)?;
        Ok(true)
    }

    fn take_tun(&mut self, now: Instant) -> io::Result<bool> {
        // What waits for the socket is pressed back into the TUN device's queue, where TCP notices.
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
    fn flush(&mut self, now: Instant) -> io::Result<()> {
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

    /// Whether datagrams wait for room in the socket.
    #[must_use]
    pub fn wants_write(&self) -> bool {
        !self.pipeline.to_wire.is_empty()
    }

    /// Gives the worker another outside and hands the old one back; what waits to be sent goes to the new one.
    pub fn replace_wire(&mut self, wire: W) -> W {
        std::mem::replace(&mut self.wire, wire)
    }

    fn publish(&mut self, now: Instant, is_stopped: bool) {
        self.next_publish = now + PUBLISH_INTERVAL;
        let counters = self.pipeline.snapshot(now);
        debug_assert!(counters.conservation().holds(), "packets are lost unseen: {counters:?}");
        let published = Published {
            counters,
            drops: self.pipeline.drops.iter().collect(),
            lanes: self.pipeline.reports(now).collect(),
            sessions: self.sessions.publish(&self.pipeline, now),
            restarts: self.restarts,
            stalls: self.pipeline.stalls(),
            last_error: self.last_error.clone(),
            is_stopped,
        };
        *self.view.published.lock().unwrap_or_else(PoisonError::into_inner) = published;
        let mut events = self.view.events.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(event) = self.pipeline.poll_event() {
            events.push(event);
        }
    }
}

/// Waits for a worker's descriptors: to read while there are buffers, to write on the socket that was full.
pub struct DeviceWait {
    poller: Poller,
    reads: (bool, bool),
    full: Option<RawFd>,
}

impl DeviceWait {
    /// A wait for the TUN queue and the sockets of one worker.
    ///
    /// # Errors
    /// What the kernel says when they cannot be waited for.
    pub fn new(poller: Poller, tun: &TunQueue, wire: &UdpIo) -> io::Result<Self> {
        poller.add(tun, TUN, Interest::Readable)?;
        for socket in wire.fds() {
            poller.add(socket, WIRE, Interest::Readable)?;
        }
        for socket in wire.send_only_fds() {
            poller.add(socket, WIRE, Interest::Nothing)?;
        }
        Ok(Self { poller, reads: (true, true), full: None })
    }

    /// Waits until there is something to do, or `timeout` is over.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn wait(&mut self, worker: &mut Worker<TunQueue, UdpIo>, timeout: Duration) -> io::Result<()> {
        self.follow(worker)?;
        let timeout = if self.reads.1 { timeout } else { timeout.min(BUFFER_WAIT) };
        let ready = self.poller.wait(Some(timeout))?;
        if ready.is_writable(WIRE) && self.full.is_some() {
            worker.flush(Instant::now())?;
        }
        Ok(())
    }

    /// Tells the poller what this worker can use. A descriptor that is ready for what nobody wants would end every
    /// wait at once.
    fn follow(&mut self, worker: &Worker<TunQueue, UdpIo>) -> io::Result<()> {
        let full = worker.wire.blocked().filter(|_| worker.wants_write()).map(|socket| socket.as_raw_fd());
        let has_buffers = worker.pipeline.pool.available() > 0;
        // What is pressed back into the TUN device's queue is not to be read yet.
        let reads = (has_buffers && worker.pipeline.to_wire.len() < BACKLOG, has_buffers);
        if (reads, full) == (self.reads, self.full) {
            return Ok(());
        }
        let interest = |is_reading: bool, is_writing: bool| match (is_reading, is_writing) {
            (true, true) => Interest::Both,
            (true, false) => Interest::Readable,
            (false, true) => Interest::Writable,
            (false, false) => Interest::Nothing,
        };
        self.poller.modify(&worker.tun, TUN, interest(reads.0, false))?;
        for socket in worker.wire.fds() {
            self.poller.modify(socket, WIRE, interest(reads.1, full == Some(socket.as_raw_fd())))?;
        }
        for socket in worker.wire.send_only_fds() {
            self.poller.modify(socket, WIRE, interest(false, full == Some(socket.as_raw_fd())))?;
        }
        (self.reads, self.full) = (reads, full);
        Ok(())
    }
}

/// Counts a command as handled when it goes.
struct Handled(Arc<View>);

impl Drop for Handled {
    fn drop(&mut self) {
        self.0.handled.fetch_add(1, Ordering::Release);
    }
}

pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "panic without a message".to_owned())
}

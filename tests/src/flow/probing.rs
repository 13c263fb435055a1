//! The thread that asks, for all flows.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::record::Record;
use super::{Echo, FlowOutage, INTERVAL, Outages};
use crate::interrupt;
use crate::netns::Namespace;
use crate::wait::eventually;

/// How long answers to the last datagrams are waited for; less where the very last one is there.
const LAST_WAIT: Duration = Duration::from_secs(2);
/// How often somebody who waits for those looks.
const LOOK: Duration = Duration::from_millis(10);
/// What every datagram carries besides its number, unless somebody wants something else.
const PADDING: [u8; 60] = [0x5a; 60];

/// A flow to probe.
#[derive(Debug, Clone)]
pub struct FlowSpec {
    /// Its name.
    pub name: String,
    /// Where it begins.
    pub from: Namespace,
    /// The [`super::Echo`] that answers.
    pub to: SocketAddr,
    /// Its own UDP port; 0 for any.
    pub port: u16,
}

/// Flows that are being probed.
#[derive(Debug)]
pub struct Probing {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// From where on it counts in the end.
    mark: AtomicUsize,
}

/// A moment of a probing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(usize);

/// What has been seen until now.
#[derive(Debug)]
struct Seen {
    flows: Vec<Probed>,
    /// When each datagram was sent, in microseconds after the start.
    sent_us: Vec<u32>,
    /// For how long the thread did not run before each of them but the first, in microseconds.
    stalls: Vec<u32>,
}

#[derive(Debug)]
struct Shared {
    is_over: AtomicBool,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Probed {
    name: String,
    port: u16,
    socket: UdpSocket,
    record: Record,
}

impl Probing {
    /// Starts to probe all of these flows at once, each once per [`INTERVAL`].
    ///
    /// # Errors
    /// If there is no socket to be had.
    pub fn start(flows: &[FlowSpec]) -> anyhow::Result<Self> {
        Self::start_every(INTERVAL, flows)
    }

    /// The same, each once per `interval`.
    ///
    /// # Errors
    /// If there is no socket to be had.
    pub fn start_every(interval: Duration, flows: &[FlowSpec]) -> anyhow::Result<Self> {
        Self::start_with(interval, &PADDING, flows)
    }

    /// The same; every datagram ends with this padding: something to look for in a capture, or of some size.
    ///
    /// # Errors
    /// If there is no socket to be had.
    pub fn start_with(interval: Duration, padding: &[u8], flows: &[FlowSpec]) -> anyhow::Result<Self> {
        let flows = flows.iter().map(Probed::open).collect::<anyhow::Result<Vec<_>>>()?;
        let seen = Mutex::new(Seen { flows, sent_us: Vec::new(), stalls: Vec::new() });
        let shared = Arc::new(Shared { is_over: AtomicBool::new(false), seen });
        let (own, padding) = (Arc::clone(&shared), padding.to_vec());
        let thread = std::thread::Builder::new()
            .name("probes".into())
            .spawn(move || probe(&own, interval, &padding))?;
        Ok(Self { shared, thread: Some(thread), mark: AtomicUsize::default() })
    }

    /// From here on it counts, for [`Probing::finish`].
    pub fn mark(&self) {
        self.mark.store(self.now().0, Ordering::Relaxed);
    }

    /// This moment, for [`Probing::since`].
    pub fn now(&self) -> Mark {
        Mark(self.shared.seen().sent_us.len())
    }

    /// What became of the datagrams from `mark` until now; goes on. Waits for answers that are on their way.
    ///
    /// # Errors
    /// "interrupted" after a signal.
    pub fn since(&self, mark: Mark) -> anyhow::Result<Outages> {
        let (until, end) = (self.now(), Instant::now() + LAST_WAIT);
        while Instant::now() < end && !self.shared.seen().are_answered(until.0) {
            interrupt::pause(LOOK)?;
        }
        Ok(self.shared.seen().judge(mark.0..until.0))
    }

    /// Waits until a datagram of every flow that was sent from now on is answered.
    ///
    /// # Errors
    /// If that takes longer than `timeout`.
    pub fn wait_through(&self, timeout: Duration) -> anyhow::Result<()> {
        let now = self.now().0;
        eventually("an answer to every flow", timeout, || {
            let seen = self.shared.seen();
            let silent = seen.flows.iter().filter(|flow| !flow.record.has_answer_since(now));
            let silent: Vec<_> = silent.map(|flow| flow.name.as_str()).collect();
            anyhow::ensure!(silent.is_empty(), "none to {}", silent.join(", "));
            Ok(())
        })
    }

    /// Ends it.
    ///
    /// # Panics
    /// If its thread has panicked.
    pub fn finish(mut self) -> Outages {
        self.end().expect("the prober does not panic");
        // Judged here and not there: that thread goes before everybody else's, who would have to wait for it.
        let seen = self.shared.seen();
        seen.judge(self.mark.load(Ordering::Relaxed)..seen.sent_us.len())
    }

    fn end(&mut self) -> std::thread::Result<()> {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.thread.take().map_or(Ok(()), JoinHandle::join)
    }
}

impl Drop for Probing {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    fn judge(&self, numbers: std::ops::Range<usize>) -> Outages {
        let stalls = self.stalls.iter().take(numbers.end).skip(numbers.start);
        let own_stall_us = stalls.copied().max().unwrap_or_default();
        let judge = |flow: &Probed| {
            flow.record.judge(&flow.name, flow.port, &self.sent_us[..numbers.end], numbers.start)
        };
        Outages { flows: self.flows.iter().map(judge).collect(), own_stall_us }
    }

    /// Whether the last of the first `count` datagrams is answered, of every flow.
    fn are_answered(&self, count: usize) -> bool {
        self.flows.iter().all(|flow| count == 0 || flow.record.has_answer_since(count - 1))
    }

    fn listen(&mut self, started: Instant) {
        for flow in &mut self.flows {
            flow.listen(self.sent_us.len(), started);
        }
    }
}

impl Probed {
    fn open(spec: &FlowSpec) -> anyhow::Result<Self> {
        let any: SocketAddr =
            if spec.to.is_ipv4() { ([0; 4], spec.port).into() } else { ([0_u16; 8], spec.port).into() };
        let socket = spec.from.enter(|| {
            let socket = UdpSocket::bind(any).with_context(|| format!("UDP port {}", spec.port))?;
            socket.connect(spec.to).with_context(|| format!("UDP to {}", spec.to))?;
            Ok(socket)
        })?;
        super::make_room(&socket)?;
        socket.set_nonblocking(true)?;
        let port = socket.local_addr()?.port();
        Ok(Self { name: spec.name.clone(), port, socket, record: Record::default() })
    }

    /// Takes in what has come. Stops when the newest answer that there can be is there.
    fn listen(&mut self, sent: usize, started: Instant) {
        // The number is all that is looked at: the kernel cuts off the rest.
        let mut datagram = [0; 4];
        // An error is an answer that is not there, or an ICMP error: neither is one to the datagrams after it.
        while let Ok(count) = self.socket.recv(&mut datagram) {
            if count < datagram.len() {
                continue;
            }
            let number = u32::from_be_bytes(datagram);
            self.record.answer(number, micros(started), sent);
            if number as usize + 1 >= sent {
                return;
            }
        }
    }
}

fn probe(shared: &Shared, interval: Duration, padding: &[u8]) {
    super::go_first();
    let started = Instant::now();
    let (mut next, mut before) = (Instant::now(), None);
    let mut datagram = [&[0; 4], padding].concat();
    while !shared.is_over.load(Ordering::Relaxed) && !interrupt::is_interrupted() {
        let now = Instant::now();
        let mut seen = shared.seen();
        if let Some(before) = before.replace(now) {
            seen.stalls.push(u32::try_from(now.duration_since(before).as_micros()).unwrap_or(u32::MAX));
        }
        let number = u32::try_from(seen.sent_us.len()).unwrap_or(u32::MAX);
        datagram[..4].copy_from_slice(&number.to_be_bytes());
        seen.sent_us.push(micros(started));
        for flow in &seen.flows {
            // A refusal (no route, no buffer) is a loss, and that is what is measured.
            let _ = flow.socket.send(&datagram);
        }
        seen.listen(started);
        drop(seen);
        // Who was late does not make up for it: a burst would measure itself.
        next = (next + interval).max(Instant::now());
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    let end = Instant::now() + LAST_WAIT;
    while Instant::now() < end {
        std::thread::sleep(INTERVAL);
        let mut seen = shared.seen();
        seen.listen(started);
        if seen.are_answered(seen.sent_us.len()) {
            return;
        }
    }
}

/// Microseconds since the start; more than an hour of them fits.
fn micros(started: Instant) -> u32 {
    u32::try_from(started.elapsed().as_micros()).unwrap_or(u32::MAX)
}

/// One flow, and what answers it.
#[derive(Debug)]
pub struct Flow {
    probing: Probing,
    _echo: Echo,
}

impl Flow {
    /// Starts to send datagrams that end with `padding` to this address of the second namespace, one every `interval`,
    /// from where they come back.
    ///
    /// # Errors
    /// If there is no socket to be had.
    pub fn start(
        from: &Namespace,
        (at, to): (&Namespace, IpAddr),
        padding: &[u8],
        interval: Duration,
    ) -> anyhow::Result<Self> {
        let echo = Echo::start(at, 0)?;
        let to = SocketAddr::new(to, echo.port());
        let spec = FlowSpec { name: format!("{} to {to}", from.name()), from: from.clone(), to, port: 0 };
        Ok(Self { probing: Probing::start_with(interval, padding, &[spec])?, _echo: echo })
    }

    /// This moment.
    pub fn now(&self) -> Mark {
        self.probing.now()
    }

    /// What became of the datagrams from `mark` until now; waits for answers that are on their way.
    ///
    /// # Errors
    /// "interrupted" after a signal.
    pub fn since(&self, mark: Mark) -> anyhow::Result<FlowOutage> {
        Ok(only(self.probing.since(mark)?))
    }

    /// Waits until datagrams that were sent from now on are answered.
    ///
    /// # Errors
    /// If none is within `timeout`.
    pub fn wait_through(&self, timeout: Duration) -> anyhow::Result<()> {
        self.probing.wait_through(timeout)
    }

    /// Ends it: what became of all datagrams.
    ///
    /// # Panics
    /// If its thread has panicked.
    pub fn finish(self) -> FlowOutage {
        only(self.probing.finish())
    }
}

fn only(mut outages: Outages) -> FlowOutage {
    outages.flows.remove(0)
}

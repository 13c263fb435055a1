//! The thread that asks, for all flows.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::record::Record;
use super::{INTERVAL, Outages};
use crate::interrupt;
use crate::netns::Namespace;

/// How long answers to the last datagrams are waited for.
const LAST_WAIT: Duration = Duration::from_millis(500);
/// What every datagram carries besides its number.
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
    thread: JoinHandle<Seen>,
}

/// What the thread that asks has seen.
#[derive(Debug)]
struct Seen {
    flows: Vec<Flow>,
    /// When each datagram was sent, in microseconds after the start.
    sent_us: Vec<u32>,
    /// For how long the thread did not run before each of them, in microseconds.
    stalls: Vec<u32>,
    /// The number of the first datagram that counts.
    mark: usize,
}

#[derive(Debug, Default)]
struct Shared {
    is_over: AtomicBool,
    /// The number of the next datagram, and that of the first one that counts.
    tick: AtomicUsize,
    mark: AtomicUsize,
}

#[derive(Debug)]
struct Flow {
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
        let flows = flows.iter().map(Flow::open).collect::<anyhow::Result<Vec<_>>>()?;
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        let thread =
            std::thread::Builder::new().name("probes".into()).spawn(move || probe(flows, interval, &own))?;
        Ok(Self { shared, thread })
    }

    /// From here on it counts.
    pub fn mark(&self) {
        self.shared.mark.store(self.shared.tick.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Ends it.
    ///
    /// # Panics
    /// If its thread has panicked.
    pub fn finish(self) -> Outages {
        self.shared.is_over.store(true, Ordering::Relaxed);
        // Judged here and not there: that thread goes before everybody else's, who would have to wait for it.
        self.thread.join().expect("the prober does not panic").judge()
    }
}

impl Seen {
    fn judge(&self) -> Outages {
        let own_stall_us = self.stalls.iter().skip(self.mark).copied().max().unwrap_or_default();
        let judge = |flow: &Flow| flow.record.judge(&flow.name, flow.port, &self.sent_us, self.mark);
        Outages { flows: self.flows.iter().map(judge).collect(), own_stall_us }
    }
}

impl Flow {
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
        let mut datagram = [0; 128];
        // An error is an answer that is not there, or an ICMP error: neither is one to the datagrams after it.
        while let Ok(count) = self.socket.recv(&mut datagram) {
            let Some(number) = datagram[..count].first_chunk().map(|number| u32::from_be_bytes(*number))
            else {
                continue;
            };
            self.record.answer(number, micros(started), sent);
            if number as usize + 1 >= sent {
                return;
            }
        }
    }
}

fn probe(mut flows: Vec<Flow>, interval: Duration, shared: &Shared) -> Seen {
    super::go_first();
    let started = Instant::now();
    let (mut sent_us, mut next, mut before) = (Vec::<u32>::new(), Instant::now(), None);
    let mut stalls = Vec::new();
    let mut datagram = [0; 64];
    datagram[4..].copy_from_slice(&PADDING);
    while !shared.is_over.load(Ordering::Relaxed) && !interrupt::is_interrupted() {
        let now = Instant::now();
        if let Some(before) = before.replace(now) {
            stalls.push(u32::try_from(now.duration_since(before).as_micros()).unwrap_or(u32::MAX));
        }
        let number = u32::try_from(sent_us.len()).unwrap_or(u32::MAX);
        datagram[..4].copy_from_slice(&number.to_be_bytes());
        sent_us.push(micros(started));
        shared.tick.store(sent_us.len(), Ordering::Relaxed);
        for flow in &mut flows {
            // A refusal (no route, no buffer) is a loss, and that is what is measured.
            let _ = flow.socket.send(&datagram);
        }
        for flow in &mut flows {
            flow.listen(sent_us.len(), started);
        }
        // Who was late does not make up for it: a burst would measure itself.
        next = (next + interval).max(Instant::now());
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    let end = Instant::now() + LAST_WAIT;
    while Instant::now() < end {
        std::thread::sleep(INTERVAL);
        for flow in &mut flows {
            flow.listen(sent_us.len(), started);
        }
    }
    Seen { flows, sent_us, stalls, mark: shared.mark.load(Ordering::Relaxed) }
}

/// Microseconds since the start; more than an hour of them fits.
fn micros(started: Instant) -> u32 {
    u32::try_from(started.elapsed().as_micros()).unwrap_or(u32::MAX)
}

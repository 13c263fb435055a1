//! Small packets from pod to pod: the highest rate at which none is lost, by the search of RFC 2544 (§26.1).
//!
//! The generator is the same for all candidates: single datagrams of one flow, by `sendmmsg`, never as trains. One thread sends at a
//! given rate, another one counts what arrives. A trial is good if everything has arrived; the search halves what is between
//! the highest good rate and the lowest bad one.

#![expect(clippy::cast_possible_truncation, reason = "numbers of packets are far below 2^53")]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use trieste_io::poll::{Interest, Poller};
use trieste_io::{PacketIo as _, UdpConfig, UdpIo};
use trieste_packet::{Batch, Drops, Outer, Packet, Pool, PoolConfig};
use trieste_tests::topology::PodPlan;

/// Bytes of an inner packet's IPv4 and UDP headers.
const HEADER_BYTES: usize = 28;
/// Datagrams of one system call, which is also what a sender that fell behind may make good at once.
const BURST: usize = 32;
/// How long the sender rests while nothing is due.
const REST: Duration = Duration::from_micros(50);
/// How long nothing has to arrive until everything counts as arrived.
const SILENCE: Duration = Duration::from_millis(100);
/// More than any sender here reaches.
const UNBOUNDED: f64 = 1e9;
/// The search ends when its bounds are as close as this share.
const RESOLUTION: f64 = 0.03;
/// Trials at most, of which each halves the distance.
const MOST_TRIALS: u32 = 12;

/// Which packets are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sizes {
    /// 64 bytes, IP header and all.
    Small64,
    /// 256 bytes.
    Small256,
    /// Seven of 64 bytes, four of 576 and one of 1420: the usual mixture.
    Mix,
}

impl Sizes {
    /// All of them.
    pub(super) const ALL: [Self; 3] = [Self::Small64, Self::Small256, Self::Mix];

    /// The case's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Small64 => "small64",
            Self::Small256 => "small256",
            Self::Mix => "mix",
        }
    }

    /// Bytes of the packets in turn.
    fn bytes(self) -> &'static [usize] {
        match self {
            Self::Small64 => &[64],
            Self::Small256 => &[256],
            Self::Mix => &[64, 576, 64, 64, 576, 64, 1420, 64, 576, 64, 576, 64],
        }
    }

    /// Bytes of a packet on average.
    pub(super) fn mean_bytes(self) -> f64 {
        let bytes = self.bytes();
        bytes.iter().sum::<usize>() as f64 / bytes.len() as f64
    }
}

/// What one trial has shown.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Trial {
    /// Packets sent in a second: fewer than were wanted where the sender was too slow.
    pub(super) offered_s: f64,
    /// Packets sent.
    pub(super) sent: u64,
    /// Of them, those that arrived.
    pub(super) received: u64,
}

impl Trial {
    fn is_good(&self) -> bool {
        self.received >= self.sent && self.sent > 0
    }

    /// Share of the packets that did not arrive.
    pub(super) fn lost(&self) -> f64 {
        1.0 - self.received as f64 / self.sent.max(1) as f64
    }
}

/// The search, without packets.
#[derive(Debug)]
struct Search {
    /// The highest rate without loss, and the lowest one with.
    good: f64,
    bad: f64,
    next: f64,
    trials: u32,
}

impl Search {
    fn new() -> Self {
        Self { good: 0.0, bad: f64::INFINITY, next: UNBOUNDED, trials: 0 }
    }

    /// The rate to try next; `None` at the end.
    fn next(&self) -> Option<f64> {
        let is_close = self.bad.is_finite() && self.bad - self.good <= self.bad * RESOLUTION;
        let is_all = self.bad.is_infinite() && self.trials > 0;
        (!is_close && !is_all && self.trials < MOST_TRIALS).then_some(self.next)
    }

    fn take(&mut self, trial: &Trial) {
        self.trials += 1;
        if trial.is_good() {
            self.good = self.good.max(trial.offered_s);
        } else {
            self.bad = self.bad.min(trial.offered_s);
        }
        // A sender that does not reach the rate has shown what there is to show of it.
        self.bad = self.bad.max(self.good);
        let middle = f64::midpoint(self.good, self.bad);
        // What came through under too much load is a good guess.
        let through = trial.offered_s * (1.0 - trial.lost());
        let is_first = self.trials == 1 && through > self.good && through < self.bad;
        self.next = if is_first { through } else { middle };
    }
}

/// Sender and receiver, in their pods.
pub(super) struct Generator {
    sender: UdpIo,
    receiver: UdpIo,
    to: SocketAddr,
    sizes: Sizes,
}

impl Generator {
    /// Opens both ends.
    ///
    /// # Errors
    /// No socket can be had in a pod.
    pub(super) fn new(from: &PodPlan, to: &PodPlan, sizes: Sizes) -> anyhow::Result<Self> {
        let open = |pod: &PodPlan| {
            pod.namespace.enter(|| {
                let config = UdpConfig {
                    gso: false,
                    gro: false,
                    ipv4: Some(Ipv4Addr::UNSPECIFIED),
                    ipv6: None,
                    ..UdpConfig::new(0)
                };
                UdpIo::open(&config).context("opening the generator's socket")
            })
        };
        let (sender, receiver) = (open(from)?, open(to)?);
        let port = receiver.port().context("reading the receiver's port")?;
        let to = SocketAddr::new(to.v4().context("the pod has no IPv4 address")?, port);
        Ok(Self { sender, receiver, to, sizes })
    }

    /// Finds the highest rate without loss.
    ///
    /// # Errors
    /// The sockets fail, or something is lost at every rate.
    pub(super) fn search(&mut self, seconds: f64) -> anyhow::Result<f64> {
        let mut search = Search::new();
        while let Some(rate) = search.next() {
            search.take(&self.trial(rate, seconds)?);
        }
        ensure!(search.good > 0.0, "something is lost at every rate down to {:.0} packets/s", search.bad);
        Ok(search.good)
    }

    /// Sends at a rate for so long, and counts what arrives.
    ///
    /// # Errors
    /// The sockets fail.
    pub(super) fn trial(&mut self, rate: f64, seconds: f64) -> anyhow::Result<Trial> {
        let Self { sender, receiver, to, sizes } = self;
        let (is_over, received) = (AtomicBool::new(false), AtomicU64::new(0));
        let (sent, elapsed) = std::thread::scope(|scope| -> anyhow::Result<(u64, Duration)> {
            let counting = scope.spawn(|| count(receiver, &received, &is_over));
            let result = send(sender, *to, *sizes, rate, Duration::from_secs_f64(seconds));
            is_over.store(true, Ordering::Release);
            counting.join().expect("counting does not panic")?;
            result
        })?;
        let received = received.into_inner();
        Ok(Trial { offered_s: sent as f64 / elapsed.as_secs_f64(), sent, received })
    }
}

fn pool() -> Pool {
    Pool::new(PoolConfig { slots: 4 * BURST, slot_bytes: 2048 })
}

/// Sends at a rate. Returns how many packets the kernel took, and in which time.
fn send(
    socket: &mut UdpIo,
    to: SocketAddr,
    sizes: Sizes,
    rate: f64,
    time: Duration,
) -> anyhow::Result<(u64, Duration)> {
    let (mut pool, mut batch, mut drops) = (pool(), Batch::with_limit(BURST), Drops::default());
    let payload = [0u8; 1500];
    let mut turn = sizes.bytes().iter().cycle();
    let (mut sent, mut missed) = (0u64, 0u64);
    let start = Instant::now();
    while start.elapsed() < time {
        let due = (start.elapsed().as_secs_f64() * rate) as u64;
        let behind = due.saturating_sub(sent + missed);
        if behind == 0 {
            std::thread::sleep(REST);
            continue;
        }
        let now = behind.min(BURST as u64);
        // Time in which this thread did not run is not made good: that would be another rate.
        missed += behind - now;
        for _ in 0..now {
            let bytes = turn.next().copied().unwrap_or(HEADER_BYTES) - HEADER_BYTES;
            let buf = pool.alloc_copy(&payload[..bytes]).context("the generator has no buffer")?;
            let outer = Outer { peer: to, ..Outer::NONE };
            let is_put = batch.push(Packet { outer, ..Packet::new(buf) }).is_ok();
            ensure!(is_put, "the generator's batch is full");
        }
        while !batch.is_empty() {
            sent += socket.send(&mut batch, &mut pool, &mut drops)? as u64;
        }
    }
    ensure!(drops.total() == 0, "the kernel refused {} of the generator's packets", drops.total());
    Ok((sent, start.elapsed()))
}

/// Counts what arrives, until nothing does any more.
fn count(socket: &mut UdpIo, received: &AtomicU64, is_over: &AtomicBool) -> anyhow::Result<()> {
    let (mut pool, mut batch, mut drops) = (pool(), Batch::with_limit(BURST), Drops::default());
    let mut poller = Poller::new()?;
    for fd in socket.fds() {
        poller.add(fd, 0, Interest::Readable)?;
    }
    let mut newest = Instant::now();
    loop {
        let count = socket.recv(&mut pool, &mut batch, &mut drops)?;
        batch.drain().for_each(|packet| pool.recycle(packet.buf));
        if count > 0 {
            received.fetch_add(count as u64, Ordering::Relaxed);
            newest = Instant::now();
        } else if is_over.load(Ordering::Acquire) && newest.elapsed() > SILENCE {
            return Ok(());
        } else {
            poller.wait(Some(Duration::from_millis(20)))?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path that carries so much, and a sender that sends so much at most.
    fn found(capacity: f64, fastest: f64) -> (f64, u32) {
        let mut search = Search::new();
        while let Some(rate) = search.next() {
            let offered_s = rate.min(fastest);
            let (sent, received) = (offered_s, offered_s.min(capacity));
            search.take(&Trial { offered_s, sent: sent as u64, received: received as u64 });
        }
        (search.good, search.trials)
    }

    #[test]
    fn the_search_comes_from_below_to_what_the_path_carries() {
        for capacity in [2_000.0, 150_000.0, 880_000.0, 999_000.0] {
            let (good, trials) = found(capacity, 1_000_000.0);
            assert!(good <= capacity * 1.000_001 && good > capacity * 0.93, "{good} of {capacity}");
            assert!(trials <= MOST_TRIALS, "{trials}");
        }
        // A sender slower than the path ends it at once.
        assert_eq!(found(2e6, 1e6), (1e6, 1));
        assert_eq!(found(0.0, 1e6).0, 0.0);
    }

    #[test]
    fn packets_have_the_sizes_that_their_names_promise() {
        for (sizes, bytes) in [(Sizes::Small64, 64.0), (Sizes::Small256, 256.0)] {
            assert_eq!(sizes.mean_bytes(), bytes);
        }
        let count = |bytes| Sizes::Mix.bytes().iter().filter(|size| **size == bytes).count();
        assert_eq!([64, 576, 1420].map(count), [7, 4, 1]);
    }
}

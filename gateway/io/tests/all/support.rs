//! What the tests share: namespaces that last as long as a value, bounded waiting, and small builders.

use std::os::fd::BorrowedFd;
use std::process::Command;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use trieste_io::poll::{Interest, Poller};
use trieste_io::{PacketIo, link};
use trieste_packet::{Batch, Drops, Packet, Pool, PoolConfig};

use crate::skip::skip;

/// Longest that any test waits for something that should come at once.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

type Job = Box<dyn FnOnce() + Send>;

/// A network namespace of its own, with its loopback up. It has no name and goes when the value goes.
pub(crate) struct Namespace {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Namespace {
    /// A fresh namespace; without root, says that the test is skipped.
    pub(crate) fn new() -> Option<Self> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let (made, is_made) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let result = unshare(CloneFlags::CLONE_NEWNET);
            made.send(result).unwrap();
            for job in queue {
                job();
            }
        });
        if let Err(error) = is_made.recv().unwrap() {
            skip(&format!("no network namespace ({error}); needs root"));
            return None;
        }
        let namespace = Self { jobs: Some(jobs), thread: Some(thread) };
        namespace.run(|| link::set_up("lo", true).unwrap());
        Some(namespace)
    }

    /// Runs `job` in the namespace. Sockets and devices that it returns stay there.
    pub(crate) fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (answer, result) = mpsc::channel();
        let job = Box::new(move || {
            let _ = answer.send(job());
        });
        self.jobs.as_ref().unwrap().send(job).expect("an earlier job in this namespace failed");
        result.recv().expect("the job in the namespace failed; its panic is above")
    }

    /// Runs the `ip` command with `arguments`, separated by white space, and returns what it printed.
    pub(crate) fn ip(&self, arguments: &str) -> String {
        let arguments = arguments.to_owned();
        self.run(move || {
            let output = Command::new("ip").args(arguments.split_whitespace()).output().expect("iproute2");
            assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8_lossy(&output.stdout).into_owned()
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A pool of full-sized buffers.
pub(crate) fn pool() -> Pool {
    Pool::new(PoolConfig { slots: 160, ..PoolConfig::default() })
}

/// One side's belongings.
pub(crate) struct Side {
    pub(crate) pool: Pool,
    pub(crate) drops: Drops,
    pub(crate) batch: Batch,
}

impl Side {
    pub(crate) fn new() -> Self {
        Self { pool: pool(), drops: Drops::default(), batch: Batch::new() }
    }

    /// Puts a packet with these bytes into the batch and returns it.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> &mut Packet {
        let buf = self.pool.alloc_copy(bytes).expect("buffers enough");
        self.batch.push(Packet::new(buf)).unwrap();
        self.batch.as_mut_slice().last_mut().unwrap()
    }

    /// Sends the batch.
    pub(crate) fn send(&mut self, io: &mut impl PacketIo) -> usize {
        io.send(&mut self.batch, &mut self.pool, &mut self.drops).unwrap()
    }

    /// Receives until `count` packets have come, segments counted, and returns them. What the kernel says on its own
    /// on a fresh interface (multicast reports, router solicitations) is left out.
    pub(crate) fn recv<'a>(
        &mut self,
        io: &mut impl PacketIo,
        fds: impl Iterator<Item = BorrowedFd<'a>>,
        count: usize,
    ) -> Vec<Packet> {
        let mut poller = Poller::new().unwrap();
        for fd in fds {
            poller.add(fd, 0, Interest::Readable).unwrap();
        }
        let deadline = Instant::now() + PATIENCE;
        let (mut seen, mut packets) = (0, Vec::new());
        while seen < count {
            let left = deadline.checked_duration_since(Instant::now());
            let left = left.unwrap_or_else(|| panic!("{seen} of {count} packets came"));
            poller.wait(Some(left)).unwrap();
            seen += io.recv(&mut self.pool, &mut self.batch, &mut self.drops).unwrap();
            for packet in self.batch.drain() {
                if is_chatter(packet.bytes()) {
                    seen -= 1;
                } else {
                    packets.push(packet);
                }
            }
        }
        let heads: Vec<_> =
            packets.iter().map(|packet| &packet.bytes()[..packet.buf.len().min(48)]).collect();
        assert_eq!(seen, count, "more came than was sent: {heads:?}");
        packets
    }

    /// All buffers are back where they came from.
    pub(crate) fn assert_nothing_leaked(&self) {
        assert_eq!(self.pool.available() + self.batch.len(), self.pool.capacity());
    }
}

fn is_chatter(bytes: &[u8]) -> bool {
    // IPv6 with hop-by-hop options or ICMPv6; no test sends such.
    bytes.len() >= 40 && bytes[0] >> 4 == 6 && matches!(bytes[6], 0 | 58)
}

/// Bytes that look random and are the same every time.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

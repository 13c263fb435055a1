//! TCP connections that go on: each sends a block, waits until it comes back, and sends it again, whatever happens to what
//! lies between.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::guard;
use crate::interrupt;
use crate::netns::Namespace;
use crate::traffic;
use crate::wait::eventually;

/// How often a waiting thread looks whether it should end.
const TICK: Duration = Duration::from_millis(100);
/// How long one answer may take before a connection counts as broken: longer than anything that is done to one takes.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(90);
/// The same of conversations, which are to survive much less.
const TALK_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a try to connect may take, and all of them.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const CONNECTED: Duration = Duration::from_secs(15);
/// Between an answer and the next question of a conversation, and the bytes of one.
const PACE: Duration = Duration::from_millis(5);
const QUESTION: usize = 8;
/// Bytes of the line by which the server says whom it sees.
const GREETING: usize = 64;

/// A server that tells each client how it is seen, and sends back what it gets.
#[derive(Debug)]
pub struct TcpEcho {
    port: u16,
    accepted: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl TcpEcho {
    /// Starts on this port of all addresses; 0 lets the kernel choose.
    ///
    /// # Errors
    /// If the port cannot be had.
    pub fn start(at: &Namespace, port: u16) -> anyhow::Result<Self> {
        let listener = at.enter(|| TcpListener::bind(("::", port)).context("a TCP socket"))?;
        let port = listener.local_addr()?.port();
        listener.set_nonblocking(true)?;
        let (accepted, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let thread = {
            let (accepted, is_over) = (Arc::clone(&accepted), Arc::clone(&is_over));
            std::thread::spawn(move || accept_until(&listener, &accepted, &is_over))
        };
        Ok(Self { port, accepted, is_over, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// How many connections there were.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }
}

impl Drop for TcpEcho {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn accept_until(listener: &TcpListener, accepted: &AtomicU64, is_over: &Arc<AtomicBool>) {
    let mut clients = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((stream, peer)) => {
                accepted.fetch_add(1, Ordering::Relaxed);
                let is_over = Arc::clone(is_over);
                clients.push(std::thread::spawn(move || {
                    // A client that goes away is the client's business.
                    let _ = echo(stream, peer, &is_over);
                }));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
    for client in clients {
        let _ = client.join();
    }
}

fn echo(mut stream: TcpStream, peer: SocketAddr, is_over: &AtomicBool) -> anyhow::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TICK))?;
    stream.write_all(format!("{peer:<GREETING$}").as_bytes())?;
    let mut chunk = vec![0; 1 << 16];
    while !is_over.load(Ordering::Relaxed) {
        match stream.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => stream.write_all(&chunk[..count])?,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// A connection to a [`TcpEcho`] that sends a block, waits for it, and sends it again.
#[derive(Debug)]
pub struct Stream {
    seen_as: SocketAddr,
    rounds: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<Duration>>,
}

/// How a stream goes on.
#[derive(Debug, Clone, Copy)]
struct Manner {
    bytes: usize,
    pace: Duration,
    timeout: Duration,
}

impl Stream {
    /// Connects, and goes on with blocks of so many bytes until [`Stream::finish`].
    ///
    /// # Errors
    /// If there is no connection within a few seconds.
    pub fn start(from: &Namespace, to: SocketAddr, bytes: usize) -> anyhow::Result<Self> {
        Self::open(from, to, Manner { bytes, pace: Duration::ZERO, timeout: ANSWER_TIMEOUT })
    }

    fn open(from: &Namespace, to: SocketAddr, manner: Manner) -> anyhow::Result<Self> {
        let connect = || from.enter(|| Ok(TcpStream::connect_timeout(&to, CONNECT_TIMEOUT)?));
        let mut stream = eventually(&format!("TCP to {to}"), CONNECTED + guard::slack(), connect)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(manner.timeout))?;
        stream.set_write_timeout(Some(manner.timeout))?;
        let mut greeting = [0; GREETING];
        stream.read_exact(&mut greeting).context("whom the server sees")?;
        let seen_as: SocketAddr =
            String::from_utf8_lossy(&greeting).trim().parse().context("whom the server sees")?;
        // The server's socket takes both families and shows IPv4 as mapped addresses.
        let seen_as = SocketAddr::new(seen_as.ip().to_canonical(), seen_as.port());
        let (rounds, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let thread = {
            let (rounds, is_over) = (Arc::clone(&rounds), Arc::clone(&is_over));
            std::thread::spawn(move || send_until(stream, manner, &rounds, &is_over))
        };
        Ok(Self { seen_as, rounds, is_over, thread })
    }

    /// How the server sees it.
    pub fn seen_as(&self) -> SocketAddr {
        self.seen_as
    }

    /// How many blocks have come back.
    pub fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }

    /// Waits until some more blocks have come back than now.
    ///
    /// # Errors
    /// If that does not happen within `timeout`.
    pub fn wait_on(&self, timeout: Duration) -> anyhow::Result<()> {
        let before = self.rounds();
        eventually("a connection to go on", timeout, || {
            anyhow::ensure!(!self.thread.is_finished(), "the connection is over");
            anyhow::ensure!(self.rounds() > before + 2, "nothing has come back");
            Ok(())
        })
    }

    /// Ends it after one more block; returns the longest time that one took.
    ///
    /// # Errors
    /// Why the connection broke, if it did.
    ///
    /// # Panics
    /// If its thread has panicked.
    pub fn finish(self) -> anyhow::Result<Duration> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("a stream does not panic")
    }
}

fn send_until(
    mut stream: TcpStream,
    manner: Manner,
    rounds: &AtomicU64,
    is_over: &AtomicBool,
) -> anyhow::Result<Duration> {
    let (mut block, mut back) = (traffic::pattern(manner.bytes), vec![0; manner.bytes]);
    let (mut longest, begun) = (Duration::ZERO, Instant::now());
    loop {
        let is_last = is_over.load(Ordering::Relaxed) || interrupt::is_interrupted();
        let (start, round) = (Instant::now(), rounds.load(Ordering::Relaxed));
        if let Some(number) = block.first_chunk_mut() {
            *number = round.to_be_bytes();
        }
        let since = || format!("{:?}, {:?} after the first", start.elapsed(), start.duration_since(begun));
        stream.write_all(&block).with_context(|| format!("sending block {round} for {}", since()))?;
        let answer = stream.read_exact(&mut back);
        answer.with_context(|| format!("waiting for block {round} for {}", since()))?;
        anyhow::ensure!(back == block, "block {round} came back changed");
        longest = longest.max(start.elapsed());
        rounds.fetch_add(1, Ordering::Relaxed);
        if is_last {
            return Ok(longest);
        }
        std::thread::sleep(manner.pace);
    }
}

/// TCP connections from one pod to another that ask small questions all the time, until they are finished.
#[derive(Debug)]
pub struct Conversations {
    streams: Vec<Stream>,
    _server: TcpEcho,
}

/// What became of one connection that survived.
#[derive(Debug, Clone, Copy)]
pub struct Talk {
    /// Questions that were answered.
    pub answers: u64,
    /// The longest time that one took.
    pub longest: Duration,
}

impl Conversations {
    /// Opens `count` connections; the server has said a word to each when this returns.
    ///
    /// # Errors
    /// If one cannot be opened.
    pub fn start(
        from: &Namespace,
        at: &Namespace,
        to: impl Fn(u16) -> SocketAddr,
        count: usize,
    ) -> anyhow::Result<Self> {
        let server = TcpEcho::start(at, 0)?;
        let manner = Manner { bytes: QUESTION, pace: PACE, timeout: TALK_TIMEOUT };
        let open = |_| Stream::open(from, to(server.port()), manner);
        Ok(Self { streams: (0..count).map(open).collect::<anyhow::Result<_>>()?, _server: server })
    }

    /// Ends them.
    ///
    /// # Errors
    /// If one broke, or an answer was wrong.
    ///
    /// # Panics
    /// If a thread has panicked.
    pub fn finish(self) -> anyhow::Result<Vec<Talk>> {
        // One more answer each, of whatever is there now.
        self.streams.iter().for_each(|stream| stream.is_over.store(true, Ordering::Relaxed));
        let talk = |stream: Stream| {
            let (rounds, seen_as) = (Arc::clone(&stream.rounds), stream.seen_as);
            let longest = stream.finish().with_context(|| format!("the connection seen as {seen_as}"))?;
            Ok(Talk { longest, answers: rounds.load(Ordering::Relaxed) })
        };
        self.streams.into_iter().map(talk).collect()
    }
}

//! A TCP connection that goes on: blocks to a server and back, whatever happens to what lies between.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::netns::Namespace;
use crate::traffic;
use crate::wait::eventually;

/// How often a waiting thread looks whether it should end.
const TICK: Duration = Duration::from_millis(100);

/// How long a client waits for an answer: longer than anything that is done to a connection takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes of the line by which the server says whom it sees.
const GREETING: usize = 32;

/// A server that tells each client how it is seen, and sends back what it gets.
#[derive(Debug)]
pub struct Echo {
    port: u16,
    accepted: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    /// Starts on this port of all IPv4 addresses; 0 lets the kernel choose.
    ///
    /// # Errors
    /// If the port cannot be had.
    pub fn start(at: &Namespace, port: u16) -> anyhow::Result<Self> {
        let listener = at.enter(|| TcpListener::bind(("0.0.0.0", port)).context("a TCP socket"))?;
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

impl Drop for Echo {
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

/// A connection to an [`Echo`] that sends a block, waits for it, and sends it again.
#[derive(Debug)]
pub struct Stream {
    seen_as: SocketAddr,
    rounds: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<Duration>>,
}

impl Stream {
    /// Connects, and goes on with blocks of so many bytes until [`Stream::finish`].
    ///
    /// # Errors
    /// If there is no connection within a few seconds.
    pub fn start(from: &Namespace, to: SocketAddr, bytes: usize) -> anyhow::Result<Self> {
        let connect = || from.enter(|| Ok(TcpStream::connect_timeout(&to, Duration::from_secs(5))?));
        let mut stream = eventually(&format!("TCP to {to}"), Duration::from_secs(15), connect)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut greeting = [0; GREETING];
        stream.read_exact(&mut greeting).context("whom the server sees")?;
        let seen_as = String::from_utf8_lossy(&greeting).trim().parse().context("whom the server sees")?;
        let (rounds, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let thread = {
            let (rounds, is_over) = (Arc::clone(&rounds), Arc::clone(&is_over));
            std::thread::spawn(move || send_until(stream, bytes, &rounds, &is_over))
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

    /// Ends it; returns the longest time that a block took.
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
    bytes: usize,
    rounds: &AtomicU64,
    is_over: &AtomicBool,
) -> anyhow::Result<Duration> {
    let (block, mut back) = (traffic::pattern(bytes), vec![0; bytes]);
    let mut longest = Duration::ZERO;
    while !is_over.load(Ordering::Relaxed) {
        let start = Instant::now();
        let round = rounds.load(Ordering::Relaxed);
        stream.write_all(&block).with_context(|| format!("sending block {round}"))?;
        stream.read_exact(&mut back).with_context(|| format!("waiting for block {round}"))?;
        anyhow::ensure!(back == block, "block {round} came back changed");
        longest = longest.max(start.elapsed());
        rounds.fetch_add(1, Ordering::Relaxed);
    }
    Ok(longest)
}

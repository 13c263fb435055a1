//! TCP connections that talk all the time: each says a number and waits until it comes back, then the next one.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::interrupt;
use crate::netns::Namespace;

/// Between an answer and the next question.
const PACE: Duration = Duration::from_millis(5);
/// How often a waiting thread looks whether it should end.
const TICK: Duration = Duration::from_millis(100);
/// How long one answer may take before the connection counts as broken.
const PATIENCE: Duration = Duration::from_secs(20);

/// TCP connections from one pod to another, until they are finished.
#[derive(Debug)]
pub struct Conversations {
    is_over: Arc<AtomicBool>,
    talks: Vec<JoinHandle<anyhow::Result<Talk>>>,
    server: JoinHandle<()>,
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
    /// Opens `count` connections; each has been answered once when this returns.
    ///
    /// # Errors
    /// If one cannot be opened.
    pub fn start(
        from: &Namespace,
        at: &Namespace,
        to: impl Fn(u16) -> SocketAddr,
        count: usize,
    ) -> anyhow::Result<Self> {
        let listener = at.enter(|| TcpListener::bind("[::]:0").context("a TCP socket"))?;
        let to = to(listener.local_addr()?.port());
        listener.set_nonblocking(true)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let server = std::thread::spawn(move || serve(&listener, &over));
        let mut talks = Vec::new();
        for _ in 0..count {
            let mut stream = from
                .enter(|| Ok(TcpStream::connect_timeout(&to, PATIENCE)))?
                .with_context(|| format!("TCP to {to}"))?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            ask(&mut stream, 0)?;
            let over = Arc::clone(&is_over);
            talks.push(std::thread::spawn(move || talk(stream, &over)));
        }
        Ok(Self { is_over, talks, server })
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
        self.is_over.store(true, Ordering::Relaxed);
        let talks: Vec<_> =
            self.talks.into_iter().map(|talk| talk.join().expect("a talk does not panic")).collect();
        self.server.join().expect("the server does not panic");
        talks.into_iter().collect()
    }
}

fn talk(mut stream: TcpStream, is_over: &AtomicBool) -> anyhow::Result<Talk> {
    let mut talk = Talk { answers: 0, longest: Duration::ZERO };
    loop {
        let (is_last, start) =
            (is_over.load(Ordering::Relaxed) || interrupt::is_interrupted(), Instant::now());
        ask(&mut stream, talk.answers + 1)
            .with_context(|| format!("after {} answers, waited {:?}", talk.answers, start.elapsed()))?;
        talk.answers += 1;
        talk.longest = talk.longest.max(start.elapsed());
        if is_last {
            return Ok(talk);
        }
        std::thread::sleep(PACE);
    }
}

fn ask(stream: &mut TcpStream, number: u64) -> anyhow::Result<()> {
    stream.write_all(&number.to_be_bytes()).context("sending over TCP")?;
    let mut answer = [0; 8];
    stream.read_exact(&mut answer).context("the answer over TCP")?;
    anyhow::ensure!(u64::from_be_bytes(answer) == number, "asked {number}, got {answer:?}");
    Ok(())
}

fn serve(listener: &TcpListener, is_over: &Arc<AtomicBool>) {
    let mut clients = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((stream, _)) => clients.push(std::thread::spawn(move || answer(stream))),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
    for client in clients {
        let _ = client.join();
    }
}

/// Sends back what comes, until the client closes.
fn answer(mut stream: TcpStream) {
    let mut bytes = [0; 4096];
    let since = Instant::now();
    let mut heard = since;
    if stream.set_nonblocking(false).is_err()
        || stream.set_nodelay(true).is_err()
        || stream.set_read_timeout(Some(TICK)).is_err()
    {
        return;
    }
    // A client that has broken off without a word is not waited for for ever.
    while heard.elapsed() < 2 * PATIENCE {
        match stream.read(&mut bytes) {
            Ok(0) => return,
            Ok(count) if stream.write_all(&bytes[..count]).is_ok() => heard = Instant::now(),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Ok(_) | Err(_) => return,
        }
    }
}

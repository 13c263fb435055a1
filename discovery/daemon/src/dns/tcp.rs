//! Queries over TCP: a task for each connection around the responder's machine of a stream.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;
use trieste_control::{sockets, tcp};
use trieste_dns::{
    ConnectionLimits, Connections, DropReason, Outcome, Records, Settings, Stream, StreamEnd, StreamTimes,
    Transport, answer,
};

use super::counters::Counters;

/// Connections that wait in the kernel.
const BACKLOG: i32 = 256;
/// Bytes that are read at a time: queries are shorter.
const READ_BYTES: usize = 2_048;
/// How long to wait after a connection could not be taken, such as for want of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// What all connections share.
#[derive(Debug)]
pub struct Server {
    records: Records,
    settings: Arc<Settings>,
    /// Counters of queries over TCP.
    pub counters: Counters,
    times: StreamTimes,
    connections: Mutex<Connections>,
}

impl Server {
    /// Creates a server without connections.
    #[must_use]
    pub fn new(records: Records, settings: Arc<Settings>) -> Self {
        let counters = Counters::new(Transport::Tcp);
        let connections = Mutex::new(Connections::new(ConnectionLimits::default()));
        Self { records, settings, counters, times: StreamTimes::default(), connections }
    }

    /// Returns the number of connections.
    pub fn connections(&self) -> usize {
        self.lock().count()
    }

    fn lock(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place among the connections, until it is dropped.
struct Permit {
    server: Arc<Server>,
    client: IpAddr,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.server.lock().release(self.client);
    }
}

/// Binds an address; all addresses of IPv4 where there is no IPv6. Call it inside a tokio runtime.
///
/// # Errors
/// The kernel's.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    sockets::or_ipv4(address, |address| tcp::listen(address, BACKLOG))
}

/// Takes connections until `stop` says so; those that there are go on until they are idle or `stop`'s sender is gone.
pub async fn serve(listener: TcpListener, server: Arc<Server>, mut stop: watch::Receiver<bool>) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|is_stopping| *is_stopping) => return,
        };
        let Ok((stream, peer)) = accepted else {
            sleep(PAUSE).await;
            continue;
        };
        let admitted = server.lock().admit(peer.ip());
        match admitted {
            Ok(()) => {
                let permit = Permit { server: Arc::clone(&server), client: peer.ip() };
                tokio::spawn(connection(stream, permit, stop.clone()));
            }
            Err(reason) => server.counters.count_drop(reason),
        }
    }
}

/// Answers the messages of a connection until it ends.
async fn connection(mut socket: TcpStream, permit: Permit, mut stop: watch::Receiver<bool>) {
    let server = &permit.server;
    // Answers are written whole.
    let _ = socket.set_nodelay(true);
    let mut stream = Stream::new(server.times, Instant::now());
    let mut buffer = [0; READ_BYTES];
    let (mut reader, mut writer) = socket.split();
    loop {
        let is_busy = server.lock().is_busy();
        let until = stream.poll_timeout(is_busy);
        let is_idle = stream.is_idle();
        tokio::select! {
            read = reader.read(&mut buffer), if stream.wants_input() => match read {
                Ok(0) => stream.handle_end(),
                Ok(count) => stream.handle_input(&buffer[..count], Instant::now()),
                Err(_) => return,
            },
            written = writer.write(stream.output()), if !stream.output().is_empty() => match written {
                Ok(count) => stream.handle_written(count, Instant::now()),
                Err(_) => return,
            },
            () = tokio::time::sleep_until(until.into()) => stream.handle_timeout(is_busy, Instant::now()),
            _ = stop.wait_for(|is_stopping| *is_stopping), if is_idle => return,
        }
        stream.answer(Instant::now(), |query, reply| respond(server, query, reply));
        match stream.end() {
            None => {}
            Some(StreamEnd::TooSlow) => return server.counters.count_drop(DropReason::TooSlow),
            Some(StreamEnd::Quiet | StreamEnd::Unanswerable) if stream.output().is_empty() => return,
            // What was answered before is still sent, within the time that there is for it.
            Some(StreamEnd::Quiet | StreamEnd::Unanswerable) => {
                let rest = writer.write_all(stream.output());
                drop(tokio::time::timeout(server.times.output, rest).await);
                return;
            }
        }
    }
}

fn respond(server: &Server, query: &[u8], reply: &mut Vec<u8>) -> bool {
    let begun = Instant::now();
    let outcome = answer(query, Transport::Tcp, &server.records, &server.settings, reply);
    server.counters.count(outcome);
    server.counters.observe(1, begun.elapsed());
    matches!(outcome, Outcome::Reply(_))
}

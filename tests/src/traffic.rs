//! Sending things between pods: ping, TCP and UDP with the peer's address reported back, iperf3. What goes on for a while,
//! to see what it loses, is a [`crate::flow`].

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;

use crate::daemon::Daemon;
use crate::echo;
use crate::flow::losses;
use crate::guard;
use crate::lab::Lab;
use crate::netns::Namespace;
use crate::wait::eventually;

/// How often a waiting thread looks whether it should end.
const TICK: Duration = Duration::from_millis(100);

/// How many pings of a size are to be answered.
const SIZED: u16 = 5;
/// How long the first answer may take, which there may be none to, and the last.
const FIRST_ECHO: Duration = Duration::from_secs(1);
const LAST_ECHO: Duration = Duration::from_secs(5);

/// What `ping` told.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ping {
    /// Echo requests sent.
    pub sent: u32,
    /// Answers received.
    pub received: u32,
    /// Average round trip in milliseconds, if there was an answer.
    pub average_ms: Option<f64>,
}

/// Asks for a page over HTTP from a namespace; returns the answer with its head.
///
/// # Errors
/// If there is no answer in time, for each of its steps, or another one than 200.
pub fn get(from: &Namespace, to: SocketAddr, path: &str, within: Duration) -> anyhow::Result<String> {
    from.enter(|| {
        let mut stream = TcpStream::connect_timeout(&to, within)?;
        stream.set_read_timeout(Some(within))?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        anyhow::ensure!(answer.starts_with("HTTP/1.1 200"), "{}", answer.lines().next().unwrap_or("nothing"));
        Ok(answer)
    })
}

/// Pings from a namespace, with ping's own extra arguments (size, pattern, DF).
///
/// # Errors
/// If ping cannot run; lost packets are no error.
pub fn ping(from: &Namespace, to: IpAddr, count: u32, extra: &[&str]) -> anyhow::Result<Ping> {
    let told = ping_told(from, to, count, &[&["-q"], extra].concat())?;
    parse_ping(&told).with_context(|| format!("ping {to}: {told}"))
}

/// The same for many: one request more is sent, of which nothing is told, since ping does not wait for the last answer as
/// for those before it.
///
/// # Errors
/// If ping cannot run; lost packets are no error.
pub fn ping_many(from: &Namespace, to: IpAddr, count: u32, extra: &[&str]) -> anyhow::Result<Ping> {
    let told = ping_told(from, to, count + 1, extra)?;
    first_of(&told, count).with_context(|| format!("ping {to}: {told}"))
}

/// What ping prints.
fn ping_told(from: &Namespace, to: IpAddr, count: u32, words: &[&str]) -> anyhow::Result<String> {
    // Once ping has had an answer it waits for the last one no longer than an interval (or two round trips): on a machine
    // that is busy for 50 ms that one would count as lost. A few pings can afford to be slower.
    let interval = if count <= 5 { "0.3" } else { "0.05" };
    let run = from
        .run("ping")
        .args(["-n", "-i", interval, "-W", "1", "-c", &count.to_string()])
        .args(words)
        .arg(to.to_string())
        .timeout(Duration::from_secs(10 + u64::from(count)));
    let output = run.output()?;
    Ok(format!("{}{}", output.stdout.trim(), output.stderr.trim()))
}

/// Sends five echo requests with this many bytes of payload, and waits for their answers; before that, until one is answered. The
/// first of its size may be lost each way, as the answer to it is the path's MTU, of which nodes tell little at once.
///
/// # Errors
/// If an answer is missing; more than one, where other tests run beside this one.
pub fn ping_sized(from: &Namespace, to: IpAddr, bytes: usize) -> anyhow::Result<Ping> {
    for _ in 0..5 {
        if echo::send(from, to, bytes, 1, FIRST_ECHO)?.answered.len() == 1 {
            break;
        }
    }
    let dropped = losses::backlog()?;
    let echoes = echo::send(from, to, bytes, SIZED, LAST_ECHO)?;
    let received = u16::try_from(echoes.answered.len())?;
    // That packets of this size arrive is a fact anywhere; that none is lost is judged where nothing else runs.
    let wanted = if guard::is_alone() { SIZED } else { SIZED - 1 };
    // With several gateways each way there has an MTU to tell, and what it is the answer to is not lost.
    anyhow::ensure!(
        received > 0 && usize::from(received) + echoes.too_long >= usize::from(wanted),
        "ping to {to} with {bytes} bytes: {received} of {SIZED} answered: {echoes:?}\n{} packets of anybody were dropped \
         meanwhile as a processor's queue was full, and where ping ran: {:?}",
        losses::backlog()? - dropped,
        losses::of(from)?
    );
    let all: Duration = echoes.round_trips.iter().sum();
    let average_ms = Some(all.as_secs_f64() * 1e3 / f64::from(received));
    Ok(Ping { sent: SIZED.into(), received: received.into(), average_ms })
}

/// What became of the first `count` requests, by what ping has printed of each answer.
fn first_of(told: &str, count: u32) -> Option<Ping> {
    let received = answered(told).range(..=count).count();
    Some(Ping { sent: count, received: u32::try_from(received).ok()?, ..parse_ping(told)? })
}

/// So many bytes, none like the one before.
pub fn pattern(bytes: usize) -> Vec<u8> {
    (0..=u8::MAX).cycle().take(bytes).collect()
}

/// The numbers of the requests to which ping has printed an answer.
fn answered(told: &str) -> BTreeSet<u32> {
    let answers = told.lines().filter(|line| line.contains(" bytes from "));
    answers.filter_map(|line| line.split_once(": icmp_seq=")?.1.split(' ').next()?.parse().ok()).collect()
}

fn parse_ping(text: &str) -> Option<Ping> {
    let counts = text.lines().find(|line| line.contains("packets transmitted"))?;
    let mut numbers = counts.split(", ").filter_map(|part| part.split(' ').next()?.parse().ok());
    let average = text.lines().find(|line| line.starts_with("rtt")).and_then(|line| {
        let (_, values) = line.split_once("= ")?;
        values.split('/').nth(1)?.parse().ok()
    });
    Some(Ping { sent: numbers.next()?, received: numbers.next()?, average_ms: average })
}

/// Answers TCP and UDP in a namespace, on one port of all addresses, telling each client how it is seen.
#[derive(Debug)]
pub struct Responder {
    port: u16,
    is_over: Arc<AtomicBool>,
    connections: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

/// What the responder told about what it received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// The client's address and port as the server saw them.
    pub seen_as: SocketAddr,
    /// The client's own address and port.
    pub sent_from: SocketAddr,
    /// Bytes received.
    pub bytes: usize,
    /// [`digest`] of them.
    pub digest: u64,
}

impl Responder {
    /// Starts on a port that the kernel chooses.
    ///
    /// # Errors
    /// If no port can be had.
    pub fn start(at: &Namespace) -> anyhow::Result<Self> {
        Self::start_on(at, 0)
    }

    /// Starts on this port; 0 for one that the kernel chooses.
    ///
    /// # Errors
    /// If the port cannot be had.
    pub fn start_on(at: &Namespace, port: u16) -> anyhow::Result<Self> {
        let (tcp, udp) = at.enter(|| {
            let tcp = TcpListener::bind(("::", port)).context("a TCP socket")?;
            let udp = UdpSocket::bind(("::", tcp.local_addr()?.port())).context("a UDP socket")?;
            Ok((tcp, udp))
        })?;
        let port = tcp.local_addr()?.port();
        tcp.set_nonblocking(true)?;
        udp.set_read_timeout(Some(TICK))?;
        let is_over = Arc::new(AtomicBool::new(false));
        let (tcp_over, udp_over) = (Arc::clone(&is_over), Arc::clone(&is_over));
        let connections = Arc::new(AtomicU64::new(0));
        let accepted = Arc::clone(&connections);
        let threads = vec![
            std::thread::spawn(move || accept_until(&tcp, &tcp_over, &accepted)),
            std::thread::spawn(move || echo_until(&udp, &udp_over)),
        ];
        Ok(Self { port, is_over, connections, threads })
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the number of TCP connections so far.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn accept_until(listener: &TcpListener, is_over: &Arc<AtomicBool>, accepted: &AtomicU64) {
    let mut clients = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((stream, peer)) => {
                accepted.fetch_add(1, Ordering::Relaxed);
                let is_over = Arc::clone(is_over);
                clients.push(std::thread::spawn(move || {
                    // A client that goes away in the middle is the client's business.
                    let _ = answer_stream(stream, peer, &is_over);
                }));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
    for client in clients {
        let _ = client.join();
    }
}

fn answer_stream(mut stream: TcpStream, peer: SocketAddr, is_over: &AtomicBool) -> anyhow::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(TICK))?;
    let (mut bytes, mut hash, mut chunk) = (0, Fnv::default(), vec![0; 1 << 16]);
    while !is_over.load(Ordering::Relaxed) {
        match stream.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => {
                bytes += count;
                hash.add(&chunk[..count]);
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error.into()),
        }
    }
    stream.write_all(format!("{peer} {bytes} {}", hash.0).as_bytes())?;
    Ok(())
}

fn echo_until(socket: &UdpSocket, is_over: &AtomicBool) {
    let mut datagram = vec![0; 1 << 16];
    while !is_over.load(Ordering::Relaxed) {
        let Ok((count, peer)) = socket.recv_from(&mut datagram) else { continue };
        let mut hash = Fnv::default();
        hash.add(&datagram[..count]);
        let _ = socket.send_to(format!("{peer} {count} {}", hash.0).as_bytes(), peer);
    }
}

/// Sends bytes over TCP and asks what arrived.
///
/// # Errors
/// If the connection fails or stalls for longer than `timeout`.
pub fn send_tcp(
    from: &Namespace,
    to: SocketAddr,
    bytes: &[u8],
    timeout: Duration,
) -> anyhow::Result<Receipt> {
    let mut stream = from
        .enter(|| Ok(TcpStream::connect_timeout(&to, timeout)))?
        .with_context(|| format!("TCP to {to}"))?;
    stream.set_write_timeout(Some(timeout))?;
    stream.set_read_timeout(Some(timeout))?;
    stream.write_all(bytes).context("sending over TCP")?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).context("the answer over TCP")?;
    Receipt::parse(&answer, stream.local_addr()?)
}

/// Sends one datagram and asks what arrived, again until there is an answer.
///
/// # Errors
/// If there is none within `timeout`.
pub fn send_udp(
    from: &Namespace,
    to: SocketAddr,
    bytes: &[u8],
    timeout: Duration,
) -> anyhow::Result<Receipt> {
    let socket = connected_udp(from, to)?;
    socket.set_read_timeout(Some(Duration::from_millis(500)))?;
    let mut answer = [0; 256];
    let count = eventually(&format!("an answer over UDP from {to}"), timeout, || {
        socket.send(bytes)?;
        Ok(socket.recv(&mut answer)?)
    })?;
    Receipt::parse(&String::from_utf8_lossy(&answer[..count]), socket.local_addr()?)
}

/// Opens a UDP socket in a namespace, which sends to this address alone, and hears nobody else.
///
/// # Errors
/// If there is none, or no route.
pub fn connected_udp(from: &Namespace, to: SocketAddr) -> anyhow::Result<UdpSocket> {
    from.enter(|| {
        let any: SocketAddr = if to.is_ipv4() { "0.0.0.0:0".parse()? } else { "[::]:0".parse()? };
        let socket = UdpSocket::bind(any)?;
        socket.connect(to).with_context(|| format!("UDP to {to}"))?;
        Ok(socket)
    })
}

impl Receipt {
    fn parse(text: &str, sent_from: SocketAddr) -> anyhow::Result<Self> {
        let mut words = text.split(' ');
        let mut word = || words.next().with_context(|| format!("a strange answer: {text:?}"));
        let seen_as: SocketAddr = word()?.parse()?;
        // The responder's socket takes both families and shows IPv4 as mapped addresses.
        let seen_as = SocketAddr::new(seen_as.ip().to_canonical(), seen_as.port());
        Ok(Self { seen_as, sent_from, bytes: word()?.parse()?, digest: word()?.parse()? })
    }

    /// Whether the server saw the client's own address, and exactly these bytes.
    ///
    /// # Errors
    /// What differs.
    pub fn check(&self, bytes: &[u8]) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.seen_as == self.sent_from,
            "the source address was not preserved: sent from {}, seen as {}",
            self.sent_from,
            self.seen_as
        );
        self.check_bytes(bytes)
    }

    /// Whether exactly these bytes arrived, from wherever.
    ///
    /// # Errors
    /// What differs.
    pub fn check_bytes(&self, bytes: &[u8]) -> anyhow::Result<()> {
        anyhow::ensure!(self.bytes == bytes.len(), "{} of {} bytes arrived", self.bytes, bytes.len());
        anyhow::ensure!(self.digest == digest(bytes), "the bytes arrived changed");
        Ok(())
    }
}

/// A fingerprint of bytes (FNV-1a): against accidents, not against malice.
pub fn digest(bytes: &[u8]) -> u64 {
    let mut hash = Fnv::default();
    hash.add(bytes);
    hash.0
}

struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// Measures throughput with iperf3 and returns what the receiver got, in Gbit/s. `extra` goes to the client
/// (`-P 4`, `-R`, `-u -b 0`, `-C cubic`).
///
/// # Errors
/// If iperf3 fails.
pub fn iperf3(
    lab: &Lab,
    from: &Namespace,
    to: (&Namespace, IpAddr),
    seconds: u32,
    extra: &[&str],
) -> anyhow::Result<f64> {
    let (server_namespace, address) = to;
    let server = Daemon::start(
        lab,
        "iperf3-server",
        &server_namespace.run("iperf3").args(["--server", "--one-off", "--forceflush"]),
    )?;
    let listening = |table: &str| {
        std::fs::read_to_string(table)
            .unwrap_or_default()
            .lines()
            .any(|line| line.contains(":1451 ") && line.contains(" 0A "))
    };
    eventually("iperf3 to listen", Duration::from_secs(5), || {
        server.check()?;
        let is_up = server_namespace.enter(|| {
            Ok(listening("/proc/thread-self/net/tcp") || listening("/proc/thread-self/net/tcp6"))
        })?;
        anyhow::ensure!(is_up, "port 5201 is closed");
        Ok(())
    })?;
    let run = from
        .run("iperf3")
        .args(["--json", "--time", &seconds.to_string(), "--client", &address.to_string()])
        .args(extra)
        .timeout(Duration::from_secs(u64::from(seconds) + 20));
    let report = run.output()?;
    let json: serde_json::Value = serde_json::from_str(&report.stdout)
        .with_context(|| format!("iperf3 wrote no JSON: {}{}", report.stdout, report.stderr))?;
    if let Some(error) = json["error"].as_str() {
        anyhow::bail!("iperf3: {error}");
    }
    let end = &json["end"];
    let received =
        end["sum_received"]["bits_per_second"].as_f64().or_else(|| end["sum"]["bits_per_second"].as_f64());
    Ok(received.context("iperf3 reported no throughput")? / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ping_summaries_are_read_with_and_without_answers() {
        let good = "5 packets transmitted, 4 received, 20% packet loss, time 203ms\n\
                    rtt min/avg/max/mdev = 0.512/0.734/1.001/0.2 ms\n";
        let bad = "3 packets transmitted, 0 received, +3 errors, 100% packet loss, time 2040ms\n";

        assert_eq!(parse_ping(good), Some(Ping { sent: 5, received: 4, average_ms: Some(0.734) }));
        assert_eq!(parse_ping(bad), Some(Ping { sent: 3, received: 0, average_ms: None }));
        assert_eq!(parse_ping("ping: connect: Network is unreachable"), None);
        let told = "64 bytes from 10.2.0.9: icmp_seq=1 ttl=62 time=0.7 ms\n\
                    From 10.1.0.1 icmp_seq=2 Frag needed and DF set (mtu = 1415)\n\
                    64 bytes from 10.2.0.9: icmp_seq=30 ttl=62 time=0.7 ms";
        assert_eq!([1, 2, 3, 30].map(|number| answered(told).contains(&number)), [true, false, false, true]);
    }

    #[test]
    fn a_receipt_tells_a_changed_source_from_changed_bytes() {
        let sent_from: SocketAddr = "10.1.1.10:4000".parse().unwrap();
        let text = |address: &str| format!("{address} 4 {}", digest(b"ping"));

        let kept = Receipt::parse(&text("[::ffff:10.1.1.10]:4000"), sent_from).unwrap();
        let changed = Receipt::parse(&text("[::ffff:172.31.1.1]:4000"), sent_from).unwrap();

        kept.check(b"ping").unwrap();
        assert!(kept.check(b"pong").unwrap_err().to_string().contains("changed"));
        assert!(changed.check(b"ping").unwrap_err().to_string().contains("not preserved"));
    }
}

//! The health check's sockets: raw ICMP and ICMPv6 around [`Checker`], which decides everything.
//!
//! ```text
//!   follow(endpoints) ──▶ task: Checker ◀──▶ raw sockets (one per IP version, opened at the first need)
//!   merge(connection) ◀── views (a snapshot, swapped in whole)
//! ```
//!
//! The sockets carry **no mark**: a probe has to take the way that pods' packets take, by the host's routes into the
//! TUN device and through the cable. Marked like the cables' own sockets it would go around the tunnel that it is
//! there to judge. The kernel chooses the source as it routes, which is the CNI address that the route agent's routes
//! name; a peer may answer to whatever source it sees.
//!
//! They are **bound to the TUN device**. Before the route agent has made its routes, and when it has taken them away,
//! the way that is left is the default route: a probe would leave in clear, and where the network plugin masquerades
//! it, the kernel's memory of that one packet gives all later ones the wrong source (measured §5). It also keeps
//! answers out that did not come through a tunnel.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use rand_core::OsRng;
use socket2::{Domain, Protocol, SockFilter, SockRef, Socket, Type};
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use trieste_control::admin::{HealthStatus, Severity};
use trieste_control::api::{Connection, EndpointSpec};
use trieste_control::conditions::Conditions;
use trieste_control::health::{self, Checker, EchoReply, PingerConfig, PingerStatus, PingerView, Probe};

use crate::config::{Config, HealthCheck};

/// Name of the condition that probes cannot be sent at all; its subject is the IP version.
pub const NOT_PROBING: &str = "CannotProbe";
/// Name of the condition that there are more peers than are pinged.
pub const TOO_MANY: &str = "TooManyToProbe";

/// Ours: statistics are shown this late at most; a verdict is shown at once.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(200);
/// Ours: packets read at once, before other things get their turn.
const READ_BUDGET: usize = 64;
/// Longest IPv4 header and our message are 92 bytes; what is longer is no answer to us, and may be cut.
const BUFFER_BYTES: usize = 128;

type Views = BTreeMap<String, PingerView>;

/// What probing needs to know.
#[derive(Debug, Clone)]
pub struct ProbeOptions {
    /// Our cluster, which is not pinged.
    pub cluster_id: String,
    /// How often, and how much silence is too much.
    pub pinger: PingerConfig,
    /// The source of probes, one per IP version; none means that the kernel chooses. It must be an address of this
    /// node, and answers to others are not heard.
    pub sources: Vec<IpAddr>,
    /// The only device that probes leave and answers come by; `None` for any.
    pub device: Option<String>,
}

/// Pings the peers. Dropping it ends that.
#[derive(Debug)]
pub struct Probes {
    endpoints: watch::Sender<Vec<EndpointSpec>>,
    views: Arc<ArcSwap<Views>>,
    task: JoinHandle<()>,
}

impl Probes {
    /// Starts as configured, on the current tokio runtime. Never fails: what is missing is a condition.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn start(config: &Config, check: HealthCheck, conditions: Conditions) -> Self {
        let options = ProbeOptions {
            cluster_id: config.cluster_id.clone(),
            pinger: PingerConfig::new(check.interval, check.max_loss),
            // The address that peers ping need not be the node's own (Globalnet's is not): the kernel chooses.
            sources: Vec::new(),
            device: Some(config.tun_name.clone()),
        };
        Self::spawn(options, conditions)
    }

    /// Starts, on the current tokio runtime.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn spawn(options: ProbeOptions, conditions: Conditions) -> Self {
        let (endpoints, receiver) = watch::channel(Vec::new());
        let views: Arc<ArcSwap<Views>> = Arc::default();
        let unix_nanos = i64::try_from(Timestamp::now().as_nanosecond()).unwrap_or_default();
        let checker = Checker::new(options.pinger, options.cluster_id, OsRng, Instant::now(), unix_nanos);
        let prober = Prober {
            checker,
            sockets: Sockets {
                sources: options.sources,
                device: options.device,
                conditions: conditions.clone(),
                v4: None,
                v6: None,
            },
            conditions,
            views: Arc::clone(&views),
            published: None,
            is_stale: false,
        };
        Self { endpoints, views, task: tokio::spawn(prober.run(receiver)) }
    }

    /// Pings these endpoints from now on, and no others.
    pub fn follow(&self, endpoints: Vec<EndpointSpec>) {
        self.endpoints.send_if_modified(|known| {
            let is_news = *known != endpoints;
            if is_news {
                *known = endpoints;
            }
            is_news
        });
    }

    /// What is known of every pinged peer, by cable name.
    #[must_use]
    pub fn views(&self) -> Arc<BTreeMap<String, PingerView>> {
        self.views.load_full()
    }

    /// What is known of one peer, for people; `None` where nobody pings it.
    #[must_use]
    pub fn status(&self, cable_name: &str) -> Option<HealthStatus> {
        self.views.load().get(cable_name).map(HealthStatus::from)
    }

    /// Merges what is known of a connection's peer into it, by the rules of [`health::merge`].
    pub fn merge(&self, connection: &mut Connection) {
        let views = self.views.load();
        health::merge(connection, views.get(&connection.endpoint.cable_name));
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The task.
struct Prober {
    checker: Checker,
    sockets: Sockets,
    conditions: Conditions,
    views: Arc<ArcSwap<Views>>,
    published: Option<Instant>,
    is_stale: bool,
}

impl Prober {
    async fn run(mut self, mut endpoints: watch::Receiver<Vec<EndpointSpec>>) {
        loop {
            let wake = self.next_wake();
            tokio::select! {
                // Answers before timers: after a stall they are here already, and must count first.
                biased;
                replies = self.sockets.recv() => {
                    let now = Instant::now();
                    replies.iter().for_each(|reply| self.checker.handle_reply(reply, now));
                    self.is_stale |= !replies.is_empty();
                }
                changed = endpoints.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.follow(&endpoints.borrow_and_update());
                }
                () = until(wake) => {}
            }
            self.checker.handle_timeout(Instant::now());
            self.send();
            self.publish();
        }
    }

    fn follow(&mut self, endpoints: &[EndpointSpec]) {
        self.checker.handle_endpoints(endpoints, Instant::now());
        let left_out = self.checker.left_out();
        let message = (left_out > 0).then(|| {
            format!("{left_out} remote endpoints are not pinged: there are more than this gateway probes")
        });
        self.conditions.put(TOO_MANY, Severity::Warning, "", message);
        self.is_stale = true;
    }

    fn send(&mut self) {
        while let Some(probe) = self.checker.poll_transmit() {
            self.is_stale = true;
            if let Err(reason) = self.sockets.send(&probe) {
                self.checker.handle_send_failure(&probe, &reason, Instant::now());
            }
        }
    }

    fn publish(&mut self) {
        let mut is_verdict = false;
        while let Some(event) = self.checker.poll_event() {
            is_verdict = true;
            let (cable, view) = (event.cable_name.as_str(), &event.view);
            match view.status {
                PingerStatus::Connected => {
                    tracing::info!(cable, ip = %view.ip, "the health check is answered")
                }
                PingerStatus::Error | PingerStatus::Unknown => {
                    tracing::warn!(cable, status = view.status.as_str(), "{}", view.message);
                }
            }
        }
        let now = Instant::now();
        if is_verdict || (self.is_stale && self.publish_at().is_none_or(|at| at <= now)) {
            self.views.store(Arc::new(self.checker.views()));
            self.published = Some(now);
            self.is_stale = false;
        }
    }

    fn publish_at(&self) -> Option<Instant> {
        self.published.map(|published| published + PUBLISH_INTERVAL)
    }

    fn next_wake(&self) -> Option<Instant> {
        let publish_at = if self.is_stale { self.publish_at() } else { None };
        [self.checker.poll_timeout(), publish_at].into_iter().flatten().min()
    }
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}

/// The two sockets, opened when first needed and again after they failed. They are raw sockets in the type of another
/// kind of datagram socket: the runtime has none for them, and calls of the same names do the same with both.
struct Sockets {
    sources: Vec<IpAddr>,
    device: Option<String>,
    conditions: Conditions,
    v4: Option<UdpSocket>,
    v6: Option<UdpSocket>,
}

impl Sockets {
    /// Sends a probe, or says why that is not possible.
    fn send(&mut self, probe: &Probe) -> Result<(), String> {
        let is_v4 = probe.to.is_ipv4();
        let socket = self.socket(is_v4)?;
        let message = if is_v4 { probe.request.emit_v4() } else { probe.request.emit_v6() };
        // Not through the runtime, which lets nothing be sent on a socket of which it has not heard yet.
        match SockRef::from(socket).send_to(&message, &SocketAddr::new(probe.to, 0).into()) {
            Ok(_) => Ok(()),
            // A full queue has lost this packet, and says nothing about the way.
            Err(error) if is_full(&error) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Waits for packets, and gives the echo replies among them.
    async fn recv(&mut self) -> Vec<EchoReply> {
        let (outcome, slot) = tokio::select! {
            outcome = readable(self.v4.as_ref(), health::parse_v4) => (outcome, &mut self.v4),
            outcome = readable(self.v6.as_ref(), health::parse_v6) => (outcome, &mut self.v6),
        };
        match outcome {
            Ok(replies) => replies,
            Err(error) => {
                // Opened again with the next probe.
                tracing::debug!(%error, "a probing socket failed: {error}");
                *slot = None;
                Vec::new()
            }
        }
    }

    fn socket(&mut self, is_v4: bool) -> Result<&UdpSocket, String> {
        let (slot, version) = if is_v4 { (&mut self.v4, "IPv4") } else { (&mut self.v6, "IPv6") };
        if slot.is_none() {
            let source = self.sources.iter().find(|source| source.is_ipv4() == is_v4).copied();
            let opened = open(is_v4, source, self.device.as_deref()).map_err(|error| explain(&error, source));
            let problem = opened.as_ref().err().map(|problem| {
                format!(
                    "remote gateways cannot be pinged over {version}: {problem}; until then connections are \
                     judged by their cables alone"
                )
            });
            self.conditions.put(NOT_PROBING, Severity::Warning, version, problem);
            *slot = Some(opened?);
        }
        slot.as_ref().ok_or_else(|| "no socket".to_owned())
    }
}

/// Reads what is there once something is.
async fn readable(
    socket: Option<&UdpSocket>,
    parse: fn(&[u8]) -> Option<EchoReply>,
) -> io::Result<Vec<EchoReply>> {
    let Some(socket) = socket else { return std::future::pending().await };
    socket.readable().await?;
    let mut replies = Vec::new();
    let mut buffer = [0; BUFFER_BYTES];
    for _ in 0..READ_BUDGET {
        match socket.try_recv(&mut buffer) {
            Ok(length) => replies.extend(parse(&buffer[..length])),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(replies)
}

fn open(is_v4: bool, source: Option<IpAddr>, device: Option<&str>) -> io::Result<UdpSocket> {
    let (domain, protocol) =
        if is_v4 { (Domain::IPV4, Protocol::ICMPV4) } else { (Domain::IPV6, Protocol::ICMPV6) };
    let socket = Socket::new(domain, Type::RAW.nonblocking().cloexec(), Some(protocol))?;
    let filter: &[SockFilter] = if is_v4 { &ONLY_REPLIES_V4 } else { &ONLY_REPLIES_V6 };
    if let Err(error) = socket.attach_filter(filter) {
        // Every ICMP packet of the host then comes by; the parser's first look at it is cheap.
        tracing::debug!(%error, "the probing socket has no filter: {error}");
    }
    if let Some(device) = device {
        socket.bind_device(Some(device.as_bytes()))?;
    }
    if let Some(source) = source {
        socket.bind(&SocketAddr::new(source, 0).into())?;
    }
    UdpSocket::from_std(OwnedFd::from(socket).into())
}

fn explain(error: &io::Error, source: Option<IpAddr>) -> String {
    match (error.kind(), source) {
        (ErrorKind::PermissionDenied, _) => format!("{error} (grant the capability NET_RAW)"),
        (ErrorKind::AddrNotAvailable, Some(source)) => format!("{error}: this node has no address {source}"),
        _ => error.to_string(),
    }
}

/// `ENOBUFS`, for which the standard library has no kind, and what a full socket buffer says.
fn is_full(error: &io::Error) -> bool {
    const ENOBUFS: i32 = 105;
    error.kind() == ErrorKind::WouldBlock || error.raw_os_error() == Some(ENOBUFS)
}

// Classic BPF, as in linux/bpf_common.h. A raw socket sees a copy of every ICMP packet of the host; these let echo
// replies through only.
const LOAD_HEADER_LENGTH: u16 = 0xb1; // X = 4 * (byte[k] & 15)
const LOAD_BYTE_AFTER_X: u16 = 0x50; // A = byte[X + k]
const LOAD_BYTE: u16 = 0x30; // A = byte[k]
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;

/// IPv4's raw sockets see the IP header; type 0 is the echo reply.
const ONLY_REPLIES_V4: [SockFilter; 5] = [
    SockFilter::new(LOAD_HEADER_LENGTH, 0, 0, 0),
    SockFilter::new(LOAD_BYTE_AFTER_X, 0, 0, 0),
    SockFilter::new(JUMP_IF_EQUAL, 0, 1, 0),
    SockFilter::new(RETURN, 0, 0, u32::MAX),
    SockFilter::new(RETURN, 0, 0, 0),
];

/// IPv6's do not; type 129.
const ONLY_REPLIES_V6: [SockFilter; 4] = [
    SockFilter::new(LOAD_BYTE, 0, 0, 0),
    SockFilter::new(JUMP_IF_EQUAL, 0, 1, 129),
    SockFilter::new(RETURN, 0, 0, u32::MAX),
    SockFilter::new(RETURN, 0, 0, 0),
];

//! Connections by new lookups, one after the other, while the cluster that they lead to is cut off.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use trieste_discovery::ask::message::Question;
use trieste_tests::clusters::{Cluster, Pod, PodShape};
use trieste_tests::guard;
use trieste_tests::netns::Namespace;
use trieste_tests::traffic;
use trieste_tests::wait::eventually;

use super::{NAME, set_link};
use crate::shared::{SOON, Two};

/// How long after a cluster is cut off a connection by a new lookup may still fail.
const FOLLOWED: Duration = Duration::from_millis(1500);
/// How long nobody may fail from then on.
const WATCHED: Duration = Duration::from_secs(3);
/// Between two lookups.
const PAUSE: Duration = Duration::from_millis(20);
/// The longest that a client waits for an answer, and for a connection.
const TIMEOUT: Duration = Duration::from_secs(1);

/// East serves the name as well, and comes second: while west is cut off, all new connections are east's.
pub(super) fn follow(two: &Two, asker: &Pod, virtual_ips: &[IpAddr]) {
    let (east, west) = (two.east(), two.west());
    let pod = east.start_pod(PodShape::on(east.node(1), "server")).unwrap();
    let own = east.start_service("web", "server").unwrap();
    // The oldest export's routing counts.
    annotate(west, "trieste.io/routing=failover=west,east");
    two.set.export(east, "export", "web").unwrap();
    asker.wait_resolved(&format!("east.{NAME}"), &own, SOON).unwrap();
    asker.wait_resolved(NAME, virtual_ips, SOON).unwrap();

    let client = Client::new(east, asker).unwrap();
    let client = Connecting::start(client);
    std::thread::sleep(Duration::from_secs(1));
    set_link(two, "down");
    let cut = Instant::now();
    // Beside other tests it may take longer; that nobody fails from then on is a fact anywhere.
    let mut another = Client::new(east, asker).unwrap();
    eventually("connections to the own cluster", SOON, || {
        let to = another.connect()?;
        ensure!(own.contains(&to), "it is {to}");
        Ok(())
    })
    .unwrap();
    let since = cut.elapsed();
    std::thread::sleep(FOLLOWED.saturating_sub(since) + WATCHED);
    let attempts = client.stop();
    let (before, after): (Vec<_>, Vec<_>) = attempts.into_iter().partition(|(begun, _)| *begun < cut);
    assert!(before.len() > 5, "{} connections before", before.len());
    // The last may have been under way.
    for (_, outcome) in &before[..before.len() - 1] {
        assert!(virtual_ips.contains(outcome.as_ref().unwrap()), "{outcome:?}");
    }
    let failed = after.iter().filter(|(_, outcome)| outcome.is_err());
    let last = failed.clone().map(|(begun, _)| begun.duration_since(cut)).max().unwrap_or_default();
    let longest = if guard::is_alone() { FOLLOWED } else { since + FOLLOWED };
    assert!(last < longest, "one failed that began {last:?} after: {:?}", after.last());
    two.say(&format!(
        "{} connections by new lookups while west was cut off: {} failed, the last {last:.1?} after",
        after.len(),
        failed.count()
    ));

    set_link(two, "up");
    asker.wait_resolved(NAME, virtual_ips, SOON).unwrap();
    annotate(west, "trieste.io/routing-");
    two.set.export(east, "unexport", "web").unwrap();
    east.kubectl(&["delete", "pod", "server", "--grace-period=1"]).unwrap().success().unwrap();
    east.kubectl(&["delete", "service", "web"]).unwrap().success().unwrap();
    drop(pod);
    asker.wait_resolved(NAME, virtual_ips, SOON).unwrap();
    two.say("and back");
}

fn annotate(cluster: &Cluster, annotation: &str) {
    let words = ["annotate", "serviceexport", "web", "-n", "default", annotation];
    cluster.kubectl(&words).unwrap().success().unwrap();
}

/// When a connection began, and where it led.
type Attempt = (Instant, anyhow::Result<IpAddr>);

/// A client that connects all the time.
struct Connecting {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<Attempt>>>,
}

impl Connecting {
    fn start(mut client: Client) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            let mut attempts = Vec::new();
            while !over.load(Ordering::Relaxed) {
                attempts.push((Instant::now(), client.connect()));
                std::thread::sleep(PAUSE);
            }
            attempts
        });
        Self { is_over, thread: Some(thread) }
    }

    fn stop(mut self) -> Vec<Attempt> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().map(|thread| thread.join().unwrap()).unwrap_or_default()
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// Asks its cluster's name server anew for each connection.
struct Client {
    netns: Namespace,
    socket: UdpSocket,
    question: Question,
    id: u16,
}

impl Client {
    fn new(cluster: &Cluster, pod: &Pod) -> anyhow::Result<Self> {
        let server = SocketAddr::new(cluster.name_server(), 53);
        let socket = pod.netns().enter(|| {
            let any = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let socket = UdpSocket::bind(any)?;
            socket.connect(server)?;
            socket.set_read_timeout(Some(TIMEOUT))?;
            Ok(socket)
        })?;
        Ok(Self { netns: pod.netns().clone(), socket, question: Question::new(NAME, "A")?, id: 0 })
    }

    /// Returns the address that the name led to.
    fn connect(&mut self) -> anyhow::Result<IpAddr> {
        self.id = self.id.wrapping_add(1);
        self.socket.send(&self.question.query(self.id))?;
        let mut answer = [0; 4096];
        let reply = loop {
            let bytes = self.socket.recv(&mut answer).context("the name server")?;
            // Others are late replies to earlier questions.
            if let Ok(reply) = self.question.read(self.id, &answer[..bytes]) {
                break reply;
            }
        };
        let ip = reply.addresses().next().with_context(|| format!("no address: {reply:?}"))?;
        traffic::send_tcp(&self.netns, SocketAddr::new(ip, 80), b"?", TIMEOUT)?;
        Ok(ip)
    }
}

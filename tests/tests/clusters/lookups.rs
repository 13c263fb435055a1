//! Connections by new lookups, one after the other, while a cluster that they lead to is cut off.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use trieste_discovery::ask::message::Question;
use trieste_tests::clusters::{Cluster, Clusters, Node, Pod};
use trieste_tests::guard;
use trieste_tests::netns::Namespace;
use trieste_tests::traffic;
use trieste_tests::wait::eventually;

use crate::shared::SOON;
use crate::sides::SERVICE_PORT;

/// How long after a cluster is cut off a connection by a new lookup may still fail.
const FOLLOWED: Duration = Duration::from_millis(1500);
/// How long nobody may fail from then on.
const WATCHED: Duration = Duration::from_secs(3);
/// So many connections in a row that lead to none but clusters that are left are enough to say that the other one is out; and more
/// than these have to be made before.
const IN_A_ROW: usize = 6;
/// Between two lookups.
const PAUSE: Duration = Duration::from_millis(20);
/// The longest that a client waits for an answer, and for a connection.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Connects from a pod to a name all the time, and after a few connections takes the link of a gateway's node away. Before, all lead to one
/// of the first addresses; 1.5 s later, or beside other tests once a few have, to one of the others, and none fails. Returns how
/// many have, meanwhile.
pub(crate) fn while_cut_off(
    (from, pod, name): (&Cluster, &Pod, &str),
    [before, after]: [&[IpAddr]; 2],
    (clusters, gateway): (&Clusters, &Node),
) -> String {
    let connecting = Connecting::start(Client::new(from, pod, name).unwrap());
    eventually("connections before", SOON, || connecting.ensure_made(IN_A_ROW + 1)).unwrap();
    set_link(clusters, gateway, "down");
    let cut = Instant::now();
    let mut another = Client::new(from, pod, name).unwrap();
    eventually("connections to where it is still served", SOON, || {
        for _ in 0..IN_A_ROW {
            let to = another.connect()?;
            ensure!(after.contains(&to), "it is {to}");
        }
        Ok(())
    })
    .unwrap();
    let since = cut.elapsed();
    std::thread::sleep(FOLLOWED.saturating_sub(since) + WATCHED);
    let attempts = connecting.stop();
    let (earlier, later): (Vec<_>, Vec<_>) = attempts.into_iter().partition(|(begun, _)| *begun < cut);
    assert!(earlier.len() > IN_A_ROW, "{} connections before", earlier.len());
    // The last may have been under way.
    for (_, outcome) in &earlier[..earlier.len() - 1] {
        assert!(before.contains(outcome.as_ref().unwrap()), "{outcome:?}");
    }
    let is_well = |outcome: &anyhow::Result<IpAddr>| outcome.as_ref().is_ok_and(|to| after.contains(to));
    let failed: Vec<_> = later.iter().filter(|(_, outcome)| !is_well(outcome)).collect();
    let last = failed.iter().map(|(begun, _)| begun.duration_since(cut)).max().unwrap_or_default();
    let longest = if guard::is_alone() { FOLLOWED } else { since + FOLLOWED };
    assert!(last < longest, "one failed that began {last:?} after: {:?}", failed.last());
    let (all, failed) = (later.len(), failed.len());
    format!(
        "{all} connections by new lookups while it was cut off: {failed} failed, the last {last:.1?} after"
    )
}

/// Takes the link of a node away, or gives it back.
pub(crate) fn set_link(clusters: &Clusters, node: &Node, state: &str) {
    let port = node.port();
    let run = clusters.fabric().run("ip").args(["link", "set", port.as_str(), state]);
    run.output().unwrap().success().unwrap();
}

/// When a connection began, and where it led.
type Attempt = (Instant, anyhow::Result<IpAddr>);

/// A client that connects all the time.
struct Connecting {
    is_over: Arc<AtomicBool>,
    made: Arc<AtomicUsize>,
    thread: Option<JoinHandle<Vec<Attempt>>>,
}

impl Connecting {
    fn start(mut client: Client) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let made = Arc::new(AtomicUsize::new(0));
        let (over, count) = (Arc::clone(&is_over), Arc::clone(&made));
        let thread = std::thread::spawn(move || {
            let mut attempts = Vec::new();
            while !over.load(Ordering::Relaxed) {
                attempts.push((Instant::now(), client.connect()));
                count.store(attempts.len(), Ordering::Relaxed);
                std::thread::sleep(PAUSE);
            }
            attempts
        });
        Self { is_over, made, thread: Some(thread) }
    }

    fn ensure_made(&self, wanted: usize) -> anyhow::Result<()> {
        let made = self.made.load(Ordering::Relaxed);
        ensure!(made >= wanted, "there were {made}");
        Ok(())
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
    fn new(cluster: &Cluster, pod: &Pod, name: &str) -> anyhow::Result<Self> {
        let server = SocketAddr::new(cluster.name_server(), 53);
        let question = Question::new(name, if server.is_ipv4() { "A" } else { "AAAA" })?;
        let socket = traffic::connected_udp(pod.netns(), server)?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        Ok(Self { netns: pod.netns().clone(), socket, question, id: 0 })
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
        traffic::send_tcp(&self.netns, SocketAddr::new(ip, SERVICE_PORT), b"?", TIMEOUT)?;
        Ok(ip)
    }
}

//! Clusters that tests share. There is one such set at a time: it comes up for the first test that asks for it and goes
//! after the last of its tests that were chosen on the command line, or when a test needs clusters of another shape.
//!
//! A test that fails takes the set with it, since nobody knows what it has left: the next one finds a new set. Where a
//! set does not come up, the other tests of its shape say so and do not try again.

use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use trieste_tests::clusters::{Cluster, ClusterSet, ClusterShape, MEMBER, Node, ProxyMode};
use trieste_tests::globalnet::Site;
use trieste_tests::guard::{Turn, clusters_test};
use trieste_tests::interrupt;
use trieste_tests::lab::Lab;
use trieste_tests::topology::Families;

/// How long anything may take until it is well, beside other tests.
pub(crate) const SOON: Duration = Duration::from_secs(120);
/// Flows that are gone through at the same time: they mostly wait for answers.
pub(crate) const AT_ONCE: usize = 5;
/// What distributions set that are careful: every device's filter is strict, those of devices to come too. The node's own
/// value, which none could go below, is 0: with another one nobody hears of a path's MTU, as the gateway says.
const STRICT: &str = "cd /proc/sys/net/ipv4/conf; for filter in */rp_filter; do echo 1 > $filter; done; echo 0 > all/rp_filter";
/// Connections between the same two addresses take different ways: by default kernels look at addresses alone.
const BY_PORTS: &str = "for ip in ipv4 ipv6; do echo 1 > /proc/sys/net/$ip/fib_multipath_hash_policy; done";

static PLACE: Mutex<Place> = Mutex::new(Place { up: None, done: BTreeSet::new(), failed: None });

/// What clusters are like, and whose they are.
pub(crate) struct Shape {
    name: &'static str,
    clusters: fn() -> [ClusterShape; 2],
    has_globalnet: bool,
    tests: &'static [&'static str],
}

/// East has kube-proxy on iptables, west on nftables; both dual-stack.
pub(crate) static PLAIN: Shape = Shape {
    name: "plain",
    clusters: || {
        let east = ClusterShape::new("east", 1).with_nodes(3).with_proxy(ProxyMode::Iptables);
        [east, ClusterShape::new("west", 2).with_nodes(3)]
    },
    has_globalnet: false,
    tests: super::plain::TESTS,
};

/// The same with one network for both, IPv4 alone, and Globalnet.
pub(crate) static GLOBALNET: Shape = Shape {
    name: "globalnet",
    clusters: || {
        let shape = |name: &str| ClusterShape::new(name, 1).with_nodes(3).with_families(Families::V4);
        [shape("east").with_proxy(ProxyMode::Iptables), shape("west")]
    },
    has_globalnet: true,
    tests: super::globalnet::TESTS,
};

#[derive(Default)]
struct Place {
    up: Option<Up>,
    /// Tests that are over.
    done: BTreeSet<&'static str>,
    /// A shape that did not come up, and the test that saw it.
    failed: Option<(&'static str, &'static str)>,
}

/// Clusters that are up; the machine's turn is theirs.
struct Up {
    shape: &'static Shape,
    two: Two,
    _turn: Turn,
}

/// Two clusters, `east` and `west`. Gateways are on nodes with their label; the first node of each is a worker, and has
/// the control plane.
pub(crate) struct Two {
    pub(crate) set: ClusterSet,
    pub(crate) lab: Lab,
    shape: &'static Shape,
    is_joined: bool,
    /// Whether a test has had them.
    is_used: bool,
    /// Who asks and answers with Globalnet, once somebody has needed them.
    pub(crate) sites: Option<[Site; 2]>,
    clock: Instant,
}

/// The right to work with shared clusters until it is dropped.
pub(crate) struct Lease {
    place: MutexGuard<'static, Place>,
    shape: &'static Shape,
    name: &'static str,
}

/// The right to build clusters of one's own.
pub(crate) struct Own {
    _turn: Turn,
    _place: MutexGuard<'static, Place>,
}

/// Waits for clusters of this shape, which come up if they are not. `None` if the test has to be skipped.
///
/// # Panics
/// If they do not come up.
pub(crate) fn lease(shape: &'static Shape, name: &'static str) -> Option<Lease> {
    take(shape, name, |_| true)
}

/// The same with nothing of ours running: clusters that are in a set make room for others.
///
/// # Panics
/// If they do not come up.
pub(crate) fn bare(shape: &'static Shape, name: &'static str) -> Option<Lease> {
    let mut lease = take(shape, name, |two| !two.is_joined)?;
    lease.tidy();
    Some(lease)
}

/// The same where no test has been before: kube-proxy, for one, forgets what is gone in its own time.
///
/// # Panics
/// If they do not come up.
pub(crate) fn fresh(shape: &'static Shape, name: &'static str) -> Option<Lease> {
    take(shape, name, |two| !two.is_used)
}

fn take(shape: &'static Shape, name: &'static str, is_fit: fn(&Two) -> bool) -> Option<Lease> {
    assert!(shape.tests.contains(&name), "{name} is not in the list of tests of its shape");
    let mut lease = Lease { place: place(), shape, name };
    lease.place.up.take_if(|up| up.shape.name != shape.name || !is_fit(&up.two));
    if lease.place.up.is_none() {
        if let Some((_, first)) = lease.place.failed.filter(|(failed, _)| *failed == shape.name) {
            panic!("its clusters did not come up: {first} says why");
        }
        let turn = clusters_test(name)?;
        lease.place.failed = Some((shape.name, name));
        let lab = Lab::new().expect("a lab can be made");
        let two = Two::up(shape, &lab).unwrap_or_else(|error| panic!("{error:?}"));
        lease.place.failed = None;
        lease.place.up = Some(Up { shape, two, _turn: turn });
    }
    lease.is_used = true;
    Some(lease)
}

/// Waits until there are no clusters of this program. `None` if the test has to be skipped.
pub(crate) fn own(name: &str) -> Option<Own> {
    let mut place = place();
    place.up = None;
    Some(Own { _turn: clusters_test(name)?, _place: place })
}

fn place() -> MutexGuard<'static, Place> {
    PLACE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Deref for Lease {
    type Target = Two;

    fn deref(&self) -> &Two {
        &self.place.up.as_ref().expect("a lease is given when they are up").two
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut Two {
        &mut self.place.up.as_mut().expect("a lease is given when they are up").two
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.place.done.insert(self.name);
        let is_over = |test: &&str| self.place.done.contains(test) || !is_chosen(test);
        if std::thread::panicking() || interrupt::is_interrupted() || self.shape.tests.iter().all(is_over) {
            // A failing test's clusters show the ends of their logs as they go.
            self.place.up = None;
        }
    }
}

/// Whether this run has a test, by the filters of the command line as Rust's harness understands them.
fn is_chosen(test: &str) -> bool {
    is_chosen_by(test, std::env::args().skip(1))
}

fn is_chosen_by(test: &str, words: impl Iterator<Item = String>) -> bool {
    let (mut filters, mut skipped, mut is_exact) = (Vec::new(), Vec::new(), false);
    let mut words = words;
    while let Some(word) = words.next() {
        match word.as_str() {
            "--exact" => is_exact = true,
            "--skip" => skipped.extend(words.next()),
            "--test-threads" | "--color" | "--format" | "--logfile" | "--shuffle-seed" | "-Z" => {
                drop(words.next())
            }
            other => match other.strip_prefix("--skip=") {
                Some(filter) => skipped.push(filter.to_owned()),
                None if other.starts_with('-') => {}
                None => filters.push(word),
            },
        }
    }
    let is_meant = |filter: &String| if is_exact { test == filter } else { test.contains(filter.as_str()) };
    (filters.is_empty() || filters.iter().any(is_meant)) && !skipped.iter().any(is_meant)
}

impl Two {
    /// Clusters with our image, and nothing of ours running.
    fn up(shape: &'static Shape, lab: &Lab) -> anyhow::Result<Self> {
        let clock = Instant::now();
        let set = ClusterSet::bare(lab, &(shape.clusters)())?;
        for node in set.clusters.all().iter().flat_map(Cluster::nodes) {
            node.exec(&["sh", "-e", "-c", &format!("{STRICT}; {BY_PORTS}")])?;
        }
        let two = Self { set, lab: lab.clone(), shape, is_joined: false, is_used: false, sites: None, clock };
        two.say("up");
        Ok(two)
    }

    /// Notes a step, with the seconds since the clusters were begun.
    pub(crate) fn say(&self, what: &str) {
        eprintln!("{:6.1} s  {what}", self.clock.elapsed().as_secs_f32());
    }

    pub(crate) fn east(&self) -> &Cluster {
        self.set.clusters.cluster("east")
    }

    pub(crate) fn west(&self) -> &Cluster {
        self.set.clusters.cluster("west")
    }

    /// Joins both clusters if they are not, with one gateway each, on the second node; what other tests have left of
    /// their own is taken away. Returns what the joins said if there were any.
    pub(crate) fn joined(&mut self) -> Vec<String> {
        self.tidy();
        let mut told = Vec::new();
        if !self.is_joined {
            self.label(&[2]);
            let set = &self.set;
            let deployed =
                if self.shape.has_globalnet { set.deploy_globalnet_broker() } else { set.deploy_broker() };
            deployed.unwrap();
            told = self.in_both(|cluster| self.set.join(cluster).unwrap());
            self.is_joined = true;
        }
        self.gateways(&[2]);
        self.say("joined");
        told
    }

    /// Has gateways on these nodes of both clusters and on no other, and waits until they carry traffic.
    pub(crate) fn gateways(&self, numbers: &[usize]) {
        self.label(numbers);
        self.in_both(|cluster| {
            for daemon in ["submariner-gateway", "submariner-routeagent"] {
                cluster.wait_rollout(MEMBER, &format!("daemonset/{daemon}")).unwrap();
            }
            cluster.wait("the gateways to be ready", SOON, || cluster.gateways_carry()).unwrap();
        });
    }

    fn label(&self, numbers: &[usize]) {
        for cluster in self.set.clusters.all() {
            for (number, node) in (1..).zip(cluster.nodes()) {
                cluster.label_gateway(node, numbers.contains(&number)).unwrap();
            }
        }
    }

    /// Deletes what tests make in the namespace `default`.
    fn tidy(&mut self) {
        self.sites = None;
        self.in_both(|cluster| {
            let kinds = ["delete", "daemonsets,pods,services", "--namespace", "default", "--grace-period=1"];
            // Kubernetes' own Service is the one with a provider.
            cluster.kubectl(&[&kinds[..], &["--selector", "!provider"]].concat()).unwrap().success().unwrap();
        });
    }

    /// The same with both clusters, at the same time.
    pub(crate) fn in_both<'a, T: Send>(&'a self, work: impl Fn(&'a Cluster) -> T + Sync) -> Vec<T> {
        in_parallel(self.set.clusters.all(), work)
    }
}

/// Does something while no node of a cluster has kube-proxy.
///
/// # Panics
/// If it cannot be taken away or given back.
pub(crate) fn without_proxy(cluster: &Cluster, work: impl FnOnce()) {
    let nodes: Vec<_> = cluster.nodes().iter().collect();
    in_parallel(&nodes, |node| node.remove_proxy().unwrap());
    work();
    in_parallel(&nodes, |node| node.restore_proxy().unwrap());
}

/// The same with each, at the same time.
pub(crate) fn in_parallel<'a, I: Sync, T: Send>(items: &'a [I], work: impl Fn(&'a I) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = items.iter().map(|item| scope.spawn(|| work(item))).collect();
        let joined = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        joined.map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

/// The node of this name.
pub(crate) fn node<'a>(cluster: &'a Cluster, name: &str) -> &'a Node {
    cluster.nodes().iter().find(|node| node.name() == name).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_says_which_tests_will_come() {
        let is_chosen =
            |line: &str| is_chosen_by("plain::bed::it_works", line.split_whitespace().map(str::to_owned));

        for line in ["", "--test-threads 3", "bed other", "--exact plain::bed::it_works", "--nocapture bed"] {
            assert!(is_chosen(line), "{line}");
        }
        for line in ["other", "--exact bed", "--skip bed", "--skip=works bed", "--test-threads=1 other"] {
            assert!(!is_chosen(line), "{line}");
        }
    }
}

//! An agent that ends between any two changes, of its first passes or of its removal: the next start makes what an undisturbed
//! one makes, and a removal leaves what was there before.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::pending;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use trieste_control::store::AnyStore;
use trieste_routeagent::change::Change;
use trieste_routeagent::clusterset::follow::Origin;
use trieste_routeagent::config::Options;
use trieste_routeagent::driver::registry::serving;
use trieste_routeagent::keep;
use trieste_routeagent::observed::Observed;
use trieste_routeagent::port::netlink::Kernel;
use trieste_routeagent::port::{Host, PortError, Query};
use trieste_routeagent::reconcile::Reconciler;
use trieste_routeagent::schedule::Outcome;
use trieste_routeagent::source::{self, Reader};
use trieste_routeagent::state::Node;

use super::lab::{Lab, eventually};
use super::{cluster, plugin_ovn};

/// What there is on a node, each part with its name. What moves by itself is left out. `$1` is the state directory.
const PARTS: [(&str, &str); 13] = [
    ("link", r"ip -d -o link | sed -E 's/^[0-9]+: //; s/@[^:]*:/:/; s/[a-z_]*_timer +[0-9.]+//g'"),
    ("address", "ip -o address | sed -E 's/^[0-9]+: //; s/(valid|preferred)_lft [^ ]+//g'"),
    ("rule", "ip -4 rule; ip -6 rule"),
    ("route", "ip -4 route show table all; ip -6 route show table all"),
    ("nexthop", "ip nexthop"),
    ("fdb", "bridge fdb | sort"),
    ("neighbour", "for f in -4 -6; do ip $f neigh show nud permanent; ip $f neigh show proxy; done | sort"),
    ("nftables", "nft -s list ruleset"),
    ("iptables", "iptables-nft-save | sed -E '/^#/d; s/ \\[.*//'; iptables-legacy-save | sed '/^#/d'"),
    ("ip6tables", "ip6tables-nft-save | sed -E '/^#/d; s/ \\[.*//'; ip6tables-legacy-save | sed '/^#/d'"),
    ("ipset", "ipset list -n"),
    ("sysctl", "{ grep -rs . /proc/sys/net/ipv4 /proc/sys/net/ipv6 || true; } | sort"),
    ("file", "grep -rs . $1 || true"),
];

/// Those of them whose lines are in an order that matters.
const ORDERED: [&str; 3] = ["rule: ", "iptables: ", "ip6tables: "];

/// How long what the kernel does by itself may take, such as to use an address of IPv6.
const KERNEL_TIMEOUT: Duration = Duration::from_secs(3);

/// Of so many changes an agent ends before one; at night (`./dev test --nightly`) before each.
const STRIDE: usize = 3;

/// Ours: passes after which an agent has to be done.
const MOST_PASSES: usize = 6;

/// The kernel behind an agent that ends after a number of changes.
struct Ending {
    kernel: Kernel,
    /// How many it still makes.
    left: Cell<usize>,
    end: Rc<End>,
}

/// The end of an agent, and the change that it did not make any more.
#[derive(Default)]
struct End {
    came: Notify,
    before: RefCell<Option<String>>,
}

impl Host for Ending {
    async fn observe(&self, query: &Query) -> Result<Observed, PortError> {
        self.kernel.observe(query).await
    }

    async fn apply(&self, change: &Change) -> Result<(), PortError> {
        self.apply_all(&[change]).await.remove(0)
    }

    async fn apply_all(&self, changes: &[&Change]) -> Vec<Result<(), PortError>> {
        let (made, missed) = changes.split_at(self.left.get().min(changes.len()));
        let outcomes = self.kernel.apply_all(made).await;
        self.left.set(self.left.get() - made.len());
        if let Some(next) = missed.first() {
            self.end.before.replace(Some(next.to_string()));
            self.end.came.notify_one();
            pending::<()>().await;
        }
        outcomes
    }
}

/// What an agent is started for.
#[derive(Clone, Copy)]
enum Work {
    Passes,
    Removal,
}

/// A node, and the command line and environment of its agent.
struct Subject<'a> {
    lab: &'a Lab,
    place: &'static str,
    options: Options,
}

impl<'a> Subject<'a> {
    fn new(lab: &'a Lab, place: &'static str, hostname: &str, variables: &[(&str, &str)]) -> Self {
        std::fs::create_dir_all(lab.state(place)).unwrap();
        let mut command = lab.agent_on(place, hostname, &[]);
        command.envs(variables.iter().copied());
        // Behind `ip netns exec NAMESPACE`.
        let arguments = command.get_args().skip(3).map(ToOwned::to_owned);
        let environment: BTreeMap<_, _> = command.get_envs().collect();
        let variable =
            |name: &std::ffi::OsStr| environment.get(name).copied().flatten().map(ToOwned::to_owned);
        let options = Options::from_flags_and_environment(arguments, variable).unwrap();
        Self { lab, place, options }
    }

    /// Runs an agent that ends after so many changes; returns the one that would have been next, `None` if there was none.
    fn run(&self, work: Work, most: usize) -> Option<String> {
        self.lab.inside(self.place, || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let end = Rc::new(End::default());
                let host =
                    Ending { kernel: Kernel::open().unwrap(), left: Cell::new(most), end: Rc::clone(&end) };
                tokio::select! {
                    () = self.work(work, host) => {}
                    () = end.came.notified() => {}
                }
                end.before.take()
            })
        })
    }

    async fn work(&self, work: Work, host: Ending) {
        let node = self.options.node().unwrap();
        let driver = serving(&node.plugin);
        if let Work::Removal = work {
            let nobody = Node { plugin: node.plugin, ..Node::default() };
            let pass = Reconciler::new(host, driver, nobody).uninstall().await.unwrap();
            assert_ne!(pass.outcome, Outcome::Failed, "{:#?}", pass.conditions);
            return;
        }
        let (state, own) =
            (&self.options.state_dir, [&node.pod_networks[..], &node.service_networks].concat());
        keep::restore_closed(&host, state, Some(&node.cluster), &own).await;
        let store = AnyStore::open(&self.options.store()).unwrap();
        let view = source::read(&store, &self.reader(&node)).await.unwrap();
        let mut reconciler = Reconciler::new(host, driver, node).with_memory(state);
        for _ in 0..MOST_PASSES {
            let pass = reconciler.pass(&view).await.unwrap();
            assert_ne!(pass.outcome, Outcome::Failed, "{:#?}", pass.conditions);
            if pass.outcome == Outcome::Settled {
                return;
            }
        }
        panic!("the agent is not done after {MOST_PASSES} passes");
    }

    fn reader(&self, node: &Node) -> Reader {
        let (namespace, cluster) = (self.options.namespace.clone(), node.cluster.clone());
        let clusterset = Origin { cluster: cluster.clone(), namespace: namespace.clone(), range: Vec::new() };
        Reader { namespace, cluster, hostname: node.hostname.clone(), clusterset, ..Reader::default() }
    }

    /// Returns everything that there is on the node, as lines.
    fn state(&self) -> Vec<String> {
        let part = |(name, words): &(&str, &str)| format!("{{ {words}; }} | sed 's/^/{name}: /'\n");
        let script: String = PARTS.iter().map(part).collect();
        let directory = self.lab.state(self.place);
        let arguments = ["-e", "-o", "pipefail", "-c", &script, "bash", directory.to_str().unwrap()];
        self.lab.run(self.place, "bash", &arguments).lines().map(str::to_owned).collect()
    }

    /// Fails with the differences unless this is what there is.
    fn assert_state(&self, wanted: &[String], read: fn(&Self) -> Vec<String>, what: &str) {
        let deadline = Instant::now() + KERNEL_TIMEOUT;
        let mut different = differences(&read(self), wanted);
        while !different.is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(50));
            different = differences(&read(self), wanted);
        }
        assert!(different.is_empty(), "{what}: {different:#?}");
    }

    /// The same without the settings of the gateway's device, which goes with the gateway.
    fn state_of_others(&self) -> Vec<String> {
        let is_gateways = |line: &String| line.starts_with("sysctl: ") && line.contains("/submariner/");
        self.state().into_iter().filter(|line| !is_gateways(line)).collect()
    }

    /// Returns one of these once nothing moves any more.
    fn at_rest(&self, read: fn(&Self) -> Vec<String>) -> Vec<String> {
        let mut last = read(self);
        eventually("the node is at rest", || {
            let now = read(self);
            std::mem::replace(&mut last, now) == last
        });
        last
    }
}

/// Returns what has come (`+`) and gone (`-`), each line with its part's name, or what is in another order.
fn differences(found: &[String], wanted: &[String]) -> Vec<String> {
    let mut counts: BTreeMap<&String, i32> = BTreeMap::new();
    found.iter().for_each(|line| *counts.entry(line).or_default() += 1);
    wanted.iter().for_each(|line| *counts.entry(line).or_default() -= 1);
    let sign = |count: i32| if count > 0 { '+' } else { '-' };
    let changed = counts.into_iter().filter(|(_, count)| *count != 0);
    let changed: Vec<String> = changed.map(|(line, count)| format!("{} {line}", sign(count))).collect();
    if !changed.is_empty() {
        return changed;
    }
    let is_ordered = |line: &&String| ORDERED.iter().any(|part| line.starts_with(part));
    let pairs = found.iter().filter(is_ordered).zip(wanted.iter().filter(is_ordered));
    pairs.filter(|(found, wanted)| found != wanted).map(|(found, _)| format!("elsewhere: {found}")).collect()
}

/// Ends an agent before one change after the other; returns before how many at least.
fn end_everywhere(subject: &Subject<'_>, name: &str) -> usize {
    let before = subject.at_rest(Subject::state_of_others);
    let is_clean = |what: &str| {
        subject.lab.uninstall_on(subject.place);
        subject.assert_state(&before, Subject::state_of_others, what);
    };
    assert_eq!(subject.run(Work::Passes, usize::MAX), None);
    let complete = subject.at_rest(Subject::state);
    is_clean(&format!("{name}: removed undisturbed"));
    let stride = if std::env::var_os("TRIESTE_NIGHTLY").is_some() { 1 } else { STRIDE };
    for made in (0..).step_by(stride) {
        let begin = || subject.run(Work::Passes, made);
        let begun = begin();
        let what = format!("{name}: the agent ended after {made} changes, before {begun:?}");
        is_clean(&format!("{what}; then removed"));
        assert_eq!(begin(), begun, "{name}");
        assert_eq!(subject.run(Work::Passes, usize::MAX), None);
        subject.assert_state(&complete, Subject::state, &format!("{what}; then started again"));
        let removed = subject.run(Work::Removal, made);
        is_clean(&format!(
            "{name}: the removal ended after {made} changes, before {removed:?}; then removed"
        ));
        if begun.is_none() && removed.is_none() {
            return made;
        }
    }
    unreachable!("numbers do not end")
}

/// Ends agents everywhere on nodes of a cluster, each with its host name.
fn end_on(lab: &Lab, variables: &[(&str, &str)], nodes: &[(&'static str, &str)]) {
    for (place, hostname) in nodes {
        let changes = end_everywhere(&Subject::new(lab, place, hostname, variables), place);
        eprintln!("{place}: ended after up to {changes} changes");
        assert!(changes > 10, "{place}: {changes} changes");
    }
}

#[test]
fn an_agent_that_ends_after_any_change_is_finished_by_the_next_start_or_leaves_no_trace() {
    let Some(lab) = cluster::cluster() else { return };
    end_on(&lab, &[], &[("gw1", "a-gw1"), ("w1", "a-w1")]);
}

#[test]
fn plugin_ovn_an_agent_that_ends_after_any_change_is_finished_by_the_next_start_or_leaves_no_trace() {
    let Some(lab) = plugin_ovn::cluster() else { return };
    end_on(&lab, &plugin_ovn::PLUGIN, &[("gw1", "a-gw1")]);
}

mod cost;
mod events;
mod follow;
mod same;

use std::cell::{Cell, RefCell};
use std::io::ErrorKind;

use ipnet::IpNet;

use super::*;
use crate::driver::kubeproxy::KubeProxy;
use crate::family::Family;
use crate::guard::{GuardChange, ObservedGuard};
use crate::hostnet::Sysctl;
use crate::observed::{Link, Observed, ObservedRoute, ObservedRule};
use crate::plan::route_index::RouteIndex;
use crate::state::{ClusterNode, Endpoint};

#[tokio::test]
async fn the_second_pass_changes_nothing() {
    let mut reconciler = reconciler(Fake::new());
    assert_eq!(reconciler.pass(&view()).await.unwrap().outcome, Outcome::Changed);
    assert_eq!(reconciler.pass(&view()).await.unwrap().outcome, Outcome::Settled);
}

#[tokio::test]
async fn a_change_that_fails_does_not_stop_the_others_and_is_shown() {
    let mut host = Fake::new();
    host.refuses = Some("add unreachable 10.2.0.0/16 table main");
    let mut reconciler = reconciler(host);
    let pass = reconciler.pass(&view()).await.unwrap();
    assert_eq!(pass.outcome, Outcome::Failed);
    assert!(pass.conditions.iter().any(|c| matches!(c, Condition::Failed { .. })), "{:?}", pass.conditions);
    let observed = reconciler.host.observed.borrow();
    assert_eq!(observed.routes.len(), 2);
    assert_eq!(observed.rules.len(), 4);
}

#[tokio::test]
async fn without_nft_everything_else_is_applied_and_the_package_is_named() {
    let mut host = Fake::new();
    host.observed.get_mut().guard = ObservedGuard::Unknown;
    host.observed.get_mut().conditions.insert(Condition::NoNft);
    let mut reconciler = reconciler(host);
    let pass = reconciler.pass(&view()).await.unwrap();
    assert_eq!(pass.outcome, Outcome::Changed);
    assert!(!pass.is_closed);
    assert!(pass.conditions.iter().any(|c| c.to_string().contains("package nftables")));
    assert_eq!(reconciler.pass(&view()).await.unwrap().outcome, Outcome::Settled);
}

#[tokio::test]
async fn without_a_filter_the_vxlan_is_neither_made_nor_opened() {
    for (guard, refuses) in
        [(ObservedGuard::Unknown, None), (ObservedGuard::Absent, Some("build nftables table"))]
    {
        let mut host = Fake::new();
        host.refuses = refuses;
        let address = |device: &str, network: &str| DeviceAddress {
            device: device.to_owned(),
            network: network.parse().unwrap(),
        };
        let observed = host.observed.get_mut();
        observed.guard = guard;
        observed.addresses.insert(address("eth0", "172.31.1.11/24"));
        let hooks = [crate::nft::Hook::Input, crate::nft::Hook::Forward].into();
        let table = crate::foreign::Iptables { hooks, ..Default::default() };
        observed.foreign.iptables.insert((crate::foreign::Backend::Legacy, Family::V4), table);
        let node = |name: &str, own: &str| ClusterNode {
            name: name.to_owned(),
            hostname: name.to_owned(),
            addresses: [own.parse().unwrap()].into(),
            pod_networks: [format!("10.1.{}.0/24", own.len()).parse().unwrap()].into(),
            ..ClusterNode::default()
        };
        let nodes = vec![node("a-gw1", "172.31.1.11"), node("a-w1", "172.31.3.2")];
        let mut reconciler = reconciler(host);
        // The host panics where the device or iptables are touched.
        let pass = reconciler.pass(&ClusterView { nodes, ..view() }).await.unwrap();
        assert!(pass.conditions.contains(&Condition::Unguarded), "{:?}", pass.conditions);
        assert!(!reconciler.host.observed.borrow().routes.is_empty(), "the rest is done");
    }
}

#[tokio::test]
async fn what_another_programs_filter_refuses_is_told_and_slows_nothing_down() {
    let mut host = Fake::new();
    host.refuses = Some("iptables (IPv4, legacy)");
    let hooks = [crate::nft::Hook::Forward].into();
    let table = crate::foreign::Iptables { hooks, ..Default::default() };
    host.observed.get_mut().foreign.iptables.insert((crate::foreign::Backend::Legacy, Family::V4), table);
    let mut reconciler = reconciler(host);
    let pass = reconciler.pass(&view()).await.unwrap();
    assert_eq!(pass.outcome, Outcome::Changed);
    assert!(pass.conditions.iter().any(|c| matches!(c, Condition::Failed { .. })), "{:?}", pass.conditions);
    assert_eq!(reconciler.pass(&view()).await.unwrap().outcome, Outcome::Settled);
}

#[tokio::test]
async fn a_former_setting_that_cannot_be_restored_is_not_forgotten() {
    let guard = Guard { loosened: [("cni0".to_owned(), 1)].into(), ..Default::default() };
    let filter = Sysctl::of(Family::V4, "cni0", "rp_filter");
    let mut host = Fake::new();
    let observed = host.observed.get_mut();
    observed.guard = ObservedGuard::Present(crate::guard::Table::of(&guard));
    observed.loosened.clone_from(&guard.loosened);
    observed.sysctls.insert(filter.clone(), 2);
    host.refuses = Some("set net/ipv4/conf/cni0/rp_filter");
    let mut first = reconciler(host);
    assert_eq!(first.uninstall().await.unwrap().outcome, Outcome::Failed);
    assert!(matches!(first.host.observed.borrow().guard, ObservedGuard::Present(_)));
    first.host.refuses = None;
    let pass = first.uninstall().await.unwrap();
    let steps: Vec<String> = pass.changes.iter().map(ToString::to_string).collect();
    assert_eq!(steps, ["set net/ipv4/conf/cni0/rp_filter = 1", "remove nftables table inet trieste"]);
    assert_eq!(first.host.observed.borrow().sysctls[&filter], 1);
}

#[tokio::test]
async fn changes_that_someone_undoes_are_told_from_new_ones() {
    let mut reconciler = reconciler(Fake::new());
    reconciler.pass(&view()).await.unwrap();
    for expected in [Outcome::Changed, Outcome::Repeated, Outcome::Repeated] {
        reconciler.host.observed.borrow_mut().rules.clear();
        assert_eq!(reconciler.pass(&view()).await.unwrap().outcome, expected);
    }
}

#[tokio::test]
async fn a_filter_that_is_gone_is_restored_as_it_was_and_counts_as_undone_by_someone() {
    let mut reconciler = reconciler(Fake::new());
    let mut now = Instant::now();
    let mut later = || {
        now += Duration::from_secs(1);
        now
    };
    reconciler.restore_filter(later()).await;
    assert_eq!(reconciler.host.observed.borrow().guard, ObservedGuard::Absent, "nothing is known yet");
    reconciler.pass(&view()).await.unwrap();
    let made = reconciler.host.observed.borrow().guard.clone();
    reconciler.restore_filter(later()).await;
    assert_eq!(reconciler.pass(&view()).await.unwrap().outcome, Outcome::Settled, "it was there");

    for expected in [Outcome::Changed, Outcome::Repeated, Outcome::Repeated] {
        reconciler.host.observed.borrow_mut().guard = ObservedGuard::Absent;
        reconciler.restore_filter(later()).await;
        assert_eq!(reconciler.host.observed.borrow().guard, made);
        let pass = reconciler.pass(&view()).await.unwrap();
        assert_eq!((pass.outcome, pass.changes.len()), (expected, 1));
    }
    assert_eq!(reconciler.pass(&view()).await.unwrap().outcome, Outcome::Settled);
}

#[tokio::test]
async fn a_node_is_closed_if_refusals_and_filter_are_there_whatever_else_fails() {
    for (refuses, is_closed) in [
        ("add unreachable", false),
        ("build nftables table", false),
        ("add IPv4 rule", true),
        ("set net", true),
        ("nothing", true),
    ] {
        let mut host = Fake::new();
        host.refuses = Some(refuses);
        assert_eq!(reconciler(host).pass(&view()).await.unwrap().is_closed, is_closed, "{refuses}");
    }
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    let mut reconciler = reconciler(Fake::new());
    let plan = reconciler.dry_run(&view()).await.unwrap();
    assert!(!plan.changes.is_empty());
    assert!(reconciler.host.observed.borrow().routes.is_empty());
}

#[tokio::test]
async fn uninstalling_needs_no_store_and_leaves_nothing() {
    let mut reconciler = reconciler(Fake::new());
    reconciler.pass(&view()).await.unwrap();
    reconciler.uninstall().await.unwrap();
    let observed = reconciler.host.observed.borrow();
    assert!(observed.routes.is_empty() && observed.rules.is_empty());
    assert_eq!(observed.guard, ObservedGuard::Absent);
}

#[tokio::test]
async fn an_empty_store_leaves_everything_closed_also_after_a_restart() {
    let mut first = reconciler(Fake::new());
    first.pass(&view()).await.unwrap();
    let mut only_own = view();
    only_own.endpoints.truncate(1);
    first.pass(&only_own).await.unwrap();
    assert_eq!(closed_in_kernel(&first.host.observed.borrow()).len(), 1);
    assert_eq!(first.host.observed.borrow().routes.len(), 2, "{:?}", first.host.observed);

    let mut second = reconciler(first.host);
    let pass = second.pass(&only_own).await.unwrap();
    assert_eq!(pass.outcome, Outcome::Settled, "{:?}", pass.changes);
    assert_eq!(pass.conditions, [Condition::Vanished("10.2.0.0/16".parse().unwrap())].into());

    let mut third = reconciler(second.host).with_grace(Duration::ZERO);
    third.pass(&only_own).await.unwrap();
    assert!(third.host.observed.borrow().routes.is_empty());
}

#[tokio::test]
async fn a_bridge_that_is_down_stays_closed_for_the_period_and_is_nobodys_claim() {
    let bridge = DeviceAddress { device: "cni0".to_owned(), network: "10.1.1.1/24".parse().unwrap() };
    let network = bridge.network.trunc();
    for (grace, stays) in [(Duration::from_mins(10), true), (Duration::ZERO, false)] {
        let mut host = Fake::new();
        host.observed.get_mut().addresses.insert(bridge.clone());
        let mut reconciler = reconciler(host).with_grace(grace);
        reconciler.pass(&view()).await.unwrap();
        assert!(closed_in_kernel(&reconciler.host.observed.borrow()).contains(&network));

        reconciler.host.observed.get_mut().addresses.clear();
        let pass = reconciler.pass(&view()).await.unwrap();
        let is_closed = closed_in_kernel(&reconciler.host.observed.borrow()).contains(&network);
        assert_eq!((is_closed, pass.conditions), (stays, BTreeSet::new()));
    }
}

#[tokio::test]
async fn a_network_that_became_local_is_opened_at_once() {
    let mut reconciler = reconciler(Fake::new());
    reconciler.pass(&view()).await.unwrap();
    reconciler.node.pod_networks.push("10.2.0.0/16".parse().unwrap());
    let mut only_own = view();
    only_own.endpoints.truncate(1);
    reconciler.pass(&only_own).await.unwrap();
    assert!(reconciler.host.observed.borrow().routes.is_empty());
}

/// A host in memory.
struct Fake {
    observed: RefCell<Observed>,
    refuses: Option<&'static str>,
    /// How often everything was read.
    reads: Cell<u32>,
}

impl Fake {
    fn new() -> Self {
        let link = Link { index: 2, is_up: true, ..Link::default() };
        let observed = Observed { links: [("submariner".into(), link)].into(), ..Observed::default() };
        Self { observed: RefCell::new(observed), refuses: None, reads: Cell::new(0) }
    }
}

impl Host for Fake {
    async fn observe(&self, _: &Query) -> Result<Observed, PortError> {
        self.reads.set(self.reads.get() + 1);
        Ok(self.observed.borrow().clone())
    }

    async fn apply(&self, change: &Change) -> Result<(), PortError> {
        if self.refuses.is_some_and(|refused| change.to_string().starts_with(refused)) {
            return Err(PortError::Refused { source: ErrorKind::PermissionDenied.into() });
        }
        let mut observed = self.observed.borrow_mut();
        match change {
            Change::AddRoute(route) => observed.routes.push(ObservedRoute::from_route(route)),
            Change::ReplaceRoute(route) => {
                observed.routes.retain(|there| !there.is_in_the_place_of(route));
                observed.routes.push(ObservedRoute::from_route(route));
            }
            Change::RemoveRoute(route) => observed.routes.retain(|there| there != route),
            Change::AddRule(rule) => observed.rules.push(ours(rule.clone())),
            Change::RemoveRule(rule) => observed.rules.retain(|there| there.rule != *rule),
            Change::Set(sysctl, value) => {
                observed.sysctls.insert(sysctl.clone(), *value);
            }
            Change::Guard(GuardChange::Build(guard)) => {
                observed.guard = ObservedGuard::Present(crate::guard::Table::of(guard));
            }
            Change::Guard(GuardChange::Restore(guard)) => {
                if observed.guard != ObservedGuard::Absent {
                    return Err(PortError::Nft("File exists".into()));
                }
                observed.guard = ObservedGuard::Present(crate::guard::Table::of(guard));
            }
            Change::Guard(GuardChange::Update { add, remove }) => {
                if let ObservedGuard::Present(there) = &observed.guard {
                    observed.guard = ObservedGuard::Present(crate::guard::updated(there, add, remove));
                }
            }
            Change::Guard(_) => observed.guard = ObservedGuard::Absent,
            Change::Services(_)
            | Change::Clusterset(_)
            | Change::Foreign(_)
            | Change::BetweenNodes(_)
            | Change::Nexthops(_)
            | Change::Takeover(_) => {
                panic!("a gateway without other nodes: {change}")
            }
        }
        Ok(())
    }
}

fn closed_in_kernel(observed: &Observed) -> BTreeSet<IpNet> {
    observed.routes.iter().cloned().collect::<RouteIndex>().refused()
}

fn ours(rule: crate::hostnet::Rule) -> ObservedRule {
    ObservedRule { rule, protocol: crate::constants::RULE_PROTOCOL }
}

fn reconciler(host: Fake) -> Reconciler<Fake> {
    let node = Node {
        cluster: "a".into(),
        hostname: "a-gw1".into(),
        pod_networks: vec!["10.1.0.0/16".parse().unwrap()],
        service_networks: Vec::new(),
        tun: "submariner".into(),
        plugin: "generic".into(),
        notice_port: 4801,
        has_globalnet: false,
        ..Node::default()
    };
    Reconciler::new(host, &KubeProxy, node)
}

fn view() -> ClusterView {
    let mut other = Endpoint::new("b-cable", "b", "b-gw1");
    other.subnets = vec!["10.2.0.0/16".parse().unwrap()];
    let endpoints = vec![Endpoint::new("a-cable", "a", "a-gw1"), other];
    ClusterView { endpoints, ..ClusterView::default() }
}

#[test]
fn conditions_of_one_kind_have_a_line_each_up_to_a_bound_and_are_counted_then() {
    let vanished = |number: u32| {
        let address = std::net::Ipv4Addr::from(0x0a00_0000 + (number << 8));
        Condition::Vanished(format!("{address}/24").parse().unwrap())
    };
    let many: BTreeSet<Condition> = (0..1000).map(vanished).chain([Condition::NoNexthops]).collect();
    let (lines, more) = shortened(many.iter());
    assert_eq!(lines.len(), MOST_LINES + 1);
    assert_eq!(more, [("Vanished", 1000 - MOST_LINES)].into());
    let (lines, more) = shortened(many.iter().take(MOST_LINES));
    assert_eq!((lines.len(), more.len()), (MOST_LINES, 0));
}

#[test]
fn a_removal_waits_for_what_is_ours_and_a_set_for_the_chains_that_use_it() {
    use crate::foreign::{Backend, ForeignChange};
    use crate::leftover::Table;
    use crate::submariner::Removal;
    let chains = |table| {
        let (backend, family) = (Backend::Nft, Family::V4);
        Change::Takeover(Removal::Chains { backend, family, table, lines: Vec::new() })
    };
    let (device, set) = (Change::Takeover(Removal::CableDevice), Change::Takeover(Removal::Set("S".into())));
    let exception = Change::Foreign(ForeignChange::Iptables {
        backend: Backend::Nft,
        family: Family::V4,
        arguments: Vec::new(),
    });
    let waits = |change: &Change, failed: &Change| waits_for(change, &[failed]).is_some();
    let ours = Change::AddRule(crate::hostnet::Rule::gateway(Family::V4));
    for removal in [&chains(Table::Nat), &chains(Table::Filter), &device, &set] {
        assert!(waits(removal, &ours), "{removal}");
    }
    assert!(waits(&chains(Table::Filter), &exception) && !waits(&chains(Table::Nat), &exception));
    assert!(waits(&set, &chains(Table::Mangle)) && !waits(&device, &chains(Table::Mangle)));
    assert!(!waits(&chains(Table::Nat), &set));
}

use std::collections::BTreeMap;

use ipnet::IpNet;
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

use super::settings::{forwarding, host_conditions, reverse_path};
use super::*;
use crate::constants::{METRIC_FAIL_CLOSED, RULE_PROTOCOL, TABLE_DELIVERY, TABLE_GATEWAY, TABLE_MAIN};
use crate::family::Family;
use crate::guard::{ObservedGuard, Table};
use crate::hostnet::{Guard, Sysctl};
use crate::nexthops::{Content, NEXTHOP_PROTOCOL, NexthopChange, ObservedNexthop};
use crate::observed::{Link, ObservedRule, RouteKind, VxlanLink};
use crate::services::{DesiredServices, ServiceRules};
use crate::state::DeviceAddress;
use crate::vxlan::{Mac, Vxlan, VxlanChange};

#[test]
fn an_empty_node_is_closed_before_it_is_opened() {
    let plan = plan(&desired(), &live());
    let steps: Vec<String> = plan.changes.iter().map(ToString::to_string).collect();
    assert_eq!(
        steps,
        [
            "add unreachable 10.2.0.0/16 table 150 metric 4278198272",
            "add unreachable 10.2.0.0/16 table main metric 4278198272",
            "build nftables table inet trieste guarding 0 networks",
            "add 10.2.0.0/16 dev submariner table 150",
            "add IPv4 rule pref 90 fwmark 0x540000/0xff0000 iif lo lookup main",
            "add IPv4 rule pref 150 lookup 150",
        ]
    );
}

#[test]
fn uninstalling_removes_what_leads_somewhere_before_what_refuses() {
    let observed = model::apply(live(), &plan(&desired(), &live()));
    let steps: Vec<String> =
        plan(&HostNet::default(), &observed).changes.iter().map(ToString::to_string).collect();
    assert_eq!(
        steps,
        [
            "remove IPv4 rule pref 150 lookup 150",
            "remove IPv4 rule pref 90 fwmark 0x540000/0xff0000 iif lo lookup main",
            "remove nftables table inet trieste",
            "remove 10.2.0.0/16 table 150 dev submariner metric 0",
            "remove 10.2.0.0/16 table 150 metric 4278198272",
            "remove 10.2.0.0/16 table main metric 4278198272",
        ]
    );
}

#[test]
fn a_node_that_stops_being_a_gateway_is_closed_before_its_rules_go() {
    let network = net("10.2.0.0/16");
    let mut gateway = desired();
    // As where a remote gateway is inside its own network: the gateway table alone closes it.
    gateway.routes.remove(&Route::unreachable(TABLE_MAIN, network));
    let observed = model::apply(live(), &plan(&gateway, &live()));
    let routes = [Route::unreachable(TABLE_MAIN, network)].into();
    let other = HostNet { routes, guard: Some(Guard::default()), ..HostNet::default() };
    let steps: Vec<String> = plan(&other, &observed).changes.iter().map(ToString::to_string).collect();
    assert_eq!(
        steps,
        [
            "add unreachable 10.2.0.0/16 table main metric 4278198272",
            "remove IPv4 rule pref 150 lookup 150",
            "remove IPv4 rule pref 90 fwmark 0x540000/0xff0000 iif lo lookup main",
            "remove 10.2.0.0/16 table 150 dev submariner metric 0",
            "remove 10.2.0.0/16 table 150 metric 4278198272",
        ]
    );
}

#[test]
fn a_node_that_stops_being_a_gateway_is_led_to_the_others_before_its_rules_go() {
    let network = net("10.2.0.0/16");
    let observed = model::apply(live(), &plan(&desired(), &live()));
    let routes =
        [Route::leading(TABLE_MAIN, network, device("eth0")), Route::unreachable(TABLE_MAIN, network)].into();
    let worker = HostNet { routes, guard: Some(Guard::default()), ..HostNet::default() };
    let steps: Vec<String> = plan(&worker, &observed).changes.iter().map(ToString::to_string).collect();
    assert_eq!(
        steps,
        [
            "add 10.2.0.0/16 dev eth0 table main",
            "remove IPv4 rule pref 150 lookup 150",
            "remove IPv4 rule pref 90 fwmark 0x540000/0xff0000 iif lo lookup main",
            "remove 10.2.0.0/16 table 150 dev submariner metric 0",
            "remove 10.2.0.0/16 table 150 metric 4278198272",
        ]
    );
}

#[test]
fn without_the_device_only_the_refusals_are_installed() {
    let plan = plan(&desired(), &Observed::default());
    assert!(!plan.changes.iter().any(|change| change.to_string().contains("submariner")));
    assert_eq!(plan.conditions, [Condition::NoDevice { device: "submariner".into(), exists: false }].into());
}

#[test]
fn a_route_of_someone_else_is_neither_replaced_nor_removed() {
    let mut observed = live();
    let wanted = Route::gateway(net("10.2.0.0/16"), device("submariner"));
    let mut foreign = ObservedRoute::from_route(&Route::gateway(net("10.2.0.0/16"), device("eth0")));
    foreign.protocol = 3;
    observed.routes.push(foreign);
    let plan = plan(&desired(), &observed);
    assert!(plan.conditions.contains(&Condition::Occupied(wanted.clone())));
    assert!(!plan.changes.contains(&Change::AddRoute(wanted.clone())));
    assert!(!plan.changes.contains(&Change::ReplaceRoute(wanted)));
}

#[test]
fn a_route_of_ours_that_leads_elsewhere_is_replaced_in_one_step() {
    let mut observed = live();
    let wanted = Route::gateway(net("10.2.0.0/16"), device("submariner"));
    observed.routes.push(ObservedRoute::from_route(&Route::gateway(net("10.2.0.0/16"), device("eth0"))));
    let plan = plan(&desired(), &observed);
    assert!(plan.changes.contains(&Change::ReplaceRoute(wanted)));
}

#[test]
fn a_double_rule_is_reduced_to_one() {
    let mut observed = model::apply(live(), &plan(&desired(), &live()));
    observed.rules.push(ours(Rule::gateway(Family::V4)));
    assert_eq!(plan(&desired(), &observed).changes, [Change::RemoveRule(Rule::gateway(Family::V4))]);
}

#[test]
fn a_rule_that_upstream_left_serves_and_is_not_removed() {
    let upstreams = ObservedRule { rule: Rule::gateway(Family::V4), protocol: 0 };
    let mut observed = live();
    observed.rules.push(upstreams.clone());
    assert!(!plan(&desired(), &observed).changes.contains(&Change::AddRule(upstreams.rule.clone())));
    let after = model::apply(observed.clone(), &plan(&HostNet::default(), &observed));
    assert_eq!(after.rules, [upstreams]);
}

#[test]
fn a_kernel_without_ipv6_is_not_asked_for_it() {
    let mut observed = live();
    observed.families = [Family::V4].into();
    let mut desired = desired();
    desired.routes.insert(Route::unreachable(TABLE_MAIN, net("fd00:2::/48")));
    desired.rules.insert(Rule::gateway(Family::V6));
    let plan = plan(&desired, &observed);
    assert!(!plan.changes.iter().any(|change| change.to_string().contains("fd00")));
    assert!(!plan.changes.contains(&Change::AddRule(Rule::gateway(Family::V6))));
}

#[test]
fn settings_are_written_only_where_they_differ() {
    let mut desired = HostNet::default();
    for (key, value) in [("rp_filter", 0), ("accept_local", 1), ("forwarding", 1)] {
        desired.sysctls.insert(Sysctl::of(Family::V4, "submariner", key), value);
    }
    let mut observed = live();
    observed.sysctls.insert(Sysctl::of(Family::V4, "submariner", "rp_filter"), 2);
    observed.sysctls.insert(Sysctl::of(Family::V4, "submariner", "accept_local"), 1);
    let plan = plan(&desired, &observed);
    assert_eq!(plan.changes, [Change::Set(Sysctl::of(Family::V4, "submariner", "rp_filter"), 0)]);
}

#[test]
fn a_node_that_does_not_forward_is_told_so() {
    let mut observed = live();
    observed.sysctls.insert(forwarding(Family::V4), 0);
    observed.sysctls.insert(reverse_path(), 1);
    assert_eq!(
        host_conditions(&desired(), &observed),
        [Condition::ForwardingOff(Family::V4), Condition::StrictReversePath].into()
    );
    assert!(host_conditions(&HostNet::default(), &observed).is_empty());
}

proptest! {
    #[test]
    fn a_plan_applied_leaves_nothing_to_plan(desired in hostnets(), observed in observations()) {
        let after = model::apply(observed.clone(), &plan(&desired, &observed));
        let again = plan(&desired, &after);
        prop_assert_eq!(again.changes, vec![]);
    }

    #[test]
    fn what_is_not_ours_is_untouched(desired in hostnets(), observed in observations()) {
        let foreign = |o: &Observed| {
            let mut routes: Vec<_> = o.routes.iter().filter(|r| !r.is_ours()).cloned().collect();
            let foreign_rules = |o: &Observed| {
                let chains = o.foreign.iptables.values().flat_map(|table| &table.chains);
                let rules = chains.flat_map(|(chain, rules)| rules.iter().map(move |rule| (chain.clone(), rule.clone())));
                rules.filter(|(_, rule)| !rule.contains("trieste")).collect::<Vec<_>>()
            };
            let mut rules: Vec<_> = o.rules.iter().filter(|r| !r.is_ours()).cloned().collect();
            routes.sort();
            rules.sort();
            (routes, rules, foreign_rules(o))
        };
        let after = model::apply(observed.clone(), &plan(&desired, &observed));
        prop_assert_eq!(foreign(&observed), foreign(&after));
    }

    #[test]
    fn uninstalling_leaves_only_what_is_not_ours(observed in observations()) {
        let after = model::apply(observed.clone(), &plan(&HostNet::default(), &observed));
        prop_assert!(!after.routes.iter().any(ObservedRoute::is_ours));
        prop_assert!(!after.rules.iter().any(ObservedRule::is_ours));
        prop_assert!(matches!(after.guard, ObservedGuard::Absent | ObservedGuard::Unknown));
        let is_between_nodes = |link: &Link| link.vxlan.as_ref().is_some_and(VxlanLink::is_between_nodes);
        prop_assert!(!after.links.get(VX_DEVICE).is_some_and(is_between_nodes));
        let foreign = format!("{:?}", after.foreign);
        prop_assert!(!foreign.contains("trieste"), "{}", foreign);
    }

    #[test]
    fn uninstalling_gives_loosened_devices_their_former_value(observed in observations()) {
        prop_assume!(!matches!(observed.guard, ObservedGuard::Unknown));
        let eth0 = Sysctl::of(Family::V4, "eth0", "rp_filter");
        let loose = HostNet {
            loose_rp_filter: ["eth0".to_owned()].into(), guard: Some(Guard::default()), ..HostNet::default()
        };
        let during = model::apply(observed.clone(), &plan(&loose, &observed));
        let strictest = during.sysctls[&reverse_path()].max(during.sysctls[&eth0]);
        prop_assert_ne!(strictest, 1);
        let after = model::apply(during.clone(), &plan(&HostNet::default(), &during));
        prop_assert_eq!(after.sysctls.get(&eth0), observed.sysctls.get(&eth0));
    }

    #[test]
    fn at_every_step_a_network_that_was_refused_or_routed_stays_so(desired in hostnets(), observed in observations()) {
        let whole = plan(&desired, &observed);
        let covered = |o: &Observed| -> BTreeSet<IpNet> {
            o.routes.iter().filter(|r| r.is_ours() && r.table == TABLE_GATEWAY).map(|r| r.destination).collect()
        };
        let end: BTreeSet<IpNet> = covered(&model::apply(observed.clone(), &whole));
        let kept: BTreeSet<IpNet> = covered(&observed).intersection(&end).copied().collect();
        let mut now = observed;
        for change in &whole.changes {
            now = model::apply(now, &Plan { changes: vec![change.clone()], ..Plan::default() });
            prop_assert!(kept.is_subset(&covered(&now)), "uncovered by {}", change);
        }
    }
}

/// What the kernel would do with a plan.
pub(crate) mod model {
    use super::*;
    use crate::foreign::{Foreign, ForeignChange};
    use crate::guard::GuardChange;
    use crate::services::{ObservedServices, ServicesChange};

    pub(crate) fn apply(mut observed: Observed, plan: &Plan) -> Observed {
        for change in &plan.changes {
            match change {
                Change::Set(sysctl, value) => {
                    observed.sysctls.insert(sysctl.clone(), *value);
                }
                Change::AddRoute(route) => {
                    assert!(
                        !observed.routes.iter().any(|there| there.is_in_the_place_of(route)),
                        "EEXIST: {route}"
                    );
                    observed.routes.push(ObservedRoute::from_route(route));
                }
                Change::ReplaceRoute(route) => {
                    let first =
                        observed.routes.iter_mut().find(|there| there.is_in_the_place_of(route)).unwrap();
                    *first = ObservedRoute::from_route(route);
                }
                Change::RemoveRoute(route) => {
                    let at = observed.routes.iter().position(|there| there == route).expect("ESRCH");
                    observed.routes.remove(at);
                }
                Change::AddRule(rule) => {
                    assert!(!observed.rules.iter().any(|there| there.rule == *rule), "EEXIST: {rule}");
                    observed.rules.push(ours(rule.clone()));
                }
                Change::RemoveRule(rule) => {
                    let at =
                        observed.rules.iter().position(|there| *there == ours(rule.clone())).expect("ENOENT");
                    observed.rules.remove(at);
                }
                Change::Guard(change) => {
                    observed.guard = guard(observed.guard, change);
                    observed.loosened = match &observed.guard {
                        ObservedGuard::Present(table) => table.loosened(),
                        ObservedGuard::Absent | ObservedGuard::Unknown => BTreeMap::new(),
                    };
                }
                Change::Services(change) => observed.services = services(change),
                Change::Foreign(change) => foreign(&mut observed.foreign, change),
                Change::BetweenNodes(change) => apply_between_nodes(&mut observed, change),
                Change::Nexthops(change) => apply_nexthops(&mut observed, change),
            }
        }
        observed
    }

    fn services(change: &ServicesChange) -> ObservedServices {
        match change {
            ServicesChange::Build(table) => ObservedServices::Present((**table).clone()),
            ServicesChange::Update { to, .. } => ObservedServices::Present((**to).clone()),
            ServicesChange::Remove => ObservedServices::Absent,
        }
    }

    fn apply_nexthops(observed: &mut Observed, change: &NexthopChange) {
        let ours = |what| ObservedNexthop { protocol: NEXTHOP_PROTOCOL, what };
        let has_all = |members: &BTreeSet<u32>| {
            assert!(members.iter().all(|member| observed.nexthops.contains_key(member)), "EINVAL: {change}");
        };
        match change {
            NexthopChange::Set(id, nexthop) => {
                assert!(observed.links.contains_key(&nexthop.device), "ENODEV: {change}");
                observed.nexthops.insert(*id, ours(Content::One(nexthop.clone())));
            }
            NexthopChange::MakeGroup(id, members) => {
                has_all(members);
                let there = observed.nexthops.insert(*id, ours(Content::Group(members.clone())));
                assert!(there.is_none(), "EEXIST: {change}");
            }
            NexthopChange::SetGroup(id, members) => {
                has_all(members);
                observed.nexthops.insert(*id, ours(Content::Group(members.clone()))).expect("ENOENT");
            }
            NexthopChange::Remove(id) => {
                observed.nexthops.remove(id).expect("ENOENT");
                for there in observed.nexthops.values_mut() {
                    if let Content::Group(members) = &mut there.what {
                        members.remove(id);
                    }
                }
                observed.nexthops.retain(|_, there| there.what != Content::Group(BTreeSet::new()));
                // Routes go along.
                let nexthops = &observed.nexthops;
                observed.routes.retain(|route| route.nexthop.is_none_or(|id| nexthops.contains_key(&id)));
            }
        }
    }

    fn apply_between_nodes(observed: &mut Observed, change: &VxlanChange) {
        let on_device = |network: IpNet| DeviceAddress { device: VX_DEVICE.to_owned(), network };
        match change {
            VxlanChange::Make(vxlan) => {
                let there = observed.links.insert(VX_DEVICE.into(), link_of(vxlan));
                assert!(there.is_none(), "EEXIST");
                // Inherited from `default`, whatever that is.
                for (key, value) in [("rp_filter", 1), ("forwarding", 0)] {
                    observed.sysctls.insert(Sysctl::of(Family::V4, VX_DEVICE, key), value);
                }
            }
            VxlanChange::Adjust(vxlan) => {
                observed.links.insert(VX_DEVICE.into(), link_of(vxlan)).expect("ENODEV");
            }
            VxlanChange::Remove => {
                observed.links.remove(VX_DEVICE).expect("ENODEV");
                observed.routes.retain(|route| route.device.as_deref() != Some(VX_DEVICE));
                nexthops::without_device(observed);
                observed.addresses.retain(|address| address.device != VX_DEVICE);
                observed.sysctls.retain(|sysctl, _| sysctl.device != VX_DEVICE);
                (observed.forwards, observed.neighbours) = (BTreeSet::new(), BTreeMap::new());
            }
            VxlanChange::AddAddress(address) => {
                assert!(observed.addresses.insert(on_device(*address)), "EEXIST")
            }
            VxlanChange::RemoveAddress(address) => assert!(observed.addresses.remove(&on_device(*address))),
            VxlanChange::AddForward(entry) => {
                if entry.mac != Mac::ANY {
                    observed.forwards.retain(|there| there.mac != entry.mac);
                }
                observed.forwards.insert(*entry);
            }
            VxlanChange::RemoveForward(entry) => assert!(observed.forwards.remove(entry), "ENOENT {entry:?}"),
            VxlanChange::SetNeighbour(address, mac) => {
                observed.neighbours.insert(*address, *mac);
            }
            VxlanChange::RemoveNeighbour(address) => {
                observed.neighbours.remove(address).expect("ENOENT");
            }
        }
    }

    /// iptables, as far as we call it.
    fn foreign(there: &mut Foreign, change: &ForeignChange) {
        let ForeignChange::Iptables { backend, family, arguments } = change else { panic!("{change}") };
        let chains = &mut there.iptables.get_mut(&(*backend, *family)).unwrap().chains;
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        match &words[..] {
            ["-N", chain] => assert!(chains.insert((*chain).to_owned(), Vec::new()).is_none()),
            ["-X", chain] => assert!(chains.remove(*chain).unwrap().is_empty()),
            ["-A", chain, rule @ ..] => chains.get_mut(*chain).unwrap().push(rule.join(" ")),
            ["-I", chain, at, rule @ ..] => {
                let rules = chains.entry((*chain).to_owned()).or_default();
                rules.insert(at.parse::<usize>().unwrap() - 1, rule.join(" "));
            }
            ["-D", chain, rule @ ..] => {
                let rules = chains.get_mut(*chain).unwrap();
                let at = rules.iter().position(|there| *there == rule.join(" ")).expect("ENOENT");
                rules.remove(at);
            }
            other => panic!("{other:?}"),
        }
    }

    fn guard(there: ObservedGuard, change: &GuardChange) -> ObservedGuard {
        match (change, there) {
            (GuardChange::Remove, _) => ObservedGuard::Absent,
            (GuardChange::Build(guard), _) => ObservedGuard::Present(Table::of(guard)),
            (GuardChange::Restore(_), _) => panic!("no plan restores"),
            (GuardChange::Update { add, remove }, ObservedGuard::Present(there)) => {
                ObservedGuard::Present(crate::guard::updated(&there, add, remove))
            }
            (GuardChange::Update { .. }, _) => panic!("an update needs a table"),
        }
    }
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn device(name: &str) -> Hop {
    Hop::Device { name: name.into(), source: None }
}

/// A node with eth0 and a TUN.
fn live() -> Observed {
    let link = |index| Link { index, is_up: true, ..Link::default() };
    Observed {
        links: BTreeMap::from([("eth0".into(), link(2)), ("submariner".into(), link(3))]),
        ..Observed::default()
    }
}

fn desired() -> HostNet {
    let network = net("10.2.0.0/16");
    HostNet {
        rules: [Rule::mark(Family::V4), Rule::gateway(Family::V4)].into(),
        routes: [
            Route::gateway(network, device("submariner")),
            Route::unreachable(TABLE_GATEWAY, network),
            Route::unreachable(TABLE_MAIN, network),
        ]
        .into(),
        guard: Some(Guard::default()),
        ..HostNet::default()
    }
}

/// A few networks, so that wanted and present ones meet.
fn networks() -> impl Strategy<Value = IpNet> {
    prop::sample::select(vec![net("10.2.0.0/16"), net("10.3.0.0/16"), net("10.3.4.0/24"), net("fd00:2::/48")])
}

fn hops() -> impl Strategy<Value = Hop> {
    prop_oneof![Just(Hop::Throw), Just(device("submariner")), Just(device("eth0")), Just(device("gone"))]
}

fn via(network: &IpNet) -> Hop {
    let via = if network.addr().is_ipv4() { "240.31.1.21" } else { "fe80::54:acff:fe1f:115" };
    Hop::Via { name: VX_DEVICE.to_owned(), via: via.parse().unwrap(), source: None }
}

/// Some of the devices between nodes that a node may have or want.
fn vxlans() -> impl Strategy<Value = Vxlan> {
    let peers = btree_set(prop::sample::select(vec!["172.31.1.21", "172.31.1.22", "172.31.1.23"]), 0..3);
    let local = prop::sample::select(vec!["172.31.1.11", "172.31.1.12"]);
    (local, prop::sample::select(vec![1500, 9000]), peers).prop_map(|(local, mtu, peers)| {
        let mut vxlan = Vxlan::new(local.parse().unwrap(), mtu);
        for peer in peers {
            vxlan.add_peer(peer.parse().unwrap());
        }
        vxlan
    })
}

fn link_of(vxlan: &Vxlan) -> Link {
    let kind = VxlanLink { vni: 100, port: 4800, local: Some(vxlan.local), has_extras: false };
    Link { index: 9, is_up: true, mtu: vxlan.mtu, mac: Some(vxlan.mac()), vxlan: Some(kind) }
}

/// A device between nodes as it may be found: ours, upstream's, damaged, or something else.
#[derive(Debug, Clone)]
struct FoundVxlan(Vxlan, bool, bool, bool);

impl FoundVxlan {
    fn put_into(self, observed: &mut Observed) {
        let Self(vxlan, is_upstreams, is_foreign, is_down) = self;
        let mut link = link_of(&vxlan);
        link.is_up = !is_down;
        if let Some(kind) = &mut link.vxlan {
            kind.has_extras = is_upstreams;
            kind.vni = if is_foreign { 7 } else { 100 };
        }
        observed.links.insert(VX_DEVICE.into(), link);
        let on_device = |network| DeviceAddress { device: VX_DEVICE.to_owned(), network };
        observed.addresses.extend(vxlan.address().map(on_device));
        observed.sysctls.insert(Sysctl::of(Family::V4, VX_DEVICE, "rp_filter"), 0);
        (observed.forwards, observed.neighbours) = (vxlan.forwards, vxlan.neighbours);
    }
}

fn found_vxlans() -> impl Strategy<Value = Option<FoundVxlan>> {
    let found = (vxlans(), any::<bool>(), prop::bool::weighted(0.2), any::<bool>());
    prop::option::of(found.prop_map(|(vxlan, a, b, c)| FoundVxlan(vxlan, a, b, c)))
}

fn found_iptables() -> impl Strategy<Value = Vec<&'static str>> {
    let rules = prop::sample::subsequence(
        vec![
            "-j OTHER",
            "-m comment --comment trieste -j SUBMARINER-FORWARD",
            "-j SUBMARINER-FORWARD",
            "-j cali-FORWARD",
        ],
        0..4,
    );
    rules.prop_shuffle()
}

fn wanted_routes() -> impl Strategy<Value = Route> {
    prop_oneof![
        (networks(), prop::sample::select(vec![TABLE_GATEWAY, TABLE_MAIN]))
            .prop_map(|(network, table)| Route::unreachable(table, network)),
        (networks(), hops()).prop_map(|(network, hop)| Route::gateway(network, hop)),
        (networks(), prop::sample::select(vec![TABLE_DELIVERY, TABLE_MAIN]))
            .prop_map(|(network, table)| Route::leading(table, network, via(&network))),
    ]
}

fn guards() -> impl Strategy<Value = Guard> {
    (btree_set(networks(), 0..3), btree_set(1_u16..4, 0..3)).prop_map(|(remote, ports)| Guard {
        remote,
        ports,
        inlets: ["lo".to_owned()].into(),
        ..Guard::default()
    })
}

fn our_rules() -> impl Strategy<Value = Rule> {
    let ours = Family::ALL.iter().flat_map(|family| {
        [Rule::mark(*family), Rule::gateway(*family), Rule::delivery(*family, "submariner")]
    });
    prop::sample::select(ours.collect::<Vec<_>>())
}

fn ours(rule: Rule) -> ObservedRule {
    ObservedRule { rule, protocol: RULE_PROTOCOL }
}

fn hostnets() -> impl Strategy<Value = HostNet> {
    let routes = vec(wanted_routes(), 0..6).prop_map(|routes| {
        // A driver never wants two routes in one place.
        let by_place: BTreeMap<_, _> =
            routes.into_iter().map(|r| ((r.table, r.destination, r.metric), r)).collect();
        by_place.into_values().collect::<BTreeSet<Route>>()
    });
    (
        routes,
        btree_set(our_rules(), 0..4),
        prop::option::of(guards()),
        prop::option::of(vxlans()),
        any::<bool>(),
    )
        .prop_map(|(routes, rules, guard, vxlan, loosens)| {
            let loose = loosens.then(|| "eth0".to_owned()).into_iter().collect();
            let mut sysctls = BTreeMap::new();
            let mut pass = crate::hostnet::Pass::default();
            if vxlan.is_some() {
                sysctls.insert(Sysctl::of(Family::V4, VX_DEVICE, "rp_filter"), 2);
                pass.outward = [VX_DEVICE.to_owned()].into();
            }
            // The table of services comes with the device, of one inlet or two.
            let inlets = |vxlan: &Vxlan| [VX_DEVICE.to_owned(), vxlan.local.to_string()].into();
            let services = vxlan.as_ref().map_or_else(DesiredServices::default, |vxlan| {
                DesiredServices::Rules(ServiceRules { inlets: inlets(vxlan), ..ServiceRules::default() })
            });
            HostNet {
                sysctls,
                rules,
                routes,
                vxlan,
                loose_rp_filter: loose,
                guard,
                services,
                pass,
                ..HostNet::default()
            }
        })
}

fn observed_routes() -> impl Strategy<Value = ObservedRoute> {
    let metrics = prop::sample::select(vec![0, 1024, METRIC_FAIL_CLOSED, 7]);
    let kinds = prop::sample::select(vec![
        RouteKind::Unicast,
        RouteKind::Unreachable,
        RouteKind::Throw,
        RouteKind::Other(6),
    ]);
    let tables = prop::sample::select(vec![TABLE_GATEWAY, TABLE_MAIN, TABLE_DELIVERY]);
    let protocols = prop::sample::select(vec![4_u8, 3, 186]);
    (networks(), tables, metrics, kinds, protocols, 0..2_u8, any::<bool>()).prop_map(
        |(destination, table, metric, kind, protocol, tos, has_extras)| ObservedRoute {
            table,
            destination,
            metric,
            tos,
            protocol,
            scope: 0,
            kind,
            device: (kind == RouteKind::Unicast).then(|| "eth0".to_owned()),
            via: None,
            nexthop: None,
            source: None,
            mtu: None,
            has_extras,
        },
    )
}

fn observations() -> impl Strategy<Value = Observed> {
    let foreign_rule = Rule { priority: 100, family: Family::V4, mark: None, iif: None, table: 100 };
    let protocols = prop::sample::select(vec![RULE_PROTOCOL, 0, 4]);
    let rules = (prop_oneof![our_rules(), Just(foreign_rule)], protocols)
        .prop_map(|(rule, protocol)| ObservedRule { rule, protocol });
    let rules = vec(rules, 0..5);
    let guard = prop_oneof![
        Just(ObservedGuard::Absent),
        Just(ObservedGuard::Present(Table::default())),
        Just(ObservedGuard::Unknown),
        guards().prop_map(|guard| ObservedGuard::Present(Table::of(&guard)))
    ];
    let filters = (0..3_u32, 0..3_u32);
    (btree_set(observed_routes(), 0..8), rules, guard, found_vxlans(), found_iptables(), filters).prop_map(
        |(routes, rules, guard, vxlan, forward, (all, eth0))| {
            let mut observed = Observed { rules, routes: routes.into_iter().collect(), guard, ..live() };
            observed.sysctls.insert(reverse_path(), all);
            observed.sysctls.insert(Sysctl::of(Family::V4, "eth0", "rp_filter"), eth0);
            if let Some(found) = vxlan {
                found.put_into(&mut observed);
                for (network, table) in [("10.2.0.0/16", TABLE_MAIN), ("10.3.0.0/16", TABLE_DELIVERY)] {
                    let network = net(network);
                    let route = Route::leading(table, network, via(&network));
                    if !observed.routes.iter().any(|there| there.is_in_the_place_of(&route)) {
                        observed.routes.push(ObservedRoute::from_route(&route));
                    }
                }
            }
            let chains = [("FORWARD", forward), ("SUBMARINER-FORWARD", vec!["-o vx-submariner -j ACCEPT"])];
            let chains = chains
                .into_iter()
                .map(|(name, rules)| (name.to_owned(), rules.into_iter().map(str::to_owned).collect()));
            let iptables = crate::foreign::Iptables {
                hooks: [crate::nft::Hook::Forward].into(),
                chains: chains.collect(),
                ..crate::foreign::Iptables::default()
            };
            observed.foreign.iptables.insert((crate::foreign::Backend::Nft, Family::V4), iptables);
            observed
        },
    )
}

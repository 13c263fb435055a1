use serde_json::json;

use super::*;
use crate::change::Change;
use crate::guard::GuardChange;
use crate::leftover::{read_iptables, read_nft};
use crate::observed::{Link, ObservedRule, VxlanLink};
use crate::plan::tests::model;
use crate::plan::{Plan, plan};

/// What `iptables-save` printed on a gateway node after upstream's programs had ended.
const GATEWAY: &str = include_str!("../../tests/data/submariner/gateway.iptables");
const GLOBALNET: &str = include_str!("../../tests/data/submariner/globalnet.iptables");
/// The same after `subctl uninstall`.
const UNINSTALLED: &str = include_str!("../../tests/data/submariner/uninstalled.iptables");

/// Returns one table of a recording as `iptables -S` prints it.
fn listing(recorded: &str, table: Table) -> String {
    let lines = recorded.lines().skip_while(|line| *line != format!("*{}", table.name())).skip(1);
    let lines = lines.take_while(|line| *line != "COMMIT").map(|line| match line.strip_prefix(':') {
        Some(chain) if chain.contains(" - ") => format!("-N {}\n", chain.split(' ').next().unwrap()),
        Some(chain) => format!("-P {}\n", chain.rsplit_once(' ').unwrap().0),
        None => format!("{line}\n"),
    });
    lines.collect()
}

fn lines(recorded: &str, table: Table, takeover: Takeover) -> Vec<String> {
    removing(table, &read_iptables(&listing(recorded, table)), takeover)
}

#[test]
fn the_chains_of_upstreams_route_agent_go_with_what_leads_to_them_and_nothing_else() {
    let takeover = Takeover::Agent;
    let one = |chain: &str| {
        let (hook, name) = (chain.trim_start_matches("SUBMARINER-"), chain);
        [format!("-D {hook} -j {name}"), format!("-F {name}"), format!("-X {name}")]
    };
    assert_eq!(lines(GATEWAY, Table::Nat, takeover), one("SUBMARINER-POSTROUTING"));
    assert_eq!(lines(GATEWAY, Table::Mangle, takeover), one("SUBMARINER-POSTROUTING"));
    // Chains of these names are ours, too.
    assert_eq!(
        lines(GATEWAY, Table::Filter, takeover),
        [
            "-D INPUT -p udp -m udp -j SUBMARINER-INPUT",
            "-D FORWARD -j SUBMARINER-FORWARD",
            "-D SUBMARINER-FORWARD -o vx-submariner -j ACCEPT",
            "-D SUBMARINER-INPUT -p udp -m udp --dport 4800 -j ACCEPT",
        ]
    );
    assert_eq!(
        lines(UNINSTALLED, Table::Filter, takeover),
        ["-D FORWARD -j SUBMARINER-FORWARD", "-D SUBMARINER-FORWARD -o vx-submariner -j ACCEPT"]
    );
    assert!(lines(UNINSTALLED, Table::Nat, takeover).is_empty());
}

#[test]
fn rules_of_ours_in_chains_of_these_names_stay() {
    let ours = "-N SUBMARINER-FORWARD\n-A FORWARD -m comment --comment trieste -j SUBMARINER-FORWARD\n-A SUBMARINER-FORWARD -o vx-submariner -m comment --comment trieste -j ACCEPT\n";
    let chains = read_iptables(ours);
    assert!(!chains.rules.is_empty());
    assert!(removing(Table::Filter, &chains, Takeover::Gateway).is_empty());
}

#[test]
fn the_chains_of_upstreams_globalnet_go_once_the_gateway_is_ours() {
    assert!(lines(GLOBALNET, Table::Nat, Takeover::Agent).is_empty());
    let lines = lines(GLOBALNET, Table::Nat, Takeover::Gateway);
    assert_eq!(
        lines[..2],
        ["-D PREROUTING -j SUBMARINER-GN-INGRESS", "-D POSTROUTING -j SUBMARINER-POSTROUTING"]
    );
    // Every chain is emptied before any is removed: they lead to each other.
    let removed: Vec<&String> = lines.iter().filter(|line| line.starts_with("-X")).collect();
    assert_eq!(removed.len(), 9, "{lines:?}");
    let first = lines.iter().position(|line| line.starts_with("-X")).unwrap();
    assert!(lines[first..].iter().all(|line| line.starts_with("-X")), "{lines:?}");
    // What kube-proxy made for the internal service is Kubernetes' own.
    assert!(!lines.iter().any(|line| line.contains("DNAT") || line.contains("MASQUERADE")), "{lines:?}");
}

#[test]
fn a_chain_is_recognised_by_its_name_and_a_rule_by_its_target() {
    let chains = read_iptables(
        "-A FORWARD -m comment --comment \"not -j SUBMARINER-X\" -j OTHER\n-N SUBMARINE\n-A FORWARD -g SUBMARINER-INPUT\n",
    );
    assert!(chains.rules.is_empty());
    assert_eq!(chains.jumps, [("FORWARD".to_owned(), "-g SUBMARINER-INPUT".to_owned())]);
    for nonsense in ["", "-A", "-A SUBMARINER-X", "-N", "\n\n", "-A X -j"] {
        assert!(read_iptables(nonsense).jumps.is_empty());
    }
}

#[test]
fn chains_of_nftables_are_told_apart_by_their_table_and_name() {
    let chain = |family: &str, table: &str, name: &str| json!({"chain": {"family": family, "table": table, "name": name}});
    let listing = json!({"nftables": [
        chain("ip", "submariner", "postrouting"), chain("ip", "nat", "POSTROUTING"),
        chain("ip", "nat", "SUBMARINER-POSTROUTING"), chain("inet", "submariner", "x"), {"metainfo": {}},
    ]});
    let found = read_nft(&listing);
    let names = |table: &str| found.get(&(Family::V4, table.to_owned())).cloned().unwrap_or_default();
    assert_eq!(names("submariner"), ["postrouting".to_owned()].into());
    assert_eq!(names("nat"), ["SUBMARINER-POSTROUTING".to_owned()].into());
    assert_eq!(found.len(), 2);
}

#[test]
fn everything_is_removed_by_one_plan_and_what_belongs_to_a_living_gateway_stays() {
    let all = everything();
    let count = |takeover| {
        let desired = desired(takeover);
        let planned = planned(&desired, &all);
        let after = model::apply(all.clone(), &planned);
        let again = self::planned(&desired, &after).changes;
        assert!(again.is_empty(), "{takeover:?}: {again:?}");
        (planned.changes.iter().filter(|change| matches!(change, Change::Takeover(_))).count(), after)
    };
    let (of_agent, after) = count(Takeover::Agent);
    assert_eq!(of_agent, 5, "{:?}", removals(&desired(Takeover::Agent), &all, Takeover::Agent));
    assert!(after.links.contains_key("vxlan-tunnel") && after.leftover.policies.len() == 2);
    assert!(after.rules.iter().any(|there| there.rule == Rule::upstream_cable(Family::V4)));
    let (of_cables, after) = count(Takeover::Elsewhere);
    // Of a gateway that is not active: rule, device and policies.
    assert_eq!(of_cables, of_agent + 3);
    assert!(after.leftover.sets.iter().any(|set| set.starts_with("SM-GN")), "globalnet may run");
    let (of_gateway, after) = count(Takeover::Gateway);
    assert_eq!(of_gateway, 10, "{:?}", removals(&desired(Takeover::Gateway), &all, Takeover::Gateway));
    // Somebody else's.
    assert_eq!(after.leftover.policies.len(), 1);
    assert!(
        removals(&HostNet::default(), &all, Takeover::Nothing).is_empty(),
        "uninstalling leaves upstream's things alone"
    );
}

#[test]
fn upstreams_rule_to_the_gateway_table_is_replaced_without_a_moment_between() {
    let rule = Rule::gateway(Family::V4);
    let mut desired = desired(Takeover::Agent);
    desired.rules.insert(rule.clone());
    let theirs = ObservedRule { rule: rule.clone(), protocol: 0 };
    let mut observed = Observed { rules: vec![theirs], ..Observed::default() };
    let replaced = |is_wanted| vec![Removal::Rule { rule: rule.clone(), is_wanted }];
    assert_eq!(removals(&desired, &observed, Takeover::Agent), replaced(true));
    observed.rules.push(ObservedRule { rule: rule.clone(), protocol: crate::constants::RULE_PROTOCOL });
    assert_eq!(removals(&desired, &observed, Takeover::Agent), replaced(true));
    observed.rules.remove(0);
    assert!(removals(&desired, &observed, Takeover::Agent).is_empty());
}

#[test]
fn nothing_goes_before_the_filter_of_ours_is_in_place() {
    let planned = planned(&desired(Takeover::Gateway), &everything());
    let guard = planned.changes.iter().position(|change| matches!(change, Change::Guard(_))).unwrap();
    let first = planned.changes.iter().position(|change| matches!(change, Change::Takeover(_))).unwrap();
    assert!(guard < first);
    assert!(planned.changes[first..].iter().all(Change::needs_guard));
}

/// Returns a pass's plan.
fn planned(desired: &HostNet, observed: &Observed) -> Plan {
    let mut planned = plan(desired, observed);
    planned.changes.extend(removals(desired, observed, desired.takeover).into_iter().map(Change::Takeover));
    planned
}

#[test]
fn uplinks_are_closed_with_the_filter_unless_the_node_moves_over() {
    let mut desired = desired(Takeover::Agent);
    desired.guard.as_mut().unwrap().uplinks = ["eth0".to_owned()].into();
    let steps = |observed: &Observed| {
        let changes = plan(&desired, observed).changes;
        let of_filter = changes.iter().filter_map(|change| {
            let Change::Guard(change) = change else { return None };
            match change {
                GuardChange::Build(guard) => Some(guard.uplinks.len()),
                GuardChange::Update { add, .. } => Some(10 + add["uplinks"].len()),
                GuardChange::Restore(_) | GuardChange::Remove => None,
            }
        });
        of_filter.collect::<Vec<_>>()
    };
    assert_eq!(steps(&everything()), [0, 11]);
    // Ours alone: somebody has removed our table, or the machine was started.
    let mut ours = Observed::default();
    let listing = "-N SUBMARINER-FORWARD\n-A FORWARD -m comment --comment trieste -j SUBMARINER-FORWARD\n-A SUBMARINER-FORWARD -o vx-submariner -m comment --comment trieste -j ACCEPT\n";
    ours.leftover.iptables.insert((Backend::Nft, Family::V4, Table::Filter), read_iptables(listing));
    let names = ["SUBMARINER-FORWARD".to_owned()].into();
    ours.leftover.chains.insert((Family::V4, "filter".to_owned()), names);
    assert_eq!(steps(&ours), [1]);
    let mut there = everything();
    let guard = Guard { uplinks: ["eth0".to_owned()].into(), ..Guard::default() };
    there.guard = ObservedGuard::Present(crate::guard::Table::of(&Guard { clamp: Some(1300), ..guard }));
    assert_eq!(steps(&there), [1]);
}

fn desired(takeover: Takeover) -> HostNet {
    let nets = |text: &str| [text.parse().unwrap()].into();
    let guard = Guard { local: nets("10.2.0.0/16"), remote: nets("10.1.0.0/16"), ..Guard::default() };
    HostNet { guard: Some(guard), takeover, ..HostNet::default() }
}

/// What a gateway's node of upstream's with globalnet, and IPsec before that, has.
fn everything() -> Observed {
    let mut observed = Observed::default();
    let left = &mut observed.leftover;
    for (recorded, table) in [(GATEWAY, Table::Mangle), (GATEWAY, Table::Filter), (GLOBALNET, Table::Nat)] {
        let chains = read_iptables(&listing(recorded, table));
        left.iptables.insert((Backend::Nft, Family::V4, table), chains);
    }
    left.chains.insert((Family::V6, "submariner".to_owned()), ["forward".to_owned()].into());
    left.sets = ["SUBMARINER-LOCALCIDRS", "SM-GN-HRPMITVCAUZHJWIHTKTKHSW2N"].map(str::to_owned).into();
    let policy = |index, source: &str, destination: &str| IpsecPolicy {
        index,
        direction: 1,
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
    };
    let between = policy(9, "10.2.0.0/16", "10.1.0.0/16");
    left.policies = [between, policy(17, "10.2.0.0/16", "192.0.2.0/24")].into();
    let theirs = |rule| ObservedRule { rule, protocol: 0 };
    observed.rules = vec![theirs(Rule::upstream_cable(Family::V4)), theirs(Rule::gateway(Family::V4))];
    let vxlan = Some(VxlanLink { vni: 1000, port: 4500, ..VxlanLink::default() });
    observed.links.insert("vxlan-tunnel".into(), Link { vxlan, ..Link::default() });
    observed
}

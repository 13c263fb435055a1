use super::*;

const JUMP: &str = "-m comment --comment trieste -j SUBMARINER-FORWARD";
const OUT: &str = "-o vx-submariner -m comment --comment trieste -j ACCEPT";
const IN: &str = "-i vx-submariner -m comment --comment trieste -j ACCEPT";

#[test]
fn a_table_of_iptables_gets_upstreams_chains_with_the_jump_in_the_first_place() {
    assert_eq!(
        commands(&pass(), &table(&[("FORWARD", &["-j OTHER"])])),
        [
            "-N SUBMARINER-FORWARD".to_owned(),
            format!("-A SUBMARINER-FORWARD {OUT}"),
            format!("-A SUBMARINER-FORWARD {IN}"),
            format!("-I FORWARD 1 {JUMP}"),
        ]
    );
}

#[test]
fn what_is_as_wanted_is_left_alone_and_a_jump_that_slid_down_is_put_first_again() {
    let chain = ("SUBMARINER-FORWARD", &[OUT, IN][..]);
    assert!(commands(&pass(), &table(&[("FORWARD", &[JUMP, "-j OTHER"]), chain])).is_empty());
    assert_eq!(
        commands(&pass(), &table(&[("FORWARD", &["-j OTHER", JUMP]), chain])),
        [format!("-D FORWARD {JUMP}"), format!("-I FORWARD 1 {JUMP}")]
    );
}

#[test]
fn what_decides_which_pods_may_talk_keeps_its_place_and_its_say() {
    let mut table = table(&[("FORWARD", &["-m comment --comment x -j cali-FORWARD", "-j OTHER"])]);
    table.has_policy_engine = true;
    let commands = commands(&pass(), &table);
    assert!(commands.contains(&format!("-I FORWARD 2 {JUMP}")), "{commands:?}");
    assert!(!commands.iter().any(|command| command.contains(IN)));
}

#[test]
fn what_decides_which_pods_may_talk_is_asked_first_wherever_its_jump_is() {
    let mut table = table(&[("FORWARD", &["-j KUBE-FORWARD", JUMP, "-j KUBE-ROUTER-FORWARD", "-j OTHER"])]);
    table.has_policy_engine = true;
    let wanted = [format!("-D FORWARD {JUMP}"), format!("-I FORWARD 3 {JUMP}")];
    assert!(commands(&pass(), &table).ends_with(&wanted), "{:?}", commands(&pass(), &table));
    table.chains.insert(
        "FORWARD".into(),
        ["-j KUBE-FORWARD", "-j KUBE-ROUTER-FORWARD", JUMP, "-j OTHER"].map(str::to_owned).into(),
    );
    assert!(!commands(&pass(), &table).iter().any(|command| command.contains("FORWARD 3")));
}

#[test]
fn a_comment_that_names_such_a_chain_leads_nowhere() {
    assert!(is_policy_engines("-m comment --comment \"to the pods\" -j cali-FORWARD"));
    assert!(!is_policy_engines("-m comment --comment \"was -j cali-FORWARD\" -j OTHER"));
}

#[test]
fn a_table_that_firewalld_owns_is_left_alone_and_told() {
    let table = |flags: &str| {
        format!("table inet firewalld {{ # progname firewalld\n\t{flags}\n\n\tchain owner {{\n")
    };
    assert!(is_owned(&table("flags owner")) && is_owned(&table("flags owner,persist")));
    assert!(!is_owned(&table("flags dormant")) && !is_owned(&table("")));
    let there = Foreign { is_firewalld_owned: true, ..firewalld(&[]) };
    let (changes, conditions) = foreign_changes(&pass(), &there);
    assert_eq!((changes, conditions), (Vec::new(), [Condition::FirewalldOwned].into()));
    assert!(foreign_changes(&Pass::default(), &there).1.is_empty());
}

#[test]
fn a_fight_for_the_front_of_a_chain_is_the_same_again_whatever_the_rules_numbers_are() {
    let change = |handle| ForeignChange::Firewalld {
        hook: Hook::Forward,
        remove: vec![handle],
        insert: vec![json!([{"accept": null}])],
    };
    assert!(change(7).repeats(&change(9)) && change(7) != change(9));
}

#[test]
fn removing_leaves_what_is_not_ours_and_the_chain_if_that_is_in_use() {
    let none = Pass::default();
    let ours = ("FORWARD", &[JUMP, "-j OTHER"][..]);
    assert_eq!(
        commands(&none, &table(&[ours, ("SUBMARINER-FORWARD", &[OUT])])),
        [
            format!("-D FORWARD {JUMP}"),
            format!("-D SUBMARINER-FORWARD {OUT}"),
            "-X SUBMARINER-FORWARD".to_owned()
        ]
    );
    let upstreams = "-o vx-submariner -j ACCEPT";
    assert_eq!(
        commands(
            &none,
            &table(&[("FORWARD", &["-j SUBMARINER-FORWARD"]), ("SUBMARINER-FORWARD", &[upstreams])])
        ),
        [] as [String; 0]
    );
}

#[test]
fn nothing_is_put_where_no_base_chain_is() {
    assert!(commands(&pass(), &Iptables::default()).is_empty());
}

#[test]
fn firewalld_gets_its_rules_at_the_front_once() {
    let (changes, _) = foreign_changes(&pass(), &firewalld(&[]));
    let [ForeignChange::Firewalld { remove, insert, .. }] = &changes[..] else { panic!("{changes:?}") };
    assert!(remove.is_empty());
    assert_eq!(insert.len(), 2);
    let rendered = render(&changes[0]).unwrap().to_tree();
    assert_eq!(rendered["nftables"][2]["insert"]["rule"]["expr"], insert[0]);

    assert!(foreign_changes(&pass(), &firewalld(insert)).0.is_empty());
    let (changes, _) = foreign_changes(&Pass::default(), &firewalld(insert));
    assert!(
        matches!(&changes[..], [ForeignChange::Firewalld { remove, insert, .. }] if remove.len() == 2 && insert.is_empty())
    );
    let there = Foreign { firewalld: [(Hook::Prerouting, Vec::new())].into(), ..Foreign::default() };
    let (changes, _) = foreign_changes(&pass(), &there);
    let [ForeignChange::Firewalld { hook: Hook::Prerouting, insert, .. }] = &changes[..] else {
        panic!("{changes:?}")
    };
    assert_eq!(insert.len(), 1, "what comes in by the device, whatever way its answers take");
}

#[test]
fn a_chain_that_drops_and_takes_nothing_of_ours_is_named() {
    let chain = BaseChain {
        family: "inet".into(),
        table: "corporate".into(),
        name: "fwd".into(),
        hook: Hook::Forward,
        drops: true,
    };
    let there = Foreign { base_chains: [chain].into(), ..Foreign::default() };
    let (_, conditions) = foreign_changes(&pass(), &there);
    let text = conditions.iter().map(ToString::to_string).collect::<String>();
    assert!(text.contains("inet corporate") && text.contains("fwd"), "{text}");
    assert!(foreign_changes(&Pass::default(), &there).1.is_empty());
}

#[test]
fn chains_that_may_translate_sources_before_ours_are_read_and_no_others() {
    let chain = |table: &str, kind: &str, hook: &str, priority: i32| {
        json!({"chain": {"family": "inet", "table": table, "name": "c", "type": kind, "hook": hook, "prio": priority,
                         "policy": "accept"}})
    };
    let listing = json!({"nftables": [
        {"metainfo": {}},
        chain("trieste", "nat", "postrouting", -199),
        chain("first", "nat", "postrouting", -199),
        chain("second", "nat", "postrouting", -198),
        chain("towards", "nat", "prerouting", -199),
        chain("filter", "filter", "postrouting", -300),
        {"chain": {"family": "inet", "table": "first", "name": "no-base"}},
        {"chain": {"family": "bridge", "table": "first", "name": "c", "type": "nat", "hook": "postrouting", "prio": -199}},
    ]});
    let first = SourceNat { family: "inet".into(), table: "first".into(), name: "c".into(), priority: -199 };
    assert_eq!(read_earlier(&listing), [first].into());
}

#[test]
fn the_older_half_of_the_kernel_is_told_where_it_filters_and_helped_as_the_newer_one() {
    let listing = |policy: &str, rules: &str| {
        format!("-P INPUT ACCEPT\n-P FORWARD {policy}\n-N SUBMARINER-FORWARD\n{rules}")
    };
    let ours = format!("-A FORWARD {JUMP}\n-A SUBMARINER-FORWARD {OUT}\n-A SUBMARINER-FORWARD {IN}\n");
    let told = |backend, listing: &str| {
        let mut there = Foreign::default();
        there.iptables.insert((backend, Family::V4), read_iptables(listing));
        foreign_changes(&pass(), &there)
    };
    let legacy = [Condition::LegacyIptables(Family::V4)].into();
    let (changes, conditions) = told(Backend::Legacy, &listing("DROP", ""));
    assert!(
        changes[0].to_string().starts_with("iptables (IPv4, legacy) -A SUBMARINER-FORWARD"),
        "{}",
        changes[0]
    );
    assert_eq!(conditions, legacy);
    assert_eq!(told(Backend::Legacy, &listing("DROP", &ours)), (Vec::new(), legacy.clone()));
    assert_eq!(told(Backend::Legacy, &listing("ACCEPT", "-A INPUT -s 192.0.2.1/32 -j DROP\n")).1, legacy);
    // A table that somebody has only looked at, and the newer half, whose rules anybody sees.
    assert!(told(Backend::Legacy, &listing("ACCEPT", &ours)).1.is_empty());
    assert!(told(Backend::Nft, &listing("DROP", &ours)).1.is_empty());
}

fn pass() -> Pass {
    let device = || ["vx-submariner".to_owned()].into();
    Pass { outward: device(), inward: device(), ports: BTreeSet::new() }
}

fn table(chains: &[(&str, &[&str])]) -> Iptables {
    let chains = chains
        .iter()
        .map(|(name, rules)| ((*name).to_owned(), rules.iter().map(|rule| (*rule).to_owned()).collect()));
    Iptables { hooks: [Hook::Forward].into(), chains: chains.collect(), ..Iptables::default() }
}

fn commands(pass: &Pass, table: &Iptables) -> Vec<String> {
    iptables_commands(Hook::Forward, pass, table).into_iter().map(|words| words.join(" ")).collect()
}

fn firewalld(ours: &[Value]) -> Foreign {
    let rule = |(at, expr): (usize, &Value)| NftRule {
        handle: 10 + at as u64,
        comment: COMMENT.to_owned(),
        expr: expr.clone(),
    };
    let mut rules: Vec<NftRule> = ours.iter().enumerate().map(rule).collect();
    rules.push(NftRule { handle: 1, comment: String::new(), expr: json!([{"accept": null}]) });
    Foreign { firewalld: [(Hook::Forward, rules)].into(), ..Foreign::default() }
}

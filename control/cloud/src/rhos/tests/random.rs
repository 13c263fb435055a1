//! From any state: a preparation ends, a second one has nothing to do, and its end leaves what was there before.

use proptest::prelude::*;

use super::*;
use crate::rules::Ports;

/// How a start differs from a fresh cluster.
#[derive(Debug, Clone)]
struct Start {
    is_openshift: bool,
    /// Whether upstream's tool was here, and whether with its internal group.
    upstream: Option<bool>,
    /// Whether a preparation of ours was here, for what, and how many of its writes were made before it was interrupted.
    earlier: Option<(Wanted, usize)>,
    /// Rules of others: in which group, for which port, from which group.
    rules: Vec<(usize, u16, Option<usize>)>,
    /// Nodes that somebody has labelled.
    labelled: Vec<bool>,
    /// Ports without port security.
    unguarded: Vec<bool>,
    world: (usize, u32, u32, u32, bool),
}

fn some_wanted() -> impl Strategy<Value = Wanted> {
    let port = prop_oneof![Just(4500_u16), Just(4600), Just(0)];
    let vxlan = prop_oneof![Just(4800_u16), Just(0), Just(4810), Just(u16::MAX)];
    let sources = prop_oneof![
        Just(crate::rules::everywhere()),
        Just(vec!["203.0.113.0/24".parse().unwrap(), "203.0.113.9/24".parse().unwrap()]),
        Just(vec!["2001:db8::/32".parse().unwrap()]),
        Just(Vec::new()),
    ];
    let instance = prop::option::of(prop_oneof![Just("m1.large".to_owned()), Just("m1.xlarge".to_owned())]);
    (port, vxlan, sources, 0..4_usize, any::<bool>(), instance).prop_map(
        |(natt, vxlan, sources, gateways, load_balancer, instance)| Wanted {
            ports: Ports { natt, vxlan, ..Ports::default() },
            sources,
            gateways,
            instance,
            load_balancer,
        },
    )
}

fn some_start() -> impl Strategy<Value = Start> {
    let rule = (0..4_usize, prop_oneof![Just(4800_u16), Just(4500), Just(53)], prop::option::of(0..4_usize));
    let world = (
        0..4_usize,
        prop_oneof![Just(0_u32), Just(3), Just(7)],
        prop_oneof![Just(0_u32), Just(5)],
        0..4_u32,
        any::<bool>(),
    );
    (
        any::<bool>(),
        prop::option::of(any::<bool>()),
        prop::option::of((some_wanted(), 0..40_usize)),
        prop::collection::vec(rule, 0..4),
        prop::collection::vec(any::<bool>(), 3),
        prop::collection::vec(prop::bool::weighted(0.2), 3),
        world,
    )
        .prop_map(|(is_openshift, upstream, earlier, rules, labelled, unguarded, world)| Start {
            is_openshift,
            upstream,
            earlier,
            rules,
            labelled,
            unguarded,
            world,
        })
}

impl Start {
    /// The cluster before any preparation.
    fn fresh(&self) -> World {
        let mut world = if self.is_openshift { openshift() } else { kubernetes() };
        let groups: Vec<String> = world.groups.keys().cloned().collect();
        for (group, port, from) in &self.rules {
            let group = &groups[group % groups.len()];
            let mut rule = json!({"security_group_id": group, "direction": "ingress", "ethertype": "IPv4", "protocol": "udp",
                "port_range_min": port, "port_range_max": port});
            match from {
                Some(from) => rule["remote_group_id"] = json!(groups[from % groups.len()]),
                None => rule["remote_ip_prefix"] = json!("10.0.0.0/8"),
            }
            world.add_rule(&rule);
        }
        for (node, _) in world.nodes.values_mut().zip(&self.labelled).filter(|(_, is_labelled)| **is_labelled)
        {
            node["metadata"]["labels"]["submariner.io/gateway"] = json!("true");
        }
        for (port, _) in
            world.ports.values_mut().zip(&self.unguarded).filter(|(_, is_unguarded)| **is_unguarded)
        {
            port["port_security_enabled"] = json!(false);
            port["security_groups"] = json!([]);
        }
        let (page, busy_every, token_uses, races, is_old) = self.world;
        World { page, busy_every, token_uses, races, is_old, ..world }
    }
}

async fn check(start: Start, goal: Wanted) {
    let mut world = start.fresh();
    let before = Played::new(world.clone()).snapshot();
    if let Some(with_internal) = start.upstream {
        prepare_as_upstream(&mut world, with_internal);
        for port in world.ports.values_mut().filter(|port| port["port_security_enabled"] == false) {
            port["security_groups"] = json!([]);
        }
    }
    let played = Played::new(world);
    if let Some((earlier, changes)) = &start.earlier {
        interrupted(&played, &Goal::Prepare(earlier.clone()), *changes).await;
    }
    reach(&played, &Goal::Prepare(goal.clone())).await.unwrap();
    let (prepared, writes) = (played.snapshot(), played.world().writes);
    assert_eq!(reach(&played, &Goal::Prepare(goal)).await.unwrap().0, 0);
    assert_eq!((played.snapshot(), played.world().writes), (prepared, writes));
    reach(&played, &Goal::CleanUp).await.unwrap();
    assert_eq!(played.snapshot(), before);
    assert_eq!(reach(&played, &Goal::CleanUp).await.unwrap().0, 0);
}

/// Makes no more than so many changes of a preparation.
async fn interrupted(played: &Played, goal: &Goal, mut changes: usize) {
    use crate::provider::{Change as _, Provider as _};
    let server = played.server();
    let infra_id = played.world().sets.is_none().then_some("east");
    let rhos = Rhos::new(played.clone(), &server, settings("robot", infra_id));
    for _ in 0..3 {
        let plan = run::plan(&rhos, goal).await.unwrap();
        for change in plan.changes.iter().filter(|change| !change.waits()) {
            if changes == 0 {
                return;
            }
            changes -= 1;
            rhos.apply(change).await.unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn every_preparation_ends_and_leaves_nothing(start in some_start(), goal in some_wanted()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(check(start, goal));
    }

    #[test]
    fn no_clouds_yaml_panics(text in "\\PC{0,80}", fields in "[a-z_]{1,12}: [a-z0-9:/@'\\[{]{0,20}") {
        let _ = Credentials::from_clouds(&text, "x");
        let _ = Credentials::from_clouds(&format!("clouds:\n  x:\n    auth:\n      auth_url: https://k\n      {fields}\n"), "x");
        let _ = crate::metadata::read(&text);
    }
}

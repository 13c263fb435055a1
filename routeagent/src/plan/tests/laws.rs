//! What holds for every plan.

use std::panic::{AssertUnwindSafe, catch_unwind};

use proptest::prelude::*;
use trieste_reconcile::Host;
use trieste_reconcile::laws::{Model, check};

use super::strategies::{hostnets, observations};
use super::*;

/// The kernel of `model.rs`, which refuses what a kernel refuses.
#[derive(Debug, Clone)]
struct Kernel(Observed);

impl Host for Kernel {
    type Wanted = HostNet;
    type Observed = Observed;
    type Change = Change;
    type Error = &'static str;

    fn observe(&self) -> Result<Observed, &'static str> {
        Ok(self.0.clone())
    }

    fn plan(wanted: &HostNet, observed: &Observed) -> Vec<Change> {
        plan(wanted, observed).changes
    }

    fn apply(&mut self, change: &Change) -> Result<(), &'static str> {
        if needed_device(change).is_some_and(|device| !self.0.links.contains_key(device)) {
            return Err("no such device");
        }
        let (before, one) = (self.0.clone(), Plan { changes: vec![change.clone()], ..Plan::default() });
        self.0 = catch_unwind(AssertUnwindSafe(|| model::apply(before, &one))).map_err(|_| "refused")?;
        Ok(())
    }

    fn waits(change: &Change, failed: &[Change]) -> bool {
        change.needs_guard() && failed.iter().any(|failed| matches!(failed, Change::Guard(_)))
    }
}

/// Returns the device that has to be there for a change.
fn needed_device(change: &Change) -> Option<&str> {
    match change {
        Change::BetweenNodes(VxlanChange::Make(_)) => None,
        Change::BetweenNodes(_) => Some(VX_DEVICE),
        Change::AddRoute(route) | Change::ReplaceRoute(route) => route.hop.device(),
        Change::Set(sysctl, _) if sysctl.device == VX_DEVICE => Some(VX_DEVICE),
        Change::Set(..)
        | Change::RemoveRoute(_)
        | Change::AddRule(_)
        | Change::RemoveRule(_)
        | Change::Guard(_)
        | Change::Services(_)
        | Change::Clusterset(_)
        | Change::Foreign(_)
        | Change::Nexthops(_)
        | Change::Takeover(_) => None,
    }
}

impl Model for Kernel {
    type Foreign = (Vec<ObservedRoute>, Vec<ObservedRule>);

    fn foreign(&self) -> Self::Foreign {
        let mut routes: Vec<_> = self.0.routes.iter().filter(|route| !route.is_ours()).cloned().collect();
        let mut rules: Vec<_> = self.0.rules.iter().filter(|rule| !rule.is_ours()).cloned().collect();
        routes.sort();
        rules.sort();
        (routes, rules)
    }

    fn ours(&self) -> Vec<String> {
        let routes = self.0.routes.iter().filter(|route| route.is_ours()).map(|route| format!("{route:?}"));
        let rules = self.0.rules.iter().filter(|rule| rule.is_ours()).map(|rule| format!("{rule:?}"));
        let guard = matches!(self.0.guard, ObservedGuard::Present(_)).then(|| "guard".to_owned());
        routes.chain(rules).chain(guard).collect()
    }
}

proptest! {
    // Each makes some ten passes.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn plans_keep_the_laws_of_every_reconciler(
        desired in hostnets(), observed in observations(), number in any::<usize>(),
    ) {
        prop_assert_eq!(check(&Kernel(observed), &desired, number), Ok(()));
    }
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

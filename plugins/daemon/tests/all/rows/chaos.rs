//! What others do to the database, and what happens to its server, while the controller keeps it as it should be.

use std::time::{Duration, Instant};

use trieste_ovn::Rows;
use trieste_ovn::condition::Condition;
use trieste_ovn::controller::{Controller, Next, State};
use trieste_ovn::wanted::RouteKind;
use trieste_ovsdb::outcome::{Failure, TransactError};
use trieste_ovsdb::schema::Version;

use crate::rows::ovn::{Addresses, Ovn, golden};
use crate::rows::submariner_router::without_guards;
use crate::rows::support::{Facts, remove_all, route};

/// How long the controller waits after a failure; time is counted, not spent.
const DELAY: Duration = Duration::from_secs(1);
/// A schema that will do.
const SCHEMA: Option<Version> = Some(Version(7, 0, 0));

/// Repeatable randomness (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % bound as u64).unwrap()
    }
}

/// A controller and its clock.
struct Driver {
    controller: Controller,
    now: Instant,
}

impl Driver {
    fn new() -> Self {
        Self { controller: Controller::new(), now: Instant::now() }
    }

    /// Does what the controller asks for until it waits for a change; `interfere` is called before each transaction with how
    /// many there were. Returns how many were sent.
    fn run(&mut self, ovn: &mut Ovn, facts: &Facts, mut interfere: impl FnMut(&mut Ovn, usize)) -> usize {
        let wanted = facts.wanted();
        let mut sent = 0;
        self.controller.handle_change();
        loop {
            assert!(sent < 100, "no end: {:?}", self.controller.conditions());
            let (rows, chassis) = (ovn.rows(), ovn.chassis());
            let state = State { wanted: Some(&wanted), rows: &rows, chassis: &chassis, schema: SCHEMA };
            match self.controller.poll_transaction(&state, self.now) {
                Next::Transact(transaction) => {
                    interfere(ovn, sent);
                    sent += 1;
                    let outcome = ovn.transact(&transaction);
                    if outcome == Err(TransactError::NotConnected) {
                        ovn.start_northbound();
                    }
                    self.controller.handle_outcome(outcome.as_ref().copied(), self.now, DELAY);
                    self.controller.handle_change();
                }
                Next::AwaitRetry(at) => self.now = at,
                Next::AwaitChange => return sent,
                Next::AwaitOutcome => panic!("every outcome was given"),
            }
        }
    }
}

/// Runs one pass that has to send nothing, and looks that the server wrote nothing.
fn quiet(driver: &mut Driver, ovn: &mut Ovn, facts: &Facts) {
    ovn.sync();
    let before = ovn.written();
    assert_eq!(driver.run(ovn, facts, |_, _| {}), 0, "transactions of the second pass");
    assert_eq!(ovn.written(), before, "bytes of the database's log");
}

#[test]
fn plugin_ovn_random_deletions_are_repaired() {
    let mut ovn = Ovn::start();
    ovn.add_kubernetes(&["node1"], Addresses::V4);
    let facts = Facts::proposal();
    let mut driver = Driver::new();
    driver.run(&mut ovn, &facts, |_, _| {});
    let harm = [
        "lr-del submariner_router",
        "ls-del submariner_join",
        "lrp-del subm_ext_port",
        "lrp-del subm_join_port",
        "lrp-del ovn_cluster_submariner_port",
        "lsp-del subm_ext_sw_port",
        "lsp-del subm_join_sw_port",
        "lsp-del ovn_cluster_sw_submariner_port",
        "lr-policy-del ovn_cluster_router 10",
        "lr-policy-del ovn_cluster_router 9",
        "lr-route-del submariner_router",
        "lr-route-del submariner_router 10.128.0.0/14",
        "lrp-del-gateway-chassis subm_ext_port node1-chassis",
        "lrp-set-gateway-chassis subm_ext_port node1-chassis 3",
        "set Logical_Router_Port subm_ext_port networks=169.254.33.99/24",
        "set Logical_Switch_Port subm_join_sw_port type=localport",
        "lsp-set-options ovn_cluster_sw_submariner_port router-port=nowhere",
    ];
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    let mut random = Random(seed);
    for round in 0..25 {
        for _ in 0..=random.below(4) {
            // A row that an earlier command took along is no failure of this one.
            ovn.try_nbctl(harm[random.below(harm.len())]);
        }
        driver.run(&mut ovn, &facts, |_, _| {});
        assert_eq!(without_guards(&ovn.dump()), golden(), "seed {seed}, round {round}");
        quiet(&mut driver, &mut ovn, &facts);
    }
}

/// Upstream's topology with so many networks that it takes several transactions.
fn many() -> Facts {
    let cidrs: Vec<String> = (0..600).map(|at| format!("10.{}.{}.0/24", 160 + at / 256, at % 256)).collect();
    let cidrs: Vec<&str> = cidrs.iter().map(String::as_str).collect();
    Facts { routes: vec![route("east", RouteKind::Gateway, &["10.128.0.2"], &cidrs)], ..Facts::upstream() }
}

#[test]
fn plugin_ovn_a_plan_survives_restarts_of_the_database_and_rows_that_change() {
    let mut ovn = Ovn::start();
    ovn.add_kubernetes(&["node1"], Addresses::Dual);
    let facts = many();
    let mut driver = Driver::new();
    let calm = driver.run(&mut ovn, &facts, |_, _| {});
    assert_eq!(calm, 4, "1,800 rows");
    quiet(&mut driver, &mut ovn, &facts);
    let complete = ovn.everything();
    assert_eq!(remove_all(&ovn), 4);

    let sent = driver.run(&mut ovn, &facts, |ovn, sent| match sent {
        1 => ovn.kill_northbound(),
        4 => {
            ovn.try_nbctl("lr-policy-del ovn_cluster_router 19999");
        }
        _ => {}
    });
    assert!(sent > calm, "one transaction was lost: {sent}");
    assert_eq!(driver.controller.failures(), 0);
    assert_eq!(driver.controller.conditions().iter().collect::<Vec<_>>(), []);
    quiet(&mut driver, &mut ovn, &facts);
    assert_eq!(ovn.everything(), complete);
}

#[test]
fn plugin_ovn_a_transaction_whose_basis_is_gone_changes_nothing() {
    let ovn = Ovn::start();
    ovn.add_kubernetes(&["node1"], Addresses::Dual);
    let facts = Facts::upstream();
    crate::rows::support::converge(&ovn, &facts);
    let mut fewer = facts.clone();
    fewer.routes[0].remote_cidrs.truncate(1);
    let plan = trieste_ovn::plan(&fewer.wanted(), &ovn.rows(), &ovn.chassis());
    let [transaction] = plan.transactions.as_slice() else { panic!("one transaction: {plan:?}") };

    // Somebody takes a row over that was about to be removed.
    let id = ovn.nbctl(&["--bare", "--columns=_uuid", "find", "Logical_Router_Policy", "priority=20100"]);
    ovn.nbctl(&["clear", "Logical_Router_Policy", id.trim(), "external_ids"]);
    let before = ovn.everything();
    let error = ovn.transact(transaction).unwrap_err();
    assert_eq!(error.failure(), Some(&Failure::TimedOut), "{error}");
    assert_eq!(ovn.everything(), before);

    // The router is another one.
    ovn.nbctl(&["lr-del", "ovn_cluster_router"]);
    ovn.nbctl(&["lr-add", "ovn_cluster_router"]);
    let plan = trieste_ovn::plan(&facts.wanted(), &ovn.rows(), &ovn.chassis());
    ovn.nbctl(&["lr-del", "ovn_cluster_router"]);
    assert!(ovn.transact(&plan.transactions[0]).is_err());
    let plan = trieste_ovn::plan(&facts.wanted(), &ovn.rows(), &ovn.chassis());
    assert_eq!(plan.transactions, []);
    let conditions: Vec<Condition> = plan.conditions.iter().collect();
    assert!(matches!(conditions.as_slice(), [Condition::RouterMissing { .. }]), "{conditions:?}");
    assert_eq!(Rows::new().count_ours(), 0);
}

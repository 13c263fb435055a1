use super::*;
use crate::constants::{CLUSTER_ROUTER, MAX_CHANGES};
use crate::table::Table;
use crate::wanted::{Input, RouteKind, RouteObject, Topology, Zone};
use trieste_ovsdb::uuid::Uuid;
use trieste_ovsdb::value::{Datum, Row};

const NEW: Option<Version> = Some(Version(7, 0, 0));
const DELAY: Duration = Duration::from_secs(3);

fn wanted(networks: usize) -> Wanted {
    let cidrs = (0..networks).map(|at| format!("10.{}.{}.0/24", at / 256, at % 256)).collect();
    let next_hops = vec!["100.88.0.3".to_owned()];
    let route = RouteObject {
        cluster: "east".to_owned(),
        kind: RouteKind::NonGateway,
        next_hops,
        remote_cidrs: cidrs,
    };
    Wanted::new(&Input {
        topology: Topology::ClusterRouter,
        zone: Zone::Other,
        routes: &[route],
        is_complete: true,
        closed: &[],
        own: &[],
        protected: &[],
        gateway_node: None,
        management_port: &[],
        version: "v0.1.0",
    })
}

fn router() -> Rows {
    let mut rows = Rows::new();
    let row = Row::from([("name".to_owned(), Datum::from(CLUSTER_ROUTER))]);
    rows.set(Table::LogicalRouter, Uuid::from_bytes([1; 16]), row);
    rows
}

fn refused(failure: Failure) -> TransactError {
    TransactError::Operation { index: 0, operation: "wait", failure, details: String::new() }
}

#[test]
fn plugin_ovn_transactions_of_a_plan_are_sent_one_after_the_other() {
    let (wanted, rows, chassis, now) = (wanted(MAX_CHANGES), router(), Chassis::new(), Instant::now());
    let state = State { wanted: Some(&wanted), rows: &rows, chassis: &chassis, schema: NEW };
    let mut controller = Controller::new();
    for _ in 0..2 {
        let Next::Transact(transaction) = controller.poll_transaction(&state, now) else { panic!("none") };
        assert_eq!(transaction.changes, MAX_CHANGES);
        assert_eq!(controller.poll_transaction(&state, now), Next::AwaitOutcome);
        controller.handle_outcome(Ok(()), now, DELAY);
    }
    assert_eq!(controller.poll_transaction(&state, now), Next::AwaitChange);
}

#[test]
fn plugin_ovn_a_plan_is_made_only_after_a_change() {
    let (wanted, rows, chassis, now) = (wanted(1), Rows::new(), Chassis::new(), Instant::now());
    let mut controller = Controller::new();
    let state = State { wanted: Some(&wanted), rows: &rows, chassis: &chassis, schema: NEW };
    assert_eq!(controller.poll_transaction(&state, now), Next::AwaitChange);
    assert!(controller.conditions().iter().any(|found| matches!(found, Condition::RouterMissing { .. })));

    let rows = router();
    let state = State { rows: &rows, ..state };
    assert_eq!(controller.poll_transaction(&state, now), Next::AwaitChange);
    controller.handle_change();
    assert!(matches!(controller.poll_transaction(&state, now), Next::Transact(_)));
    assert!(controller.conditions().is_empty());
}

#[test]
fn plugin_ovn_after_a_failure_the_rest_of_the_plan_is_given_up_and_a_new_one_made_later() {
    let (wanted, rows, chassis, now) = (wanted(MAX_CHANGES), router(), Chassis::new(), Instant::now());
    let state = State { wanted: Some(&wanted), rows: &rows, chassis: &chassis, schema: NEW };
    let mut controller = Controller::new();
    for (failures, failure, is_shown) in [
        (1, Failure::TimedOut, false),
        (2, Failure::ConstraintViolation, true),
        (3, Failure::NotLeader, true),
    ] {
        let at = now + DELAY * (failures - 1);
        assert!(matches!(controller.poll_transaction(&state, at), Next::Transact(_)));
        controller.handle_outcome(Err(&refused(failure)), at, DELAY);
        assert_eq!(controller.failures(), failures);
        assert_eq!(controller.poll_transaction(&state, at), Next::AwaitRetry(at + DELAY));
        assert_eq!(!controller.conditions().is_empty(), is_shown);
    }
    let later = now + DELAY * 3;
    for _ in 0..2 {
        assert!(matches!(controller.poll_transaction(&state, later), Next::Transact(_)));
        controller.handle_outcome(Ok(()), later, DELAY);
    }
    assert_eq!((controller.failures(), controller.conditions().is_empty()), (0, true));
}

#[test]
fn plugin_ovn_a_lost_connection_ends_what_is_in_flight() {
    let (wanted, rows, chassis, now) = (wanted(1), router(), Chassis::new(), Instant::now());
    let state = State { wanted: Some(&wanted), rows: &rows, chassis: &chassis, schema: NEW };
    let mut controller = Controller::new();
    let first = controller.poll_transaction(&state, now);
    controller.handle_disconnect();
    assert_eq!(
        controller.poll_transaction(&state, now),
        first,
        "the replica shows that it was not committed"
    );
}

#[test]
fn plugin_ovn_an_old_schema_is_left_alone_but_for_an_uninstallation() {
    let (wanted, rows, chassis, now) = (wanted(1), router(), Chassis::new(), Instant::now());
    let mut controller = Controller::new();
    let state =
        State { wanted: Some(&wanted), rows: &rows, chassis: &chassis, schema: Some(Version(5, 9, 9)) };
    assert_eq!(controller.poll_transaction(&state, now), Next::AwaitChange);
    let conditions: Vec<Condition> = controller.conditions().iter().collect();
    assert!(matches!(conditions.as_slice(), [Condition::SchemaTooOld { .. }]), "{conditions:?}");
    controller.handle_new_wanted();
    assert_eq!(controller.poll_transaction(&State { wanted: None, ..state }, now), Next::AwaitChange);
    assert!(controller.conditions().is_empty());
}

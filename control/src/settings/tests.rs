use std::collections::BTreeSet;
use std::time::Instant;

use serde_json::json;

use super::*;
use crate::api::{Kind, Object, ObjectKey, ObjectMeta};
use crate::conditions::Conditions;
use crate::runner::{Controller as _, Watch};
use crate::store::{Store as _, StoreError, StoreEvent};

fn data(entries: &[(&str, &str)]) -> Data {
    entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn object(entries: &[(&str, &str)]) -> Object {
    let mut object = Object::new(Kind::ConfigMap, ObjectMeta::new("ns", OBJECT));
    object.body.insert("data".to_owned(), json!(data(entries)));
    object
}

fn started(entries: &[(&str, &str)]) -> Standing {
    let read = Read { data: data(entries), ..Read::default() };
    Standing::at_start(Program::Gateway, &read, |_| Ok(())).unwrap().0
}

#[test]
fn keys_are_unique_and_in_one_of_both_lists() {
    let keys: BTreeSet<&str> = SETTINGS.iter().map(|setting| setting.key).collect();
    assert_eq!(keys.len(), SETTINGS.len());
    let others: BTreeSet<&str> = ELSEWHERE.iter().map(|(key, _)| *key).collect();
    assert_eq!(others.len(), ELSEWHERE.len());
    assert!(keys.is_disjoint(&others));
    let is_key = |key: &str| key.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c));
    assert!(keys.iter().all(|key| is_key(key)), "a key that no ConfigMap takes");
}

#[test]
fn the_documentation_has_every_setting_as_the_list_has_it() {
    let page = include_str!("../../../docs/operations/settings.md");
    for setting in SETTINGS {
        let programs = setting.programs.iter().map(|program| match program {
            Program::Gateway => "gateway",
            Program::RouteAgent => "route agent",
        });
        let programs = programs.collect::<Vec<_>>().join(", ");
        let row =
            format!("\n| `{}` | {} | {programs} | {} | ", setting.key, setting.form, setting.effect.as_str());
        assert!(page.contains(&row), "docs/operations/settings.md is to have the row {row}");
    }
    let rows = page.lines().filter(|line| line.starts_with("| `") && line.matches(" | ").count() == 4);
    assert_eq!(rows.count(), SETTINGS.len(), "a row of no setting");
}

#[test]
fn values_are_checked_and_their_bounds_named() {
    for (key, good, bad, expected) in [
        ("workers", "256", "257", "`257` is not a number from 1 to 256"),
        ("workers", "1", "0", "from 1 to 256"),
        ("path-probe-interval", "5", "4", "a number of milliseconds from 5 to 1000"),
        ("debug", "T", "", "`` is not true or false"),
        ("io", "af-xdp", "dpdk", "one of sockets, af-xdp, auto"),
        ("disable-offloads", "udp-gso, udp-gro", "udp-gso,x", "a list of tun-uso"),
        ("allow-remote-cidrs", "25.0.0.0/8", "25.0.0.0/33", "10.1.0.0/16"),
        ("log-level", "info,trieste_gateway=debug", "loud=very=much", "error, warn, info"),
        ("log-level", "warn", "warning", "error, warn, info"),
        ("tun-name", "tun9", "a-name-that-is-too-long", "1 to 15 bytes"),
        ("weight", "1000", "-1", "from 1 to 1000"),
        ("ipsec.esp-proposals", "aes256gcm16", " , ", "a list of words"),
    ] {
        assert_eq!(check(key, good), Ok(()), "{key}");
        let error = check(key, bad).unwrap_err();
        assert!(error.contains(expected), "{key}: {error}");
    }
    assert!(check("udp-port", "1").unwrap_err().contains("trieste join"));
    assert_eq!(check("wrokers", "1").unwrap_err(), "is no setting");
    assert!(check("cpus", &"0,".repeat(4000)).unwrap_err().contains("longer than"));
}

#[test]
fn a_bad_value_is_named_and_the_one_before_it_stays() {
    let mut standing = started(&[("path-probe-interval", "50"), ("workers", "2")]);
    let (taken, _) =
        standing.take(&data(&[("path-probe-interval", "4"), ("workers", "2"), ("wrokers", "3")]), |_| Ok(()));
    assert!(!taken.has_changed && taken.waiting.is_empty());
    assert_eq!(standing.in_force(), &data(&[("path-probe-interval", "50"), ("workers", "2")]));
    let shown: Vec<_> =
        taken.problems.iter().map(|problem| (problem.key.as_str(), problem.stays.as_deref())).collect();
    assert_eq!(shown, [("path-probe-interval", Some("50")), ("wrokers", None)]);
    assert!(taken.problems[1].is_unknown);
    let (taken, _) = standing.take(&data(&[("path-probe-interval", "60"), ("workers", "2")]), |_| Ok(()));
    assert!(taken.has_changed && taken.problems.is_empty());
}

#[test]
fn what_was_in_force_before_a_start_stays_where_a_value_cannot_be() {
    let read = Read {
        before: data(&[("allow-remote-cidrs", "10.5.0.0/16"), ("workers", "2"), ("weight", "7")]),
        data: data(&[("allow-remote-cidrs", "10.5.0.0/33"), ("workers", "4")]),
    };
    let (standing, taken, ()) = Standing::at_start(Program::Gateway, &read, |_| Ok(())).unwrap();
    assert_eq!(standing.in_force(), &data(&[("allow-remote-cidrs", "10.5.0.0/16"), ("workers", "4")]));
    assert_eq!(taken.problems.len(), 1, "{taken:?}");
    assert_eq!(taken.problems[0].stays.as_deref(), Some("10.5.0.0/16"));
    assert!(taken.waiting.is_empty());
}

#[test]
fn what_a_restart_takes_waits_until_it_is_as_at_the_start_again() {
    let mut standing = started(&[("workers", "2")]);
    let (taken, _) = standing.take(&data(&[("workers", "4"), ("io", "auto")]), |_| Ok(()));
    assert_eq!(taken.waiting, BTreeSet::from(["io", "workers"]));
    assert!(!taken.has_changed);
    assert_eq!(standing.take(&data(&[]), |_| Ok(())).0.waiting, BTreeSet::from(["workers"]));
    assert!(standing.take(&data(&[("workers", "2")]), |_| Ok(())).0.waiting.is_empty());
    // Of another program's settings nothing is said.
    assert_eq!(
        standing.take(&data(&[("workers", "2"), ("close-grace", "9")]), |_| Ok(())).0,
        Taken::default()
    );
}

#[test]
fn values_that_cannot_be_together_are_given_up_one_by_one() {
    let mut standing = started(&[("lease-duration", "15")]);
    let is_short = |wanted: &Data| wanted.get("lease-duration").map(String::as_str) == Some("3");
    let refuses = |key: Option<&str>| {
        let key = key.map(str::to_owned);
        move |wanted: &Data| match is_short(wanted) {
            true => Err(Refusal { key: key.clone(), problem: "shorter than renew-deadline".to_owned() }),
            false => Ok(()),
        }
    };
    let wanted = data(&[("lease-duration", "3"), ("weight", "7")]);
    let (taken, _) = standing.take(&wanted, refuses(Some("lease-duration")));
    assert_eq!(standing.in_force(), &data(&[("lease-duration", "15"), ("weight", "7")]));
    assert!(taken.has_changed && taken.problems[0].problem.contains("renew-deadline"));
    // A program that does not name the key, and one that takes nothing at all.
    let (taken, _) =
        standing.take(&data(&[("lease-duration", "3"), ("weight", "8"), ("debug", "true")]), refuses(None));
    assert_eq!(taken.problems.len(), 1, "{taken:?}");
    assert_eq!(standing.in_force().get("debug").map(String::as_str), Some("true"));
    standing.take(&wanted, refuses(None));
    assert_eq!(standing.in_force(), &data(&[("lease-duration", "15"), ("weight", "7")]));
    let (taken, _) =
        standing.take(&wanted, |_| Err::<(), _>(Refusal { key: None, problem: "never".to_owned() }));
    assert_eq!(standing.in_force(), &data(&[("lease-duration", "15"), ("weight", "7")]));
    assert!(!taken.has_changed && !taken.problems.is_empty());
}

#[test]
fn conditions_name_key_value_and_range_and_the_command_that_restarts() {
    let conditions = Conditions::new();
    let reporter = Reporter::new(conditions.clone(), Program::Gateway, "ns");
    let mut standing = started(&[("weight", "7")]);
    let wanted = data(&[("weight", "0"), ("workers", "4"), ("udp-port", "1")]);
    reporter.taken(&standing.take(&wanted, |_| Ok(())).0);
    let shown: Vec<(String, String)> =
        conditions.list().into_iter().map(|one| (one.name, one.message)).collect();
    let expected = [
        (
            WAITING,
            "workers of ConfigMap trieste-settings take effect at the next start (kubectl -n ns rollout restart daemonset/submariner-gateway)",
        ),
        (
            REFUSED,
            "weight: `0` is not a number from 1 to 1000; `7` stays in force (ConfigMap trieste-settings)",
        ),
        (
            UNKNOWN,
            "udp-port: cannot be set here: it is chosen by a flag of trieste join, or a field of the Fabric, since other objects go by it; it has no effect (ConfigMap trieste-settings)",
        ),
    ];
    assert_eq!(shown, expected.map(|(name, message)| (name.to_owned(), message.to_owned())));
    reporter.unread("no right");
    assert_eq!(conditions.list().len(), 4);
    reporter.taken(&standing.take(&data(&[("weight", "8")]), |_| Ok(())).0);
    assert!(conditions.list().is_empty());
}

#[test]
fn an_outage_changes_nothing_and_a_right_that_is_missing_is_shown() {
    let mut controller = SettingsController::new("ns");
    let watch = Watch::one(0, &ObjectKey::new(Kind::ConfigMap, "ns", OBJECT));
    assert_eq!(controller.watches(), BTreeSet::from([watch.clone()]));
    let now = Instant::now();
    controller.observe(&watch, StoreEvent::Applied(object(&[("weight", " 7\n")])), now);
    assert_eq!(controller.newest(), &Seen::Data(data(&[("weight", "7")])));
    let io = std::io::Error::other("gone");
    let away = StoreError::Unavailable { operation: "watch".to_owned(), source: io };
    assert!(controller.observe(&watch, StoreEvent::Unavailable(away), now).is_empty());
    assert_eq!(controller.newest(), &Seen::Data(data(&[("weight", "7")])));
    controller.observe(&watch, StoreEvent::Listed(Vec::new()), now);
    assert_eq!(controller.newest(), &Seen::Data(Data::new()));
    // Who may list it alone has read it; who may not do that either has not.
    let refuses = |controller: &mut SettingsController| {
        let refusal = StoreError::Forbidden {
            operation: "watch".to_owned(),
            source: std::io::Error::other("no right"),
        };
        controller.observe(&watch, StoreEvent::Unavailable(refusal), now)
    };
    assert!(refuses(&mut controller).is_empty());
    assert_eq!(controller.newest(), &Seen::Data(Data::new()));
    refuses(&mut controller);
    assert!(matches!(controller.newest(), Seen::Unread(_)), "{:?}", controller.newest());
}

#[tokio::test]
async fn a_start_takes_what_the_store_says_and_else_what_is_remembered() {
    let dir = tempfile::tempdir().unwrap();
    let (state, root) = (dir.path().join("state"), dir.path().join("store"));
    std::fs::create_dir(&state).unwrap();
    let store = crate::store::DirStore::open(&root).unwrap();
    assert_eq!(at_start(&store, "ns", Program::Gateway, &state).await, Read::default());
    store.create(object(&[("weight", "7")])).await.unwrap();
    let read = at_start(&store, "ns", Program::Gateway, &state).await;
    assert_eq!(read, Read { before: Data::new(), data: data(&[("weight", "7")]) });
    remember(&state, Program::Gateway, &data(&[("weight", "8")]));
    let read = at_start(&store, "ns", Program::Gateway, &state).await;
    assert_eq!(read, Read { before: data(&[("weight", "8")]), data: data(&[("weight", "7")]) });
    std::fs::remove_dir_all(&root).unwrap();
    std::fs::write(&root, "no directory").unwrap();
    let read = at_start(&store, "ns", Program::Gateway, &state).await;
    assert_eq!(read, Read { before: data(&[("weight", "8")]), data: data(&[("weight", "8")]) });
    // Of a write that was broken off.
    std::fs::write(state.join("settings.new"), "{").unwrap();
    remove_file(&state, Program::Gateway).unwrap();
    assert_eq!(std::fs::read_dir(&state).unwrap().count(), 0);
}

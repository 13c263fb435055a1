use std::fs::{self, OpenOptions};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use trieste_control::admin::SnapshotStatus;
use trieste_control::conditions::Conditions;
use trieste_nat::Change;

use super::changes::ChangeQueue;
use super::record::Entry;
use super::record::tests::record;
use super::*;
use crate::globalnet::key::KEY_BYTES;

const KEY: [u8; KEY_BYTES] = [5; KEY_BYTES];
const MOST: usize = 100_000;

fn files(dir: &Path) -> SessionFiles {
    SessionFiles::new(dir, KEY, MOST)
}

fn is(numbers: std::ops::Range<u16>) -> Vec<Entry> {
    numbers.map(|number| Entry::Is(record(number))).collect()
}

fn gone(numbers: std::ops::Range<u16>) -> Vec<Entry> {
    numbers.map(|number| Entry::Gone(record(number))).collect()
}

/// The ports of the sessions that files hold.
fn ports(files: &SessionFiles) -> Vec<u16> {
    files.load().sessions.values().map(|entry| entry.record().inside_port).collect()
}

/// A snapshot of 0..10 and changes after it: 2..4 went, 20..22 came.
fn filled(dir: &Path) -> SessionFiles {
    let files = files(dir);
    let mut changes = files.begin_changes(1).unwrap();
    let mut snapshot = files.begin_snapshot(1).unwrap();
    snapshot.entries(&is(0..10), 1_000).unwrap();
    files.publish(snapshot, 1, 1_000).unwrap();
    changes.entries(&gone(2..4), 2_000).unwrap();
    changes.entries(&is(20..22), 3_000).unwrap();
    files
}

#[test]
fn snapshot_and_changes_together_are_the_newest_state() {
    let dir = tempfile::tempdir().unwrap();
    let files = filled(dir.path());
    assert_eq!(ports(&files), [0, 1, 4, 5, 6, 7, 8, 9, 20, 21]);
    let loaded = files.load();
    assert_eq!((loaded.known_ms, loaded.problems.len()), (3_000, 0));
    for entry in fs::read_dir(dir.path()).unwrap() {
        assert_eq!(entry.unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn a_process_that_dies_while_it_takes_a_snapshot_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let files = filled(dir.path());
    let mut changes = files.begin_changes(2).unwrap();
    let mut snapshot = files.begin_snapshot(2).unwrap();
    snapshot.entries(&is(0..1), 4_000).unwrap();
    changes.entries(&gone(20..21), 4_000).unwrap();
    drop((snapshot, changes));
    assert_eq!(ports(&files), [0, 1, 4, 5, 6, 7, 8, 9, 21]);
    assert_eq!(files.next_generation(), 3);
}

#[test]
fn a_new_snapshot_takes_the_place_of_all_that_is_older() {
    let dir = tempfile::tempdir().unwrap();
    let files = filled(dir.path());
    let mut changes = files.begin_changes(2).unwrap();
    let mut snapshot = files.begin_snapshot(2).unwrap();
    snapshot.entries(&is(30..33), 5_000).unwrap();
    files.publish(snapshot, 2, 5_000).unwrap();
    changes.heartbeat(9_000).unwrap();
    assert_eq!(ports(&files), [30, 31, 32]);
    assert_eq!(files.load().known_ms, 9_000, "that time went on is known as well");
    let mut names: Vec<_> =
        fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["globalnet-changes.2", "globalnet-sessions.2"]);
}

#[test]
fn a_torn_end_costs_what_is_torn_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let files = filled(dir.path());
    let path = dir.path().join("globalnet-changes.1");
    let length = fs::metadata(&path).unwrap().len();
    OpenOptions::new().write(true).open(&path).unwrap().set_len(length - 1).unwrap();
    assert_eq!(ports(&files), [0, 1, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn no_damage_makes_up_a_session_or_keeps_a_gateway_from_starting() {
    let dir = tempfile::tempdir().unwrap();
    let files = filled(dir.path());
    let known: Vec<_> = is(0..22).into_iter().map(|entry| *entry.record()).collect();
    for name in ["globalnet-sessions.1", "globalnet-changes.1"] {
        let path = dir.path().join(name);
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x41;
            fs::write(&path, &damaged).unwrap();
            let loaded = files.load();
            assert!(loaded.sessions.values().all(|entry| known.contains(entry.record())), "{name} at {at}");
        }
        fs::write(&path, &whole).unwrap();
    }
    fs::write(dir.path().join("globalnet-sessions.18446744073709551615"), b"x").unwrap();
    assert_eq!(ports(&files).len(), 10, "a name that lies is no snapshot");
    assert_eq!(files.next_generation(), u64::MAX);
}

#[test]
fn files_of_another_key_are_not_used_and_said_so() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let other = SessionFiles::new(dir.path(), [6; KEY_BYTES], MOST);
    let loaded = other.load();
    assert!(loaded.sessions.is_empty());
    assert!(loaded.problems.iter().all(|(_, problem)| problem.contains("another pre-shared key")));
    assert_eq!(loaded.problems.len(), 2);
}

#[test]
fn no_more_sessions_are_read_than_there_may_be() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let loaded = SessionFiles::new(dir.path(), KEY, 3).load();
    assert_eq!(loaded.sessions.len(), 3);
}

#[test]
fn a_restart_goes_on_with_what_has_time_left() {
    let dir = tempfile::tempdir().unwrap();
    let files = filled(dir.path());
    let at = |ms: i64| Timestamp::from_millisecond(ms).unwrap();
    let config = Globalnet::default();
    let restored = restore(&files, &config, at(3_000 + 10_000));
    assert_eq!((restored.records.len(), restored.expired), (10, 0));
    assert!(restored.records.iter().all(|record| record.seconds_left == 7_430));
    let restored = restore(&files, &config, at(3_000 + 7_500_000));
    assert_eq!((restored.records.len(), restored.expired), (0, 10));
    let restored = restore(&files, &config, at(500));
    assert_eq!(restored.records.len(), 10, "a clock that was set back");
}

/// A worker's side of a queue of changes: hands out what it has, whenever it is woken.
fn hand_out(changes: &ChangeQueue, numbers: std::ops::Range<u16>) {
    let wanted = changes.requested_export();
    for number in numbers {
        while changes.room() == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        changes.push_record(record(number));
    }
    changes.finish_export(wanted);
}

fn wait_for(what: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !what() {
        assert!(start.elapsed() < Duration::from_secs(20), "it does not come about");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn the_keeper_asks_for_everything_once_and_follows_changes_from_then_on() {
    let dir = tempfile::tempdir().unwrap();
    let queues = [Arc::new(ChangeQueue::default()), Arc::new(ChangeQueue::default())];
    let source = |changes: &Arc<ChangeQueue>| Source { changes: Arc::clone(changes), wake: Box::new(|| {}) };
    let sources = queues.iter().map(source).collect();
    let conditions = Conditions::new();
    let writer =
        SnapshotWriter::spawn(files(dir.path()), sources, SnapshotStatus::default(), conditions.clone())
            .unwrap();
    wait_for(|| queues.iter().all(|changes| changes.requested_export() != 0));
    // More than fits between two looks of the writer.
    hand_out(&queues[0], 0..6_000);
    hand_out(&queues[1], 6_000..6_010);
    wait_for(|| writer.status().sessions == 6_010);
    for number in 100..6_000 {
        queues[0].push(Change::Gone(record(number)));
    }
    queues[1].push(Change::Is(record(7_000)));
    drop(writer);
    assert!(conditions.list().is_empty());
    let expected: Vec<u16> = (0..100).chain(6_000..6_010).chain([7_000]).collect();
    assert_eq!(ports(&files(dir.path())), expected);
}

#[test]
fn lost_changes_bring_another_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let changes = Arc::new(ChangeQueue::default());
    let source = Source { changes: Arc::clone(&changes), wake: Box::new(|| {}) };
    let writer =
        SnapshotWriter::spawn(files(dir.path()), vec![source], SnapshotStatus::default(), Conditions::new())
            .unwrap();
    wait_for(|| changes.requested_export() != 0);
    hand_out(&changes, 0..3);
    wait_for(|| writer.status().sessions == 3);
    let first = changes.requested_export();
    changes.push(Change::Lost);
    wait_for(|| changes.requested_export() != first);
    hand_out(&changes, 0..2);
    wait_for(|| writer.status().sessions == 2);
    drop(writer);
    assert_eq!(ports(&files(dir.path())), [0, 1]);
}

#[test]
fn what_cannot_be_written_is_a_condition() {
    let changes = Arc::new(ChangeQueue::default());
    let source = Source { changes: Arc::clone(&changes), wake: Box::new(|| {}) };
    let conditions = Conditions::new();
    let nowhere = SessionFiles::new(Path::new("/proc/no-such-directory"), KEY, MOST);
    let writer =
        SnapshotWriter::spawn(nowhere, vec![source], SnapshotStatus::default(), conditions.clone()).unwrap();
    wait_for(|| !conditions.list().is_empty());
    assert_eq!(conditions.list()[0].name, "SessionsNotKept");
    drop(writer);
}

#[test]
fn everything_can_be_forgotten_twice() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    fs::write(dir.path().join("wireguard.key"), "mine").unwrap();
    remove_files(dir.path()).unwrap();
    remove_files(dir.path()).unwrap();
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["wireguard.key"]);
}

/// Reading what somebody else has written costs at most its size.
#[test]
fn a_number_of_entries_that_is_no_ones_ends_the_reading() {
    let dir = tempfile::tempdir().unwrap();
    let files = filled(dir.path());
    let mut file = OpenOptions::new().write(true).open(dir.path().join("globalnet-changes.1")).unwrap();
    file.seek(SeekFrom::Start(48)).unwrap();
    file.write_all(&u32::MAX.to_le_bytes()).unwrap();
    assert_eq!(ports(&files), (0..10).collect::<Vec<u16>>());
}

//! The directory store passes the conformance suite, and keeps its word when files, writers and the kernel do not.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use futures::{Stream, StreamExt};
use tempfile::TempDir;
use trieste_control::api::{Kind, Object, ObjectKey};
use trieste_control::store::{
    Cache, DirOptions, DirStore, Store, StoreError, StoreEvent, conformance, modify, upsert,
};

const NS: &str = "submariner-operator";
const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_is_a_store() {
    let root = tempfile::tempdir().unwrap();
    let store = DirStore::open(root.path().join("made/on/the/way")).unwrap();
    conformance::run(&store, NS, "submariner-k8s-broker").await;
}

#[tokio::test]
async fn files_are_readable_by_all_and_directories_too() {
    let lab = Lab::new();
    lab.store.create(sample("a")).await.unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&lab.file("a")), 0o644);
    assert_eq!(mode(&lab.dir()), 0o755);
    assert_eq!(mode(lab.dir().parent().unwrap()), 0o755);
}

#[tokio::test]
async fn a_file_is_what_a_person_would_write() {
    let lab = Lab::new();
    let made = lab.store.create(sample("a")).await.unwrap();
    let text = fs::read_to_string(lab.file("a")).unwrap();
    assert!(text.starts_with("apiVersion: submariner.io/v1\nkind: Cluster\nmetadata:\n"), "{text}");
    assert!(!text.contains("resourceVersion"), "the version is not in the file: {text}");
    // The same file in another store, copied by hand, is the same object.
    let other = Lab::new();
    fs::create_dir_all(other.dir()).unwrap();
    fs::copy(lab.file("a"), other.file("a")).unwrap();
    assert_eq!(other.store.get(&key("a")).await.unwrap(), Some(made));
}

#[tokio::test]
async fn an_object_written_by_hand_is_complete_and_can_be_updated() {
    let lab = Lab::new();
    lab.write("by-hand.yaml", &hand_written("by-hand"));
    let object = lab.store.get(&key("by-hand")).await.unwrap().unwrap();
    assert_eq!(object.metadata.namespace, NS, "the directory's namespace is filled in");
    assert!(object.metadata.creation_timestamp.is_some() && object.metadata.resource_version.is_some());
    let updated = modify(&lab.store, &key("by-hand"), annotate).await.unwrap();
    assert!(updated.metadata.uid.is_some());
}

#[tokio::test]
async fn an_edit_by_hand_is_a_new_version_and_is_not_overwritten_unseen() {
    let lab = Lab::new();
    let mut made = lab.store.create(sample("a")).await.unwrap();
    let text = fs::read_to_string(lab.file("a")).unwrap();
    // The same length and, on most machines, within the same tick of the file system's clock.
    lab.write("a.yaml", &text.replace("100.1.0.0/16", "100.9.0.0/16"));
    annotate(&mut made);
    let late = lab.store.update(made).await;
    assert!(matches!(late, Err(StoreError::Conflict { .. })), "{late:?}");
    let seen = lab.store.get(&key("a")).await.unwrap().unwrap();
    assert_eq!(seen.body["spec"]["service_cidr"][0], "100.9.0.0/16");
}

#[tokio::test]
async fn bad_files_are_named_with_their_field_and_hide_only_themselves() {
    let lab = Lab::new();
    lab.store.create(sample("good")).await.unwrap();
    let good = fs::read_to_string(lab.file("good")).unwrap();
    let cases: [(&str, String, Option<&str>, &str); 12] = [
        ("empty.yaml", String::new(), None, "is empty"),
        (
            "cut.yaml",
            format!("{}\n  spec: [", &good[..good.len() / 2]),
            None,
            "is not YAML: unclosed bracket",
        ),
        ("text.yaml", "hello".to_owned(), None, "is not a YAML mapping"),
        ("two.yaml", format!("{good}---\n{good}"), None, "is not YAML"),
        ("list.yaml", "apiVersion: v1\nkind: List\nitems: []\n".to_owned(), Some("apiVersion"), "is `v1`"),
        ("kind.yaml", good.replace("kind: Cluster", "kind: Endpoint"), Some("kind"), "is `Endpoint` in the"),
        ("type.yaml", good.replace("- blue", "- 7"), Some("spec.color_codes[0]"), "invalid type"),
        (
            "field.yaml",
            good.replace("cluster_cidr", "cluster_cider"),
            Some("spec.cluster_cidr"),
            "is missing",
        ),
        ("ns.yaml", good.replace(NS, "elsewhere"), Some("metadata.namespace"), "is `elsewhere` in the"),
        (
            "name.yaml",
            good.replace("name: good", "name: ../good"),
            Some("metadata.name"),
            "`../good` has an empty part",
        ),
        ("twice.yaml", good.clone(), Some("metadata.name"), "is `good`, which"),
        ("notes.txt", "remember".to_owned(), None, "is not a YAML file"),
    ];
    for (name, text, ..) in &cases {
        lab.write(name, text);
    }
    fs::write(lab.dir().join("binary.yaml"), [0xff, 0xfe]).unwrap();
    fs::write(lab.dir().join("huge.yaml"), vec![b'#'; 2 << 20]).unwrap();
    for harmless in [".hidden.yaml.swp", "good.yaml~", "#good.yaml#"] {
        lab.write(harmless, "garbage: [");
    }

    assert_eq!(lab.names().await, ["good"]);
    let problems = lab.store.problems();
    for (name, _, field, reason) in cases {
        let found = problems.iter().find(|problem| problem.path == lab.dir().join(name));
        let found = found.unwrap_or_else(|| panic!("no word of {name} in {problems:#?}"));
        assert_eq!(found.field.as_deref(), field, "{found}");
        assert!(found.reason.contains(reason), "{found}");
        assert!(found.to_string().contains(name), "{found}");
    }
    assert_eq!(problems.len(), 14, "{problems:#?}");
    lab.store.create(sample("another")).await.unwrap();
    assert_eq!(lab.names().await, ["another", "good"]);
    assert!(lab.dir().join("empty.yaml").exists(), "a user's file was deleted");

    // A repaired file is an object, and no problem any more.
    lab.write("cut.yaml", &hand_written("cut"));
    assert_eq!(lab.names().await, ["another", "cut", "good"]);
    assert_eq!(lab.store.problems().len(), 13);
}

#[tokio::test]
async fn a_file_that_becomes_unreadable_counts_as_it_last_was_and_is_set_aside_by_a_write() {
    let lab = Lab::new();
    let made = lab.store.create(sample("a")).await.unwrap();
    lab.write("a.yaml", "apiVersion: submariner.io/v1\nkind: Clu");
    assert_eq!(
        lab.store.get(&key("a")).await.unwrap(),
        Some(made.clone()),
        "a truncated file tears nothing down"
    );
    assert_eq!(lab.store.problems().len(), 1);

    let mut healed = made;
    annotate(&mut healed);
    lab.store.update(healed).await.unwrap();
    assert_eq!(lab.store.problems(), []);
    assert_eq!(lab.set_aside().len(), 1, "the corrupt file is somebody's work and must not be lost");
}

#[tokio::test]
async fn a_corrupt_file_that_was_never_readable_is_set_aside_by_a_creation() {
    let lab = Lab::new();
    lab.write("a.yaml", "precious: [");
    assert!(lab.names().await.is_empty());
    lab.store.create(sample("a")).await.unwrap();
    let aside = lab.set_aside();
    assert_eq!(fs::read_to_string(&aside[0]).unwrap(), "precious: [");
    assert_eq!(lab.names().await, ["a"]);
}

#[tokio::test]
async fn of_two_files_that_claim_one_object_the_one_named_after_it_counts_and_deletion_is_of_both() {
    let lab = Lab::new();
    lab.write("0-first.yaml", &hand_written("a").replace("100.1.0.0/16", "100.8.0.0/16"));
    lab.store.list(Kind::Cluster, NS).await.unwrap();
    assert_eq!(lab.store.problems(), [], "a single file may have any name");
    lab.write("a.yaml", &hand_written("a"));
    let object = lab.store.get(&key("a")).await.unwrap().unwrap();
    assert_eq!(object.body["spec"]["service_cidr"][0], "100.1.0.0/16");
    assert_eq!(lab.store.problems()[0].path, lab.dir().join("0-first.yaml"));

    lab.write("0-first.yaml", "precious: [");
    lab.store.delete(&key("a")).await.unwrap();
    assert_eq!(lab.store.get(&key("a")).await.unwrap(), None, "the duplicate came back from the dead");
    assert_eq!(lab.set_aside().len(), 1, "the duplicate had become somebody's work, and was deleted");
}

#[tokio::test]
async fn a_file_named_after_one_object_that_holds_another_keeps_it() {
    let lab = Lab::new();
    lab.write("a.yaml", &hand_written("b"));
    lab.store.create(sample("a")).await.unwrap();
    assert_eq!(lab.names().await, ["a", "b"]);
    assert_eq!((lab.store.problems(), lab.set_aside()), (vec![], vec![]));
    modify(&lab.store, &key("a"), annotate).await.unwrap();
    lab.store.delete(&key("b")).await.unwrap();
    assert_eq!(lab.names().await, ["a"]);
}

#[tokio::test]
async fn nothing_outside_the_root_is_read_or_written() {
    let lab = Lab::new();
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret.yaml");
    fs::write(&secret, hand_written("secret")).unwrap();
    fs::create_dir_all(lab.dir()).unwrap();
    symlink(&secret, lab.file("secret")).unwrap();
    assert!(lab.names().await.is_empty(), "a link was followed");
    assert!(lab.store.problems()[0].reason.contains("symbolic link"), "{:?}", lab.store.problems());
    // A write replaces the link and leaves what it pointed to alone.
    lab.store.create(sample("secret")).await.unwrap();
    assert_eq!(fs::read_to_string(&secret).unwrap(), hand_written("secret"));
    assert!(fs::symlink_metadata(lab.file("secret")).unwrap().is_file());

    symlink(outside.path(), lab.root.path().join("linked")).unwrap();
    let mut object = sample("x");
    object.metadata.namespace = "linked".to_owned();
    let outcome = lab.store.create(object).await;
    assert!(matches!(outcome, Err(StoreError::Unavailable { .. })), "{outcome:?}");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1, "something was written outside");

    let lock = lab.root.path().join(".lock");
    fs::remove_file(&lock).unwrap();
    symlink(&secret, &lock).unwrap();
    assert!(lab.store.create(sample("y")).await.is_err(), "the lock file's link was followed");
}

#[tokio::test]
async fn a_pipe_or_a_directory_in_the_place_of_a_file_stops_nobody() {
    let lab = Lab::new();
    fs::create_dir_all(lab.dir().join("directory.yaml")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, lab.dir().join("pipe.yaml"), rustix::fs::Mode::RWXU).unwrap();
    lab.store.create(sample("a")).await.unwrap();
    assert_eq!(lab.names().await, ["a"]);
    assert_eq!(lab.store.problems().len(), 2);
}

#[tokio::test]
async fn a_directory_in_the_place_of_a_new_objects_file_is_set_aside() {
    let lab = Lab::new();
    fs::create_dir_all(lab.file("a").join("full")).unwrap();
    lab.store.create(sample("a")).await.unwrap();
    assert_eq!(lab.names().await, ["a"]);
    assert!(lab.set_aside()[0].join("full").exists());
}

#[tokio::test]
async fn a_missing_root_is_away_and_not_empty() {
    let lab = Lab::new();
    lab.store.create(sample("a")).await.unwrap();
    let away = lab.root.path().with_extension("away");
    fs::rename(lab.root.path(), &away).unwrap();
    for outcome in
        [lab.store.list(Kind::Cluster, NS).await.map(drop), lab.store.create(sample("b")).await.map(drop)]
    {
        assert!(matches!(outcome, Err(StoreError::Unavailable { .. })), "{outcome:?}");
    }
    assert!(!lab.root.path().exists(), "a write made a store out of nothing");
    fs::rename(&away, lab.root.path()).unwrap();
    assert_eq!(lab.names().await, ["a"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_follows_moves_of_the_root_and_of_its_directories() {
    let lab = Lab::new();
    lab.store.create(sample("a")).await.unwrap();
    let mut events = lab.store.list_watch(Kind::Cluster, NS);
    let mut mirror = Cache::new();
    until(&mut events, &mut mirror, |mirror| mirror.get("a").is_some()).await;

    let away = lab.root.path().with_extension("away");
    fs::rename(lab.root.path(), &away).unwrap();
    assert!(matches!(next(&mut events).await, StoreEvent::Unavailable(_)));
    fs::rename(&away, lab.root.path()).unwrap();
    let back = next(&mut events).await;
    assert!(matches!(&back, StoreEvent::Listed(objects) if objects.len() == 1), "{back:?}");

    fs::remove_dir_all(lab.dir()).unwrap();
    until(&mut events, &mut mirror, |mirror| mirror.get("a").is_none()).await;
    lab.store.create(sample("b")).await.unwrap();
    until(&mut events, &mut mirror, |mirror| mirror.get("b").is_some()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_written_in_pieces_arrives_whole() {
    let lab = Lab::new();
    let mut events = lab.store.list_watch(Kind::Cluster, NS);
    let mut mirror = Cache::new();
    until(&mut events, &mut mirror, Cache::is_complete).await;
    let text = hand_written("slow");
    fs::create_dir_all(lab.dir()).unwrap();
    for end in (0..=text.len()).step_by(text.len() / 8) {
        lab.write("slow.yaml", &text[..end]);
        tokio::time::sleep(Duration::from_millis(15)).await;
    }
    lab.write("slow.yaml", &text);
    let whole = |mirror: &Cache| {
        mirror.get("slow").is_some_and(|object| object.body["spec"]["service_cidr"][0] == "100.1.0.0/16")
    };
    until(&mut events, &mut mirror, whole).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_whose_queue_ran_over_misses_nothing() {
    let lab = Lab::new();
    let mut events = lab.store.list_watch(Kind::Cluster, NS);
    let mut mirror = Cache::new();
    lab.store.create(sample("a")).await.unwrap();
    until(&mut events, &mut mirror, |mirror| mirror.get("a").is_some()).await;
    let limit: usize =
        fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap().trim().parse().unwrap();
    // Creation, opening for writing and removal are several events each; one is enough to fill the queue.
    for index in 0..limit / 2 {
        let path = lab.dir().join(format!(".noise-{}", index % 7));
        fs::write(&path, "").unwrap();
        fs::remove_file(&path).unwrap();
    }
    lab.store.delete(&key("a")).await.unwrap();
    lab.store.create(sample("b")).await.unwrap();
    until(&mut events, &mut mirror, |mirror| mirror.get("a").is_none() && mirror.get("b").is_some()).await;
}

/// An Endpoint of a member with so many bytes of text, as a file.
fn heavy(name: &str, member: &str, second: u32, letters: usize) -> String {
    format!(
        "apiVersion: submariner.io/v1\nkind: Endpoint\nmetadata: {{name: {name}, namespace: {NS}, \
         creationTimestamp: '2024-01-01T00:{:02}:{:02}Z', labels: {{submariner-io/clusterID: {member}}}}}\n\
         spec: {{cluster_id: {member}, cable_name: c, hostname: h, subnets: [10.2.0.0/16], private_ip: 192.0.2.1, \
         public_ip: '', nat_enabled: false, backend: wireguard, note: '{}'}}\n",
        second / 60,
        second % 60,
        "x".repeat(letters)
    )
}

#[tokio::test]
async fn of_what_a_member_has_beyond_its_quota_only_the_outline_is_kept_until_there_is_space() {
    let lab = Lab::new();
    let endpoints = lab.dir().with_file_name("endpoints");
    fs::create_dir_all(&endpoints).unwrap();
    let path = |name: &str| endpoints.join(format!("{name}.yaml"));
    fs::write(path("good"), heavy("good", "good", 3599, 100)).unwrap();
    fs::write(path("huge"), heavy("huge", "bad", 0, 100_000)).unwrap();
    for number in 0..60 {
        let name = format!("bad-{number:02}");
        fs::write(path(&name), heavy(&name, "bad", number, 24 << 10)).unwrap();
    }
    let withheld = || async {
        let objects = lab.store.list(Kind::Endpoint, NS).await.unwrap();
        assert_eq!(objects.iter().filter(|object| object.metadata.origin() == Some("good")).count(), 1);
        let over =
            objects.into_iter().filter_map(|object| Some((object.metadata.name.clone(), object.withheld?)));
        over.collect::<std::collections::BTreeMap<_, _>>()
    };

    let first = withheld().await;
    assert!(first["huge"].contains("field `spec`: is too large"), "{}", first["huge"]);
    assert!(!first.contains_key("good") && !first.contains_key("bad-00"), "the oldest are kept");
    assert!(first["bad-59"].contains("the oldest are taken"), "{}", first["bad-59"]);
    assert!((18..=24).contains(&first.len()), "{first:?}");

    for number in 0..59 {
        fs::remove_file(path(&format!("bad-{number:02}"))).unwrap();
    }
    let second = withheld().await;
    assert_eq!(second.keys().collect::<Vec<_>>(), ["huge"], "there is space for the rest now");
}

#[tokio::test]
async fn what_a_crashed_writer_left_is_not_an_object_and_is_cleared_away() {
    let lab = Lab::new();
    lab.store.create(sample("a")).await.unwrap();
    let text = fs::read_to_string(lab.file("a")).unwrap();
    let leftover = lab.dir().join(".trieste-tmp-4711-deadbeef");
    fs::write(&leftover, &text[..text.len() / 2]).unwrap();
    assert_eq!(lab.names().await, ["a"]);
    assert_eq!(lab.store.problems(), []);
    // A writer at work holds its file locked.
    let at_work = lab.dir().join(".trieste-tmp-4712-deadbeef");
    let file = fs::File::create(&at_work).unwrap();
    file.lock().unwrap();
    lab.store.create(sample("b")).await.unwrap();
    assert!(!leftover.exists());
    assert!(at_work.exists(), "a writer that is at work has lost its file");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_at_once_and_followers_beside_them_lose_nothing() {
    const OBJECTS: usize = 100;
    let lab = Lab::new();
    let mut events = lab.store.list_watch(Kind::Cluster, NS);
    assert!(matches!(next(&mut events).await, StoreEvent::Listed(_)));
    let names: Vec<String> = (0..OBJECTS).map(|number| format!("c{number}")).collect();
    let created = names.iter().map(|name| lab.store.create(sample(name)));
    let created = futures::future::try_join_all(created).await.unwrap();
    let mut seen = std::collections::BTreeMap::new();
    while seen.len() < OBJECTS {
        let StoreEvent::Applied(object) = next(&mut events).await else { panic!("nothing was deleted") };
        seen.insert(object.metadata.name.clone(), object);
    }
    assert!(created.iter().all(|object| seen.get(&object.metadata.name) == Some(object)));

    // Of updates that are based on the same version one is taken.
    let updates = (0..8).map(|number| {
        let mut object = created[0].clone();
        object.metadata.annotations.insert("by".to_owned(), format!("writer {number}"));
        lab.store.update(object)
    });
    let outcomes = futures::future::join_all(updates).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
    assert!(
        outcomes.iter().all(|outcome| outcome.is_ok() || matches!(outcome, Err(StoreError::Conflict { .. })))
    );
    let newest = outcomes.into_iter().find_map(Result::ok).unwrap();
    assert_eq!(lab.store.get(&newest.key()).await.unwrap(), Some(newest.clone()));
    assert!(matches!(next(&mut events).await, StoreEvent::Applied(object) if object == newest));

    futures::future::try_join_all(created[1..].iter().map(|object| lab.store.delete_version(object)))
        .await
        .unwrap();
    let mut gone = 0;
    while gone < OBJECTS - 1 {
        assert!(matches!(next(&mut events).await, StoreEvent::Deleted(_)));
        gone += 1;
    }
    assert_eq!(lab.names().await, ["c0"]);
    assert_eq!(fs::read_dir(lab.dir()).unwrap().count(), 1, "a file that was not needed stays");
}

#[tokio::test]
async fn a_writer_that_holds_the_lock_and_hangs_is_an_error_in_time() {
    let root = tempfile::tempdir().unwrap();
    let options = DirOptions { lock_timeout: Duration::from_millis(50), ..DirOptions::default() };
    let store = DirStore::open_with(root.path(), options).unwrap();
    store.create(sample("a")).await.unwrap();
    let lock = fs::File::open(root.path().join(".lock")).unwrap();
    lock.lock().unwrap();
    let outcome = store.create(sample("b")).await;
    assert!(matches!(outcome, Err(StoreError::Locked { .. })), "{outcome:?}");
    assert!(store.get(&key("a")).await.unwrap().is_some(), "readers need no lock");
    lock.unlock().unwrap();
    store.create(sample("b")).await.unwrap();
}

/// Processes that count, one of them killed again and again in the middle of its work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_in_several_processes_lose_nothing_also_when_they_are_killed() {
    let lab = Lab::new();
    let mut victims = 0;
    let workers: Vec<_> = (0..2).map(|_| counting_process(lab.root.path(), "15")).collect();
    for delay_ms in [20, 35, 50] {
        let mut victim = counting_process(lab.root.path(), "1000");
        tokio::time::sleep(Duration::from_millis(delay_ms)).await;
        victim.kill().unwrap();
        victim.wait().unwrap();
        victims += 1;
    }
    for mut worker in workers {
        assert!(worker.wait().unwrap().success());
    }
    let object = lab.store.get(&key("counted")).await.unwrap().unwrap();
    let count: usize = object.metadata.annotations["count"].parse().unwrap();
    assert!(count >= 30, "{count} of at least 30 updates are left, with {victims} killed writers");
    let by_generation = object.metadata.annotations.len();
    assert_eq!(by_generation, 1);
    lab.store.create(sample("after")).await.unwrap();
    assert_eq!(lab.store.problems(), [], "a killed writer left a broken file");
    let leftovers = fs::read_dir(lab.dir()).unwrap().count();
    assert_eq!(leftovers, 2, "a killed writer's leftovers stay");
}

#[tokio::test]
async fn a_remembered_store_is_told_from_an_empty_and_from_another_one() {
    let root = TempDir::new().unwrap();
    let (path, memory) = (root.path().join("broker"), root.path().join("state/broker-id"));
    fs::create_dir(&path).unwrap();
    let attach = || DirStore::attach_remembering(&path, &memory);
    assert!(attach().list(Kind::Cluster, NS).await.unwrap().is_empty(), "a new broker is empty");
    attach().create(sample("a")).await.unwrap();
    assert_eq!(fs::read(path.join(".store-id")).unwrap(), fs::read(&memory).unwrap());

    fs::rename(&path, root.path().join("first")).unwrap();
    fs::create_dir(&path).unwrap();
    let store = attach();
    let refused = [
        store.list(Kind::Cluster, NS).await.unwrap_err(),
        store.get(&key("a")).await.unwrap_err(),
        store.create(sample("b")).await.unwrap_err(),
        store.delete(&key("a")).await.unwrap_err(),
    ];
    for error in refused {
        assert!(error.is_unavailable() && error.to_string().contains("is it mounted?"), "{error}");
    }
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0, "something was made in the mount point");
    assert!(matches!(next(&mut store.list_watch(Kind::Cluster, NS)).await, StoreEvent::Unavailable(_)));

    fs::write(path.join(".store-id"), "another\n").unwrap();
    assert!(store.list(Kind::Cluster, NS).await.unwrap_err().is_unavailable());
    fs::remove_file(&memory).unwrap();
    assert!(store.list(Kind::Cluster, NS).await.unwrap().is_empty(), "joined all the same");
}

/// Not a test by itself: the body of the processes above.
#[tokio::test]
async fn child_that_counts() {
    let (Ok(root), Ok(rounds)) = (std::env::var("TRIESTE_TEST_ROOT"), std::env::var("TRIESTE_TEST_ROUNDS"))
    else {
        return;
    };
    let store = DirStore::open(root).unwrap();
    for _ in 0..rounds.parse().unwrap() {
        let mut wanted = sample("counted");
        count(&mut wanted);
        upsert(&store, wanted, |object, _| count(object)).await.unwrap();
    }
}

fn counting_process(root: &Path, rounds: &str) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "dir_store::child_that_counts", "--quiet"])
        .env("TRIESTE_TEST_ROOT", root)
        .env("TRIESTE_TEST_ROUNDS", rounds)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn count(object: &mut Object) {
    let entry = object.metadata.annotations.entry("count".to_owned()).or_insert_with(|| "0".to_owned());
    *entry = (entry.parse::<usize>().unwrap() + 1).to_string();
}

/// A store in a fresh directory.
struct Lab {
    root: TempDir,
    store: DirStore,
}

impl Lab {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        // No resync within a test's time: what is seen was heard.
        let options = DirOptions {
            debounce: Duration::from_millis(20),
            resync: Duration::from_secs(3600),
            ..Default::default()
        };
        let store = DirStore::open_with(root.path(), options).unwrap();
        Self { root, store }
    }

    fn dir(&self) -> PathBuf {
        self.root.path().join(NS).join("clusters")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir().join(format!("{name}.yaml"))
    }

    fn write(&self, name: &str, text: &str) {
        fs::create_dir_all(self.dir()).unwrap();
        fs::write(self.dir().join(name), text).unwrap();
    }

    async fn names(&self) -> Vec<String> {
        let objects = self.store.list(Kind::Cluster, NS).await.unwrap();
        objects.into_iter().map(|object| object.metadata.name).collect()
    }

    fn set_aside(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.dir()).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.to_string_lossy().contains(".aside-")).collect()
    }
}

fn sample(name: &str) -> Object {
    conformance::sample(NS, name)
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(Kind::Cluster, NS, name)
}

fn hand_written(name: &str) -> String {
    format!(
        "apiVersion: submariner.io/v1\nkind: Cluster\nmetadata:\n  name: {name}\nspec:\n  cluster_id: {name}\n  \
         cluster_cidr: []\n  global_cidr: []\n  service_cidr:\n  - 100.1.0.0/16\n"
    )
}

fn annotate(object: &mut Object) {
    object.metadata.annotations.insert("note".to_owned(), "1".to_owned());
}

async fn next(events: &mut (impl Stream<Item = StoreEvent> + Unpin)) -> StoreEvent {
    tokio::time::timeout(PATIENCE, events.next()).await.expect("an event should have come").unwrap()
}

async fn until(
    events: &mut (impl Stream<Item = StoreEvent> + Unpin),
    mirror: &mut Cache,
    is_reached: impl Fn(&Cache) -> bool,
) {
    while !is_reached(mirror) {
        let event = next(events).await;
        mirror.apply(&event);
    }
}

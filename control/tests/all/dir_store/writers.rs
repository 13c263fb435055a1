//! Writers at once, also in several processes, and such as end in the middle of their work.

use std::process::{Command, Stdio};

use trieste_control::store::upsert;

use super::*;

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
        .args(["--exact", "dir_store::writers::child_that_counts", "--quiet"])
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

//! The root, and things in it that are no plain files.

use std::os::unix::fs::symlink;

use super::*;

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

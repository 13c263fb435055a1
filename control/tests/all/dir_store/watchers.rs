//! Who follows the store misses nothing.

use super::*;

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

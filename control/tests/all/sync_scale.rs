//! How much work, how many requests and how much memory two hundred clusters cost. Counts are asserted, times and
//! memory printed (`--nocapture`).
#![expect(clippy::print_stdout, reason = "figures are for whoever runs it")]

use std::time::{Duration, Instant};

use serde_json::json;
use trieste_control::api::{Object, ObjectMeta};
use trieste_control::sync::{SyncHandle, SyncStats, Syncer};

use crate::sync_lab::{self, BROKER_NS, Fake, LOCAL_NS, config, endpoint_key, join, pass, publish};

/// Per cluster: a Cluster and an Endpoint.
const OBJECTS: u64 = 2;

#[tokio::test(start_paused = true)]
async fn two_hundred_clusters_cost_one_write_per_object_and_no_reads() {
    let run = Run::converge(200, Arrival::Listed).await;
    assert_eq!(run.local.counts().writes(), 200 * OBJECTS);
    assert_eq!(run.broker.counts().writes(), OBJECTS);
    assert_eq!(run.local.counts().reads + run.broker.counts().reads, 0);
    assert_eq!((run.local.counts().watches, run.broker.counts().watches), (2, 2));
    run.print("200 clusters, listed at once");
}

#[tokio::test(start_paused = true)]
async fn five_thousand_updates_cost_at_most_one_write_each_and_no_reads() {
    let run = Run::converge(200, Arrival::Listed).await;
    let (before, reads) = (run.local.counts().writes(), run.local.counts().watches);
    let clock = Clock::start();
    for update in 0..5_000_u32 {
        let id = format!("c{}", update % 200);
        run.broker.edit(&endpoint_key(BROKER_NS, &id), |endpoint| {
            endpoint.body["spec"]["public_ip"] = json!(format!("198.51.{}.{}", update / 200, update % 200));
        });
        tokio::task::yield_now().await;
    }
    pass(10).await;
    clock.print("5,000 updates, one by one");
    let writes = run.local.counts().writes() - before;
    let stats = *run.sync.stats.borrow();
    assert!((200..=5_000).contains(&writes), "{writes} writes for 5,000 updates");
    assert_eq!((run.local.counts().reads, run.local.counts().watches), (0, reads));
    assert_eq!((stats.races, stats.failures, stats.write_conflicts), (0, 0, 0));
    for index in 0..200 {
        let id = format!("c{index}");
        let (copy, theirs) = (endpoint_key(LOCAL_NS, &id), endpoint_key(BROKER_NS, &id));
        assert_eq!(run.local.find(&copy).unwrap().body, run.broker.find(&theirs).unwrap().body);
    }
    run.print("5,000 updates");
}

#[tokio::test(start_paused = true)]
async fn updates_that_come_at_once_are_taken_together() {
    let run = Run::converge(200, Arrival::Listed).await;
    let before = run.local.counts().writes();
    for update in 0..5_000_u32 {
        let id = format!("c{}", update % 200);
        run.broker.edit(&endpoint_key(BROKER_NS, &id), |endpoint| {
            endpoint.body["spec"]["public_ip"] = json!(format!("198.51.{}.{}", update / 200, update % 200));
        });
    }
    pass(10).await;
    let writes = run.local.counts().writes() - before;
    assert!(
        (200..=2_000).contains(&writes),
        "{writes} writes for the last of 25 updates of each of 200 endpoints"
    );
}

#[tokio::test(start_paused = true)]
async fn the_work_grows_with_the_number_of_clusters_and_not_with_its_square() {
    for arrival in [Arrival::Listed, Arrival::OneByOne] {
        let (half, whole) = (Run::converge(200, arrival).await, Run::converge(400, arrival).await);
        for (name, work) in [
            ("decisions", (|stats| stats.decisions) as fn(&SyncStats) -> u64),
            ("judgements", |stats| stats.judgements),
            ("events", |stats| stats.events),
            ("writes", |stats| stats.local_writes + stats.broker_writes),
        ] {
            let (of_half, of_whole) = (work(&half.sync.stats.borrow()), work(&whole.sync.stats.borrow()));
            assert!(
                2 * of_whole <= 5 * of_half.max(8),
                "{arrival:?}: {of_half} {name} for 200 clusters, {of_whole} for 400"
            );
        }
        whole.print(&format!("400 clusters, {arrival:?}"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_objects_leaves_those_who_were_there_before_and_bounded_memory() {
    let run = Run::converge(20, Arrival::Listed).await;
    run.broker.set_clock(1_000);
    for index in 0..20_000 {
        let origin = format!("flood{}", index % 300);
        let mut object = endpoint_of(&origin, index);
        object.metadata.annotations.insert("note".to_owned(), "x".repeat(100));
        run.broker.put(object);
        if index % 500 == 0 {
            tokio::task::yield_now().await;
        }
    }
    pass(120).await;
    let kept = run.local.objects().len() as u64;
    assert!(kept <= 4096 + OBJECTS, "{kept} objects were taken");
    for index in 0..20 {
        assert!(
            run.local.find(&endpoint_key(LOCAL_NS, &format!("c{index}"))).is_some(),
            "c{index} was pushed out"
        );
    }
    let refused = run.sync.refused.borrow().clone();
    assert_eq!(refused.len(), 257);
    let last = &refused[256].reason;
    assert!(last.contains("more objects are refused"), "{last}");
    let writes = run.local.counts().writes();
    assert!(writes <= 20_000, "{writes} writes: more than one for each object of the flood");
    run.print("a flood of 20,000 objects");
}

#[derive(Debug, Clone, Copy)]
enum Arrival {
    Listed,
    OneByOne,
}

struct Run {
    local: Fake,
    broker: Fake,
    sync: SyncHandle,
    clock: Clock,
}

impl Run {
    async fn converge(clusters: u64, arrival: Arrival) -> Self {
        let (local, broker) = (Fake::default(), Fake::default());
        publish(&local, "own", "10.255.0.0/24");
        let members = (0..clusters)
            .map(|index| (format!("c{index}"), format!("10.{}.{}.0/24", index / 200, index % 200)));
        if matches!(arrival, Arrival::Listed) {
            members.clone().for_each(|(id, subnet)| join(&broker, &id, &subnet));
        }
        let clock = Clock::start();
        let sync = Syncer::spawn(local.clone(), broker.clone(), config("own", "10.255.0.0/24"));
        if matches!(arrival, Arrival::OneByOne) {
            tokio::time::sleep(Duration::from_millis(10)).await;
            for (id, subnet) in members {
                join(&broker, &id, &subnet);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        pass(10).await;
        let run = Self { local, broker, sync, clock };
        assert_eq!(run.local.objects().len() as u64, (clusters + 1) * OBJECTS);
        run
    }

    fn print(&self, what: &str) {
        println!("{what}: {:?}", *self.sync.stats.borrow());
        self.clock.print(what);
    }
}

/// What this process has used since; other tests of this binary run beside.
struct Clock {
    began: Instant,
    cpu_ticks: u64,
}

impl Clock {
    fn start() -> Self {
        Self { began: Instant::now(), cpu_ticks: cpu_ticks() }
    }

    fn print(&self, what: &str) {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let memory = status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or("VmRSS unknown");
        let ticks = cpu_ticks() - self.cpu_ticks;
        println!("{what}: {:?} elapsed, {ticks} ticks of 10 ms CPU, {memory}", self.began.elapsed());
    }
}

fn cpu_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    [11, 12].iter().filter_map(|index| fields.get(*index)?.parse::<u64>().ok()).sum()
}

fn endpoint_of(origin: &str, index: u32) -> Object {
    let subnet = format!("11.{}.{}.{}/32", index >> 16, (index >> 8) & 255, index & 255);
    let mut object = sync_lab::labelled(sync_lab::endpoint(BROKER_NS, origin, &subnet), origin);
    object.metadata = ObjectMeta { name: format!("{origin}-{index}"), ..object.metadata };
    object
}

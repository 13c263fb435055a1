//! What exported services cost the controller: all of them at once, and one more. In memory, by the clocks of the machine:
//!
//! ```text
//! ./dev cargo test --release -p trieste-control --test control globalnet::cost -- --nocapture
//! ```

use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};
use trieste_control::election::{self, ElectionConfig};
use trieste_control::globalnet::{GlobalnetConfig, GlobalnetHandle, GlobalnetPhase, spawn};

use super::kept::Kept;
use super::world::{GATEWAY, NS, World, export, pod, service};
use crate::memory_store::MemoryStore;

/// How many services are exported; as many as are quick without optimisation too.
const SIZES: &[u32] = if cfg!(debug_assertions) { &[300] } else { &[300, 1_000, 3_000, 10_000] };
/// How many pods the headless services have.
const PODS: &[u32] = if cfg!(debug_assertions) { &[500] } else { &[1_000, 10_000, 50_000] };
/// How many pods each headless service has.
const PODS_EACH: u32 = 50;
/// How long everything may take.
const PATIENCE: Duration = Duration::from_secs(180);

/// What a size costs.
struct Cost {
    all: Duration,
    all_cpu: Duration,
    one: Duration,
    one_cpu: Duration,
    rest_cpu: f64,
}

#[tokio::test]
async fn exported_services_are_given_addresses_all_at_once_and_one_more() {
    for &size in SIZES {
        let mut world = World::new("242.0.0.0/12");
        for number in 0..size {
            put_export(&mut world, number);
        }
        let mut more = World::empty();
        put_export(&mut more, size);
        show("services", size, &measure(world, more, size).await);
    }
}

#[tokio::test]
async fn pods_of_headless_services_are_given_addresses_all_at_once_and_one_more() {
    for &size in PODS {
        let mut world = World::new("242.0.0.0/12");
        put_headless(&mut world, size);
        let mut more = World::empty();
        put_pod(&mut more, size, size);
        show("pods", size, &measure(world, more, size).await);
    }
}

/// How long it takes is a matter of the machine; what is decided about is not.
#[test]
fn one_more_export_has_as_many_steps_however_many_there_are() {
    let steps = |size: u32| {
        let mut world = World::new("242.0.0.0/12");
        (0..size).for_each(|number| put_export(&mut world, number));
        steps_of_change(&mut world, |world| put_export(world, size))
    };
    let (few, many) = (steps(32), steps(320));
    assert_eq!(few, many);
    assert!(few <= 40, "{few}");
}

#[test]
fn one_more_pod_has_as_many_steps_however_many_there_are() {
    let steps = |size: u32| {
        let mut world = World::new("242.0.0.0/12");
        put_headless(&mut world, size);
        steps_of_change(&mut world, |world| put_pod(world, size, size))
    };
    let (few, many) = (steps(100), steps(400));
    assert_eq!(few, many);
    assert!(few <= 20, "{few}");
}

/// Returns how many units are decided about from a change until all is written again.
fn steps_of_change(world: &mut World, change: impl FnOnce(&mut World)) -> u64 {
    let mut kept = Kept::new(world);
    settle(world, &mut kept);
    let before = kept.planner.steps();
    change(world);
    settle(world, &mut kept);
    kept.planner.steps() - before
}

fn settle(world: &mut World, kept: &mut Kept) {
    loop {
        kept.follow(world);
        let (writes, _) = kept.planner.take_writes(usize::MAX);
        if writes.is_empty() {
            return;
        }
        writes.into_iter().for_each(|write| world.write(write));
    }
}

fn put_headless(world: &mut World, size: u32) {
    for number in 0..size / PODS_EACH {
        let (namespace, app) = (format!("ns-{}", number % 16), format!("db-{number}"));
        world.put(service(&namespace, &app, "None", &app));
        world.put(export(&namespace, &app));
    }
    for number in 0..size {
        put_pod(world, number, size);
    }
}

fn put_export(world: &mut World, number: u32) {
    let (namespace, name) = (format!("ns-{}", number % 16), format!("web-{number}"));
    let ip = format!("100.1.{}.{}", number / 250, number % 250 + 1);
    world.put(service(&namespace, &name, &ip, &name));
    world.put(export(&namespace, &name));
}

fn put_pod(world: &mut World, number: u32, size: u32) {
    let of = number % (size / PODS_EACH);
    let ip = std::net::Ipv4Addr::from(0x0A01_0000 + number);
    world.put(pod(
        &format!("ns-{}", of % 16),
        &format!("pod-{number}"),
        &format!("db-{of}"),
        &ip.to_string(),
    ));
}

async fn measure(world: World, more: World, size: u32) -> Cost {
    let store = MemoryStore::default();
    world.objects.into_values().for_each(|object| store.put(object));
    let candidate = election::spawn(store.clone(), ElectionConfig::globalnet(NS, GATEWAY));
    let mut leadership = candidate.leadership();
    let leads = timeout(PATIENCE, leadership.wait_for(Option::is_some)).await.is_ok();
    assert!(leads, "never leads");
    let config = GlobalnetConfig {
        namespace: NS.to_owned(),
        cluster_id: "cluster-a".to_owned(),
        gateway: Some(GATEWAY.to_owned()),
    };
    let (begun, cpu) = (Instant::now(), cpu_time());
    let handle = spawn(store.clone(), config, candidate.clone());
    settles(&handle, size).await;
    let (all, all_cpu) = (begun.elapsed(), cpu_time() - cpu);
    sleep(Duration::from_secs(6)).await;
    let (begun, cpu) = (Instant::now(), cpu_time());
    more.objects.into_values().for_each(|object| store.put(object));
    settles(&handle, size + 1).await;
    let (one, one_cpu) = (begun.elapsed(), cpu_time() - cpu);
    sleep(Duration::from_secs(3)).await;
    let (begun, cpu) = (Instant::now(), cpu_time());
    sleep(Duration::from_secs(3)).await;
    let rest_cpu = (cpu_time() - cpu).as_secs_f64() / begun.elapsed().as_secs_f64();
    Cost { all, all_cpu, one, one_cpu, rest_cpu }
}

/// Waits until there are so many addresses that others ask at, and nothing is left to be written.
async fn settles(handle: &GlobalnetHandle, addresses: u32) {
    let is_done = |count: usize| u32::try_from(count) == Ok(addresses);
    let (mut state, mut status) = (handle.state.clone(), handle.status.clone());
    let all = async {
        let _ =
            state.wait_for(|state| state.as_ref().is_some_and(|state| is_done(state.ingress.len()))).await;
        let _ = status.wait_for(|status| status.phase == GlobalnetPhase::Settled).await;
    };
    if timeout(PATIENCE, all).await.is_err() {
        panic!("not settled: {:?}", *handle.status.borrow());
    }
}

/// The time that this thread has computed, which all tasks of a test share.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("the kernel counts it");
    let nanoseconds = text.split_whitespace().next().expect("a number").parse().expect("a number");
    Duration::from_nanos(nanoseconds)
}

#[expect(clippy::print_stdout, reason = "it is what is measured")]
fn show(what: &str, size: u32, cost: &Cost) {
    println!(
        "{size:>6} {what}: all after {:.2} s (computed {:.2} s), one more after {:.0} ms (computed {:.1} ms), at rest \
         {:.2} % of a core",
        cost.all.as_secs_f64(),
        cost.all_cpu.as_secs_f64(),
        cost.one.as_secs_f64() * 1e3,
        cost.one_cpu.as_secs_f64() * 1e3,
        cost.rest_cpu * 100.0,
    );
}

//! Changes of conditions are reported once, when they are written.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;
use trieste_control::api::Kind;

use crate::api_store::ApiStore;
use crate::lab::{Cluster, service, settle};
use crate::memory_store::Fault;

/// Returns what was reported of exports: each reason, with a sign for what is not as it should be.
fn reported(cluster: &Cluster) -> Vec<String> {
    let transitions = cluster.agent.as_ref().unwrap().status.borrow().transitions.clone();
    let numbers: Vec<u64> = transitions.iter().map(|transition| transition.number).collect();
    assert!(numbers.is_sorted_by(|one, next| one + 1 == *next), "{numbers:?}");
    assert!(transitions.iter().all(|transition| !transition.message.is_empty()));
    let sign = |is_good| if is_good { "" } else { "!" };
    transitions
        .iter()
        .map(|transition| format!("{}{}", sign(transition.is_good), transition.reason))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn what_becomes_of_an_export_is_reported_once_and_not_after_a_restart() {
    let broker = ApiStore::default();
    let mut east = Cluster::start("east", &broker);
    east.export("web", 1_000);
    settle().await;
    assert_eq!(reported(&east), ["!NoService"]);
    east.service("web", "10.96.0.7");
    settle().await;
    // That it was on its way is not worth a word where it is there at once.
    assert_eq!(reported(&east), ["!NoService", "Valid", "Exported"]);
    let transitions = east.agent.as_ref().unwrap().status.borrow().transitions.clone();
    let export = east.store.find(Kind::ServiceExport, "shop", "web").unwrap();
    assert_eq!((&transitions[2].export, &transitions[2].uid), (&export.key(), &export.metadata.uid));
    assert_eq!(transitions[2].message, "Service was successfully exported to the broker");
    sleep(Duration::from_secs(600)).await;
    assert_eq!(reported(&east).len(), 3);
    east.run();
    settle().await;
    assert_eq!(reported(&east), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_reported_and_that_it_has_ended() {
    let broker = ApiStore::default();
    let [east, west] = ["east", "west"].map(|id| Cluster::start(id, &broker));
    east.service("web", "10.96.0.7");
    east.export("web", 1_000);
    settle().await;
    west.put(service("web", &json!({"type": "ClusterIP", "clusterIP": "None", "ports": []})));
    west.export("web", 2_000);
    settle().await;
    assert!(reported(&east).contains(&"!TypeConflict,ConflictingType".to_owned()), "{:?}", reported(&east));
    assert!(reported(&west).contains(&"!TypeConflict,ConflictingType".to_owned()));
    assert!(reported(&west).contains(&"!Failed".to_owned()));
    west.unexport("web");
    settle().await;
    assert_eq!(reported(&east).last().map(String::as_str), Some("NoConflicts"));
}

#[tokio::test(start_paused = true)]
async fn an_export_that_flaps_is_reported_a_few_times() {
    let broker = ApiStore::default();
    let east = Cluster::start("east", &broker);
    east.export("web", 1_000);
    for _ in 0..200 {
        east.service("web", "10.96.0.7");
        sleep(Duration::from_secs(2)).await;
        east.store.0.remove(Kind::Service, "web");
        sleep(Duration::from_secs(2)).await;
    }
    let count = reported(&east).len();
    assert!((10..=26).contains(&count), "{count} in 800 s");
    // Another export is not held up by that.
    east.service("db", "10.96.0.8");
    east.export("db", 1_000);
    settle().await;
    assert_eq!(reported(&east).len(), count + 1);
}

#[tokio::test(start_paused = true)]
async fn a_change_that_was_not_written_is_not_reported() {
    let broker = ApiStore::default();
    let east = Cluster::start("east", &broker);
    settle().await;
    east.store.0.set_fault(Fault::Fails);
    east.export("web", 1_000);
    settle().await;
    assert_eq!(reported(&east), [""; 0]);
    east.store.0.set_fault(Fault::None);
    sleep(Duration::from_secs(120)).await;
    assert_eq!(reported(&east), ["!NoService"]);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_exports_are_reported_from_a_bounded_memory() {
    let broker = ApiStore::default();
    let east = Cluster::start("east", &broker);
    (0..1000).for_each(|number| east.export(&format!("s{number}"), 1_000));
    settle().await;
    let transitions = east.agent.as_ref().unwrap().status.borrow().transitions.clone();
    assert_eq!((transitions.len(), transitions.last().map(|last| last.number)), (256, Some(1000)));
}

//! How long changes take from one store to the other is measured.

use std::time::Duration;

use tokio::time::sleep;
use trieste_control::api::Kind;
use trieste_discovery_agent::AgentStatus;

use crate::api_store::ApiStore;
use crate::lab::{Cluster, settle};
use crate::memory_store::Fault;

const OUTAGE: Duration = Duration::from_secs(600);

fn status(cluster: &Cluster) -> AgentStatus {
    cluster.agent.as_ref().unwrap().status.borrow().clone()
}

#[tokio::test(start_paused = true)]
async fn a_change_counts_once_in_each_cluster_where_something_follows_from_it() {
    let broker = ApiStore::default();
    let [east, west] = ["east", "west"].map(|id| Cluster::start(id, &broker));
    settle().await;
    east.service("web", "10.96.0.7");
    east.export("web", 1_000);
    settle().await;
    let (exporting, importing) = (status(&east), status(&west));
    assert_eq!((exporting.to_broker.written.count, exporting.to_broker.oldest), (1, None));
    assert_eq!((importing.to_broker.written.count, importing.to_broker.oldest), (0, None));
    assert!(importing.to_cluster.written.count > 0 && importing.to_cluster.oldest.is_none());
    assert!(exporting.to_broker.written.sum < Duration::from_secs(1), "{exporting:?}");

    // From this nothing follows elsewhere.
    east.edit(Kind::Service, "shop", "web", |service| {
        service.metadata.annotations.insert("theirs".to_owned(), "1".to_owned());
    });
    settle().await;
    let after = status(&east);
    assert_eq!((after.to_broker.written.count, after.to_broker.oldest), (1, None));
    assert_eq!(status(&west).to_cluster, importing.to_cluster);
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_store_is_there_to_be_seen_and_counts_with_all_of_its_time() {
    let broker = ApiStore::default();
    let east = Cluster::start("east", &broker);
    east.service("web", "10.96.0.7");
    settle().await;
    broker.0.set_fault(Fault::Fails);
    let begun = tokio::time::Instant::now();
    east.export("web", 1_000);
    sleep(OUTAGE).await;
    let oldest = status(&east).to_broker.oldest.expect("the export waits");
    assert!(oldest.saturating_duration_since(begun.into_std()) < Duration::from_secs(1));
    assert_eq!(status(&east).to_broker.written.count, 0);
    broker.0.set_fault(Fault::None);
    broker.0.break_watches();
    sleep(Duration::from_secs(60)).await;
    let lag = status(&east).to_broker;
    assert_eq!((lag.written.count, lag.oldest), (1, None));
    assert!(lag.written.sum >= OUTAGE && lag.written.sum < OUTAGE + Duration::from_secs(60), "{lag:?}");
}

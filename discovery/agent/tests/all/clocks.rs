//! Clusters whose clocks differ: which export is the oldest is decided by the times that are recorded, and everybody comes to the
//! same end.

use std::time::Duration;

use tokio::time::sleep;
use trieste_control::api::Kind;

use crate::api_store::ApiStore;
use crate::lab::{BROKER, Cluster, aggregate, clusters, settle, since, slices_of};

/// Two clusters of which each exports `shop/web` with another type, east first; the times are those of their own clocks.
async fn exported(broker: &ApiStore, east_since: i64, west_since: i64) -> [Cluster; 2] {
    let [east, west] = ["east", "west"].map(|id| Cluster::start(id, broker));
    east.service("web", "10.96.0.7");
    east.export("web", east_since);
    sleep(Duration::from_secs(10)).await;
    west.service("web", "None");
    west.export("web", west_since);
    settle().await;
    [east, west]
}

/// Checks that an export has won, and that all know it.
fn check(broker: &ApiStore, winner: &Cluster, loser: &Cluster, kind: &str) {
    let import = aggregate(broker, "web").unwrap();
    let [first, second] = [winner, loser].map(|cluster| cluster.config.cluster_id.clone());
    assert_eq!((import.body["spec"]["type"].as_str(), clusters(&import)), (Some(kind), vec![first.clone()]));
    assert_eq!(since(&import, &second), None);
    assert_eq!((slices_of(broker, BROKER, &first).len(), slices_of(broker, BROKER, &second).len()), (1, 0));
    assert_eq!(
        (winner.said("web", "Ready").as_str(), loser.said("web", "Ready").as_str()),
        ("True/Exported", "False/Failed")
    );
    for cluster in [winner, loser] {
        assert_eq!(cluster.said("web", "Conflict"), "True/TypeConflict,ConflictingType");
        assert_eq!((cluster.slices_of(&first).len(), cluster.slices_of(&second).len()), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn of_clocks_that_are_30_s_apart_the_recorded_times_decide_and_nobody_changes_his_mind() {
    // East exports first in truth; its clock is 30 s ahead, or right.
    for (east_since, is_east_oldest) in [(1_030, false), (1_000, true)] {
        let broker = ApiStore::default();
        let mut all = exported(&broker, east_since, 1_010).await;
        let kind = if is_east_oldest { "ClusterSetIP" } else { "Headless" };
        for round in 0..3 {
            {
                let [east, west] = &all;
                let (winner, loser) = if is_east_oldest { (east, west) } else { (west, east) };
                check(&broker, winner, loser, kind);
            }
            let stores = [broker.clone(), all[0].store.clone(), all[1].store.clone()];
            stores.iter().for_each(|store| drop(store.writes()));
            // Whoever starts again, at whatever time, finds what is recorded.
            all[round % 2].run();
            sleep(Duration::from_secs(600)).await;
            let writes: Vec<String> = stores.iter().flat_map(ApiStore::writes).collect();
            assert_eq!(writes, [""; 0], "round {round}");
        }
        // The winner gives in; if it comes back, it is as old as its clock says.
        let winner = &all[usize::from(!is_east_oldest)];
        winner.unexport("web");
        settle().await;
        assert_eq!(
            aggregate(&broker, "web").unwrap().body["spec"]["type"],
            if is_east_oldest { "Headless" } else { "ClusterSetIP" }
        );
        let loser = &all[usize::from(is_east_oldest)];
        assert_eq!(
            (loser.said("web", "Ready").as_str(), loser.said("web", "Conflict").as_str()),
            ("True/Exported", "False/NoConflicts")
        );
        assert!(broker.0.names(Kind::EndpointSlice).len() == 1);
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_exports_of_one_second_the_cluster_that_comes_first_by_name_is_the_oldest() {
    let broker = ApiStore::default();
    let [east, west] = exported(&broker, 1_000, 1_000).await;
    check(&broker, &east, &west, "ClusterSetIP");
    let broker = ApiStore::default();
    let [east, west] = exported(&broker, 2_000, 1_000).await;
    check(&broker, &west, &east, "Headless");
}

//! The runner's fault table with the controller of Fabrics.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use serde_json::json;
use tokio::sync::watch;
use trieste_control::api::{Fabric, Kind, Object};
use trieste_control::election::{self, ElectionConfig, Timings};
use trieste_control::runner::Fence;

use self::bed::Subject;
use crate::Others;
use crate::controller::{FabricController, OperatorStatus};
use crate::run::{LEASE, spawn_controller};

#[path = "../../../tests/all/runner/faults/bed.rs"]
mod bed;

bed::fault_rows!(SUBJECTS);

const SUBJECTS: [Subject; 1] = [Subject {
    name: "FabricController",
    seed: |stores| {
        let fabric = json!({"apiVersion": "trieste.io/v1alpha1", "kind": "Fabric",
            "metadata": {"name": "east", "uid": "u1", "generation": 1},
            "spec": {"brokerConfig": {}, "joinConfig": {}}});
        stores.faulty.put(Object::from_value(fabric).unwrap());
        // Another group's, which has no part: its status is written all the same.
        let other = json!({"apiVersion": "operator.tkestack.io/v1alpha1", "kind": "Knitnet",
            "metadata": {"namespace": "apps", "name": "late", "uid": "u2", "generation": 1},
            "spec": {"action": "join", "joinConfig": {}}});
        stores.faulty.put(Object::from_value(other).unwrap());
    },
    candidate: Some(|store, host| {
        let election = ElectionConfig {
            namespace: "trieste-operator".to_owned(),
            lease: LEASE.to_owned(),
            identity: host.to_owned(),
            timings: Timings::globalnet(),
        };
        election::spawn(store.clone(), election)
    }),
    start: |stores, candidate| {
        let fence = Fence::of(candidate.cloned(), Duration::from_millis(500));
        let (sender, status) = watch::channel(OperatorStatus::default());
        let publish = move |status: &OperatorStatus| drop(sender.send_replace(status.clone()));
        let reports = stream::pending().boxed();
        Box::new((
            spawn_controller(
                FabricController::new(Others { upstream: true, tkestack: true }),
                stores.faulty.clone(),
                fence,
                reports,
                publish,
            ),
            status,
        ))
    },
    disturb: |stores, number| {
        stores.faulty.edit(Kind::Fabric, "east", |fabric| {
            // In turn what this operator has written is taken from it.
            if number % 2 == 0 {
                fabric.metadata.extra.remove("finalizers");
            } else {
                fabric.body.remove("status");
            }
        });
    },
    is_settled: |stores, _| {
        let Some(found) = stores.faulty.peek(Kind::Fabric, "east") else { return false };
        let other = stores.faulty.peek(Kind::Knitnet, "late");
        let has_status = other.is_some_and(|other| other.body.contains_key("status"));
        let has_finalizers = [Fabric::BROKER_FINALIZER, Fabric::MEMBER_FINALIZER]
            .iter()
            .all(|finalizer| found.metadata.has_finalizer(finalizer));
        has_finalizers
            && has_status
            && found.body.get("status").is_some_and(|status| status["phase"] == "Deploying")
    },
    most_writes: 100,
}];

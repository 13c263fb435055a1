//! The controller alone: finalizers, orders and status, from objects and reports.

use std::time::Instant;

use crate::Others;
use crate::controller::FabricController;
use crate::order::{Facts, Order, Outcome, Part, Reason, Report, Task};
use jiff::Timestamp;
use serde_json::{Value, json};
use trieste_control::api::{BrokerInfoRef, Kind, Object, ObjectKey};
use trieste_control::runner::{Context, Controller, Watch, Write};
use trieste_control::store::StoreEvent;

/// A controller and the one Fabric that it has, as a store would keep it.
struct Bed {
    controller: FabricController,
    fabric: Value,
}

impl Bed {
    fn new(spec: &Value) -> Self {
        let fabric = json!({"apiVersion": "trieste.io/v1alpha1", "kind": "Fabric", "spec": spec,
            "metadata": {"name": "east", "uid": "u1", "generation": 1, "resourceVersion": "1",
                "creationTimestamp": "2026-01-01T00:00:00Z"}});
        let mut bed = Self { controller: FabricController::new(Others::default()), fabric };
        let listed = StoreEvent::Listed(vec![Object::from_value(bed.fabric.clone()).unwrap()]);
        bed.controller.observe(&Watch::new(0, Kind::Fabric, ""), listed, Instant::now());
        bed.list_gateways();
        bed
    }

    /// Lets the controller read that there are no gateways.
    fn list_gateways(&mut self) {
        let watch = Watch::new(0, Kind::Gateway, "submariner-operator");
        self.controller.observe(&watch, StoreEvent::Listed(Vec::new()), Instant::now());
    }

    fn see(&mut self, kind: Kind, object: &Value) {
        let namespace = if kind == Kind::Fabric { "" } else { "submariner-operator" };
        let object = Object::from_value(object.clone()).unwrap();
        self.controller.observe(&Watch::new(0, kind, namespace), StoreEvent::Applied(object), Instant::now());
    }

    fn change(&mut self, edit: impl FnOnce(&mut Value)) {
        edit(&mut self.fabric);
        let generation = self.fabric["metadata"]["generation"].as_i64().unwrap() + 1;
        self.fabric["metadata"]["generation"] = json!(generation);
        self.see(Kind::Fabric, &self.fabric.clone());
    }

    /// Carries out what the controller writes until it writes nothing more.
    fn settle(&mut self) {
        for _ in 0..8 {
            let context = Context { now: Instant::now(), wall: Timestamp::UNIX_EPOCH, leadership: None };
            let plan = self.controller.reconcile(&east(), &context);
            let Some(write) = plan.writes.into_iter().next() else { return };
            match write {
                Write::Update(object) => {
                    let status = self.fabric["status"].clone();
                    self.fabric = object.to_value();
                    self.fabric["status"] = status;
                    if self.fabric["status"].is_null() {
                        self.fabric.as_object_mut().unwrap().remove("status");
                    }
                }
                Write::UpdateStatus(object) => self.fabric["status"] = object.to_value()["status"].clone(),
                other @ (Write::Create(_) | Write::Delete(_) | Write::Annotate { .. }) => panic!("{other:?}"),
            }
            self.see(Kind::Fabric, &self.fabric.clone());
        }
        panic!("it does not come to rest");
    }

    fn orders(&self) -> Vec<Order> {
        super::orders(&self.controller)
    }

    fn shown(&self) -> Vec<String> {
        let shown = |order: &Order| {
            let task = if order.task == Task::Remove { "remove" } else { "install" };
            format!("{task} {}", order.part.as_str())
        };
        self.orders().iter().map(shown).collect()
    }

    fn report(&mut self, part: Part, outcome: Outcome) {
        let generation = self.fabric["metadata"]["generation"].as_i64().unwrap();
        let report = Report { source: east(), uid: "u1".to_owned(), generation, part, outcome };
        self.controller.handle_input(report, Instant::now());
        self.settle();
    }

    fn finalizers(&self) -> Vec<&str> {
        let list = self.fabric["metadata"]["finalizers"].as_array();
        list.into_iter().flatten().filter_map(Value::as_str).collect()
    }

    fn condition(&self, kind: &str) -> (String, String) {
        let all = self.fabric["status"]["conditions"].as_array().unwrap();
        let found = all.iter().find(|condition| condition["type"] == kind).cloned().unwrap_or_default();
        let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
        (text("status"), text("reason"))
    }

    fn phase(&self) -> &str {
        self.fabric["status"]["phase"].as_str().unwrap()
    }
}

fn east() -> ObjectKey {
    ObjectKey::new(Kind::Fabric, "", "east")
}

fn is(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

#[test]
fn a_part_is_begun_after_its_finalizer_stands_and_the_status_follows() {
    let mut bed = Bed::new(&json!({"brokerConfig": {}, "joinConfig": {}}));
    assert!(bed.shown().is_empty(), "nothing is begun before anything would be left of it");
    bed.settle();
    assert_eq!(bed.finalizers(), ["trieste.io/broker", "trieste.io/member"]);
    assert_eq!(bed.shown(), ["install broker", "install member"]);
    assert_eq!((bed.phase(), bed.condition("Ready")), ("Deploying", is("Unknown", "InProgress")));

    bed.report(Part::Broker, Outcome::Installed(Box::default()));
    let failed = Reason { reason: "RequirementsNotMet", message: "no nodes".to_owned() };
    bed.report(Part::Member, Outcome::Failed(failed));
    assert_eq!(bed.condition("BrokerReady"), is("True", "Installed"));
    assert_eq!(bed.condition("Joined"), is("False", "RequirementsNotMet"));
    assert_eq!((bed.phase(), bed.condition("Ready")), ("Failed", is("False", "RequirementsNotMet")));

    // What gateways publish is followed while a pass fails.
    assert!(bed.controller.watches().iter().any(|watch| watch.kind == Kind::Gateway));

    let source = BrokerInfoRef { name: "used".to_owned(), ..BrokerInfoRef::default() };
    let facts = Facts {
        cluster_id: Some("east".to_owned()),
        join_info: Some(source),
        warnings: vec!["CoreDNS was not changed".to_owned()],
        ..Facts::default()
    };
    bed.report(Part::Member, Outcome::Installed(Box::new(facts)));
    assert_eq!(bed.fabric["status"]["clusterID"], "east");
    assert_eq!(bed.fabric["status"]["joinInfo"]["name"], "used", "not what the spec has come to say");
    assert_eq!(bed.condition("Warnings"), is("True", "SeeMessage"));
    assert_eq!(bed.condition("Ready"), is("False", "NoActiveGateway"));
    let gateway = json!({"apiVersion": "submariner.io/v1", "kind": "Gateway",
        "metadata": {"namespace": "submariner-operator", "name": "n1"},
        "status": {"version": "x", "haStatus": "active", "statusFailure": "", "connections": [],
            "localEndpoint": {"cluster_id": "east", "cable_name": "x", "hostname": "n1", "subnets": [],
                "private_ip": "10.0.0.1", "public_ip": "", "nat_enabled": false, "backend": "wireguard"}}});
    bed.see(Kind::Gateway, &gateway);
    bed.settle();
    assert_eq!((bed.phase(), bed.condition("Ready")), ("Running", is("True", "Ready")));
    assert_eq!(bed.fabric["status"]["gateways"][0]["name"], "n1");
}

#[test]
fn a_set_of_pods_that_is_edited_is_a_new_order_and_one_whose_pods_come_up_is_none() {
    let mut bed = Bed::new(&json!({"joinConfig": {"brokerInfoRef": {}}}));
    bed.settle();
    let set = |generation: i64, ready: u64| {
        json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "spec": {},
            "metadata": {"namespace": "submariner-operator", "name": "submariner-gateway", "generation": generation,
                "labels": {"app.kubernetes.io/managed-by": "trieste"}},
            "status": {"observedGeneration": generation, "desiredNumberScheduled": 2, "updatedNumberScheduled": 2,
                "numberReady": ready}})
    };
    bed.see(Kind::DaemonSet, &set(1, 0));
    let orders = bed.orders();
    bed.report(Part::Member, Outcome::Installed(Box::default()));
    assert_eq!(bed.condition("Ready"), is("False", "PodsNotReady"));
    bed.see(Kind::DaemonSet, &set(1, 2));
    assert_eq!(bed.orders(), orders, "pods that come up are no reason for a pass");
    bed.see(Kind::DaemonSet, &set(2, 2));
    assert_ne!(bed.orders(), orders, "an edit is");
}

#[test]
fn a_part_that_is_taken_out_is_removed_and_the_finalizer_stands_until_it_is() {
    let mut bed = Bed::new(&json!({"brokerConfig": {}, "joinConfig": {}}));
    bed.settle();
    let own = bed.orders().into_iter().find_map(|order| order.join_info);
    for part in [Part::Broker, Part::Member] {
        bed.report(part, Outcome::Installed(Box::new(Facts { join_info: own.clone(), ..Facts::default() })));
    }
    assert_eq!(bed.fabric["status"]["joinInfo"]["namespace"], "submariner-k8s-broker");
    bed.change(|fabric| drop(fabric["spec"].as_object_mut().unwrap().remove("joinConfig")));
    bed.settle();
    assert_eq!(bed.shown(), ["remove member", "install broker"]);
    let source = bed.orders()[0].join_info.clone().unwrap();
    assert_eq!(source.namespace, "submariner-k8s-broker", "it leaves with what it has joined with");
    assert_eq!((bed.phase(), bed.condition("Joined")), ("Removing", is("False", "Removing")));

    // It comes back before it is gone, and then goes for good: what was said of the first time does not count.
    bed.report(Part::Broker, Outcome::Installed(Box::default()));
    bed.change(|fabric| fabric["spec"]["joinConfig"] = json!({}));
    bed.settle();
    assert_eq!(bed.shown(), ["install broker", "install member"]);
    let stale = Report {
        source: east(),
        uid: "u1".to_owned(),
        generation: 2,
        part: Part::Member,
        outcome: Outcome::Removed,
    };
    bed.change(|fabric| drop(fabric["spec"].as_object_mut().unwrap().remove("joinConfig")));
    bed.controller.handle_input(stale, Instant::now());
    bed.settle();
    assert_eq!(bed.finalizers(), ["trieste.io/broker", "trieste.io/member"]);
    bed.report(Part::Member, Outcome::Removed);
    assert_eq!(bed.finalizers(), ["trieste.io/broker"]);
    assert_eq!(bed.shown(), ["install broker"]);
    assert_eq!(bed.condition("Joined"), is("", ""));
}

#[test]
fn a_fabric_that_is_deleted_goes_when_nothing_is_left_the_member_first() {
    let mut bed = Bed::new(&json!({"brokerConfig": {}, "joinConfig": {}}));
    bed.settle();
    bed.change(|fabric| fabric["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:00Z"));
    bed.settle();
    assert_eq!(bed.shown(), ["remove member", "remove broker"]);
    let waits = Reason { reason: "MembersRegistered", message: "west".to_owned() };
    bed.report(Part::Broker, Outcome::Waiting(waits));
    assert_eq!((bed.phase(), bed.condition("BrokerReady")), ("Removing", is("False", "MembersRegistered")));
    bed.report(Part::Member, Outcome::Removed);
    assert_eq!(bed.finalizers(), ["trieste.io/broker"]);
    bed.report(Part::Broker, Outcome::Removed);
    assert!(bed.finalizers().is_empty() && bed.shown().is_empty());
}

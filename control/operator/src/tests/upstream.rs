//! Objects of upstream's kinds in the controller: who is responsible, what is ordered, and what status they get.

use std::collections::BTreeMap;
use std::time::Instant;

use jiff::Timestamp;
use serde_json::{Value, json};
use trieste_control::api::{Kind, Object, ObjectKey};
use trieste_control::runner::{Context, Controller, Watch, Write};
use trieste_control::store::{StoreError, StoreEvent};

use crate::Others;
use crate::controller::FabricController;
use crate::kinds::KINDS;
use crate::order::{Facts, Order, Outcome, Part, Reason, Report, Task, Upstream, Wanted};

const NAMESPACE: &str = "submariner-operator";
const OURS: &str = "trieste.io/member";
const THEIRS: &str = "controllers.submariner.io/cleanup";

/// A controller, and a store of the objects that it writes.
pub(super) struct Bed {
    controller: FabricController,
    objects: BTreeMap<ObjectKey, Value>,
    /// Whether the definitions drop conditions, as upstream's do.
    pub(super) drops_conditions: bool,
    /// Whether they drop all but the phase, as those of group `operator.tkestack.io` do.
    pub(super) drops_fields: bool,
    pub(super) writes: usize,
}

fn key(kind: Kind) -> ObjectKey {
    let (namespace, name) = [
        (Kind::ServiceDiscovery, NAMESPACE, "service-discovery"),
        (Kind::Submariner, NAMESPACE, "submariner"),
        (Kind::Fabric, "", "east"),
        (Kind::TkestackFabric, "apps", "east"),
        (Kind::Knitnet, "apps", "east"),
    ]
    .into_iter()
    .find_map(|(other, namespace, name)| (other == kind).then_some((namespace, name)))
    .unwrap();
    ObjectKey::new(kind, namespace, name)
}

fn uid(kind: Kind) -> String {
    format!("{kind:?}")
}

impl Bed {
    /// Begins with an operator of upstream's that has so many replicas, where there is one.
    pub(super) fn new(operator: Option<u64>) -> Self {
        let controller = FabricController::new(Others { upstream: true, tkestack: true });
        let mut bed = Self {
            controller,
            objects: BTreeMap::new(),
            drops_conditions: false,
            drops_fields: false,
            writes: 0,
        };
        bed.list(Kind::Deployment, &operator.map(deployment).into_iter().collect::<Vec<_>>());
        bed.list(Kind::DaemonSet, &[]);
        for (kind, _) in KINDS {
            bed.list(kind, &[]);
        }
        bed
    }

    /// A bed whose store has not said which objects there are.
    pub(super) fn unread() -> Self {
        let controller = FabricController::new(Others { upstream: false, tkestack: true });
        Self { controller, objects: BTreeMap::new(), drops_conditions: false, drops_fields: false, writes: 0 }
    }

    pub(super) fn list(&mut self, kind: Kind, objects: &[Value]) {
        let objects = objects.iter().map(|object| Object::from_value(object.clone()).unwrap()).collect();
        self.controller.observe(&Watch::new(0, kind, NAMESPACE), StoreEvent::Listed(objects), Instant::now());
    }

    /// Lets the store say that it does not serve a kind.
    pub(super) fn lacks(&mut self, kind: Kind) {
        let source = std::io::Error::from(std::io::ErrorKind::NotFound);
        let error = StoreError::Unavailable { operation: "list".to_owned(), source };
        self.controller.observe(&Watch::new(0, kind, ""), StoreEvent::Unavailable(error), Instant::now());
    }

    fn see(&mut self, object: &Value) {
        let object = Object::from_value(object.clone()).unwrap();
        let watch = Watch::new(0, object.kind, &object.metadata.namespace);
        self.controller.observe(&watch, StoreEvent::Applied(object), Instant::now());
    }

    pub(super) fn put(&mut self, kind: Kind, spec: &Value) {
        let key = key(kind);
        let object = json!({"apiVersion": kind.api_version(), "kind": kind.as_str(), "spec": spec, "metadata": {
            "namespace": key.namespace, "name": key.name, "uid": uid(kind), "generation": 1, "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z", "finalizers": [THEIRS]}});
        self.see(&object);
        self.objects.insert(key, object);
    }

    pub(super) fn edit(&mut self, kind: Kind, edit: impl FnOnce(&mut Value)) {
        let object = self.objects.get_mut(&key(kind)).unwrap();
        edit(object);
        let object = object.clone();
        self.see(&object);
    }

    /// Carries out what the controller writes until it writes nothing more.
    pub(super) fn settle(&mut self) {
        for _ in 0..32 {
            let keys: Vec<ObjectKey> = self.objects.keys().cloned().collect();
            let context = |second| Context {
                now: Instant::now(),
                wall: Timestamp::from_second(second).unwrap(),
                leadership: None,
            };
            let second = i64::try_from(self.writes).unwrap();
            let plans = keys.iter().map(|key| self.controller.reconcile(key, &context(second)));
            let writes: Vec<Write> = plans.flat_map(|plan| plan.writes).collect();
            if writes.is_empty() {
                return;
            }
            writes.iter().for_each(|write| self.carry(write));
        }
        panic!("it does not come to rest");
    }

    fn carry(&mut self, write: &Write) {
        self.writes += 1;
        let kept = self.objects[&write.key()].clone();
        let mut stored = match write {
            Write::Update(object) => json!({"status": kept["status"], "rest": object.to_value()}),
            Write::UpdateStatus(object) => json!({"status": object.to_value()["status"], "rest": kept}),
            other @ (Write::Create(_) | Write::Delete(_) | Write::Annotate { .. }) => panic!("{other:?}"),
        };
        let mut object = stored["rest"].take();
        object["status"] = stored["status"].take();
        if object["status"].is_null() {
            object.as_object_mut().unwrap().remove("status");
        }
        if let Some(status) = object["status"].as_object_mut().filter(|_| self.drops_conditions) {
            status.remove("conditions");
        }
        if let Some(status) = object["status"].as_object_mut().filter(|_| self.drops_fields) {
            status.retain(|field, _| field == "phase");
        }
        self.objects.insert(write.key(), object.clone());
        let stored = StoreEvent::Applied(Object::from_value(object.clone()).unwrap());
        self.controller.written(&write.key(), write, Ok(&stored), Instant::now());
        self.see(&object);
    }

    pub(super) fn orders(&self) -> Vec<Order> {
        super::orders(&self.controller)
    }

    pub(super) fn shown(&self) -> Vec<String> {
        let word = |order: &Order| match &order.task {
            Task::Check { is_seen: true } => "check (seen)",
            Task::Check { is_seen: false } => "check",
            Task::Install(_) => "install",
            Task::Remove => "remove",
        };
        self.orders().iter().map(|order| format!("{} {}", word(order), order.part.as_str())).collect()
    }

    pub(super) fn report(&mut self, kind: Kind, part: Part, outcome: Outcome) {
        let generation = self.objects[&key(kind)]["metadata"]["generation"].as_i64().unwrap();
        let report = Report { source: key(kind), uid: uid(kind), generation, part, outcome };
        self.controller.handle_input(report, Instant::now());
        self.settle();
    }

    pub(super) fn finalizers(&self, kind: Kind) -> Vec<&str> {
        let list = self.objects[&key(kind)]["metadata"]["finalizers"].as_array();
        list.into_iter().flatten().filter_map(Value::as_str).collect()
    }

    pub(super) fn condition(&self, kind: Kind, name: &str) -> (&str, &str) {
        let all = self.objects[&key(kind)]["status"]["conditions"].as_array();
        let found = all.into_iter().flatten().find(|condition| condition["type"] == name);
        let text = |field: &str| found.and_then(|found| found[field].as_str()).unwrap_or_default();
        (text("status"), text("reason"))
    }

    /// Returns an object as the store has it.
    pub(super) fn object(&self, kind: Kind) -> Value {
        self.objects[&key(kind)].clone()
    }

    /// Returns an object's status.
    pub(super) fn status(&self, kind: Kind) -> &Value {
        &self.objects[&key(kind)]["status"]
    }
}

fn deployment(replicas: u64) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": replicas},
        "metadata": {"namespace": NAMESPACE, "name": "submariner-operator", "generation": 1}})
}

fn submariner() -> Value {
    json!({"broker": "k8s", "brokerK8sApiServer": "b:1", "brokerK8sRemoteNamespace": "submariner-k8s-broker",
        "ceIPSecDebug": false, "clusterCIDR": "", "clusterID": "east", "debug": false, "namespace": NAMESPACE,
        "natEnabled": true, "serviceCIDR": ""})
}

fn discovery() -> Value {
    json!({"brokerK8sApiServer": "b:1", "brokerK8sRemoteNamespace": "submariner-k8s-broker", "clusterID": "east",
        "debug": false, "namespace": NAMESPACE})
}

fn responsible_elsewhere() -> Outcome {
    Outcome::Waiting(Reason { reason: Reason::UPSTREAM_OPERATOR, message: "it runs".to_owned() })
}

#[test]
fn nothing_is_written_to_an_object_while_upstreams_operator_runs_and_ours_goes_off_it() {
    let mut bed = Bed::new(Some(1));
    bed.put(Kind::Submariner, &submariner());
    bed.settle();
    assert_eq!((bed.shown(), bed.writes), (vec!["check (seen) member".to_owned()], 0));
    bed.report(Kind::Submariner, Part::Member, responsible_elsewhere());
    assert_eq!((bed.shown(), bed.writes), (vec!["check (seen) member".to_owned()], 0));

    // It is scaled to 0: that is found out, and then ours takes over.
    bed.see(&deployment(0));
    bed.settle();
    assert_eq!((bed.shown(), bed.writes), (vec!["check member".to_owned()], 0));
    bed.report(Kind::Submariner, Part::Member, Outcome::Free);
    assert_eq!(bed.finalizers(Kind::Submariner), [THEIRS, OURS]);
    assert_eq!(bed.shown(), ["install member"]);
    bed.report(Kind::Submariner, Part::Member, Outcome::Installed(Box::default()));
    assert_eq!(bed.condition(Kind::Submariner, "Joined"), ("True", "Installed"));

    // And back again.
    bed.see(&deployment(1));
    bed.settle();
    assert_eq!(bed.finalizers(Kind::Submariner), [THEIRS]);
    assert_eq!(bed.shown(), ["check (seen) member"]);
    let writes = bed.writes;
    bed.edit(Kind::Submariner, |object| object["status"] = json!({"clusterID": "theirs"}));
    bed.settle();
    assert_eq!(bed.writes, writes, "its status is upstream's");
}

#[test]
fn an_operator_of_upstreams_that_a_pass_finds_elsewhere_is_left_the_object() {
    let mut bed = Bed::new(None);
    bed.put(Kind::Submariner, &submariner());
    bed.report(Kind::Submariner, Part::Member, Outcome::Free);
    assert_eq!(bed.shown(), ["install member"]);
    bed.report(Kind::Submariner, Part::Member, responsible_elsewhere());
    assert_eq!(
        (bed.finalizers(Kind::Submariner), bed.shown()),
        (vec![THEIRS], vec!["check member".to_owned()])
    );
    bed.report(Kind::Submariner, Part::Member, Outcome::Free);
    assert_eq!(bed.shown(), ["install member"]);
}

#[test]
fn the_status_is_upstreams_with_conditions_beside_it() {
    let mut bed = Bed::new(None);
    bed.put(Kind::Submariner, &submariner());
    bed.report(Kind::Submariner, Part::Member, Outcome::Free);
    let set = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "spec": {}, "metadata": {"namespace": NAMESPACE,
        "name": "submariner-gateway", "generation": 1, "resourceVersion": "77"},
        "status": {"observedGeneration": 1, "desiredNumberScheduled": 2, "updatedNumberScheduled": 1, "numberReady": 2}});
    bed.see(&set);
    let status =
        json!({"clusterID": "east", "networkPlugin": "generic", "deploymentInfo": {"kubernetesType": "k8s"}});
    let facts = Facts { status: status.as_object().unwrap().clone(), ..Facts::default() };
    bed.report(Kind::Submariner, Part::Member, Outcome::Installed(Box::new(facts)));
    let status = &bed.objects[&key(Kind::Submariner)]["status"];
    assert_eq!((&status["clusterID"], &status["networkPlugin"]), (&json!("east"), &json!("generic")));
    let gateway = &status["gatewayDaemonSetStatus"];
    assert_eq!(
        (&gateway["lastResourceVersion"], &gateway["status"]["numberReady"]),
        (&json!("77"), &json!(2))
    );
    assert_eq!(gateway["mismatchedContainerImages"], true);
    assert_eq!(status["routeAgentDaemonSetStatus"], json!({"mismatchedContainerImages": false}));
    assert_eq!(bed.condition(Kind::Submariner, "Ready"), ("False", "PodsNotReady"));
}

#[test]
fn a_definition_that_drops_conditions_is_not_written_to_again_and_again() {
    let mut bed = Bed::new(None);
    bed.drops_conditions = true;
    bed.put(Kind::Submariner, &submariner());
    bed.report(Kind::Submariner, Part::Member, Outcome::Free);
    let writes = bed.writes;
    bed.see(&deployment(0));
    bed.settle();
    assert_eq!(bed.writes, writes);
    // Ours comes with a pass.
    bed.drops_conditions = false;
    bed.report(Kind::Submariner, Part::Member, Outcome::Installed(Box::default()));
    assert_eq!(bed.condition(Kind::Submariner, "Joined"), ("True", "Installed"));
}

#[test]
fn service_discovery_is_a_part_by_itself_until_there_is_a_member_to_carry_it_out_with() {
    let mut bed = Bed::new(None);
    bed.put(Kind::ServiceDiscovery, &discovery());
    bed.report(Kind::ServiceDiscovery, Part::ServiceDiscovery, Outcome::Free);
    assert_eq!(bed.shown(), ["install service-discovery"]);
    bed.report(Kind::ServiceDiscovery, Part::ServiceDiscovery, Outcome::Installed(Box::default()));
    assert_eq!(bed.condition(Kind::ServiceDiscovery, "ServiceDiscoveryReady"), ("True", "Installed"));
    assert_eq!(bed.condition(Kind::ServiceDiscovery, "Ready"), ("True", "Ready"));

    bed.put(Kind::Submariner, &submariner());
    bed.report(Kind::Submariner, Part::Member, Outcome::Free);
    let orders = bed.orders();
    let [Order { task: Task::Install(wanted), .. }] = &orders[..] else { panic!("{orders:?}") };
    assert!(matches!(&**wanted, Wanted::Upstream(Upstream::Member(_, Some(_)))), "{wanted:?}");
    assert_eq!(bed.finalizers(Kind::ServiceDiscovery), [THEIRS]);
    assert_eq!(
        bed.condition(Kind::ServiceDiscovery, "ServiceDiscoveryReady"),
        ("True", "CarriedOutWithMember")
    );

    // One that upstream's operator has made of the Submariner object counts for nothing beside it.
    bed.edit(Kind::Submariner, |object| object["spec"]["serviceDiscoveryEnabled"] = json!(true));
    let orders = bed.orders();
    let [Order { task: Task::Install(wanted), .. }] = &orders[..] else { panic!("{orders:?}") };
    assert!(matches!(&**wanted, Wanted::Upstream(Upstream::Member(_, None))), "{wanted:?}");
}

#[test]
fn an_object_that_is_deleted_goes_when_nothing_is_left_with_upstreams_finalizer() {
    let mut bed = Bed::new(Some(0));
    bed.put(Kind::Submariner, &submariner());
    bed.report(Kind::Submariner, Part::Member, Outcome::Free);
    bed.report(Kind::Submariner, Part::Member, Outcome::Installed(Box::default()));
    bed.edit(Kind::Submariner, |object| {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:00Z");
        object["metadata"]["generation"] = json!(2);
    });
    bed.settle();
    assert_eq!(bed.shown(), ["remove member"]);
    assert_eq!(bed.condition(Kind::Submariner, "Ready"), ("False", "Removing"));
    bed.report(Kind::Submariner, Part::Member, Outcome::Removed);
    assert_eq!(bed.finalizers(Kind::Submariner), Vec::<&str>::new());
    assert_eq!(bed.shown(), Vec::<String>::new());
}

#[test]
fn a_fabric_and_a_submariner_object_do_not_share_a_member() {
    let mut bed = Bed::new(None);
    bed.put(Kind::Submariner, &submariner());
    bed.put(Kind::Fabric, &json!({"joinConfig": {"brokerInfoRef": {}}}));
    bed.report(Kind::Submariner, Part::Member, Outcome::Free);
    bed.settle();
    // Both are of the same second: the order of names decides.
    let holders = [Kind::Fabric, Kind::Submariner].map(|kind| bed.finalizers(kind).contains(&OURS));
    assert_eq!(holders.iter().filter(|has| **has).count(), 1, "{holders:?}");
    let other = if holders[0] { Kind::Submariner } else { Kind::Fabric };
    assert_eq!(bed.condition(other, "Joined"), ("False", "HeldByAnother"));
}

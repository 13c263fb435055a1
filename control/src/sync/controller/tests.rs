use jiff::Timestamp;
use serde_json::json;

use super::super::name::Name;
use super::*;
use crate::api::{Object, ObjectMeta, label};

const LOCAL_NS: &str = "submariner-operator";
const BROKER_NS: &str = "submariner-k8s-broker";

/// Whatever comes first of the news of an export and the answer to its write, and if both come at once: once a broker that
/// lost everything has ours again, it is believed after the grace.
#[test]
fn an_export_is_done_when_its_news_and_its_answer_come_together() {
    let watch = |store: Side, namespace: &str| Watch::new(store.store(), Kind::Cluster, namespace);
    let (local, broker) = (watch(Side::Local, LOCAL_NS), watch(Side::Broker, BROKER_NS));
    let (ours, copy) = (cluster(LOCAL_NS, "a", None), cluster(LOCAL_NS, "b", Some("b")));
    for is_answer_first in [false, true] {
        let mut controller = SyncController::new(SyncConfig::new("a", Vec::new()));
        let now = Instant::now();
        for kind in KINDS {
            let of_kind = |objects: &[&Object]| {
                let is_kind = |object: &&Object| object.kind == kind;
                let objects = objects.iter().copied().filter(is_kind).cloned();
                StoreEvent::Listed(objects.collect())
            };
            controller.observe(&Watch { kind, ..local.clone() }, of_kind(&[&ours, &copy]), now);
            controller.observe(&Watch { kind, ..broker.clone() }, of_kind(&[]), now);
        }
        let context = Context { now, wall: Timestamp::UNIX_EPOCH, leadership: None };
        let mut writes = Vec::new();
        // The second time the export is on its way.
        for _ in 0..2 {
            controller.observe(&broker, StoreEvent::Listed(Vec::new()), now);
            for key in controller.drain_changed(now) {
                if controller.in_flight.contains_key(&key) {
                    continue;
                }
                let planned = controller.reconcile(&key, &context).writes;
                writes.extend(planned.into_iter().map(|write| (key.clone(), write)));
            }
        }
        let [(key, write @ Write::Create(exported))] = writes.as_slice() else { panic!("{writes:?}") };
        let removal = (Side::Local, Name::new(Kind::Cluster, "b"));
        assert!(controller.withheld.contains(&removal), "answer first: {is_answer_first}");

        let news = || StoreEvent::Applied(exported.clone());
        if is_answer_first {
            controller.written(key, write, Ok(&news()), now);
        }
        controller.observe(&broker, news(), now);
        if !is_answer_first {
            controller.written(key, write, Ok(&news()), now);
        }
        assert!(controller.drain_changed(now).contains(&removal), "answer first: {is_answer_first}");
    }
}

fn cluster(namespace: &str, id: &str, origin: Option<&str>) -> Object {
    let mut object = Object::new(Kind::Cluster, ObjectMeta::new(namespace, id));
    let spec = json!({"cluster_id": id, "service_cidr": [], "cluster_cidr": [], "global_cidr": []});
    object.body.insert("spec".to_owned(), spec);
    if let Some(origin) = origin {
        object.metadata.labels.insert(label::CLUSTER_ID.to_owned(), origin.to_owned());
    }
    object
}

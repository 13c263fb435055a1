use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::api::{ObjectMeta, endpoint_object_name, label};
use crate::runner::Write;
use crate::store::size;
use crate::sync::name::KINDS;
use crate::sync::plan::{own_refusal, refused};

#[test]
fn huge_and_malformed_objects_are_refused_with_the_field_and_leave_everybody_else_alone() {
    let mut state = state("a");
    let long = "x".repeat(1 << 20);
    let spoil: [(&str, &str, Spoil<'_>); 12] = [
        ("annotation", "metadata.annotations", &|o| {
            o.metadata.annotations.insert("note".to_owned(), long.clone());
        }),
        ("labels", "metadata.labels", &|o| {
            o.metadata.labels.extend((0..5_000).map(|index| (format!("label-{index}"), String::new())));
        }),
        ("subnets", "spec.subnets", &|o| {
            let subnets: Vec<String> =
                (0..10_000).map(|index| format!("10.9.{}.0/24", index % 256)).collect();
            o.body["spec"]["subnets"] = json!(subnets);
        }),
        ("unknown", "spec", &|o| o.body["spec"]["more"] = json!(vec![json!({"deep": long}); 3])),
        ("managed", "metadata", &|o| drop(o.metadata.extra.insert("managedFields".to_owned(), json!(long)))),
        ("name", "metadata.name", &|o| o.metadata.name = "Ünicode/..".to_owned()),
        ("type", "spec.hostname", &|o| o.body["spec"]["hostname"] = json!({"a": 1})),
        ("list", "spec.subnets", &|o| o.body["spec"]["subnets"] = json!("10.9.0.0/16")),
        ("null", "spec.cluster_id", &|o| o.body["spec"]["cluster_id"] = Value::Null),
        ("bare", "spec", &|o| drop(o.body.remove("spec"))),
        ("address", "spec.private_ip", &|o| o.body["spec"]["private_ip"] = json!("0x7f.1")),
        ("liar", "spec.cluster_id", &|o| o.body["spec"]["cluster_id"] = json!("a")),
    ];
    for (id, _, spoil) in &spoil {
        let mut object = endpoint(id, "10.9.0.0/16", 1);
        spoil(&mut object);
        state.learn(Side::Broker, Kind::Endpoint, StoreEvent::Applied(object));
    }
    state.learn(Side::Broker, Kind::Endpoint, StoreEvent::Applied(endpoint("good", "10.9.0.0/16", 2)));
    let decisions = decide_all(&mut state);

    let created: Vec<&str> =
        decisions.iter().map(|write| write.object().unwrap().metadata.name.as_str()).collect();
    assert_eq!(created, ["good-cable"]);
    let refused = refused(&state);
    for (id, field, _) in &spoil {
        let found = refused.iter().find(|refused| refused.cluster == *id);
        let reason = &found.unwrap_or_else(|| panic!("{id} was taken")).reason;
        assert!(reason.contains(field), "{id}: {reason}");
        assert!(reason.chars().count() <= 301, "{id}: {} characters", reason.chars().count());
    }
    assert!(
        state.broker.values().all(|entry| size::of_object(&entry.object, 1 << 20) < 4_096),
        "bodies were kept"
    );
}

#[test]
fn a_label_that_is_no_cluster_id_is_refused_by_its_name() {
    let mut state = state("a");
    let mut object = endpoint("b", "10.2.0.0/16", 1);
    let id = "no cluster ".repeat(100);
    object.metadata.labels.insert(label::CLUSTER_ID.to_owned(), id);
    state.put(Side::Broker, Name::of(&object), object);
    assert_eq!(decide_all(&mut state), []);
    let [refused] = refused(&state).try_into().unwrap();
    assert!(refused.reason.contains("metadata.labels.submariner-io/clusterID"), "{}", refused.reason);
    assert!(refused.cluster.chars().count() <= 64);
}

#[test]
fn beyond_the_limits_the_oldest_are_taken_and_a_list_brings_the_others_in_when_there_is_room() {
    let mut state = state("a");
    state.scope.limits = SyncLimits { objects_per_cluster: 2, objects: 3, ..SyncLimits::default() };
    let many: Vec<Object> = [("b", 5), ("b", 1), ("b", 3), ("c", 4), ("d", 2)]
        .into_iter()
        .map(|(id, age)| {
            let mut object = endpoint(id, &format!("10.{age}.0.0/16"), age);
            object.metadata.name = format!("{id}-{age}");
            object
        })
        .collect();
    state.learn(Side::Broker, Kind::Endpoint, StoreEvent::Listed(many.clone()));
    decide_all(&mut state);
    assert_eq!(taken(&state), ["b-1", "b-3", "d-2"]);
    let refused = refused(&state);
    assert_eq!(refused.len(), 2);
    assert!(refused[0].reason.contains("the cluster has more than 2 objects"), "{}", refused[0].reason);
    assert!(refused[1].reason.contains("the broker has more than 3 objects"), "{}", refused[1].reason);
    assert!(!state.wants_list());

    state.learn(Side::Broker, Kind::Endpoint, StoreEvent::Deleted(many[1].clone()));
    assert!(state.wants_list(), "there is room");
    assert!(!state.wants_list(), "it was said once");
    let rest: Vec<Object> = many.iter().filter(|object| object.metadata.name != "b-1").cloned().collect();
    state.learn(Side::Broker, Kind::Endpoint, StoreEvent::Listed(rest));
    decide_all(&mut state);
    assert_eq!(taken(&state), ["b-3", "c-4", "d-2"]);
}

#[test]
fn an_update_of_anything_but_addresses_judges_nobody() {
    let mut state = state("a");
    for index in 0..100 {
        let object = endpoint(&format!("c{index}"), &format!("10.{index}.0.0/16"), 1);
        state.put(Side::Broker, Name::of(&object), object);
    }
    decide_all(&mut state);
    let before = state.claims.evaluated();
    for update in 0..100 {
        let mut object = endpoint("c7", "10.7.0.0/16", 1);
        object.body["spec"]["public_ip"] = json!(format!("192.0.2.{update}"));
        state.put(Side::Broker, Name::of(&object), object);
        assert_eq!(state.take_dirty().len(), 1);
    }
    assert_eq!(state.claims.evaluated(), before);
}

proptest! {
    #[test]
    fn what_was_learnt_event_by_event_is_decided_like_what_was_listed_at_once(events in prop::collection::vec(events(), 0..40)) {
        let mut learnt = state("a");
        let mut last = BTreeMap::new();
        for (index, (side, object)) in events.into_iter().enumerate() {
            let mut object = object;
            object.metadata.resource_version = Some(index.to_string());
            let key = (side, object.key());
            if last.contains_key(&key) && index % 3 == 0 {
                last.remove(&key);
                learnt.learn(side, object.kind, StoreEvent::Deleted(object));
            } else {
                last.insert(key, object.clone());
                learnt.learn(side, object.kind, StoreEvent::Applied(object));
            }
            if index % 2 == 0 {
                decide_all(&mut learnt);
            }
        }
        decide_all(&mut learnt);
        let mut listed = state("a");
        for side in Side::ALL {
            for kind in KINDS {
                let is_there = |((of, key), _): &(&(Side, crate::api::ObjectKey), &Object)| *of == side && key.kind == kind;
                let objects = last.iter().filter(is_there).map(|(_, object)| object.clone()).collect();
                listed.learn(side, kind, StoreEvent::Listed(objects));
            }
        }
        decide_all(&mut listed);
        prop_assert_eq!(decisions(&learnt), decisions(&listed));
        prop_assert_eq!(refused(&learnt), refused(&listed));
        prop_assert_eq!(own_refusal(&learnt), own_refusal(&listed));
        for kind in KINDS {
            prop_assert_eq!(learnt.is_emptied(kind), listed.is_emptied(kind));
        }
    }

    #[test]
    fn every_member_refuses_the_same_clusters_and_each_knows_whether_it_is_among_them(
        members in prop::collection::vec((0u8..12, 0u8..4, 0i64..4), 1..8)
    ) {
        let ids: Vec<String> = (0..members.len()).map(|index| format!("m{index}")).collect();
        let subnet = |(block, longer, _): &(u8, u8, i64)| format!("10.{}.0.0/{}", block * 16, 12 + longer);
        let mut refused_by = Vec::new();
        let mut own = BTreeSet::new();
        for (us, id) in ids.iter().enumerate() {
            let mut state = state(id);
            let net = subnet(&members[us]).parse().unwrap();
            state.scope.local_subnets = vec![net];
            state.claims.claim(&state.own(), id, &[net]);
            let mut original = endpoint(id, &subnet(&members[us]), 9);
            original.metadata.labels.clear();
            state.put(Side::Local, Name::of(&original), original);
            for (other, member) in ids.iter().zip(&members) {
                let object = endpoint(other, &subnet(member), member.2);
                state.put(Side::Broker, Name::of(&object), object);
            }
            state.take_dirty();
            let lost = |name: &Name| state.claims.conflict(name).is_some();
            let names = ids.iter().filter(|other| *other != id).map(|other| (other, format!("{other}-cable")));
            let lost: BTreeSet<String> =
                names.filter(|(_, name)| lost(&Name::new(Kind::Endpoint, name))).map(|(other, _)| other.clone()).collect();
            if state.own_conflict().is_some() {
                own.insert(id.clone());
            }
            refused_by.push((id.clone(), lost));
        }
        for (id, lost) in refused_by {
            let mut expected = own.clone();
            expected.remove(&id);
            prop_assert_eq!(lost, expected, "as {} sees it", id);
        }
    }
}

/// Makes an object one that no honest peer would write.
type Spoil<'a> = &'a dyn Fn(&mut Object);

fn state(id: &str) -> SyncState {
    SyncState::new(Scope {
        cluster_id: id.to_owned(),
        local_namespace: "local".to_owned(),
        broker_namespace: "broker".to_owned(),
        local_subnets: vec!["10.200.0.0/16".parse().unwrap()],
        limits: SyncLimits::default(),
        allowed: Allowed::default(),
        exports: true,
    })
}

/// Takes in what is new and gives what it asks for.
fn decide_all(state: &mut SyncState) -> Vec<Write> {
    let mut writes = Vec::new();
    for name in state.take_dirty() {
        state.refresh_refused(&name);
        writes.extend(Side::ALL.into_iter().filter_map(|side| state.decide(side, &name)));
    }
    writes
}

fn decisions(state: &SyncState) -> Vec<Write> {
    let names: BTreeSet<Name> = state.local.keys().chain(state.broker.keys()).cloned().collect();
    let decide =
        |name: &Name| Side::ALL.into_iter().filter_map(|side| state.decide(side, name)).collect::<Vec<_>>();
    names.iter().flat_map(decide).collect()
}

fn taken(state: &SyncState) -> Vec<&str> {
    let is_taken = |entry: &&Entry| matches!(entry.standing, Standing::Foreign { .. });
    state.broker.values().filter(is_taken).map(|entry| entry.object.metadata.name.as_str()).collect()
}

fn endpoint(id: &str, subnet: &str, age: i64) -> Object {
    let name = endpoint_object_name(id, "cable").unwrap();
    let mut object = Object::new(Kind::Endpoint, ObjectMeta::new("broker", name));
    let spec = json!({"cluster_id": id, "cable_name": "cable", "hostname": "gw1", "subnets": [subnet],
        "private_ip": "192.0.2.1", "public_ip": "", "nat_enabled": false, "backend": "wireguard"});
    object.body.insert("spec".to_owned(), spec);
    object.metadata.labels.insert(label::CLUSTER_ID.to_owned(), id.to_owned());
    object.metadata.creation_timestamp = Some(Timestamp::from_second(age).unwrap());
    object.metadata.uid = Some(format!("{id}-uid"));
    object
}

/// Endpoints and Clusters of few names, on either side, sometimes without a label or nonsensical.
fn events() -> impl Strategy<Value = (Side, Object)> {
    let id = prop::sample::select(vec!["a", "b", "c", "d"]);
    let subnet =
        prop::sample::select(vec!["10.1.0.0/16", "10.1.9.0/24", "10.200.1.0/24", "10.3.0.0/16", "nonsense"]);
    (id, subnet, 0i64..4, any::<bool>(), 0u8..4, any::<bool>()).prop_map(
        |(id, subnet, age, is_local, labelled, is_cluster)| {
            let mut object = endpoint(id, subnet, age);
            if is_cluster {
                object.kind = Kind::Cluster;
                object.metadata.name = id.to_owned();
                let spec =
                    json!({"cluster_id": id, "service_cidr": [], "cluster_cidr": [], "global_cidr": []});
                object.body.insert("spec".to_owned(), spec);
            }
            if labelled == 0 {
                object.metadata.labels.clear();
            }
            let side = if is_local { Side::Local } else { Side::Broker };
            if is_local {
                object.metadata.namespace = "local".to_owned();
            }
            (side, object)
        },
    )
}

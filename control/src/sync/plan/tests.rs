use std::collections::BTreeMap;

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::api::{Endpoint, ObjectKey, ObjectMeta, Resource, endpoint_object_name, label, overlap};

const LOCAL_NS: &str = "submariner-operator";
const BROKER_NS: &str = "submariner-k8s-broker";

#[test]
fn our_originals_are_pushed_with_our_label_and_nothing_of_their_metadata_but_the_spec_names() {
    let mut world = World::new("a");
    let mut own = endpoint(LOCAL_NS, "a", "10.1.0.0/16");
    own.metadata.annotations.insert("note".to_owned(), "kept".to_owned());
    own.metadata.extra.insert("finalizers".to_owned(), json!(["x"]));
    own.metadata.uid = Some("local-uid".to_owned());
    own.body.insert("extra".to_owned(), json!({"kept": true}));
    world.put(Side::Local, own.clone());

    let plan = world.converge();

    let [(Side::Broker, Write::Create(copy))] = plan.writes.as_slice() else { panic!("{plan:?}") };
    assert_eq!(copy.metadata.namespace, BROKER_NS);
    assert_eq!(copy.metadata.name, own.metadata.name);
    assert_eq!(copy.metadata.labels, labels("a"));
    assert_eq!(copy.metadata.annotations, own.metadata.annotations);
    assert_eq!(copy.body, own.body);
    assert!(copy.metadata.extra.is_empty() && copy.metadata.uid.is_none());
}

#[test]
fn others_are_pulled_with_their_label() {
    let mut world = World::new("a");
    world.put(Side::Broker, labelled(cluster(BROKER_NS, "b"), "b"));
    world.put(Side::Broker, labelled(endpoint(BROKER_NS, "b", "10.2.0.0/16"), "b"));
    let plan = world.converge();
    let kinds: Vec<Kind> = plan.writes.iter().map(|(_, write)| write.key().kind).collect();
    assert_eq!(kinds, [Kind::Cluster, Kind::Endpoint], "clusters come before endpoints");
    assert!(
        world.local.values().all(|o| o.metadata.labels == labels("b") && o.metadata.namespace == LOCAL_NS)
    );
}

#[test]
fn what_is_labelled_is_not_pushed_and_what_is_not_labelled_is_not_pulled() {
    let mut world = World::new("a");
    world.put(Side::Local, labelled(endpoint(LOCAL_NS, "a", "10.1.0.0/16"), "a"));
    world.put(Side::Broker, endpoint(BROKER_NS, "b", "10.2.0.0/16"));
    assert_eq!(world.plan(), Plan::default());
}

#[test]
fn a_peer_that_was_put_here_by_hand_is_neither_pushed_nor_removed() {
    let mut world = World::new("a");
    world.put(Side::Local, endpoint(LOCAL_NS, "static-peer", "10.9.0.0/16"));
    assert_eq!(world.plan(), Plan::default());
}

#[test]
fn stale_copies_go_on_both_sides() {
    let mut world = World::new("a");
    world.put(Side::Local, labelled(endpoint(LOCAL_NS, "b", "10.2.0.0/16"), "b"));
    world.put(Side::Broker, labelled(endpoint(BROKER_NS, "a", "10.1.0.0/16"), "a"));
    let plan = world.converge();
    assert_eq!(plan.writes.len(), 2);
    assert!(world.local.is_empty() && world.broker.is_empty());
}

#[test]
fn changes_travel_and_keep_the_copys_own_metadata() {
    let mut world = World::new("a");
    world.put(Side::Broker, labelled(endpoint(BROKER_NS, "b", "10.2.0.0/16"), "b"));
    world.converge();
    let key = world.local.keys().next().unwrap().clone();
    world.local.get_mut(&key).unwrap().metadata.uid = Some("the-copys".to_owned());
    world.broker.values_mut().for_each(|o| o.body["spec"]["public_ip"] = json!("192.0.2.7"));
    world.broker.values_mut().for_each(|o| drop(o.metadata.labels.insert("new".to_owned(), "1".to_owned())));
    let plan = world.converge();
    assert!(matches!(plan.writes.as_slice(), [(Side::Local, Write::Update(_))]), "{plan:?}");
    let copy = &world.local[&key];
    assert_eq!(copy.body["spec"]["public_ip"], "192.0.2.7");
    assert_eq!(copy.metadata.labels["new"], "1");
    assert_eq!(copy.metadata.uid.as_deref(), Some("the-copys"));
}

#[test]
fn changed_versions_and_times_alone_are_no_change() {
    let mut world = World::new("a");
    world.put(Side::Broker, labelled(endpoint(BROKER_NS, "b", "10.2.0.0/16"), "b"));
    world.converge();
    for object in world.broker.values_mut() {
        object.metadata.resource_version = Some("99".to_owned());
        object.metadata.creation_timestamp = Some(Timestamp::from_second(99).unwrap());
        object.metadata.generation = Some(99);
    }
    assert_eq!(world.plan(), Plan::default());
}

#[test]
fn an_endpoint_that_claims_our_addresses_is_refused_and_a_former_copy_of_it_removed() {
    let mut world = World::new("a");
    world.put(Side::Broker, labelled(endpoint(BROKER_NS, "b", "10.2.0.0/16"), "b"));
    world.converge();
    assert_eq!(world.local.len(), 1);
    world.local_subnets = vec!["10.2.128.0/17".parse().unwrap()];
    let plan = world.converge();
    assert!(world.local.is_empty());
    let [refused] = plan.refused.as_slice() else { panic!("{plan:?}") };
    assert_eq!((refused.cluster.as_str(), refused.endpoint.is_some()), ("b", true));
    assert_eq!(refused.reason, "subnet 10.2.0.0/16 overlaps our own 10.2.128.0/17");
}

#[test]
fn of_two_foreign_clusters_that_overlap_the_later_one_is_refused_whatever_its_name() {
    let mut world = World::new("a");
    world.join("zebra", "10.2.0.0/16", 100);
    world.join("bee", "10.2.5.0/24", 200);
    let plan = world.converge();
    let [refused] = plan.refused.as_slice() else { panic!("{plan:?}") };
    assert_eq!(refused.cluster, "bee");
    assert_eq!(
        refused.reason,
        "subnet 10.2.5.0/24 overlaps 10.2.0.0/16 of cluster zebra, which was there first"
    );
    assert!(world.local.values().any(|o| o.kind == Kind::Cluster && o.metadata.origin() == Some("bee")));

    // The older cluster leaves: the younger one gets its turn.
    world.broker.retain(|_, object| object.metadata.origin() != Some("zebra"));
    let plan = world.converge();
    assert_eq!(plan.refused, []);
    assert!(world.local.values().any(|o| o.kind == Kind::Endpoint && o.metadata.origin() == Some("bee")));
}

#[test]
fn an_older_member_that_claims_what_none_may_have_pushes_nobody_out() {
    for (wide, honest) in [
        ("0.0.0.0/0", "10.2.5.0/24"),
        ("10.0.0.0/8", "10.2.5.0/24"),
        ("10.0.0.0/10", "10.2.5.0/24"),
        ("172.16.0.0/12", "172.18.0.0/16"),
        ("::/0", "fd12:3::/48"),
        ("fc00::/7", "fd12:3::/48"),
        ("fd12::/32", "fd12:3::/48"),
    ] {
        let mut world = World::new("a");
        world.join("zebra", wide, 100);
        world.join("bee", honest, 200);
        let plan = world.converge();
        let [refused] = plan.refused.as_slice() else { panic!("{wide}: {plan:?}") };
        assert_eq!(refused.cluster, "zebra", "{wide}");
        assert!(
            refused.reason.contains(&format!("`spec.subnets[0]`: it claims {wide}")),
            "{}",
            refused.reason
        );
        let is_imported =
            |id| world.local.values().any(|o| o.kind == Kind::Endpoint && o.metadata.origin() == Some(id));
        assert!(is_imported("bee") && !is_imported("zebra"), "{wide}");
        assert_eq!(plan.own_refusal, None, "{wide}");
    }
}

#[test]
fn a_cluster_keeps_its_age_when_its_endpoint_is_made_anew() {
    let mut world = World::new("a");
    world.join("old", "10.2.0.0/16", 100);
    world.join("young", "10.2.0.0/16", 200);
    world.converge();
    for object in world.broker.values_mut() {
        if object.kind == Kind::Endpoint && object.metadata.origin() == Some("old") {
            object.metadata.creation_timestamp = Some(Timestamp::from_second(300).unwrap());
        }
    }
    assert_eq!(world.plan().refused[0].cluster, "young");
}

#[test]
fn two_endpoints_of_one_cluster_share_their_subnets() {
    let mut world = World::new("a");
    world.put(Side::Broker, labelled(endpoint(BROKER_NS, "b", "10.2.0.0/16"), "b"));
    let mut second = labelled(endpoint(BROKER_NS, "b", "10.2.0.0/16"), "b");
    second.metadata.name.push_str("-2");
    world.put(Side::Broker, second);
    let plan = world.converge();
    assert_eq!((plan.refused.len(), world.local.len()), (0, 2));
}

#[test]
fn what_makes_no_sense_is_refused_with_the_field_and_nothing_else_is() {
    let mut world = World::new("a");
    world.put(Side::Broker, labelled(endpoint(BROKER_NS, "good", "10.3.0.0/16"), "good"));
    world.put(Side::Broker, labelled(endpoint(BROKER_NS, "badcidr", "10.2.0.0/99"), "badcidr"));
    let mut shapeless = labelled(endpoint(BROKER_NS, "shapeless", "10.4.0.0/16"), "shapeless");
    shapeless.body["spec"].as_object_mut().unwrap().remove("hostname");
    world.put(Side::Broker, shapeless);
    world.put(Side::Broker, labelled(endpoint(BROKER_NS, "a", "10.5.0.0/16"), "forger"));
    let plan = world.converge();
    let reasons: Vec<_> = plan.refused.iter().map(|r| (r.cluster.as_str(), r.reason.as_str())).collect();
    assert_eq!(
        reasons,
        [
            ("badcidr", "field `spec.subnets[0]`: `10.2.0.0/99` is not a CIDR such as 10.1.0.0/16"),
            ("forger", "field `spec.cluster_id`: is `a`, but the object is labelled `forger`"),
            ("shapeless", "field `spec.hostname`: is missing"),
        ]
    );
    assert_eq!(world.local.len(), 1);
}

#[test]
fn a_foreign_object_never_replaces_one_of_ours() {
    let mut world = World::new("a");
    world.put(Side::Local, endpoint(LOCAL_NS, "a", "10.1.0.0/16"));
    let mut intruder = labelled(endpoint(BROKER_NS, "b", "10.2.0.0/16"), "b");
    intruder.metadata.name = world.local.keys().next().unwrap().name.clone();
    world.put(Side::Broker, intruder);
    let before = world.local.clone();
    world.apply(&world.plan());
    assert_eq!(world.local, before);
}

#[test]
fn a_late_delete_and_an_early_create_converge_in_either_order() {
    let old = labelled(endpoint(BROKER_NS, "b", "10.2.0.0/16"), "b");
    let mut new = old.clone();
    new.metadata.name.push_str("-new");
    for delete_first in [true, false] {
        let mut world = World::new("a");
        world.put(Side::Broker, old.clone());
        world.converge();
        if delete_first {
            world.broker.remove(&old.key());
            world.converge();
            world.put(Side::Broker, new.clone());
        } else {
            world.put(Side::Broker, new.clone());
            world.converge();
            world.broker.remove(&old.key());
        }
        world.converge();
        let names: Vec<_> = world.local.keys().map(|key| key.name.clone()).collect();
        assert_eq!(names, [new.metadata.name.as_str()], "delete first: {delete_first}");
    }
}

proptest! {
    #[test]
    fn the_plan_of_a_planned_world_is_empty_and_refuses_the_same(world in worlds()) {
        // Not for the same reason: a Cluster that the plan puts on the broker may say another age than our Endpoints did.
        let objects = |plan: &Plan| -> Vec<_> {
            plan.refused.iter().map(|refused| (refused.cluster.clone(), refused.endpoint.clone())).collect()
        };
        let mut world = world;
        let first = world.plan();
        world.apply(&first);
        let second = world.plan();
        prop_assert_eq!(objects(&second), objects(&first));
        prop_assert_eq!(second.writes, vec![]);
    }

    #[test]
    fn a_plan_touches_only_what_is_ours_to_touch(world in worlds()) {
        let before = world.clone();
        let mut world = world;
        world.apply(&world.plan());
        for (key, object) in &before.local {
            if object.metadata.origin().is_none_or(|origin| origin == world.cluster_id) {
                prop_assert_eq!(world.local.get(key), Some(object));
            }
        }
        for (key, object) in &before.broker {
            if object.metadata.origin().is_some_and(|origin| origin != world.cluster_id)
                && !before.local.values().any(|own| own.metadata.name == key.name && own.kind == key.kind)
            {
                prop_assert_eq!(world.broker.get(key), Some(object));
            }
        }
    }

    #[test]
    fn no_two_imported_clusters_and_none_of_them_and_we_share_an_address(world in worlds()) {
        let mut world = world;
        world.apply(&world.plan());
        let mut claims = vec![(world.cluster_id.clone(), world.local_subnets.clone())];
        for object in world.local.values().filter(|o| o.kind == Kind::Endpoint) {
            let Some(origin) = object.metadata.origin().filter(|origin| *origin != world.cluster_id) else { continue };
            let facts = Endpoint::from_object(object).unwrap().spec.parse().unwrap();
            for (other, subnets) in &claims {
                prop_assert!(other == origin || overlap(subnets, &facts.subnets).is_none());
            }
            claims.push((origin.to_owned(), facts.subnets));
        }
    }

    #[test]
    fn three_clusters_agree_through_one_broker_without_an_echo(order in prop::collection::vec(0usize..3, 3..12)) {
        let mut broker = BTreeMap::new();
        let mut worlds: Vec<World> = ["a", "b", "c"].into_iter().enumerate().map(|(index, id)| {
            let mut world = World::new(id);
            world.put(Side::Local, cluster(LOCAL_NS, id));
            world.put(Side::Local, endpoint(LOCAL_NS, id, &format!("10.{index}.0.0/16")));
            world
        }).collect();
        let all = [0, 1, 2];
        for index in order.into_iter().chain(all).chain(all) {
            let world = &mut worlds[index];
            std::mem::swap(&mut world.broker, &mut broker);
            world.apply(&world.plan());
            std::mem::swap(&mut world.broker, &mut broker);
        }
        prop_assert_eq!(broker.len(), 6);
        for world in &mut worlds {
            prop_assert_eq!(world.local.len(), 6);
            world.broker.clone_from(&broker);
            prop_assert_eq!(world.plan(), Plan::default());
        }
    }
}

/// Two stores without time, versions or failure.
#[derive(Debug, Clone)]
struct World {
    cluster_id: String,
    local_subnets: Vec<IpNet>,
    local: BTreeMap<ObjectKey, Object>,
    broker: BTreeMap<ObjectKey, Object>,
}

impl World {
    fn new(cluster_id: &str) -> Self {
        Self {
            cluster_id: cluster_id.to_owned(),
            local_subnets: vec![],
            local: BTreeMap::new(),
            broker: BTreeMap::new(),
        }
    }

    fn put(&mut self, side: Side, object: Object) {
        self.side(side).insert(object.key(), object);
    }

    /// A foreign cluster appears on the broker at `second`.
    fn join(&mut self, id: &str, subnet: &str, second: i64) {
        for object in [cluster(BROKER_NS, id), endpoint(BROKER_NS, id, subnet)] {
            let mut object = labelled(object, id);
            object.metadata.creation_timestamp = Some(Timestamp::from_second(second).unwrap());
            self.put(Side::Broker, object);
        }
    }

    fn side(&mut self, side: Side) -> &mut BTreeMap<ObjectKey, Object> {
        match side {
            Side::Local => &mut self.local,
            Side::Broker => &mut self.broker,
        }
    }

    fn plan(&self) -> Plan {
        let local: Vec<&Object> = self.local.values().collect();
        let broker: Vec<&Object> = self.broker.values().collect();
        plan(&View {
            cluster_id: &self.cluster_id,
            local_namespace: LOCAL_NS,
            broker_namespace: BROKER_NS,
            local_subnets: &self.local_subnets,
            allowed: &Allowed::default(),
            local: &local,
            broker: &broker,
        })
    }

    /// Applies the plan, and checks that there is nothing left to do.
    fn converge(&mut self) -> Plan {
        let plan = self.plan();
        self.apply(&plan);
        assert_eq!(self.plan().writes, [], "a second run must plan nothing");
        plan
    }

    fn apply(&mut self, plan: &Plan) {
        for (side, write) in plan.writes.clone() {
            match write {
                Write::Create(object) => {
                    let before = self.side(side).insert(object.key(), object);
                    assert_eq!(before, None, "created what exists");
                }
                Write::Update(object) => {
                    let before = self.side(side).insert(object.key(), object.clone());
                    assert!(before.is_some_and(|before| before != object), "updated nothing into something");
                }
                Write::Delete(object) => {
                    let gone = self.side(side).remove(&object.key());
                    assert_eq!(gone, Some(object), "deleted what does not exist");
                }
                other @ (Write::UpdateStatus(_) | Write::Annotate { .. }) => panic!("{other:?} is no copy"),
            }
        }
    }
}

fn cluster(namespace: &str, id: &str) -> Object {
    let mut object = Object::new(Kind::Cluster, ObjectMeta::new(namespace, id));
    let spec = json!({"cluster_id": id, "service_cidr": [], "cluster_cidr": [], "global_cidr": []});
    object.body.insert("spec".to_owned(), spec);
    object
}

fn endpoint(namespace: &str, id: &str, subnet: &str) -> Object {
    let name = endpoint_object_name(id, "cable").unwrap();
    let mut object = Object::new(Kind::Endpoint, ObjectMeta::new(namespace, name));
    let spec = json!({"cluster_id": id, "cable_name": "cable", "hostname": format!("{id}-gw1"), "subnets": [subnet],
        "private_ip": "192.0.2.1", "public_ip": "", "nat_enabled": false, "backend": "wireguard"});
    object.body.insert("spec".to_owned(), spec);
    object
}

fn labels(origin: &str) -> BTreeMap<String, String> {
    [(label::CLUSTER_ID.to_owned(), origin.to_owned())].into()
}

fn labelled(mut object: Object, origin: &str) -> Object {
    object.metadata.labels = labels(origin);
    object
}

/// Anything at all on both sides: copies, originals, forgeries, overlaps, nonsense.
fn worlds() -> impl Strategy<Value = World> {
    let id = || prop::sample::select(vec!["a", "b", "c", "d"]);
    let subnet =
        prop::sample::select(vec!["10.1.0.0/16", "10.2.0.0/16", "10.2.9.0/24", "10.3.0.0/16", "nonsense"]);
    let object = (id(), prop::option::of(id()), subnet, any::<bool>(), 0i64..4, any::<bool>());
    let object = object.prop_map(|(id, origin, subnet, is_cluster, age, is_local)| {
        let namespace = if is_local { LOCAL_NS } else { BROKER_NS };
        let object = if is_cluster { cluster(namespace, id) } else { endpoint(namespace, id, subnet) };
        let mut object = origin.map_or_else(|| object.clone(), |origin| labelled(object.clone(), origin));
        object.metadata.creation_timestamp = Some(Timestamp::from_second(age).unwrap());
        (is_local, object)
    });
    prop::collection::vec(object, 0..16).prop_map(|objects| {
        let mut world = World::new("a");
        world.local_subnets = vec!["10.1.0.0/16".parse().unwrap()];
        for (is_local, object) in objects {
            world.put(if is_local { Side::Local } else { Side::Broker }, object);
        }
        world
    })
}

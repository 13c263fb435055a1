//! The controller against a model of its store, and against a real one.

use ipnet::IpNet;
use proptest::collection::{btree_map, btree_set};
use proptest::prelude::*;
use trieste_control::api::limits::MAX_CIDRS;
use trieste_control::api::{Object, ObjectMeta};
use trieste_control::store::{AnyStore, Location};

use super::*;

const NAMESPACE: &str = "submariner-operator";

fn net(number: u16) -> IpNet {
    format!("10.{}.{}.0/24", number >> 8, number & 0xff).parse().unwrap()
}

fn zone(own: &[&str], others: &[&str], accepted: &[(&str, &[u16])], closed: &[u16]) -> Zone {
    let hops = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    let nets = |numbers: &[u16]| numbers.iter().copied().map(net).collect::<BTreeSet<_>>();
    let accepted = accepted.iter().map(|(cluster, numbers)| ((*cluster).to_owned(), nets(numbers)));
    Zone {
        hops: Hops { own: hops(own), others: hops(others) },
        accepted: accepted.collect(),
        closed: nets(closed),
    }
}

fn key(object: &Object) -> RouteKey {
    (object.kind, object.metadata.name.clone())
}

/// A controller and what its store has.
struct Model {
    controller: RoutesController,
    store: BTreeMap<RouteKey, Object>,
    writes: usize,
    version: u64,
}

impl Model {
    fn new() -> Self {
        let controller = RoutesController::new(NAMESPACE);
        Self { controller, store: BTreeMap::new(), writes: 0, version: 0 }
    }

    fn list(&mut self) -> Vec<RouteKey> {
        let mut keys = Vec::new();
        for kind in KINDS {
            let objects = self.store.values().filter(|object| object.kind == kind).cloned().collect();
            let watch = Watch::new(0, kind, NAMESPACE);
            keys.extend(self.controller.observe(&watch, StoreEvent::Listed(objects), Instant::now()));
        }
        keys
    }

    /// Reconciles these keys until nothing is left to write; returns how many writes that took.
    fn settle(&mut self, keys: Vec<RouteKey>) -> usize {
        let before = self.writes;
        for key in keys {
            for _ in 0..3 {
                let context =
                    Context { now: Instant::now(), wall: jiff::Timestamp::UNIX_EPOCH, leadership: None };
                for write in self.controller.reconcile(&key, &context).writes {
                    self.writes += 1;
                    self.write(write);
                }
            }
        }
        self.writes - before
    }

    fn write(&mut self, write: Write) {
        self.version += 1;
        let (kind, event) = match write {
            Write::Create(mut object) | Write::Update(mut object) => {
                object.metadata.resource_version = Some(self.version.to_string());
                self.store.insert(key(&object), object.clone());
                (object.kind, StoreEvent::Applied(object))
            }
            Write::Delete(object) => {
                self.store.remove(&key(&object));
                (object.kind, StoreEvent::Deleted(object))
            }
            Write::UpdateStatus(_) | Write::Annotate { .. } => panic!("neither is planned"),
        };
        let watch = Watch::new(0, kind, NAMESPACE);
        self.controller.observe(&watch, event, Instant::now());
    }

    fn want(&mut self, zone: Option<Zone>) -> usize {
        let keys = self.controller.handle_input(zone, Instant::now());
        self.settle(keys)
    }

    /// Returns kind, name, next hops and CIDRs of all objects.
    fn shown(&self) -> Vec<String> {
        let text = |object: &Object| {
            let spec = &object.body["spec"];
            let list = |field: &str| {
                let all = spec[field].as_array().unwrap().iter().map(|one| one.as_str().unwrap());
                all.collect::<Vec<_>>().join(" ")
            };
            format!(
                "{} {}: {} via {}",
                object.kind,
                object.metadata.name,
                list("remoteCIDRs"),
                list("nextHops")
            )
        };
        self.store.values().map(text).collect()
    }
}

#[test]
fn plugin_ovn_each_cluster_has_an_object_of_each_kind_and_is_written_alone() {
    let mut model = Model::new();
    assert_eq!(model.list(), []);
    let ways = (&["10.1.1.2", "fd00:1:0:1::2"][..], &["100.88.0.2"][..]);
    let first = zone(ways.0, ways.1, &[("b", &[2, 3]), ("c", &[4])], &[9]);
    assert_eq!(model.want(Some(first.clone())), 6);
    assert_eq!(
        model.shown(),
        [
            "GatewayRoute 0.closed.trieste.io: 10.0.9.0/24 via 10.1.1.2 fd00:1:0:1::2",
            "GatewayRoute b: 10.0.2.0/24 10.0.3.0/24 via 10.1.1.2 fd00:1:0:1::2",
            "GatewayRoute c: 10.0.4.0/24 via 10.1.1.2 fd00:1:0:1::2",
            "NonGatewayRoute 0.closed.trieste.io: 10.0.9.0/24 via 100.88.0.2",
            "NonGatewayRoute b: 10.0.2.0/24 10.0.3.0/24 via 100.88.0.2",
            "NonGatewayRoute c: 10.0.4.0/24 via 100.88.0.2",
        ]
    );
    assert_eq!(model.want(Some(first)), 0);
    assert_eq!(model.want(Some(zone(ways.0, ways.1, &[("b", &[2]), ("c", &[4])], &[9]))), 2);
    assert_eq!(model.want(Some(zone(ways.0, ways.1, &[("c", &[4])], &[9]))), 2);
    assert_eq!(model.want(Some(zone(ways.0, &[], &[("c", &[4])], &[9]))), 0, "what there is stays");
    assert_eq!(
        model.want(Some(zone(&["10.1.9.2"], &[], &[("c", &[4])], &[9]))),
        2,
        "mp0 has another address"
    );
    assert_eq!(model.shown()[1], "GatewayRoute c: 10.0.4.0/24 via 10.1.9.2");
    let before = model.shown();
    assert_eq!(
        model.want(Some(zone(&[], &[], &[("c", &[4])], &[9]))),
        0,
        "no way to the gateway, but networks"
    );
    assert_eq!(model.shown(), before);
    assert_eq!(model.want(Some(zone(&[], &[], &[], &[]))), 4, "no networks");
    assert_eq!(model.shown(), Vec::<String>::new());
}

#[test]
fn plugin_ovn_a_node_without_the_leader_leaves_the_objects_and_one_with_it_repairs_them() {
    let mut model = Model::new();
    model.list();
    let wanted = zone(&["10.1.1.2"], &["100.88.0.2"], &[("b", &[2])], &[]);
    model.want(Some(wanted.clone()));
    // Another gateway leads now, and writes something else.
    assert_eq!(model.want(None), 0);
    let mut object = model.store.pop_first().unwrap().1;
    object.metadata.labels.insert("whose".to_owned(), "somebody's".to_owned());
    object.body["spec"]["nextHops"] = serde_json::json!(["10.1.2.2"]);
    let stranger = Object::new(Kind::GatewayRoute, ObjectMeta::new(NAMESPACE, "gone"));
    for object in [object, stranger] {
        model.store.insert(key(&object), object);
    }
    let keys = model.list();
    assert_eq!(model.settle(keys), 0);
    // And this one again: what it says of clusters that have left goes, what others have added to an object stays.
    assert_eq!(model.want(Some(wanted)), 2);
    assert_eq!(
        model.shown(),
        ["GatewayRoute b: 10.0.2.0/24 via 10.1.1.2", "NonGatewayRoute b: 10.0.2.0/24 via 100.88.0.2"]
    );
    assert_eq!(model.store.first_key_value().unwrap().1.metadata.labels["whose"], "somebody's");
}

#[test]
fn nothing_is_written_before_both_kinds_are_listed() {
    let mut model = Model::new();
    let wanted = zone(&["10.1.1.2"], &["100.88.0.2"], &[("b", &[2])], &[]);
    assert_eq!(model.want(Some(wanted)), 0);
    let keys = model.list();
    assert_eq!(model.settle(keys), 2);
}

#[test]
fn very_many_closed_networks_are_several_objects() {
    let many: Vec<u16> = (0..600).collect();
    let zone = zone(&["10.1.1.2"], &[], &[], &many);
    let sizes: Vec<usize> = zone.by_name().values().map(Vec::len).collect();
    assert_eq!(sizes, [MAX_CIDRS, MAX_CIDRS, 600 - 2 * MAX_CIDRS]);
    for (name, networks) in zone.by_name() {
        let spec = RouteSpec::new(&zone.hops.own, &networks);
        spec.parse().unwrap();
        object(NAMESPACE, &(Kind::GatewayRoute, name), spec).unwrap();
    }
}

fn any_zone() -> impl Strategy<Value = Option<Zone>> {
    let cluster = prop_oneof![Just("b"), Just("c"), Just("d")].prop_map(str::to_owned);
    let accepted = btree_map(cluster, btree_set((0..20_u16).prop_map(net), 1..4), 0..3);
    // What is said while a way is not known depends on what was said before.
    let hops = any::<bool>().prop_map(|is_moved| Hops {
        own: vec![if is_moved { "10.1.7.2" } else { "10.1.1.2" }.parse().unwrap()],
        others: vec!["100.88.0.2".parse().unwrap()],
    });
    let zone = (hops, accepted, btree_set((20..24_u16).prop_map(net), 0..2));
    proptest::option::weighted(0.9, zone.prop_map(|(hops, accepted, closed)| Zone { hops, accepted, closed }))
}

proptest! {
    #[test]
    fn after_any_changes_the_objects_are_those_of_the_last_one(zones in proptest::collection::vec(any_zone(), 1..12)) {
        let mut model = Model::new();
        model.list();
        let mut last = None;
        for zone in zones {
            model.want(zone.clone());
            last = zone.or(last);
        }
        model.want(last.clone());
        let mut anew = Model::new();
        anew.list();
        anew.want(last);
        prop_assert_eq!(model.shown(), anew.shown());
    }
}

#[tokio::test]
async fn plugin_ovn_the_objects_are_in_a_real_store_and_parse() {
    let directory = tempfile::tempdir().unwrap();
    let store = AnyStore::attach_marked(&Location::Dir(directory.path().to_owned()), 0);
    let (sender, zones) = watch::channel(None);
    let handle = spawn(store.clone(), NAMESPACE, zones);
    sender.send_replace(Some(zone(&["10.1.1.2"], &["100.88.0.2"], &[("b", &[2, 3])], &[])));
    let has = async |count: usize| loop {
        let mut found = Vec::new();
        for kind in KINDS {
            found.extend(store.list(kind, NAMESPACE).await.unwrap());
        }
        if found.len() == count {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let found = tokio::time::timeout(Duration::from_secs(30), has(2)).await.unwrap();
    for object in found {
        let spec: RouteSpec = serde_json::from_value(object.body["spec"].clone()).unwrap();
        let facts = spec.parse().unwrap();
        assert_eq!((facts.next_hops.len(), facts.remote_cidrs), (1, vec![net(2), net(3)]));
    }
    sender.send_replace(Some(zone(&["10.1.1.2"], &["100.88.0.2"], &[], &[])));
    tokio::time::timeout(Duration::from_secs(30), has(0)).await.unwrap();
    handle.stop(Duration::from_secs(1)).await;
}

//! The controller against a model of Spiderpool's objects.

use proptest::prelude::*;
use serde_json::{Value, json};
use trieste_control::api::{GatewayRoute, ObjectMeta, Resource as _, RouteSpec, closed_routes_name};

use super::super::list::entries;
use super::*;

const NAMESPACE: &str = "submariner-operator";
const FIRST: &str = "2026-11-28T10:00:00Z";
const SECOND: &str = "2026-11-28T10:00:10Z";

fn route(name: &str, networks: &[&str]) -> Object {
    let networks: Vec<IpNet> = networks.iter().map(|text| text.parse().unwrap()).collect();
    let spec = RouteSpec::new(&["172.31.1.11".parse().unwrap()], &networks);
    GatewayRoute::new(NAMESPACE, name, spec).unwrap().to_object()
}

fn object(kind: Kind, namespace: &str, name: &str, spec: Value) -> Object {
    let mut object = Object::new(kind, ObjectMeta::new(namespace, name));
    object.body.insert("spec".to_owned(), spec);
    object
}

fn coordinator(list: &[&str]) -> Object {
    let spec = json!({"mode": "auto", "podCIDRType": "auto", "hostRuleTable": 500, "hijackCIDR": list});
    object(Kind::SpiderCoordinator, "", "default", spec)
}

fn config(name: &str, coordinator: &Value) -> Object {
    let spec = json!({"cniType": "macvlan", "macvlan": {"master": ["eth0"]}, "coordinator": coordinator});
    object(Kind::SpiderMultusConfig, "kube-system", name, spec)
}

fn pool(name: &str, subnet: &str) -> Object {
    object(Kind::SpiderIpPool, "", name, json!({"subnet": subnet, "disable": true}))
}

struct Model {
    controller: HijackController,
    lists: BTreeMap<ObjectKey, Object>,
    now: Timestamp,
    clock: Instant,
    /// Whether the server drops the field, as one that does not have it.
    is_old: bool,
}

impl Model {
    fn new(wish: Wish, lists: Vec<Object>) -> Self {
        let lists = lists.into_iter().map(|object| (object.key(), object)).collect();
        let controller = HijackController::new(NAMESPACE, wish);
        Self { controller, lists, now: FIRST.parse().unwrap(), clock: Instant::now(), is_old: false }
    }

    /// Lists everything; returns the number of writes, of which there are none before the last list.
    fn start(&mut self, routes: Vec<Object>, pools: Vec<Object>) -> usize {
        let of = |kind: Kind| self.lists.values().filter(|object| object.kind == kind).cloned().collect();
        let [coordinators, configs]: [Vec<Object>; 2] = LISTS.map(of);
        let mut writes = 0;
        for (kind, objects) in [
            (LISTS[0], coordinators),
            (LISTS[1], configs),
            (Kind::GatewayRoute, routes),
            (Kind::SpiderIpPool, pools),
        ] {
            assert!(writes == 0, "before {kind} was listed");
            writes += self.see(kind, StoreEvent::Listed(objects));
        }
        writes
    }

    fn see(&mut self, kind: Kind, event: StoreEvent) -> usize {
        if let StoreEvent::Applied(object) = &event
            && LISTS.contains(&kind)
        {
            self.lists.insert(object.key(), object.clone());
        }
        let namespace = if kind == Kind::GatewayRoute { NAMESPACE } else { "" };
        let keys = self.controller.observe(&Watch::new(0, kind, namespace), event, Instant::now());
        keys.iter().map(|key| self.settle(key)).sum()
    }

    fn plan(&mut self, key: &ObjectKey) -> Reconciled {
        let context = Context { now: self.clock, wall: self.now, leadership: None };
        self.controller.reconcile(key, &context)
    }

    fn settle(&mut self, key: &ObjectKey) -> usize {
        let writes = self.plan(key).writes;
        for write in &writes {
            let Write::Update(object) = write else { panic!("{write:?}") };
            let mut kept = object.clone();
            if self.is_old
                && let Some(spec) = kept.body.get_mut("spec").and_then(Value::as_object_mut)
            {
                spec.remove("hijackCIDR");
            }
            self.lists.insert(kept.key(), kept.clone());
            let event = StoreEvent::Applied(kept.clone());
            self.controller.written(key, write, Ok(&event), self.clock);
            self.controller.observe(&Watch::new(0, kept.kind, ""), event, Instant::now());
            let again = self.plan(key);
            assert!(again.writes.is_empty(), "{again:?}");
            assert_eq!(again.requeue_after.is_some(), self.is_old);
        }
        writes.len()
    }

    fn list(&self, object: &Object) -> Vec<String> {
        entries(&self.lists[&object.key()])
    }

    fn record(&self, object: &Object) -> Option<&str> {
        self.lists[&object.key()].metadata.annotations.get(ANNOTATION).map(String::as_str)
    }
}

#[test]
fn plugin_spiderpool_lists_follow_clusters_in_both_families_and_keep_others_entries() {
    let default = coordinator(&["169.254.0.0/16"]);
    let own = config("own", &json!({"hijackCIDR": ["192.0.2.1"], "mode": "underlay"}));
    let shared = config("shared", &json!({"hijackCIDR": [], "mode": "underlay"}));
    let off = config("off", &json!({"hijackCIDR": ["192.0.2.0/24"], "mode": "disabled"}));
    let mut model =
        Model::new(Wish::Everything, vec![default.clone(), own.clone(), shared.clone(), off.clone()]);
    let closed = route(&closed_routes_name(0), &["10.9.0.0/16"]);
    let b = route("b", &["10.2.0.0/16", "fd00:2::/48", "10.2.3.0/24"]);
    assert_eq!(model.start(vec![b, closed], Vec::new()), 2, "each list that is in force is written once");
    let added = ["10.2.0.0/16", "10.2.3.0/24", "10.9.0.0/16", "fd00:2::/48"];
    assert_eq!(model.list(&default), [&["169.254.0.0/16"][..], &added].concat());
    assert_eq!(model.list(&own), [&["192.0.2.1"][..], &added].concat());
    assert_eq!(model.list(&shared), [""; 0], "an empty list leaves the coordinator's in force");
    assert_eq!((model.list(&off), model.record(&off)), (vec!["192.0.2.0/24".to_owned()], None));
    let spec = &model.lists[&default.key()].body["spec"];
    assert_eq!((&spec["hostRuleTable"], &spec["mode"]), (&json!(500), &json!("auto")), "other fields stay");
    // Another cluster: what was there keeps its time.
    model.now = SECOND.parse().unwrap();
    assert_eq!(
        model.see(Kind::GatewayRoute, StoreEvent::Applied(route("c", &["10.3.0.0/16", "10.2.0.0/16"]))),
        2
    );
    let record = format!(
        "{{\"{FIRST}\":[\"10.2.0.0/16\",\"10.2.3.0/24\",\"10.9.0.0/16\",\"fd00:2::/48\"],\"{SECOND}\":[\"10.3.0.0/16\"]}}"
    );
    assert_eq!(model.record(&default), Some(record.as_str()));
    // A network of two goes with the last of them.
    assert_eq!(model.see(Kind::GatewayRoute, StoreEvent::Deleted(route("b", &[]))), 2);
    assert_eq!(model.list(&default), ["169.254.0.0/16", "10.2.0.0/16", "10.3.0.0/16", "10.9.0.0/16"]);
    assert_eq!(model.see(Kind::GatewayRoute, StoreEvent::Listed(Vec::new())), 2);
    assert_eq!((model.list(&default), model.record(&default)), (vec!["169.254.0.0/16".to_owned()], None));
    assert_eq!((model.list(&own), model.record(&own)), (vec!["192.0.2.1".to_owned()], None));
}

#[test]
fn plugin_spiderpool_changes_by_hand_are_repaired_and_what_covers_a_network_serves() {
    let default = coordinator(&["10.0.0.0/8"]);
    let own = config("own", &json!({"hijackCIDR": ["192.0.2.0/24"]}));
    let mut model = Model::new(Wish::Everything, vec![default.clone(), own.clone()]);
    let routes = vec![route("b", &["10.2.0.0/16", "fd00:2::/48"])];
    assert_eq!(model.start(routes, Vec::new()), 2);
    assert_eq!(model.list(&default), ["10.0.0.0/8", "fd00:2::/48"]);
    // Taken out: pods that are made meanwhile have no route, so that its time is a new one.
    model.now = SECOND.parse().unwrap();
    let mut changed = model.lists[&own.key()].clone();
    changed.body["spec"]["coordinator"]["hijackCIDR"] = json!(["192.0.2.0/24", "10.2.0.0/16"]);
    assert_eq!(model.see(Kind::SpiderMultusConfig, StoreEvent::Applied(changed)), 1);
    assert_eq!(model.list(&own), ["192.0.2.0/24", "10.2.0.0/16", "fd00:2::/48"]);
    let record = format!("{{\"{FIRST}\":[\"10.2.0.0/16\"],\"{SECOND}\":[\"fd00:2::/48\"]}}");
    assert_eq!(model.record(&own), Some(record.as_str()));
    // A list of ours alone would take the coordinator's place.
    let mut emptied = model.lists[&own.key()].clone();
    emptied.body["spec"]["coordinator"]["hijackCIDR"] = json!(["10.2.0.0/16", "fd00:2::/48"]);
    assert_eq!(model.see(Kind::SpiderMultusConfig, StoreEvent::Applied(emptied)), 1);
    assert_eq!((model.list(&own), model.record(&own)), (Vec::new(), None));
    // An administrator's.
    let mut unmanaged = model.lists[&default.key()].clone();
    unmanaged.metadata.annotations.insert(ANNOTATION.to_owned(), "unmanaged".to_owned());
    assert_eq!(model.see(Kind::SpiderCoordinator, StoreEvent::Applied(unmanaged)), 0);
    assert_eq!(model.see(Kind::GatewayRoute, StoreEvent::Deleted(route("b", &[]))), 0);
    assert_eq!(model.list(&default), ["10.0.0.0/8", "fd00:2::/48"]);
}

#[test]
fn plugin_spiderpool_pods_own_networks_are_not_taken_from_them() {
    let default = coordinator(&[]);
    let mut model = Model::new(Wish::Everything, vec![default.clone()]);
    let routes = vec![
        route("inside", &["192.168.7.128/25"]),
        route("around", &["172.16.0.0/12", "fd00:7::/48"]),
        route("c", &["10.3.0.0/16"]),
    ];
    let pools = vec![pool("a", "192.168.7.0/24"), pool("b", "172.17.5.0/24"), pool("six", "fd00:7:0:1::/64")];
    assert_eq!(model.start(routes, pools), 1);
    assert_eq!(model.list(&default), ["10.3.0.0/16"]);
    let problems = |model: &Model| model.controller.wanted.as_ref().map(|wanted| wanted.problems.clone());
    let found = problems(&model).unwrap();
    assert_eq!(found.len(), 3);
    let why = "it overlaps 192.168.7.0/24, in which SpiderIPPools give";
    assert!(found.iter().any(|(name, text)| name == "remote network 192.168.7.128/25" && text.contains(why)));
    // Another pool of the same network keeps it.
    assert_eq!(model.see(Kind::SpiderIpPool, StoreEvent::Applied(pool("a2", "192.168.7.0/24"))), 0);
    assert_eq!(model.see(Kind::SpiderIpPool, StoreEvent::Deleted(pool("a", "192.168.7.0/24"))), 0);
    assert_eq!(model.see(Kind::SpiderIpPool, StoreEvent::Deleted(pool("a2", "192.168.7.0/24"))), 1);
    assert_eq!(model.list(&default), ["10.3.0.0/16", "192.168.7.128/25"]);
    // A new one takes it back.
    assert_eq!(model.see(Kind::SpiderIpPool, StoreEvent::Applied(pool("new", "10.3.0.0/24"))), 1);
    assert_eq!(model.list(&default), ["192.168.7.128/25"]);
}

#[test]
fn plugin_spiderpool_what_cannot_be_written_is_named_and_nothing_is_repeated_for_ever() {
    // A server that does not have the field.
    let mut model = Model::new(Wish::Everything, vec![coordinator(&[])]);
    model.is_old = true;
    assert_eq!(model.start(vec![route("b", &["10.2.0.0/16"])], Vec::new()), 1);
    // An annotation that somebody has changed.
    let mut broken = coordinator(&["10.2.0.0/16"]);
    broken.metadata.annotations.insert(ANNOTATION.to_owned(), "yes".to_owned());
    let key = broken.key();
    let mut model = Model::new(Wish::Everything, vec![broken]);
    assert_eq!(model.start(vec![route("b", &["10.3.0.0/16"])], Vec::new()), 0);
    assert!(model.controller.problems[&key].contains("remove the annotation"));
    // More than an annotation has room for: a stranger's do not push out what is there.
    let mut model = Model::new(Wish::Everything, vec![coordinator(&[])]);
    let high = route("high", &["203.0.113.0/24"]);
    assert_eq!(model.start(vec![high], Vec::new()), 1);
    let many: Vec<String> =
        (0..8_000).map(|number| format!("10.{}.{}.0/24", number >> 8, number & 255)).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (number, part) in many.chunks(255).enumerate() {
        model.see(Kind::GatewayRoute, StoreEvent::Applied(route(&format!("c{number}"), part)));
    }
    let list = model.list(&coordinator(&[]));
    assert!(list.contains(&"203.0.113.0/24".to_owned()) && list.len() > 4_000, "{}", list.len());
    assert!(model.record(&coordinator(&[])).unwrap().len() <= 200 << 10, "Kubernetes takes 256 KiB");
    let key = coordinator(&[]).key();
    let count = format!("{} remote networks are left out", 8_001 - list.len());
    assert!(model.controller.problems[&key].contains(&count), "{}", model.controller.problems[&key]);
}

/// What a stranger claims, and is refused, must not take another cluster's networks out.
#[test]
fn plugin_spiderpool_a_wider_network_that_overlaps_a_pool_leaves_those_inside_of_it() {
    let mut model = Model::new(Wish::Everything, vec![coordinator(&[])]);
    let b = route("b", &["172.20.0.0/16"]);
    let wide = route(&closed_routes_name(0), &["172.16.0.0/12", "172.20.0.0/15"]);
    assert_eq!(model.start(vec![b, wide.clone()], vec![pool("a", "172.17.5.0/24")]), 1);
    assert_eq!(model.list(&coordinator(&[])), ["172.20.0.0/15", "172.20.0.0/16"]);
    // It goes: what is inside of it keeps its time.
    model.now = SECOND.parse().unwrap();
    assert_eq!(model.see(Kind::GatewayRoute, StoreEvent::Deleted(wide)), 1);
    assert_eq!(
        model.record(&coordinator(&[])),
        Some(format!("{{\"{FIRST}\":[\"172.20.0.0/16\"]}}").as_str())
    );
}

/// Nothing is taken out since the routes are not served at present, and an uninstall does not wait for them.
#[test]
fn plugin_spiderpool_lists_are_filled_by_routes_that_were_read_and_emptied_without_them() {
    let unserved = || {
        let source = std::io::Error::new(std::io::ErrorKind::NotFound, "no such kind");
        StoreEvent::Unavailable(StoreError::Unavailable { operation: "listing".to_owned(), source })
    };
    let mut first = Model::new(Wish::Everything, vec![coordinator(&["169.254.0.0/16"])]);
    assert_eq!(first.start(vec![route("b", &["10.2.0.0/16"])], Vec::new()), 1);
    let left: Vec<Object> = first.lists.values().cloned().collect();
    for (wish, writes) in [(Wish::Everything, 0), (Wish::Nothing, 1)] {
        let mut model = Model::new(wish, left.clone());
        model.see(Kind::GatewayRoute, unserved());
        let found = model.see(Kind::SpiderCoordinator, StoreEvent::Listed(left.clone()));
        let found = found + model.see(Kind::SpiderMultusConfig, StoreEvent::Listed(Vec::new()));
        // The last thing that is learnt may be that there is none.
        let found = found + model.see(Kind::SpiderIpPool, StoreEvent::Listed(Vec::new()));
        assert_eq!(found, writes, "{wish:?}");
    }
}

/// As a controller does that keeps objects as a repository says.
#[test]
fn plugin_spiderpool_somebody_who_undoes_it_again_and_again_is_named_and_waited_for() {
    let original = coordinator(&["169.254.0.0/16"]);
    let mut model = Model::new(Wish::Everything, vec![original.clone()]);
    assert_eq!(model.start(vec![route("b", &["10.2.0.0/16"])], Vec::new()), 1);
    let undone = || StoreEvent::Applied(original.clone());
    let writes: usize = (0..10).map(|_| model.see(Kind::SpiderCoordinator, undone())).sum();
    assert_eq!(writes, 4, "repaired some times, then left for a while");
    let left = model.plan(&original.key()).requeue_after.unwrap();
    let problem = &model.controller.problems[&original.key()];
    assert!(problem.contains("unmanaged") && left > Duration::from_secs(50), "{problem}");
    // What changes itself is written at once.
    assert_eq!(model.see(Kind::GatewayRoute, StoreEvent::Applied(route("c", &["10.3.0.0/16"]))), 1);
}

#[test]
fn plugin_spiderpool_an_uninstall_takes_back_what_is_ours() {
    let lists = vec![coordinator(&["169.254.0.0/16"]), config("own", &json!({"hijackCIDR": ["192.0.2.1"]}))];
    let mut model = Model::new(Wish::Everything, lists.clone());
    let routes = vec![route("b", &["10.2.0.0/16"])];
    assert_eq!(model.start(routes.clone(), Vec::new()), 2);
    let left: Vec<Object> = model.lists.values().cloned().collect();
    let mut removal = Model::new(Wish::Nothing, left);
    assert_eq!(removal.start(routes, Vec::new()), 2);
    assert_eq!(removal.lists.into_values().collect::<Vec<_>>(), lists);
}

fn any_network() -> impl Strategy<Value = &'static str> {
    let all = ["10.2.0.0/16", "10.2.3.0/24", "10.3.0.0/16", "10.0.0.0/8", "fd00:2::/48", "fd00:2:0:1::/64"];
    proptest::sample::select(all.to_vec())
}

#[derive(Debug, Clone)]
enum Event {
    Route(usize, Vec<&'static str>),
    Pool(usize, Option<&'static str>),
    Own(Vec<&'static str>),
    Take(usize),
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0..3_usize, proptest::collection::vec(any_network(), 0..4))
            .prop_map(|(at, list)| Event::Route(at, list)),
        (0..2_usize, proptest::option::of(any_network())).prop_map(|(at, net)| Event::Pool(at, net)),
        proptest::collection::vec(any_network(), 0..3).prop_map(Event::Own),
        (0..6_usize).prop_map(Event::Take),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn plugin_spiderpool_any_order_of_changes_ends_as_a_fresh_start_would(
        events in proptest::collection::vec(any_event(), 0..24),
    ) {
        let default = coordinator(&["169.254.0.0/16"]);
        let mut model = Model::new(Wish::Everything, vec![default.clone()]);
        model.start(Vec::new(), Vec::new());
        let mut theirs = vec!["169.254.0.0/16".to_owned()];
        let (mut routes, mut pools) = (BTreeMap::new(), BTreeMap::new());
        for event in events {
            match event {
                Event::Route(at, networks) => {
                    let one = route(&format!("c{at}"), &networks);
                    routes.insert(at, one.clone());
                    model.see(Kind::GatewayRoute, StoreEvent::Applied(one));
                }
                Event::Pool(at, Some(network)) => {
                    pools.insert(at, pool(&format!("p{at}"), network));
                    model.see(Kind::SpiderIpPool, StoreEvent::Applied(pools[&at].clone()));
                }
                Event::Pool(at, None) => {
                    if let Some(gone) = pools.remove(&at) {
                        model.see(Kind::SpiderIpPool, StoreEvent::Deleted(gone));
                    }
                }
                // Somebody writes the list anew, with entries of theirs in place of ours.
                Event::Own(networks) => {
                    theirs = networks.iter().map(|text| (*text).to_owned()).collect();
                    let mut changed = model.lists[&default.key()].clone();
                    changed.body["spec"]["hijackCIDR"] = json!(theirs);
                    changed.metadata.annotations.remove(ANNOTATION);
                    model.see(Kind::SpiderCoordinator, StoreEvent::Applied(changed));
                }
                Event::Take(at) => {
                    let mut changed = model.lists[&default.key()].clone();
                    let mut list = entries(&changed);
                    if at >= theirs.len() && at < list.len() {
                        list.remove(at);
                    }
                    changed.body["spec"]["hijackCIDR"] = json!(list);
                    model.see(Kind::SpiderCoordinator, StoreEvent::Applied(changed));
                }
            }
        }
        // What was undone too often is waited for.
        model.clock += UNKEPT_WAIT;
        model.settle(&default.key());
        let theirs: Vec<&str> = theirs.iter().map(String::as_str).collect();
        let mut fresh = Model::new(Wish::Everything, vec![coordinator(&theirs)]);
        fresh.start(routes.into_values().collect(), pools.into_values().collect());
        prop_assert_eq!(model.list(&default), fresh.list(&default));
    }
}

//! Laws of plans, in worlds in which anything happens.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::json;
use trieste_control::api::{Kind, Object, ObjectKey, annotation};
use trieste_control::globalnet::{Objects, View, plan};
use trieste_control::store::StoreEvent;

use super::kept::Kept;
use super::world::{NS, World, addresses, egress, endpoints, export, pod, service};

/// Something that happens.
#[derive(Debug, Clone)]
enum Step {
    Egress {
        namespace: usize,
        name: usize,
        number: i64,
        app: usize,
    },
    Service {
        namespace: usize,
        name: usize,
        kind: usize,
        app: usize,
    },
    Export {
        namespace: usize,
        name: usize,
    },
    Pod {
        namespace: usize,
        name: usize,
        app: usize,
        last: u8,
        phase: usize,
    },
    Endpoints {
        namespace: usize,
        name: usize,
        lasts: Vec<u8>,
    },
    Delete(prop::sample::Index),
    /// Somebody writes another's address into a status.
    Forge(prop::sample::Index, prop::sample::Index),
    /// Only some of what is planned is written, as when a leader is lost.
    Partly(usize),
    Settle,
}

const NAMESPACES: [&str; 2] = ["one", "two"];
const NAMES: [&str; 3] = ["a", "b", "pod-a"];
const APPS: [&str; 3] = ["", "a", "b"];

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        3 => (0..2usize, 0..3usize, -1..6i64, 0..3usize)
            .prop_map(|(namespace, name, number, app)| Step::Egress { namespace, name, number, app }),
        3 => (0..2usize, 0..3usize, 0..4usize, 0..3usize)
            .prop_map(|(namespace, name, kind, app)| Step::Service { namespace, name, kind, app }),
        4 => (0..2usize, 0..3usize).prop_map(|(namespace, name)| Step::Export { namespace, name }),
        3 => (0..2usize, 0..3usize, 1..3usize, 1..6u8, 0..3usize)
            .prop_map(|(namespace, name, app, last, phase)| Step::Pod { namespace, name, app, last, phase }),
        2 => (0..2usize, 0..3usize, prop::collection::vec(1..6u8, 0..3))
            .prop_map(|(namespace, name, lasts)| Step::Endpoints { namespace, name, lasts }),
        3 => index().prop_map(Step::Delete),
        1 => (index(), index()).prop_map(|(to, from)| Step::Forge(to, from)),
        3 => (0..12usize).prop_map(Step::Partly),
        2 => Just(Step::Settle),
    ]
}

fn happen(world: &mut World, step: Step) {
    match step {
        Step::Egress { namespace, name, number, app } => {
            let value = egress(NAMESPACES[namespace], NAMES[name], number, APPS[app]);
            put_spec(world, value);
        }
        Step::Service { namespace, name, kind, app } => {
            let ip = ["100.1.0.7", "None", "fd00::7", "100.1.0.8"][kind];
            let mut value = service(NAMESPACES[namespace], NAMES[name], ip, APPS[app]);
            if kind == 3 {
                value["spec"]["type"] = json!("LoadBalancer");
            }
            world.put(value);
        }
        Step::Export { namespace, name } => drop(world.put(export(NAMESPACES[namespace], NAMES[name]))),
        Step::Pod { namespace, name, app, last, phase } => {
            let mut value =
                pod(NAMESPACES[namespace], NAMES[name], APPS[app], &format!("10.1.{namespace}.{last}"));
            value["status"]["phase"] = json!(["Pending", "Running", "Succeeded"][phase]);
            world.put(value);
        }
        Step::Endpoints { namespace, name, lasts } => {
            let ips: Vec<String> = lasts.iter().map(|last| format!("10.1.9.{last}")).collect();
            let ips: Vec<&str> = ips.iter().map(String::as_str).collect();
            world.put(endpoints(NAMESPACES[namespace], NAMES[name], &ips));
        }
        Step::Delete(index) => {
            let keys: Vec<_> =
                world.objects.keys().filter(|key| key.kind != Kind::Cluster).cloned().collect();
            if !keys.is_empty() {
                world.delete(index.get(&keys));
            }
        }
        Step::Forge(to, from) => {
            let keys: Vec<_> =
                world.objects.keys().filter(|key| key.kind == Kind::GlobalIngressIp).cloned().collect();
            if !keys.is_empty() {
                let forged = addresses(&world.objects[from.get(&keys)]).first().cloned().unwrap_or_default();
                let status = json!({"allocatedIP": forged});
                world.edit(to.get(&keys), |object| drop(object.body.insert("status".to_owned(), status)));
            }
        }
        Step::Partly(count) => {
            world.plan().writes.into_iter().take(count).for_each(|write| world.write(write));
        }
        Step::Settle => drop(world.settle()),
    }
}

/// A user replaces a spec; the status is not theirs.
fn put_spec(world: &mut World, value: serde_json::Value) {
    let object = Object::from_value(value.clone()).unwrap();
    if world.objects.contains_key(&object.key()) {
        world.edit(&object.key(), |known| known.body["spec"] = object.body["spec"].clone());
    } else {
        world.put(value);
    }
}

fn held(world: &World) -> BTreeMap<ObjectKey, Vec<String>> {
    let all = world.objects.iter().map(|(key, object)| (key.clone(), of(object)));
    all.filter(|(_, addresses)| !addresses.is_empty()).collect()
}

fn of(object: &Object) -> Vec<String> {
    let annotation = object.metadata.annotations.get(annotation::GLOBAL_IP).cloned();
    addresses(object).into_iter().chain(annotation).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// Whatever happens: it settles, what is settled is left alone, nobody shares an address, all addresses are of the
    /// CIDR, and the state has them all.
    #[test]
    fn worlds_settle_and_no_two_objects_share_an_address(
        steps in prop::collection::vec(step(), 0..40),
        cidr in prop::sample::select(vec!["242.1.0.0/16", "242.1.0.0/27", "242.1.0.0/28"]),
    ) {
        let mut world = World::new(cidr);
        for step in steps {
            happen(&mut world, step);
        }
        let state = world.settle();
        let net: ipnet::Ipv4Net = cidr.parse().unwrap();
        let held = held(&world);
        let all: Vec<&String> = held.values().flatten().collect();
        let distinct: BTreeSet<&String> = all.iter().copied().collect();
        prop_assert_eq!(distinct.len(), all.len(), "{:#?}", held);
        for address in &all {
            let address: std::net::Ipv4Addr = address.parse().unwrap();
            prop_assert!(net.contains(&address) && address != net.network() && address != net.broadcast());
        }
        prop_assert_eq!(state.pool.unwrap().allocated as usize, all.len());
        let mut globals: Vec<_> = state.ingress.iter().map(|pair| pair.global).collect();
        globals.dedup();
        prop_assert_eq!(globals.len(), state.ingress.len());
        prop_assert!(state.egress.is_sorted_by_key(|rule| (rule.kind, rule.name.clone())));
        // Time alone changes nothing.
        world.now = world.now.checked_add(jiff::SignedDuration::from_hours(1)).unwrap();
        prop_assert_eq!(world.plan().writes, Vec::new());
    }

    /// What happens to others moves nobody's addresses: unless somebody forges, who has an address and is not edited keeps
    /// it over anything, a restart included, as each plan begins with nothing but the objects.
    #[test]
    fn nobody_loses_an_address_by_what_happens_to_others(
        before in prop::collection::vec(step(), 0..25),
        after in prop::collection::vec(step(), 0..12),
    ) {
        let mut world = World::new("242.1.0.0/24");
        before.into_iter().for_each(|step| happen(&mut world, step));
        world.put(service("apart", "web", "100.1.77.7", "web"));
        world.put(export("apart", "web"));
        world.put(egress("apart", "e", 3, ""));
        world.settle();
        let apart = |world: &World| -> BTreeMap<ObjectKey, Vec<String>> {
            held(world).into_iter().filter(|(key, _)| key.namespace == "apart").collect()
        };
        let was = apart(&world);
        prop_assert_eq!(was.values().flatten().count(), 4);
        for step in after {
            if !matches!(step, Step::Forge(..) | Step::Delete(_)) {
                happen(&mut world, step);
            }
        }
        world.settle();
        prop_assert_eq!(apart(&world), was);
    }

    /// A plan that is kept over everything that happens is that of the objects as they are, whatever they were before and
    /// in which order they came.
    #[test]
    fn a_kept_plan_is_the_plan_of_all_objects(
        steps in prop::collection::vec((step(), any::<bool>()), 0..16),
        served_after in 0..6usize,
        cidr in prop::sample::select(vec!["242.1.0.0/16", "242.1.0.0/27", "242.1.0.0/28"]),
    ) {
        let mut world = World::new(cidr);
        let mut kept = Kept::new(&world);
        world.unserved.insert(Kind::ServiceExport);
        for (number, (step, is_followed)) in steps.into_iter().enumerate() {
            if number == served_after {
                world.unserved.clear();
            }
            happen(&mut world, step);
            if is_followed {
                kept.assert_is_plan_of(&world);
            }
        }
        world.unserved.clear();
        world.settle();
        kept.assert_is_plan_of(&world);
    }

    /// No object can make a plan panic or grow beyond what there is.
    #[test]
    fn no_object_breaks_a_plan(bodies in prop::collection::vec((0..7usize, json_value()), 1..12)) {
        let kinds = [Kind::ClusterGlobalEgressIp, Kind::GlobalEgressIp, Kind::GlobalIngressIp, Kind::Service,
            Kind::ServiceExport, Kind::Pod, Kind::CoreEndpoints];
        let mut objects = Objects::default();
        let world = World::new("242.1.0.0/24");
        for kind in [Kind::Cluster, Kind::Gateway] {
            let own = world.objects.iter().filter(|(key, _)| key.kind == kind).map(|(_, object)| object.clone());
            objects.handle(&(kind, NS.to_owned()), StoreEvent::Listed(own.collect()));
        }
        for kind in kinds {
            let made = bodies.iter().enumerate().filter(|(_, (index, _))| kinds[*index] == kind);
            let made = made.map(|(number, (_, body))| {
                let namespace = if kind.is_namespaced() { "demo" } else { "" };
                let metadata = trieste_control::api::ObjectMeta::new(namespace, NAMES[number % 3]);
                let mut object = Object::new(kind, metadata);
                if let serde_json::Value::Object(fields) = body {
                    object.body = fields.clone().into();
                }
                object
            });
            objects.handle(&(kind, String::new()), StoreEvent::Listed(made.collect()));
        }
        let view =
            View { namespace: NS, cluster_id: "cluster-a", gateway: None, objects: &objects, now: world.now };
        let outcome = plan(&view);
        prop_assert!(outcome.writes.len() <= 4 * bodies.len() + 1);
        prop_assert_eq!(plan(&view), outcome);
    }
}

/// Bodies that are half right.
fn json_value() -> impl Strategy<Value = serde_json::Value> {
    let text = prop::sample::select(vec![
        "",
        "a",
        "b",
        "None",
        "ClusterIP",
        "Running",
        "10.1.0.1",
        "fd00::1",
        "242.0.0.9",
        "242.1.0.9",
        "999",
        "HeadlessServicePod",
        "ClusterIPService",
        "\u{0}",
    ]);
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(serde_json::Value::from),
        prop_oneof![Just(0), Just(-1), Just(3), any::<i64>()].prop_map(serde_json::Value::from),
        text.prop_map(serde_json::Value::from),
    ];
    let key = prop::sample::select(vec![
        "spec",
        "status",
        "subsets",
        "addresses",
        "ip",
        "clusterIP",
        "type",
        "ports",
        "selector",
        "target",
        "serviceRef",
        "podRef",
        "name",
        "allocatedIP",
        "allocatedIPs",
        "conditions",
        "numberOfIPs",
        "numGlobalIPs",
        "podSelector",
        "matchExpressions",
        "key",
        "operator",
        "values",
        "phase",
        "podIP",
        "externalIPs",
        "app",
    ]);
    leaf.prop_recursive(4, 24, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
            prop::collection::btree_map(key.clone().prop_map(str::to_owned), inner, 0..6)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

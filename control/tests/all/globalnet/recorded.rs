//! Upstream's recorded scenario, replayed: the same objects come out, and those that upstream has made are left as they are.

use serde_json::Value;
use trieste_control::api::{Kind, Object, annotation};
use trieste_control::globalnet::{EgressKind, GlobalnetState, IngressKind};
use trieste_control::runner::Write;

use super::world::{World, addresses, ip, object, pod};

const SAMPLES: [&str; 6] = [
    include_str!("../../golden/globalnet/a-clusters.yaml"),
    include_str!("../../golden/globalnet/a-gateways.yaml"),
    include_str!("../../golden/globalnet/a-clusterglobalegressips.yaml"),
    include_str!("../../golden/globalnet/a-globalegressips.yaml"),
    include_str!("../../golden/globalnet/a-globalingressips.yaml"),
    include_str!("../../golden/globalnet/a-demo-services.yaml"),
];

fn items() -> Vec<Value> {
    let list = |text| -> Value { serde_saphyr::from_str(text).unwrap() };
    let items = SAMPLES.into_iter().flat_map(|text| list(text)["items"].as_array().unwrap().clone());
    items.collect()
}

/// What was recorded of pods is a table; these are its pods, and one that nothing selects.
fn pods(world: &mut World) {
    world.put(pod("demo", "web-0", "web", "10.1.3.10"));
    world.put(pod("demo", "client", "client", "10.1.3.11"));
}

/// What upstream's users had made before Globalnet began.
fn before() -> World {
    let mut world = World::empty();
    for mut item in items() {
        let kind = item["kind"].as_str().unwrap().to_owned();
        let is_internal = item["metadata"].get("finalizers").is_some();
        if is_internal || matches!(kind.as_str(), "ClusterGlobalEgressIP" | "GlobalIngressIP") {
            continue;
        }
        if kind == "GlobalEgressIP" {
            item.as_object_mut().unwrap().remove("status");
        }
        if kind == "Gateway" {
            item["metadata"]["annotations"].as_object_mut().unwrap().remove(annotation::GLOBAL_IP);
        }
        world.put(item);
    }
    pods(&mut world);
    world
}

fn after() -> World {
    let mut world = World::empty();
    items().into_iter().for_each(|item| drop(world.put(item)));
    pods(&mut world);
    world
}

/// What can be compared: not who wrote it when, nor what the API server or kubectl added.
fn bare(object: &Object) -> Value {
    let mut value = object.to_value();
    let metadata = value["metadata"].as_object_mut().unwrap();
    for field in ["resourceVersion", "uid", "creationTimestamp", "generation"] {
        metadata.remove(field);
    }
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        annotations.remove(annotation::POD_SELECTOR);
        let is_empty = annotations.is_empty();
        if is_empty {
            metadata.remove("annotations");
        }
    }
    let conditions = value.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        condition.as_object_mut().unwrap().remove("lastTransitionTime");
    }
    if object.kind == Kind::Service {
        value.as_object_mut().unwrap().remove("status");
        let spec = value["spec"].as_object_mut().unwrap();
        for field in
            ["clusterIP", "clusterIPs", "externalTrafficPolicy", "internalTrafficPolicy", "sessionAffinity"]
        {
            spec.remove(field);
        }
    }
    value
}

#[test]
fn the_same_objects_come_out_as_upstreams() {
    let mut world = before();
    world.settle();
    for (key, recorded) in after().objects {
        let ours = world.objects.get(&key).unwrap_or_else(|| panic!("there is no {key}"));
        assert_eq!(bare(ours), bare(&recorded), "{key}");
    }
    assert_eq!(world.objects.len(), after().objects.len(), "something else was made");
}

#[test]
fn upstreams_own_objects_are_left_as_they_are_but_for_the_note_of_the_selector() {
    let mut world = after();
    let writes = world.plan().writes;
    assert_eq!(writes.len(), 2, "{writes:#?}");
    for write in &writes {
        let Write::Update(object) = write else { panic!("{write:?}") };
        let mut stripped = object.clone();
        assert!(stripped.metadata.annotations.remove(annotation::POD_SELECTOR).is_some());
        assert_eq!(&stripped, &world.objects[&object.key()], "more than a note was written");
    }
    let before = world.plan().state;
    assert_eq!(world.settle(), before, "the state is the same before and after");
    assert_eq!(before, expected());
}

#[test]
fn what_was_recorded_is_translated_as_upstreams_rules_say() {
    assert_eq!(before().settle(), expected());
}

/// `a-gw1-net.txt` of the same recording: the chains of both directions.
fn expected() -> GlobalnetState {
    let net = |text: &str| text.parse().unwrap();
    let state = after().plan().state;
    let egress: Vec<_> = state.egress.iter().map(|rule| (rule.kind, rule.name.as_str())).collect();
    assert_eq!(
        egress,
        [
            (EgressKind::Pods, "demo/demo-egress-pods"),
            (EgressKind::HeadlessPod, "demo/pod-web-0"),
            (EgressKind::Namespace, "demo/demo-egress"),
            (EgressKind::Cluster, "cluster-egress.submariner.io"),
        ]
    );
    assert_eq!(state.egress[0].addresses, [ip("242.1.255.253")]);
    assert_eq!(state.egress[0].members, [net("10.1.3.10/32")]);
    assert_eq!(state.egress[1].addresses, [ip("242.1.255.252")]);
    assert_eq!(state.egress[2].addresses, [ip("242.1.0.9"), ip("242.1.0.10")]);
    assert_eq!(state.egress[2].members, [net("10.1.3.10/32"), net("10.1.3.11/32")]);
    assert_eq!(state.egress[3].addresses.len(), 8);
    assert_eq!(state.egress[3].members, [net("10.1.0.0/16"), net("100.1.0.0/16")]);
    let ingress: Vec<_> = state.ingress.iter().map(|pair| (pair.kind, pair.global, pair.inside)).collect();
    assert_eq!(
        ingress,
        [
            (IngressKind::Service, ip("242.1.255.251"), ip("100.1.33.254")),
            (IngressKind::HeadlessPod, ip("242.1.255.252"), ip("10.1.3.10")),
        ]
    );
    assert_eq!(state.gateway("a-gw1"), Some(ip("242.1.255.254")));
    let pool = state.pool.unwrap();
    assert_eq!((pool.size, pool.allocated, pool.available()), (65_534, 14, 65_520));
    assert_eq!((pool.cluster_egress, pool.egress, pool.ingress, pool.gateways), (8, 3, 2, 1));
    assert_eq!(state.problems, []);
    state
}

#[test]
fn a_successor_on_another_gateway_moves_no_address_and_has_one_of_its_own() {
    let mut world = before();
    let first = world.settle();
    world.gateway = Some("a-gw2");
    world.put(object(
        "submariner.io/v1",
        "Gateway",
        super::world::NS,
        "a-gw2",
        serde_json::json!({"status": {}}),
    ));
    let mut second = world.settle();
    assert_eq!(second.gateway("a-gw2"), Some(ip("242.1.255.250")));
    assert_eq!(second.gateway("a-gw1"), Some(ip("242.1.255.254")), "what the other one has stays reserved");
    second.gateways.retain(|(name, _)| name == "a-gw1");
    second.pool = first.pool;
    assert_eq!(second, first);
    let gateway = world.get(Kind::Gateway, super::world::NS, "a-gw1");
    assert_eq!(addresses(gateway), Vec::<String>::new());
}

//! ServiceExports, GlobalIngressIPs, internal Services and copies of Endpoints.

use serde_json::json;
use trieste_control::api::{Kind, ObjectKey, annotation, finalizer, internal_service_name, label};
use trieste_control::globalnet::{EgressKind, IngressKind};
use trieste_control::runner::Write;

use super::world::{World, addresses, condition, endpoints, export, ip, object, pod, says, service};

fn world() -> World {
    World::new("242.1.0.0/16")
}

#[test]
fn an_exported_service_has_an_address_and_an_internal_service_until_it_is_unexported() {
    let mut world = world();
    world.put(service("demo", "web", "100.1.0.7", "web"));
    let export = world.put(export("demo", "web"));
    let state = world.settle();
    let ingress = world.get(Kind::GlobalIngressIp, "demo", "web");
    says(ingress, "True", "Success", "Allocated global IP");
    assert_eq!(addresses(ingress), ["242.1.255.253"]);
    assert_eq!((state.ingress[0].kind, state.ingress[0].inside), (IngressKind::Service, ip("100.1.0.7")));
    let internal = world.get(Kind::Service, "demo", &internal_service_name("web"));
    assert_eq!(internal.body["spec"]["externalIPs"], json!(["242.1.255.253"]));
    assert!(internal.metadata.has_finalizer(finalizer::INTERNAL_SERVICE));
    assert_eq!(internal.metadata.labels[label::EXPORTED_SERVICE_REF], "web");

    world.delete(&export);
    let state = world.settle();
    assert_eq!(world.names(Kind::GlobalIngressIp), Vec::<String>::new());
    assert_eq!(world.names(Kind::Service), ["demo/web"]);
    assert!(state.ingress.is_empty());
}

#[test]
fn an_address_stays_out_of_the_pool_while_an_internal_service_still_answers_under_it() {
    let mut world = world();
    world.put(service("demo", "web", "100.1.0.7", "web"));
    let export_key = world.put(export("demo", "web"));
    world.settle();
    world.delete(&export_key);
    world.objects.remove(&ObjectKey::new(Kind::GlobalIngressIp, "demo", "web"));
    world.put(service("demo", "late", "100.1.0.8", "late"));
    world.put(export("demo", "late"));
    for _ in 0..2 {
        let late = ObjectKey::new(Kind::GlobalIngressIp, "demo", "late");
        for write in world.plan().writes.into_iter().filter(|write| write.key() == late) {
            world.write(write);
        }
    }
    assert_eq!(addresses(world.get(Kind::GlobalIngressIp, "demo", "late")), ["242.1.255.252"]);
    world.settle();
}

#[test]
fn a_change_of_the_service_reaches_its_internal_one_and_what_others_did_to_that_is_undone() {
    let mut world = world();
    let key = world.put(service("demo", "web", "100.1.0.7", "web"));
    world.put(export("demo", "web"));
    world.settle();
    let internal = ObjectKey::new(Kind::Service, "demo", internal_service_name("web"));
    world.edit(&key, |object| object.body["spec"]["ports"][0]["port"] = json!(9090));
    world.edit(&internal, |object| {
        object.body["spec"]["externalIPs"] = json!(["1.2.3.4"]);
        object.body["spec"]["sessionAffinity"] = json!("None");
    });
    world.settle();
    let spec = &world.objects[&internal].body["spec"];
    assert_eq!((&spec["ports"][0]["port"], &spec["externalIPs"]), (&json!(9090), &json!(["242.1.255.253"])));
    assert_eq!(spec["sessionAffinity"], "None", "what is not ours to say stays");

    world.delete(&internal);
    assert!(world.objects.contains_key(&internal), "its finalizer keeps it");
    world.settle();
    assert!(!world.objects[&internal].metadata.is_terminating(), "it was let go and made again");
    assert_eq!(world.objects[&internal].body["spec"]["externalIPs"], json!(["242.1.255.253"]));
}

#[test]
fn an_internal_service_that_nobody_needs_is_freed_of_its_finalizer() {
    let mut world = world();
    let mut stale = service("demo", &internal_service_name("gone"), "100.1.0.9", "x");
    stale["metadata"]["labels"] = json!({"submariner.io/exportedServiceRef": "gone"});
    stale["metadata"]["finalizers"] = json!(["submariner.io/globalnet-internal-service"]);
    stale["metadata"]["deletionTimestamp"] = json!("2026-11-21T06:16:50Z");
    world.put(stale);
    world.settle();
    assert_eq!(world.names(Kind::Service), Vec::<String>::new());
}

#[test]
fn a_service_without_selector_has_its_endpoints_copied() {
    let mut world = world();
    world.put(service("demo", "out", "100.1.0.7", ""));
    let original = world.put(endpoints("demo", "out", &["10.1.9.1"]));
    let export = world.put(export("demo", "out"));
    world.settle();
    let copy = ObjectKey::new(Kind::CoreEndpoints, "demo", internal_service_name("out"));
    assert_eq!(world.objects[&copy].body["subsets"], world.objects[&original].body["subsets"]);
    assert_eq!(world.objects[&copy].metadata.labels[label::CLONED_FROM], "out");
    world.edit(&original, |object| object.body["subsets"][0]["addresses"] = json!([{"ip": "10.1.9.2"}]));
    world.settle();
    assert_eq!(world.objects[&copy].body["subsets"][0]["addresses"][0]["ip"], "10.1.9.2");
    world.delete(&export);
    world.settle();
    assert_eq!(world.names(Kind::CoreEndpoints), ["demo/out"], "the copy went with its internal service");
    assert_eq!(world.names(Kind::Service), ["demo/out"]);
}

#[test]
fn the_pods_of_a_headless_service_have_an_address_each_for_both_directions() {
    let mut world = world();
    world.put(service("demo", "db", "None", "db"));
    world.put(export("demo", "db"));
    world.put(pod("demo", "db-0", "db", "10.1.0.1"));
    let second = world.put(pod("demo", "db-1", "db", "10.1.0.2"));
    world.put(pod("demo", "other", "x", "10.1.0.3"));
    let mut pending = pod("demo", "db-2", "db", "10.1.0.4");
    pending["status"]["phase"] = json!("Pending");
    let pending = world.put(pending);
    let state = world.settle();
    assert_eq!(world.names(Kind::GlobalIngressIp), ["demo/pod-db-0", "demo/pod-db-1"]);
    let pairs: Vec<_> = state.ingress.iter().map(|pair| (pair.kind, pair.inside)).collect();
    assert_eq!(
        pairs,
        [(IngressKind::HeadlessPod, ip("10.1.0.2")), (IngressKind::HeadlessPod, ip("10.1.0.1"))]
    );
    let rules = state.egress.iter().filter(|rule| rule.kind == EgressKind::HeadlessPod);
    assert!(rules.clone().all(|rule| rule.members.len() == 1 && rule.addresses.len() == 1));
    assert_eq!(rules.count(), 2);
    assert_eq!(world.names(Kind::Service), ["demo/db"], "headless services have no internal one");

    world.delete(&second);
    world.edit(&pending, |object| object.body["status"]["phase"] = json!("Running"));
    world.settle();
    assert_eq!(world.names(Kind::GlobalIngressIp), ["demo/pod-db-0", "demo/pod-db-2"]);
}

#[test]
fn a_pod_that_comes_back_with_another_address_keeps_its_global_ip() {
    let mut world = world();
    world.put(service("demo", "db", "None", "db"));
    world.put(export("demo", "db"));
    let key = world.put(pod("demo", "db-0", "db", "10.1.0.1"));
    world.settle();
    let before = addresses(world.get(Kind::GlobalIngressIp, "demo", "pod-db-0"));
    world.edit(&key, |object| object.body["status"]["podIP"] = json!("10.1.0.99"));
    let state = world.settle();
    let ingress = world.get(Kind::GlobalIngressIp, "demo", "pod-db-0");
    assert_eq!(addresses(ingress), before);
    assert_eq!(ingress.metadata.annotations[annotation::HEADLESS_POD_IP], "10.1.0.99");
    assert_eq!(state.ingress[0].inside, ip("10.1.0.99"));
}

#[test]
fn pods_that_are_not_ready_have_an_address_where_the_service_publishes_them_and_ended_ones_never() {
    let mut world = world();
    let mut db = service("demo", "db", "None", "db");
    db["spec"]["publishNotReadyAddresses"] = json!(true);
    world.put(db);
    world.put(export("demo", "db"));
    for (name, phase) in [("p", "Pending"), ("f", "Failed"), ("s", "Succeeded")] {
        let mut pod = pod("demo", name, "db", "10.1.0.1");
        pod["status"]["phase"] = json!(phase);
        world.put(pod);
    }
    world.settle();
    assert_eq!(world.names(Kind::GlobalIngressIp), ["demo/pod-p"]);
}

#[test]
fn the_endpoints_of_a_headless_service_without_selector_have_an_address_each() {
    let mut world = world();
    world.put(service("demo", "out", "None", ""));
    world.put(export("demo", "out"));
    let original = world.put(endpoints("demo", "out", &["10.1.9.1", "10.1.9.2", "fd00::1"]));
    let state = world.settle();
    assert_eq!(world.names(Kind::GlobalIngressIp), ["demo/ep-out-10.1.9.1", "demo/ep-out-10.1.9.2"]);
    let one = world.get(Kind::GlobalIngressIp, "demo", "ep-out-10.1.9.1");
    assert_eq!(one.metadata.annotations[annotation::HEADLESS_ENDPOINTS_IP], "10.1.9.1");
    assert_eq!(one.metadata.labels[label::SERVICE_REF], "out");
    assert_eq!(one.body["spec"]["target"], "HeadlessServiceEndpoints");
    assert!(state.egress.iter().any(|rule| rule.kind == EgressKind::HeadlessEndpoints));
    assert!(state.problems.iter().any(|problem| problem.name == "Ipv6NotExported"), "{:?}", state.problems);
    world.delete(&original);
    world.settle();
    assert_eq!(world.names(Kind::GlobalIngressIp), Vec::<String>::new());
}

#[test]
fn same_names_in_two_namespaces_never_meet() {
    let mut world = world();
    for (namespace, third) in [("one", 1), ("two", 2)] {
        world.put(service(namespace, "db", "None", "db"));
        world.put(service(namespace, "web", &format!("100.1.{third}.7"), "web"));
        world.put(pod(namespace, "db-0", "db", &format!("10.1.{third}.1")));
        world.put(super::world::egress(namespace, "e", 1, ""));
        world.put(export(namespace, "db"));
        world.put(export(namespace, "web"));
    }
    let both = world.settle();
    assert_eq!((both.ingress.len(), both.egress.len()), (4, 5));
    let mut all: Vec<_> = both.ingress.iter().map(|pair| pair.global).collect();
    all.dedup();
    assert_eq!(all.len(), 4);
    // upstream #4104: what one namespace unexports is the other's no more.
    world.delete(&ObjectKey::new(Kind::ServiceExport, "one", "db"));
    world.delete(&ObjectKey::new(Kind::ServiceExport, "one", "web"));
    let one = world.settle();
    assert_eq!(world.names(Kind::GlobalIngressIp), ["two/pod-db-0", "two/web"]);
    let theirs = |pair: &&trieste_control::globalnet::IngressPair| pair.name.starts_with("two/");
    assert!(one.ingress.iter().eq(both.ingress.iter().filter(theirs)));
}

#[test]
fn a_service_that_cannot_be_exported_is_told_of() {
    let mut world = world();
    let mut node_port = service("demo", "np", "100.1.0.7", "np");
    node_port["spec"]["type"] = json!("NodePort");
    world.put(node_port);
    world.put(service("demo", "six", "fd00::7", "six"));
    for name in ["np", "six", "missing"] {
        world.put(export("demo", name));
    }
    let state = world.settle();
    let problem = state.problems.iter().find(|problem| problem.name == "ServiceNotExported").unwrap();
    assert!(problem.subject.ends_with("demo/np") && problem.message.contains("NodePort"), "{problem:?}");
    assert_eq!(world.names(Kind::GlobalIngressIp), ["demo/six"]);
    let (status, reason, message) =
        condition(world.get(Kind::GlobalIngressIp, "demo", "six"), "Allocated").unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("False", "InvalidInput"));
    assert!(message.contains("no IPv4 cluster IP"), "{message}");
}

#[test]
fn two_headless_services_of_one_pod_share_its_object_without_a_quarrel() {
    let mut world = world();
    for name in ["b", "a"] {
        world.put(service("demo", name, "None", "db"));
        world.put(export("demo", name));
    }
    world.put(pod("demo", "db-0", "db", "10.1.0.1"));
    world.settle();
    let owner = |world: &World| {
        let ingress = world.get(Kind::GlobalIngressIp, "demo", "pod-db-0");
        ingress.metadata.labels[label::SERVICE_REF].clone()
    };
    assert_eq!(owner(&world), "a");
    let before = addresses(world.get(Kind::GlobalIngressIp, "demo", "pod-db-0"));
    world.delete(&ObjectKey::new(Kind::ServiceExport, "demo", "a"));
    world.settle();
    assert_eq!(owner(&world), "b");
    world.put(export("demo", "a"));
    world.settle();
    assert_eq!(owner(&world), "b", "who has it keeps it");
    assert_eq!(addresses(world.get(Kind::GlobalIngressIp, "demo", "pod-db-0")), before);
}

#[test]
fn without_a_definition_of_exports_nothing_is_made_and_nothing_removed() {
    let mut world = world();
    world.put(service("demo", "web", "100.1.0.7", "web"));
    world.put(export("demo", "web"));
    let before = world.settle();
    world.unserved.insert(Kind::ServiceExport);
    let outcome = world.plan();
    assert_eq!(outcome.writes, []);
    assert_eq!(outcome.state.ingress, before.ingress);
    assert!(outcome.state.problems.iter().any(|problem| problem.name == "ServiceExportsUnknown"));
}

#[test]
fn somebodys_own_global_ingress_ip_has_an_address_and_stays() {
    let mut world = world();
    world.put(service("demo", "web", "100.1.0.7", "web"));
    let spec = json!({"target": "ClusterIPService", "serviceRef": {"name": "web"}});
    let own =
        world.put(object("submariner.io/v1", "GlobalIngressIP", "demo", "mine", json!({ "spec": spec })));
    let state = world.settle();
    assert_eq!(addresses(&world.objects[&own]).len(), 1);
    assert_eq!(state.ingress[0].inside, ip("100.1.0.7"));
}

#[test]
fn a_foreign_service_with_an_internal_name_is_not_touched() {
    let mut world = world();
    world.put(service("demo", "web", "100.1.0.7", "web"));
    world.put(export("demo", "web"));
    let foreign = world.put(service("demo", &internal_service_name("web"), "100.1.0.8", "x"));
    let before = world.objects[&foreign].clone();
    let state = world.settle();
    assert_eq!(world.objects[&foreign], before);
    assert!(state.problems.iter().any(|problem| problem.name == "InternalServiceNameTaken"));
    assert_eq!(state.ingress.len(), 1, "it is translated all the same");
}

#[test]
fn globalnets_own_services_cannot_be_exported() {
    let mut world = world();
    world.put(service("demo", "web", "100.1.0.7", "web"));
    world.put(export("demo", "web"));
    world.settle();
    world.put(export("demo", &internal_service_name("web")));
    world.settle();
    assert_eq!(world.names(Kind::GlobalIngressIp), ["demo/web"]);
}

#[test]
fn one_plan_writes_an_object_once_and_an_old_view_writes_nothing_that_a_newer_one_did_not() {
    let mut world = world();
    world.put(service("demo", "web", "100.1.0.7", "web"));
    world.put(export("demo", "web"));
    let first = world.plan();
    let mut keys: Vec<_> = first.writes.iter().map(Write::key).collect();
    let count = keys.len();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), count);
    assert_eq!(world.plan(), first, "the same view gives the same plan");
}

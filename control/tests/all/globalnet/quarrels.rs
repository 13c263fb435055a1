//! Addresses that two have, that are of another CIDR, and CIDRs that are somebody else's.

use serde_json::json;
use trieste_control::api::{Kind, ObjectKey, annotation};

use super::world::{GATEWAY, NS, World, addresses, cluster, condition, egress, export, says, service};

#[test]
fn of_two_who_hold_one_address_the_later_is_told_so_and_given_another() {
    let mut world = World::new("242.1.0.0/16");
    for (name, ip) in [("a", "100.1.0.1"), ("b", "100.1.0.2")] {
        world.put(service("demo", name, ip, name));
        world.put(export("demo", name));
    }
    world.settle();
    let key = |name: &str| ObjectKey::new(Kind::GlobalIngressIp, "demo", name);
    let first = addresses(&world.objects[&key("a")]);
    world.edit(&key("b"), |object| object.body["status"]["allocatedIP"] = json!(first[0]));
    let state = world.plan().state;
    assert_eq!(state.ingress.len(), 1, "until then only the first is translated");
    let write = world.plan().writes.into_iter().find(|write| write.key() == key("b")).unwrap();
    world.write(write);
    let words = format!(
        "Error reserving the allocated global IP(s) from the pool: requested IP {} already allocated",
        first[0]
    );
    says(&world.objects[&key("b")], "False", "ReserveAllocatedIPsFailed", &words);
    let state = world.settle();
    says(&world.objects[&key("b")], "True", "Success", "Allocated global IP");
    assert_eq!(addresses(&world.objects[&key("a")]), first);
    assert_eq!(state.ingress.len(), 2);
}

#[test]
fn after_a_change_of_the_cidr_all_have_addresses_of_the_new_one() {
    let mut world = World::new("242.1.0.0/16");
    world.put(service("demo", "web", "100.1.0.1", "web"));
    world.put(export("demo", "web"));
    world.put(egress("demo", "e", 2, ""));
    world.settle();
    world.put(cluster("cluster-a", "243.0.0.0/24", "10.1.0.0/16", "100.1.0.0/16"));
    let state = world.settle();
    assert_eq!(state.problems, []);
    let net: ipnet::Ipv4Net = "243.0.0.0/24".parse().unwrap();
    assert_eq!(state.global_cidr, Some(net));
    assert!(state.ingress.iter().all(|pair| net.contains(&pair.global)));
    assert!(state.egress.iter().flat_map(|rule| &rule.addresses).all(|address| net.contains(address)));
    assert!(net.contains(&state.gateway(GATEWAY).unwrap()));
}

#[test]
fn what_was_spoilt_by_hand_is_replaced() {
    let mut world = World::new("242.1.0.0/16");
    let key = world.put(egress("demo", "e", 1, ""));
    world.settle();
    for spoilt in [json!(["not an address"]), json!(["fd00::1"]), json!(["242.1.0.0"]), json!([7])] {
        world.edit(&key, |object| object.body["status"]["allocatedIPs"] = spoilt.clone());
        let state = world.settle();
        let is_read = spoilt != json!([7]);
        assert_eq!(is_read, addresses_are_good(&world, &key), "{spoilt}");
        assert_eq!(
            !is_read,
            state.problems.iter().any(|problem| problem.name == "ObjectInvalid"),
            "{spoilt}"
        );
        world.edit(&key, |object| object.body["status"]["allocatedIPs"] = json!([]));
        world.settle();
    }
    let gateway = ObjectKey::new(Kind::Gateway, NS, GATEWAY);
    world.edit(&gateway, |object| {
        object.metadata.annotations.insert(annotation::GLOBAL_IP.to_owned(), "x".to_owned());
    });
    assert_eq!(world.settle().gateway(GATEWAY), Some("242.1.255.254".parse().unwrap()));
}

fn addresses_are_good(world: &World, key: &ObjectKey) -> bool {
    let status = world.objects[key].body["status"]["allocatedIPs"].as_array().unwrap();
    status.len() == 1 && status[0].as_str().is_some_and(|text| text.starts_with("242.1.255"))
}

#[test]
fn a_cidr_that_is_the_clusters_own_network_gives_out_nothing_more_and_takes_nothing_back() {
    let mut world = World::new("242.1.0.0/16");
    let first = world.put(egress("demo", "first", 1, ""));
    world.settle();
    world.put(cluster("cluster-a", "242.1.0.0/16", "242.0.0.0/8", "100.1.0.0/16"));
    let late = world.put(egress("demo", "late", 1, ""));
    let state = world.settle();
    assert_eq!(addresses(&world.objects[&first]).len(), 1);
    let (_, reason, message) = condition(&world.objects[&late], "Allocated").unwrap();
    assert_eq!(reason, "IPPoolAllocationFailed");
    assert!(message.contains("the global CIDR 242.1.0.0/16 overlaps 242.0.0.0/8"), "{message}");
    assert_eq!(state.problems[0].name, "GlobalCidrOverlap");
}

#[test]
fn another_clusters_claim_on_our_cidr_is_told_of_and_stops_nothing() {
    let mut world = World::new("242.1.0.0/16");
    let mut other = cluster("cluster-b", "242.1.128.0/17", "10.1.0.0/16", "100.1.0.0/16");
    other["metadata"]["labels"] = json!({"submariner-io/clusterID": "cluster-b"});
    world.put(other);
    let key = world.put(egress("demo", "e", 1, ""));
    let state = world.settle();
    assert_eq!(addresses(&world.objects[&key]).len(), 1);
    let problem = &state.problems[0];
    assert_eq!(problem.name, "GlobalCidrOverlap");
    assert!(problem.message.contains("242.1.128.0/17 of cluster cluster-b"), "{problem:?}");
}

#[test]
fn an_ipv6_cidr_and_one_that_is_too_small_are_refused_in_every_condition() {
    for (cidr, words) in [
        ("fd00:1::/112", "Globalnet has IPv4 addresses only"),
        ("242.1.0.0/31", "invalid prefix for CIDR \"242.1.0.0/31\""),
    ] {
        let mut world = World::new(cidr);
        let key = world.put(egress("demo", "e", 1, ""));
        let state = world.settle();
        let (status, reason, message) = condition(&world.objects[&key], "Allocated").unwrap();
        assert_eq!((status.as_str(), reason.as_str()), ("False", "IPPoolAllocationFailed"));
        assert!(message.contains(words), "{message}");
        assert!(state.problems.iter().any(|problem| problem.name == "GlobalCidrUnusable"), "{state:?}");
        assert!(state.egress.is_empty() && state.pool.is_none());
    }
}

#[test]
fn without_a_global_cidr_nothing_is_followed_made_or_translated() {
    let mut world = World::new("242.1.0.0/16");
    let mut plain = cluster("cluster-a", "", "10.1.0.0/16", "100.1.0.0/16");
    plain["spec"]["global_cidr"] = json!([]);
    world.put(plain);
    world.put(egress("demo", "e", 1, ""));
    let outcome = world.plan();
    assert_eq!(outcome.writes, []);
    assert_eq!((outcome.needs.len(), outcome.state.global_cidr), (1, None));
}

#[test]
fn a_gateway_without_an_address_to_be_pinged_at_needs_no_global_one() {
    let mut world = World::new("242.1.0.0/16");
    world.gateway = None;
    assert_eq!(world.settle().gateways, []);
}

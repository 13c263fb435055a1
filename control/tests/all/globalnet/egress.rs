//! ClusterGlobalEgressIP and GlobalEgressIP.

use serde_json::json;
use trieste_control::api::{ClusterGlobalEgressIp, Kind};
use trieste_control::globalnet::EgressKind;

use super::world::{World, addresses, condition, egress, ip, object, pod, says};

const CLUSTER: &str = ClusterGlobalEgressIp::NAME;

#[test]
fn the_clusters_own_is_made_with_eight_addresses_and_no_other_instance_counts() {
    let mut world = World::new("242.1.0.0/16");
    let other = world.put(object(
        "submariner.io/v1",
        "ClusterGlobalEgressIP",
        "",
        "other",
        json!({"spec": {"numGlobalIPs": 2}}),
    ));
    let state = world.settle();
    let own = world.get(Kind::ClusterGlobalEgressIp, "", CLUSTER);
    assert_eq!(own.body["spec"]["numGlobalIPs"], 8);
    assert_eq!(addresses(own).len(), 8);
    let message = "Only the ClusterGlobalEgressIP instance with the well-known name \"cluster-egress.submariner.io\" is \
                   supported";
    says(&world.objects[&other], "False", "InvalidInstance", message);
    assert_eq!(state.egress.len(), 1);
}

#[test]
fn an_object_that_does_not_say_how_many_gets_one() {
    let mut world = World::new("242.1.0.0/16");
    world.put(object("submariner.io/v1", "ClusterGlobalEgressIP", "", CLUSTER, json!({"spec": {}})));
    let key = world.put(object("submariner.io/v1", "GlobalEgressIP", "demo", "one", json!({"spec": {}})));
    world.settle();
    assert_eq!(addresses(world.get(Kind::ClusterGlobalEgressIp, "", CLUSTER)), ["242.1.255.254"]);
    says(&world.objects[&key], "True", "Success", "Allocated 1 global IP(s)");
}

#[test]
fn none_and_fewer_and_too_many_are_answered_in_upstreams_words() {
    let mut world = World::new("242.1.0.0/16");
    let keys = [0, -1, 21].map(|number| world.put(egress("demo", &format!("n{}", number + 1), number, "")));
    let state = world.settle();
    says(&world.objects[&keys[0]], "False", "ZeroInput", "The specified NumberOfIPs is 0");
    says(&world.objects[&keys[1]], "False", "InvalidInput", "The NumberOfIPs cannot be negative");
    assert_eq!(condition(&world.objects[&keys[2]], "Allocated").unwrap().1, "InvalidInput");
    assert_eq!(state.egress.len(), 1, "only the cluster's");
}

#[test]
fn another_number_is_other_addresses_and_the_old_ones_are_free_after_that() {
    let mut world = World::new("242.1.0.0/16");
    let key = world.put(egress("demo", "e", 2, ""));
    let other = world.put(egress("demo", "f", 2, ""));
    world.settle();
    assert_eq!(addresses(&world.objects[&key]), ["242.1.0.9", "242.1.0.10"]);
    world.edit(&key, |object| object.body["spec"]["numberOfIPs"] = json!(4));
    world.settle();
    assert_eq!(addresses(&world.objects[&key]), ["242.1.0.13", "242.1.0.14", "242.1.0.15", "242.1.0.16"]);
    says(&world.objects[&key], "True", "Success", "Allocated 4 global IP(s)");
    assert_eq!(addresses(&world.objects[&other]), ["242.1.0.11", "242.1.0.12"], "others keep theirs");
    let late = world.put(egress("demo", "late", 2, ""));
    world.settle();
    assert_eq!(addresses(&world.objects[&late]), ["242.1.0.9", "242.1.0.10"]);
    world.edit(&key, |object| object.body["spec"]["numberOfIPs"] = json!(0));
    world.settle();
    assert!(addresses(&world.objects[&key]).is_empty());
}

#[test]
fn what_one_gives_back_is_not_given_to_another_before_the_store_says_so() {
    let mut world = World::new("242.1.0.0/28");
    let key = world.put(egress("demo", "e", 4, ""));
    world.settle();
    assert_eq!(addresses(&world.objects[&key]).len(), 4);
    world.edit(&key, |object| object.body["spec"]["numberOfIPs"] = json!(1));
    world.now = world.now.checked_add(jiff::SignedDuration::from_secs(1)).unwrap();
    let late = world.put(egress("demo", "late", 4, ""));
    // Its selector is noted, and the other's status planned but not written.
    let note = world.plan().writes.into_iter().find(|write| write.key() == late).unwrap();
    world.write(note);
    let given = world.plan().writes.into_iter().find(|write| write.key() == late).unwrap();
    world.write(given);
    assert_eq!(condition(&world.objects[&late], "Allocated").unwrap().1, "IPPoolAllocationFailed");
    world.settle();
    assert_eq!(addresses(&world.objects[&late]).len(), 4);
    assert_eq!(addresses(&world.objects[&key]).len(), 1);
}

#[test]
fn a_changed_selector_is_refused_and_the_first_one_stays_also_after_a_restart() {
    let mut world = World::new("242.1.0.0/16");
    world.put(pod("demo", "a", "a", "10.1.0.1"));
    world.put(pod("demo", "b", "b", "10.1.0.2"));
    let key = world.put(egress("demo", "e", 1, "a"));
    let before = world.settle();
    let rule = before.egress.iter().find(|rule| rule.kind == EgressKind::Pods).unwrap();
    assert_eq!(rule.members, ["10.1.0.1/32".parse().unwrap()]);
    for changed in [json!({"matchLabels": {"app": "b"}}), json!(null)] {
        world.edit(&key, |object| object.body["spec"]["podSelector"] = changed);
        assert_eq!(world.settle(), before);
        let expected =
            ("False", "PodSelectorUpdateNotSupported", "The PodSelector cannot be updated after creation");
        let (status, reason, message) = condition(&world.objects[&key], "Updated").unwrap();
        assert_eq!((status.as_str(), reason.as_str(), message.as_str()), expected);
    }
    world.edit(&key, |object| object.body["spec"]["podSelector"] = json!({"matchLabels": {"app": "a"}}));
    assert_eq!(world.settle(), before);
    assert_eq!(condition(&world.objects[&key], "Updated"), None);
}

#[test]
fn a_rules_members_are_the_live_pods_that_have_an_address_of_their_own() {
    let mut world = World::new("242.1.0.0/16");
    world.put(egress("demo", "e", 1, ""));
    world.put(pod("demo", "live", "x", "10.1.0.1"));
    world.put(pod("other", "elsewhere", "x", "10.1.0.2"));
    world.put(pod("demo", "six", "x", "fd00::1"));
    let mut ended = pod("demo", "ended", "x", "10.1.0.3");
    ended["status"]["phase"] = json!("Succeeded");
    world.put(ended);
    let mut on_host = pod("demo", "on-host", "x", "172.31.1.21");
    on_host["spec"] = json!({"hostNetwork": true});
    world.put(on_host);
    let state = world.settle();
    assert_eq!(state.egress[0].kind, EgressKind::Namespace);
    assert_eq!(state.egress[0].members, ["10.1.0.1/32".parse().unwrap()]);
}

#[test]
fn a_selector_that_cannot_be_selects_nobody_and_is_told_of() {
    let mut world = World::new("242.1.0.0/16");
    world.put(pod("demo", "a", "a", "10.1.0.1"));
    let mut odd = egress("demo", "e", 1, "");
    odd["spec"]["podSelector"] =
        json!({"matchExpressions": [{"key": "app", "operator": "Like", "values": ["a"]}]});
    world.put(odd);
    let state = world.settle();
    assert_eq!(state.problems[0].name, "PodSelectorInvalid");
    assert!(state.egress.iter().all(|rule| rule.kind == EgressKind::Cluster), "{:?}", state.egress);
}

#[test]
fn an_exhausted_pool_is_a_condition_and_waits_for_what_is_given_back() {
    let mut world = World::new("242.1.0.0/28");
    let big = world.put(egress("demo", "big", 4, ""));
    let waits = world.put(egress("demo", "waits", 2, ""));
    world.settle();
    let words = "Error allocating 2 global IP(s) from the pool: insufficient IPs available for allocation";
    says(&world.objects[&waits], "False", "IPPoolAllocationFailed", words);
    world.delete(&big);
    let state = world.settle();
    says(&world.objects[&waits], "True", "Success", "Allocated 2 global IP(s)");
    assert_eq!(state.egress[0].addresses, [ip("242.1.0.9"), ip("242.1.0.10")]);
}

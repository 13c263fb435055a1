//! Tables of objects, and what is found.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use trieste_control::api::EndpointSpec;

use super::*;

const RECORD: &str = r#"{"2026-11-28T10:00:00Z":["10.2.0.0/16","fd00:2::/48"],"2026-11-28T11:00:00Z":["10.3.0.0/16","10.9.0.0/16"]}"#;

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn remote() -> Vec<IpNet> {
    nets(&["10.2.0.0/16", "10.3.0.0/16", "fd00:2::/48"])
}

fn object(namespace: &str, name: &str, annotations: &[(&str, &str)], rest: &Value) -> DynamicObject {
    let annotations: BTreeMap<_, _> = annotations.iter().copied().collect();
    let mut object = rest.clone();
    object["metadata"] = json!({"name": name, "namespace": namespace, "annotations": annotations});
    serde_json::from_value(object).unwrap()
}

fn coordinator(networks: &[&str], annotation: Option<&str>) -> Coordinator {
    let annotations: Vec<_> = annotation.into_iter().map(|text| (ANNOTATION, text)).collect();
    let rest = json!({"spec": {"mode": "auto", "hijackCIDR": networks}, "status": {"phase": "Synced"}});
    Coordinator::of(&object("", "default", &annotations, &rest)).unwrap()
}

fn config(name: &str, annotations: &[(&str, &str)], spec: &Value) -> Config {
    Config::of(&object("shop", name, annotations, &json!({"spec": spec}))).unwrap()
}

fn own(networks: &[&str]) -> Value {
    json!({"coordinator": {"mode": "auto", "hijackCIDR": networks}})
}

fn pool(name: &str, subnet: &str, is_disabled: bool) -> Pool {
    let rest = json!({"spec": {"subnet": subnet, "disable": is_disabled}});
    Pool::of(&object("", name, &[], &rest)).unwrap()
}

#[test]
fn plugin_spiderpool_networks_without_an_entry_are_named_with_what_to_do() {
    let all = ["10.2.0.0/16", "10.3.0.0/16", "fd00:2::/48"];
    let cases = [
        (&all[..], None, Worker::There, None),
        // Wider entries, halves, and an entry with host bits.
        (&["10.2.0.0/15", "fd00::/8"], None, Worker::There, None),
        (&["10.2.0.0/17", "10.2.128.0/17", "10.3.0.1/16", "fd00:2::/48"], None, Worker::There, None),
        (
            &["10.2.0.0/17", "10.3.0.0/16"],
            None,
            Worker::There,
            Some(("10.2.0.0/16, fd00:2::/48:", "logs why it does not: LOGS")),
        ),
        (&all[..2], Some(RECORD), Worker::Missing, Some(("fd00:2::/48:", "join again"))),
        (
            &all[..2],
            Some("unmanaged"),
            Worker::Missing,
            Some(("fd00:2::/48:", "by hand (trieste.io/hijack-cidrs)")),
        ),
        (&all[..2], None, Worker::Nobody, Some(("fd00:2::/48:", "add them to spec.hijackCIDR"))),
        (
            &[],
            None,
            Worker::There,
            Some(("10.2.0.0/16, 10.3.0.0/16, fd00:2::/48:", "logs why it does not: LOGS")),
        ),
        (&["no network"], Some("{"), Worker::There, Some(("fd00:2::/48:", "logs why it does not: LOGS"))),
    ];
    for (networks, annotation, worker, expected) in cases {
        let coordinator = coordinator(networks, annotation);
        let found = missing(&[&coordinator.list], &remote(), worker, "LOGS");
        assert_eq!(found.len(), usize::from(expected.is_some()), "{networks:?}: {found:?}");
        if let Some((names, mend)) = expected {
            let text = &found[0].1;
            assert!(found[0].0 == Outcome::Failure && text.starts_with("SpiderCoordinator default has no"));
            assert!(text.contains(names) && text.contains(mend), "{networks:?}: {text}");
        }
    }
}

#[test]
fn plugin_spiderpool_lists_that_pods_routes_are_made_from_count_alone() {
    let cases = [
        (own(&["10.2.0.0/16"]), Some("SpiderMultusConfig shop/mac")),
        (own(&[]), None),
        (json!({"coordinator": {"mode": "underlay"}}), None),
        (json!({}), None),
        (json!({"enableCoordinator": false, "coordinator": {"hijackCIDR": ["10.2.0.0/16"]}}), None),
        (json!({"coordinator": {"mode": "disabled", "hijackCIDR": ["10.2.0.0/16"]}}), None),
        (
            json!({"enableCoordinator": true, "coordinator": {"hijackCIDR": ["x"]}}),
            Some("SpiderMultusConfig shop/mac"),
        ),
        (json!({"enableCoordinator": "x", "coordinator": {"mode": 7, "hijackCIDR": [7]}}), None),
        (json!("x"), None),
    ];
    for (spec, expected) in cases {
        let config = config("mac", &[], &spec);
        assert_eq!(config.used().map(|list| list.object.as_str()), expected, "{spec}");
    }
}

#[test]
fn plugin_spiderpool_a_coordinator_that_is_not_synced_and_a_record_that_cannot_be_read_are_named() {
    let of = |status: &Value| {
        vec![Coordinator::of(&object("", "default", &[], &json!({"status": status}))).unwrap()]
    };
    assert!(not_synced(&of(&json!({"phase": "Synced"}))).is_empty());
    let found =
        not_synced(&of(&json!({"phase": "NotReady", "reason": format!("\u{1b}[2J{}", "x".repeat(999))})));
    assert!(
        found[0].0 == Outcome::Warning && found[0].1.contains(r#"(phase "NotReady", \u{1b}[2Jxx"#),
        "{found:?}"
    );
    assert!(found[0].1.len() < 400 && found[0].1.contains('…'), "{found:?}");
    assert!(not_synced(&of(&json!({})))[0].1.contains("phase \"\", it has no reason"));

    let long = format!("[\"{}\"]", "x".repeat(9_999));
    for text in ["", "[]", r#"{"now":[]}"#, r#"{"2026-11-28T10:00:00Z":["10.2.0.0"]}"#, "off", &long] {
        let coordinator = coordinator(&[], Some(text));
        let found = unreadable(&[&coordinator.list]);
        assert!(found[0].0 == Outcome::Warning && found[0].1.len() < 700, "{text}: {found:?}");
        assert!(found[0].1.contains("trieste.io/hijack-cidrs of SpiderCoordinator default"), "{found:?}");
    }
    for text in [None, Some(RECORD), Some(" unmanaged\n"), Some("{}")] {
        assert!(unreadable(&[&coordinator(&[], text).list]).is_empty(), "{text:?}");
    }
}

#[test]
fn plugin_spiderpool_pools_that_are_not_announced_are_named() {
    let announced_v4 = nets(&["10.1.0.0/16", "100.1.0.0/16", "172.20.0.0/17", "172.20.128.0/17"]);
    let both = [announced_v4.clone(), nets(&["fd00:1::/48"])].concat();
    let cases = [
        (pool("p", "172.20.1.0/24", false), &announced_v4, None),
        (pool("p", "172.20.0.0/16", false), &announced_v4, None),
        (pool("p", "172.21.1.7/24", false), &announced_v4, Some("172.21.1.0/24 (SpiderIPPool p):")),
        (pool("p", "172.20.0.0/15", false), &announced_v4, Some("172.20.0.0/15 (SpiderIPPool p):")),
        (pool("p", "172.21.1.0/24", true), &announced_v4, None),
        // A family that the cluster does not take part with.
        (pool("p", "fd00:20::/64", false), &announced_v4, None),
        (pool("p", "fd00:20::/64", false), &both, Some("fd00:20::/64 (SpiderIPPool p):")),
        (pool("p", "fd00:1:0:1::/64", false), &both, None),
        (pool("p", "172.21.1.0/24", false), &Vec::new(), None),
    ];
    for (pool, announced, expected) in cases {
        let found = unannounced(std::slice::from_ref(&pool), announced);
        assert_eq!(found.is_some(), expected.is_some(), "{pool:?}: {found:?}");
        if let (Some((outcome, text)), Some(expected)) = (found, expected) {
            assert!(outcome == Outcome::Warning && text.contains(expected), "{text}");
            assert!(text.contains("--extra-cidrs"), "{text}");
        }
    }
    assert!(Pool::of(&object("", "p", &[], &json!({"spec": {"subnet": "x"}}))).is_none());
}

#[test]
fn plugin_spiderpool_what_the_cluster_announces_is_its_endpoints_and_its_cluster_objects() {
    let endpoint = EndpointSpec {
        cluster_id: "a".to_owned(),
        subnets: vec!["10.1.0.0/16".to_owned(), "x".to_owned()],
        ..EndpointSpec::default()
    };
    let cluster = Cluster {
        id: "a".to_owned(),
        endpoints: vec![endpoint],
        networks: nets(&["172.20.0.0/16"]),
        ..Cluster::default()
    };
    assert_eq!(announced(&cluster), nets(&["10.1.0.0/16", "172.20.0.0/16"]));
    assert!(announced(&Cluster { is_global: true, ..cluster }).is_empty());
}

#[test]
fn plugin_spiderpool_remote_networks_that_overlap_pools_are_named_and_not_missed() {
    let remote = nets(&["10.2.0.0/16", "10.2.7.0/24", "10.3.0.0/16", "fd00:2::/48"]);
    let cases = [
        (
            pool("p", "172.20.0.0/16", false),
            None,
            &["10.2.0.0/16", "10.2.7.0/24", "10.3.0.0/16", "fd00:2::/48"][..],
        ),
        // Inside of it; what is inside of the same network is not.
        (
            pool("p", "10.2.3.0/24", false),
            Some("10.2.0.0/16 (SpiderIPPool p: 10.2.3.0/24)"),
            &["10.2.7.0/24", "10.3.0.0/16", "fd00:2::/48"],
        ),
        // Pods may still have its addresses.
        (
            pool("p", "10.3.0.0/16", true),
            Some("10.3.0.0/16 (SpiderIPPool p: 10.3.0.0/16)"),
            &["10.2.0.0/16", "10.2.7.0/24", "fd00:2::/48"],
        ),
        (
            pool("p", "fd00::/16", false),
            Some("fd00:2::/48 (SpiderIPPool p: fd00::/16)"),
            &["10.2.0.0/16", "10.2.7.0/24", "10.3.0.0/16"],
        ),
    ];
    for (pool, expected, wanted) in cases {
        let clashes = Clashes::new(std::slice::from_ref(&pool), &remote);
        assert_eq!(clashes.without(&remote), nets(wanted), "{pool:?}");
        let found = clashes.remark();
        assert_eq!(found.is_some(), expected.is_some(), "{pool:?}: {found:?}");
        if let (Some((outcome, text)), Some(expected)) = (found, expected) {
            assert!(outcome == Outcome::Failure && text.contains(expected), "{text}");
        }
    }
}

/// A pod, and its SpiderEndpoint.
struct Case {
    pod: Value,
    endpoint: Value,
}

/// A pod whose network was made at a time of 2026-11-28, with devices in networks.
fn pod(time: &str, attached: &[&str]) -> Case {
    let status: Vec<_> = attached.iter().map(|name| json!({"name": name, "interface": "net1"})).collect();
    Case {
        pod: json!({
            "metadata": {"namespace": "shop", "name": "web-0", "uid": "u",
                "annotations": {"k8s.v1.cni.cncf.io/network-status": json!(status).to_string()}},
            "spec": {"containers": []},
            "status": {"phase": "Running", "startTime": "2026-11-28T09:00:00Z", "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-28T09:00:00Z"},
                {"type": "PodReadyToStartContainers", "status": "True",
                    "lastTransitionTime": format!("2026-11-28T{time}Z")}]}}),
        endpoint: json!({"metadata": {"namespace": "shop", "name": "web-0"}, "status": {"current": {"uid": "u",
            "ips": [{"interface": "net1", "ipv4": "172.20.1.5/16", "ipv6": "fd00:20::5/64"}]}}}),
    }
}

/// Returns the case with a value of its pod (or of its SpiderEndpoint) changed.
fn with(mut case: Case, path: &str, value: Value) -> Case {
    let of_pod = case.pod.pointer_mut(path);
    *of_pod.or_else(|| case.endpoint.pointer_mut(path)).unwrap() = value;
    case
}

fn configs() -> [Config; 6] {
    let record = r#"{"2026-11-28T12:00:00Z":["10.2.0.0/16"]}"#;
    [
        config("mac", &[], &json!({"coordinator": {"mode": "underlay"}})),
        config("plain", &[], &json!({})),
        config("own", &[(ANNOTATION, record)], &own(&["10.2.0.0/16"])),
        config(
            "named",
            &[(ANNOTATION, record), ("multus.spidernet.io/cr-name", "other")],
            &own(&["10.2.0.0/16"]),
        ),
        config("hand", &[(ANNOTATION, "unmanaged")], &own(&["10.2.0.0/16"])),
        config("off", &[(ANNOTATION, record)], &json!({"enableCoordinator": false})),
    ]
}

/// Returns the remarks on one pod.
fn remarks_on(case: &Case, coordinators: &[Coordinator]) -> Vec<(Outcome, String)> {
    let configs = configs();
    let origins = Origins::new(coordinators, &configs, &remote());
    let mut endpoints = Endpoints::default();
    endpoints.add(&serde_json::from_value(case.endpoint.clone()).unwrap());
    let mut older = Older::default();
    older.add(&serde_json::from_value(case.pod.clone()).unwrap(), &endpoints, &origins);
    older.remarks(" --context a")
}

#[test]
fn plugin_spiderpool_pods_that_are_older_than_routes_are_named_with_the_networks() {
    let conditions = "/status/conditions";
    let before = || pod("09:30:00", &["shop/mac"]);
    let cases = [
        (before(), Some("09:30:00Z: 10.3.0.0/16, 10.2.0.0/16, fd00:2::/48)")),
        (pod("10:00:06", &["shop/mac"]), Some("10:00:06Z: 10.3.0.0/16)")),
        // Clocks differ by less than five seconds.
        (pod("10:00:04", &["shop/mac"]), Some("10:00:04Z: 10.3.0.0/16, 10.2.0.0/16, fd00:2::/48)")),
        (pod("11:00:04", &["shop/mac"]), Some("11:00:04Z: 10.3.0.0/16)")),
        (pod("11:00:05", &["shop/mac"]), None),
        // Lists: the own one of the device's, of the other name; none; the coordinator's where nothing else is known.
        (pod("11:30:00", &["k8s-pod-network", "shop/own"]), Some("11:30:00Z: 10.2.0.0/16)")),
        (pod("11:30:00", &["shop/mac", "shop/other"]), Some("11:30:00Z: 10.2.0.0/16)")),
        (pod("10:30:00", &["shop/named"]), Some("10:30:00Z: 10.3.0.0/16)")),
        (pod("10:30:00", &["store/own"]), Some("10:30:00Z: 10.3.0.0/16)")),
        (pod("09:30:00", &["shop/hand"]), None),
        (pod("09:30:00", &["shop/off"]), None),
        (pod("10:30:00", &["shop/off", "shop/plain"]), Some("10:30:00Z: 10.3.0.0/16)")),
        (pod("10:30:00", &[]), Some("10:30:00Z: 10.3.0.0/16)")),
        (with(before(), "/metadata/annotations", json!({})), Some("10.3.0.0/16")),
        // Times.
        (with(before(), conditions, json!([])), Some("since 2026-11-28T09:00:00Z: ")),
        (with(before(), conditions, json!([{"type": "PodReadyToStartContainers", "status": "False"}])), None),
        (
            with(before(), conditions, json!([{"type": "PodReadyToStartContainers", "status": "True"}])),
            Some("T09:00:00Z"),
        ),
        (with(with(before(), conditions, json!([])), "/status/startTime", Value::Null), None),
        // Families.
        (
            with(before(), "/status/current/ips", json!([{"ipv4": "172.20.1.5/16"}])),
            Some("09:30:00Z: 10.3.0.0/16, 10.2.0.0/16)"),
        ),
        (
            with(before(), "/status/current/ips", json!([{"ipv4": "", "ipv6": "fd00:20::5/64"}])),
            Some("09:30:00Z: fd00:2::/48)"),
        ),
        (with(before(), "/status/current/ips", json!("x")), Some("10.2.0.0/16, fd00:2::/48)")),
        // Pods that do not count.
        (with(before(), "/status/phase", json!("Pending")), Some("10.3.0.0/16")),
        (with(before(), "/status/phase", json!("Succeeded")), None),
        (with(before(), "/spec", json!({"containers": [], "hostNetwork": true})), None),
        (with(before(), "/status/current/uid", json!("earlier")), None),
        (with(before(), "/status/current/uid", json!(7)), None),
        (with(before(), "/metadata/uid", Value::Null), None),
        (with(before(), "/metadata/namespace", json!("store")), None),
    ];
    for (case, expected) in cases {
        let found = remarks_on(&case, &[coordinator(&[], Some(RECORD))]);
        assert_eq!(found.len(), usize::from(expected.is_some()), "{}: {found:?}", case.pod);
        if let Some(expected) = expected {
            let text = &found[0].1;
            let begin = "1 pods are older than routes to other clusters' networks and do not reach them: shop/web-0 (since 2026-11-28T";
            assert!(found[0].0 == Outcome::Warning && text.starts_with(begin), "{text}");
            assert!(text.contains(expected), "{expected}: {text}");
            assert!(text.contains("(kubectl --context a -n NAMESPACE rollout restart"), "{text}");
        }
    }
}

#[test]
fn plugin_spiderpool_pods_of_which_the_networks_cannot_be_read_are_named() {
    let status = "/metadata/annotations/k8s.v1.cni.cncf.io~1network-status";
    for text in ["", "{}", "[7]", r#"[{"name": 7}]"#] {
        let found =
            remarks_on(&with(pod("09:30:00", &[]), status, json!(text)), &[coordinator(&[], Some(RECORD))]);
        assert!(found[0].0 == Outcome::Warning && found[0].1.ends_with(": shop/web-0"), "{text}: {found:?}");
    }
}

#[test]
fn plugin_spiderpool_the_usual_coordinators_record_counts_unless_it_is_off() {
    let of = |name: &str, mode: &str, record: &str| {
        let rest = json!({"spec": {"mode": mode}, "status": {"phase": "Synced"}});
        Coordinator::of(&object("", name, &[(ANNOTATION, record)], &rest)).unwrap()
    };
    let (yes, no) = (|name: &str, mode: &str| of(name, mode, RECORD), |name: &str| of(name, "auto", "{}"));
    let before = |attached: &str| pod("09:30:00", &[attached]);
    for (coordinators, attached, expected) in [
        (vec![no("a"), yes("default", "auto")], "shop/plain", true),
        (vec![yes("a", "auto"), no("default")], "shop/plain", false),
        (vec![yes("a", "auto"), no("b")], "shop/plain", true),
        (vec![], "shop/plain", false),
        (vec![yes("default", "disabled")], "shop/plain", false),
        (vec![yes("default", "disabled")], "by/hand", false),
        (vec![yes("default", "disabled")], "shop/mac", true),
        (vec![of("default", "auto", "unmanaged")], "shop/mac", false),
        (vec![of("default", "auto", "{")], "shop/mac", false),
    ] {
        let found = remarks_on(&before(attached), &coordinators);
        assert_eq!(!found.is_empty(), expected, "{coordinators:?} {attached}: {found:?}");
    }
}

#[test]
fn plugin_spiderpool_pods_are_not_read_where_no_network_that_is_remote_was_added() {
    let configs = configs();
    let coordinators = [coordinator(&[], Some(RECORD))];
    for (configs, remote, expected) in [
        (&configs[..2], remote(), true),
        (&configs[..2], nets(&["10.4.0.0/16", "10.2.0.0/17"]), false),
        (&configs[..2], nets(&["fd00:2::/48"]), true),
        (&configs[..], Vec::new(), false),
    ] {
        assert_eq!(Origins::new(&coordinators, configs, &remote).has_additions(), expected, "{remote:?}");
    }
    assert!(!Origins::new(&[], &configs[..2], &remote()).has_additions());
    assert!(Origins::new(&[], &configs, &remote()).has_additions());
}

#[test]
fn plugin_spiderpool_ten_of_anything_are_named() {
    let coordinators = [coordinator(&[], Some(RECORD))];
    let origins = Origins::new(&coordinators, &[], &remote());
    let (mut endpoints, mut older) = (Endpoints::default(), Older::default());
    for index in 0..23 {
        let name = format!("web-{index}");
        let case = pod("10:30:00", &[]);
        let rename = |mut object: Value| {
            object["metadata"]["name"] = json!(name);
            object
        };
        endpoints.add(&serde_json::from_value(rename(case.endpoint)).unwrap());
        older.add(&serde_json::from_value(rename(case.pod)).unwrap(), &endpoints, &origins);
    }
    let text = &older.remarks("")[0].1;
    assert!(text.starts_with("23 pods are older") && text.contains("web-9 (since"), "{text}");
    assert!(text.contains("10.3.0.0/16) and 13 more; restart") && !text.contains("web-10"), "{text}");

    let many: Vec<IpNet> = (0..40).map(|index| format!("10.{index}.0.0/16").parse().unwrap()).collect();
    let lists: Vec<Config> = (0..15).map(|_| config("own", &[], &own(&["192.168.0.0/16"]))).collect();
    let lists: Vec<&List> = lists.iter().filter_map(Config::used).collect();
    let found = missing(&lists, &many, Worker::There, "LOGS");
    assert_eq!(found.len(), 11);
    assert!(found[0].1.contains("10.9.0.0/16 and 30 more: pods get no routes"), "{found:?}");
    assert_eq!(found[10], (Outcome::Failure, "and the same of 5 more objects".to_owned()));
}

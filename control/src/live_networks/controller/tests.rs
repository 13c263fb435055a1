//! The controller, event by event.

use serde_json::Value;

use super::*;
use crate::api::ObjectMeta;

struct Model(NetworksController);

impl Model {
    fn new(object: &Object) -> Self {
        let mut model = Self(NetworksController::default());
        model.see_map(object.clone());
        model
    }

    fn see_map(&mut self, object: Object) {
        self.0.handle_input(StoreEvent::Listed(vec![object]), Instant::now());
    }

    fn see(&mut self, source: Source, event: StoreEvent) {
        self.0.observe(&watch_of(source), event, Instant::now());
    }

    /// Does what is planned; returns whether anything was.
    fn settle(&mut self) -> bool {
        let context = Context { now: Instant::now(), wall: jiff::Timestamp::UNIX_EPOCH, leadership: None };
        let writes = self.0.reconcile(&(), &context).writes;
        for write in &writes {
            let event = StoreEvent::Applied(write.object().unwrap().clone());
            self.0.written(&(), write, Ok(&event), Instant::now());
        }
        assert!(self.0.reconcile(&(), &context).writes.is_empty(), "a second pass writes nothing");
        !writes.is_empty()
    }

    fn list(&self, key: &str) -> &str {
        self.0.object.as_ref().unwrap().body["data"][key].as_str().unwrap()
    }
}

/// Returns the ConfigMap as `join` leaves it.
fn map(pods: &str, services: &str, followed: &str) -> Object {
    let mut object = Object::new(Kind::ConfigMap, ObjectMeta::new("ns", ClusterNetworks::OBJECT));
    object
        .body
        .insert("data".to_owned(), json!({"pods": pods, "services": services, "extra": "172.20.1.0/24"}));
    let annotation =
        (!followed.is_empty()).then(|| (TrackedLists::ANNOTATION.to_owned(), followed.to_owned()));
    object.metadata.annotations.extend(annotation);
    object
}

fn object(source: Source, name: &str, spec: Value) -> Object {
    let mut object = Object::new(source.kind(), ObjectMeta::new("", name));
    object.body.insert("spec".to_owned(), spec);
    object
}

fn services(name: &str, cidrs: &[&str]) -> Object {
    object(Source::ServiceCidrs, name, json!({"cidrs": cidrs}))
}

#[test]
fn a_list_follows_objects_that_come_change_and_go_in_both_families() {
    let found = r#"{"services":["10.96.0.0/16"]}"#;
    let mut model = Model::new(&map("10.1.0.0/16", "10.96.0.0/16", found));
    assert!(!model.settle(), "nothing is taken away before everything was read");
    let default = services("kubernetes", &["10.96.0.0/16"]);
    model.see(Source::ServiceCidrs, StoreEvent::Listed(vec![default]));
    assert!(!model.settle());
    model
        .see(Source::ServiceCidrs, StoreEvent::Applied(services("more", &["10.98.0.0/16", "fd00:98::/112"])));
    assert!(model.settle());
    assert_eq!(model.list("services"), "10.96.0.0/16,10.98.0.0/16,fd00:98::/112");
    assert_eq!((model.list("pods"), model.list("extra")), ("10.1.0.0/16", "172.20.1.0/24"));
    // One that is a part of another one.
    model.see(Source::ServiceCidrs, StoreEvent::Applied(services("part", &["10.98.7.0/24"])));
    assert!(!model.settle());
    model.see(Source::ServiceCidrs, StoreEvent::Applied(services("more", &["10.99.0.0/16"])));
    assert!(model.settle());
    assert_eq!(model.list("services"), "10.96.0.0/16,10.98.7.0/24,10.99.0.0/16");
    model.see(Source::ServiceCidrs, StoreEvent::Deleted(services("more", &["10.99.0.0/16"])));
    assert!(model.settle());
    // A server that has none any more takes nothing away.
    model.see(Source::ServiceCidrs, StoreEvent::Listed(Vec::new()));
    assert!(!model.settle());
    assert_eq!(model.list("services"), "10.96.0.0/16,10.98.7.0/24");
}

#[test]
fn entries_of_somebody_stay_and_what_they_cover_is_not_added() {
    let found = r#"{"services":["10.96.0.0/16"]}"#;
    let mut model = Model::new(&map("10.1.0.0/16", "10.64.0.0/12\n10.96.0.0/16", found));
    let all = services("kubernetes", &["10.97.0.0/16", "10.65.0.0/16"]);
    model.see(Source::ServiceCidrs, StoreEvent::Listed(vec![all]));
    assert!(model.settle());
    assert_eq!(model.list("services"), "10.64.0.0/12,10.97.0.0/16");
    // Taken out by hand: it comes back. One that somebody cannot spell is the gateways' to say.
    model.see_map(map("10.1.0.0/16", "10.64.0.0/12", r#"{"services":["10.97.0.0/16"]}"#));
    assert!(model.settle());
    assert_eq!(model.list("services"), "10.64.0.0/12,10.97.0.0/16");
    model.see_map(map("10.1.0.0/16", "10.64.0.0/33", r#"{"services":["10.97.0.0/16"]}"#));
    assert!(!model.settle());
}

#[test]
fn a_network_that_overlaps_an_entry_of_any_list_is_left_out_and_named() {
    let mut model = Model::new(&map("10.9.7.0/24", "10.96.0.0/16", r#"{"services":["10.96.0.0/16"]}"#));
    let all = services("kubernetes", &["10.96.0.0/16", "172.20.1.0/25", "10.9.0.0/16", "10.98.0.0/16"]);
    model.see(Source::ServiceCidrs, StoreEvent::Listed(vec![all]));
    assert!(model.settle());
    assert_eq!(model.list("services"), "10.96.0.0/16,10.98.0.0/16");
    assert_eq!(model.0.left_out, ["10.9.0.0/16 of ServiceCIDR is not announced: it overlaps 10.9.7.0/24"]);
    // What is announced stays, whatever is added beside it: the gateways refuse the two together, and go on as before.
    let recorded = r#"{"services":["10.96.0.0/16"]}"#;
    for (pods, services_there) in
        [("10.96.4.0/24", "10.96.0.0/16"), ("10.1.0.0/16", "10.96.0.0/16,10.96.4.0/24")]
    {
        let mut model = Model::new(&map(pods, services_there, recorded));
        let wider = services("kubernetes", &["10.96.0.0/16", "10.64.0.0/10"]);
        model.see(Source::ServiceCidrs, StoreEvent::Listed(vec![wider]));
        assert!(!model.settle(), "{pods}");
        assert_eq!(model.list("services"), services_there);
        assert!(
            model.0.left_out[0].starts_with("10.64.0.0/10 of ServiceCIDR is not announced"),
            "{:?}",
            model.0.left_out
        );
    }
    // As many as gateways take, and no more.
    let many: Vec<String> =
        (0..300).map(|number| format!("10.100.{}.{}/32", number >> 8, number & 255)).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    model.see(Source::ServiceCidrs, StoreEvent::Listed(vec![services("many", &many)]));
    assert!(model.settle());
    let named = ClusterNetworks::read(model.0.object.as_ref().unwrap(), &[]).unwrap();
    assert_eq!(named.published().len(), MAX_CIDRS);
}

#[test]
fn a_map_that_is_none_and_one_that_comes_again_are_no_harm() {
    let found = r#"{"services":["10.96.0.0/16"]}"#;
    let mut broken = map("10.1.0.0/16", "10.96.0.0/16", found);
    broken.body.insert("data".to_owned(), json!("text"));
    let mut model = Model::new(&broken);
    model.see(Source::ServiceCidrs, StoreEvent::Listed(vec![services("kubernetes", &["10.97.0.0/16"])]));
    assert!(!model.settle());
    // Deleted and made again before anything was reconciled: the watch was never closed, and what it has said counts.
    model.0.handle_input(StoreEvent::Deleted(broken), Instant::now());
    model.see_map(map("10.1.0.0/16", "10.96.0.0/16", found));
    assert!(model.settle());
    assert_eq!(model.list("services"), "10.97.0.0/16");
}

#[test]
fn only_lists_that_join_has_found_are_followed_and_watched() {
    let kinds = |model: &Model| model.0.watches().into_iter().map(|watch| watch.kind).collect::<Vec<_>>();
    let model = Model::new(&map("10.1.0.0/16", "10.96.0.0/16", ""));
    assert_eq!(kinds(&model), []);
    let both = r#"{"pods":["10.1.0.0/16"],"services":["10.96.0.0/16"]}"#;
    let mut model = Model::new(&map("10.1.0.0/16", "10.96.0.0/16", both));
    assert_eq!(kinds(&model), [Kind::IpPool, Kind::ServiceCidr]);
    let pool = |name: &str, cidr: &str| {
        object(Source::CalicoPools, name, json!({"cidr": cidr, "natOutgoing": true}))
    };
    let mut remote = pool("submariner-b-10.2.0.0-16", "10.2.0.0/16");
    remote.metadata.labels.insert("submariner.io/ippool".to_owned(), "true".to_owned());
    let pools = vec![pool("first", "10.1.0.0/16"), pool("second", "10.9.0.0/16"), remote];
    model.see(Source::CalicoPools, StoreEvent::Listed(pools));
    let forbidden =
        StoreError::Forbidden { operation: "listing".into(), source: std::io::Error::other("no") };
    model.see(Source::ServiceCidrs, StoreEvent::Unavailable(forbidden));
    assert!(model.settle());
    assert_eq!((model.list("pods"), model.list("services")), ("10.1.0.0/16,10.9.0.0/16", "10.96.0.0/16"));
    assert!(model.0.unread[&watch_of(Source::ServiceCidrs)].starts_with("ServiceCIDR: "));
    // What was read before may be older than what has been found since.
    let away = || StoreError::Forbidden { operation: "listing".into(), source: std::io::Error::other("no") };
    model.see(Source::CalicoPools, StoreEvent::Unavailable(away()));
    model.see_map(map(
        "10.1.0.0/16,10.5.0.0/16",
        "10.96.0.0/16",
        r#"{"pods":["10.1.0.0/16","10.5.0.0/16"]}"#,
    ));
    assert!(!model.settle());
    // The same again after the outage: what was not done is done.
    let pools = || vec![pool("first", "10.1.0.0/16"), pool("second", "10.9.0.0/16")];
    let watch = Watch::new(0, Kind::IpPool, "");
    assert_eq!(model.0.observe(&watch, StoreEvent::Listed(pools()), Instant::now()), [()]);
    model.see(Source::CalicoPools, StoreEvent::Unavailable(away()));
    assert_eq!(model.0.observe(&watch, StoreEvent::Listed(pools()), Instant::now()), [()]);
    assert_eq!(model.0.observe(&watch, StoreEvent::Listed(pools()), Instant::now()), []);
    // Somebody gives a list of their own.
    model.see_map(map("10.1.0.0/16", "10.96.0.0/16", r#"{"services":["10.96.0.0/16"]}"#));
    assert!(!model.settle() && kinds(&model) == [Kind::ServiceCidr]);
    model.see_map(map("10.1.0.0/16", "10.96.0.0/16", "[]"));
    assert!(!model.settle() && model.0.problem.as_ref().unwrap().contains("join again"));
}

#[test]
fn what_two_sources_say_of_one_list_is_together_until_neither_says_it() {
    let network = |pods: &[&str]| {
        let pods: Vec<Value> = pods.iter().map(|cidr| json!({"cidr": cidr})).collect();
        object(
            Source::OpenShiftPods,
            "cluster",
            json!({"clusterNetwork": pods, "serviceNetwork": ["10.96.0.0/16"]}),
        )
    };
    let pool = |cidrs: &[&str]| object(Source::CiliumPools, "default", json!({"ipv4": {"cidrs": cidrs}}));
    let recorded = r#"{"cilium-pods":["10.1.0.0/16"],"openshift-pods":["10.1.0.0/16"],"openshift-services":["10.96.0.0/16"]}"#;
    let mut model = Model::new(&map("10.1.0.0/16", "10.96.0.0/16", recorded));
    let kinds: Vec<Kind> = model.0.watches().into_iter().map(|watch| watch.kind).collect();
    assert_eq!(kinds, [Kind::CiliumPodIpPool, Kind::OpenShiftNetwork], "one watch for both lists");

    model.see(Source::CiliumPools, StoreEvent::Listed(vec![pool(&["10.1.0.0/16", "10.2.0.0/16"])]));
    model.see(Source::OpenShiftPods, StoreEvent::Listed(vec![network(&["10.1.0.0/16", "10.3.0.0/16"])]));
    assert!(model.settle());
    assert_eq!(model.list("pods"), "10.1.0.0/16,10.2.0.0/16,10.3.0.0/16");
    // One of them says it still.
    model.see(Source::CiliumPools, StoreEvent::Applied(pool(&["10.2.0.0/16"])));
    model.settle();
    assert_eq!(model.list("pods"), "10.1.0.0/16,10.2.0.0/16,10.3.0.0/16");
    model.see(Source::OpenShiftPods, StoreEvent::Applied(network(&["10.3.0.0/16"])));
    assert!(model.settle());
    assert_eq!((model.list("pods"), model.list("services")), ("10.2.0.0/16,10.3.0.0/16", "10.96.0.0/16"));
}

#[test]
fn what_another_source_has_or_had_and_cannot_be_read_is_never_withdrawn() {
    let network = |pods: &[&str]| {
        let pods: Vec<Value> = pods.iter().map(|cidr| json!({"cidr": cidr})).collect();
        object(Source::OpenShiftPods, "cluster", json!({"clusterNetwork": pods}))
    };
    let pool = |cidrs: &[&str]| object(Source::CiliumPools, "default", json!({"ipv4": {"cidrs": cidrs}}));
    let both = ["10.1.0.0/16", "10.2.0.0/16"];
    for recorded in [
        r#"{"cilium-pods":["10.1.0.0/16","10.2.0.0/16"],"openshift-pods":["10.1.0.0/16","10.2.0.0/16"]}"#,
        r#"{"cilium-pods":["10.1.0.0/16"],"openshift-pods":["10.1.0.0/16","10.2.0.0/16"]}"#,
        r#"{"cilium-pods":["10.1.0.0/16","10.2.0.0/16"],"openshift-pods":["10.1.0.0/16"]}"#,
    ] {
        for is_ciliums_to_go in [true, false] {
            let mut model = Model::new(&map("10.1.0.0/16,10.2.0.0/16", "10.96.0.0/16", recorded));
            model.see(Source::CiliumPools, StoreEvent::Listed(vec![pool(&both)]));
            model.see(Source::OpenShiftPods, StoreEvent::Listed(vec![network(&both)]));
            model.settle();
            match is_ciliums_to_go {
                true => model.see(Source::CiliumPools, StoreEvent::Applied(pool(&both[..1]))),
                false => model.see(Source::OpenShiftPods, StoreEvent::Applied(network(&both[..1]))),
            }
            model.settle();
            assert_eq!(model.list("pods"), "10.1.0.0/16,10.2.0.0/16", "{recorded} {is_ciliums_to_go}");
        }
    }
    // One of them cannot be read when the other one gives an entry up.
    let recorded =
        r#"{"cilium-pods":["10.1.0.0/16","10.2.0.0/16"],"openshift-pods":["10.1.0.0/16","10.2.0.0/16"]}"#;
    let mut model = Model::new(&map("10.1.0.0/16,10.2.0.0/16", "10.96.0.0/16", recorded));
    let away = StoreError::Forbidden { operation: "listing".into(), source: std::io::Error::other("no") };
    model.see(Source::CiliumPools, StoreEvent::Unavailable(away));
    model.see(Source::OpenShiftPods, StoreEvent::Listed(vec![network(&both[..1])]));
    model.settle();
    assert_eq!(model.list("pods"), "10.1.0.0/16,10.2.0.0/16");
    model.see(Source::CiliumPools, StoreEvent::Listed(vec![pool(&both[..1])]));
    assert!(model.settle());
    assert_eq!(model.list("pods"), "10.1.0.0/16");
}

/// Returns flannel's ConfigMap.
fn flannel(conf: &str) -> Object {
    let key = Source::FlannelMap.object().unwrap();
    let mut object = Object::new(key.kind, ObjectMeta::new(&*key.namespace, &*key.name));
    object.body.insert("data".to_owned(), json!({"net-conf.json": conf, "cni-conf.json": "{}"}));
    object
}

#[test]
fn a_config_map_of_a_plugin_is_followed_and_what_makes_no_sense_keeps_what_was() {
    let recorded = r#"{"flannel-map":["10.1.0.0/16"],"services":["10.96.0.0/16"]}"#;
    let mut model = Model::new(&map("10.1.0.0/16", "10.96.0.0/16", recorded));
    let key = Source::FlannelMap.object().unwrap();
    let expected = BTreeSet::from([Watch::new(0, Kind::ServiceCidr, ""), Watch::one(0, &key)]);
    assert_eq!(model.0.watches(), expected, "the one object");
    model.see(Source::FlannelMap, StoreEvent::Listed(vec![flannel(r#"{"Network": "10.1.0.0/16"}"#)]));
    assert!(!model.settle() && model.0.left_out.is_empty());
    let both = r#"{"Network": "10.1.0.0/16", "IPv6Network": "fd00:1::/56"}"#;
    model.see(Source::FlannelMap, StoreEvent::Applied(flannel(both)));
    assert!(model.settle());
    assert_eq!((model.list("pods"), model.list("services")), ("10.1.0.0/16,fd00:1::/56", "10.96.0.0/16"));
    // Neither a part of it nor nothing of it.
    for (conf, part) in [
        (r#"{"Network": "10.5.0.0/16", "IPv6Network": "fd00:1::/156"}"#, "is no network"),
        ("{", "neither YAML nor JSON"),
        ("{}", "names no networks any more"),
    ] {
        model.see(Source::FlannelMap, StoreEvent::Applied(flannel(conf)));
        assert!(!model.settle(), "{conf}");
        assert_eq!(model.list("pods"), "10.1.0.0/16,fd00:1::/56");
        let [problem] = &*model.0.left_out else { panic!("{:?}", model.0.left_out) };
        assert!(problem.starts_with("ConfigMap kube-flannel/kube-flannel-cfg "), "{problem}");
        assert!(problem.contains(part) && problem.ends_with("is announced on"), "{problem}");
    }
    let other = r#"{"Network": "10.5.0.0/16", "IPv6Network": "fd00:1::/56"}"#;
    model.see(Source::FlannelMap, StoreEvent::Applied(flannel(other)));
    assert!(model.settle() && model.0.left_out.is_empty());
    assert_eq!(model.list("pods"), "10.5.0.0/16,fd00:1::/56");
    // One that overlaps another entry is named by its object, and takes nothing from what was there.
    model.see(Source::FlannelMap, StoreEvent::Applied(flannel(r#"{"Network": "10.0.0.0/8"}"#)));
    assert!(!model.settle());
    assert_eq!(
        model.0.left_out,
        [
            "10.0.0.0/8 of ConfigMap kube-flannel/kube-flannel-cfg is not announced: it overlaps 10.96.0.0/16: what it has \
          named before is announced on"
        ]
    );
    assert_eq!(model.list("pods"), "10.5.0.0/16,fd00:1::/56");
    model.see(Source::FlannelMap, StoreEvent::Applied(flannel(other)));
    model.settle();
    model.see(Source::FlannelMap, StoreEvent::Deleted(flannel(other)));
    assert!(!model.settle() && model.0.left_out[0].contains("names no networks any more"));
    assert_eq!(model.list("pods"), "10.5.0.0/16,fd00:1::/56");
}

#[test]
fn a_right_that_is_missing_for_one_source_keeps_its_networks_and_the_others_go_on() {
    let recorded = r#"{"flannel-map":["10.1.0.0/16"],"services":["10.96.0.0/16"]}"#;
    let mut model = Model::new(&map("10.1.0.0/16", "10.96.0.0/16", recorded));
    let watch = watch_of(Source::FlannelMap);
    let forbidden =
        || StoreError::Forbidden { operation: "listing".into(), source: std::io::Error::other("no") };
    let away = StoreError::Unavailable { operation: "listing".into(), source: std::io::Error::other("no") };
    assert!(model.0.does_without(&watch, &forbidden()) && !model.0.does_without(&watch, &away));
    model.see(Source::FlannelMap, StoreEvent::Unavailable(forbidden()));
    model.see(
        Source::ServiceCidrs,
        StoreEvent::Listed(vec![services("kubernetes", &["10.96.0.0/16", "10.98.0.0/16"])]),
    );
    assert!(model.settle());
    assert_eq!((model.list("pods"), model.list("services")), ("10.1.0.0/16", "10.96.0.0/16,10.98.0.0/16"));
    assert!(model.0.unread[&watch].starts_with("ConfigMap kube-flannel/kube-flannel-cfg: "));
    // Two sources of one object share its watch.
    let both = r#"{"ovn-map-pods":["10.1.0.0/16"],"ovn-map-services":["10.96.0.0/16"]}"#;
    let mut model = Model::new(&map("10.1.0.0/16", "10.96.0.0/16", both));
    let watches: Vec<Watch> = model.0.watches().into_iter().collect();
    assert_eq!(watches, [watch_of(Source::OvnPodsMap)]);
    let key = Source::OvnPodsMap.object().unwrap();
    let mut config = Object::new(key.kind, ObjectMeta::new(&*key.namespace, &*key.name));
    config
        .body
        .insert("data".to_owned(), json!({"net_cidr": "10.1.0.0/16/24,10.2.0.0/16/24", "svc_cidr": "x"}));
    model.see(Source::OvnPodsMap, StoreEvent::Listed(vec![config]));
    assert!(model.settle());
    assert_eq!((model.list("pods"), model.list("services")), ("10.1.0.0/16,10.2.0.0/16", "10.96.0.0/16"));
    assert_eq!(model.0.left_out.len(), 1, "{:?}", model.0.left_out);
}

#[test]
fn what_has_installed_the_cluster_adds_networks_and_withdraws_none() {
    let mut model =
        Model::new(&map("10.1.0.0/16", "10.96.0.0/16", r#"{"kubeadm-map-pods":["10.1.0.0/16"]}"#));
    let key = Source::KubeadmPodsMap.object().unwrap();
    for (subnets, expected) in
        [("10.2.0.0/16", "10.1.0.0/16,10.2.0.0/16"), ("10.3.0.0/16", "10.1.0.0/16,10.2.0.0/16,10.3.0.0/16")]
    {
        let mut object = Object::new(key.kind, ObjectMeta::new(&*key.namespace, &*key.name));
        let conf = format!("networking:\n  podSubnet: {subnets}\n");
        object.body.insert("data".to_owned(), json!({"ClusterConfiguration": conf}));
        model.see(Source::KubeadmPodsMap, StoreEvent::Listed(vec![object]));
        assert!(model.settle());
        assert_eq!(model.list("pods"), expected);
    }
}

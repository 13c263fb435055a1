use std::collections::BTreeMap;

use ipnet::IpNet;

use super::*;

#[test]
fn an_empty_namespace_gets_the_cluster_and_then_the_endpoint() {
    let bed = Bed::default();
    let writes = bed.plan().writes;
    let shown: Vec<String> = writes.iter().map(show).collect();
    assert_eq!(shown, ["create Cluster ns/a", "create Endpoint ns/a-submariner-cable-a-192-0-2-1"]);
    assert!(writes.iter().all(|write| write.object().and_then(term_of) == Some(Term::new(5).unwrap())));
}

#[test]
fn a_second_run_plans_nothing() {
    let mut bed = Bed::default();
    bed.apply();
    assert_eq!(bed.plan(), Plan::default());
}

#[test]
fn networks_that_are_not_pods_are_annotated_and_taken_back() {
    let annotated = |bed: &Bed| {
        let cluster = bed.objects.values().find(|object| object.kind == Kind::Cluster).unwrap();
        cluster.metadata.annotations.get(annotation::EXTRA_CIDRS).cloned()
    };
    let mut bed = Bed::default();
    bed.apply();
    assert_eq!(annotated(&bed), None);
    bed.extra = vec!["10.77.0.0/24".parse().unwrap(), "fd77::/64".parse().unwrap()];
    bed.apply();
    assert_eq!(annotated(&bed).as_deref(), Some("10.77.0.0/24,fd77::/64"));
    bed.extra.clear();
    bed.apply();
    assert_eq!(annotated(&bed).as_deref(), Some(""));
    assert_eq!(bed.plan(), Plan::default());
}

#[test]
fn other_endpoints_of_our_cluster_go_first_and_nobody_elses_are_touched() {
    let mut bed = Bed::default();
    bed.put(endpoint("a", "192.0.2.2"));
    bed.put(endpoint("fixed-peer", "192.0.2.7"));
    bed.put(labelled(endpoint("b", "192.0.2.3"), "b"));
    bed.put(labelled(endpoint("a", "192.0.2.4"), "b"));
    let shown: Vec<String> = bed.plan().writes.iter().map(show).collect();
    assert_eq!(
        shown,
        [
            "delete Endpoint ns/a-submariner-cable-a-192-0-2-2",
            "create Cluster ns/a",
            "create Endpoint ns/a-submariner-cable-a-192-0-2-1",
        ]
    );
}

#[test]
fn one_of_ours_that_makes_no_sense_goes_too() {
    let mut bed = Bed::default();
    bed.apply();
    let mut broken = endpoint("a", "192.0.2.2");
    broken.body.insert("spec".to_owned(), serde_json::json!({"cluster_id": "a", "subnets": 7}));
    bed.put(broken);
    assert_eq!(
        bed.plan().writes.iter().map(show).collect::<Vec<_>>(),
        ["delete Endpoint ns/a-submariner-cable-a-192-0-2-2"]
    );
}

#[test]
fn an_update_keeps_what_others_and_newer_versions_wrote() {
    let mut bed = Bed::default();
    let mut theirs = endpoint("a", "192.0.2.1");
    theirs.metadata.labels.insert("theirs".to_owned(), "kept".to_owned());
    theirs.metadata.annotations.insert("theirs".to_owned(), "kept".to_owned());
    theirs.body.insert("status".to_owned(), "kept".into());
    let spec = theirs.body["spec"].as_object_mut().unwrap();
    spec.insert("publicIPs".to_owned(), serde_json::json!(["198.51.100.1", "2001:db8::1"]));
    spec.insert("healthCheckIP".to_owned(), "10.9.9.9".into());
    spec.insert("public_ip".to_owned(), "198.51.100.1".into());
    bed.put(theirs.clone());
    bed.own.public_ip = "198.51.100.2".to_owned();
    let writes = bed.plan().writes;
    let [Write::Create(_), Write::Update(updated)] = writes.as_slice() else { panic!("{writes:?}") };
    assert_eq!(updated.metadata.labels, theirs.metadata.labels);
    assert_eq!(updated.metadata.annotations["theirs"], "kept");
    assert_eq!(updated.body["status"], "kept");
    let spec = &updated.body["spec"];
    assert_eq!(spec["publicIPs"], theirs.body["spec"]["publicIPs"]);
    assert_eq!((&spec["public_ip"], spec.get("healthCheckIP")), (&"198.51.100.2".into(), None));
}

#[test]
fn another_key_makes_another_endpoint_as_upstream_does() {
    let mut bed = Bed::default();
    bed.apply();
    bed.own.backend_config = BTreeMap::from([("publicKey".to_owned(), "another".to_owned())]);
    let shown: Vec<String> = bed.plan().writes.iter().map(show).collect();
    let name = "Endpoint ns/a-submariner-cable-a-192-0-2-1";
    assert_eq!(shown, [format!("delete {name}"), format!("create {name}")]);
}

#[test]
fn what_sits_under_our_name_with_anothers_label_is_in_the_way() {
    let mut bed = Bed::default();
    bed.apply();
    bed.put(labelled(endpoint("a", "192.0.2.1"), "b"));
    bed.put(labelled(cluster("a"), "b"));
    let shown: Vec<String> = bed.plan().writes.iter().map(show).collect();
    let name = "Endpoint ns/a-submariner-cable-a-192-0-2-1";
    assert_eq!(shown, [format!("delete {name}"), "update Cluster ns/a".to_owned(), format!("create {name}")]);
    bed.apply();
    assert_eq!(bed.plan(), Plan::default());
}

#[test]
fn a_newer_term_on_our_endpoint_or_cluster_forbids_every_write() {
    for object in [endpoint("a", "192.0.2.2"), cluster("a")] {
        let mut bed = Bed::default();
        bed.put(with_term(object.clone(), "6"));
        let fence = Fence { term: Term::new(6).unwrap(), object: object.key() };
        assert_eq!(bed.plan(), Plan { fenced: Some(fence), ..Plan::default() });
    }
}

#[test]
fn terms_that_are_older_or_missing_or_nonsense_or_anothers_do_not_fence() {
    for term in ["4", "-1", "x", "99999999999999999999", "2147483647"] {
        let mut bed = Bed::default();
        bed.put(with_term(endpoint("a", "192.0.2.2"), term));
        bed.put(with_term(labelled(endpoint("b", "192.0.2.3"), "b"), "99"));
        let plan = bed.plan();
        assert_eq!((plan.fenced, plan.writes.len()), (None, 3), "{term}");
    }
}

#[test]
fn a_new_term_is_written_onto_what_is_right_otherwise() {
    let mut bed = Bed::default();
    bed.apply();
    bed.term = 6;
    assert_eq!(
        bed.plan().writes.iter().map(show).collect::<Vec<_>>(),
        ["update Cluster ns/a", "update Endpoint ns/a-submariner-cable-a-192-0-2-1"]
    );
}

#[test]
fn without_leave_the_endpoint_is_not_created_but_all_else_is_done() {
    let mut bed = Bed { may_create: false, ..Bed::default() };
    bed.put(endpoint("a", "192.0.2.2"));
    let plan = bed.plan();
    assert!(plan.wants_proof);
    assert_eq!(plan.writes.len(), 2);
    bed.may_create = true;
    bed.apply();
    bed.may_create = false;
    assert_eq!(bed.plan(), Plan::default(), "what is there may be updated");
}

#[test]
fn a_cluster_without_a_name_is_our_own_fault() {
    let mut bed = Bed::default();
    bed.own.cluster_id.clear();
    let local: Vec<&Object> = Vec::new();
    let error = plan(&bed.view(&local)).unwrap_err();
    assert!(error.to_string().contains("spec.cable_name"), "{error}");
}

struct Bed {
    objects: BTreeMap<ObjectKey, Object>,
    cluster: ClusterSpec,
    extra: Vec<IpNet>,
    own: EndpointSpec,
    term: i64,
    may_create: bool,
}

impl Default for Bed {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            cluster: ClusterSpec::new("a", &[], &[]),
            extra: Vec::new(),
            own: spec("a", "192.0.2.1"),
            term: 5,
            may_create: true,
        }
    }
}

impl Bed {
    fn view<'a>(&'a self, local: &'a [&'a Object]) -> View<'a> {
        View {
            namespace: "ns",
            extra: &self.extra,
            cluster: &self.cluster,
            endpoint: &self.own,
            term: Term::new(self.term).unwrap(),
            may_create: self.may_create,
            local,
        }
    }

    fn plan(&self) -> Plan {
        let local: Vec<&Object> = self.objects.values().collect();
        plan(&self.view(&local)).unwrap()
    }

    fn apply(&mut self) {
        for write in self.plan().writes {
            match write {
                Write::Create(object) | Write::Update(object) => self.put(object),
                Write::Delete(object) => drop(self.objects.remove(&object.key()).unwrap()),
                Write::UpdateStatus(_) | Write::Annotate { .. } => panic!("never planned"),
            }
        }
    }

    fn put(&mut self, object: Object) {
        self.objects.insert(object.key(), object);
    }
}

fn show(write: &Write) -> String {
    let verb = match write {
        Write::Create(_) => "create",
        Write::Update(_) => "update",
        Write::Delete(_) => "delete",
        Write::UpdateStatus(_) | Write::Annotate { .. } => panic!("never planned: {write:?}"),
    };
    format!("{verb} {}", write.key())
}

fn spec(cluster: &str, private_ip: &str) -> EndpointSpec {
    EndpointSpec {
        cluster_id: cluster.to_owned(),
        cable_name: crate::api::cable_name(cluster, private_ip.parse().unwrap()),
        hostname: format!("host-{private_ip}"),
        private_ip: private_ip.to_owned(),
        backend: "wireguard".to_owned(),
        ..EndpointSpec::default()
    }
}

fn endpoint(cluster: &str, private_ip: &str) -> Object {
    Endpoint::new("ns", spec(cluster, private_ip)).unwrap().to_object()
}

fn cluster(id: &str) -> Object {
    let spec = ClusterSpec::new(id, &[], &[]);
    Cluster { metadata: ObjectMeta::new("ns", id), spec, extra: Map::new() }.to_object()
}

fn labelled(mut object: Object, origin: &str) -> Object {
    object.metadata.labels.insert(label::CLUSTER_ID.to_owned(), origin.to_owned());
    object
}

fn with_term(mut object: Object, term: &str) -> Object {
    object.metadata.annotations.insert(TERM_ANNOTATION.to_owned(), term.to_owned());
    object
}

//! The objects of `deploy-broker` and `join` on a real API server: it takes them as they are, and a member of the set
//! that tries to write what is another's is refused, while upstream's members and our own syncer go on.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use trieste_control::api::{Kind, Object, ObjectKey};
use trieste_control::claims::Allowed;
use trieste_control::store::kube::{Access, ServerSettings};
use trieste_control::store::{DirStore, KubeStore, Store as _};
use trieste_control::sync::{BrokerLink, SyncConfig, Syncer};
use trieste_deploy::objects::{
    BrokerAccess, BrokerOptions, Manifest, MemberOptions, Secret, broker, broker_member, member, names,
};
use trieste_tests::guard::root_test;
use trieste_tests::kubernetes::{ApiServer, Client, Faults, status_code};
use trieste_tests::lab::Lab;
use trieste_tests::wait::eventually;

use crate::shared::{self, Lease};

/// What recorded objects call the broker's namespace; each set has one of its own.
const BROKER: &str = names::BROKER_NAMESPACE;
/// Longer than anything takes that works at all.
const PATIENCE: Duration = Duration::from_secs(90);

const CLUSTERS: &str = include_str!("../../../control/tests/golden/plain/broker-clusters.yaml");
const ENDPOINTS: &str = include_str!("../../../control/tests/golden/plain/broker-endpoints.yaml");

#[test]
fn a_server_takes_every_object_as_it_is_and_finds_nothing_to_change_the_second_time() {
    let Some(_turn) = root_test("a_server_takes_every_object_as_it_is") else { return };
    let lab = Lab::new().unwrap();
    let server = ApiServer::alone(&lab, "api").unwrap();
    let access = BrokerAccess::new("broker.example.com:6443", Some(b"PEM".to_vec()), Secret::new(*b"token"));
    let mut options = MemberOptions::new("east", access, Secret::new([7; 48]));
    options.cluster_cidrs = vec!["10.1.0.0/16".parse().unwrap(), "fd00:1::/56".parse().unwrap()];
    options.service_cidrs = vec!["100.1.0.0/16".parse().unwrap()];
    options.load_balancer = true;
    options.pull_secrets = vec!["registry".to_owned()];
    options.proxy.https = "http://proxy.example.com:3128".to_owned();
    let mut manifests = broker(&BrokerOptions::default()).unwrap();
    manifests.extend(broker_member("east", BROKER));
    manifests.extend(member(&options));

    apply(server.client(), &manifests);
    let first: Vec<Value> = manifests.iter().map(|manifest| version_of(server.client(), manifest)).collect();
    apply(server.client(), &manifests);
    let second: Vec<Value> = manifests.iter().map(|manifest| version_of(server.client(), manifest)).collect();

    for ((manifest, first), second) in manifests.iter().zip(first).zip(second) {
        assert_eq!(first, second, "{manifest} is another object each time");
    }
}

#[test]
fn a_member_writes_its_own_objects_in_upstreams_form_and_in_ours() {
    let Some(set) = Set::new("a_member_writes_its_own_objects_in_upstreams_form") else { return };

    for (member, id) in [(&set.a, "cluster-a"), (&set.b, "cluster-b")] {
        for object in recorded(id) {
            set.pass(member, &object);
        }
        set.pass(member, &slice(id));
    }
    let mut further = recorded("cluster-a").swap_remove(1);
    further["metadata"]["labels"] = json!({"trieste.io/clusterID": "cluster-a"});
    further["metadata"]["name"] = json!("cluster-a-submariner-cable-cluster-a-fd00-31--11");
    further["spec"]["cable_name"] = json!("submariner-cable-cluster-a-fd00-31--11");
    further["spec"]["privateIPs"] = json!(["172.31.1.11", "fd00:31::11"]);
    set.pass(&set.a, &further);
    set.pass(&set.a, &further_endpoint("cluster-a"));
    // Upstream makes object names valid; an account's name has the same characters.
    apply(set.server.client(), &[upstreams_binding("cluster-c", &set.broker)]);
    let strange = set.join("cluster-c");
    let mut object = recorded("cluster-a").swap_remove(0);
    object["metadata"]["name"] = json!("cluster-c");
    object["metadata"]["labels"] = json!({"submariner-io/clusterID": "Cluster_C"});
    object["spec"]["cluster_id"] = json!("Cluster_C");
    set.pass(&strange, &object);
}

#[test]
fn exporters_share_an_import_and_the_last_one_removes_it() {
    let Some(set) = Set::new("exporters_share_an_import_and_the_last_one_removes_it") else { return };
    let path = format!("/apis/multicluster.x-k8s.io/v1alpha1/namespaces/{BROKER}/serviceimports");
    let own = format!("{path}/nginx-demo");
    let patch = |client: &Member, change: Value| client.patch(&own, &change);
    let stamp = |id: &str, value: Value| json!({"metadata": {"annotations": {format!("timestamp.submariner.io/{id}"): value}}});

    let import = json!({
        "apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceImport",
        "metadata": {"name": "nginx-demo", "namespace": BROKER, "annotations": {
            "multicluster.kubernetes.io/service-name": "nginx", "timestamp.submariner.io/cluster-a": "1"}},
        "spec": {"type": "ClusterSetIP", "ports": [{"port": 80, "protocol": "TCP"}]},
    });
    set.refused(set.b.post(&path, &import), "may only write its own annotation");
    set.a.post(&path, &import).unwrap();
    let status = |ids: &[&str]| json!({"status": {"clusters": ids.iter().map(|id| json!({"cluster": id})).collect::<Value>()}});
    set.a.patch(&format!("{own}/status"), &status(&["cluster-a"])).unwrap();

    // Not an exporter.
    set.refused(patch(&set.b, json!({"spec": {"ports": []}})), "does not export this service");
    set.refused(patch(&set.b, stamp("cluster-a", json!("0"))), "may only write its own annotation");
    set.refused(patch(&set.b, stamp("cluster-a", Value::Null)), "may only write its own annotation");
    set.refused(
        set.b.patch(&format!("{own}/status"), &status(&["cluster-b"])),
        "may only add or remove itself",
    );
    set.refused(set.b.delete(&own).map(drop), "that other clusters export");
    for marks in [
        json!({"labels": {"submariner-io/clusterID": "cluster-b"}}),
        json!({"finalizers": ["example.com/never"]}),
        json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "x"}]}),
    ] {
        set.refused(patch(&set.b, json!({"metadata": marks})), "may not change owners");
    }
    set.refused(patch(&set.b, json!({"metadata": {"labels": {"a": "b"}}})), "may not change its labels");
    // An exporter.
    patch(&set.b, stamp("cluster-b", json!("2"))).unwrap();
    patch(&set.b, json!({"metadata": {"labels": {"a": "b"}}})).unwrap();
    let owned = json!({"metadata": {"labels": {"submariner-io/clusterID": "cluster-b"}}});
    set.refused(patch(&set.b, owned), "may not change owners");
    set.b.patch(&format!("{own}/status"), &status(&["cluster-a", "cluster-b"])).unwrap();
    let ports = json!([{"port": 80, "protocol": "TCP"}, {"name": "m", "port": 81, "protocol": "TCP"}]);
    patch(&set.b, json!({"spec": {"ports": ports}})).unwrap();
    let allocated = json!({"metadata": {"annotations": {"lighthouse.submariner.io/clusterset-ip-allocated-by": "cluster-a"}}});
    set.refused(patch(&set.b, allocated.clone()), "may only write itself");
    patch(&set.a, allocated.clone()).unwrap();
    allocations(&set, &patch, &allocated);
    set.refused(set.a.delete(&own).map(drop), "that other clusters export");
    // One goes, then the other.
    patch(
        &set.a,
        json!({"metadata": {"annotations": {"timestamp.submariner.io/cluster-a": null,
        "lighthouse.submariner.io/clusterset-ip-allocated-by": null}}}),
    )
    .unwrap();
    set.a.patch(&format!("{own}/status"), &status(&["cluster-b"])).unwrap();
    assert!(set.b.delete(&own).unwrap());
}

/// The address that one member has given is not taken from it while it exports the service and there is the address.
fn allocations(set: &Set, patch: &impl Fn(&Member, Value) -> anyhow::Result<Value>, by_a: &Value) {
    let by = |cluster: Value| json!({"metadata": {"annotations": {"lighthouse.submariner.io/clusterset-ip-allocated-by": cluster}}});
    let ips = |ips: Value| json!({"spec": {"ips": ips}});
    let stamp =
        |since: Value| json!({"metadata": {"annotations": {"timestamp.submariner.io/cluster-a": since}}});
    patch(&set.a, ips(json!(["243.0.0.1"]))).unwrap();
    for value in [Value::Null, json!("cluster-b")] {
        set.refused(
            patch(&set.b, by(value)),
            "only if that does not export the service or the address is gone",
        );
    }
    // The oldest export wants no address: it goes first, then whose it was.
    patch(&set.b, ips(Value::Null)).unwrap();
    patch(&set.b, by(Value::Null)).unwrap();
    // Who gave it exports the service no more.
    patch(&set.a, by_a.clone()).unwrap();
    patch(&set.a, ips(json!(["243.0.0.1"]))).unwrap();
    patch(&set.a, stamp(Value::Null)).unwrap();
    set.refused(patch(&set.b, by(json!("cluster-c"))), "may only write itself");
    patch(&set.b, by(json!("cluster-b"))).unwrap();
    patch(&set.a, stamp(json!("1"))).unwrap();
    set.refused(patch(&set.a, by(Value::Null)), "may only write itself");
    patch(&set.b, by(Value::Null)).unwrap();
    patch(&set.a, by_a.clone()).unwrap();
}

#[test]
fn a_hostile_member_gets_nowhere_and_is_told_why() {
    let Some(set) = Set::new("a_hostile_member_gets_nowhere_and_is_told_why") else { return };
    for object in recorded("cluster-b").into_iter().chain([slice("cluster-b")]) {
        set.pass(&set.b, &object);
    }
    let [cluster, endpoint] = <[Value; 2]>::try_from(recorded("cluster-b")).unwrap();
    let before: Vec<Value> = set.all();
    let mallory = &set.a;

    // Others' objects, new and old.
    let others = "may not write what names cluster cluster-b";
    for object in [&cluster, &endpoint, &slice("cluster-b")] {
        let (list, own) = paths(object);
        let fresh = changed(object, |object| object["metadata"]["name"] = json!("fresh"));
        set.refused(mallory.post(&list, &fresh), others);
        let unnamed = changed(object, |object| {
            object["metadata"].as_object_mut().unwrap().remove("name");
            object["metadata"]["generateName"] = json!("cluster-a-");
        });
        set.refused(mallory.post(&list, &unnamed), others);
        set.refused(mallory.delete(&own).map(drop), others);
        set.refused(mallory.patch(&own, &json!({"metadata": {"annotations": {"x": "y"}}})), others);
        // Taken over: every mark of the owner replaced.
        let ours: Value =
            serde_json::from_str(&object.to_string().replace("cluster-b", "cluster-a")).unwrap();
        let taken = json!({"metadata": {"labels": ours["metadata"]["labels"]}, "spec": ours["spec"]});
        set.refused(mallory.patch(&own, &taken), others);
        let unmarked = json!({"metadata": {"labels": null}});
        set.refused(mallory.patch(&own, &unmarked), others);
        set.refused(mallory.apply(object).map(drop), others);
    }

    // Its own objects, in another's name or place.
    let [own_cluster, own_endpoint] = <[Value; 2]>::try_from(recorded("cluster-a")).unwrap();
    set.pass(mallory, &own_cluster);
    set.pass(mallory, &own_endpoint);
    let post = |object: &Value, change: &dyn Fn(&mut Value)| {
        mallory.post(&paths(object).0, &changed(object, change))
    };
    let named = |name: &'static str| move |object: &mut Value| object["metadata"]["name"] = json!(name);
    set.refused(post(&own_cluster, &named("cluster-c")), "only write the Cluster object called cluster-a");
    set.refused(
        post(&own_endpoint, &named("cluster-c-submariner-cable-cluster-c-1-2-3-4")),
        "an Endpoint of cluster cluster-a is called",
    );
    // A cluster whose ID begins as ours does.
    let squat = "cluster-a-x-submariner-cable-cluster-a-x-1-2-3-4";
    set.refused(post(&own_endpoint, &named(squat)), "an Endpoint of cluster cluster-a is called");
    let cable = |name: &'static str, cable: &'static str| {
        move |object: &mut Value| {
            object["metadata"]["name"] = json!(name);
            object["spec"]["cable_name"] = json!(cable);
        }
    };
    let foreign =
        cable("cluster-a-submariner-cable-cluster-b-172-31-2-11", "submariner-cable-cluster-b-172-31-2-11");
    set.refused(post(&own_endpoint, &foreign), "an Endpoint of cluster cluster-a is called");
    let longer =
        cable("cluster-a-submariner-cable-cluster-a-x-1-2-3-4", "submariner-cable-cluster-a-x-1-2-3-4");
    set.refused(post(&own_endpoint, &longer), "an Endpoint of cluster cluster-a is called");
    // The cable of a cluster whose ID goes on like an address: cluster-a-1 has 10.0.0.1.
    for address in ["172.31.1.11", "1.10.0.0.1", "1:10:0:0:1", "10.0.0.1"] {
        let squat = |object: &mut Value| {
            object["metadata"]["name"] = json!("cluster-a-submariner-cable-cluster-a-1-10-0-0-1");
            object["spec"]["cable_name"] = json!("submariner-cable-cluster-a-1-10-0-0-1");
            object["spec"]["private_ip"] = json!(address);
        };
        set.refused(post(&own_endpoint, &squat), "an Endpoint of cluster cluster-a is called");
    }
    for (object, name) in [(&own_cluster, "cluster-a"), (&own_endpoint, "x")] {
        let unlabelled = changed(object, |object| {
            object["metadata"]["name"] = json!(name);
            object["metadata"]["labels"] = json!({});
        });
        let (list, own) = paths(object);
        if name == "x" {
            set.refused(mallory.post(&list, &unlabelled), "the label submariner-io/clusterID is missing");
        }
        let unlabel = json!({"metadata": {"labels": {"submariner-io/clusterID": null}}});
        set.refused(mallory.patch(&own, &unlabel), "the label submariner-io/clusterID is missing");
        let relabel = json!({"metadata": {"labels": {"submariner-io/clusterID": "cluster-b"}}});
        set.refused(mallory.patch(&own, &relabel), others);
        set.refused(mallory.patch(&own, &json!({"spec": {"cluster_id": "cluster-b"}})), others);
    }
    let anonymous = changed(&slice("cluster-a"), |object| object["metadata"]["labels"] = json!({}));
    set.refused(mallory.post(&paths(&anonymous).0, &anonymous), "whose EndpointSlice is it?");

    // What our Role keeps from a member.
    let ours = set.join("cluster-d");
    for path in ["secrets", "serviceaccounts", "configmaps"] {
        let answer = ours.get(&format!("/api/v1/namespaces/{BROKER}/{path}"));
        assert_eq!(answer.err().as_ref().and_then(status_code), Some(403), "{path}");
    }
    for object in [own_cluster, own_endpoint] {
        assert!(mallory.delete(&paths(&object).1).unwrap(), "its own it removes");
    }
    assert_eq!(set.all(), before, "something of another cluster has changed");
    // Nobody else is concerned.
    set.admin.patch(&paths(&cluster).1, &json!({"metadata": {"annotations": {"x": "y"}}})).unwrap();
}

#[test]
fn our_syncer_works_with_the_rights_of_a_member_and_shows_what_the_policy_refuses() {
    let Some(set) = Set::new("our_syncer_works_with_the_rights_of_a_member") else { return };
    let faults = Faults::on_loopback(&set.server).unwrap();
    let upstreams = format!(
        "/apis/rbac.authorization.k8s.io/v1/namespaces/{BROKER}/rolebindings/cluster-a-{}",
        names::UPSTREAM_MEMBER_ROLE
    );
    set.admin.delete(&upstreams).unwrap();
    let token = set.server.token(&set.broker, &names::cluster_account("cluster-a"), None).unwrap();
    let settings = ServerSettings {
        server: faults.server(),
        token: Some(token),
        ca_file: Some(set.server.ca_file()),
        ..ServerSettings::default()
    };
    let [cluster, endpoint] = <[Value; 2]>::try_from(recorded("cluster-b")).unwrap();
    set.pass(&set.b, &cluster);
    set.pass(&set.b, &endpoint);
    let scratch = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();

    runtime.block_on(async {
        let local = DirStore::open(scratch.path()).unwrap();
        let broker = KubeStore::new(Access::server(settings).unwrap());
        for mut object in recorded("cluster-a") {
            object["metadata"]["namespace"] = json!(names::NAMESPACE);
            object["metadata"].as_object_mut().unwrap().remove("labels");
            local.create(Object::from_value(object).unwrap()).await.unwrap();
        }
        let mut config = SyncConfig::new("cluster-a", vec!["10.1.0.0/16".parse().unwrap()]);
        config.broker_namespace.clone_from(&set.broker);
        // The recorded clusters have their services in 100.0.0.0/8, which is not private space.
        config.allowed = Allowed::of(["10.0.0.0/8", "100.0.0.0/8"].map(|net| net.parse().unwrap()).into());
        let sync = Syncer::spawn(local.clone(), broker, config);
        let key = |name: &str| ObjectKey::new(Kind::Endpoint, names::NAMESPACE, name);
        let copy = key(endpoint["metadata"]["name"].as_str().unwrap());
        until("the other's Endpoint", async || local.get(&copy).await.unwrap().is_some()).await;
        until("our Endpoint on the broker", async || set.endpoints_of("cluster-a") == 1).await;
        assert!(sync.refused.borrow().is_empty());

        // An Endpoint that no policy would take, beside the good one.
        let mut odd = recorded("cluster-a").swap_remove(1);
        odd["metadata"] = json!({"namespace": names::NAMESPACE, "name": "odd"});
        local.create(Object::from_value(odd).unwrap()).await.unwrap();
        until("a refusal", async || !sync.refused.borrow().is_empty()).await;
        let refused = sync.refused.borrow().clone();
        assert_eq!((refused.len(), refused[0].cluster.as_str()), (1, "cluster-a"));
        assert!(
            refused[0].reason.contains("an Endpoint of cluster cluster-a is called"),
            "{}",
            refused[0].reason
        );
        assert_eq!(sync.state.borrow().state, BrokerLink::Synced, "the broker is well");
        // What is fine goes on, to the end.
        for object in local.list(Kind::Endpoint, names::NAMESPACE).await.unwrap() {
            if object.metadata.origin().is_none() {
                local.delete(&object.key()).await.unwrap();
            }
        }
        until("no Endpoint of ours", async || set.endpoints_of("cluster-a") == 0).await;
        sync.stop().await;
    });
}

#[test]
fn a_further_endpoint_is_its_own_clusters_and_called_by_its_cable() {
    let Some(set) = Set::new("a_further_endpoint_is_its_own_clusters_and_called_by_its_cable") else {
        return;
    };
    let [own, theirs] = ["cluster-a", "cluster-b"].map(further_endpoint);
    set.pass(&set.b, &theirs);
    let at_theirs = paths(&theirs).1;
    let before = set.admin.get(&at_theirs).unwrap();
    let mallory = &set.a;

    let others = "may not write what names cluster cluster-b";
    let fresh = changed(&theirs, |object| object["metadata"]["name"] = json!("trieste-fresh"));
    set.refused(mallory.post(&paths(&theirs).0, &fresh), others);
    set.refused(mallory.apply(&theirs).map(drop), others);
    set.refused(mallory.delete(&at_theirs).map(drop), others);
    for change in [
        json!({"metadata": {"labels": {"trieste.io/clusterID": "cluster-a"}}, "spec": own["spec"]}),
        json!({"metadata": {"labels": {"trieste.io/clusterID": null, "submariner-io/clusterID": "cluster-a"}}}),
        json!({"spec": {"backend_config": {"trieste.state": "draining"}}}),
    ] {
        set.refused(mallory.patch(&at_theirs, &change), others);
    }
    // Its own, in the place of another's, under both labels, under no label, for another's cable.
    let named = "a further one is called trieste-<its cable>";
    let post = |change: &dyn Fn(&mut Value)| mallory.post(&paths(&own).0, &changed(&own, change));
    for name in ["trieste-submariner-cable-cluster-b-172-31-2-11", "trieste-x"] {
        set.refused(post(&|object| object["metadata"]["name"] = json!(name)), named);
    }
    let both = json!({"trieste.io/clusterID": "cluster-a", "submariner-io/clusterID": "cluster-a"});
    set.refused(post(&|object| object["metadata"]["labels"] = both.clone()), named);
    set.refused(
        post(&|object| object["metadata"]["labels"] = json!({})),
        "the label submariner-io/clusterID",
    );
    let cable = theirs["spec"]["cable_name"].clone();
    set.refused(
        post(&|object| {
            object["metadata"]["name"] = theirs["metadata"]["name"].clone();
            object["spec"]["cable_name"] = cable.clone();
        }),
        named,
    );

    set.pass(mallory, &own);
    assert!(mallory.delete(&paths(&own).1).unwrap(), "its own it removes");
    assert_eq!(set.admin.get(&at_theirs).unwrap(), before, "another's has changed");
}

/// A broker with two members and their accounts, in a namespace of its own.
struct Set {
    server: Lease,
    broker: String,
    admin: Member,
    a: Member,
    b: Member,
}

/// A client in whose paths and objects [`BROKER`] means the set's own namespace.
struct Member {
    client: Client,
    broker: String,
}

impl Member {
    fn path(&self, path: &str) -> String {
        path.replace(BROKER, &self.broker)
    }

    fn object(&self, object: &Value) -> Value {
        serde_json::from_str(&object.to_string().replace(BROKER, &self.broker)).unwrap()
    }

    fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.client.get(&self.path(path))
    }

    fn post(&self, path: &str, object: &Value) -> anyhow::Result<Value> {
        self.client.post(&self.path(path), &self.object(object))
    }

    fn put(&self, path: &str, object: &Value) -> anyhow::Result<Value> {
        self.client.put(&self.path(path), &self.object(object))
    }

    fn patch(&self, path: &str, change: &Value) -> anyhow::Result<Value> {
        self.client.patch(&self.path(path), &self.object(change))
    }

    fn delete(&self, path: &str) -> anyhow::Result<bool> {
        self.client.delete(&self.path(path))
    }

    fn apply(&self, object: &Value) -> anyhow::Result<Value> {
        self.client.apply(&self.object(object))
    }
}

impl Set {
    fn new(test: &str) -> Option<Self> {
        static SETS: AtomicU32 = AtomicU32::new(1);
        let server = shared::server(test)?;
        let namespace = format!("set-{}", SETS.fetch_add(1, Ordering::Relaxed));
        let options = BrokerOptions { namespace: namespace.clone(), ..BrokerOptions::default() };
        apply(server.client(), &broker(&options).unwrap());
        apply(server.client(), &[import_definition()]);
        let member = |client| Member { client, broker: namespace.clone() };
        let [a, b] = ["cluster-a", "cluster-b"].map(|id| {
            apply(server.client(), &[upstreams_binding(id, &namespace)]);
            member(join(&server, id, &namespace))
        });
        let set = Self { a, b, admin: member(server.client().clone()), broker: namespace.clone(), server };
        set.wait_for_policy();
        Some(set)
    }

    /// Lets another cluster join.
    fn join(&self, id: &str) -> Member {
        Member { client: join(&self.server, id, &self.broker), broker: self.broker.clone() }
    }

    /// A server takes a moment until it obeys a new policy.
    fn wait_for_policy(&self) {
        let foreign = recorded("cluster-b").swap_remove(0);
        let (list, own) = paths(&foreign);
        eventually("the policy to be obeyed", PATIENCE, || match self.a.post(&list, &foreign) {
            Err(error) if format!("{error:#}").contains("denied request") => Ok(()),
            Err(error) => Err(error),
            Ok(_) => {
                self.admin.delete(&own)?;
                anyhow::bail!("not yet")
            }
        })
        .unwrap();
    }

    /// Creates, changes, and leaves an object of a member.
    fn pass(&self, member: &Member, object: &Value) {
        let (list, own) = paths(object);
        member.post(&list, object).unwrap_or_else(|error| panic!("{object:#}: {error:#}"));
        member.patch(&own, &json!({"metadata": {"annotations": {"seen": "yes"}}})).unwrap();
        let current = member.get(&own).unwrap();
        member.put(&own, &current).unwrap();
    }

    fn refused<T: std::fmt::Debug>(&self, answer: anyhow::Result<T>, reason: &str) {
        let error = answer.expect_err(reason);
        let text = format!("{error:#}");
        assert_eq!(status_code(&error), Some(403), "{text}");
        assert!(
            text.contains(&names::policy_name(&self.broker)) && text.contains(reason),
            "expected {reason:?}: {text}"
        );
    }

    /// What the second member has there, with its versions.
    fn all(&self) -> Vec<Value> {
        let objects = recorded("cluster-b").into_iter().chain([slice("cluster-b")]);
        objects.map(|object| self.admin.get(&paths(&object).1).unwrap()).collect()
    }

    fn endpoints_of(&self, id: &str) -> usize {
        let path = format!(
            "/apis/submariner.io/v1/namespaces/{}/endpoints?labelSelector=submariner-io/clusterID%3D{id}",
            self.broker
        );
        self.server.client().list(&path).unwrap().len()
    }
}

/// Lets a cluster join, and speaks for it.
fn join(server: &ApiServer, id: &str, namespace: &str) -> Client {
    apply(server.client(), &broker_member(id, namespace));
    let kubeconfig = server.kubeconfig_of(namespace, &names::cluster_account(id)).unwrap();
    Client::new(Some(server.namespace()), &kubeconfig).unwrap()
}

/// Applies as `kubectl apply --server-side --validate=strict` does, waiting for definitions.
fn apply(client: &Client, manifests: &[Manifest]) {
    let options = "fieldManager=trieste&force=true&fieldValidation=Strict";
    for manifest in manifests {
        eventually(&manifest.to_string(), PATIENCE, || client.apply_with(options, manifest.as_value()))
            .unwrap();
    }
}

fn version_of(client: &Client, manifest: &Manifest) -> Value {
    let object = client.get(&paths(manifest.as_value()).1).unwrap();
    json!([object["metadata"]["resourceVersion"], object["metadata"]["uid"]])
}

/// The paths of an object's list and of itself.
fn paths(object: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]).to_lowercase());
    let root = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    let namespace = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("/namespaces/{namespace}"),
        None => String::new(),
    };
    let plural = match kind.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None => format!("{kind}s"),
    };
    let list = format!("{root}{namespace}/{plural}");
    (list.clone(), format!("{list}/{}", text(&object["metadata"]["name"])))
}

/// A member's Cluster and Endpoint as upstream's syncer puts them on the broker.
fn recorded(id: &str) -> Vec<Value> {
    [CLUSTERS, ENDPOINTS]
        .iter()
        .map(|text| {
            let list: Value = serde_saphyr::from_str(text).unwrap();
            let items = list["items"].as_array().unwrap().clone();
            let mut item = items.into_iter().find(|item| item["spec"]["cluster_id"] == id).unwrap();
            let metadata = item["metadata"].as_object_mut().unwrap();
            metadata.retain(|key, _| matches!(key.as_str(), "name" | "namespace" | "labels"));
            item
        })
        .collect()
}

/// The Endpoint that one of several gateways of a member publishes of itself.
fn further_endpoint(id: &str) -> Value {
    let mut further = recorded(id).swap_remove(1);
    let cable = further["spec"]["cable_name"].as_str().unwrap().to_owned();
    further["metadata"]["name"] = json!(format!("trieste-{cable}"));
    further["metadata"]["labels"] = json!({"trieste.io/clusterID": id});
    further
}

/// An exported service's addresses, as upstream's agent puts them on the broker.
fn slice(id: &str) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": format!("nginx-{id}"), "namespace": BROKER, "labels": {
            "endpointslice.kubernetes.io/managed-by": "lighthouse-agent.submariner.io",
            "multicluster.kubernetes.io/service-name": "nginx",
            "multicluster.kubernetes.io/source-cluster": id,
            "submariner-io/clusterID": id,
            "submariner-io/originatingNamespace": "demo",
        }},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["100.1.0.7"]}],
    })
}

/// What upstream's tool makes when it lets a cluster join: its Role allows all that the policy refuses.
fn upstreams_binding(id: &str, namespace: &str) -> Manifest {
    let account = names::cluster_account(id);
    Manifest::new(json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": format!("{account}-{}", names::UPSTREAM_MEMBER_ROLE), "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": names::UPSTREAM_MEMBER_ROLE},
        "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": account}],
    }))
}

fn import_definition() -> Manifest {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    Manifest::new(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "serviceimports.multicluster.x-k8s.io",
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/1748"}},
        "spec": {
            "group": "multicluster.x-k8s.io", "scope": "Namespaced",
            "names": {"kind": "ServiceImport", "listKind": "ServiceImportList", "plural": "serviceimports", "singular": "serviceimport"},
            "versions": [{"name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": open}}],
        },
    }))
}

fn changed(object: &Value, change: impl Fn(&mut Value)) -> Value {
    let mut object = object.clone();
    change(&mut object);
    object
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("{what}: not within {PATIENCE:?}"));
}

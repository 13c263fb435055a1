//! The operator, with the rights that its manifests give it, on real API servers: what it makes of two Fabrics is what the
//! commands make; edits act, or are refused; what others change is repaired; killed at any write, it comes to its end; and
//! what it installed goes without a trace.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use trieste_control::store::KubeStore;
use trieste_control::store::kube::Access;
use trieste_deploy::broker_info::BrokerInfo;
use trieste_deploy::objects::{Image, broker_info_secret, operator};
use trieste_deploy::{BrokerLogin, Server};
use trieste_operator::Others;
use trieste_operator::run::{Operator, spawn};
use trieste_operator::worker::Tools;
use trieste_tests::cluster::{BROKER_NAMESPACE, NAMESPACE};
use trieste_tests::daemon::Daemon;
use trieste_tests::kubernetes::credentials::Identity;
use trieste_tests::wait::eventually;

use super::bed::{Bed, bed, broker_of};
use super::*;

/// The operator's namespace, account and Deployment.
pub(super) const OPERATOR: &str = "trieste-operator";

/// Longer than any pass takes that works at all.
pub(super) const PASS: Duration = Duration::from_secs(90);

impl Bed {
    /// Applies the operator's manifests, but for its pods, which nobody runs here.
    pub(super) fn prepare_operator(&self) {
        for manifest in operator(&Image::default()).iter().filter(|manifest| manifest.kind() != "Deployment")
        {
            self.client.apply(manifest.as_value()).unwrap();
        }
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/fabrics.trieste.io";
        let is_served = |definition: &Value| definition["status"]["acceptedNames"]["kind"] == "Fabric";
        self.client.wait(path, PATIENCE, is_served).unwrap();
        eventually("the kind Fabric to be served", PATIENCE, || {
            self.client.list("/apis/trieste.io/v1alpha1/fabrics")
        })
        .unwrap();
        self.settle();
    }

    /// Returns a kubeconfig of the operator's account.
    fn operator_kubeconfig(&self) -> std::path::PathBuf {
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let path = format!("/api/v1/namespaces/{OPERATOR}/serviceaccounts/{OPERATOR}/token");
        let token =
            self.client.post(&path, &request).unwrap()["status"]["token"].as_str().unwrap().to_owned();
        self.faults.kubeconfig(OPERATOR, &Identity::Token(token)).unwrap()
    }

    /// Starts an operator in this process that is killed with the crash.
    pub(super) fn start_operator(&self, crash: &Crash) -> Operator {
        let path = self.operator_kubeconfig();
        let broken = crash.clone();
        let tools = Tools {
            server: self.server_as(&path, crash),
            connect: Arc::new(move |login: &BrokerLogin| Ok(broker_at(login, &broken))),
            image: Image::default().reference,
            resync: Duration::from_secs(5),
        };
        spawn(
            KubeStore::new(Access::kubeconfig(path, None)),
            tools,
            None,
            OPERATOR,
            Others { upstream: true, tkestack: true },
        )
    }

    fn apply_fabric(&self, name: &str, spec: &Value) -> anyhow::Result<Value> {
        let object = json!({"apiVersion": "trieste.io/v1alpha1", "kind": "Fabric", "metadata": {"name": name}, "spec": spec});
        self.client.apply_with("fieldManager=somebody&force=true", &object)
    }

    fn wait_condition(&self, fabric: &str, kind: &str, status: &str) {
        let path = format!("/apis/trieste.io/v1alpha1/fabrics/{fabric}");
        eventually(&format!("{fabric}'s condition {kind} to be {status}"), PASS, || {
            let found = self.client.get(&path)?;
            let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let is_it = |condition: &&Value| {
                condition["type"] == kind
                    && condition["status"] == status
                    && condition["observedGeneration"] == found["metadata"]["generation"]
            };
            anyhow::ensure!(conditions.iter().any(|condition| is_it(&condition)), "{}", found["status"]);
            Ok(())
        })
        .unwrap();
    }

    fn delete_fabric(&self, name: &str) {
        self.client.delete(&format!("/apis/trieste.io/v1alpha1/fabrics/{name}")).unwrap();
    }

    fn wait_fabric_gone(&self, name: &str) {
        self.wait_gone(&format!("/apis/trieste.io/v1alpha1/fabrics/{name}"));
    }

    /// Waits until a resource that was deleted is gone.
    pub(super) fn wait_gone(&self, path: &str) {
        eventually(&format!("{path} to go"), PASS, || match self.client.find(path)? {
            None => Ok(()),
            Some(found) => anyhow::bail!("{}", found["status"]),
        })
        .unwrap();
    }

    fn member_spec(&self, reference: Option<&Value>) -> Value {
        let mut join = json!({"clusterCIDR": self.nets.0, "serviceCIDR": self.nets.1, "natTraversal": false});
        if let Some(reference) = reference {
            join["brokerInfoRef"] = reference.clone();
        }
        join
    }

    fn broker_spec(&self) -> Value {
        json!({"publicAPIServerURL": self.faults.url()})
    }
}

fn broker_at(login: &BrokerLogin, crash: &Crash) -> Server {
    broker_of(&login.url, &login.token, crash)
}

/// What a server holds, without what is another one each time: what the server and controllers fill in, and the operator's own.
fn comparable(bed: &Bed) -> BTreeMap<String, Value> {
    let all = bed.contents();
    let service = format!("v1/services {NAMESPACE}/submariner-lighthouse-coredns");
    let address =
        all.get(&service).and_then(|service| service["spec"]["clusterIP"].as_str()).map(str::to_owned);
    let is_own = |key: &str| {
        // The addresses of Services are drawn; the broker's namespace is there in every cluster that has an operator.
        key.contains("/ipaddresses ")
            || key == format!("v1/namespaces -/{BROKER_NAMESPACE}")
            || key.contains(OPERATOR)
            || key.contains("fabrics")
            || key.ends_with("submariner-broker-info")
    };
    let shown = |(key, mut object): (String, Value)| {
        object.as_object_mut().unwrap().remove("status");
        if let Some(spec) = object["spec"].as_object_mut().filter(|_| key.starts_with("v1/services")) {
            spec.retain(|field, _| !field.starts_with("clusterIP"));
        }
        if key.starts_with("v1/secrets") {
            let data = object["data"].as_object().map(|data| data.keys().cloned().collect::<Vec<_>>());
            object = json!({"keys": data, "labels": object["metadata"]["labels"]});
        }
        let text =
            address.as_ref().map_or_else(|| object.to_string(), |ip| object.to_string().replace(ip, "A"));
        (key, serde_json::from_str(&text).unwrap())
    };
    all.into_iter().filter(|(key, _)| !is_own(key)).map(shown).collect()
}

/// Makes both clusters what the commands make of them, and takes that away again. Returns what they held, and the join data.
fn by_command(east: &Bed, west: &Bed) -> ([BTreeMap<String, Value>; 2], BrokerInfo) {
    let info = run(async {
        let (info, _) = east.deploy(None).await.unwrap();
        for (bed, id) in [(east, "east"), (west, "west")] {
            bed.join(&info, &bed.options(&info, id)).await.unwrap();
        }
        info
    });
    let made = [east, west].map(|bed| {
        bed.settle();
        comparable(bed)
    });
    run(async {
        west.uninstall(Some(&info)).await.unwrap();
        east.uninstall(None).await.unwrap();
    });
    (made, info)
}

#[test]
fn operator_makes_of_fabrics_what_the_commands_make_and_leaves_nothing() {
    let Some(_turn) = root_test("operator_makes_of_fabrics_what_the_commands_make_and_leaves_nothing") else {
        return;
    };
    let lab = Lab::new().unwrap();
    let (east, west) = bed(&lab);
    let (expected, info) = by_command(&east, &west);
    for bed in [&east, &west] {
        bed.prepare_operator();
    }
    let before = [&east, &west].map(Bed::contents);
    // The same key as the commands had: pods carry a checksum of it.
    east.client.apply(broker_info_secret(BROKER_NAMESPACE, &info).as_value()).unwrap();

    // The real program, with an election and its own rights.
    let operators = [("east", &east), ("west", &west)].map(|(name, bed)| {
        let path = bed.operator_kubeconfig();
        let program = programs::path("trieste-operator").unwrap();
        let words = [
            "--kubeconfig",
            path.to_str().unwrap(),
            "--metrics=off",
            "--resync=5",
            "--identity",
            name,
            "--submariner-objects",
        ];
        Daemon::start(&lab, &format!("operator-{name}"), &Run::new(&program).args(words)).unwrap()
    });
    let spec = json!({"brokerConfig": east.broker_spec(), "joinConfig": east.member_spec(None)});
    east.apply_fabric("east", &spec).unwrap();
    east.wait_condition("east", "Ready", "True");
    copy_join_data(&east, &west);
    west.apply_fabric("west", &json!({"joinConfig": west.member_spec(Some(&json!({})))})).unwrap();
    west.wait_condition("west", "Ready", "True");
    for (bed, expected) in [&east, &west].into_iter().zip(&expected) {
        eventually("the operator to make what the commands make", PASS, || {
            let differences = inventory::differences(expected, &comparable(bed));
            anyhow::ensure!(differences.is_empty(), "{differences:#?}");
            Ok(())
        })
        .unwrap();
    }
    repaired_and_edited(&west);

    // The broker is deleted first, and goes last.
    east.delete_fabric("east");
    east.wait_condition("east", "BrokerReady", "False");
    west.delete_fabric("west");
    west.wait_fabric_gone("west");
    east.wait_fabric_gone("east");
    west.client.delete(&format!("/api/v1/namespaces/{OPERATOR}/secrets/submariner-broker-info")).unwrap();
    for operator in operators {
        operator.check().unwrap();
        operator.stop().unwrap();
    }
    for (bed, before) in [&east, &west].into_iter().zip(before) {
        bed.client
            .delete(&format!(
                "/apis/coordination.k8s.io/v1/namespaces/{OPERATOR}/leases/trieste-operator-lock"
            ))
            .unwrap();
        bed.assert_contents(&before);
    }
}

/// As an administrator does: the Secret that the broker publishes, in the other cluster's operator namespace.
fn copy_join_data(from: &Bed, to: &Bed) {
    let path = format!("/api/v1/namespaces/{BROKER_NAMESPACE}/secrets/submariner-broker-info");
    let secret = from.client.get(&path).unwrap();
    let copy = json!({"apiVersion": "v1", "kind": "Secret", "data": secret["data"],
        "metadata": {"namespace": OPERATOR, "name": "submariner-broker-info"}});
    to.client.apply(&copy).unwrap();
}

/// What others change is repaired and told; an edit of the Fabric acts; what cannot be carried out is refused with what to do.
fn repaired_and_edited(west: &Bed) {
    let gateway = format!("/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/submariner-gateway");
    let role = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles/submariner-gateway");
    west.client
        .patch(&gateway, &json!({"spec": {"template": {"metadata": {"labels": {"component": "mine"}}}}}))
        .unwrap();
    west.client.patch(&role, &json!({"rules": []})).unwrap();
    let is_back = |set: &Value| set["spec"]["template"]["metadata"]["labels"]["component"] != "mine";
    west.client.wait(&gateway, PASS, is_back).unwrap();
    west.client
        .wait(&role, PASS, |role| role["rules"].as_array().is_some_and(|rules| !rules.is_empty()))
        .unwrap();
    eventually("an Event about the repair", PASS, || {
        let events = west.client.list("/api/v1/namespaces/default/events")?;
        let repaired = events
            .iter()
            .filter(|event| event["reason"] == "Repaired" && event["involvedObject"]["name"] == "west");
        let text: Vec<&str> = repaired.filter_map(|event| event["message"].as_str()).collect();
        let has = |word: &str| text.iter().any(|text| text.contains(word));
        anyhow::ensure!(has("DaemonSet submariner-operator/submariner-gateway") && has("Role"), "{text:?}");
        Ok(())
    })
    .unwrap();

    let mut spec = json!({"joinConfig": west.member_spec(Some(&json!({})))});
    spec["joinConfig"]["nattPort"] = json!(4501);
    spec["joinConfig"]["nodeSelector"] = json!({"kubernetes.io/os": "linux"});
    west.apply_fabric("west", &spec).unwrap();
    west.wait_condition("west", "Ready", "True");
    let submariner = format!("/apis/submariner.io/v1alpha1/namespaces/{NAMESPACE}/submariners/submariner");
    west.client.wait(&submariner, PASS, |found| found["spec"]["ceIPSecNATTPort"] == 4501).unwrap();

    for (edit, reason) in [
        (json!({"joinConfig": {"nattPort": 4490}}), "cannot share a UDP port"),
        (json!({"joinConfig": {"ikePort": 501}}), "IKE uses UDP port 500"),
        (json!({"joinConfig": {"clusterCIDR": "10.0.0.0"}}), "expected CIDRs separated by commas"),
        (json!({"joinConfig": {"globalnetCIDR": "242.0.0.0/16", "globalnetClusterSize": 5}}), "not both"),
        (json!({"joinConfig": {"labelGateway": false, "gateways": 2}}), "switch labelGateway on"),
        (json!({"joinConfig": {"brokerInfoRef": {"namespace": "default"}}}), "Unsupported value"),
        (json!({"cloudPrepareConfig": {}}), "name one cloud"),
        (json!({"cloudPrepareConfig": {"generic": {}, "azure": {}}}), "name one cloud"),
        (json!({"cloudPrepareConfig": {"aws": {}}}), "credentialsSecret is missing"),
        (json!({"cloudPrepareConfig": {"generic": {}, "sources": ["10.0.0.1"]}}), "expected CIDRs such as"),
        (json!({"joinConfig": null}), "give brokerConfig to make this cluster the broker"),
        (json!({"joinConfig": {"brokerInfoRef": null}}), "joinConfig needs brokerInfoRef"),
        (
            json!({"brokerConfig": {"connectivityEnabled": false, "serviceDiscoveryEnabled": false}}),
            "switch one of them on",
        ),
        (json!({"brokerConfig": {"globalnetCIDRRange": "x"}}), "such as 242.0.0.0/8"),
    ] {
        let path = "/apis/trieste.io/v1alpha1/fabrics/west";
        let error = format!("{:#}", west.client.patch(path, &json!({"spec": edit})).unwrap_err());
        assert!(error.contains(reason), "{edit}: {error}");
    }
    let path = "/apis/trieste.io/v1alpha1/fabrics/west";
    west.client.patch(path, &json!({"spec": {"joinConfig": {"clusterID": "west", "gateways": 2}}})).unwrap();
    let error =
        west.client.patch(path, &json!({"spec": {"joinConfig": {"clusterID": "other"}}})).unwrap_err();
    assert!(format!("{error:#}").contains("a member keeps its ID"), "{error:#}");
    // It may be left out again, and fewer gateways take no label off.
    west.client.patch(path, &json!({"spec": {"joinConfig": {"clusterID": null, "gateways": 1}}})).unwrap();
    west.wait_condition("west", "Ready", "True");
}

#[test]
fn operator_that_is_killed_at_any_write_comes_to_its_end() {
    let Some(_turn) = root_test("operator_that_is_killed_at_any_write_comes_to_its_end") else { return };
    let lab = Lab::new().unwrap();
    let (east, west) = bed(&lab);
    for bed in [&east, &west] {
        bed.prepare_operator();
    }
    let before = east.contents();
    let cloud = json!({"generic": {"gateways": 2}});
    let spec = json!({"brokerConfig": east.broker_spec(), "joinConfig": east.member_spec(None), "cloudPrepareConfig": cloud});
    east.apply_fabric("east", &spec).unwrap();
    let path = "/apis/trieste.io/v1alpha1/fabrics/east";
    let is_running = || east.client.get(path).is_ok_and(|found| found["status"]["phase"] == "Running");
    killed_again_and_again(&east, &is_running);
    east.wait_condition("east", "Ready", "True");
    east.delete_fabric("east");
    let is_gone = || east.client.find(path).is_ok_and(|found| found.is_none());
    killed_again_and_again(&east, &is_gone);
    east.assert_contents(&before);
    drop(west);
}

/// Runs operators that are killed at a later write each, until it is done, and one that is not killed for what is left.
fn killed_again_and_again(bed: &Bed, is_done: &dyn Fn() -> bool) {
    let stride = usize::try_from(stride()).unwrap() * 4;
    for writes in (1..MANY).step_by(stride) {
        let crash = Crash::after(writes);
        let ended = run(async {
            let operator = bed.start_operator(&crash);
            let until = std::time::Instant::now() + PASS;
            while !crash.has_struck() && !is_done() && std::time::Instant::now() < until {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            drop(operator);
            is_done()
        });
        if ended {
            eprintln!("operator: killed until write {writes}");
            return;
        }
    }
    panic!("it does not end");
}

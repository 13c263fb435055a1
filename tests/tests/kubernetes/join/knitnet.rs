//! The resource of the first users of an operator, carried out by ours on real API servers: a broker and a member, the join data copied as
//! they did.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use serde_json::{Value, json};
use trieste_control::api::crd;
use trieste_tests::cluster::BROKER_NAMESPACE;
use trieste_tests::wait::eventually;

use super::bed::{Bed, bed};
use super::operator::PASS;
use super::*;
use crate::cloud::ec2::Ec2;

const GROUP: &str = "/apis/operator.tkestack.io/v1alpha1";

impl Bed {
    /// Applies the definitions of the resource.
    fn define_tkestack(&self) {
        for definition in crd::tkestack() {
            self.client.apply(&definition).unwrap();
        }
        for plural in ["fabrics", "knitnets"] {
            eventually("the kinds to be served", PATIENCE, || self.client.list(&format!("{GROUP}/{plural}")))
                .unwrap();
        }
        self.settle();
    }

    fn wait_phase(&self, path: &str, phase: &str) -> Value {
        let mut found = Value::Null;
        eventually(&format!("{path} to be {phase}"), PASS, || {
            found = self.client.get(path)?;
            anyhow::ensure!(found["status"]["phase"] == phase, "{}", found["status"]);
            Ok(())
        })
        .unwrap();
        found
    }
}

fn message(object: &Value, kind: &str) -> String {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let found = conditions.filter(|condition| condition["type"] == kind);
    found.map(|condition| condition["message"].to_string()).collect()
}

/// Returns a map of join data with its content.
fn published(bed: &Bed) -> Option<(Value, Value)> {
    let path = format!("/api/v1/namespaces/{BROKER_NAMESPACE}/configmaps/submariner-broker-info");
    let map = bed.client.find(&path).unwrap()?;
    let content = URL_SAFE.decode(map["data"]["brokerInfo"].as_str().unwrap()).unwrap();
    Some((map, serde_json::from_slice(&content).unwrap()))
}

#[test]
fn operator_carries_out_the_resource_of_its_first_users_and_leaves_nothing() {
    let Some(_turn) = root_test("operator_carries_out_the_resource_of_its_first_users_and_leaves_nothing")
    else {
        return;
    };
    let lab = Lab::new().unwrap();
    let (east, west) = bed(&lab);
    for bed in [&east, &west] {
        bed.prepare_operator();
        bed.define_tkestack();
    }
    let ec2 = Ec2::start(&lab).unwrap();
    in_aws(&west, &ec2);
    let before = ([&east, &west].map(Bed::contents), ec2.show());
    let (east, west, ec2) = run(async {
        let operators = [&east, &west].map(|bed| bed.start_operator(&Crash::after(i64::MAX)));
        let done = tokio::task::spawn_blocking(move || {
            carried_out(&east, &west, &ec2);
            (east, west, ec2)
        });
        let beds = done.await.unwrap();
        for operator in operators {
            operator.stop().await;
        }
        beds
    });
    for (bed, before) in [&east, &west].into_iter().zip(before.0) {
        bed.assert_contents(&before);
    }
    assert_eq!(ec2.show(), before.1, "the cloud has what it had");
}

/// Makes the nodes machines of EC2, and gives the operator what it asks EC2 with.
fn in_aws(bed: &Bed, ec2: &Ec2) {
    let machines = ec2.make("eks", "west");
    for (node, machine) in ["control", "worker"].into_iter().zip(&machines) {
        let (zone, id) = (machine["zone"].as_str().unwrap(), machine["id"].as_str().unwrap());
        let change = json!({"spec": {"providerID": format!("aws:///{zone}/{id}")}});
        bed.client.patch(&format!("/api/v1/nodes/{node}"), &change).unwrap();
    }
    let keys = json!({"aws_access_key_id": "AKIDEXAMPLE", "aws_secret_access_key": "hidden", "aws_endpoint_url": ec2.url()});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "stringData": keys,
        "metadata": {"namespace": "trieste-operator", "name": "aws"}});
    bed.client.apply(&secret).unwrap();
}

/// What a member's resource is called.
const MEMBER: &str = "/apis/operator.tkestack.io/v1alpha1/namespaces/default/knitnets/member-sample";
/// What a broker's is called.
const BROKER: &str = "/apis/operator.tkestack.io/v1alpha1/namespaces/default/fabrics/broker-sample";

fn resource(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "operator.tkestack.io/v1alpha1", "kind": kind, "spec": spec,
        "metadata": {"namespace": "default", "name": name}})
}

/// Asks for join data in a ConfigMap, or no longer, and waits until it is so.
fn publish(east: &Bed, value: &Value) {
    let annotation = json!({"metadata": {"annotations": {"trieste.io/publish-broker-info": value}}});
    east.client.patch(BROKER, &annotation).unwrap();
    eventually("the ConfigMap to come or go", PASS, || {
        anyhow::ensure!(published(east).is_some() == value.is_string());
        let warned = message(&east.client.get(BROKER)?, "Warnings");
        anyhow::ensure!(warned.contains("in clear") == value.is_string(), "{warned}");
        Ok(())
    })
    .unwrap();
}

/// A broker, a member, and both gone again.
fn carried_out(east: &Bed, west: &Bed, ec2: &Ec2) {
    let url = json!({"publicAPIServerURL": east.faults.url()});
    east.client.apply(&resource("Fabric", "broker-sample", &json!({"brokerConfig": url}))).unwrap();
    let running = east.wait_phase(BROKER, "Running");
    assert!(published(east).is_none(), "a token in a ConfigMap is published where that is asked for");
    assert_eq!(running["spec"]["brokerConfig"]["defaultGlobalnetClusterSize"], 65_336, "{running}");
    publish(east, &json!("ConfigMap"));
    let (map, content) = published(east).unwrap();
    assert_eq!(map["metadata"]["labels"]["operator.tkestack.io/fabric-name"], "broker-sample");
    assert_eq!(map["metadata"]["labels"]["operator.tkestack.io/fabric-namespace"], "default");
    assert_eq!(content["globalnetCIDRRange"], "242.0.0.0/8");
    let info = BrokerInfo::parse(map["data"]["brokerInfo"].as_str().unwrap().as_bytes()).unwrap();
    assert_eq!(info.broker_url, east.faults.url());

    // As its users do: the ConfigMap to the same name and namespace, and then the resource. Here the other way round.
    let join = json!({"clusterID": "west", "clusterCIDR": west.nets.0, "serviceCIDR": west.nets.1, "natTraversal": false});
    let spec = json!({"action": "join", "joinConfig": join, "cloudPrepareConfig": {
        "credentialsSecret": {"name": "aws"}, "infraID": "west", "region": "eu-west-1",
        "aws": {"gatewayInstance": "m5n.large", "gateways": 1}}});
    west.client.apply(&resource("Knitnet", "member-sample", &spec)).unwrap();
    let failed = west.wait_phase(MEMBER, "Failed");
    assert!(message(&failed, "Joined").contains("copy the Secret"), "{failed}");
    let copy = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": map["data"],
        "metadata": {"namespace": BROKER_NAMESPACE, "name": "submariner-broker-info"}});
    west.client.apply(&copy).unwrap();
    let running = west.wait_phase(MEMBER, "Running");
    assert_eq!(running["status"]["clusterID"], "west");
    assert!(message(&running, "Warnings").contains("has no public address"), "{running}");
    assert!(!running.to_string().contains("hidden"), "{running}");
    let shown = ec2.show();
    let passes = ec2.group(&shown, "west-submariner-gw-sg")["permissions"].to_string();
    assert!(passes.contains("4500") && passes.contains("4490"), "{passes}");
    let machines = shown["instances"].as_object().unwrap().values();
    let has_group = |machine: &&Value| machine["groups"].to_string().contains("west-submariner-gw-sg");
    assert_eq!(machines.filter(has_group).count(), 1, "{shown}");
    let gateways = west.client.list("/api/v1/nodes?labelSelector=submariner.io/gateway%3Dtrue").unwrap();
    assert_eq!(gateways.len(), 1, "join labels no other node");

    // What is published is taken back where nobody asks for it any more, and goes with the broker where somebody does.
    publish(east, &Value::Null);
    publish(east, &json!("ConfigMap"));
    for (bed, path) in [(west, MEMBER), (east, BROKER)] {
        bed.client.delete(path).unwrap();
        bed.wait_gone(path);
    }
    let copied = format!("/api/v1/namespaces/{BROKER_NAMESPACE}/configmaps/submariner-broker-info");
    west.client.delete(&copied).unwrap();
}

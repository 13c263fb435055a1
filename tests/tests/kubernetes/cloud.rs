//! Clouds prepared by the command: a real API server, and a server that answers as the cloud's.

pub(crate) mod ec2;

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use trieste_tests::command::{Output, Run};
use trieste_tests::guard::root_test;
use trieste_tests::kubernetes::{ApiServer, Client, Faults};
use trieste_tests::lab::Lab;
use trieste_tests::programs;

use ec2::Ec2;

/// Longer than anything takes that works at all.
const LONG: Duration = Duration::from_secs(90);
const MACHINE_SETS: &str = "/apis/machine.openshift.io/v1beta1/namespaces/openshift-machine-api/machinesets";

/// A cluster whose nodes are machines of a cloud.
struct Cluster {
    client: Client,
    kubeconfig: PathBuf,
    _faults: Faults,
    _server: ApiServer,
}

impl Cluster {
    fn start(lab: &Lab, name: &str, machines: &[Value]) -> Self {
        let server = ApiServer::alone(lab, name).unwrap();
        let client = server.client().clone();
        for (number, machine) in machines.iter().enumerate() {
            let (zone, id) = (machine["zone"].as_str().unwrap(), machine["id"].as_str().unwrap());
            let labels =
                json!({"topology.kubernetes.io/zone": zone, "topology.kubernetes.io/region": "eu-west-1"});
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("node-{number}"), "labels": labels},
                "spec": {"providerID": format!("aws:///{zone}/{id}")}});
            client.apply(&node).unwrap();
            let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
            client.patch(&format!("/api/v1/nodes/node-{number}/status"), &status).unwrap();
        }
        let faults = Faults::on_loopback(&server).unwrap();
        Self { client, kubeconfig: faults.admin().unwrap(), _faults: faults, _server: server }
    }

    /// Runs `trieste cloud` with these words, and credentials in the environment.
    fn cloud(&self, ec2: &Ec2, words: &[&str]) -> Output {
        Run::new(programs::path("trieste").unwrap())
            .arg("cloud")
            .args(words)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("AWS_ENDPOINT_URL", ec2.url())
            .env("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
            .env("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
            .timeout(LONG)
            .output()
            .unwrap()
    }

    fn nodes(&self) -> Vec<Value> {
        let kept = |node: &Value| {
            json!([node["metadata"]["name"], node["metadata"]["labels"], node["metadata"]["annotations"]])
        };
        self.client.list("/api/v1/nodes").unwrap().iter().map(kept).collect()
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", output.stdout, output.stderr)
}

fn done(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(output));
    text(output)
}

/// Gives a cluster the kind of which OpenShift makes machines, and one set of workers.
fn make_openshift(client: &Client, name: &str) {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "machinesets.machine.openshift.io", "annotations": {"api-approved.kubernetes.io": "unapproved, a test"}},
        "spec": {
            "group": "machine.openshift.io", "scope": "Namespaced",
            "names": {"kind": "MachineSet", "listKind": "MachineSetList", "plural": "machinesets", "singular": "machineset"},
            "versions": [{"name": "v1beta1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    });
    client.apply(&definition).unwrap();
    client.create_namespace("openshift-machine-api").unwrap();
    trieste_tests::wait::eventually("the kind to be served", LONG, || client.list(MACHINE_SETS)).unwrap();
    let role = json!({"machine.openshift.io/cluster-api-machine-role": "worker"});
    let provider = json!({"ami": {"id": "ami-of-workers"}, "iamInstanceProfile": {"id": "of-workers"}, "instanceType": "m5.large"});
    let set = json!({"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet",
        "metadata": {"name": format!("{name}-worker-a"), "namespace": "openshift-machine-api"},
        "spec": {"replicas": 1, "template": {"metadata": {"labels": role}, "spec": {"providerSpec": {"value": provider}}}}});
    client.apply(&set).unwrap();
}

#[test]
fn cloud_of_machines_is_prepared_by_what_the_nodes_name_and_taken_back() {
    let Some(_turn) = root_test("cloud_of_machines_is_prepared_by_what_the_nodes_name_and_taken_back") else {
        return;
    };
    let lab = Lab::new().unwrap();
    let ec2 = Ec2::start(&lab).unwrap();
    let machines = ec2.make("eks", "east");
    ec2.make("eks", "other");
    let cluster = Cluster::start(&lab, "east", &machines);
    // Pods have addresses of the VPC.
    let pods = json!({"metadata": {"labels": {"app": "aws-node"}}, "spec": {"containers": [{"name": "a", "image": "a"}]}});
    let plugin = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "aws-node", "namespace": "kube-system"},
        "spec": {"selector": {"matchLabels": {"app": "aws-node"}}, "template": pods}});
    cluster.client.wait("/api/v1/namespaces/kube-system", LONG, |_| true).unwrap();
    cluster.client.apply(&plugin).unwrap();
    let before = (ec2.show(), cluster.nodes());

    let words = ["prepare", "aws", "--gateways", "2", "--sources", "198.51.100.0/24,2001:db8::/32"];
    let dry = done(&cluster.cloud(&ec2, &[&words[..], &["--dry-run"]].concat()));
    assert!(dry.contains("create security group east-submariner-gw-sg"), "{dry}");
    assert_eq!((ec2.show(), cluster.nodes()), before, "a dry run changes nothing");

    let first = done(&cluster.cloud(&ec2, &words));
    assert!(first.contains("has no public address"), "{first}");
    let shown = ec2.show();
    let gateways = ec2.group(&shown, "east-submariner-gw-sg");
    let passes = |protocol: &str, port: Option<u16>, source: &str| {
        let ports = port.map_or_else(|| json!([]), |port| json!([port, port]));
        let wanted = json!([protocol, ports, source]);
        gateways["permissions"].as_array().unwrap().contains(&wanted)
    };
    for source in ["198.51.100.0/24", "2001:db8::/32"] {
        for (protocol, port) in [("udp", Some(4500)), ("udp", Some(4490)), ("udp", Some(500)), ("50", None)] {
            assert!(passes(protocol, port, source), "{protocol} {port:?} {source}: {gateways}");
        }
    }
    assert_eq!(gateways["permissions"].as_array().unwrap().len(), 8, "{gateways}");
    let of_cluster = |name: &str| {
        let machine = machines.iter().find(|machine| machine["id"] == name);
        machine.is_some()
    };
    let in_group: Vec<&String> = shown["instances"]
        .as_object()
        .unwrap()
        .iter()
        .filter(|(_, machine)| {
            machine["groups"].as_array().unwrap().contains(&json!("east-submariner-gw-sg"))
        })
        .map(|(id, machine)| {
            assert_eq!(machine["check"], false, "{id}");
            id
        })
        .collect();
    assert_eq!(in_group.len(), 2, "{shown}");
    assert!(in_group.iter().all(|id| of_cluster(id)));
    let labelled = cluster.client.list("/api/v1/nodes?labelSelector=submariner.io/gateway%3Dtrue").unwrap();
    assert_eq!(labelled.len(), 2);

    let again = done(&cluster.cloud(&ec2, &words));
    assert!(again.contains("Everything was prepared already"), "{again}");
    assert_eq!(ec2.show(), shown);

    // Another port: the old one passes no longer.
    done(&cluster.cloud(&ec2, &[&words[..], &["--natt-port", "4501"]].concat()));
    let gateways = ec2.group(&ec2.show(), "east-submariner-gw-sg")["permissions"].clone();
    assert!(!gateways.to_string().contains("4500") && gateways.to_string().contains("4501"), "{gateways}");

    let end = done(&cluster.cloud(&ec2, &["cleanup", "aws"]));
    assert!(end.contains("Nothing of the preparation is left"), "{end}");
    assert_eq!((ec2.show(), cluster.nodes()), before, "what was there is there, and nothing else");
    let none = done(&cluster.cloud(&ec2, &["cleanup", "aws"]));
    assert!(none.contains("There was nothing to take back"), "{none}");

    // A machine that has ended, and whose Node has not gone yet, is in nobody's way.
    ec2.end(machines[2]["id"].as_str().unwrap());
    let before = (ec2.show(), cluster.nodes());
    done(&cluster.cloud(&ec2, &words));
    done(&cluster.cloud(&ec2, &["cleanup", "aws"]));
    assert_eq!((ec2.show(), cluster.nodes()), before);

    // Without a cloud that can be asked: the list for people, and labels.
    let listed = done(&cluster.cloud(&ec2, &["prepare", "generic", "--sources", "198.51.100.0/24"]));
    assert!(listed.contains("let UDP 4500 pass from 198.51.100.0/24 to the gateways"), "{listed}");
    assert!(listed.contains("let UDP 4800 pass from the cluster's nodes to the cluster's nodes"), "{listed}");
    assert_ne!(cluster.nodes(), before.1, "a node is labelled");
    done(&cluster.cloud(&ec2, &["cleanup", "generic"]));
    assert_eq!((ec2.show(), cluster.nodes()), before);
}

#[test]
fn cloud_of_openshift_gets_machine_sets_in_public_subnets_and_is_taken_back() {
    let Some(_turn) = root_test("cloud_of_openshift_gets_machine_sets_in_public_subnets_and_is_taken_back")
    else {
        return;
    };
    let lab = Lab::new().unwrap();
    let ec2 = Ec2::start(&lab).unwrap();
    let machines = ec2.make("openshift", "west-x7k2p");
    let cluster = Cluster::start(&lab, "west", &machines);
    make_openshift(&cluster.client, "west-x7k2p");
    let sets = || {
        let sets = cluster.client.list(MACHINE_SETS).unwrap();
        sets.into_iter()
            .map(|set| (set["metadata"]["name"].as_str().unwrap().to_owned(), set["spec"].clone()))
            .collect::<Vec<_>>()
    };
    let before = (ec2.show(), cluster.nodes(), sets());

    let folder = tempfile::tempdir().unwrap();
    let metadata = folder.path().join("metadata.json");
    std::fs::write(&metadata, json!({"infraID": "west-x7k2p", "aws": {"region": "eu-west-1"}}).to_string())
        .unwrap();
    let path = metadata.display().to_string();
    let words =
        ["prepare", "aws", "--ocp-metadata", &path, "--gateways", "2", "--gateway-instance", "m5n.large"];
    done(&cluster.cloud(&ec2, &words));
    let made: Vec<(String, Value)> =
        sets().into_iter().filter(|(name, _)| name.contains("submariner-gw")).collect();
    let names: Vec<&str> = made.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["west-x7k2p-submariner-gw-eu-west-1a", "west-x7k2p-submariner-gw-eu-west-1b"]);
    let provider = &made[0].1["template"]["spec"]["providerSpec"]["value"];
    assert_eq!(provider["ami"]["id"], "ami-of-workers", "what workers are made of: {provider}");
    assert_eq!(provider["instanceType"], "m5n.large");
    assert_eq!(provider["publicIp"], true);
    let shown = ec2.show();
    for name in ["west-x7k2p-worker-sg", "west-x7k2p-master-sg"] {
        let permissions = ec2.group(&shown, name)["permissions"].to_string();
        assert!(permissions.contains("4800") && permissions.contains("4801"), "{name}: {permissions}");
    }
    let tagged = shown["subnets"]
        .as_object()
        .unwrap()
        .values()
        .filter(|tags| !tags["submariner.io/gateway"].is_null());
    assert_eq!(tagged.count(), 2);
    assert!(done(&cluster.cloud(&ec2, &words)).contains("Everything was prepared already"));

    let refused = cluster.cloud(&ec2, &["prepare", "aws", "--gateways", "3"]);
    assert!(
        !refused.status.success() && text(&refused).contains("next: ask for fewer gateways"),
        "{}",
        text(&refused)
    );
    assert_eq!(ec2.show(), shown, "nothing was changed");

    done(&cluster.cloud(&ec2, &["cleanup", "aws", "--ocp-metadata", &path]));
    assert_eq!((ec2.show(), cluster.nodes(), sets()), before);
}

//! The operator over objects of upstream's kinds, on real API servers and with its own rights: it leaves them alone while upstream's
//! operator runs, takes over what that has installed, acts on edits, and gives back what upstream's operator can take.

use serde_json::{Value, json};
use trieste_deploy::objects::names::cluster_token;
use trieste_deploy::objects::{broker_member, definitions};
use trieste_operator::worker::WorkerMetrics;
use trieste_tests::wait::eventually;

use super::bed::{Bed, bed};
use super::operator::{OPERATOR, PASS};
use super::*;

const API: &str = "/apis/submariner.io/v1alpha1/namespaces";
const SETS: &str = "/apis/apps/v1/namespaces/submariner-operator/daemonsets";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/submariner-operator/deployments";
const THEIRS: &str = "controllers.submariner.io/cleanup";

fn path(kind: &str) -> String {
    match kind {
        "Broker" => format!("{API}/{BROKER_NAMESPACE}/brokers/submariner-broker"),
        "ServiceDiscovery" => format!("{API}/{NAMESPACE}/servicediscoveries/service-discovery"),
        _ => format!("{API}/{NAMESPACE}/submariners/submariner"),
    }
}

impl Bed {
    /// Makes what subctl and upstream's operator make before anything runs: definitions, and the namespace.
    fn prepare_upstream(&self) {
        for definition in definitions() {
            let mut definition = definition.into_value();
            definition["metadata"].as_object_mut().unwrap().remove("labels");
            self.client.apply(&definition).unwrap();
        }
        eventually("upstream's kinds to be served", PATIENCE, || {
            self.client.list("/apis/submariner.io/v1alpha1/servicediscoveries")
        })
        .unwrap();
        self.settle();
    }

    /// Makes the account of a cluster on this broker, and returns the token's Secret.
    fn account_of(&self, id: &str) -> Value {
        for manifest in broker_member(id, BROKER_NAMESPACE) {
            self.client.apply(manifest.as_value()).unwrap();
        }
        let path = format!("/api/v1/namespaces/{BROKER_NAMESPACE}/secrets/{}", cluster_token(id));
        self.client.wait(&path, PATIENCE, |secret| secret["data"]["token"].is_string()).unwrap();
        self.client.get(&path).unwrap()
    }

    /// Makes the two Secrets of a member, as subctl does.
    fn put_secrets(&self, account: &Value, names: [&str; 2]) {
        let secret = |name: &str, data: Value| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": NAMESPACE, "name": name}, "data": data});
        self.client.apply(&secret(names[0], account["data"].clone())).unwrap();
        self.client.apply(&secret(names[1], json!({"psk": "bGFiLXBzay1sYWItcHNrLWxhYi1wc2s="}))).unwrap();
    }

    fn put_object(&self, kind: &str, spec: &Value) {
        let path = path(kind);
        let (collection, name) = path.rsplit_once('/').unwrap();
        let object = json!({"apiVersion": "submariner.io/v1alpha1", "kind": kind, "spec": spec,
            "metadata": {"name": name, "finalizers": [THEIRS]}});
        self.client.post(collection, &object).unwrap();
    }

    fn submariner(&self, broker: &Self) -> Value {
        json!({"broker": "k8s", "brokerK8sApiServer": broker.faults.url().trim_start_matches("https://"),
            "brokerK8sInsecure": true, "brokerK8sRemoteNamespace": BROKER_NAMESPACE,
            "brokerK8sSecret": "submariner-broker-secret", "ceIPSecPSKSecret": "submariner-ipsec-psk",
            "ceIPSecDebug": false, "clusterCIDR": self.nets.0, "clusterID": "west", "debug": false,
            "namespace": NAMESPACE, "natEnabled": false, "serviceCIDR": self.nets.1, "cableDriver": "vxlan",
            "repository": "quay.io/submariner", "version": "0.19.0"})
    }

    fn discovery(&self, broker: &Self) -> Value {
        json!({"brokerK8sApiServer": broker.faults.url().trim_start_matches("https://"), "brokerK8sInsecure": true,
            "brokerK8sRemoteNamespace": BROKER_NAMESPACE, "brokerK8sSecret": "access", "clusterID": "west",
            "debug": false, "namespace": NAMESPACE, "globalnetEnabled": true, "customDomains": ["a.example"],
            "nodeSelector": {"zone": "one"}})
    }

    /// Runs, or stops, upstream's operator, which nobody plays.
    fn scale_upstream(&self, replicas: u64) {
        let labels = json!({"name": "submariner-operator"});
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"namespace": NAMESPACE, "name": "submariner-operator"},
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
                "spec": {"containers": [{"name": "submariner-operator", "image": "quay.io/submariner/submariner-operator:x"}]}}}});
        self.client.apply(&object).unwrap();
    }

    fn wait_condition_of(&self, kind: &str, name: &str, expected: (&str, &str)) -> String {
        let mut message = String::new();
        eventually(&format!("{kind}'s condition {name} to be {expected:?}"), PASS, || {
            let found = self.client.get(&path(kind))?;
            let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let is_it = |condition: &&Value| {
                condition["type"] == name
                    && condition["status"] == expected.0
                    && condition["reason"] == expected.1
                    && condition["observedGeneration"] == found["metadata"]["generation"]
            };
            let condition = conditions.iter().find(is_it);
            anyhow::ensure!(condition.is_some(), "{}", found["status"]);
            message =
                condition.and_then(|condition| condition["message"].as_str()).unwrap_or_default().to_owned();
            Ok(())
        })
        .unwrap();
        message
    }

    fn wait_event(&self, reason: &str, kind: &str) {
        eventually(&format!("an Event {reason} about the {kind}"), PASS, || {
            let events = self.client.list("/api/v1/events")?;
            let is_it = |event: &&Value| event["reason"] == reason && event["involvedObject"]["kind"] == kind;
            anyhow::ensure!(events.iter().any(|event| is_it(&event)), "{} events", events.len());
            Ok(())
        })
        .unwrap();
    }

    fn finalizers(&self, kind: &str) -> Vec<Value> {
        let found = self.client.get(&path(kind)).unwrap();
        found["metadata"]["finalizers"].as_array().cloned().unwrap_or_default()
    }
}

/// A set of pods as upstream's operator makes it, with what ours has not.
fn theirs(kind: &str, name: &str) -> Value {
    let labels = json!({"app": name, "component": "x"});
    let container = json!({"name": name, "image": "quay.io/submariner/x:0.19.0", "env": [{"name": "THEIRS", "value": "1"}],
        "volumeMounts": [{"name": "broker-secret-volume", "mountPath": "/run/secrets/submariner.io/submariner-broker-secret"}],
        "securityContext": {"privileged": true}});
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"namespace": NAMESPACE, "name": name, "labels": labels},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": {"metadata": {"labels": labels},
            "spec": {"containers": [container], "nodeSelector": {"submariner.io/gateway": "true"},
                "volumes": [{"name": "broker-secret-volume", "secret": {"secretName": "submariner-broker-secret"}}]}}}})
}

/// Returns a broker, and a cluster that is registered with it as another tool does it, with its token and the key in these Secrets.
fn registered(lab: &Lab, secrets: [&str; 2]) -> (Bed, Bed) {
    let (east, west) = bed(lab);
    run(async { drop(east.deploy(None).await.unwrap()) });
    let account = east.account_of("west");
    west.prepare_operator();
    west.prepare_upstream();
    west.put_secrets(&account, secrets);
    (east, west)
}

#[test]
fn operator_adopts_a_submariner_of_upstreams_and_gives_it_back() {
    let Some(_turn) = root_test("operator_adopts_a_submariner_of_upstreams_and_gives_it_back") else {
        return;
    };
    let lab = Lab::new().unwrap();
    let (east, west) = registered(&lab, ["submariner-broker-secret", "submariner-ipsec-psk"]);
    west.client
        .patch("/api/v1/nodes/worker", &json!({"metadata": {"labels": {"submariner.io/gateway": "true"}}}))
        .unwrap();
    west.scale_upstream(1);
    for name in ["submariner-gateway", "submariner-globalnet", "submariner-metrics-proxy"] {
        west.client.post(SETS, &theirs("DaemonSet", name)).unwrap();
    }
    west.put_object("Submariner", &west.submariner(&east));
    west.settle();
    let before = west.client.get(&format!("{SETS}/submariner-gateway")).unwrap();

    run(async {
        let operator = west.start_operator(&Crash::after(i64::MAX));
        let metrics = operator.metrics.clone();
        let done = tokio::task::spawn_blocking(move || {
            west.wait_event("UpstreamOperator", "Submariner");
            let gateway = west.client.get(&format!("{SETS}/submariner-gateway")).unwrap();
            assert_eq!(
                gateway["metadata"]["generation"], before["metadata"]["generation"],
                "it is upstream's"
            );
            assert_eq!(west.finalizers("Submariner"), [THEIRS]);
            adopted(&west);
            edited(&west);
            given_back(&west, &metrics);
            removed(&west);
        });
        done.await.unwrap();
        operator.stop().await;
    });
}

/// Upstream's operator is scaled to 0: what it has installed is ours, and nothing of its pods is left in ours.
fn adopted(west: &Bed) {
    west.scale_upstream(0);
    west.wait_condition_of("Submariner", "Ready", ("True", "Ready"));
    let gateway = west.client.get(&format!("{SETS}/submariner-gateway")).unwrap();
    let text = gateway["spec"].to_string();
    assert_ne!(gateway["metadata"]["managedFields"][0]["manager"], "before-first-apply", "{gateway}");
    assert!(!text.contains("THEIRS") && !text.contains("broker-secret-volume"), "{text}");
    assert_eq!(gateway["spec"]["template"]["spec"]["containers"][0]["securityContext"]["privileged"], false);
    for name in ["submariner-globalnet", "submariner-metrics-proxy"] {
        assert!(!west.exists(&format!("{SETS}/{name}")), "{name}");
    }
    let warned = west.wait_condition_of("Submariner", "Warnings", ("True", "SeeMessage"));
    assert!(
        warned.contains("spec.repository quay.io/submariner, spec.version 0.19.0 not carried out"),
        "{warned}"
    );
    let found = west.client.get(&path("Submariner")).unwrap();
    let status = &found["status"];
    for (field, value) in [("clusterID", "west"), ("serviceCIDR", west.nets.1), ("networkPlugin", "generic")]
    {
        assert_eq!(status[field], value, "{status}");
    }
    assert_eq!(status["deploymentInfo"]["kubernetesType"], "k8s", "{status}");
    assert_eq!(status["gatewayDaemonSetStatus"]["status"]["numberReady"], 1, "{status}");
    assert_eq!(status["gateways"][0]["haStatus"], "active", "{status}");
    assert_eq!(found["spec"]["repository"], "quay.io/submariner", "the spec stays its writer's");
    assert!(found["metadata"]["labels"].is_null(), "{found}");
    assert_eq!(west.finalizers("Submariner"), [THEIRS, "trieste.io/member"]);
}

/// Edits act, or are refused by a condition.
fn edited(west: &Bed) {
    west.client
        .patch(&path("Submariner"), &json!({"spec": {"ceIPSecNATTPort": 4501, "debug": true}}))
        .unwrap();
    let port = |set: &Value| set["spec"]["template"]["spec"]["containers"][0]["ports"][0]["hostPort"] == 4501;
    west.client.wait(&format!("{SETS}/submariner-gateway"), PASS, port).unwrap();
    west.wait_condition_of("Submariner", "Joined", ("True", "Installed"));
    west.client.patch(&path("Submariner"), &json!({"spec": {"ceIPSecNATTPort": 70000}})).unwrap();
    let message = west.wait_condition_of("Submariner", "Joined", ("False", "InvalidSpec"));
    assert!(message.contains("spec.ceIPSecNATTPort"), "{message}");
    west.client.patch(&path("Submariner"), &json!({"spec": {"ceIPSecNATTPort": 4500}})).unwrap();
    west.wait_condition_of("Submariner", "Joined", ("True", "Installed"));
}

/// Upstream's operator runs again: it can write its own specification, and ours does not undo that.
fn given_back(west: &Bed, metrics: &WorkerMetrics) {
    let checks = || metrics.counts().passes.get(&("member", "waiting")).copied().unwrap_or_default();
    let wait_checks = |count: u64| {
        eventually(&format!("{count} checks"), PASS, || {
            anyhow::ensure!(checks() >= count, "{} checks", checks());
            Ok(())
        })
        .unwrap();
    };
    let before = checks();
    west.scale_upstream(1);
    // Whatever was under way has come to its end when ours looks who is responsible.
    wait_checks(before + 1);
    eventually("our finalizer to go", PASS, || {
        let left = west.finalizers("Submariner");
        anyhow::ensure!(left == [THEIRS], "{left:?}");
        Ok(())
    })
    .unwrap();
    let path = format!("{SETS}/submariner-gateway");
    eventually("upstream's operator to write its specification", PASS, || {
        let mut set = west.client.get(&path)?;
        set["apiVersion"] = json!("apps/v1");
        set["kind"] = json!("DaemonSet");
        set["spec"] = theirs("DaemonSet", "submariner-gateway")["spec"].clone();
        west.client.put(&path, &set)
    })
    .unwrap();
    let written = west.client.get(&path).unwrap()["metadata"]["generation"].clone();
    wait_checks(before + 3);
    assert_eq!(west.client.get(&path).unwrap()["metadata"]["generation"], written, "somebody undid it");
    adopted_again(west);
}

fn adopted_again(west: &Bed) {
    west.scale_upstream(0);
    let is_ours = |set: &Value| !set["spec"].to_string().contains("THEIRS");
    west.client.wait(&format!("{SETS}/submariner-gateway"), PASS, is_ours).unwrap();
    west.wait_condition_of("Submariner", "Ready", ("True", "Ready"));
}

/// The object is deleted: nothing of ours is left, and what others have made stays.
fn removed(west: &Bed) {
    west.client.delete(&path("Submariner")).unwrap();
    west.client.wait_gone(&path("Submariner"), PASS * 2).unwrap();
    for name in ["submariner-gateway", "submariner-routeagent"] {
        assert!(!west.exists(&format!("{SETS}/{name}")), "{name}");
    }
    for name in ["submariner-broker-secret", "submariner-ipsec-psk"] {
        assert!(west.exists(&format!("/api/v1/namespaces/{NAMESPACE}/secrets/{name}")), "{name}");
    }
    assert!(west.exists(&format!("{DEPLOYMENTS}/submariner-operator")));
    let definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/submariners.submariner.io";
    assert!(west.exists(definition));
    assert!(!west.exists(&format!("/api/v1/namespaces/{OPERATOR}/secrets/submariner-broker-info")));
}

#[test]
fn operator_carries_out_a_service_discovery_by_itself() {
    let Some(_turn) = root_test("operator_carries_out_a_service_discovery_by_itself") else { return };
    let lab = Lab::new().unwrap();
    let (east, west) = registered(&lab, ["access", "key"]);
    west.put_object("ServiceDiscovery", &west.discovery(&east));

    run(async {
        let operator = west.start_operator(&Crash::after(i64::MAX));
        let done = tokio::task::spawn_blocking(move || {
            west.wait_condition_of("ServiceDiscovery", "Ready", ("True", "Ready"));
            discovers(&west);
            west.client
                .patch(&path("ServiceDiscovery"), &json!({"spec": {"customDomains": ["b.example"]}}))
                .unwrap();
            west.wait_condition_of("ServiceDiscovery", "Ready", ("True", "Ready"));
            let zones = |set: &Value| variable(set, "TRIESTE_DNS_ZONES") == "clusterset.local,b.example";
            west.client.wait(&format!("{DEPLOYMENTS}/submariner-lighthouse-coredns"), PASS, zones).unwrap();
            west.client.delete(&path("ServiceDiscovery")).unwrap();
            west.client.wait_gone(&path("ServiceDiscovery"), PASS).unwrap();
            for name in ["submariner-lighthouse-agent", "submariner-lighthouse-coredns"] {
                assert!(!west.exists(&format!("{DEPLOYMENTS}/{name}")), "{name}");
            }
            assert!(
                !west.exists(&format!("/api/v1/namespaces/{NAMESPACE}/secrets/submariner-broker-secret"))
            );
            assert!(west.exists(&format!("/api/v1/namespaces/{NAMESPACE}/secrets/access")));
            let corefile = west.client.get("/api/v1/namespaces/kube-system/configmaps/coredns").unwrap();
            assert_eq!(corefile["data"]["Corefile"], ".:53 {\n    reload\n}\n");
        });
        done.await.unwrap();
        operator.stop().await;
    });
}

fn variable(set: &Value, name: &str) -> String {
    let all = set["spec"]["template"]["spec"]["containers"][0]["env"].as_array().cloned().unwrap_or_default();
    let found = all.iter().find(|variable| variable["name"] == name);
    found.and_then(|variable| variable["value"].as_str()).unwrap_or_default().to_owned()
}

/// Agent and DNS servers have what the object says, and nothing else of a member is there.
fn discovers(west: &Bed) {
    let agent = west.client.get(&format!("{DEPLOYMENTS}/submariner-lighthouse-agent")).unwrap();
    for (name, value) in [
        ("SUBMARINER_CLUSTERID", "west"),
        ("SUBMARINER_GLOBALNET_ENABLED", "true"),
        ("BROKER_K8S_REMOTENAMESPACE", BROKER_NAMESPACE),
        ("BROKER_K8S_INSECURE", "true"),
        ("BROKER_K8S_SECRET", "submariner-broker-secret"),
    ] {
        assert_eq!(variable(&agent, name), value, "{name}");
    }
    assert_eq!(agent["spec"]["template"]["spec"]["nodeSelector"]["zone"], "one");
    let secret =
        west.client.get(&format!("/api/v1/namespaces/{NAMESPACE}/secrets/submariner-broker-secret")).unwrap();
    let named = west.client.get(&format!("/api/v1/namespaces/{NAMESPACE}/secrets/access")).unwrap();
    assert_eq!(secret["data"]["token"], named["data"]["token"]);
    let corefile = west.client.get("/api/v1/namespaces/kube-system/configmaps/coredns").unwrap();
    assert!(corefile["data"]["Corefile"].as_str().unwrap().contains("a.example"), "{corefile}");
    assert!(west.client.list(SETS).unwrap().is_empty(), "no gateways and no route agents");
}

#[test]
fn operator_carries_out_a_broker_of_upstreams() {
    let Some(_turn) = root_test("operator_carries_out_a_broker_of_upstreams") else { return };
    let lab = Lab::new().unwrap();
    let (east, west) = bed(&lab);
    drop(west);
    east.prepare_operator();
    east.prepare_upstream();
    east.put_object(
        "Broker",
        &json!({"components": ["service-discovery", "connectivity"], "globalnetEnabled": false}),
    );
    run(async {
        let operator = east.start_operator(&Crash::after(i64::MAX));
        let done = tokio::task::spawn_blocking(move || {
            east.wait_condition_of("Broker", "Ready", ("True", "Ready"));
            let info = format!("/api/v1/namespaces/{BROKER_NAMESPACE}/configmaps/submariner-globalnet-info");
            assert_eq!(east.client.get(&info).unwrap()["data"]["globalnetEnabled"], "false");
            east.client.patch(&path("Broker"), &json!({"spec": {"globalnetEnabled": true}})).unwrap();
            east.client.wait(&info, PASS, |info| info["data"]["globalnetEnabled"] == "true").unwrap();
            east.client.patch(&path("Broker"), &json!({"spec": {"components": ["x"]}})).unwrap();
            let message = east.wait_condition_of("Broker", "BrokerReady", ("False", "InvalidSpec"));
            assert!(message.contains("spec.components: `x` is no component"), "{message}");
            east.client.delete(&path("Broker")).unwrap();
            east.client.wait_gone(&path("Broker"), PASS).unwrap();
            assert!(!east.exists(&info));
        });
        done.await.unwrap();
        operator.stop().await;
    });
}

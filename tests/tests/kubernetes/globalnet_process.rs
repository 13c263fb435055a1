//! Globalnet where upstream's operator has made accounts and pods: the gateway's account may not read Globalnet's objects, and
//! a process of its own, under an account of its own, does the work and tells the gateway.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::ensure;
use serde_json::json;
use trieste_control::admin::GlobalnetStatus;
use trieste_control::api::annotation;
use trieste_tests::cluster::NAMESPACE;
use trieste_tests::guard::root_test;
use trieste_tests::kubernetes::{GatewayPod, KubernetesLab, objects, rbac};
use trieste_tests::wait::eventually;

const PATIENCE: Duration = Duration::from_secs(60);
const CIDR: &str = "242.1.0.0/16";
/// The condition of a gateway whose Globalnet nobody does.
const AWAY: &str = "GlobalnetAway";

#[test]
fn with_upstreams_rights_a_process_of_its_own_does_globalnets_work_whoever_is_killed() {
    let name = "with_upstreams_rights_a_process_of_its_own_does_globalnets_work_whoever_is_killed";
    let Some(_turn) = root_test(name) else { return };
    let lab = KubernetesLab::start(1).unwrap();
    let client = lab.cluster("east").server.client();
    objects::install_service_exports(client).unwrap();
    rbac::prepare_globalnet(client).unwrap();
    let mut settings = lab.settings("east", 0).unwrap();
    settings.insert("SUBMARINER_GLOBALCIDR".to_owned(), CIDR.to_owned());
    let gateway = lab.spawn_gateway("east", 0, &settings).unwrap();

    // Alone it says which right it lacks, of which account, and what to do; and leaves the Lease to who can use it.
    let alone = wait(&gateway, "the missing right", |status| {
        let condition = status.conditions.iter().find(|condition| condition.name == AWAY);
        condition.is_some_and(|condition| condition.message.contains("submariner-globalnet"))
    });
    let message = &alone.conditions.iter().find(|condition| condition.name == AWAY).unwrap().message;
    for word in ["list", "egressips", "system:serviceaccount", rbac::GATEWAY, "start this image"] {
        assert!(message.contains(word), "{word}: {message}");
    }
    assert!(alone.egress.is_empty() && !alone.controllers.is_process);
    let conditions = gateway.status().unwrap().conditions;
    let message =
        &conditions.iter().find(|condition| condition.name == "RouteAgentsNotKnown").unwrap().message;
    assert!(message.contains("list") && message.contains("routeagents"), "{message}");
    let log = gateway.log();
    let mut said = HashSet::new();
    for line in log.lines().filter(|line| line.contains("forbidden")) {
        let (_time, text) = line.split_once(' ').unwrap();
        assert!(said.insert(text), "a missing right is told again and again: {line}");
    }
    let lease =
        format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/submariner-globalnet-lock");
    assert!(client.get(&lease).is_err(), "the gateway took the Lease");

    let process = lab.spawn_globalnet("east", 0).unwrap();
    let first = translates(&gateway);
    assert!(
        first.controllers.holder.starts_with(&lab.gateway_node("east", 0).name),
        "{:?}",
        first.controllers
    );
    let node = &lab.gateway_node("east", 0).name;
    let own = lab.cluster("east").wait_object("gateways", node, PATIENCE, |gateway| {
        gateway["metadata"]["annotations"][annotation::GLOBAL_IP].is_string()
    });
    own.unwrap();
    // The gateway on the same node leaves the process's Lease alone: nobody has taken it since.
    assert_eq!(client.get(&lease).unwrap()["spec"]["leaseTransitions"], 0);

    // It is killed: what is translated stays, and its successor moves no address.
    process.kill().unwrap();
    let orphaned = wait(&gateway, "the process to be missed", |status| !status.controllers.is_process);
    assert_eq!(addresses(&orphaned), addresses(&first));
    let process = lab.spawn_globalnet("east", 0).unwrap();
    assert_eq!(addresses(&translates(&gateway)), addresses(&first));

    // The gateway is killed: it begins with what it remembers, and is told again.
    gateway.kill().unwrap();
    let gateway = lab.spawn_gateway("east", 0, &settings).unwrap();
    assert_eq!(addresses(&translates(&gateway)), addresses(&first));

    // What changes in the cluster arrives: a namespace with addresses of its own.
    client.create_namespace("demo").unwrap();
    let egress = json!({"apiVersion": "submariner.io/v1", "kind": "GlobalEgressIP",
        "metadata": {"name": "own", "namespace": "demo"}, "spec": {"numberOfIPs": 2}});
    client.apply(&egress).unwrap();
    wait(&gateway, "the rule of the namespace", |status| {
        status.egress.iter().any(|rule| rule.name == "demo/own" && rule.addresses.len() == 2)
    });

    // The other gateway's node has both, too: its process stands by, and takes over.
    let mut other_settings = lab.settings("east", 1).unwrap();
    other_settings.insert("SUBMARINER_GLOBALCIDR".to_owned(), CIDR.to_owned());
    let other = lab.spawn_gateway("east", 1, &other_settings).unwrap();
    let _other_process = lab.spawn_globalnet("east", 1).unwrap();
    let waiting = wait(&other, "the second gateway's rules", |status| {
        status.controllers.is_process && status.egress.len() == 2
    });
    assert_eq!((waiting.controllers.phase.as_str(), waiting.controllers.is_running), ("standby", false));
    assert!(process.stop().unwrap(), "the process did not end by itself");
    wait(&other, "the second process to take over", |status| status.controllers.is_running);
}

#[test]
fn gateways_whose_processes_give_out_addresses_ping_each_other_by_them() {
    let name = "gateways_whose_processes_give_out_addresses_ping_each_other_by_them";
    let Some(_turn) = root_test(name) else { return };
    let lab = KubernetesLab::start(2).unwrap();
    let clusters = [("east", CIDR, "242.2."), ("west", "242.2.0.0/16", "242.1.")];
    let running = clusters.map(|(cluster, cidr, _)| {
        let client = lab.cluster(cluster).server.client();
        objects::install_service_exports(client).unwrap();
        rbac::prepare_globalnet(client).unwrap();
        let mut settings = lab.settings(cluster, 0).unwrap();
        settings.insert("SUBMARINER_GLOBALCIDR".to_owned(), cidr.to_owned());
        let gateway = lab.spawn_gateway(cluster, 0, &settings).unwrap();
        let process = lab.spawn_globalnet(cluster, 0).unwrap();
        let agent = lab.route_agent(cluster, lab.gateway_node(cluster, 0)).unwrap();
        let agent = agent.start(&[("SUBMARINER_GLOBALCIDR", cidr)]).unwrap();
        (gateway, process, agent)
    });
    for (cluster, _, remote) in clusters {
        let node = &lab.gateway_node(cluster, 0).name;
        let connected = lab.cluster(cluster).wait_object("gateways", node, PATIENCE, |gateway| {
            let connection = &gateway["status"]["connections"][0];
            let pinged = connection["endpoint"]["healthCheckIP"].as_str().unwrap_or_default();
            let has_answered = connection["latencyRTT"]["last"].as_str().is_some_and(|last| !last.is_empty());
            connection["status"] == "connected" && pinged.starts_with(remote) && has_answered
        });
        connected.unwrap();
    }
    drop(running);
}

/// Waits until the process's rules are in use.
fn translates(gateway: &GatewayPod) -> GlobalnetStatus {
    wait(gateway, "rules of the process", |status| {
        status.controllers.is_process
            && status.controllers.phase == "settled"
            && !status.controllers.is_remembered
            && !status.egress.is_empty()
            && status.conditions.iter().all(|condition| condition.name != AWAY)
    })
}

fn wait(gateway: &GatewayPod, what: &str, is_good: impl Fn(&GlobalnetStatus) -> bool) -> GlobalnetStatus {
    eventually(what, PATIENCE, || {
        let status = gateway.globalnet()?;
        ensure!(
            is_good(&status),
            "{:?}, {:?}, {} rules",
            status.controllers,
            status.conditions,
            status.egress.len()
        );
        Ok(status)
    })
    .unwrap()
}

fn addresses(status: &GlobalnetStatus) -> Vec<String> {
    status.allocations.iter().map(|allocation| format!("{allocation:?}")).collect()
}

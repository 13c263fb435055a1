//! The health check over real sockets: who answers is connected, who falls silent is in error, what cannot be sent is
//! unknown, and a process without the capability says so.
//!
//! ```text
//!   tlXXXXXX-near ── near0 ────────── far0 ── tlXXXXXX-far
//!            10.1.0.1, fd01::1     10.1.0.2, fd01::2
//! ```

use std::net::IpAddr;
use std::time::{Duration, Instant};

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use trieste_control::api::{Connection, ConnectionStatus, EndpointSpec};
use trieste_control::conditions::Conditions;
use trieste_control::health::{NOT_PROBING, PingerConfig, PingerStatus, PingerView, ProbeOptions, Probes};
use trieste_tests::capture::Capture;
use trieste_tests::guard::root_test;
use trieste_tests::lab::Lab;
use trieste_tests::netns::Namespace;

const INTERVAL: Duration = Duration::from_millis(50);
/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn peers_that_answer_are_connected_those_that_fall_silent_in_error_until_they_answer_again() {
    let Some(_turn) =
        root_test("peers_that_answer_are_connected_those_that_fall_silent_in_error_until_they_answer_again")
    else {
        return;
    };
    let (_lab, near, far) = pair();
    inside(&near, async |conditions| {
        let probes = start(conditions.clone(), Vec::new());
        probes.follow(vec![peer("four", "10.1.0.2"), peer("six", "fd01::2"), peer("nobody", "10.1.0.3")]);

        let four = wait(&probes, "four", PingerStatus::Connected).await;
        let six = wait(&probes, "six", PingerStatus::Connected).await;
        for view in [four, six] {
            let last = view.latency.unwrap().last.as_nanos();
            assert!((1..1_000_000_000).contains(&last), "{last} ns between two namespaces");
        }
        let nobody = wait(&probes, "nobody", PingerStatus::Error).await;
        assert_eq!(nobody.message, "Failed to successfully ping the remote endpoint IP \"10.1.0.3\"");
        assert_eq!((nobody.latency, conditions.list().len()), (None, 0));

        far.nft("table inet silence { chain in { type filter hook input priority 0; meta l4proto {icmp, ipv6-icmp} drop; }; }")
            .unwrap();
        wait(&probes, "four", PingerStatus::Error).await;
        let mut connection = Connection { status: ConnectionStatus::Connected, ..Connection::default() };
        connection.endpoint.cable_name = "four".to_owned();
        probes.merge(&mut connection);
        assert_eq!(connection.status, ConnectionStatus::Error);
        assert_eq!(connection.endpoint.health_check_ip, "10.1.0.2");

        far.nft("delete table inet silence").unwrap();
        wait(&probes, "four", PingerStatus::Connected).await;
        wait(&probes, "six", PingerStatus::Connected).await;

        probes.follow(Vec::new());
        until("no peers", || probes.views().is_empty()).await;
    });
}

#[test]
fn what_cannot_be_sent_is_unknown_and_says_why() {
    let Some(_turn) = root_test("what_cannot_be_sent_is_unknown_and_says_why") else { return };
    let (_lab, near, _far) = pair();
    inside(&near, async |conditions| {
        let probes = start(conditions.clone(), Vec::new());
        probes.follow(vec![peer("astray", "192.0.2.1"), peer("four", "10.1.0.2")]);
        wait(&probes, "four", PingerStatus::Connected).await;
        until("the reason", || !probes.views()["astray"].message.is_empty()).await;
        let view = probes.views()["astray"].clone();
        assert_eq!(view.status, PingerStatus::Unknown);
        assert!(view.message.contains("Network is unreachable"), "{}", view.message);
        assert!(conditions.list().is_empty(), "one peer's lack of a route is not the gateway's");
    });
}

#[test]
fn a_configured_source_is_used_and_one_that_is_not_ours_is_named() {
    let Some(_turn) = root_test("a_configured_source_is_used_and_one_that_is_not_ours_is_named") else {
        return;
    };
    let (lab, near, far) = pair();
    near.ip("addr add 10.1.0.9/24 dev near0").unwrap();
    let capture =
        Capture::start(&lab, &far, "far0", "icmp[icmptype] == icmp-echo and src host 10.1.0.9").unwrap();
    inside(&near, async |conditions| {
        let sources = ["10.1.0.9", "fd01::99"].map(|text| text.parse().unwrap());
        let probes = start(conditions.clone(), sources.to_vec());
        probes.follow(vec![peer("four", "10.1.0.2"), peer("six", "fd01::2")]);
        wait(&probes, "four", PingerStatus::Connected).await;
        until("a condition", || !conditions.list().is_empty()).await;
        let condition = &conditions.list()[0];
        assert_eq!((condition.name.as_str(), condition.subject.as_str()), (NOT_PROBING, "IPv6"));
        assert!(condition.message.contains("this node has no address fd01::99"), "{}", condition.message);
    });
    assert!(!capture.finish().unwrap().frames.is_empty(), "no probe came from the configured source");
}

#[test]
fn without_the_capability_there_is_a_condition_and_nothing_is_judged() {
    let Some(_turn) = root_test("without_the_capability_there_is_a_condition_and_nothing_is_judged") else {
        return;
    };
    let (_lab, near, _far) = pair();
    inside(&near, async |conditions| {
        // This thread's alone; it ends with the test.
        let mut sets = capabilities(None).unwrap();
        sets.effective.remove(CapabilitySet::NET_RAW);
        set_capabilities(None, sets).unwrap();
        let probes = start(conditions.clone(), Vec::new());
        probes.follow(vec![peer("four", "10.1.0.2")]);
        until("a condition", || !conditions.list().is_empty()).await;
        let condition = &conditions.list()[0];
        assert_eq!(condition.name, NOT_PROBING);
        assert!(condition.message.contains("grant the capability NET_RAW"), "{}", condition.message);
        let mut connection = Connection { status: ConnectionStatus::Connected, ..Connection::default() };
        connection.endpoint.cable_name = "four".to_owned();
        until("a reason", || !probes.views()["four"].message.is_empty()).await;
        probes.merge(&mut connection);
        assert_eq!(connection.status, ConnectionStatus::Connected);
        assert!(connection.status_message.contains("Cannot ping"), "{}", connection.status_message);
    });
}

/// Two namespaces and a cable between them.
fn pair() -> (Lab, Namespace, Namespace) {
    let lab = Lab::new().unwrap();
    let (near, far) = (lab.namespace("near").unwrap(), lab.namespace("far").unwrap());
    near.ip(&format!("link add near0 type veth peer name far0 netns {}", far.name())).unwrap();
    for (namespace, device, number) in [(&near, "near0", 1), (&far, "far0", 2)] {
        namespace
            .ip(&format!(
                "link set {device} up\naddr add 10.1.0.{number}/24 dev {device}\naddr add fd01::{number}/64 dev {device} nodad"
            ))
            .unwrap();
    }
    (lab, near, far)
}

/// Does `work` inside a namespace, on one thread: sockets are made where the thread is.
fn inside(namespace: &Namespace, work: impl AsyncFnOnce(&Conditions) + Send) {
    namespace
        .enter(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(work(&Conditions::new()));
            Ok(())
        })
        .unwrap();
}

fn start(conditions: Conditions, sources: Vec<IpAddr>) -> Probes {
    let options = ProbeOptions {
        cluster_id: "near".to_owned(),
        pinger: PingerConfig::new(INTERVAL, 0),
        sources,
        device: None,
    };
    Probes::spawn(options, conditions)
}

fn peer(cable_name: &str, health_check_ip: &str) -> EndpointSpec {
    EndpointSpec {
        cluster_id: "far".to_owned(),
        cable_name: cable_name.to_owned(),
        health_check_ip: health_check_ip.to_owned(),
        ..EndpointSpec::default()
    }
}

async fn wait(probes: &Probes, cable: &str, status: PingerStatus) -> PingerView {
    let view = || probes.views().get(cable).cloned();
    until(&format!("{cable} to be {status:?}"), || view().is_some_and(|view| view.status == status)).await;
    view().unwrap()
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

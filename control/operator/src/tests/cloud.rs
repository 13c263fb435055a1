//! The cloud in the controller: what is ordered, who waits for whom, and what a status has.

use std::time::Duration;

use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;
use trieste_control::api::{CloudPrepareConfig, Kind};
use trieste_control::recorder::Recorder;

use super::played::Cluster;
use super::upstream::Bed;
use crate::controller::OperatorStatus;
use crate::order::{Facts, Order, Outcome, Part, Reason, Report, Task};
use crate::worker::{Worker, WorkerMetrics};

const CLOUD: &str = "trieste.io/cloud";
const MEMBER: &str = "trieste.io/member";

fn aws(infra_id: &str, gateways: u32) -> Value {
    json!({"credentialsSecret": {"name": "aws"}, "infraID": infra_id, "aws": {"gateways": gateways}})
}

fn config(value: &Value) -> CloudPrepareConfig {
    serde_json::from_value(value.clone()).unwrap()
}

fn chosen(value: &Value) -> Outcome {
    Outcome::Chosen(Box::new(config(value)))
}

fn prepared(value: &Value) -> Outcome {
    Outcome::Installed(Box::new(Facts { cloud: Some(config(value)), ..Facts::default() }))
}

/// Returns a bed with a Fabric of these parts, as the operator begins with it.
fn bed(spec: &Value) -> Bed {
    let mut bed = Bed::new(None);
    bed.put(Kind::Fabric, spec);
    bed.settle();
    bed
}

fn change(bed: &mut Bed, spec: &Value) {
    bed.edit(Kind::Fabric, |object| {
        object["spec"] = spec.clone();
        let generation = object["metadata"]["generation"].as_i64().unwrap() + 1;
        object["metadata"]["generation"] = json!(generation);
    });
    bed.settle();
}

fn delete(bed: &mut Bed) {
    bed.edit(Kind::Fabric, |object| {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:00Z");
        let generation = object["metadata"]["generation"].as_i64().unwrap() + 1;
        object["metadata"]["generation"] = json!(generation);
    });
    bed.settle();
}

fn own(bed: &Bed) -> Vec<&str> {
    bed.finalizers(Kind::Fabric).into_iter().filter(|name| name.starts_with("trieste.io/")).collect()
}

fn order(bed: &Bed) -> Order {
    bed.orders().into_iter().find(|order| order.part == Part::Cloud).unwrap()
}

#[test]
fn what_is_to_be_prepared_is_in_the_status_before_it_is_begun_and_the_member_waits() {
    let spec = json!({"cloudPrepareConfig": aws("i", 1), "joinConfig": {"brokerInfoRef": {}}});
    let mut bed = bed(&spec);
    assert_eq!((own(&bed), bed.shown()), (vec![CLOUD], vec!["install cloud".to_owned()]));
    assert_eq!(order(&bed).cloud, None, "nothing is done in the cloud yet");
    assert_eq!(bed.condition(Kind::Fabric, "Joined"), ("Unknown", "WaitingForCloud"));
    assert_eq!(bed.status(Kind::Fabric)["phase"], "Deploying");
    bed.report(Kind::Fabric, Part::Cloud, chosen(&aws("i", 1)));
    assert_eq!(bed.status(Kind::Fabric)["cloud"]["infraID"], "i");
    assert_eq!(order(&bed).cloud, Some(config(&aws("i", 1))));

    let why = Reason { reason: "RightsMissing", message: "ec2:CreateTags".to_owned() };
    bed.report(Kind::Fabric, Part::Cloud, Outcome::Failed(why));
    assert_eq!(bed.condition(Kind::Fabric, "CloudPrepared"), ("False", "RightsMissing"));
    assert_eq!(bed.condition(Kind::Fabric, "Joined"), ("Unknown", "WaitingForCloud"));
    assert_eq!(bed.status(Kind::Fabric)["phase"], "Failed");
    assert_eq!(bed.status(Kind::Fabric)["cloud"]["infraID"], "i", "some of it may be there");

    // Machines that are made are waited for as well.
    let awaits = Some(Reason { reason: "MachinesPending", message: "m".to_owned() });
    let facts = Facts { cloud: Some(config(&aws("i", 1))), awaits, ..Facts::default() };
    bed.report(Kind::Fabric, Part::Cloud, Outcome::Installed(Box::new(facts)));
    assert_eq!(bed.condition(Kind::Fabric, "CloudPrepared"), ("Unknown", "MachinesPending"));
    assert_eq!((own(&bed), bed.status(Kind::Fabric)["phase"].as_str()), (vec![CLOUD], Some("Deploying")));

    bed.report(Kind::Fabric, Part::Cloud, prepared(&aws("i", 1)));
    assert_eq!(bed.condition(Kind::Fabric, "CloudPrepared"), ("True", "Installed"));
    assert_eq!(
        (own(&bed), bed.shown()),
        (vec![CLOUD, MEMBER], vec!["install cloud".to_owned(), "install member".to_owned()])
    );
    // A member that was begun does not wait again.
    let why = Reason { reason: "CloudUnreachable", message: "no route".to_owned() };
    bed.report(Kind::Fabric, Part::Cloud, Outcome::Failed(why));
    assert_eq!(bed.shown(), ["install cloud", "install member"]);
    assert_eq!(bed.condition(Kind::Fabric, "Joined"), ("Unknown", "InProgress"));
}

#[test]
fn a_member_that_is_there_already_or_whose_cloud_is_anothers_does_not_wait() {
    let join = json!({"brokerInfoRef": {}});
    let mut bed = bed(&json!({"joinConfig": join}));
    assert_eq!(own(&bed), [MEMBER]);
    change(&mut bed, &json!({"joinConfig": join, "cloudPrepareConfig": aws("i", 1)}));
    assert_eq!(bed.shown(), ["install cloud", "install member"]);

    let mut bed = Bed::new(None);
    bed.put(Kind::Fabric, &json!({"cloudPrepareConfig": aws("i", 1)}));
    bed.settle();
    bed.put(
        Kind::Knitnet,
        &json!({"action": "join", "joinConfig": {}, "cloudPrepareConfig": {"region": "r"}}),
    );
    bed.settle();
    assert_eq!(bed.condition(Kind::Knitnet, "CloudPrepared"), ("False", "HeldByAnother"));
    assert_eq!(bed.shown(), ["install cloud", "install member"]);
}

#[test]
fn a_cloud_alone_is_ready_when_it_is_prepared() {
    let mut bed = bed(&json!({"cloudPrepareConfig": aws("i", 1)}));
    bed.report(Kind::Fabric, Part::Cloud, chosen(&aws("i", 1)));
    assert_eq!(bed.condition(Kind::Fabric, "Ready"), ("Unknown", "InProgress"));
    bed.report(Kind::Fabric, Part::Cloud, prepared(&aws("i", 1)));
    assert_eq!(bed.condition(Kind::Fabric, "Ready"), ("True", "Ready"));
    assert_eq!(bed.status(Kind::Fabric)["phase"], "Running");
}

#[test]
fn a_cloud_is_left_when_the_member_has_left_and_with_what_it_was_prepared_by() {
    let spec = json!({"cloudPrepareConfig": aws("i", 1), "joinConfig": {"brokerInfoRef": {}}});
    let mut bed = bed(&spec);
    bed.report(Kind::Fabric, Part::Cloud, chosen(&aws("i", 1)));
    bed.report(Kind::Fabric, Part::Cloud, prepared(&aws("i", 1)));
    bed.report(Kind::Fabric, Part::Member, Outcome::Installed(Box::default()));
    delete(&mut bed);
    assert_eq!(bed.shown(), ["remove member"]);
    assert_eq!(bed.condition(Kind::Fabric, "CloudPrepared"), ("False", "Removing"));
    bed.report(Kind::Fabric, Part::Member, Outcome::Removed);
    assert_eq!((own(&bed), bed.shown()), (vec![CLOUD], vec!["remove cloud".to_owned()]));
    assert_eq!(order(&bed).cloud, Some(config(&aws("i", 1))));
    let why = Reason { reason: "CredentialsMissing", message: "Secret n/aws is not there".to_owned() };
    bed.report(Kind::Fabric, Part::Cloud, Outcome::Failed(why));
    assert_eq!(bed.condition(Kind::Fabric, "CloudPrepared"), ("False", "CredentialsMissing"));
    assert!(!order(&bed).force);
    bed.edit(Kind::Fabric, |object| {
        object["metadata"]["annotations"] = json!({"trieste.io/force-removal": "true"});
    });
    assert!(order(&bed).force);
    bed.report(Kind::Fabric, Part::Cloud, Outcome::Removed);
    assert!(own(&bed).is_empty() && bed.shown().is_empty());
}

#[test]
fn a_part_that_is_taken_out_is_taken_back_though_the_spec_says_nothing_of_it_any_more() {
    let join = json!({"brokerInfoRef": {}});
    let mut bed = bed(&json!({"joinConfig": join, "cloudPrepareConfig": aws("i", 1)}));
    bed.report(Kind::Fabric, Part::Cloud, chosen(&aws("i", 1)));
    bed.report(Kind::Fabric, Part::Cloud, prepared(&aws("i", 1)));
    change(&mut bed, &json!({"joinConfig": join}));
    assert_eq!(bed.shown(), ["remove cloud", "install member"]);
    assert_eq!(order(&bed).cloud, Some(config(&aws("i", 1))));
    bed.report(Kind::Fabric, Part::Cloud, Outcome::Removed);
    assert_eq!((own(&bed), bed.shown()), (vec![MEMBER], vec!["install member".to_owned()]));
    assert_eq!(bed.status(Kind::Fabric)["cloud"], Value::Null);

    // Of what was never begun nothing is recorded, so that nothing is asked of a cloud for it.
    change(&mut bed, &json!({"joinConfig": join, "cloudPrepareConfig": aws("i", 1)}));
    change(&mut bed, &json!({"joinConfig": join}));
    assert_eq!((bed.shown()[0].as_str(), order(&bed).cloud), ("remove cloud", None));
}

#[test]
fn another_cloud_is_prepared_when_the_former_one_was_left_and_another_number_at_once() {
    let of = |value: Value| json!({"cloudPrepareConfig": value});
    let mut bed = bed(&of(aws("i", 1)));
    bed.report(Kind::Fabric, Part::Cloud, chosen(&aws("i", 1)));
    bed.report(Kind::Fabric, Part::Cloud, prepared(&aws("i", 1)));
    change(&mut bed, &of(aws("i", 2)));
    assert_eq!(
        (bed.shown(), order(&bed).cloud),
        (vec!["install cloud".to_owned()], Some(config(&aws("i", 2))))
    );
    bed.report(Kind::Fabric, Part::Cloud, prepared(&aws("i", 2)));
    assert_eq!(bed.status(Kind::Fabric)["cloud"]["aws"]["gateways"], 2);

    change(&mut bed, &of(aws("j", 2)));
    assert_eq!(
        (bed.shown(), order(&bed).cloud),
        (vec!["remove cloud".to_owned()], Some(config(&aws("i", 2))))
    );
    bed.report(Kind::Fabric, Part::Cloud, Outcome::Removed);
    assert_eq!((own(&bed), bed.shown()), (vec![CLOUD], vec!["install cloud".to_owned()]));
    assert_eq!(order(&bed).cloud, None, "it is begun anew");
    bed.report(Kind::Fabric, Part::Cloud, chosen(&aws("j", 2)));
    assert!(matches!(order(&bed).task, Task::Install(_)));
    assert_eq!(order(&bed).cloud, Some(config(&aws("j", 2))));
}

#[test]
fn of_a_knitnet_the_cloud_is_prepared_whatever_its_definition_drops() {
    for drops in [false, true] {
        let mut bed = Bed::new(None);
        bed.drops_fields = drops;
        let spec = json!({"action": "join", "joinConfig": {}, "cloudPrepareConfig": {
            "credentialsSecret": {"name": "aws"}, "infraID": "i", "aws": {}}});
        bed.put(Kind::Knitnet, &spec);
        bed.settle();
        assert_eq!(bed.shown(), ["install cloud"], "{drops}");
        let translated = crate::translate::tkestack::cloud(spec.as_object().unwrap(), "apps");
        let config = translated.unwrap().unwrap().config;
        bed.report(Kind::Knitnet, Part::Cloud, Outcome::Chosen(Box::new(config.clone())));
        assert_eq!(order(&bed).cloud, Some(config.clone()), "{drops}");
        let why = Reason { reason: "CloudUnreachable", message: "no route".to_owned() };
        bed.report(Kind::Knitnet, Part::Cloud, Outcome::Failed(why));
        assert_eq!(order(&bed).cloud, Some(config.clone()), "{drops}: a failure begins nothing anew");
        bed.edit(Kind::Knitnet, |object| {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:00Z");
        });
        bed.settle();
        assert_eq!((bed.shown(), order(&bed).cloud), (vec!["remove cloud".to_owned()], Some(config)));
        bed.report(Kind::Knitnet, Part::Cloud, Outcome::Removed);
        assert!(bed.shown().is_empty(), "{drops}");
    }
}

#[test]
fn of_a_knitnet_that_goes_while_the_operator_is_down_the_cloud_is_what_its_spec_has() {
    for (aws, drops, is_assumed) in
        [(json!({}), true, false), (Value::Null, true, true), (Value::Null, false, false)]
    {
        let mut bed = Bed::new(None);
        bed.drops_fields = drops;
        let spec = json!({"action": "join", "joinConfig": {}, "cloudPrepareConfig": {
            "credentialsSecret": {"name": "aws"}, "infraID": "i", "aws": aws}});
        bed.put(Kind::Knitnet, &spec);
        bed.settle();
        // Nothing is remembered of what was prepared: whatever is there of it, a former operator has.
        bed.edit(Kind::Knitnet, |object| {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:00Z");
        });
        bed.settle();
        let translated = crate::translate::tkestack::cloud(spec.as_object().unwrap(), "apps");
        let config = translated.unwrap().unwrap().config;
        let order = order(&bed);
        assert_eq!(bed.shown(), ["remove cloud"]);
        assert_eq!((order.cloud, order.is_cloud_assumed), (drops.then_some(config), is_assumed), "{spec}");
    }
}

#[test]
fn without_an_action_for_a_member_no_cloud_is_prepared() {
    let mut bed = Bed::new(None);
    bed.put(
        Kind::Knitnet,
        &json!({"action": "broker", "brokerConfig": {}, "cloudPrepareConfig": {"region": "r"}}),
    );
    bed.settle();
    assert_eq!(bed.shown(), ["install broker"]);
    bed.put(
        Kind::TkestackFabric,
        &json!({"joinConfig": {}, "cloudPrepareConfig": {"region": "", "aws": {"gateways": 1}}}),
    );
    bed.settle();
    assert_eq!(bed.shown(), ["install broker", "install member"]);
}

/// Lets a worker carry out what the controller wants until it has been at rest for so long. Returns what it has reported.
async fn work(bed: &mut Bed, cluster: &Cluster, rest: Duration) -> Vec<Report> {
    let status = |bed: &Bed| OperatorStatus { orders: bed.orders(), ..OperatorStatus::default() };
    let (sender, receiver) = watch::channel(status(bed));
    let (reports, mut reported) = futures::channel::mpsc::unbounded();
    let (recorder, _queue) = Recorder::of_many("trieste-operator");
    let worker = Worker::new(cluster.tools(), recorder, WorkerMetrics::default(), reports);
    let task = tokio::spawn(worker.run(receiver, None));
    let mut all = Vec::new();
    while let Ok(Some(report)) = timeout(rest, reported.next()).await {
        bed.report(Kind::Fabric, report.part, report.outcome.clone());
        sender.send_replace(status(bed));
        all.push(report);
        assert!(all.len() < 64, "it does not come to rest: {all:?}");
    }
    task.abort();
    all
}

#[tokio::test(start_paused = true)]
async fn a_worker_prepares_a_cloud_once_and_takes_it_back_wherever_the_operator_was_restarted() {
    let cluster = Cluster::of(&["a", "b"]);
    let mut bed = bed(&json!({"cloudPrepareConfig": {"generic": {"gateways": 1}}}));
    let label = |name: &str| cluster.node(name)["metadata"]["labels"]["submariner.io/gateway"].clone();
    let reports = work(&mut bed, &cluster, Duration::from_secs(60)).await;
    let names = reports.iter().map(|report| match report.outcome {
        Outcome::Chosen(_) => "chosen",
        Outcome::Installed(_) => "installed",
        Outcome::Removed | Outcome::Free | Outcome::Waiting(_) | Outcome::Failed(_) => "other",
    });
    let names = names.collect::<Vec<_>>();
    assert_eq!((names, label("a")), (vec!["chosen", "installed"], json!("true")));
    assert_eq!(bed.condition(Kind::Fabric, "Ready"), ("True", "Ready"));

    // Another operator begins from what the object says.
    work(&mut bed, &cluster, Duration::from_secs(60)).await;
    assert_eq!(cluster.writes(), 1);
    change(&mut bed, &json!({"cloudPrepareConfig": {"generic": {"gateways": 2}}}));
    work(&mut bed, &cluster, Duration::from_secs(60)).await;
    assert_eq!((cluster.writes(), label("b")), (2, json!("true")));

    delete(&mut bed);
    work(&mut bed, &cluster, Duration::from_secs(60)).await;
    assert_eq!((label("a"), label("b"), own(&bed)), (Value::Null, Value::Null, Vec::new()));
}

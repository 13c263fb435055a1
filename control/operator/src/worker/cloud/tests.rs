//! The part over a cluster that is played: nodes, Secrets, and no cloud's service, as `generic` has it.

use serde_json::{Value, json};
use trieste_control::api::{Kind, ObjectKey};
use trieste_control::steps::Steps as _;

use super::*;
use crate::order::{Part, Task, Wanted};
use crate::tests::played::Cluster;

fn spec(cloud: &Value) -> FabricSpec {
    serde_json::from_value(json!({"cloudPrepareConfig": cloud})).unwrap()
}

fn order(cloud: Option<&Value>, task: Task) -> Order {
    Order {
        source: ObjectKey::new(Kind::Fabric, "", "east"),
        uid: "u1".to_owned(),
        generation: 1,
        part: Part::Cloud,
        task,
        join_info: None,
        cloud: cloud.and_then(|cloud| spec(cloud).cloud_prepare_config),
        is_cloud_assumed: false,
        broker_url: None,
        force: false,
        revision: 0,
    }
}

/// Carries the part out; of what was found out before, and with what is recorded of the cloud.
async fn pass(
    cluster: &Cluster,
    cloud: &Value,
    recorded: bool,
    earlier: Option<&Facts>,
) -> (Outcome, Record) {
    let (mut steps, spec) = (Record::default(), spec(cloud));
    let task = Task::Install(Box::new(Wanted::Fabric(Box::new(spec.clone()))));
    let order = order(Some(cloud).filter(|_| recorded), task);
    let outcome = install(&cluster.tools(), &order, &spec, earlier, &mut steps).await;
    (outcome.unwrap_or_else(|failure| Outcome::Failed(failure.reason())), steps)
}

fn facts(outcome: &Outcome) -> Facts {
    let Outcome::Installed(facts) = outcome else { panic!("{outcome:?}") };
    facts.as_ref().clone()
}

#[tokio::test(start_paused = true)]
async fn nothing_is_done_before_it_is_recorded_and_then_what_is_wanted_once() {
    let cluster = Cluster::of(&["a", "b"]);
    let cloud = json!({"generic": {"gateways": 3}});
    let (outcome, _) = pass(&cluster, &cloud, false, None).await;
    assert_eq!(
        (outcome, cluster.writes()),
        (Outcome::Chosen(Box::new(order(Some(&cloud), Task::Remove).cloud.unwrap())), 0)
    );

    let (outcome, steps) = pass(&cluster, &cloud, true, None).await;
    assert_eq!(changes(&steps), ["Label node a as a gateway", "Label node b as a gateway"]);
    let mut found = facts(&outcome);
    assert_eq!(found.cloud, spec(&cloud).cloud_prepare_config);
    // As the worker does.
    let remarks = |steps: &Record| -> Vec<String> {
        steps.steps.iter().flat_map(|step| &step.remarks).map(|(_, text)| text.clone()).collect()
    };
    found.warnings = remarks(&steps);
    assert_eq!(found.warnings.len(), 1, "there are too few nodes: {steps}");

    // Nothing has changed: the cloud is not asked, and what it has remarked stays.
    let (outcome, steps) = pass(&cluster, &cloud, true, Some(&found)).await;
    assert!(!steps.steps.iter().any(|step| is_reading(&step.title)), "{steps}");
    assert_eq!((remarks(&steps), facts(&outcome).asked), (found.warnings.clone(), found.asked));

    cluster.add("c");
    let (outcome, steps) = pass(&cluster, &cloud, true, Some(&found)).await;
    assert_eq!(changes(&steps), ["Label node c as a gateway"]);
    let found = facts(&outcome);
    tokio::time::advance(asking::INTERVAL).await;
    let (outcome, steps) = pass(&cluster, &cloud, true, Some(&found)).await;
    assert!(steps.steps.iter().any(|step| is_reading(&step.title)) && changes(&steps).is_empty());
    assert_ne!(facts(&outcome).asked, found.asked);
}

#[tokio::test(start_paused = true)]
async fn what_was_prepared_is_taken_back_and_of_what_was_not_begun_nothing() {
    let cluster = Cluster::of(&["a", "b"]);
    let cloud = json!({"generic": {"gateways": 1}});
    pass(&cluster, &cloud, true, None).await;
    assert_eq!(cluster.writes(), 1);
    let (tools, mut steps) = (cluster.tools(), Record::default());
    let outcome = remove(&tools, &order(None, Task::Remove), &mut steps).await.unwrap();
    assert_eq!((outcome, cluster.writes()), (Outcome::Removed, 1));
    let outcome = remove(&tools, &order(Some(&cloud), Task::Remove), &mut steps).await.unwrap();
    assert_eq!(
        (outcome, changes(&steps)),
        (Outcome::Removed, vec!["Take the label of gateways off node a".to_owned()])
    );
}

#[tokio::test(start_paused = true)]
async fn credentials_that_are_gone_hold_a_removal_until_it_is_given_up() {
    let cluster = Cluster::of(&["a"]);
    let cloud = json!({"infraID": "i", "credentialsSecret": {"name": "aws"}, "aws": {}});
    let (outcome, _) = pass(&cluster, &cloud, false, None).await;
    let Outcome::Failed(why) = outcome else { panic!("{outcome:?}") };
    assert_eq!(why.reason, "CredentialsMissing");
    assert!(why.message.contains("Secret trieste-operator/aws is not there"), "{}", why.message);
    let path = "/api/v1/namespaces/trieste-operator/secrets/aws";
    cluster.put(path, json!({"metadata": {"uid": "1"}, "data": {"aws_access_key_id": "aWQ="}}));
    let (outcome, _) = pass(&cluster, &cloud, false, None).await;
    let Outcome::Failed(why) = outcome else { panic!("{outcome:?}") };
    assert!(why.message.contains("has no key aws_secret_access_key"), "{}", why.message);
    assert!(!why.message.contains("aWQ="), "{}", why.message);

    let (tools, mut steps) = (cluster.tools(), Record::default());
    let leaving = order(Some(&cloud), Task::Remove);
    let outcome = remove(&tools, &leaving, &mut steps).await.unwrap();
    let Outcome::Failed(why) = outcome else { panic!("{outcome:?}") };
    assert_eq!(why.reason, "CredentialsMissing");
    assert!(why.message.contains("trieste.io/force-removal=true on the Fabric"), "{}", why.message);
    let outcome = remove(&tools, &Order { force: true, ..leaving }, &mut steps).await.unwrap();
    assert_eq!(outcome, Outcome::Removed);
    let warning = &steps.steps.last().unwrap().remarks[0].1;
    assert!(warning.contains("given up and stays there"), "{warning}");
}

#[tokio::test(start_paused = true)]
async fn a_pass_ends_after_a_minute_and_the_next_one_goes_on_from_there() {
    let cluster = Cluster::of(&["a", "b", "c", "d"]);
    cluster.delay_writes(Duration::from_secs(25));
    let cloud = json!({"generic": {"gateways": 4}});
    let begun = Instant::now();
    let (outcome, steps) = pass(&cluster, &cloud, true, None).await;
    assert_eq!(begun.elapsed(), LIMIT);
    let Outcome::Failed(Reason { reason, message }) = outcome else { panic!("{outcome:?}") };
    assert_eq!(reason, "CloudUnsettled");
    assert!(message.contains("\"Label node c as a gateway\": the next try goes on"), "{message}");
    assert_eq!(changes(&steps), ["Label node a as a gateway", "Label node b as a gateway"]);
    let (outcome, steps) = pass(&cluster, &cloud, true, None).await;
    assert_eq!(changes(&steps), ["Label node c as a gateway", "Label node d as a gateway"]);
    facts(&outcome);

    // One that gives up waits for what goes.
    let tools = cluster.tools();
    let leaving = Order { force: true, ..order(Some(&cloud), Task::Remove) };
    let outcome = remove(&tools, &leaving, &mut Record::default()).await.unwrap();
    let Outcome::Failed(Reason { reason, message }) = outcome else { panic!("{outcome:?}") };
    assert_eq!(reason, "CloudUnsettled");
    assert!(message.contains("gateways off node c"), "{message}");
    assert_eq!(remove(&tools, &leaving, &mut Record::default()).await.unwrap(), Outcome::Removed);
    assert_eq!(cluster.writes(), 8);
}

#[tokio::test(start_paused = true)]
async fn an_aws_that_is_only_assumed_is_taken_back_where_the_nodes_are_its() {
    let cluster = Cluster::of(&["a"]);
    let cloud = json!({"infraID": "i", "credentialsSecret": {"name": "aws"}, "aws": {}});
    let named = order(Some(&cloud), Task::Remove);
    let assumed = Order { is_cloud_assumed: true, ..named.clone() };
    let (tools, mut steps) = (cluster.tools(), Record::default());
    assert!(matches!(remove(&tools, &named, &mut steps).await.unwrap(), Outcome::Failed(_)));
    assert_eq!(remove(&tools, &assumed, &mut steps).await.unwrap(), Outcome::Removed);
    let machine = json!({"metadata": {"name": "b"}, "spec": {"providerID": "aws:///eu-west-1a/i-1"}});
    cluster.put("/api/v1/nodes/b", machine);
    let outcome = remove(&tools, &assumed, &mut steps).await.unwrap();
    let Outcome::Failed(Reason { reason, .. }) = outcome else { panic!("{outcome:?}") };
    assert_eq!(reason, "CredentialsMissing");
}

#[test]
fn changes_are_the_steps_that_have_ended_well_but_for_readings() {
    let mut steps = Record::default();
    for (title, end) in [("Reading what EC2 has", true), ("Open UDP 4500", true), ("Open UDP 500", false)] {
        steps.begin(title);
        if end {
            steps.end(StepOutcome::Success);
        }
    }
    assert_eq!(changes(&steps), ["Open UDP 4500"]);
}

#[tokio::test(start_paused = true)]
async fn a_cloud_that_is_refused_is_not_begun() {
    let cluster = Cluster::of(&["a", "b"]);
    let keys = json!({"aws_access_key_id": "aWQ=", "aws_secret_access_key": "a2V5"});
    cluster.put(
        "/api/v1/namespaces/trieste-operator/secrets/aws",
        json!({"metadata": {"name": "aws", "namespace": "trieste-operator"}, "data": keys}),
    );
    // No node is AWS's, and no region is given.
    let cloud = json!({"credentialsSecret": {"name": "aws"}, "infraID": "i", "aws": {}});
    let (outcome, _) = pass(&cluster, &cloud, false, None).await;
    let Outcome::Failed(reason) = outcome else { panic!("{outcome:?}") };
    assert!(reason.message.contains("cloudPrepareConfig.region"), "{}", reason.message);
}

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

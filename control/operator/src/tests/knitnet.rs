//! The resource of the first users in the controller: what is ordered, what is kept, and what status it gets.

use serde_json::{Value, json};
use trieste_control::api::{Kind, PUBLISH_BROKER_INFO};

use super::upstream::Bed;
use crate::order::{Facts, Outcome, Part, Reason, Task, Wanted};

const BROKER: &str = "trieste.io/broker";
const MEMBER: &str = "trieste.io/member";

fn both(action: &str) -> Value {
    json!({"action": action, "brokerConfig": {"publicAPIServerURL": "b:1"}, "joinConfig": {"clusterID": "east"}})
}

fn installed() -> Outcome {
    Outcome::Installed(Box::new(Facts { cluster_id: Some("east".to_owned()), ..Facts::default() }))
}

#[test]
fn a_knitnet_begins_what_its_action_says_and_keeps_what_it_has_begun() {
    let mut bed = Bed::new(None);
    bed.put(Kind::Knitnet, &both("broker"));
    bed.settle();
    assert_eq!(
        (bed.shown(), bed.finalizers(Kind::Knitnet)[1..].to_vec()),
        (vec!["install broker".to_owned()], vec![BROKER])
    );
    bed.report(Kind::Knitnet, Part::Broker, installed());
    assert_eq!(bed.status(Kind::Knitnet)["phase"], "Running");

    // The other action, with which its users go on, takes nothing back.
    bed.edit(Kind::Knitnet, |object| object["spec"]["action"] = json!("join"));
    bed.settle();
    assert_eq!(bed.shown(), ["install broker", "install member"]);
    bed.report(Kind::Knitnet, Part::Member, installed());
    assert_eq!(bed.status(Kind::Knitnet)["clusterID"], "east");

    bed.edit(Kind::Knitnet, |object| object["spec"]["joinConfig"] = Value::Null);
    bed.settle();
    assert_eq!(bed.shown(), ["remove member", "install broker"]);
    bed.report(Kind::Knitnet, Part::Member, Outcome::Removed);
    assert_eq!(bed.finalizers(Kind::Knitnet)[1..], [BROKER]);
}

#[test]
fn of_phases_there_are_the_two_that_its_users_wait_for() {
    let mut bed = Bed::new(None);
    bed.put(Kind::TkestackFabric, &json!({"joinConfig": {}}));
    bed.settle();
    assert_eq!(bed.shown(), ["install member"]);
    assert_eq!(bed.status(Kind::TkestackFabric)["phase"], Value::Null);
    assert_eq!(bed.condition(Kind::TkestackFabric, "Joined"), ("Unknown", "InProgress"));
    let why = Reason { reason: "BrokerInfoMissing", message: "there is none".to_owned() };
    bed.report(Kind::TkestackFabric, Part::Member, Outcome::Failed(why));
    assert_eq!(bed.status(Kind::TkestackFabric)["phase"], "Failed");
    assert_eq!(bed.condition(Kind::TkestackFabric, "Joined"), ("False", "BrokerInfoMissing"));
}

#[test]
fn a_status_that_another_operator_has_written_or_whose_fields_are_dropped_does_no_harm() {
    let mut bed = Bed::new(None);
    bed.drops_conditions = true;
    bed.put(Kind::Knitnet, &both("all"));
    bed.edit(Kind::Knitnet, |object| object["status"] = json!({"phase": ""}));
    bed.settle();
    assert_eq!(bed.shown(), ["install broker", "install member"]);
    bed.report(Kind::Knitnet, Part::Broker, installed());
    let writes = bed.writes;
    bed.settle();
    assert_eq!(bed.writes, writes, "it is not written again and again");
}

#[test]
fn an_order_says_whether_join_data_is_published_in_a_config_map() {
    let mut bed = Bed::new(None);
    bed.put(Kind::Knitnet, &both("broker"));
    bed.settle();
    let publishes = |bed: &Bed| {
        let orders = bed.orders();
        let [order] = &orders[..] else { panic!("{orders:?}") };
        let Task::Install(wanted) = &order.task else { panic!("{order:?}") };
        let Wanted::Tkestack(content) = &**wanted else { panic!("{wanted:?}") };
        content.publishes_config_map
    };
    assert!(!publishes(&bed));
    bed.edit(Kind::Knitnet, |object| {
        object["metadata"]["annotations"] = json!({PUBLISH_BROKER_INFO: "ConfigMap"})
    });
    assert!(publishes(&bed));
}

#[test]
fn resources_of_both_groups_do_not_share_a_part() {
    let mut bed = Bed::new(None);
    bed.put(Kind::Fabric, &json!({"joinConfig": {"brokerInfoRef": {}}}));
    bed.put(Kind::TkestackFabric, &json!({"joinConfig": {}}));
    bed.put(Kind::Knitnet, &both("join"));
    bed.settle();
    let kinds = [Kind::Fabric, Kind::TkestackFabric, Kind::Knitnet];
    assert_eq!(kinds.map(|kind| bed.finalizers(kind).contains(&MEMBER)), [true, false, false]);
    for other in &kinds[1..] {
        assert_eq!(bed.condition(*other, "Joined"), ("False", "HeldByAnother"));
    }
}

#[test]
fn nothing_is_begun_before_it_is_known_which_objects_have_something() {
    let mut bed = Bed::unread();
    bed.put(Kind::Knitnet, &both("join"));
    bed.list(Kind::Knitnet, &[bed.object(Kind::Knitnet)]);
    bed.lacks(Kind::TkestackFabric);
    bed.settle();
    assert_eq!(bed.shown(), Vec::<String>::new());
    // The other one, which has joined, is read last, and is younger.
    let mut fabric = json!({"apiVersion": "trieste.io/v1alpha1", "kind": "Fabric", "spec": {"joinConfig": {"brokerInfoRef": {}}},
        "metadata": {"name": "east", "uid": "u9", "generation": 1, "resourceVersion": "1",
            "creationTimestamp": "2027-01-01T00:00:00Z", "finalizers": [MEMBER]}});
    bed.list(Kind::Fabric, &[fabric.clone()]);
    bed.settle();
    assert!(!bed.finalizers(Kind::Knitnet).contains(&MEMBER));
    assert_eq!(bed.shown(), ["install member"]);
    fabric["metadata"]["finalizers"] = json!([]);
    fabric["spec"] = json!({"brokerConfig": {}});
    bed.list(Kind::Fabric, &[fabric]);
    bed.settle();
    assert!(bed.finalizers(Kind::Knitnet).contains(&MEMBER));
}

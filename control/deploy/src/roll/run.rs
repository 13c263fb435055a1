//! Carrying a roll out.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep};
use trieste_control::api::annotation;
use trieste_control::steps::{Outcome, Steps};

use super::observe::observe;
use super::{Gateway, Reason, Roll, Step, Why};
use crate::error::DeployError;
use crate::object_ref::ObjectRef;
use crate::objects::Manifest;
use crate::objects::names::GATEWAY;
use crate::pods::pods;
use crate::server::{POLL, Server};

/// Replaces every gateway's pod that is not of the present template, one after the other, and applies `released` then: the
/// DaemonSets as they are to be from then on. Each step may take `limit`.
///
/// # Errors
/// [`DeployError::NotInTime`] if a gateway does not become well in time: no other is touched, and the next run goes on there;
/// [`DeployError`] if the server does not answer for as long, or refuses.
pub(crate) async fn run(
    server: &Server,
    namespace: &str,
    released: &[Manifest],
    limit: Duration,
    steps: &mut dyn Steps,
) -> Result<(), DeployError> {
    let mut roll: Option<Roll> = None;
    let mut since = Instant::now();
    loop {
        match turn(server, namespace, &mut roll, since.elapsed(), steps).await {
            Ok(Turn::Done) => match release(server, released).await {
                // An API server that is away for a moment, as in an upgrade of its own.
                Err(error) if error.is_passing() && since.elapsed() < limit => {}
                outcome => return outcome,
            },
            Ok(Turn::Step) => {
                since = Instant::now();
                continue;
            }
            Ok(Turn::Wait(reason)) if since.elapsed() >= limit => {
                return Err(stopped(&reason, limit, pods(server, namespace, GATEWAY).await?));
            }
            Ok(Turn::Wait(_)) => {}
            Err(error) if error.is_passing() && since.elapsed() < limit => {}
            Err(error) => return Err(error),
        }
        sleep(POLL).await;
    }
}

/// What came of a turn.
enum Turn {
    Done,
    /// Something was done.
    Step,
    Wait(Reason),
}

async fn turn(
    server: &Server,
    namespace: &str,
    roll: &mut Option<Roll>,
    waited: Duration,
    steps: &mut dyn Steps,
) -> Result<Turn, DeployError> {
    let view = observe(server, namespace).await?;
    match roll.get_or_insert_with(|| Roll::new(&view)).next(&view, waited) {
        Step::Done => return Ok(Turn::Done),
        Step::Wait(reason) => return Ok(Turn::Wait(reason)),
        Step::Drain(gateway) => mark(server, namespace, &gateway, true).await?,
        Step::Restart(gateway, why) => restart(server, namespace, (&gateway, why), steps).await?,
        Step::Undrain(gateway) => mark(server, namespace, &gateway, false).await?,
    }
    Ok(Turn::Step)
}

async fn release(server: &Server, released: &[Manifest]) -> Result<(), DeployError> {
    for set in released {
        server.apply_unnoted(set.as_value()).await?;
    }
    Ok(())
}

/// Asks a gateway to hand its flows over, or to take some again.
async fn mark(
    server: &Server,
    namespace: &str,
    gateway: &Gateway,
    is_drained: bool,
) -> Result<(), DeployError> {
    let Some(name) = &gateway.object else { return Ok(()) };
    let value = if is_drained { json!("true") } else { json!(null) };
    let annotations = json!({annotation::DRAIN: value, annotation::DRAINED_FOR_UPDATE: value});
    let place = ObjectRef::namespaced("submariner.io/v1", "Gateway", namespace, name);
    server.merge(&place, &json!({"metadata": {"annotations": annotations}})).await.map(drop)
}

async fn restart(
    server: &Server,
    namespace: &str,
    (gateway, why): (&Gateway, Why),
    steps: &mut dyn Steps,
) -> Result<(), DeployError> {
    let Some(pod) = &gateway.pod else { return Ok(()) };
    let place = ObjectRef::namespaced("v1", "Pod", namespace, &pod.name);
    server.delete(&place).await?;
    let (outcome, how) = match why {
        Why::NotReady => (Outcome::Warning, "it was not ready"),
        Why::StandsBy => (Outcome::Success, "it stood by"),
        Why::Drained => (Outcome::Success, "drained before"),
        Why::StillDraining => (Outcome::Warning, "drained before, though flows still came by it"),
        Why::TakenOver => (Outcome::Warning, "traffic pauses until the one that stands by has taken over"),
        Why::Alone => (Outcome::Warning, "there is no other gateway, and traffic pauses"),
    };
    steps.remark(outcome, &format!("Gateway {}: its pod is replaced; {how}", gateway.node));
    Ok(())
}

fn stopped(reason: &Reason, limit: Duration, state: Vec<String>) -> DeployError {
    DeployError::NotInTime {
        what: format!("the gateways' pods were not replaced any further: {reason}"),
        seconds: limit.as_secs(),
        state,
        next: "the other gateways go on as they are; trieste diagnose all names what is wrong. Repeat the command, which goes on \
               there, or apply the earlier version or value again in the same way"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use trieste_control::steps::Record;

    use super::*;
    use crate::objects::names::{GATEWAY_LABEL, NAMESPACE};
    use crate::server::fake::Fake;

    /// Returns an API server with two gateways, each with the revision of its pod and whether that is ready.
    fn played(pods: [(&str, bool); 2]) -> Fake {
        let fake = Fake::default();
        let of_gateways = json!({"app": GATEWAY});
        let ready =
            |is_ready: bool| json!([{"type": "Ready", "status": if is_ready { "True" } else { "False" }}]);
        fake.put(json!({"apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"namespace": NAMESPACE, "name": GATEWAY, "uid": "u", "generation": 2},
            "status": {"observedGeneration": 2, "desiredNumberScheduled": 2}}));
        for (revision, number) in [("old", 1), ("new", 2)] {
            let labels = json!({"app": GATEWAY, "controller-revision-hash": revision});
            fake.put(json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": number,
                "metadata": {"namespace": NAMESPACE, "name": revision, "labels": labels,
                    "ownerReferences": [{"uid": "u"}]}}));
        }
        for (index, (revision, is_ready)) in pods.into_iter().enumerate() {
            let node = format!("gw{index}");
            let mut labels = of_gateways.clone();
            labels["controller-revision-hash"] = json!(revision);
            fake.put(json!({"apiVersion": "v1", "kind": "Node",
                "metadata": {"name": node, "labels": {GATEWAY_LABEL: "true"}}, "status": {"conditions": ready(true)}}));
            fake.put(json!({"apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": node},
                "metadata": {"namespace": NAMESPACE, "name": format!("pod-{index}"), "labels": labels},
                "status": {"phase": "Running", "conditions": ready(is_ready)}}));
            fake.put(json!({"apiVersion": "submariner.io/v1", "kind": "Gateway",
                "metadata": {"namespace": NAMESPACE, "name": node}, "status": {"haStatus": "active",
                    "localEndpoint": {"hostname": node},
                    "connections": [{"status": "connected", "endpoint": {"cluster_id": "west"}}]}}));
        }
        fake
    }

    fn place(version: &str, kind: &str, name: &str) -> ObjectRef {
        ObjectRef::namespaced(version, kind, NAMESPACE, name)
    }

    async fn annotations(fake: &Fake, gateway: &str) -> Value {
        let object =
            fake.server().find(&place("submariner.io/v1", "Gateway", gateway)).await.unwrap().unwrap();
        object["metadata"]["annotations"].clone()
    }

    #[tokio::test(start_paused = true)]
    async fn a_gateway_that_does_not_become_ready_stops_the_roll_with_its_reason() {
        let fake = played([("new", false), ("old", true)]);
        let limit = Duration::from_secs(60);
        let start = Instant::now();
        let error = run(&fake.server(), NAMESPACE, &[], limit, &mut Record::default()).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("the new pod of gateway gw0 was not ready within 60 seconds"), "{text}");
        assert!(text.contains("pod pod-0 on gw0: Running"), "{text}");
        assert!(error.next().contains("the earlier version"), "{}", error.next());
        assert!(start.elapsed() >= limit && start.elapsed() < limit * 2);
        assert!(fake.has(&place("v1", "Pod", "pod-1")) && annotations(&fake, "gw1").await.is_null());
    }

    #[tokio::test(start_paused = true)]
    async fn a_gateway_is_drained_then_replaced_and_nothing_more_happens_until_its_pod_is_back() {
        let fake = played([("old", true), ("old", true)]);
        let mut steps = Record::default();
        steps.begin("Replacing");
        let error =
            run(&fake.server(), NAMESPACE, &[], Duration::from_secs(90), &mut steps).await.unwrap_err();
        // Nobody is there who hands flows over, so that the gateway is replaced all the same after a while, or who makes pods.
        assert!(error.to_string().contains("1 pods of gateways were not there"), "{error}");
        let marks = annotations(&fake, "gw0").await;
        assert_eq!(
            (&marks[annotation::DRAIN], &marks[annotation::DRAINED_FOR_UPDATE]),
            (&json!("true"), &json!("true"))
        );
        assert!(!fake.has(&place("v1", "Pod", "pod-0")) && fake.has(&place("v1", "Pod", "pod-1")));
        assert_eq!(steps.steps[0].remarks.len(), 1, "{steps}");
    }

    #[tokio::test(start_paused = true)]
    async fn where_all_are_of_the_present_template_nothing_is_done() {
        let fake = played([("new", true), ("new", true)]);
        run(&fake.server(), NAMESPACE, &[], Duration::from_secs(1), &mut Record::default()).await.unwrap();
        assert!(fake.has(&place("v1", "Pod", "pod-0")) && annotations(&fake, "gw0").await.is_null());
    }
}

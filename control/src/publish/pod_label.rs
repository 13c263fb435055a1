//! The own pod's labels, by which the load balancer's Service finds the active gateway.

use std::time::Duration;

use futures::StreamExt as _;
use rand_core::OsRng;
use tokio::sync::watch;
use tokio::time::Instant;

use super::bounded;
use crate::admin::Severity;
use crate::api::{HaStatus, Kind, Object, ObjectKey};
use crate::backoff::Backoff;
use crate::conditions::Conditions;
use crate::store::{Store, StoreError, StoreEvent};
use crate::timer::sleep_until;

/// The label that names the node of a gateway's pod.
pub const NODE_LABEL: &str = "gateway.submariner.io/node";
/// The label that says whether a gateway's pod is the active one.
pub const STATUS_LABEL: &str = "gateway.submariner.io/status";

/// The condition that says that the pod's labels are not what they should be.
pub const POD_LABEL_CONDITION: &str = "PodNotLabelled";

/// A gateway's own pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnPod {
    /// Its namespace.
    pub namespace: String,
    /// Its name, POD_NAME; `None` when the gateway runs without a pod.
    pub name: Option<String>,
    /// Its node's name, NODE_NAME.
    pub node: String,
}

/// Returns the pod with the labels that it should have; `None` when it has them.
pub fn labelled_pod(pod: &Object, node: &str, status: HaStatus) -> Option<Object> {
    let wanted = [(NODE_LABEL, node), (STATUS_LABEL, status.as_str())];
    let has = |(key, value): &(&str, &str)| pod.metadata.labels.get(*key).is_some_and(|found| found == value);
    if wanted.iter().all(has) {
        return None;
    }
    let mut labelled = pod.clone();
    let wanted = wanted.map(|(key, value)| (key.to_owned(), value.to_owned()));
    labelled.metadata.labels.extend(wanted);
    Some(labelled)
}

/// Keeps the own pod's labels true until the sender of `status` is gone: written when the status changes, again when
/// somebody else changes them, and again, ever more slowly, when it failed. The reason is a condition. Returns at once
/// without a pod.
pub async fn keep_pod_label<S: Store>(
    store: S,
    own: OwnPod,
    mut status: watch::Receiver<HaStatus>,
    conditions: Conditions,
) {
    let Some(name) = own.name else { return };
    let key = ObjectKey::new(Kind::Pod, own.namespace, name);
    let mut events = store.watch_one(&key);
    let mut backoff = Backoff::new(RETRY.0, RETRY.1);
    let mut pod = None;
    // The watch mostly says first what there is; it is not waited for.
    let mut again = Some(Instant::now() + RETRY.0);
    loop {
        tokio::select! {
            event = events.next() => match event {
                Some(StoreEvent::Listed(objects)) => pod = objects.into_iter().next(),
                Some(StoreEvent::Applied(object)) => pod = Some(object),
                Some(StoreEvent::Deleted(_)) => pod = None,
                // It is tried all the same, in time.
                Some(StoreEvent::Unavailable(_)) => continue,
                None => return,
            },
            changed = status.changed() => if changed.is_err() { return },
            () = sleep_until(again) => {}
        }
        // While something fails, what happens meanwhile must not make it fail more often.
        if again.is_some_and(|again| Instant::now() < again) && pod.is_none() {
            continue;
        }
        let wanted = *status.borrow_and_update();
        let outcome = settle(&store, &key, &mut pod, &own.node, wanted).await;
        again = outcome.is_err().then(|| Instant::now() + backoff.next_wait(&mut OsRng));
        if outcome.is_ok() {
            backoff.reset();
        }
        let problem = outcome.err().map(|error| format!("its labels do not say {wanted}: {error}"));
        conditions.put(POD_LABEL_CONDITION, Severity::Warning, &key.to_string(), problem);
    }
}

/// Ours: the first and the longest wait after a failure.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(60));

/// Ours: how often a race is run again at once; a pod's status is written by others now and then.
const MAX_RACES: usize = 5;

/// Makes the pod say what is wanted.
async fn settle<S: Store>(
    store: &S,
    key: &ObjectKey,
    pod: &mut Option<Object>,
    node: &str,
    status: HaStatus,
) -> Result<(), StoreError> {
    let mut races = 0;
    loop {
        let known = match pod.take() {
            Some(known) => known,
            None => bounded(key, store.get(key)).await?.ok_or_else(|| StoreError::NotFound(key.clone()))?,
        };
        let Some(labelled) = labelled_pod(&known, node, status) else {
            *pod = Some(known);
            return Ok(());
        };
        match bounded(key, store.update(labelled)).await {
            Ok(stored) => {
                *pod = Some(stored);
                return Ok(());
            }
            Err(StoreError::Conflict { .. }) if races < MAX_RACES => races += 1,
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ObjectMeta;

    #[test]
    fn the_two_labels_are_set_beside_others_and_only_when_they_are_wrong() {
        let mut pod = Object::new(Kind::Pod, ObjectMeta::new("ns", "gw"));
        pod.metadata.labels.insert("app".to_owned(), "submariner-gateway".to_owned());
        let labelled = labelled_pod(&pod, "a-gw1", HaStatus::Passive).unwrap();
        let shown = serde_json::to_value(&labelled.metadata.labels).unwrap();
        assert_eq!(
            shown,
            serde_json::json!({"app": "submariner-gateway", "gateway.submariner.io/node": "a-gw1",
                "gateway.submariner.io/status": "passive"})
        );
        assert_eq!(labelled_pod(&labelled, "a-gw1", HaStatus::Passive), None);
        let active = labelled_pod(&labelled, "a-gw1", HaStatus::Active).unwrap();
        assert_eq!(active.metadata.labels[STATUS_LABEL], "active");
    }
}

//! The own pod's labels, by which the load balancer's Service finds the active gateway.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use tokio::sync::watch;

use crate::admin::Severity;
use crate::api::{HaStatus, Kind, Object, ObjectKey};
use crate::conditions::Conditions;
use crate::runner::{
    self, Context, Controller, ControllerRegistry, Fence, Limits, QueueView, Reconciled, Watch, Write, port,
    values,
};
use crate::store::{Store, StoreEvent};

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
    controllers: ControllerRegistry,
) {
    let OwnPod { namespace, name: Some(name), node } = own else { return };
    let key = ObjectKey::new(Kind::Pod, namespace, name);
    let inputs = values(status.clone()).boxed();
    let subject = key.to_string();
    let publish = move |problem: &Option<String>| {
        conditions.put(POD_LABEL_CONDITION, Severity::Warning, &subject, problem.clone());
    };
    let controller = PodLabelController::new(key, node);
    let runner = runner::spawn(controller, vec![port(store)], Fence::Open, inputs, LIMITS, publish);
    controllers.add(NAME, runner.metrics.clone());
    while status.changed().await.is_ok() {}
}

/// The controller's name in metrics and logs.
const NAME: &str = "pod-label";

/// Ours: a change of the leader is not held up by those before it. Somebody who undoes each write is answered at the rate of `settle`.
const LIMITS: Limits = Limits {
    settle: Duration::from_millis(100),
    limits_objects: false,
    retry: (Duration::from_millis(500), Duration::from_secs(60)),
    ..Limits::DEFAULT
};

/// Keeps the own pod's labels. Pure.
#[derive(Debug)]
struct PodLabelController {
    /// The pod.
    key: ObjectKey,
    node: String,
    wanted: Option<HaStatus>,
    pod: Option<Object>,
    /// Whether the pod was read.
    is_read: bool,
    /// Why it cannot be read at present.
    unread: Option<String>,
}

impl PodLabelController {
    const fn new(key: ObjectKey, node: String) -> Self {
        Self { key, node, wanted: None, pod: None, is_read: false, unread: None }
    }

    fn take(&mut self, pod: Option<Object>) {
        (self.is_read, self.unread) = (true, None);
        self.pod = pod;
    }

    /// Returns the pod as it should be; `None` if it is, or is not known.
    fn labelled(&self) -> Option<Object> {
        let (pod, wanted) = self.pod.as_ref().zip(self.wanted)?;
        labelled_pod(pod, &self.node, wanted)
    }
}

impl Controller for PodLabelController {
    type Key = ();
    type Status = Option<String>;
    type Input = HaStatus;

    fn name(&self) -> &'static str {
        NAME
    }

    fn watches(&self) -> BTreeSet<Watch> {
        [Watch::one(0, &self.key)].into()
    }

    fn observe(&mut self, _: &Watch, event: StoreEvent, _: Instant) -> Vec<()> {
        match event {
            StoreEvent::Listed(objects) => self.take(objects.into_iter().next()),
            StoreEvent::Applied(object) => self.take(Some(object)),
            StoreEvent::Deleted(_) => self.take(None),
            StoreEvent::Unavailable(error) => self.unread = Some(error.to_string()),
        }
        vec![()]
    }

    fn handle_input(&mut self, status: HaStatus, _: Instant) -> Vec<()> {
        self.wanted = Some(status);
        vec![()]
    }

    fn reconcile(&mut self, (): &(), _: &Context) -> Reconciled {
        Reconciled::write(self.labelled().map(Write::Update).into_iter().collect())
    }

    fn status(&self, view: &QueueView<'_>) -> Option<String> {
        let wanted = self.wanted?;
        if self.pod.is_some() && self.labelled().is_none() {
            return None;
        }
        let is_missing = self.is_read && self.pod.is_none();
        let missing = is_missing.then_some("there is no such pod");
        let problem = self.unread.as_deref().or_else(|| view.problem()).or(missing)?;
        Some(format!("its labels do not say {wanted}: {problem}"))
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

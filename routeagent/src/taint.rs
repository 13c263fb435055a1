//! Takes the taint from the own Node that keeps pods off it until it is closed.
//!
//! On a node that no route agent has run on yet nothing refuses what is for remote clusters. Where the kubelets register
//! their nodes with this taint (`--register-with-taints`), no pod is scheduled there before. Who switches that on switches
//! this on, too: the account then needs the right to update Nodes.

use std::future::pending;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{info, warn};
use trieste_control::api::{Kind, Object, ObjectKey};
use trieste_control::store::{Store, StoreError};

use crate::agent::Report;
use crate::nodes::{TAINT, is_our_taint, is_tainted};
use crate::view::ClusterView;

/// Ours: shortest and longest wait between two attempts.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Ours: how often a race is run again at once; a kubelet writes its Node's status, and others its taints.
const MAX_RACES: usize = 5;

/// Returns the Node without the taint, everything else as it was; `None` if it has none.
#[must_use]
pub fn without(mut node: Object) -> Option<Object> {
    if !is_tainted(&node) {
        return None;
    }
    let spec = node.body.get_mut("spec")?.as_object_mut()?;
    spec.get_mut("taints")?.as_array_mut()?.retain(|taint| !is_our_taint(taint));
    Some(node)
}

/// Removes the taint from the Node `name` whenever it has it and the last pass left the node closed. Never ends.
pub async fn keep_removed(
    store: &impl Store,
    name: &str,
    mut views: watch::Receiver<Option<ClusterView>>,
    mut reports: watch::Receiver<Report>,
) {
    let key = ObjectKey::new(Kind::Node, "", name);
    let (mut wait, mut reported) = (RETRY.0, None);
    loop {
        let has_taint = |view: &Option<ClusterView>| {
            let mut nodes = view.iter().flat_map(|view| &view.nodes);
            nodes.any(|node| node.name == name && node.is_tainted)
        };
        // Their senders live as long as the process has anything to do.
        if views.wait_for(has_taint).await.is_err()
            || reports.wait_for(|report| report.is_closed).await.is_err()
        {
            return pending().await;
        }
        match remove(store, &key).await {
            Ok(was_there) => {
                if was_there {
                    info!(taint = TAINT, object = %key, "taint removed: the node is closed");
                }
                (wait, reported) = (RETRY.0, None);
            }
            Err(error) => {
                let error = error.to_string();
                if reported.as_ref() != Some(&error) {
                    warn!(taint = TAINT, object = %key, %error, "taint not removed: no pod is scheduled to this node");
                    reported = Some(error);
                }
                wait = (wait * 2).min(RETRY.1);
            }
        }
        // What is known of the Node may be older than what was just written.
        sleep(wait).await;
    }
}

/// Removes the taint from a Node, by its version, so that nobody's change is lost; returns `false` if there was nothing to
/// remove.
async fn remove(store: &impl Store, key: &ObjectKey) -> Result<bool, StoreError> {
    for race in 1.. {
        let node = store.get(key).await?;
        let Some(node) = node.and_then(without) else { break };
        match store.update(node).await {
            Err(error) if error.is_race() && race < MAX_RACES => {}
            written => return written.map(|_| true),
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tokio::time::timeout;
    use trieste_control::store::AnyStore;

    use super::*;
    use crate::state::ClusterNode;

    #[test]
    fn only_our_taint_goes_whatever_its_effect_and_all_else_stays() {
        let others = json!([{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
            {"key": "trieste.io/not-ready-yet", "effect": "NoExecute"}]);
        let mut all = others.as_array().unwrap().clone();
        all.insert(1, json!({"key": TAINT, "effect": "NoExecute", "value": "true"}));
        all.push(json!({"key": TAINT, "effect": "NoSchedule"}));
        let tainted = node(&Value::from(all));
        assert!(is_tainted(&tainted));
        assert_eq!(without(tainted), Some(node(&others)));
        assert_eq!(without(node(&others)), None);
        for strange in [Value::Null, json!({"key": TAINT}), json!(["x", 7])] {
            assert_eq!(without(node(&strange)), None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_taint_goes_once_the_node_is_closed_and_not_before() {
        let folder = tempfile::tempdir().unwrap();
        let store = AnyStore::attach(&format!("dir:{}", folder.path().display()).parse().unwrap());
        store.create(node(&json!([{"key": TAINT, "effect": "NoSchedule"}]))).await.unwrap();
        let key = ObjectKey::new(Kind::Node, "", "n1");
        let own = ClusterNode { name: "n1".to_owned(), is_tainted: true, ..ClusterNode::default() };
        let view = ClusterView { nodes: vec![own], ..ClusterView::default() };
        let (views, viewed) = watch::channel(None);
        let (reports, reported) = watch::channel(Report { is_closed: true, ..Report::default() });
        let keeper = keep_removed(&store, "n1", viewed, reported);
        tokio::pin!(keeper);
        let mut runs_for_a_while = async || timeout(Duration::from_secs(5), &mut keeper).await.is_err();

        // Nothing is known of the node.
        assert!(runs_for_a_while().await);
        assert!(is_tainted(&store.get(&key).await.unwrap().unwrap()));
        // The last pass failed.
        reports.send_modify(|report| report.is_closed = false);
        views.send_replace(Some(view));
        assert!(runs_for_a_while().await);
        assert!(is_tainted(&store.get(&key).await.unwrap().unwrap()));

        reports.send_modify(|report| report.is_closed = true);
        assert!(runs_for_a_while().await);
        assert!(!is_tainted(&store.get(&key).await.unwrap().unwrap()));
    }

    fn node(taints: &Value) -> Object {
        let object = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "finalizers": ["a/b"]},
            "spec": {"podCIDR": "10.1.3.0/24", "taints": taints}, "status": {"phase": "x"},
        });
        Object::from_value(object).unwrap()
    }
}

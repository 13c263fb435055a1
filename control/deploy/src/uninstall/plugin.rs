//! Taking back the next hops that a network plugin's database was given, before the nodes' guards go.

use std::time::Duration;

use tokio::time::sleep;
use trieste_control::steps::{Outcome, Steps};

use crate::error::DeployError;
use crate::object_ref::ObjectRef;
use crate::objects::names::PLUGIN_SYNC;
use crate::server::Server;

/// The kinds of next hops.
const KINDS: [&str; 2] = ["GatewayRoute", "NonGatewayRoute"];

/// How long workers are given to follow: they watch the objects, and a transaction takes milliseconds. Ours.
const FOLLOWED: Duration = Duration::from_secs(3);

/// Deletes the next hops towards remote networks, while workers run that take the rows of them back and leave those that refuse.
/// Route agents, which have made the objects, make no others: the gateways have gone.
///
/// # Errors
/// [`DeployError`] if the server refuses; the next run goes on from there.
pub(super) async fn withdraw(
    server: &Server,
    namespace: &str,
    patience: Duration,
    steps: &mut dyn Steps,
) -> Result<(), DeployError> {
    let workers = ObjectRef::namespaced("apps/v1", "DaemonSet", namespace, PLUGIN_SYNC);
    if server.find(&workers).await?.is_none() {
        return Ok(());
    }
    steps.begin("Withdrawing the next hops from OVN");
    let count = delete_next_hops(server, namespace).await?;
    if count > 0 {
        steps.remark(Outcome::Success, &format!("Next hops: {count} deleted"));
        sleep(FOLLOWED.min(patience)).await;
    }
    steps.end(Outcome::Success);
    Ok(())
}

/// Deletes the next hops of a namespace; returns how many there were.
pub(super) async fn delete_next_hops(server: &Server, namespace: &str) -> Result<usize, DeployError> {
    let mut count = 0;
    for kind in KINDS {
        let found = server.list("submariner.io/v1", kind, Some(namespace), "").await?;
        for place in found.iter().filter_map(ObjectRef::of) {
            count += usize::from(server.delete(&place).await?);
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::fake::Fake;
    use serde_json::json;
    use trieste_control::steps::Record;

    #[tokio::test]
    async fn plugin_ovn_next_hops_are_withdrawn_while_workers_run_and_in_no_other_namespace() {
        for has_workers in [false, true] {
            let fake = Fake::default();
            let route = |kind: &str, namespace: &str| {
                ObjectRef::namespaced("submariner.io/v1", kind, namespace, "west")
            };
            for (kind, namespace) in
                [("GatewayRoute", "ns"), ("NonGatewayRoute", "ns"), ("GatewayRoute", "other")]
            {
                fake.put(json!({"apiVersion": "submariner.io/v1", "kind": kind,
                    "metadata": {"namespace": namespace, "name": "west"}}));
            }
            if has_workers {
                fake.put(json!({"apiVersion": "apps/v1", "kind": "DaemonSet",
                    "metadata": {"namespace": "ns", "name": PLUGIN_SYNC}}));
            }
            let mut record = Record::default();
            withdraw(&fake.server(), "ns", Duration::ZERO, &mut record).await.unwrap();
            let left = KINDS.map(|kind| fake.has(&route(kind, "ns")));
            assert_eq!((left, record.steps.len()), ([!has_workers; 2], usize::from(has_workers)));
            assert!(fake.has(&route("GatewayRoute", "other")));
        }
    }
}

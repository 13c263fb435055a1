//! Taking over what upstream's operator has installed under the same names.
//!
//! It writes whole objects: server-side apply would leave each variable, volume and probe of its pods beside ours. So its sets of
//! pods go and ours come in their place, while the pods stay: the new set finds them by the same labels, and exchanges them one by
//! one. A run that is interrupted in between leaves pods without a set, which the next one makes.

use std::time::Duration;

use crate::apply::remove;
use crate::error::DeployError;
use crate::object_ref::ObjectRef;
use crate::objects::Manifest;
use crate::objects::names::{GLOBALNET, METRICS_PROXY};
use crate::pods::are_ours;
use crate::server::Server;

/// How long a set may take to go: Kubernetes takes its marks off its pods first.
const GONE: Duration = Duration::from_secs(60);

/// Removes the sets of pods among `wanted` that others have made, without their pods, and those of upstream that there are none of
/// here: its Globalnet, whose work gateways do, and what shows metrics on ports of nodes.
///
/// # Errors
/// [`DeployError`]; the next run goes on from there.
pub(super) async fn workloads(
    local: &Server,
    namespace: &str,
    wanted: &[Manifest],
) -> Result<(), DeployError> {
    let sets = wanted.iter().filter(|manifest| ["DaemonSet", "Deployment"].contains(&manifest.kind()));
    for place in sets.filter_map(|manifest| ObjectRef::of(manifest.as_value())) {
        if is_others(local, &place).await? {
            local.delete_orphaning(&place).await?;
            local.wait_gone(&place, GONE).await?;
        }
    }
    for name in [GLOBALNET, METRICS_PROXY] {
        let place = ObjectRef::namespaced("apps/v1", "DaemonSet", namespace, name);
        if is_others(local, &place).await? {
            remove(local, &place).await?;
        }
    }
    Ok(())
}

/// Returns `true` if a set is there whose pods somebody else has specified, whoever has made it: upstream's operator leaves our label on
/// a set that it takes back.
async fn is_others(local: &Server, place: &ObjectRef) -> Result<bool, DeployError> {
    Ok(local.find(place).await?.is_some_and(|found| !are_ours(&found)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::objects;
    use crate::objects::names::{MANAGED_BY_LABEL, TRIESTE};
    use crate::server::fake::Fake;

    #[tokio::test]
    async fn sets_of_pods_of_others_go_under_our_names_and_ours_stay() {
        let fake = Fake::default();
        let member = objects::example();
        let all = objects::member(&member);
        let set = |name: &str| ObjectRef::namespaced("apps/v1", "DaemonSet", &member.namespace, name);
        for name in ["submariner-gateway", GLOBALNET, METRICS_PROXY, "theirs"] {
            fake.put(json!({"apiVersion": "apps/v1", "kind": "DaemonSet",
                "metadata": {"namespace": member.namespace, "name": name,
                    "labels": {MANAGED_BY_LABEL: TRIESTE}}}));
        }
        let agent = all
            .iter()
            .find(|manifest| manifest.name() == "submariner-routeagent" && manifest.kind() == "DaemonSet");
        fake.put(agent.unwrap().as_value().clone());
        workloads(&fake.server(), &member.namespace, &all).await.unwrap();
        let left = ["submariner-gateway", GLOBALNET, METRICS_PROXY, "theirs", "submariner-routeagent"];
        assert_eq!(left.map(|name| fake.has(&set(name))), [false, false, false, true, true]);
    }
}

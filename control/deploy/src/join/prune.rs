//! Removing what an earlier join has installed and this one does not want.

use serde_json::Value;

use crate::apply::remove;
use crate::error::DeployError;
use crate::object_ref::ObjectRef;
use crate::objects::names::{MANAGED_BY_LABEL, PLUGIN_ROUTES, PLUGIN_SYNC, TRIESTE};
use crate::objects::{self, Manifest, MemberOptions};
use crate::server::Server;

const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// Objects of a cluster whose network plugin was OVN-Kubernetes, in the order in which they go.
const OF_PLUGIN: [(&str, &str, &str); 8] = [
    ("apps/v1", "DaemonSet", PLUGIN_SYNC),
    (RBAC, "RoleBinding", PLUGIN_ROUTES),
    (RBAC, "Role", PLUGIN_ROUTES),
    (RBAC, "RoleBinding", PLUGIN_SYNC),
    (RBAC, "Role", PLUGIN_SYNC),
    (RBAC, "ClusterRoleBinding", PLUGIN_SYNC),
    (RBAC, "ClusterRole", PLUGIN_SYNC),
    ("v1", "ServiceAccount", PLUGIN_SYNC),
];

/// Removes objects of ours that are not asked for any more: Services such as the load balancer's, and what serves a network
/// plugin that the cluster does not have any more.
///
/// # Errors
/// [`DeployError`] if the server refuses.
pub(super) async fn unwanted(local: &Server, member: &MemberOptions) -> Result<(), DeployError> {
    let selector = format!("labelSelector={MANAGED_BY_LABEL}%3D{TRIESTE}");
    let wanted = objects::member(member);
    for service in local.list("v1", "Service", Some(&member.namespace), &selector).await? {
        let Some(place) = ObjectRef::of(&service) else { continue };
        let is_wanted = |manifest: &Manifest| manifest.kind() == "Service" && manifest.name() == place.name;
        if !wanted.iter().any(is_wanted) {
            remove(local, &place).await?;
        }
    }
    if member.has_ovn() {
        return Ok(());
    }
    // The plugin's database has gone with the plugin, so that there are no rows to be removed.
    for (version, kind, name) in OF_PLUGIN {
        let place = if kind.starts_with("Cluster") {
            ObjectRef::cluster_wide(version, kind, name)
        } else {
            ObjectRef::namespaced(version, kind, &member.namespace, name)
        };
        let is_ours = |object: &Value| object["metadata"]["labels"][MANAGED_BY_LABEL] == TRIESTE;
        if local.find(&place).await?.as_ref().is_some_and(is_ours) {
            remove(local, &place).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::fake::Fake;

    #[tokio::test]
    async fn plugin_ovn_objects_go_when_the_plugin_has_gone_and_stay_while_it_is_there() {
        let fake = Fake::default();
        let mut member = objects::example();
        member.network_plugin = "OVNKubernetes".to_owned();
        let mut names = Vec::new();
        for manifest in objects::member(&member) {
            if [PLUGIN_SYNC, PLUGIN_ROUTES].contains(&manifest.name()) {
                names.extend(ObjectRef::of(manifest.as_value()));
                fake.put(manifest.as_value().clone());
            }
        }
        assert_eq!(names.len(), OF_PLUGIN.len());
        unwanted(&fake.server(), &member).await.unwrap();
        assert!(names.iter().all(|place| fake.has(place)));
        member.network_plugin = "calico".to_owned();
        unwanted(&fake.server(), &member).await.unwrap();
        assert!(names.iter().all(|place| !fake.has(place)), "{names:?}");
    }
}

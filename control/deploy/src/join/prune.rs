//! Removing what an earlier join has installed and this one does not want.

use serde_json::Value;

use crate::apply::remove;
use crate::error::DeployError;
use crate::object_ref::ObjectRef;
use crate::objects::names::{MANAGED_BY_LABEL, PLUGIN_ROUTES, PLUGIN_SYNC, TRIESTE};
use crate::objects::{self, Manifest, MemberOptions};
use crate::server::Server;

const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// Objects that serve a network plugin with a database of its own, in the order in which they go.
const OF_PLUGIN: [(&str, &str, &str); 9] = [
    ("apps/v1", "DaemonSet", PLUGIN_SYNC),
    ("apps/v1", "Deployment", PLUGIN_SYNC),
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
    // What the database of the former plugin holds has gone with that plugin, or is no harm without it.
    for (version, kind, name) in OF_PLUGIN {
        if wanted.iter().any(|manifest| (manifest.kind(), manifest.name()) == (kind, name)) {
            continue;
        }
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

    /// Returns the kinds of what serves a plugin.
    fn kinds(fake: &Fake, namespace: &str) -> Vec<&'static str> {
        let place = |(version, kind, name): (&str, &str, &str)| match kind.starts_with("Cluster") {
            true => ObjectRef::cluster_wide(version, kind, name),
            false => ObjectRef::namespaced(version, kind, namespace, name),
        };
        OF_PLUGIN.into_iter().filter(|object| fake.has(&place(*object))).map(|(_, kind, _)| kind).collect()
    }

    #[tokio::test]
    async fn plugin_ovn_and_plugin_calico_objects_go_with_their_plugin_and_the_other_ones_come() {
        let rights = ["RoleBinding", "Role", "RoleBinding", "Role", "ClusterRoleBinding", "ClusterRole"];
        let of = |workload| [&[workload], &rights[..], &["ServiceAccount"]].concat();
        for (before, now, left) in [
            ("OVNKubernetes", "OVNKubernetes", of("DaemonSet")),
            ("OVNKubernetes", "calico", of("Deployment")),
            ("OVNKubernetes", "generic", Vec::new()),
            ("calico", "Calico", of("Deployment")),
            ("calico", "OVNKubernetes", of("DaemonSet")),
            ("calico", "generic", Vec::new()),
            ("generic", "calico", of("Deployment")),
        ] {
            let fake = Fake::default();
            let mut member = objects::example();
            for plugin in [before, now] {
                member.network_plugin = plugin.to_owned();
                for manifest in objects::member(&member) {
                    if [PLUGIN_SYNC, PLUGIN_ROUTES].contains(&manifest.name()) {
                        fake.put(manifest.as_value().clone());
                    }
                }
            }
            unwanted(&fake.server(), &member).await.unwrap();
            assert_eq!(kinds(&fake, &member.namespace), left, "{before}, then {now}");
        }
    }

    #[tokio::test]
    async fn plugin_calico_objects_of_somebody_else_stay() {
        let fake = Fake::default();
        let member = objects::example();
        let place = ObjectRef::namespaced("apps/v1", "Deployment", &member.namespace, PLUGIN_SYNC);
        fake.put(serde_json::json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"namespace": member.namespace, "name": PLUGIN_SYNC}}));
        unwanted(&fake.server(), &member).await.unwrap();
        assert!(fake.has(&place));
    }
}

//! Removing what an earlier join has installed and this one does not want.

use serde_json::Value;

use crate::apply::remove;
use crate::error::DeployError;
use crate::network_maps;
use crate::object_ref::ObjectRef;
use crate::objects::names::{MANAGED_BY_LABEL, PLUGIN_ROUTES, PLUGIN_SYNC, SPIDERPOOL_SYNC, TRIESTE};
use crate::objects::{self, Manifest, MemberOptions};
use crate::server::Server;

const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// Objects that serve a network plugin with a database of its own, or Spiderpool, in the order in which they go.
const OF_PLUGIN: [(&str, &str, &str); 15] = [
    ("apps/v1", "DaemonSet", PLUGIN_SYNC),
    ("apps/v1", "Deployment", PLUGIN_SYNC),
    ("apps/v1", "Deployment", SPIDERPOOL_SYNC),
    (RBAC, "RoleBinding", PLUGIN_ROUTES),
    (RBAC, "Role", PLUGIN_ROUTES),
    (RBAC, "RoleBinding", PLUGIN_SYNC),
    (RBAC, "Role", PLUGIN_SYNC),
    (RBAC, "ClusterRoleBinding", PLUGIN_SYNC),
    (RBAC, "ClusterRole", PLUGIN_SYNC),
    ("v1", "ServiceAccount", PLUGIN_SYNC),
    (RBAC, "RoleBinding", SPIDERPOOL_SYNC),
    (RBAC, "Role", SPIDERPOOL_SYNC),
    (RBAC, "ClusterRoleBinding", SPIDERPOOL_SYNC),
    (RBAC, "ClusterRole", SPIDERPOOL_SYNC),
    ("v1", "ServiceAccount", SPIDERPOOL_SYNC),
];

/// Removes objects of ours that are not asked for any more: Services such as the load balancer's, and what serves a network
/// plugin, or Spiderpool, that the cluster does not have any more.
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
    // What the database of the former plugin holds has gone with that plugin, or is no harm without it; so have Spiderpool's lists.
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
    let is_wanted = |place: &ObjectRef| {
        wanted.iter().any(|manifest| ObjectRef::of(manifest.as_value()).as_ref() == Some(place))
    };
    for place in network_maps::roles(local).await?.iter().filter(|place| !is_wanted(place)) {
        remove(local, place).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use trieste_control::live_networks::Source;

    use super::*;
    use crate::objects::names::NETWORK_MAPS;
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
    async fn plugin_spiderpool_objects_go_with_it_and_leave_those_of_the_plugin() {
        let routes = ["RoleBinding", "Role"];
        let rights = ["RoleBinding", "Role", "ClusterRoleBinding", "ClusterRole", "ServiceAccount"];
        let of_calico = [&["Deployment"], &routes[..], &rights].concat();
        let of_both = [&["Deployment"; 2], &routes[..], &rights, &rights].concat();
        for (before, now, left) in [
            (("generic", true), ("generic", true), [&["Deployment"], &routes[..], &rights].concat()),
            (("generic", true), ("generic", false), Vec::new()),
            (("calico", true), ("calico", true), of_both),
            (("calico", true), ("calico", false), of_calico),
            (("calico", true), ("generic", true), [&["Deployment"], &routes[..], &rights].concat()),
            (("OVNKubernetes", true), ("generic", false), Vec::new()),
        ] {
            let fake = Fake::default();
            let mut member = objects::example();
            for (plugin, has_spiderpool) in [before, now] {
                member.network_plugin = plugin.to_owned();
                member.has_spiderpool = has_spiderpool;
                for manifest in objects::member(&member) {
                    if [PLUGIN_SYNC, PLUGIN_ROUTES, SPIDERPOOL_SYNC].contains(&manifest.name()) {
                        fake.put(manifest.as_value().clone());
                    }
                }
            }
            unwanted(&fake.server(), &member).await.unwrap();
            assert_eq!(kinds(&fake, &member.namespace), left, "{before:?}, then {now:?}");
        }
    }

    #[tokio::test]
    async fn plugin_calico_and_plugin_spiderpool_objects_of_somebody_else_stay() {
        let fake = Fake::default();
        let member = objects::example();
        for name in [PLUGIN_SYNC, SPIDERPOOL_SYNC] {
            let place = ObjectRef::namespaced("apps/v1", "Deployment", &member.namespace, name);
            fake.put(serde_json::json!({"apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"namespace": member.namespace, "name": name}}));
            unwanted(&fake.server(), &member).await.unwrap();
            assert!(fake.has(&place), "{name}");
        }
    }

    #[tokio::test]
    async fn roles_in_namespaces_of_plugins_go_when_nothing_is_followed_there_and_those_of_others_stay() {
        let fake = Fake::default();
        let mut member = objects::example();
        let roles = |member: &MemberOptions| -> Vec<Manifest> {
            let all = objects::member(member).into_iter();
            all.filter(|manifest| manifest.name() == NETWORK_MAPS).collect()
        };
        member.followed.0 =
            [Source::FlannelMap, Source::KubeadmServicesMap].map(|one| (one, BTreeSet::new())).into();
        let both = roles(&member);
        let shown: Vec<String> = both.iter().map(ToString::to_string).collect();
        assert_eq!(shown.len(), 4, "{shown:?}");
        for manifest in &both {
            fake.put(manifest.as_value().clone());
        }
        let theirs = serde_json::json!({"apiVersion": RBAC, "kind": "Role",
            "metadata": {"namespace": "ovn-kubernetes", "name": NETWORK_MAPS}});
        fake.put(theirs.clone());
        unwanted(&fake.server(), &member).await.unwrap();
        let has = |manifest: &Manifest| fake.has(&ObjectRef::of(manifest.as_value()).unwrap());
        assert!(both.iter().all(has));
        member.followed.0.remove(&Source::FlannelMap);
        unwanted(&fake.server(), &member).await.unwrap();
        for manifest in &both {
            assert_eq!(has(manifest), manifest.namespace() == Some("kube-system"), "{manifest}");
        }
        assert!(fake.has(&ObjectRef::of(&theirs).unwrap()));
    }
}

//! The member's account on the broker.

use serde_json::{Value, json};

use super::Plan;
use crate::apply::ensure;
use crate::deploy_broker::wait_token;
use crate::error::DeployError;
use crate::object_ref::ObjectRef;
use crate::objects::names::{MEMBER_ROLE, UPSTREAM_MEMBER_ROLE, cluster_account, cluster_token};
use crate::objects::{self, BrokerAccess, Manifest, MemberOptions};
use crate::preflight::Registration;
use crate::server::Server;

/// The annotation of a member's account on the broker: for which cluster it was made, by the UID of its namespace
/// `kube-system`.
pub const MADE_FOR: &str = "trieste.io/kube-system-uid";

/// The name of a member's binding to upstream's Role, as upstream calls it.
pub(crate) fn upstream_binding(cluster_id: &str) -> String {
    format!("{}-{UPSTREAM_MEMBER_ROLE}", cluster_account(cluster_id))
}

/// The member's objects on the broker, its account marked with whose it is. A broker that upstream's tool has made
/// knows upstream's Role only.
pub(super) fn account(member: &MemberOptions, uid: &str, has_our_role: bool) -> Vec<Manifest> {
    let id = member.cluster_id.as_str();
    let adapt = |manifest: Manifest| {
        let kind = manifest.kind().to_owned();
        let mut value = manifest.into_value();
        if kind == "ServiceAccount" {
            value["metadata"]["annotations"][MADE_FOR] = json!(uid);
        }
        if kind == "RoleBinding" && !has_our_role {
            value["metadata"]["name"] = json!(upstream_binding(id));
            value["roleRef"]["name"] = json!(UPSTREAM_MEMBER_ROLE);
        }
        Manifest::new(value)
    };
    objects::broker_member(id, &member.broker.namespace).into_iter().map(adapt).collect()
}

/// What the broker knows of an ID.
pub(super) fn registration(has_cluster: bool, account: Option<&Value>) -> Registration {
    Registration { has_cluster, made_for: account.and_then(made_for) }
}

/// Makes the account, unless another cluster has been faster, and returns the member's choices with its token.
pub(super) async fn register(broker: &Server, plan: &Plan) -> Result<MemberOptions, DeployError> {
    let member = &plan.member;
    for manifest in &plan.broker {
        still_ours(broker, manifest, &member.cluster_id).await?;
        ensure(broker, manifest).await?;
    }
    if plan.broker.iter().any(is_our_binding) {
        // Left by upstream's tool, or by a join before the broker had our Role: rights add up.
        let name = upstream_binding(&member.cluster_id);
        let kind = ("rbac.authorization.k8s.io/v1", "RoleBinding");
        let wider = ObjectRef::namespaced(kind.0, kind.1, &member.broker.namespace, &name);
        if broker.find(&wider).await?.is_some() {
            broker.delete(&wider).await?;
        }
    }
    let token = wait_token(broker, &member.broker.namespace, &cluster_token(&member.cluster_id)).await?;
    let ca = if token.ca.is_empty() { member.broker.ca.clone() } else { Some(token.ca) };
    let access = BrokerAccess { token: token.token, ca, ..member.broker.clone() };
    Ok(MemberOptions { broker: access, ..member.clone() })
}

fn is_our_binding(manifest: &Manifest) -> bool {
    manifest.kind() == "RoleBinding" && manifest.as_value()["roleRef"]["name"] == MEMBER_ROLE
}

/// Of two clusters that join under one ID at the same moment, both have found it free.
async fn still_ours(broker: &Server, manifest: &Manifest, id: &str) -> Result<(), DeployError> {
    let (Some(ours), Some(place)) = (made_for(manifest.as_value()), ObjectRef::of(manifest.as_value()))
    else {
        return Ok(());
    };
    match broker.find(&place).await?.as_ref().and_then(made_for) {
        Some(theirs) if theirs != ours => Err(DeployError::refused(
            format!("another cluster has just joined with the ID {id}"),
            "choose another one with --clusterid",
        )),
        _ => Ok(()),
    }
}

fn made_for(account: &Value) -> Option<String> {
    account["metadata"]["annotations"][MADE_FOR].as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::Secret;

    #[test]
    fn the_account_says_whose_it_is_and_has_the_role_that_there_is() {
        let member =
            MemberOptions::new("east", BrokerAccess::new("b:1", None, Secret::default()), Secret::new("k"));
        let binding = |has_our_role: bool| {
            let all = account(&member, "uid-1", has_our_role);
            assert_eq!(registration(false, Some(all[0].as_value())).made_for.as_deref(), Some("uid-1"));
            let binding = all.into_iter().find(|manifest| manifest.kind() == "RoleBinding").unwrap();
            assert_eq!(is_our_binding(&binding), has_our_role);
            (binding.name().to_owned(), binding.as_value()["roleRef"]["name"].as_str().unwrap().to_owned())
        };
        let name = |role: &str| (format!("cluster-east-{role}"), role.to_owned());
        assert_eq!(binding(true), name("trieste-k8s-broker-cluster"));
        assert_eq!(binding(false), name("submariner-k8s-broker-cluster"));
    }
}

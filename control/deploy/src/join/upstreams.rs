//! Whether upstream's operator runs in a cluster.

use serde_json::Value;

use crate::error::DeployError;
use crate::objects::names::{NAMESPACE, UPSTREAM_OPERATOR};
use crate::server::Server;

/// Returns the namespace in which upstream's operator runs, if it does. In another namespace than its own that is a Deployment of
/// its name whose account has rights in the whole cluster: whoever may make Deployments somewhere could keep our hands off otherwise.
///
/// # Errors
/// [`DeployError`] if the server does not answer.
pub async fn upstream_operator(local: &Server) -> Result<Option<String>, DeployError> {
    let by_name = format!("fieldSelector=metadata.name%3D{UPSTREAM_OPERATOR}");
    let mut all = local.list("apps/v1", "Deployment", None, &by_name).await?;
    all.retain(|set| {
        set["metadata"]["name"] == UPSTREAM_OPERATOR
            && set["spec"]["replicas"] != 0
            && set["metadata"]["deletionTimestamp"].is_null()
    });
    let is_elsewhere = |set: &Value| set["metadata"]["namespace"] != NAMESPACE;
    if !all.is_empty() && all.iter().all(is_elsewhere) {
        let bindings = local.list("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", None, "").await?;
        let subjects = || bindings.iter().flat_map(|binding| binding["subjects"].as_array()).flatten();
        all.retain(|set| {
            let account = &set["spec"]["template"]["spec"]["serviceAccountName"];
            let namespace = &set["metadata"]["namespace"];
            subjects().any(|subject| {
                subject["kind"] == "ServiceAccount"
                    && subject["name"] == *account
                    && subject["namespace"] == *namespace
            })
        });
    }
    let namespace = all.first().and_then(|set| set["metadata"]["namespace"].as_str());
    Ok(namespace.map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::server::fake::Fake;

    #[tokio::test]
    async fn a_deployment_that_anybody_could_have_made_is_no_operator() {
        let fake = Fake::default();
        let server = fake.server();
        let operator_in = |namespace: &str| {
            fake.put(json!({"apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"namespace": namespace, "name": "submariner-operator"},
                "spec": {"template": {"spec": {"serviceAccountName": "submariner-operator"}}}}));
        };
        operator_in("operators");
        assert_eq!(upstream_operator(&server).await.unwrap(), None);
        fake.put(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "submariner-operator"}, "subjects": [
                {"kind": "ServiceAccount", "name": "submariner-operator", "namespace": "operators"}]}));
        assert_eq!(upstream_operator(&server).await.unwrap().as_deref(), Some("operators"));
        let server = Fake::default();
        server.put(json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"namespace": NAMESPACE, "name": "submariner-operator"}}));
        assert_eq!(upstream_operator(&server.server()).await.unwrap().as_deref(), Some(NAMESPACE));
    }
}

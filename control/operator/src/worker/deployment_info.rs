//! What kind of cluster this is, in upstream's words.

use serde_json::{Value, json};

/// Returns upstream's `deploymentInfo`: by the version and what nodes say of themselves.
pub(super) fn deployment_info(version: &str, nodes: &[Value]) -> Value {
    let has_label = |label: &str| nodes.iter().any(|node| !node["metadata"]["labels"][label].is_null());
    let kind = match () {
        () if has_label("node.openshift.io/os_id") => "ocp",
        () if version.contains("-gke.") || has_label("cloud.google.com/gke-nodepool") => "gke",
        () if version.contains("-eks-") => "eks",
        () if has_label("kubernetes.azure.com/cluster") => "aks",
        () => "k8s",
    };
    let mut info = json!({"kubernetesType": kind, "kubernetesVersion": version});
    let provider = nodes.iter().find_map(|node| node["spec"]["providerID"].as_str()?.split_once("://"));
    if let Some(provider) = provider.and_then(|(provider, _)| cloud(provider)) {
        info["cloudProvider"] = json!(provider);
    }
    info
}

/// Returns upstream's word for the cloud that a node's ID begins with.
fn cloud(provider: &str) -> Option<&'static str> {
    Some(match provider {
        "aws" => "aws",
        "gce" => "gcp",
        "azure" => "azure",
        "openstack" => "openstack",
        "kind" => "kind",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_told_by_its_nodes_and_its_version() {
        let node =
            |label: &str, id: &str| json!({"metadata": {"labels": {label: "x"}}, "spec": {"providerID": id}});
        for (version, label, id, expected) in [
            ("v1.34.1", "a", "kind://docker/x", json!({"kubernetesType": "k8s", "cloudProvider": "kind"})),
            ("v1.34.1-gke.1", "a", "gce://p/z/n", json!({"kubernetesType": "gke", "cloudProvider": "gcp"})),
            ("v1.34.1-eks-1", "a", "aws:///z/i", json!({"kubernetesType": "eks", "cloudProvider": "aws"})),
            ("v1.34.1", "node.openshift.io/os_id", "x", json!({"kubernetesType": "ocp"})),
            (
                "v1.34.1",
                "kubernetes.azure.com/cluster",
                "azure:///s",
                json!({"kubernetesType": "aks", "cloudProvider": "azure"}),
            ),
        ] {
            let mut expected = expected;
            expected["kubernetesVersion"] = json!(version);
            assert_eq!(deployment_info(version, &[node(label, id)]), expected);
        }
        assert_eq!(deployment_info("v1", &[])["kubernetesType"], "k8s");
    }
}

//! What OpenShift's installer leaves about a cluster, in its `metadata.json`.
//!
//! The form is the installer's: <https://github.com/openshift/installer/blob/main/pkg/types/clustermetadata.go>.

use serde_json::Value;

use crate::CloudError;

/// The file's name, where a folder is named.
pub const FILE: &str = "metadata.json";
/// With what the tag begins whose name ends with the infrastructure ID.
const OWNED: &str = "kubernetes.io/cluster/";

/// What is read of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metadata {
    /// The infrastructure ID.
    pub infra_id: String,
    /// The region, of a cloud whose part has it.
    pub region: Option<String>,
    /// The project, of a cloud that has projects.
    pub project: Option<String>,
    /// The entry of a `clouds.yaml` with which the cluster was installed.
    pub cloud_entry: Option<String>,
}

/// Reads the text of a `metadata.json`.
///
/// # Errors
/// [`CloudError::Refused`] if it is none, or has no infrastructure ID.
pub fn read(text: &str) -> Result<Metadata, CloudError> {
    let other = "name the metadata.json in the folder from which OpenShift was installed, or the ID itself with --infra-id";
    let all: Value = serde_json::from_str(text).map_err(|error| {
        CloudError::refused(format!("OpenShift's metadata is no valid JSON: {error}"), other)
    })?;
    let at = |pointer: &str| text_at(all.pointer(pointer));
    let first = |pointers: &[&str]| pointers.iter().find_map(|pointer| at(pointer));
    let infra_id =
        at("/infraID").or_else(|| owned(&all)).or_else(|| at("/openstack/identifier/openshiftClusterID"));
    let Some(infra_id) = infra_id else {
        return Err(CloudError::refused("OpenShift's metadata has no infraID", other));
    };
    Ok(Metadata {
        infra_id,
        region: first(&["/aws/region", "/gcp/region", "/azure/region"]),
        // Upstream's tool reads a project of OpenStack's there, which somebody has to have added.
        project: first(&["/gcp/projectID", "/rhos/projectID"]),
        cloud_entry: at("/openstack/cloud"),
    })
}

fn text_at(value: Option<&Value>) -> Option<String> {
    value.and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// Returns the infrastructure ID that the tags of a cluster in AWS end with.
fn owned(all: &Value) -> Option<String> {
    let tags = all.pointer("/aws/identifier").and_then(Value::as_array)?;
    let mut keys = tags.iter().filter_map(Value::as_object).flat_map(|tags| tags.keys());
    keys.find_map(|key| key.strip_prefix(OWNED)).filter(|id| !id.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(infra_id: &str, region: &str, project: &str, cloud_entry: &str) -> Metadata {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Metadata {
            infra_id: infra_id.to_owned(),
            region: given(region),
            project: given(project),
            cloud_entry: given(cloud_entry),
        }
    }

    #[test]
    fn reads_every_platforms_part() {
        let aws = r#"{"clusterName":"east","clusterID":"c0","infraID":"east-7xk2p","aws":{"region":"eu-west-1",
            "identifier":[{"kubernetes.io/cluster/east-7xk2p":"owned"},{"openshiftClusterID":"c0"}],"clusterDomain":"x"}}"#;
        let aws_by_tags = r#"{"aws":{"region":"eu-west-1","identifier":[{"openshiftClusterID":"c0"},{"kubernetes.io/cluster/east-7xk2p":"owned"}]}}"#;
        let gcp = r#"{"infraID":"east-7xk2p","gcp":{"region":"europe-west3","projectID":"p-1","networkProjectID":"p-2"}}"#;
        let azure = r#"{"infraID":"east-7xk2p","azure":{"armEndpoint":"","cloudName":"AzurePublicCloud","region":"westeurope","resourceGroupName":""}}"#;
        let openstack = r#"{"infraID":"east-7xk2p","openstack":{"cloud":"mycloud","identifier":{"openshiftClusterID":"east-7xk2p"}}}"#;
        let openstack_by_tag =
            r#"{"infraID":"","openstack":{"cloud":"","identifier":{"openshiftClusterID":"east-7xk2p"}}}"#;
        let rhos = r#"{"infraID":"east-7xk2p","rhos":{"projectID":"p-3"}}"#;
        let table = [
            (aws, metadata("east-7xk2p", "eu-west-1", "", "")),
            (aws_by_tags, metadata("east-7xk2p", "eu-west-1", "", "")),
            (gcp, metadata("east-7xk2p", "europe-west3", "p-1", "")),
            (azure, metadata("east-7xk2p", "westeurope", "", "")),
            (openstack, metadata("east-7xk2p", "", "", "mycloud")),
            (openstack_by_tag, metadata("east-7xk2p", "", "", "")),
            (rhos, metadata("east-7xk2p", "", "p-3", "")),
        ];
        for (text, wanted) in table {
            assert_eq!(read(text).unwrap(), wanted, "{text}");
        }
    }

    #[test]
    fn refuses_what_is_none() {
        let table = [
            ("", "no valid JSON"),
            ("{", "no valid JSON"),
            ("[]", "no infraID"),
            ("{}", "no infraID"),
            (r#"{"infraID":7}"#, "no infraID"),
            (r#"{"aws":{"identifier":[{"kubernetes.io/cluster/":"owned"}]}}"#, "no infraID"),
        ];
        for (text, wanted) in table {
            let error = read(text).unwrap_err();
            assert!(error.to_string().contains(wanted), "{text}: {error}");
            assert!(error.next().contains("metadata.json"), "{}", error.next());
        }
    }
}

//! The part that prepares the cloud: what it has to let pass, and which of its machines are gateways.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `Fabric.spec.cloudPrepareConfig`: what `trieste cloud prepare` has flags for. Ports, and whether there is a load balancer, are
/// those of joinConfig.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "[has(self.aws), has(self.gcp), has(self.azure), has(self.rhos), has(self.generic)].exists_one(given, given)",
        "message": "name one cloud: aws, gcp, azure or rhos, or generic for any other, such as aws: {}"
    },
    {
        "rule": "has(self.generic) || has(self.credentialsSecret)",
        "message": "credentialsSecret is missing: name the Secret with which the cloud is asked (docs/operations/operator.md lists \
its keys)"
    }
]))]
pub struct CloudPrepareConfig {
    /// The Secret with which the cloud is asked; its keys are those of OpenShift's credentials. Only generic does without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials_secret: Option<CredentialsSecret>,
    /// The ID by which the cloud's objects of this cluster are found, such as east-x7k2p: status.infrastructureName of OpenShift's
    /// object Infrastructure cluster.
    #[serde(rename = "infraID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub infra_id: Option<String>,
    /// The cloud's region that the cluster is in, such as eu-west-1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub region: Option<String>,
    /// Whence other clusters' gateways send, as the cloud sees them.
    #[schemars(length(max = 64), inner(length(max = 64)), extend("x-kubernetes-validations" = [{
        "rule": "self.size() > 0 && self.all(source, source.matches('^[0-9a-fA-F:.]+/[0-9]{1,3}$'))",
        "message": "expected CIDRs such as 198.51.100.0/24 or 2001:db8::/48, at least one"
    }]))]
    pub sources: Vec<String>,
    /// The cluster is in AWS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws: Option<AwsConfig>,
    /// The cluster is in Google's cloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gcp: Option<GcpConfig>,
    /// The cluster is in Azure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub azure: Option<AzureConfig>,
    /// The cluster is in OpenStack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rhos: Option<RhosConfig>,
    /// The cluster is where nothing can be asked: nodes are labelled as gateways, and the rest is its administrator's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generic: Option<GenericConfig>,
}

impl Default for CloudPrepareConfig {
    fn default() -> Self {
        Self {
            credentials_secret: None,
            infra_id: None,
            region: None,
            sources: vec!["0.0.0.0/0".to_owned(), "::/0".to_owned()],
            aws: None,
            gcp: None,
            azure: None,
            rhos: None,
            generic: None,
        }
    }
}

impl CloudPrepareConfig {
    /// Returns `true` if both are about the same objects of the same cloud: one replaces the other where it stands. If they are not,
    /// what was prepared by one is taken back before the other is carried out.
    pub fn is_same_cloud(&self, other: &Self) -> bool {
        self.cloud() == other.cloud()
    }

    /// Returns what says where the cloud's objects are: all but how many gateways there are, what they are like, whence packets
    /// come, and with what the cloud is asked.
    fn cloud(&self) -> Self {
        let mut cloud = Self { credentials_secret: None, sources: Vec::new(), ..self.clone() };
        if let Some(aws) = &mut cloud.aws {
            *aws = AwsConfig { gateway_instance: String::new(), gateways: 0, ..aws.clone() };
        }
        if let Some(gcp) = &mut cloud.gcp {
            *gcp = GcpConfig { gateway_instance: String::new(), gateways: 0, ..gcp.clone() };
        }
        if let Some(rhos) = &mut cloud.rhos {
            *rhos = RhosConfig { gateway_instance: String::new(), gateways: 0, ..rhos.clone() };
        }
        cloud.azure = cloud.azure.map(|_| AzureConfig::default());
        cloud.generic = cloud.generic.map(|_| GenericConfig::default());
        cloud
    }
}

/// A Secret with which a cloud is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CredentialsSecret {
    /// The Secret's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The Secret's namespace. The operator reads Secrets in these alone.
    #[serde(default = "own_namespace")]
    #[schemars(extend("enum" = ["trieste-operator", "submariner-operator", "submariner-k8s-broker"]))]
    pub namespace: String,
}

fn own_namespace() -> String {
    "trieste-operator".to_owned()
}

/// `cloudPrepareConfig.aws`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AwsConfig {
    /// The type of machines that are made for gateways.
    #[schemars(length(min = 1, max = 128))]
    pub gateway_instance: String,
    /// How many gateways there are to be; 0 leaves the choice of nodes to others.
    #[schemars(with = "i32", range(min = 0, max = 16))]
    pub gateways: u32,
    /// The name of the VPC, where it is not found by infraID.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub vpc_name: Option<String>,
    /// The names of the subnets for gateways, where they are not found by infraID.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 256)))]
    pub subnet_names: Vec<String>,
    /// The name of the workers' security group, where it is not found by infraID.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub worker_security_group: Option<String>,
    /// The name of the control plane's security group, where it is not found by infraID.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub control_plane_security_group: Option<String>,
}

impl Default for AwsConfig {
    fn default() -> Self {
        Self {
            gateway_instance: "c5d.large".to_owned(),
            gateways: 1,
            vpc_name: None,
            subnet_names: Vec::new(),
            worker_security_group: None,
            control_plane_security_group: None,
        }
    }
}

/// `cloudPrepareConfig.gcp`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GcpConfig {
    /// The type of machines that are made for gateways.
    #[schemars(length(min = 1, max = 128))]
    pub gateway_instance: String,
    /// How many gateways there are to be; 0 leaves the choice of nodes to others.
    #[schemars(with = "i32", range(min = 0, max = 16))]
    pub gateways: u32,
    /// The project; that of the nodes where it is missing, else that of the credentials.
    #[serde(rename = "projectID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub project_id: Option<String>,
    /// The name of the network, where it is not found by infraID.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub vpc_name: Option<String>,
    /// The name of the subnet for gateways, where it is not found by infraID.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub public_subnet_name: Option<String>,
    /// The network tags of the cluster's nodes, where they are not those of OpenShift's installer, of GKE, or the one that all nodes
    /// share.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 63)))]
    pub node_tags: Vec<String>,
}

impl Default for GcpConfig {
    fn default() -> Self {
        Self {
            gateway_instance: "n1-standard-4".to_owned(),
            gateways: 1,
            project_id: None,
            vpc_name: None,
            public_subnet_name: None,
            node_tags: Vec::new(),
        }
    }
}

/// `cloudPrepareConfig.azure`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AzureConfig {
    /// The type of machines that are made for gateways.
    #[schemars(length(min = 1, max = 128))]
    pub gateway_instance: String,
    /// How many gateways there are to be; 0 leaves the choice of nodes to others.
    #[schemars(with = "i32", range(min = 0, max = 16))]
    pub gateways: u32,
    /// Whether gateways get no public address.
    pub air_gapped: bool,
}

impl Default for AzureConfig {
    fn default() -> Self {
        Self { gateway_instance: "Standard_F4s_v2".to_owned(), gateways: 1, air_gapped: false }
    }
}

/// `cloudPrepareConfig.rhos`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RhosConfig {
    /// The type of machines that are made for gateways.
    #[schemars(length(min = 1, max = 128))]
    pub gateway_instance: String,
    /// How many gateways there are to be; 0 leaves the choice of nodes to others.
    #[schemars(with = "i32", range(min = 0, max = 16))]
    pub gateways: u32,
    /// The project; that of the credentials where it is missing.
    #[serde(rename = "projectID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub project_id: Option<String>,
    /// The entry of clouds.yaml that is this cloud.
    #[schemars(length(min = 1, max = 128))]
    pub cloud_entry: String,
}

impl Default for RhosConfig {
    fn default() -> Self {
        Self {
            gateway_instance: "PnTAE.CPU_4_Memory_8192_Disk_50".to_owned(),
            gateways: 1,
            project_id: None,
            cloud_entry: "openstack".to_owned(),
        }
    }
}

/// `cloudPrepareConfig.generic`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GenericConfig {
    /// How many gateways there are to be: so many nodes are labelled, spread over zones; 0 leaves the choice of nodes to others.
    #[schemars(with = "i32", range(min = 0, max = 16))]
    pub gateways: u32,
}

impl Default for GenericConfig {
    fn default() -> Self {
        Self { gateways: 1 }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn config(value: Value) -> CloudPrepareConfig {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_cloud_is_the_same_as_long_as_its_objects_are() {
        let aws = json!({"infraID": "i", "aws": {}});
        for (other, is_same) in [
            (json!({"infraID": "i", "aws": {"gateways": 3, "gatewayInstance": "m5.large"}}), true),
            (
                json!({"infraID": "i", "credentialsSecret": {"name": "b"}, "sources": ["10.0.0.0/8"], "aws": {}}),
                true,
            ),
            (json!({"infraID": "j", "aws": {}}), false),
            (json!({"infraID": "i", "region": "r", "aws": {}}), false),
            (json!({"infraID": "i", "aws": {"vpcName": "v"}}), false),
            (json!({"infraID": "i", "aws": {"workerSecurityGroup": "g"}}), false),
            (json!({"infraID": "i", "gcp": {}}), false),
        ] {
            assert_eq!(config(aws.clone()).is_same_cloud(&config(other.clone())), is_same, "{other}");
        }
        let azure = |is_air_gapped: bool| config(json!({"azure": {"airGapped": is_air_gapped}}));
        assert!(azure(true).is_same_cloud(&azure(false)), "one replaces the other");
        let rhos = |project: &str| config(json!({"rhos": {"projectID": project}}));
        assert!(!rhos("a").is_same_cloud(&rhos("b")));
    }

    #[test]
    fn a_secret_is_in_the_operators_namespace_unless_it_is_elsewhere() {
        let secret = |value: Value| config(json!({"credentialsSecret": value})).credentials_secret.unwrap();
        assert_eq!(secret(json!({"name": "aws"})).namespace, "trieste-operator");
        assert_eq!(
            secret(json!({"name": "a", "namespace": "submariner-operator"})).namespace,
            "submariner-operator"
        );
    }
}

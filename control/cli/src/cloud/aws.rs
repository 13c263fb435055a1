//! Flags of AWS.

use std::path::PathBuf;

use trieste_cloud::CloudError;
use trieste_cloud::aws::{Credentials, Settings};
use trieste_cloud::choice::Choice;

use super::flags::{Flags, LocationArgs, variable};

#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "AWS")]
pub(super) struct AwsArgs {
    #[command(flatten)]
    location: LocationArgs,
    /// The profile of the credentials file [default: the environment's keys, else the profile default]
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// The credentials file [default: ~/.aws/credentials]
    #[arg(long, value_name = "PATH")]
    credentials: Option<PathBuf>,
    /// The security group of the control plane's nodes, by ID or name [default: OpenShift's]
    #[arg(long, value_name = "GROUP")]
    control_plane_security_group: Option<String>,
    /// The security group of the workers, by ID or name [default: OpenShift's, or the one that all nodes have]
    #[arg(long, value_name = "GROUP")]
    worker_security_group: Option<String>,
    /// The VPC, by ID or name [default: that of the nodes]
    #[arg(long, value_name = "VPC")]
    vpc_name: Option<String>,
    /// The public subnets in which OpenShift makes gateways, by ID or name [default: those of OpenShift's installer]
    #[arg(long, value_name = "SUBNETS", value_delimiter = ',')]
    subnet_names: Vec<String>,
}

impl Flags for AwsArgs {
    fn instance(&self) -> Option<String> {
        self.location.gateway_instance.clone()
    }

    fn choice(&self) -> Result<Choice, CloudError> {
        let location = self.location.location()?;
        let found = Credentials::find(self.credentials.as_deref(), self.profile.as_deref(), variable)?;
        let endpoint = variable("AWS_ENDPOINT_URL_EC2").or_else(|| variable("AWS_ENDPOINT_URL"));
        let settings = Settings {
            infra_id: location.infra_id,
            region: location.region,
            vpc: self.vpc_name.clone(),
            subnets: self.subnet_names.clone(),
            worker_group: self.worker_security_group.clone(),
            control_plane_group: self.control_plane_security_group.clone(),
            endpoint,
            sts_endpoint: variable("AWS_ENDPOINT_URL_STS").or_else(|| variable("AWS_ENDPOINT_URL")),
        };
        Ok(Choice::Aws(Box::new((settings, found))))
    }
}

//! Flags of Google Cloud.

use std::path::PathBuf;
use std::sync::Arc;

use trieste_cloud::CloudError;
use trieste_cloud::choice::Choice;
use trieste_cloud::gcp::{Credentials, ServiceAccount, Settings};

use super::flags::{Flags, LocationArgs, read, variable};

#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Google Cloud")]
pub(super) struct GcpArgs {
    #[command(flatten)]
    location: LocationArgs,
    /// The project [default: that of the nodes, else that of the credentials]
    #[arg(long, value_name = "ID")]
    project_id: Option<String>,
    /// The service account's key, in JSON [default: $GOOGLE_APPLICATION_CREDENTIALS, else the account of the machine that this runs
    /// on]
    #[arg(long, value_name = "PATH")]
    credentials: Option<PathBuf>,
    /// The VPC network [default: that of the nodes]
    #[arg(long, value_name = "NAME")]
    vpc_name: Option<String>,
    /// The subnet in which OpenShift makes gateways [default: that of the workers]
    #[arg(long, value_name = "NAME")]
    public_subnet_name: Option<String>,
    /// The network tags that all nodes have [default: OpenShift's, GKE's, or the one that they share]
    #[arg(long, value_name = "TAGS", value_delimiter = ',')]
    node_tags: Vec<String>,
}

impl Flags for GcpArgs {
    fn instance(&self) -> Option<String> {
        self.location.gateway_instance.clone()
    }

    fn choice(&self) -> Result<Choice, CloudError> {
        let location = self.location.location()?;
        let named = variable("GOOGLE_APPLICATION_CREDENTIALS").map(PathBuf::from);
        let credentials = match self.credentials.clone().or(named) {
            Some(path) => {
                let text = read(
                    &path,
                    "a service account's key",
                    "create one for this, and name it with --credentials",
                )?;
                Credentials::Key(Arc::new(ServiceAccount::from_json(&text)?))
            }
            None => Credentials::MetadataServer,
        };
        let settings = Settings {
            infra_id: location.infra_id,
            region: location.region,
            project: self.project_id.clone().or(location.project),
            credentials,
            network: self.vpc_name.clone(),
            subnet: self.public_subnet_name.clone(),
            node_tags: self.node_tags.clone(),
            endpoint: variable("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE"),
            resource_manager: variable("CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDRESOURCEMANAGER"),
            metadata_server: variable("GCE_METADATA_HOST").map(|host| format!("http://{host}")),
        };
        Ok(Choice::Gcp(Box::new(settings)))
    }
}

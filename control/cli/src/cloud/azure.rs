//! Flags of Azure.

use std::path::PathBuf;

use trieste_cloud::CloudError;
use trieste_cloud::azure::{Credentials, Identity, Settings};
use trieste_cloud::choice::Choice;

use super::flags::{Flags, LocationArgs, read, variable};

#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Azure")]
pub(super) struct AzureArgs {
    #[command(flatten)]
    location: LocationArgs,
    /// The authorization file of a service principal [default: $AZURE_AUTH_LOCATION, else AZURE_CLIENT_ID and its like, else the
    /// managed identity of the machine that this runs on]
    #[arg(long, value_name = "PATH")]
    auth_file: Option<PathBuf>,
    /// The resource group of the cluster [default: that of OpenShift or of the nodes]
    #[arg(long, value_name = "NAME")]
    resource_group: Option<String>,
    /// Gateways get no public addresses
    #[arg(long, default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    air_gapped: bool,
}

impl AzureArgs {
    fn credentials(&self) -> Result<Credentials, CloudError> {
        let file = self.auth_file.clone().or_else(|| variable("AZURE_AUTH_LOCATION").map(PathBuf::from));
        if let Some(path) = file {
            let next = "write it with az ad sp create-for-rbac --sdk-auth, and name it with --auth-file";
            return Credentials::from_auth_file(&read(&path, "Azure's authorization file", next)?);
        }
        let subscription = variable("AZURE_SUBSCRIPTION_ID").unwrap_or_default();
        let client = variable("AZURE_CLIENT_ID");
        let (Some(client), Some(tenant)) = (client.clone(), variable("AZURE_TENANT_ID")) else {
            return Ok(Credentials::new(subscription, Identity::Managed { client }));
        };
        match (variable("AZURE_CLIENT_SECRET"), variable("AZURE_FEDERATED_TOKEN_FILE")) {
            (Some(secret), _) => Credentials::from_parts(subscription, client, secret, tenant),
            (None, Some(token)) => Credentials::from_federated(subscription, client, tenant, token),
            (None, None) => Err(CloudError::credentials(
                "AZURE_CLIENT_ID and AZURE_TENANT_ID are set, and neither AZURE_CLIENT_SECRET nor AZURE_FEDERATED_TOKEN_FILE is",
                "set one of them, or give --auth-file",
            )),
        }
    }
}

impl Flags for AzureArgs {
    fn instance(&self) -> Option<String> {
        self.location.gateway_instance.clone()
    }

    fn choice(&self) -> Result<Choice, CloudError> {
        let location = self.location.location()?;
        let settings = Settings {
            infra_id: location.infra_id,
            region: location.region,
            resource_group: self.resource_group.clone(),
            credentials: self.credentials()?,
            air_gapped: self.air_gapped,
        };
        Ok(Choice::Azure(Box::new(settings)))
    }
}

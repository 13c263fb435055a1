//! Flags that all providers have.

use std::path::{Path, PathBuf};

use ipnet::IpNet;
use trieste_cloud::choice::Choice;
use trieste_cloud::cluster::vxlan_port;
use trieste_cloud::metadata::{self, Metadata};
use trieste_cloud::rules::everywhere;
use trieste_cloud::{CloudError, Ports, Wanted};
use trieste_deploy::Server;

use crate::contexts::KubeArgs;

/// The flags of one provider.
pub(super) trait Flags: clap::Args {
    /// Returns the provider with what it needs to work.
    ///
    /// # Errors
    /// [`CloudError`] if credentials or files are missing.
    fn choice(&self) -> Result<Choice, CloudError>;

    /// Returns the type of machines for gateways that was given.
    fn instance(&self) -> Option<String> {
        None
    }

    /// Returns `true` if what has to pass is listed for people, since nothing else opens it.
    fn lists_rules(&self) -> bool {
        false
    }
}

#[derive(Debug, Clone, clap::Args)]
pub(super) struct PrepareArgs<F: clap::Args> {
    #[command(flatten)]
    pub(super) kube: KubeArgs,
    #[command(flatten)]
    pub(super) wanted: WantedArgs,
    #[command(flatten)]
    pub(super) provider: F,
    #[command(flatten)]
    pub(super) run: RunArgs,
}

#[derive(Debug, Clone, clap::Args)]
pub(super) struct CleanupArgs<F: clap::Args> {
    #[command(flatten)]
    pub(super) kube: KubeArgs,
    #[command(flatten)]
    pub(super) provider: F,
    #[command(flatten)]
    pub(super) run: RunArgs,
}

#[derive(Debug, Clone, Copy, clap::Args)]
#[command(next_help_heading = "Applying")]
pub(super) struct RunArgs {
    /// Print what would be done, and change nothing
    #[arg(long)]
    pub(super) dry_run: bool,
}

/// Where in the cloud the cluster is.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "The cluster in its cloud")]
pub(super) struct LocationArgs {
    /// What the cluster's resources are named by [default: OpenShift's name, on AWS also that of the nodes' machines]
    #[arg(long, value_name = "ID")]
    pub(super) infra_id: Option<String>,
    /// The region [default: that of the nodes]
    #[arg(long, value_name = "NAME")]
    pub(super) region: Option<String>,
    /// The folder of OpenShift's installer, or its metadata.json: both of the above are read there
    #[arg(long, value_name = "PATH", conflicts_with_all = ["infra_id", "region"])]
    pub(super) ocp_metadata: Option<PathBuf>,
    /// The type of machines that OpenShift makes for gateways [default: the provider's, see the manual]
    #[arg(long, value_name = "TYPE")]
    pub(super) gateway_instance: Option<String>,
}

/// Where in the cloud the cluster is, as flags or OpenShift's installer name it.
#[derive(Debug, Clone, Default)]
pub(super) struct Location {
    pub(super) infra_id: Option<String>,
    pub(super) region: Option<String>,
    pub(super) project: Option<String>,
    pub(super) cloud_entry: Option<String>,
}

impl LocationArgs {
    /// Reads the installer's file where one is named.
    ///
    /// # Errors
    /// [`CloudError::Refused`] if it cannot be read.
    pub(super) fn location(&self) -> Result<Location, CloudError> {
        let Some(path) = &self.ocp_metadata else {
            return Ok(Location {
                infra_id: self.infra_id.clone(),
                region: self.region.clone(),
                ..Location::default()
            });
        };
        let file = if path.is_dir() { path.join(metadata::FILE) } else { path.clone() };
        let text = std::fs::read_to_string(&file).map_err(|error| {
            let what = format!("cannot read OpenShift's metadata from {}: {error}", file.display());
            CloudError::refused(what, "name the folder of OpenShift's installer with --ocp-metadata, or give --infra-id and --region")
        })?;
        let Metadata { infra_id, region, project, cloud_entry } = metadata::read(&text)?;
        Ok(Location { infra_id: Some(infra_id), region, project, cloud_entry })
    }
}

/// Returns a variable of the environment that has a value.
pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Reads a file with credentials; what is read is shown nowhere.
///
/// # Errors
/// [`CloudError::Credentials`] if it cannot be read.
pub(super) fn read(path: &Path, what: &str, next: &str) -> Result<String, CloudError> {
    std::fs::read_to_string(path).map_err(|error| {
        CloudError::credentials(format!("cannot read {what} from {}: {error}", path.display()), next)
    })
}

/// What the cluster needs.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "What is needed")]
pub(super) struct WantedArgs {
    /// How many gateways there are to be
    #[arg(long, value_name = "N", default_value_t = 1)]
    gateways: usize,
    /// Other clusters come through a load balancer: nothing is opened to the outside
    #[arg(long, default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    load_balancer: bool,
    /// Networks from which other clusters' gateways send
    #[arg(long, value_name = "CIDRS", value_delimiter = ',', default_values_t = everywhere())]
    sources: Vec<IpNet>,
    /// UDP port of the cables
    #[arg(long, value_name = "PORT", default_value_t = 4500, value_parser = clap::value_parser!(u16).range(1..))]
    natt_port: u16,
    /// UDP port of NAT discovery; 0 if it is switched off
    #[arg(long, value_name = "PORT", default_value_t = 4490)]
    nat_discovery_port: u16,
    /// UDP port of IKE, for IPsec cables without NAT in between; 0 opens none
    #[arg(long, value_name = "PORT", default_value_t = 500)]
    ike_port: u16,
    /// UDP port of VXLAN between the nodes, beside which the next one is for notices of gateways; 0 opens none [default: 4800, or
    /// none with OVN-Kubernetes]
    #[arg(long, value_name = "PORT")]
    vxlan_port: Option<u16>,
}

impl WantedArgs {
    /// Returns what is wanted; the network plugin is looked for where it decides.
    pub(super) async fn wanted(
        &self,
        server: &Server,
        instance: Option<String>,
    ) -> Result<Wanted, CloudError> {
        let vxlan = match self.vxlan_port {
            Some(port) => port,
            None => vxlan_port(server).await?,
        };
        let ports =
            Ports { natt: self.natt_port, nat_discovery: self.nat_discovery_port, ike: self.ike_port, vxlan };
        Ok(Wanted {
            ports,
            sources: self.sources.clone(),
            gateways: self.gateways,
            instance,
            load_balancer: self.load_balancer,
        })
    }
}

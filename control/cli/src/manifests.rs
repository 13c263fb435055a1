//! `trieste manifests`: the objects of a broker and of a member, for those who apply YAML with their own tools.

use std::path::PathBuf;

use anyhow::{Context, ensure};
use ipnet::IpNet;
use trieste_control::api::check_cluster_id;
use trieste_deploy::objects::{BrokerOptions, File, Image, MemberOptions, example, files};

use super::output::Output;

#[derive(Debug, clap::Args)]
pub(super) struct ManifestsArgs {
    /// What to print; everything if nothing is named
    #[arg(value_enum)]
    what: Vec<What>,
    /// Write one file each into this directory instead of printing
    #[arg(long, value_name = "PATH")]
    directory: Option<PathBuf>,
    /// The member's ID
    #[arg(long, visible_alias = "clusterid", value_name = "ID")]
    cluster_id: Option<String>,
    /// The member's pod CIDRs, separated by commas
    #[arg(long, visible_alias = "clustercidr", value_name = "CIDRS", value_delimiter = ',')]
    cluster_cidrs: Vec<IpNet>,
    /// The member's service CIDRs, separated by commas
    #[arg(long, visible_alias = "servicecidr", value_name = "CIDRS", value_delimiter = ',')]
    service_cidrs: Vec<IpNet>,
    /// The broker's API server
    #[arg(long, value_name = "HOST:PORT")]
    broker_server: Option<String>,
    /// The image of all pods
    #[arg(long, value_name = "REFERENCE")]
    image: Option<String>,
    /// With a Service of type LoadBalancer in front of the active gateway
    #[arg(long)]
    load_balancer: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum What {
    /// The definitions of all kinds
    Crds,
    /// The definitions of exported and imported services, where nobody else has made them
    ServiceCrds,
    /// The broker
    Broker,
    /// What the broker keeps for a member
    BrokerMember,
    /// The member
    Member,
}

impl What {
    fn file(self) -> &'static str {
        match self {
            Self::Crds => "crds.yaml",
            Self::ServiceCrds => "service-crds.yaml",
            Self::Broker => "broker.yaml",
            Self::BrokerMember => "broker-member.yaml",
            Self::Member => "member.yaml",
        }
    }
}

pub(super) fn run(args: &ManifestsArgs, output: &mut Output) -> anyhow::Result<()> {
    let mut wanted = files(&BrokerOptions::default(), &args.member()?)?;
    if !args.what.is_empty() {
        wanted.retain(|file| args.what.iter().any(|what| what.file() == file.name));
    }
    for File { name, text } in wanted {
        match &args.directory {
            Some(directory) => {
                let path = directory.join(name);
                std::fs::write(&path, text)
                    .with_context(|| format!("cannot write {}; does the directory exist?", path.display()))?;
            }
            None => output.write(text.as_bytes())?,
        }
    }
    Ok(())
}

impl ManifestsArgs {
    /// The example, with what was said.
    fn member(&self) -> anyhow::Result<MemberOptions> {
        let mut options = example();
        if let Some(id) = &self.cluster_id {
            check_cluster_id(id).context("--cluster-id")?;
            options.cluster_id.clone_from(id);
        }
        let is_example = self.cluster_cidrs.is_empty() && self.service_cidrs.is_empty();
        ensure!(
            is_example || !(self.cluster_cidrs.is_empty() || self.service_cidrs.is_empty()),
            "--cluster-cidrs and --service-cidrs go together: the other one would stay the example's"
        );
        if !is_example {
            options.cluster_cidrs.clone_from(&self.cluster_cidrs);
            options.service_cidrs.clone_from(&self.service_cidrs);
        }
        if let Some(server) = &self.broker_server {
            options.broker.api_server.clone_from(server);
        }
        if let Some(image) = &self.image {
            options.image = Image::new(image);
        }
        options.load_balancer = self.load_balancer;
        Ok(options)
    }
}

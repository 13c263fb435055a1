//! `trieste manifests`: the objects of a broker, of a member and of the operator, for those who apply YAML with their own tools.

use std::net::Ipv6Addr;
use std::path::PathBuf;

use anyhow::{Context, ensure};
use ipnet::IpNet;
use trieste_control::api::check_cluster_id;
use trieste_control::requirements::{OVN_KUBERNETES, PLUGINS};
use trieste_deploy::objects::{BrokerOptions, File, Image, MemberOptions, example, files};

use super::output::Output;
use super::pod_flags::SettingArgs;

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
    /// Other networks that are reached by way of the cluster, separated by commas
    #[arg(long, value_name = "CIDRS", value_delimiter = ',')]
    extra_cidrs: Vec<IpNet>,
    /// The member's network plugin, by the name that join gives it: OVNKubernetes and calico have objects of their own
    /// [default: generic]
    #[arg(long, value_name = "NAME")]
    network_plugin: Option<String>,
    /// With OVNKubernetes and one database for all nodes: that database, tcp:HOST:PORT or ssl:HOST:PORT [default: each node's
    /// unix sockets]
    #[arg(long, value_name = "DATABASE", requires = "network_plugin", value_parser = northbound)]
    ovn_northbound: Option<String>,
    /// With a worker for Spiderpool's hijackCIDR lists
    #[arg(long)]
    spiderpool: bool,
    /// The broker's API server
    #[arg(long, value_name = "HOST:PORT")]
    broker_server: Option<String>,
    /// The image of all pods
    #[arg(long, value_name = "REFERENCE")]
    image: Option<String>,
    #[command(flatten)]
    settings: SettingArgs,
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
    /// The operator, which carries out Fabric resources
    Operator,
}

impl What {
    fn file(self) -> &'static str {
        match self {
            Self::Crds => "crds.yaml",
            Self::ServiceCrds => "service-crds.yaml",
            Self::Broker => "broker.yaml",
            Self::BrokerMember => "broker-member.yaml",
            Self::Member => "member.yaml",
            Self::Operator => "operator.yaml",
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

/// Reads where a database is: a protocol, a name or an address, IPv6 ones in brackets, and a port.
fn northbound(text: &str) -> Result<String, String> {
    let is_database = || {
        let (protocol, place) = text.split_once(':')?;
        let (host, port) = place.rsplit_once(':')?;
        let is_host = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']')?.parse::<Ipv6Addr>().is_ok(),
            None => !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c)),
        };
        let is_port = port.parse::<u16>().is_ok_and(|port| port != 0);
        Some(["tcp", "ssl"].contains(&protocol) && is_host && is_port)
    };
    let expected = "expected tcp:HOST:PORT or ssl:HOST:PORT, such as tcp:10.1.2.3:6641 or ssl:[fd00::1]:6641";
    if is_database().unwrap_or_default() { Ok(text.to_owned()) } else { Err(expected.to_owned()) }
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
            options.extra_cidrs.clone_from(&self.extra_cidrs);
        }
        if let Some(plugin) = &self.network_plugin {
            let known = PLUGINS.iter().find(|(known, _)| known.eq_ignore_ascii_case(plugin));
            let names = || PLUGINS.map(|(name, _)| name).join(", ");
            let (name, _) =
                known.with_context(|| format!("--network-plugin: expected one of {}", names()))?;
            (*name).clone_into(&mut options.network_plugin);
        }
        if let Some(database) = &self.ovn_northbound {
            ensure!(options.has_ovn(), "--ovn-northbound goes with --network-plugin {OVN_KUBERNETES}");
            options.ovn.northbound.clone_from(database);
        }
        if let Some(server) = &self.broker_server {
            options.broker.api_server.clone_from(server);
        }
        if let Some(image) = &self.image {
            options.image = Image::new(image);
        }
        self.settings.fill(&mut options)?;
        options.load_balancer = self.load_balancer;
        options.has_spiderpool = self.spiderpool;
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use trieste_deploy::objects::{member, names, to_yaml};

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        args: ManifestsArgs,
    }

    fn options(words: &[&str]) -> anyhow::Result<MemberOptions> {
        Command::try_parse_from([&["x"], words].concat())?.args.member()
    }

    #[test]
    fn plugin_ovn_and_plugin_calico_objects_are_printed_for_those_plugins() {
        let has_worker =
            |words: &[&str]| to_yaml(&member(&options(words).unwrap())).contains(names::PLUGIN_SYNC);
        assert!(!has_worker(&[]) && !has_worker(&["--network-plugin", "canal-flannel"]));
        assert!(has_worker(&["--network-plugin", "ovnkubernetes"]));
        assert!(has_worker(&["--network-plugin", "Calico"]));
        let database = "tcp:10.1.2.3:6641";
        let central = options(&["--network-plugin", "OVNKubernetes", "--ovn-northbound", database]).unwrap();
        assert_eq!(central.ovn.northbound, database);
        assert_eq!(central.network_plugin, OVN_KUBERNETES);
        assert!(options(&["--network-plugin", "other"]).unwrap_err().to_string().contains("OVNKubernetes"));
        assert!(options(&["--network-plugin", "calico", "--ovn-northbound", database]).is_err());
        assert!(options(&["--ovn-northbound", database]).is_err());
    }

    #[test]
    fn plugin_spiderpool_objects_are_printed_where_asked_for_beside_those_of_any_plugin() {
        for (words, wanted) in [
            (&[][..], false),
            (&["--network-plugin", "calico"], false),
            (&["--spiderpool"], true),
            (&["--network-plugin", "calico", "--spiderpool"], true),
        ] {
            let printed = to_yaml(&member(&options(words).unwrap()));
            assert_eq!(printed.contains(names::SPIDERPOOL_SYNC), wanted, "{words:?}");
        }
    }

    #[test]
    fn plugin_ovn_databases_are_told_from_other_texts() {
        for good in ["tcp:10.1.2.3:6641", "ssl:[fd00::1]:6641", "ssl:ovnkube-db.ovn-kubernetes.svc:9641"] {
            assert_eq!(northbound(good).as_deref(), Ok(good));
        }
        for bad in [
            "",
            "unix:/run/x.sock",
            "10.1.2.3:6641",
            "tcp:10.1.2.3",
            "tcp::6641",
            "tcp:fd00::1:6641",
            "tcp:a b:1",
            "ssl:a:0",
        ] {
            assert!(northbound(bad).is_err(), "{bad}");
        }
    }
}

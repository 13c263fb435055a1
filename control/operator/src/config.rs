//! Flags and environment. A flag wins over the environment; an empty variable says nothing.

use std::path::PathBuf;

use clap::Parser;
use trieste_control::command_line::LogOptions;
use trieste_control::pages::{PagesAddress, parse_address};
use trieste_control::parse::parse_bool;
use trieste_deploy::objects::Image;
use trieste_deploy::objects::names::OPERATOR;

use crate::Others;

/// Carries out Fabric resources: makes this cluster the broker of a set, a member, or both.
///
/// One operator of a cluster works at a time. Ends on SIGTERM or SIGINT; what it has installed stays.
#[derive(Debug, Clone, Parser)]
#[command(name = "trieste-operator", version = concat!("version: v", env!("CARGO_PKG_VERSION")))]
pub struct Options {
    /// How to reach this cluster's API server, outside of a pod [default: in a pod, the cluster's own].
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Namespace of the election's Lease.
    #[arg(long, env = "POD_NAMESPACE", default_value = OPERATOR)]
    pub namespace: String,

    /// The image of pods where a Fabric gives none [default: localhost/trieste of this version].
    #[arg(long, env = "TRIESTE_IMAGE", value_name = "REFERENCE", default_value_t = Image::default().reference)]
    pub image: String,

    /// How many seconds after it was carried out a Fabric is compared with the cluster again.
    #[arg(long, env = "TRIESTE_RESYNC", value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..))]
    pub resync: u64,

    /// Whether objects of upstream's kinds (Broker, Submariner, ServiceDiscovery) are carried out as well as Fabrics, where upstream's
    /// operator does not run. Experimental: its limits are in docs/operations/operator.md.
    #[arg(long, env = "TRIESTE_SUBMARINER_OBJECTS", num_args = 0..=1, default_value = "false", default_missing_value = "true", value_parser = parse_bool)]
    pub submariner_objects: bool,

    /// Whether Fabrics and Knitnets of group operator.tkestack.io are carried out as well, of every namespace, where that operator does
    /// not run. Who may write one may have anything installed: see docs/operations/operator.md.
    #[arg(long, env = "TRIESTE_TKESTACK_OBJECTS", num_args = 0..=1, default_value = "false", default_missing_value = "true", value_parser = parse_bool)]
    pub tkestack_objects: bool,

    /// Whether one of several operators is elected to work, by a Lease.
    #[arg(long, env = "TRIESTE_LEADER_ELECTION", num_args = 0..=1, default_value = "true", default_missing_value = "true", value_parser = parse_bool)]
    pub leader_election: bool,

    /// Name of this candidate [default: the host's].
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub identity: Option<String>,

    /// Where /health, /ready and /metrics are answered; `off` for nowhere.
    #[arg(long, env = "TRIESTE_OPERATOR_METRICS", value_name = "ADDRESS:PORT", default_value = "[::]:8083", value_parser = parse_address)]
    pub metrics: PagesAddress,

    /// How much is logged.
    #[command(flatten)]
    pub log: LogOptions,
}

impl Options {
    /// Returns which kinds are carried out beside Fabrics.
    pub(crate) fn others(&self) -> Others {
        Others { upstream: self.submariner_objects, tkestack: self.tkestack_objects }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_given_is_what_the_manifests_go_by() {
        let options = Options::parse_from(["x", "--kubeconfig=/k"]);
        assert_eq!((options.namespace.as_str(), options.resync), (OPERATOR, 120));
        assert_eq!(options.metrics, Some("[::]:8083".parse().unwrap()));
        assert!(options.leader_election && options.others() == Others::default());
        let off = Options::parse_from(["x", "--metrics=off", "--leader-election=false"]);
        assert!(off.metrics.is_none() && !off.leader_election);
        assert_eq!(parse_address(":9"), Ok(Some("[::]:9".parse().unwrap())));
        assert!(parse_address("x").is_err() && Options::try_parse_from(["x", "--resync=0"]).is_err());
    }
}

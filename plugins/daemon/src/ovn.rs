//! OVN-Kubernetes: the shell around `trieste-ovn`, which decides about rows, and `trieste-ovsdb`, which reads and writes them.
//!
//! ```text
//!   store ─▶ Facts ─▶ Wanted ─┐
//!   NB replica ─▶ Rows ───────┼─▶ trieste_ovn::Controller ─▶ transactions ─▶ trieste_ovsdb::Client
//!   SB replica ─▶ Chassis ────┘
//! ```
//!
//! A database behind a Unix socket is this node's own (a zone of OVN-Kubernetes), and this worker the only one that writes it.
//! One that is reached over the network is the whole cluster's: of all workers one is elected.

mod facts;
mod work;

use std::path::PathBuf;

use ipnet::IpNet;
use trieste_ovn::wanted::Topology;
use trieste_ovsdb::remote::{Remote, Remotes};
use trieste_ovsdb::tls::TlsFiles;

pub use facts::Facts;
pub use work::run;

/// Sockets of a zone's own northbound database: OpenShift's, upstream's, and that of OVN's packages.
pub const NORTHBOUND_SOCKETS: &str = "unix:/var/run/ovn-ic/ovnnb_db.sock,unix:/var/run/openvswitch/ovnnb_db.sock,unix:/var/run/ovn/ovnnb_db.sock";
/// The same of the southbound database.
pub const SOUTHBOUND_SOCKETS: &str = "unix:/var/run/ovn-ic/ovnsb_db.sock,unix:/var/run/openvswitch/ovnsb_db.sock,unix:/var/run/ovn/ovnsb_db.sock";

/// Where the databases are, and what they are about.
#[derive(Debug, Clone)]
pub struct OvnConfig {
    /// Own cluster.
    pub cluster: String,
    /// Own pod and service networks.
    pub networks: Vec<IpNet>,
    /// The name of this node's object.
    pub node: String,
    /// Where packets to remote clusters are led.
    pub topology: Topology,
    /// The northbound database.
    pub northbound: Remotes,
    /// The southbound database; read with [`Topology::SubmarinerRouter`] alone.
    pub southbound: Remotes,
    /// Keys and certificates, read for each connection by `ssl:`.
    pub tls: TlsFiles,
}

impl OvnConfig {
    /// Returns `true` if the northbound database is this node's own.
    #[must_use]
    pub fn is_of_node(&self) -> bool {
        self.sockets().is_some()
    }

    /// Returns where its socket may be; `None` if it is the whole cluster's.
    #[must_use]
    pub fn sockets(&self) -> Option<Vec<PathBuf>> {
        let path = |remote: &Remote| if let Remote::Unix(path) = remote { Some(path.clone()) } else { None };
        self.northbound.as_slice().iter().map(path).collect()
    }
}

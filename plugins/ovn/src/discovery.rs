//! Where the databases are, from what is observed in the cluster and on the node (behaviour 6.3).
//!
//! | observed | northbound database |
//! |---|---|
//! | OpenShift, Service `ovnkube-db` | `ssl:ovnkube-db.openshift-ovn-kubernetes.svc.cluster.local:9641` |
//! | OpenShift otherwise (a zone per node) | `unix:/var/run/ovn-ic/ovnnb_db.sock` |
//! | a pod with label `name=ovnkube-db` (kind) | `tcp:` or `ssl:ovnkube-db.<its namespace>:6641` |
//! | Endpoints of the node's zone with a port whose name has `north` | their address, port 6641 |
//! | otherwise (a zone per node) | `unix:/var/run/openvswitch/ovnnb_db.sock` |

use std::net::IpAddr;
use std::path::PathBuf;

use trieste_ovsdb::remote::{HostPort, Remote};

/// The Service of a central database.
pub const DATABASE_SERVICE: &str = "ovnkube-db";
/// Where OpenShift has it.
const OPENSHIFT_HOST: &str = "ovnkube-db.openshift-ovn-kubernetes.svc.cluster.local";
/// Folders of the sockets of a zone's own databases: OpenShift's, and kind's.
const SOCKET_FOLDERS: [&str; 2] = ["/var/run/ovn-ic", "/var/run/openvswitch"];
/// What the name of the Endpoints' port contains.
const NORTHBOUND_PORT_NAME: &str = "north";

/// Which database of OVN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Database {
    /// What is configured.
    Northbound,
    /// What chassis there are.
    Southbound,
}

/// A pod with label `name=ovnkube-db`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabasePod {
    /// Its namespace.
    pub namespace: String,
    /// Value of `OVN_SSL_ENABLE` in the environment of its containers.
    pub ssl_enable: Option<String>,
}

/// An Endpoints object in the namespace of OVN-Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneEndpoints {
    /// Its name, of which the zone's is a part.
    pub name: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// The names of its ports.
    pub ports: Vec<String>,
}

/// What is observed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed {
    /// Whether there is OpenShift's object `networks.config.openshift.io/cluster`.
    pub is_openshift: bool,
    /// Whether OVN-Kubernetes' namespace has a Service [`DATABASE_SERVICE`].
    pub has_database_service: bool,
    /// The first pod of a central database.
    pub database_pod: Option<DatabasePod>,
    /// Endpoints in OVN-Kubernetes' namespace.
    pub endpoints: Vec<ZoneEndpoints>,
    /// The node's annotation `k8s.ovn.org/zone-name`.
    pub zone: Option<String>,
    /// Sockets that exist on this node.
    pub sockets: Vec<String>,
}

/// Why there is no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DiscoveryError {
    /// A pod serves the database and no Service leads to it.
    #[error(
        "a pod of OVN's database runs in namespace {namespace:?}, which has no service {DATABASE_SERVICE}: create it"
    )]
    NoService {
        /// The pod's namespace.
        namespace: String,
    },
    /// None of the Endpoints is the zone's.
    #[error(
        "no endpoint of a northbound database has the node's zone {zone:?} in its name: see annotation \
         k8s.ovn.org/zone-name of the node"
    )]
    NoEndpoint {
        /// The zone.
        zone: String,
    },
    /// Neither is there anything that leads to a database, nor a socket of one.
    #[error(
        "no socket of the database on this node (tried {tried}): mount the folder into the pod, or see whether \
         OVN-Kubernetes runs here"
    )]
    NoSocket {
        /// The paths.
        tried: String,
    },
}

/// Finds a database.
///
/// # Errors
/// What is missing, and what to do.
pub fn discover(observed: &Observed, database: Database) -> Result<Remote, DiscoveryError> {
    let (central, openshift) = match database {
        Database::Northbound => (6641, 9641),
        Database::Southbound => (6642, 9642),
    };
    if observed.is_openshift {
        if observed.has_database_service {
            return Ok(Remote::Tls(HostPort { host: OPENSHIFT_HOST.to_owned(), port: openshift }));
        }
        return socket(observed, database, SOCKET_FOLDERS);
    }
    if let Some(pod) = &observed.database_pod {
        if !observed.has_database_service {
            return Err(DiscoveryError::NoService { namespace: pod.namespace.clone() });
        }
        let host = HostPort { host: format!("{DATABASE_SERVICE}.{}", pod.namespace), port: central };
        let is_plain = pod.ssl_enable.as_deref().is_none_or(|value| value.eq_ignore_ascii_case("no"));
        return Ok(if is_plain { Remote::Tcp(host) } else { Remote::Tls(host) });
    }
    let serving: Vec<&ZoneEndpoints> =
        observed.endpoints.iter().filter(|endpoints| endpoints.serves()).collect();
    if serving.is_empty() {
        return socket(observed, database, [SOCKET_FOLDERS[1], SOCKET_FOLDERS[0]]);
    }
    let zone = observed.zone.clone().unwrap_or_default();
    let own = serving.iter().filter(|endpoints| !zone.is_empty() && endpoints.name.contains(&zone));
    // Of the zones "a" and "ab" both contain the first: the shortest name is meant.
    let own = own.min_by_key(|endpoints| (endpoints.name.len(), &endpoints.name));
    let address = own.and_then(|endpoints| endpoints.addresses.first());
    let host = address.map(|address| HostPort { host: address.to_string(), port: central });
    host.map(Remote::Tcp).ok_or(DiscoveryError::NoEndpoint { zone })
}

impl ZoneEndpoints {
    fn serves(&self) -> bool {
        !self.addresses.is_empty() && self.ports.iter().any(|port| port.contains(NORTHBOUND_PORT_NAME))
    }
}

/// Returns the first socket that exists, of these folders in this order.
fn socket(observed: &Observed, database: Database, folders: [&str; 2]) -> Result<Remote, DiscoveryError> {
    let name = match database {
        Database::Northbound => "ovnnb_db.sock",
        Database::Southbound => "ovnsb_db.sock",
    };
    let paths = folders.map(|folder| format!("{folder}/{name}"));
    let found = paths.iter().find(|path| observed.sockets.contains(path));
    found
        .map(PathBuf::from)
        .map(Remote::Unix)
        .ok_or_else(|| DiscoveryError::NoSocket { tried: paths.join(", ") })
}

#[cfg(test)]
mod tests;

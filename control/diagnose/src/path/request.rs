//! Which connection is looked at.

use std::net::IpAddr;

use crate::facts::Source;
use crate::node::token::Run;

/// A namespace and a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodRef {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

/// Where the connection goes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// A pod.
    Pod(PodRef),
    /// A service: its first endpoint that is ready.
    Service(PodRef),
    /// Whoever has an address.
    Address(IpAddr),
}

/// One side's API server.
#[derive(Clone)]
pub struct SideRequest {
    /// Where to ask.
    pub source: Source,
    /// The words that make `kubectl` talk to it, such as ` --context a`.
    pub kubectl: String,
}

/// Which connection.
#[derive(Clone)]
pub struct PathRequest {
    /// The pod that speaks first.
    pub source: PodRef,
    /// Where it goes to.
    pub destination: Destination,
    /// The cluster of the source.
    pub source_side: SideRequest,
    /// The cluster of the destination; absent if its API server cannot be asked.
    pub destination_side: Option<SideRequest>,
    /// Whether pods may be made to probe from.
    pub with_pods: bool,
    /// What its probes are recognised by.
    pub run: Run,
}

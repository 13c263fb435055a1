//! What a name of a zone stands for.
//!
//! | labels in front of `svc.ZONE` | stands for |
//! |---|---|
//! | – | nothing itself, but there are names below |
//! | `ns` | likewise, if a service is imported in this namespace |
//! | `svc.ns` | a service |
//! | `cluster.svc.ns` | a cluster's part of it |
//! | `host.cluster.svc.ns` | a host of a headless service |
//! | `_proto.svc.ns`, `_proto.cluster.svc.ns` | nothing itself |
//! | `_port._proto.svc.ns`, `_port._proto.cluster.svc.ns` | a port, with or without underscores |
//!
//! Where a cluster is called as a protocol is, the cluster has the name.

use crate::export::Export;
use crate::name::{QueryName, without_underscore};
use crate::service::{Service, ServiceKind};
use crate::slice::Protocol;

/// What a name stands for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Node<'s> {
    /// The zone.
    Apex,
    /// This server: `ns.dns.ZONE`.
    NameServer,
    /// The version of the names' schema: `dns-version.ZONE` (KEP-1645).
    SchemaVersion,
    /// Nothing itself, but there are names below (RFC 8020).
    Empty,
    /// Nothing.
    Absent,
    /// A service.
    Service(&'s Service),
    /// A cluster's part of a service.
    Cluster(&'s Service, &'s Export),
    /// A host of a cluster's part, by its index.
    Host(&'s Service, &'s Export, u32),
    /// A port of a service, or of a cluster's part.
    Port(&'s Service, Option<&'s Export>, PortName<'s>),
}

/// A port's name in a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PortName<'s> {
    /// Its label, in lower case and without an underscore.
    pub(crate) label: &'s [u8],
    /// Its protocol.
    pub(crate) protocol: Protocol,
}

/// Finds what a name below a service, or the service's own name, stands for. `prefix` is the number of labels in front of
/// the service's. Without `has_cluster_names` a cluster has no records of its own, as KEP-1645 wants it; hosts keep theirs.
pub(crate) fn below<'s>(
    service: &'s Service,
    name: &'s QueryName,
    prefix: usize,
    has_cluster_names: bool,
) -> Node<'s> {
    let is_headless = service.kind == ServiceKind::Headless;
    let cluster = |index| {
        let has_names = has_cluster_names || is_headless;
        service.export(name.label(index)).filter(|_| has_names).map(AsRef::as_ref)
    };
    let protocol = |index| Protocol::from_label(without_underscore(name.label(index)));
    let port = |protocol, export| {
        Node::Port(service, export, PortName { label: without_underscore(name.label(0)), protocol })
    };
    match prefix {
        0 => Node::Service(service),
        1 => match (cluster(0), protocol(0)) {
            (Some(export), _) if has_cluster_names => Node::Cluster(service, export),
            // Names of its hosts lie below.
            (Some(_), _) => Node::Empty,
            (None, Some(_)) => Node::Empty,
            (None, None) => Node::Absent,
        },
        2 => match (cluster(1), protocol(1)) {
            (Some(export), _) => match (export.host(name.label(0)), protocol(0)) {
                (Some(host), _) => Node::Host(service, export, host),
                (None, Some(_)) if has_cluster_names => Node::Empty,
                (None, _) => Node::Absent,
            },
            (None, Some(protocol)) => port(protocol, None),
            (None, None) => Node::Absent,
        },
        3 => match (cluster(2), protocol(1)) {
            (Some(export), Some(protocol)) if has_cluster_names => port(protocol, Some(export)),
            _ => Node::Absent,
        },
        _ => Node::Absent,
    }
}

/// Finds what a name of a zone stands for whose last label is not `svc`. `labels` is the number of those in front of the
/// zone.
pub(crate) fn beside(name: &QueryName, labels: usize) -> Node<'static> {
    match labels {
        0 => Node::Apex,
        1 if name.label(0) == b"dns-version" => Node::SchemaVersion,
        1 if name.label(0) == b"dns" => Node::Empty,
        2 if name.label(1) == b"dns" && name.label(0) == b"ns" => Node::NameServer,
        _ => Node::Absent,
    }
}

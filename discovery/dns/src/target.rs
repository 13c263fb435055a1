//! What SRV records refer to: a name, its ports and its addresses.

use crate::export::{Export, NO_HOST, of_host};
use crate::label::Label;
use crate::node::{Node, PortName};
use crate::pick;
use crate::service::{Need, Service, ServiceKind};
use crate::slice::Port;
use crate::source::Source;
use crate::wire_name::WireName;
use crate::zone::Zone;

/// A name that SRV records refer to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'s> {
    service: &'s Service,
    cluster: Option<&'s Label>,
    host: Option<&'s Label>,
    ports: &'s [Port],
    /// Where its addresses come from.
    pub(crate) source: Source<'s>,
}

/// The targets of a name, chosen once for an answer and its additional records.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Targets<'s> {
    service: &'s Service,
    of: Of<'s>,
    port: Option<PortName<'s>>,
}

#[derive(Debug, Clone, Copy)]
enum Of<'s> {
    /// The service's own name, with these addresses.
    Service(Source<'s>),
    /// A cluster's part.
    Export(&'s Export),
    /// One host of it.
    Host(&'s Export, u32),
    /// The hosts of all clusters that can be reached.
    All,
}

impl<'s> Targets<'s> {
    /// Chooses the targets of a name. None if the name has no SRV records at present.
    pub(crate) fn of(node: Node<'s>) -> Option<Self> {
        let (service, export, port) = match node {
            Node::Service(service) => (service, None, None),
            Node::Cluster(service, export) => (service, Some(export), None),
            Node::Port(service, export, port) => (service, export, Some(port)),
            Node::Host(service, export, host) => {
                return Some(Self { service, of: Of::Host(export, host), port: None });
            }
            Node::Apex | Node::NameServer | Node::SchemaVersion | Node::Empty | Node::Absent => return None,
        };
        let of = match (export, service.kind) {
            (Some(export), _) => Of::Export(export),
            (None, ServiceKind::Headless) => Of::All,
            (None, ServiceKind::ClusterSetIp) => match Source::of_service(service, Need::Any) {
                Source::Nothing => return None,
                source @ (Source::Ips(_)
                | Source::Virtual(_)
                | Source::Export(_)
                | Source::Host(..)
                | Source::All(_)) => Of::Service(source),
            },
        };
        Some(Self { service, of, port })
    }

    /// Calls a function with each target, until it returns false. Returns whether it never did.
    pub(crate) fn each(self, mut call: impl FnMut(Target<'s>) -> bool) -> bool {
        let service = self.service;
        let of_export = |export: &'s Export, host: Option<u32>| Target {
            service,
            cluster: Some(export.cluster.id()),
            host: host.and_then(|host| export.hosts.get(usize::try_from(host).ok()?)),
            ports: &export.ports,
            source: host.map_or(Source::Export(export), |host| Source::Host(export, host)),
        };
        let mut of_hosts = |export: &'s Export| {
            let hosts = (0..).take(export.hosts.len()).map(Some);
            let rest = has_rest(export).then_some(None);
            hosts.chain(rest).all(|host| call(of_export(export, host)))
        };
        match self.of {
            Of::Service(source) => {
                call(Target { service, cluster: None, host: None, ports: &service.ports, source })
            }
            Of::Export(export) => of_hosts(export),
            Of::Host(export, host) => call(of_export(export, Some(host))),
            Of::All => pick::all(service).all(|export| of_hosts(export)),
        }
    }

    /// Counts an answer with these targets, for whose they are.
    pub(crate) fn count(self) {
        match self.of {
            Of::Service(source) => source.count(),
            Of::Export(export) | Of::Host(export, _) => export.count(),
            Of::All => Source::All(self.service).count(),
        }
    }

    /// Returns a target's port numbers, each once: TCP and UDP of one number give one record.
    pub(crate) fn numbers(self, target: &Target<'s>) -> impl Iterator<Item = u16> {
        let ports = target.ports;
        let is_asked = move |port: &Port| self.port.is_none_or(|asked| asked.is(port));
        ports.iter().enumerate().filter(move |(_, port)| is_asked(port)).filter_map(move |(index, port)| {
            let is_double = ports[..index].iter().any(|other| other.number == port.number && is_asked(other));
            (!is_double).then_some(port.number)
        })
    }
}

impl PortName<'_> {
    /// Returns whether a port has this name.
    fn is(&self, port: &Port) -> bool {
        port.protocol == self.protocol && port.name.as_ref().is_some_and(|name| name.as_bytes() == self.label)
    }
}

impl Target<'_> {
    /// Returns its name: `host.cluster.svc.ns.svc.ZONE`, without what it does not have. None if that is longer than a name
    /// may be.
    pub(crate) fn name(&self, zone: &Zone) -> Option<WireName> {
        let mut name = WireName::new();
        for label in self.host.iter().chain(&self.cluster) {
            name.append(&[u8::try_from(label.as_bytes().len()).ok()?])?;
            name.append(label.as_bytes())?;
        }
        name.append(self.service.name.wire())?;
        name.append(b"\x03svc")?;
        name.append(zone.wire())?;
        Some(name)
    }
}

/// Returns whether a cluster has addresses without a host name, or a virtual IP.
fn has_rest(export: &Export) -> bool {
    !of_host(&export.v4, NO_HOST).is_empty() || !of_host(&export.v6, NO_HOST).is_empty()
}

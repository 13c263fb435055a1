//! What is answered: services, namespaces and clusterset IPs, for any number of reading threads.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use arc_swap::Guard;

use crate::label::{Label, ServiceName};
use crate::service::Service;
use crate::sharded::{Shard, Sharded};

/// The records; cheap to clone. Each is replaced as a whole, so that an answer is never about half of a change.
#[derive(Clone)]
pub struct Records(Arc<Maps>);

/// What readers and the writer share.
struct Maps {
    services: Sharded<Arc<Service>>,
    namespaces: Sharded<Namespace>,
    /// By the octets of a clusterset IP.
    owners: Sharded<ServiceName>,
    serial: AtomicU32,
    is_synced: AtomicBool,
}

/// How many answers have named a cluster for a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answered<'r> {
    /// The service's namespace.
    pub namespace: &'r str,
    /// The service's name.
    pub service: &'r str,
    /// The cluster; `None` for clusterset IPs.
    pub cluster: Option<&'r Label>,
    /// The addresses that it has.
    pub ips: &'r [IpAddr],
    /// The number of answers.
    pub count: u64,
}

/// A namespace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Namespace {
    /// The number of imported services in it.
    pub(crate) services: u32,
}

impl Records {
    /// Creates empty records.
    pub(crate) fn new() -> Self {
        Self(Arc::new(Maps {
            services: Sharded::new(),
            namespaces: Sharded::new(),
            owners: Sharded::new(),
            serial: AtomicU32::new(1),
            is_synced: AtomicBool::new(false),
        }))
    }

    /// Returns whether all has been read that was there at the start. Until then no name is said not to exist.
    pub fn is_synced(&self) -> bool {
        self.0.is_synced.load(Ordering::Acquire)
    }

    /// Returns the serial number of the zones: one more with every change.
    pub fn serial(&self) -> u32 {
        self.0.serial.load(Ordering::Relaxed)
    }

    /// Returns the number of services.
    pub fn services(&self) -> usize {
        self.0.services.len()
    }

    /// Calls a function with the number of answers that named each cluster, and each clusterset IP, for each service; with
    /// none of them that no answer has named.
    pub fn each_answered(&self, mut call: impl FnMut(Answered<'_>)) {
        self.0.services.each(|service| {
            let (namespace, name) = (service.name.namespace(), service.name.service());
            let count = service.turns.answered.load(Ordering::Relaxed);
            if count > 0 {
                call(Answered {
                    namespace: &namespace,
                    service: &name,
                    cluster: None,
                    ips: &service.ips,
                    count,
                });
            }
            for export in &service.exports {
                let count = export.answered.load(Ordering::Relaxed);
                if count > 0 {
                    let v4 = export.v4.iter().map(|address| IpAddr::V4(address.ip));
                    let v6 = export.v6.iter().map(|address| IpAddr::V6(address.ip));
                    let ips: Vec<IpAddr> = v4.chain(v6).collect();
                    let cluster = Some(export.cluster.id());
                    call(Answered { namespace: &namespace, service: &name, cluster, ips: &ips, count });
                }
            }
        });
    }

    /// Returns the shard with a service.
    pub(crate) fn service(&self, wire: &[u8]) -> Guard<Arc<Shard<Arc<Service>>>> {
        self.0.services.shard(wire)
    }

    /// Returns a namespace, by its label in wire form.
    pub(crate) fn namespace(&self, wire: &[u8]) -> Namespace {
        self.0.namespaces.shard(wire).get(wire).copied().unwrap_or_default()
    }

    /// Returns the shard with the owner of a clusterset IP.
    pub(crate) fn owner(&self, octets: &[u8]) -> Guard<Arc<Shard<ServiceName>>> {
        self.0.owners.shard(octets)
    }

    /// Replaces or removes a service. Returns the number of entries copied.
    pub(crate) fn set_service(&self, name: &ServiceName, service: Option<Arc<Service>>) -> usize {
        self.0.services.set(name.wire(), service)
    }

    /// Replaces a namespace, or removes one of which nothing is left. Returns the number of entries copied.
    pub(crate) fn set_namespace(&self, wire: &[u8], namespace: Namespace) -> usize {
        self.0.namespaces.set(wire, (namespace != Namespace::default()).then_some(namespace))
    }

    /// Sets or removes the owner of a clusterset IP. Returns the number of entries copied.
    pub(crate) fn set_owner(&self, ip: IpAddr, owner: Option<ServiceName>) -> usize {
        with_octets(ip, |octets| self.0.owners.set(octets, owner))
    }

    /// Counts a change.
    pub(crate) fn set_changed(&self) {
        self.0.serial.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that all has been read that was there at the start.
    pub(crate) fn set_synced(&self) {
        self.0.is_synced.store(true, Ordering::Release);
    }
}

impl std::fmt::Debug for Records {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Records")
            .field("serial", &self.serial())
            .field("is_synced", &self.is_synced())
            .finish()
    }
}

/// Calls a function with the octets of an address, in network order.
pub(crate) fn with_octets<T>(ip: IpAddr, call: impl FnOnce(&[u8]) -> T) -> T {
    match ip {
        IpAddr::V4(ip) => call(&ip.octets()),
        IpAddr::V6(ip) => call(&ip.octets()),
    }
}

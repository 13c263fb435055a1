//! What one cluster serves of a service, arranged for answers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::cluster::Cluster;
use crate::label::Label;
use crate::slice::{MAX_ENDPOINTS, MAX_PORTS, Port, Slice};

/// An address and whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Address<Ip> {
    /// Index of its host among the export's, or [`NO_HOST`].
    pub(crate) host: u32,
    /// The address.
    pub(crate) ip: Ip,
}

/// Index of addresses without a host name; the last in order.
pub(crate) const NO_HOST: u32 = u32::MAX;

/// A cluster's part of a service. Only what may be answered is here: addresses that are not ready are left out, but for
/// a virtual IP, which a name with the cluster's id has all the same.
#[derive(Debug)]
pub(crate) struct Export {
    /// The cluster.
    pub(crate) cluster: Arc<Cluster>,
    /// Its weight in the round robin.
    pub(crate) weight: u32,
    /// Its ports, in order and each once.
    pub(crate) ports: Box<[Port]>,
    /// Names of hosts that have an address, in order.
    pub(crate) hosts: Box<[Label]>,
    /// Addresses, by host and then by address, each once.
    pub(crate) v4: Box<[Address<Ipv4Addr>]>,
    /// Addresses, by host and then by address, each once.
    pub(crate) v6: Box<[Address<Ipv6Addr>]>,
    /// Whether something serves.
    pub(crate) is_ready: bool,
    /// Number of answers with addresses of it; kept when it changes.
    pub(crate) answered: Arc<AtomicU64>,
}

/// What is said of a cluster's part of a service beside its slices.
#[derive(Debug)]
pub(crate) struct Shape {
    /// Its weight in the round robin.
    pub(crate) weight: u32,
    /// Whether its addresses are those of pods.
    pub(crate) is_headless: bool,
    /// Number of answers with addresses of it so far.
    pub(crate) answered: Arc<AtomicU64>,
}

impl Export {
    /// Arranges what the slices of a service in a cluster say.
    pub(crate) fn new<'s>(
        cluster: Arc<Cluster>,
        slices: impl Iterator<Item = &'s Slice> + Clone,
        shape: Shape,
    ) -> Self {
        let Shape { weight, is_headless, answered } = shape;
        let counting = |slice: &'s Slice| {
            let endpoints = slice.endpoints.iter().take(MAX_ENDPOINTS);
            endpoints.map(|endpoint| (endpoint, endpoint.is_ready || slice.publishes_not_ready))
        };
        let endpoints = slices.clone().flat_map(counting);
        let is_ready =
            endpoints.clone().any(|(endpoint, is_ready)| is_ready && !endpoint.addresses.is_empty());
        let published =
            endpoints.filter(|(_, is_ready)| *is_ready || !is_headless).map(|(endpoint, _)| endpoint);
        let mut hosts: Vec<Label> = published.clone().filter_map(|endpoint| endpoint.host.clone()).collect();
        hosts.sort_unstable();
        hosts.dedup();
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for endpoint in published {
            let found = endpoint.host.as_ref().and_then(|host| hosts.binary_search(host).ok());
            let host = found.and_then(|index| u32::try_from(index).ok()).unwrap_or(NO_HOST);
            for address in &endpoint.addresses {
                match address {
                    IpAddr::V4(ip) => v4.push(Address { host, ip: *ip }),
                    IpAddr::V6(ip) => v6.push(Address { host, ip: *ip }),
                }
            }
        }
        let mut ports: Vec<Port> =
            slices.flat_map(|slice| slice.ports.iter().take(MAX_PORTS).cloned()).collect();
        ports.sort_unstable();
        ports.dedup();
        ports.truncate(MAX_PORTS);
        Self {
            cluster,
            weight,
            ports: ports.into_boxed_slice(),
            hosts: hosts.into_boxed_slice(),
            v4: in_order(v4),
            v6: in_order(v6),
            is_ready,
            answered,
        }
    }

    /// Counts an answer with addresses of it.
    pub(crate) fn count(&self) {
        self.answered.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns whether new clients may be sent to it.
    pub(crate) fn is_eligible(&self) -> bool {
        self.is_ready && self.cluster.is_up()
    }

    /// Returns the index of a host.
    pub(crate) fn host(&self, label: &[u8]) -> Option<u32> {
        let found = self.hosts.binary_search_by(|host| host.as_bytes().cmp(label)).ok()?;
        u32::try_from(found).ok()
    }
}

/// Returns the addresses of one host.
pub(crate) fn of_host<Ip>(addresses: &[Address<Ip>], host: u32) -> &[Address<Ip>] {
    let start = addresses.partition_point(|address| address.host < host);
    let end = addresses.partition_point(|address| address.host <= host);
    &addresses[start..end]
}

fn in_order<Ip: Ord>(mut addresses: Vec<Address<Ip>>) -> Box<[Address<Ip>]> {
    addresses.sort_unstable();
    addresses.dedup();
    addresses.into_boxed_slice()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slice::{Endpoint, Protocol};

    fn endpoint(host: Option<&str>, addresses: &[&str], is_ready: bool) -> Endpoint {
        Endpoint {
            addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
            host: host.map(|host| Label::new(host).unwrap()),
            is_ready,
        }
    }

    fn export(slices: &[Slice], is_headless: bool) -> Export {
        let cluster = Arc::new(Cluster::new(Label::new("east").unwrap(), false, Arc::default()));
        Export::new(cluster, slices.iter(), Shape { weight: 1, is_headless, answered: Arc::default() })
    }

    #[test]
    fn addresses_are_by_host_and_each_once() {
        let four = Slice {
            endpoints: vec![
                endpoint(Some("b"), &["10.0.0.2"], true),
                endpoint(None, &["10.0.0.9"], true),
                endpoint(Some("a"), &["10.0.0.1"], true),
                endpoint(Some("a"), &["10.0.0.1"], true),
                endpoint(Some("c"), &["10.0.0.3"], false),
            ],
            ..Slice::default()
        };
        let six = Slice { endpoints: vec![endpoint(Some("b"), &["fd00::2"], true)], ..Slice::default() };
        let export = export(&[four, six], true);
        assert_eq!(export.v4.len(), 3, "{:?}", export.v4);
        let b = export.host(b"b").unwrap();
        assert_eq!(of_host(&export.v4, b)[0].ip, Ipv4Addr::new(10, 0, 0, 2));
        assert_eq!(of_host(&export.v6, b).len(), 1);
        assert_eq!(of_host(&export.v4, NO_HOST)[0].ip, Ipv4Addr::new(10, 0, 0, 9));
        assert_eq!(export.host(b"c"), None, "not ready");
    }

    #[test]
    fn addresses_that_are_not_ready_count_where_they_are_published() {
        let mut slice =
            Slice { endpoints: vec![endpoint(Some("a"), &["10.0.0.1"], false)], ..Slice::default() };
        assert!(export(std::slice::from_ref(&slice), true).v4.is_empty());
        let virtual_ip = export(std::slice::from_ref(&slice), false);
        assert!(!virtual_ip.is_ready && virtual_ip.v4.len() == 1);
        slice.publishes_not_ready = true;
        let export = export(&[slice], true);
        assert!(export.is_ready && export.v4.len() == 1);
    }

    #[test]
    fn a_million_ports_are_a_hundred() {
        let port = |number| Port { name: None, protocol: Protocol::Tcp, number };
        let slice = Slice { ports: (0..=u16::MAX).map(port).collect(), ..Slice::default() };
        assert_eq!(export(&[slice.clone(), slice], false).ports.len(), MAX_PORTS);
    }
}

//! Which nodes serve which address and port: an immutable snapshot, swapped in whole.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use hashbrown::HashMap;
use ipnet::IpNet;
use trieste_packet::{FlowKey, KeyedState};

use super::maglev::{Maglev, Share};

/// Ours: most entries of all tables together, 32 MiB: those of 16,000 services on up to 16 nodes each. Services beyond are
/// left to kube-proxy.
const MOST_ENTRIES: usize = 16 << 20;

/// Where clients send to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frontend {
    /// The cluster IP.
    pub address: IpAddr,
    /// Internet protocol number.
    pub protocol: u8,
    /// Port, host order.
    pub port: u16,
}

/// A node that packets can be sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceNode {
    /// Its address on the network between nodes.
    pub address: IpAddr,
    /// The hardware address of its device on the VXLAN between nodes.
    pub mac: [u8; 6],
}

/// The nodes behind one address and port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Backends {
    /// Nodes with back ends for new flows, by address, and how many each has.
    pub used: BTreeMap<IpAddr, u32>,
    /// Nodes that may still have back ends of old flows; those of `used` need not be named.
    pub others: BTreeSet<IpAddr>,
    /// Whether all flows of a client go to the same node.
    pub keeps_clients: bool,
}

/// A node's place in the snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeId(pub(crate) u16);

/// What stands behind one address and port.
#[derive(Debug)]
struct Service {
    choice: Choice,
    /// Nodes that old flows may stay at, sorted by number.
    stays: Box<[u16]>,
    keeps_clients: bool,
}

#[derive(Debug)]
enum Choice {
    One(u16),
    Many { nodes: Box<[u16]>, table: Arc<Maglev> },
}

/// The snapshot.
#[derive(Debug)]
pub struct Services {
    generation: u64,
    own: Option<ServiceNode>,
    port: u16,
    networks: Vec<IpNet>,
    /// Sorted by address.
    nodes: Vec<ServiceNode>,
    services: HashMap<Frontend, Service, KeyedState>,
    /// Tables by what they were made of: those that are wanted again need not be made again.
    tables: BTreeMap<Vec<Share>, Arc<Maglev>>,
    left_out: usize,
}

impl Default for Services {
    fn default() -> Self {
        Self {
            generation: 0,
            own: None,
            port: 0,
            networks: Vec::new(),
            nodes: Vec::new(),
            // Their keys are of this cluster's Services: there is nobody to keep the seed from.
            services: HashMap::with_hasher(KeyedState::new(0)),
            tables: BTreeMap::new(),
            left_out: 0,
        }
    }
}

impl Services {
    /// Whether every packet is left to the kernel.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.services.is_empty()
    }

    /// Number of addresses and ports.
    #[must_use]
    pub fn len(&self) -> usize {
        self.services.len()
    }

    /// How many more there are that there was no room for.
    #[must_use]
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// The address of the node that a flow goes to, by its source, destination and ports alone; for people.
    #[must_use]
    pub fn node_of(&self, flow: &FlowKey) -> Option<IpAddr> {
        self.pick(flow).map(|node| self.node(node).address)
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn own(&self) -> Option<&ServiceNode> {
        self.own.as_ref()
    }

    /// The port that nodes take frames at.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Whether services may have the address.
    pub(crate) fn covers(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(&address))
    }

    pub(crate) fn node(&self, node: NodeId) -> &ServiceNode {
        &self.nodes[usize::from(node.0)]
    }

    pub(crate) fn is_own(&self, node: NodeId) -> bool {
        self.own.is_some_and(|own| own.address == self.node(node).address)
    }

    /// The node at an address.
    pub(crate) fn find(&self, address: IpAddr) -> Option<NodeId> {
        let place = self.nodes.binary_search_by_key(&address, |node| node.address).ok()?;
        u16::try_from(place).ok().map(NodeId)
    }

    /// The node for a new flow.
    pub(crate) fn pick(&self, flow: &FlowKey) -> Option<NodeId> {
        let service = self.services.get(&frontend(flow))?;
        Some(NodeId(match &service.choice {
            Choice::One(node) => *node,
            Choice::Many { nodes, table } => nodes[usize::from(table.pick(client_hash(flow, service)))],
        }))
    }

    /// Whether new flows may go to the node at `address`.
    pub(crate) fn uses(&self, flow: &FlowKey, address: IpAddr) -> bool {
        let service = self.services.get(&frontend(flow));
        service.zip(self.find(address)).is_some_and(|(service, node)| match &service.choice {
            Choice::One(one) => *one == node.0,
            Choice::Many { nodes, .. } => nodes.contains(&node.0),
        })
    }

    /// The node at `address` if an old flow may stay there.
    pub(crate) fn stays(&self, flow: &FlowKey, address: IpAddr) -> Option<NodeId> {
        let service = self.services.get(&frontend(flow))?;
        let node = self.find(address)?;
        service.stays.binary_search(&node.0).is_ok().then_some(node)
    }
}

fn frontend(flow: &FlowKey) -> Frontend {
    Frontend { address: flow.destination(), protocol: flow.protocol, port: flow.destination_port }
}

/// What decides for a client: its address, and its port where flows of one client may go different ways.
fn client_hash(flow: &FlowKey, service: &Service) -> u64 {
    if service.keeps_clients {
        let client = flow.source();
        FlowKey::new(client, client, 0, 0, 0).inside_source_hash()
    } else {
        flow.inside_source_hash()
    }
}

/// Builds a snapshot.
#[derive(Debug)]
pub struct ServicesBuilder<'a> {
    services: Services,
    before: Option<&'a Services>,
    entries: usize,
}

impl<'a> ServicesBuilder<'a> {
    /// Begins with the networks that cluster IPs are of, this node, and all nodes that take packets for services, at
    /// UDP `port`. `before` lends its tables.
    #[must_use]
    pub fn new(
        generation: u64,
        networks: &[IpNet],
        own: ServiceNode,
        nodes: impl IntoIterator<Item = ServiceNode>,
        port: u16,
        before: Option<&'a Services>,
    ) -> Self {
        let mut nodes: Vec<ServiceNode> = nodes.into_iter().chain([own]).collect();
        nodes.sort_unstable();
        nodes.dedup_by_key(|node| node.address);
        nodes.truncate(usize::from(u16::MAX));
        let networks = networks.to_vec();
        let services = Services { generation, own: Some(own), port, networks, nodes, ..Services::default() };
        Self { services, before, entries: 0 }
    }

    /// Adds what stands behind an address and port. Nodes that take no packets are left out; if none is left, the kernel
    /// of the gateway's node has it.
    pub fn service(&mut self, frontend: Frontend, backends: &Backends) {
        let known = |address: &IpAddr| self.services.find(*address).map(|node| node.0);
        let used: Vec<(u16, Share)> = backends
            .used
            .iter()
            .filter_map(|(&address, &weight)| Some((known(&address)?, Share { address, weight })))
            .collect();
        let mut stays: Vec<u16> = backends.others.iter().filter_map(known).collect();
        stays.extend(used.iter().map(|(node, _)| *node));
        stays.sort_unstable();
        stays.dedup();
        let choice = match &*used {
            [] => return,
            [(only, _)] => Choice::One(*only),
            several => {
                let shares: Vec<Share> = several.iter().map(|(_, share)| *share).collect();
                let Some(table) = self.table(shares) else {
                    self.services.left_out += 1;
                    return;
                };
                Choice::Many { nodes: several.iter().map(|(node, _)| *node).collect(), table }
            }
        };
        let keeps_clients = backends.keeps_clients;
        let service = Service { choice, stays: stays.into(), keeps_clients };
        self.services.services.insert(frontend, service);
    }

    /// A table over these nodes: one that there is already, or a new one if there is room.
    fn table(&mut self, shares: Vec<Share>) -> Option<Arc<Maglev>> {
        if let Some(table) = self.services.tables.get(&shares) {
            return Some(Arc::clone(table));
        }
        let entries = Maglev::size(shares.len()) as usize;
        if self.entries + entries > MOST_ENTRIES {
            return None;
        }
        self.entries += entries;
        let lent = self.before.and_then(|before| before.tables.get(&shares));
        let table = lent.map_or_else(|| Arc::new(Maglev::new(&shares)), Arc::clone);
        self.services.tables.insert(shares, Arc::clone(&table));
        Some(table)
    }

    /// The finished snapshot.
    #[must_use]
    pub fn build(self) -> Services {
        self.services
    }
}

#[cfg(test)]
mod tests;

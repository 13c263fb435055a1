//! Which nodes serve which address and port: an immutable snapshot, swapped in whole, of which most is shared with the one
//! before.
//!
//! ```text
//!   ServicesBuilder ── set, remove: copies one shard ──▶ shards ◀── build: 256 references ── Services ◀── workers
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher as _;
use std::net::IpAddr;
use std::sync::Arc;

use hashbrown::HashTable;
use ipnet::IpNet;
use trieste_packet::{FlowKey, KeyedState};
use trieste_vxlan::Mac;

use super::maglev::{Maglev, Share};

/// Ours: most entries of all tables together, 32 MiB: those of 16,000 services on up to 16 nodes each. Services beyond are
/// left to kube-proxy.
const MOST_ENTRIES: usize = 16 << 20;
/// Ours: most nodes of all services together.
const MOST_STAYS: usize = 400_000;
/// Ours: parts of which each change copies one.
const SHARDS: usize = 256;

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
    pub mac: Mac,
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
    /// No new flow goes anywhere.
    Nobody,
    One(u16, u32),
    Many {
        nodes: Box<[u16]>,
        shares: Arc<[Share]>,
        table: Arc<Maglev>,
    },
}

/// The services of a part of all hashes.
type Shard = HashTable<(Frontend, Arc<Service>)>;

/// The snapshot.
#[derive(Debug, Clone)]
pub struct Services {
    generation: u64,
    own: Option<ServiceNode>,
    port: u16,
    networks: Arc<[IpNet]>,
    /// Sorted by address.
    nodes: Arc<[ServiceNode]>,
    shards: Box<[Arc<Shard>]>,
    /// Their keys are of this cluster's Services: there is nobody to keep the seed from.
    state: KeyedState,
    len: usize,
}

impl Default for Services {
    fn default() -> Self {
        Self {
            generation: 0,
            own: None,
            port: 0,
            networks: Arc::default(),
            nodes: Arc::default(),
            shards: vec![Arc::default(); SHARDS].into(),
            state: KeyedState::new(0),
            len: 0,
        }
    }
}

impl Services {
    /// Whether every packet is left to the kernel.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of addresses and ports.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The address of the node that a flow goes to, by its source, destination and ports alone; for people.
    #[must_use]
    pub fn node_of(&self, flow: &FlowKey) -> Option<IpAddr> {
        self.pick(flow).map(|node| self.node(node).address)
    }

    /// Returns all addresses and ports, and the nodes behind each, in no order.
    pub fn all(&self) -> impl Iterator<Item = (Frontend, Backends)> + '_ {
        let shards = self.shards.iter().flat_map(|shard| shard.iter());
        shards.map(|(at, service)| (*at, self.backends(service)))
    }

    fn backends(&self, service: &Service) -> Backends {
        let address = |node: u16| self.nodes[usize::from(node)].address;
        let used: BTreeMap<IpAddr, u32> = match &service.choice {
            Choice::Nobody => BTreeMap::new(),
            Choice::One(node, weight) => BTreeMap::from([(address(*node), *weight)]),
            Choice::Many { shares, .. } => shares.iter().map(|share| (share.address, share.weight)).collect(),
        };
        let others = service.stays.iter().map(|node| address(*node));
        let others = others.filter(|address| !used.contains_key(address)).collect();
        Backends { used, others, keeps_clients: service.keeps_clients }
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
        let service = self.service(flow)?;
        match &service.choice {
            Choice::Nobody => None,
            Choice::One(node, _) => Some(NodeId(*node)),
            Choice::Many { nodes, table, .. } => {
                Some(NodeId(nodes[usize::from(table.pick(client_hash(flow, service)))]))
            }
        }
    }

    /// Whether new flows may go to the node at `address`.
    pub(crate) fn uses(&self, flow: &FlowKey, address: IpAddr) -> bool {
        self.service(flow).zip(self.find(address)).is_some_and(|(service, node)| match &service.choice {
            Choice::Nobody => false,
            Choice::One(one, _) => *one == node.0,
            Choice::Many { nodes, .. } => nodes.contains(&node.0),
        })
    }

    /// The node at `address` if an old flow may stay there.
    pub(crate) fn stays(&self, flow: &FlowKey, address: IpAddr) -> Option<NodeId> {
        let service = self.service(flow)?;
        let node = self.find(address)?;
        service.stays.binary_search(&node.0).is_ok().then_some(node)
    }

    fn service(&self, flow: &FlowKey) -> Option<&Service> {
        let at = frontend(flow);
        let hash = self.state.hash_one(at);
        let found = self.shards[shard_of(hash)].find(hash, |(there, _)| *there == at);
        found.map(|(_, service)| &**service)
    }
}

/// Returns the shard of a hash: by bits that hash tables do not use for their buckets.
fn shard_of(hash: u64) -> usize {
    usize::from(hash.to_be_bytes()[2])
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

/// Builds snapshots, each from the one before and what has changed.
#[derive(Debug)]
pub struct ServicesBuilder {
    services: Services,
    /// Tables by what they are made of, and how many services have each: those with the same nodes share one.
    tables: BTreeMap<Arc<[Share]>, (Arc<Maglev>, usize)>,
    /// Tables that no service has any more, until the next snapshot: they may be wanted again, and take long to make.
    unused: BTreeMap<Arc<[Share]>, Arc<Maglev>>,
    entries: usize,
    stays: usize,
    left_out: BTreeSet<Frontend>,
}

impl ServicesBuilder {
    /// Begins with the networks that cluster IPs are of, this node, and all nodes that take packets for services, at
    /// UDP `port`.
    #[must_use]
    pub fn new(
        networks: &[IpNet],
        own: ServiceNode,
        nodes: impl IntoIterator<Item = ServiceNode>,
        port: u16,
    ) -> Self {
        let mut nodes: Vec<ServiceNode> = nodes.into_iter().chain([own]).collect();
        nodes.sort_unstable();
        nodes.dedup_by_key(|node| node.address);
        nodes.truncate(usize::from(u16::MAX));
        let services = Services {
            own: Some(own),
            port,
            networks: networks.into(),
            nodes: nodes.into(),
            ..Services::default()
        };
        Self {
            services,
            tables: BTreeMap::new(),
            unused: BTreeMap::new(),
            entries: 0,
            stays: 0,
            left_out: BTreeSet::new(),
        }
    }

    /// Takes over the tables of another one, as far as they are wanted before the next snapshot.
    #[must_use]
    pub fn with_tables_of(mut self, other: Self) -> Self {
        self.unused = other.tables.into_iter().map(|(shares, (table, _))| (shares, table)).collect();
        self
    }

    /// Sets what stands behind an address and port. Nodes that take no packets are left out; if none is left, the kernel
    /// of the gateway's node has it, and new flows where none is left for them.
    pub fn set(&mut self, at: Frontend, backends: &Backends) {
        self.remove(at);
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
            [] if stays.is_empty() => return,
            [] => Some(Choice::Nobody),
            [(only, share)] => Some(Choice::One(*only, share.weight)),
            several => {
                let shares: Vec<Share> = several.iter().map(|(_, share)| *share).collect();
                let nodes = several.iter().map(|(node, _)| *node).collect();
                self.table(&shares).map(|(shares, table)| Choice::Many { nodes, shares, table })
            }
        };
        let Some(choice) = choice.filter(|_| self.stays + stays.len() <= MOST_STAYS) else {
            self.left_out.insert(at);
            return;
        };
        self.hold(&choice);
        self.stays += stays.len();
        self.services.len += 1;
        let service = Service { choice, stays: stays.into(), keeps_clients: backends.keeps_clients };
        let state = self.services.state.clone();
        let hash = state.hash_one(at);
        let shard = Arc::make_mut(&mut self.services.shards[shard_of(hash)]);
        shard.insert_unique(hash, (at, Arc::new(service)), |(there, _)| state.hash_one(there));
    }

    /// Removes what stands behind an address and port, if anything does.
    pub fn remove(&mut self, at: Frontend) {
        self.left_out.remove(&at);
        let hash = self.services.state.hash_one(at);
        let shard = &mut self.services.shards[shard_of(hash)];
        if shard.find(hash, |(there, _)| *there == at).is_none() {
            return;
        }
        if let Ok(entry) = Arc::make_mut(shard).find_entry(hash, |(there, _)| *there == at) {
            let ((_, service), _) = entry.remove();
            self.services.len -= 1;
            self.stays -= service.stays.len();
            self.release(&service.choice);
        }
    }

    /// Counts one service more for the table that it has.
    fn hold(&mut self, choice: &Choice) {
        let Choice::Many { shares, table, .. } = choice else { return };
        if let Some((_, uses)) = self.tables.get_mut(shares) {
            *uses += 1;
            return;
        }
        self.entries += Maglev::size(shares.len()) as usize;
        self.tables.insert(Arc::clone(shares), (Arc::clone(table), 1));
    }

    /// Counts one service less.
    fn release(&mut self, choice: &Choice) {
        let Choice::Many { shares, table, .. } = choice else { return };
        let Some((_, uses)) = self.tables.get_mut(shares) else { return };
        *uses -= 1;
        if *uses == 0 {
            self.tables.remove(shares);
            self.entries -= Maglev::size(shares.len()) as usize;
            self.unused.insert(Arc::clone(shares), Arc::clone(table));
        }
    }

    /// A table over these nodes: one that there is already, or a new one if there is room.
    fn table(&mut self, shares: &[Share]) -> Option<(Arc<[Share]>, Arc<Maglev>)> {
        if let Some((shares, (table, _))) = self.tables.get_key_value(shares) {
            return Some((Arc::clone(shares), Arc::clone(table)));
        }
        if self.entries + Maglev::size(shares.len()) as usize > MOST_ENTRIES {
            return None;
        }
        let made = || (Arc::from(shares), Arc::new(Maglev::new(shares)));
        Some(self.unused.remove_entry(shares).unwrap_or_else(made))
    }

    /// Returns how many addresses and ports there was no room for.
    #[must_use]
    pub fn left_out(&self) -> usize {
        self.left_out.len()
    }

    /// Returns a snapshot of what was set.
    #[must_use]
    pub fn build(&mut self, generation: u64) -> Services {
        self.unused.clear();
        Services { generation, ..self.services.clone() }
    }
}

#[cfg(test)]
mod tests;

//! Changes of the records, each at a cost in proportion to what it changes: one cluster's part of one service.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::cluster::{Cluster, ClusterState};
use crate::export::{Export, Shape};
use crate::label::{Label, ServiceName};
use crate::records::{Namespace, Records, with_octets};
use crate::routing::Routing;
use crate::service::{Service, ServiceKind, Turns};
use crate::slice::{MAX_PORTS, Port, Slice};

/// Most clusters of a set.
pub const MAX_CLUSTERS: usize = 4_096;
/// Most clusterset IPs of a service: one of each family.
pub const MAX_IPS: usize = 2;
/// Most slices of one service in one cluster.
pub const MAX_SLICES: usize = 1_024;
/// The weight of a cluster that an import gives none.
const DEFAULT_WEIGHT: u32 = 1;

/// What the set says of a service: its ServiceImport.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Import {
    /// Its kind.
    pub kind: ServiceKind,
    /// Clusterset IPs; those beyond [`MAX_IPS`] do not count.
    pub ips: Vec<IpAddr>,
    /// Ports, which names have where clusterset IPs are answered; those beyond [`MAX_PORTS`] do not count.
    pub ports: Vec<Port>,
    /// Which cluster clients are sent to.
    pub routing: Routing,
    /// Weights of clusters in the round robin; 1 for those that are missing, and 0 for no clients while another one serves.
    pub weights: BTreeMap<Label, u32>,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A service's import is there, or has changed.
    Import(ServiceName, Import),
    /// A service's import is gone; its slices stay until they go.
    ImportRemoved(ServiceName),
    /// A slice of a service in a cluster is there, or has changed. It may come before the import.
    Slice(ServiceName, Label, Box<str>, Slice),
    /// A slice is gone.
    SliceRemoved(ServiceName, Label, Box<str>),
    /// The gateways have found how a cluster can be reached; `None` if they have no record of it any more.
    Cluster(Label, Option<ClusterState>),
    /// Whether clusters count as connected that no gateway has a record of: as long as there is no gateway.
    UnknownClusters {
        /// Whether they do.
        are_up: bool,
    },
    /// All has been read that was there at the start.
    Synced,
}

/// Why a change was not applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// There are too many clusters.
    #[error("cannot add cluster {0}: there are {MAX_CLUSTERS} already")]
    TooManyClusters(Label),
    /// A cluster has too many slices of a service.
    #[error("cannot add a slice of {0} in cluster {1}: there are {MAX_SLICES} already")]
    TooManySlices(ServiceName, Label),
}

/// Writes the records; there is one.
#[derive(Debug)]
pub struct Writer {
    local: Label,
    records: Records,
    clusters: BTreeMap<Label, Arc<Cluster>>,
    are_unknown_up: Arc<AtomicBool>,
    drafts: BTreeMap<ServiceName, Draft>,
    copied: u64,
}

/// What is at hand of a service, whether it is answered or not.
#[derive(Debug, Default)]
struct Draft {
    import: Option<Import>,
    slices: BTreeMap<Label, BTreeMap<Box<str>, Slice>>,
    /// What the slices come to, for the import's kind.
    exports: BTreeMap<Label, Arc<Export>>,
    turns: Arc<Turns>,
    /// Numbers of answers by cluster; they outlive changes of what the clusters serve.
    answered: BTreeMap<Label, Arc<AtomicU64>>,
}

impl Writer {
    /// Creates empty records for the cluster that asks, and what alone changes them.
    pub fn new(local: Label) -> (Self, Records) {
        let records = Records::new();
        let shared = records.clone();
        let are_unknown_up = Arc::new(AtomicBool::new(true));
        let (clusters, drafts) = (BTreeMap::new(), BTreeMap::new());
        (Self { local, records, clusters, are_unknown_up, drafts, copied: 0 }, shared)
    }

    /// Applies a change. Answers that begin afterwards are about it.
    ///
    /// # Errors
    /// When a bound would be exceeded; nothing has changed then.
    pub fn apply(&mut self, change: Change) -> Result<(), ChangeError> {
        match change {
            Change::Import(name, import) => self.set_import(&name, Some(import)),
            Change::ImportRemoved(name) => self.set_import(&name, None),
            Change::Slice(name, cluster, slice, content) => {
                return self.add_slice(&name, &cluster, slice, content);
            }
            Change::SliceRemoved(name, cluster, slice) => self.remove_slice(&name, &cluster, &slice),
            Change::Cluster(id, state) => return self.set_cluster(&id, state),
            Change::UnknownClusters { are_up } => {
                if self.are_unknown_up.swap(are_up, Ordering::Relaxed) != are_up {
                    self.records.set_changed();
                }
            }
            Change::Synced => self.records.set_synced(),
        }
        Ok(())
    }

    /// Returns the number of entries that all changes have copied.
    pub fn copied(&self) -> u64 {
        self.copied
    }

    fn set_import(&mut self, name: &ServiceName, import: Option<Import>) {
        if import.is_none() && !self.drafts.contains_key(name) {
            return;
        }
        let draft = self.drafts.entry(name.clone()).or_default();
        let old = std::mem::replace(&mut draft.import, import);
        let is_same_shape = match (&old, &draft.import) {
            (Some(old), Some(new)) => old.kind == new.kind && old.weights == new.weights,
            _ => false,
        };
        if !is_same_shape {
            draft.exports.clear();
            let ids: Vec<Label> = draft.slices.keys().cloned().collect();
            for cluster in ids.iter().filter_map(|id| self.clusters.get(id)) {
                self.copied += draft.arrange(cluster);
            }
        }
        let ips = |import: &Option<Import>| {
            import.iter().flat_map(|import| import.ips.iter().take(MAX_IPS).copied()).collect::<Vec<_>>()
        };
        let (old_ips, new_ips) = (ips(&old), ips(&draft.import));
        let change = i64::from(draft.import.is_some()) - i64::from(old.is_some());
        self.set_owners(name, &old_ips, &new_ips);
        self.count_service(name, change);
        self.publish(name);
        self.remove_empty_draft(name);
    }

    fn add_slice(
        &mut self,
        name: &ServiceName,
        id: &Label,
        slice: Box<str>,
        content: Slice,
    ) -> Result<(), ChangeError> {
        let cluster = self.cluster(id)?;
        let draft = self.drafts.entry(name.clone()).or_default();
        let slices = draft.slices.entry(id.clone()).or_default();
        if slices.len() >= MAX_SLICES && !slices.contains_key(&slice) {
            return Err(ChangeError::TooManySlices(name.clone(), id.clone()));
        }
        slices.insert(slice, content);
        if draft.import.is_some() {
            self.copied += draft.arrange(&cluster);
            self.publish(name);
        }
        Ok(())
    }

    fn remove_slice(&mut self, name: &ServiceName, id: &Label, slice: &str) {
        let (Some(draft), Some(cluster)) = (self.drafts.get_mut(name), self.clusters.get(id)) else { return };
        let Some(slices) = draft.slices.get_mut(id) else { return };
        if slices.remove(slice).is_none() {
            return;
        }
        if slices.is_empty() {
            draft.slices.remove(id);
            draft.exports.remove(id);
            draft.answered.remove(id);
        } else {
            self.copied += draft.arrange(cluster);
        }
        self.publish(name);
        self.remove_empty_draft(name);
        self.remove_unused_cluster(id);
    }

    fn set_cluster(&mut self, id: &Label, state: Option<ClusterState>) -> Result<(), ChangeError> {
        if state.is_none() && !self.clusters.contains_key(id) {
            return Ok(());
        }
        self.cluster(id)?.set(state);
        self.records.set_changed();
        self.remove_unused_cluster(id);
        Ok(())
    }

    /// Returns a cluster, a new one if need be.
    fn cluster(&mut self, id: &Label) -> Result<Arc<Cluster>, ChangeError> {
        if let Some(cluster) = self.clusters.get(id) {
            return Ok(Arc::clone(cluster));
        }
        if self.clusters.len() >= MAX_CLUSTERS {
            return Err(ChangeError::TooManyClusters(id.clone()));
        }
        let cluster = Arc::new(Cluster::new(id.clone(), *id == self.local, Arc::clone(&self.are_unknown_up)));
        self.clusters.insert(id.clone(), Arc::clone(&cluster));
        Ok(cluster)
    }

    /// Removes a cluster that no record refers to and no gateway has a record of.
    fn remove_unused_cluster(&mut self, id: &Label) {
        // Drafts without an import have no export that refers to it.
        let is_unused = self
            .clusters
            .get(id)
            .is_some_and(|cluster| Arc::strong_count(cluster) == 1 && !cluster.is_known());
        if is_unused && !self.drafts.values().any(|draft| draft.slices.contains_key(id)) {
            self.clusters.remove(id);
        }
    }

    /// Removes a draft with nothing in it.
    fn remove_empty_draft(&mut self, name: &ServiceName) {
        if self.drafts.get(name).is_some_and(|draft| draft.import.is_none() && draft.slices.is_empty()) {
            self.drafts.remove(name);
        }
    }

    fn set_owners(&mut self, name: &ServiceName, old: &[IpAddr], new: &[IpAddr]) {
        let is_owner = |records: &Records, ip: IpAddr| {
            with_octets(ip, |octets| records.owner(octets).get(octets) == Some(name))
        };
        for ip in old.iter().filter(|ip| !new.contains(ip)) {
            if is_owner(&self.records, *ip) {
                self.copied += count(self.records.set_owner(*ip, None));
            }
        }
        for ip in new.iter().filter(|ip| !old.contains(ip)) {
            self.copied += count(self.records.set_owner(*ip, Some(name.clone())));
        }
    }

    fn count_service(&mut self, name: &ServiceName, change: i64) {
        if change == 0 {
            return;
        }
        let namespace = self.records.namespace(name.namespace_wire());
        let services = i64::from(namespace.services) + change;
        let services = u32::try_from(services).unwrap_or(0);
        let namespace = Namespace { services };
        self.copied += count(self.records.set_namespace(name.namespace_wire(), namespace));
    }

    /// Publishes a service as its draft has it.
    fn publish(&mut self, name: &ServiceName) {
        let service = self.drafts.get(name).and_then(|draft| {
            let import = draft.import.as_ref()?;
            let ips: Box<[IpAddr]> = import.ips.iter().take(MAX_IPS).copied().collect();
            let exports: Box<[Arc<Export>]> = draft.exports.values().cloned().collect();
            let ports = if ips.is_empty() { common_ports(&exports, import.kind) } else { ports_of(import) };
            self.copied += count(exports.len());
            Some(Arc::new(Service {
                name: name.clone(),
                kind: import.kind,
                ips,
                ports,
                exports,
                routing: import.routing.clone(),
                turns: Arc::clone(&draft.turns),
            }))
        });
        self.copied += count(self.records.set_service(name, service));
        self.records.set_changed();
    }
}

impl Draft {
    /// Arranges a cluster's slices, if there is an import. Returns the number of those read.
    fn arrange(&mut self, cluster: &Arc<Cluster>) -> u64 {
        let id = cluster.id();
        let (Some(import), Some(slices)) = (&self.import, self.slices.get(id)) else { return 0 };
        let shape = Shape {
            weight: import.weights.get(id).copied().unwrap_or(DEFAULT_WEIGHT),
            is_headless: import.kind == ServiceKind::Headless,
            answered: Arc::clone(self.answered.entry(id.clone()).or_default()),
        };
        let export = Export::new(Arc::clone(cluster), slices.values(), shape);
        self.exports.insert(id.clone(), Arc::new(export));
        count(slices.len())
    }
}

/// Returns the ports that all clusters have; all that any has of a headless service, whose names differ by cluster.
fn common_ports(exports: &[Arc<Export>], kind: ServiceKind) -> Box<[Port]> {
    let Some((first, others)) = exports.split_first() else { return Box::default() };
    match kind {
        ServiceKind::ClusterSetIp => {
            let is_common =
                |port: &&Port| others.iter().all(|export| export.ports.binary_search(port).is_ok());
            first.ports.iter().filter(is_common).cloned().collect()
        }
        ServiceKind::Headless => {
            let mut ports: Vec<Port> =
                exports.iter().flat_map(|export| export.ports.iter().cloned()).collect();
            ports.sort_unstable();
            ports.dedup();
            ports.truncate(MAX_PORTS);
            ports.into_boxed_slice()
        }
    }
}

fn ports_of(import: &Import) -> Box<[Port]> {
    let mut ports: Vec<Port> = import.ports.iter().take(MAX_PORTS).cloned().collect();
    ports.sort_unstable();
    ports.dedup();
    ports.into_boxed_slice()
}

fn count(entries: usize) -> u64 {
    u64::try_from(entries).unwrap_or(u64::MAX)
}

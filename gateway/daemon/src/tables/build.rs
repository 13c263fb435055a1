//! From Endpoints with their cables to the tables of the packet path.

use std::collections::BTreeMap;
use std::sync::Arc;

use trieste_control::admin::RefusedCluster;
use trieste_packet::{CableId, LaneId};
use trieste_pipeline::{LaneEnd, LaneInfo, PathConfig, Tables, TablesBuilder, TablesError};

use super::{Local, Peer, Role, Translation};

/// The numbers of a cable that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lane {
    /// Its lane.
    pub lane: LaneId,
    /// Its counters.
    pub cable: CableId,
}

/// An Endpoint for the tables, with its cable if there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The Endpoint.
    pub peer: Arc<Peer>,
    /// Its cable.
    pub lane: Option<Lane>,
}

/// Returns the Endpoint of a cluster that carries its traffic: the newest that has a cable, else the newest. `cluster` is the
/// rows of one cluster, newest first.
#[must_use]
pub fn carrier(cluster: &[Row]) -> Option<&Row> {
    cluster.iter().find(|row| row.lane.is_some()).or_else(|| cluster.first())
}

/// Returns the rows of each cluster, in order.
pub fn clusters(rows: &[Row]) -> impl Iterator<Item = &[Row]> {
    rows.chunk_by(|a, b| a.peer.facts.cluster_id == b.peer.facts.cluster_id)
}

/// Returns the Endpoints of a cluster that carry its traffic, each with a cable: all if the cluster supports several
/// gateways, else one. `cluster` is the rows of one cluster, newest first.
pub fn carriers(cluster: &[Row]) -> impl Iterator<Item = &Row> {
    let takes_all = takes_all(cluster);
    let one = carrier(cluster);
    cluster
        .iter()
        .filter(move |row| takes_all || one.is_some_and(|one| std::ptr::eq(*row, one)))
        .filter(|row| row.lane.is_some())
}

fn takes_all(cluster: &[Row]) -> bool {
    cluster.iter().all(|row| row.peer.role == Role::Member)
}

/// The far end of a cable that was cut.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Far {
    /// A gateway of this cluster.
    Cluster(String),
    /// The sibling with this cable name.
    Sibling(String),
}

/// The input of tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rows {
    /// Gateways of remote clusters, in the order of [`super::Reader::read`].
    pub remote: Vec<Row>,
    /// The other gateways of our own cluster.
    pub siblings: Vec<Row>,
    /// Lanes that were cut a moment ago: they only open.
    pub leaving: Vec<(Far, LaneId)>,
    /// The cable name of our cluster's leader.
    pub leader: Option<String>,
}

/// Networks of remote clusters: which are reached, and which overlap ours or those of a cluster that comes before. A
/// function of [`Local`] and of the gateways that carry the clusters, so that it is worked out again only when one of these
/// has changed.
#[derive(Debug, Default)]
pub struct Networks {
    /// The gateway that carries each cluster, in order.
    carriers: Vec<Arc<Peer>>,
    /// The number of the rules of translation.
    rules: Option<u64>,
    refused: Vec<RefusedCluster>,
}

impl Networks {
    /// Works them out for these gateways, if they are others than the last ones. `has_cable` says which of a cluster's
    /// gateways may carry it.
    pub fn follow(&mut self, local: &Local, peers: &[Arc<Peer>], has_cable: impl Fn(&Peer) -> bool) {
        let groups = peers.chunk_by(|a, b| a.facts.cluster_id == b.facts.cluster_id);
        let carriers = groups.filter_map(|group| match group {
            [only] => Some(only),
            several => several.iter().find(|peer| has_cable(peer)).or_else(|| several.first()),
        });
        let carriers: Vec<&Arc<Peer>> = carriers.collect();
        let rules = epoch(local);
        let is_same = |(known, newest): (&Arc<Peer>, &&Arc<Peer>)| Arc::ptr_eq(known, newest);
        if self.rules == rules
            && self.carriers.len() == carriers.len()
            && self.carriers.iter().zip(&carriers).all(is_same)
        {
            return;
        }
        let mut builder = begin(0, local);
        self.refused.clear();
        for carrier in &carriers {
            let facts = &carrier.facts;
            if let Err(error) = builder.cluster(&facts.cluster_id, &facts.subnets) {
                self.refused.push(overlap(&facts.cluster_id, &error));
            }
        }
        self.rules = rules;
        self.carriers = carriers.into_iter().cloned().collect();
    }

    /// Returns the clusters that are refused for an overlap, in order.
    #[must_use]
    pub fn refused(&self) -> &[RefusedCluster] {
        &self.refused
    }
}

/// Returns the number of the rules of translation.
fn epoch(local: &Local) -> Option<u64> {
    local.translation.as_ref().map(|translation| translation.rules.epoch())
}

fn overlap(cluster: &str, error: &TablesError) -> RefusedCluster {
    RefusedCluster { cluster: cluster.to_owned(), endpoint: None, reason: error.to_string() }
}

fn begin(epoch: u64, local: &Local) -> TablesBuilder {
    let builder = TablesBuilder::new(epoch, &local.site.subnets, &local.icmp_sources);
    match local.translation.as_deref() {
        Some(Translation { inside, rules, gateway, .. }) => {
            builder.globalnet(inside, Arc::clone(rules), *gateway)
        }
        None => builder,
    }
}

/// Builds the tables for Endpoints and their cables. Clusters whose subnets overlap ours or an older cluster's are left
/// out and named. Of a cluster's cables all carry its traffic, or the newest ([`carriers`]); the others only open. A
/// cluster without a cable keeps its subnets: packets for it go to a sibling or are dropped, and nobody else gets them.
#[must_use]
pub fn build(epoch: u64, local: &Local, rows: &Rows) -> (Tables, Vec<RefusedCluster>) {
    let mut builder = begin(epoch, local);
    let mut refused = Vec::new();
    let mut ends = BTreeMap::new();
    for group in clusters(&rows.remote) {
        let Some(carrier) = carrier(group) else { continue };
        let name = &carrier.peer.facts.cluster_id;
        match add_cluster(&mut builder, local, group, carrier) {
            Ok(_) if rows.leaving.is_empty() => {}
            Ok(end) => drop(ends.insert(Far::Cluster(name.clone()), end)),
            Err(error) => refused.push(overlap(name, &error)),
        }
    }
    for row in &rows.siblings {
        let Some(lane) = row.lane else { continue };
        let name = &row.peer.facts.cable_name;
        // There are a few of them at most: they have been counted.
        let Ok(sibling) = builder.sibling(name, &config(row, lane, local)) else { continue };
        if rows.leader.as_ref() == Some(name) {
            builder.leader(sibling);
        }
        builder.identity(row.peer.identity, lane.lane);
        ends.insert(Far::Sibling(name.clone()), LaneEnd::Sibling(sibling));
    }
    for (far, lane) in &rows.leaving {
        if let Some(&end) = ends.get(far) {
            builder.lane(*lane, LaneInfo { end, mtu_bytes: local.path_mtu });
        }
    }
    (builder.build(), refused)
}

/// Adds a cluster with its paths and lanes.
fn add_cluster(
    builder: &mut TablesBuilder,
    local: &Local,
    group: &[Row],
    carrier: &Row,
) -> Result<LaneEnd, TablesError> {
    let cluster = builder.cluster(&carrier.peer.facts.cluster_id, &carrier.peer.facts.subnets)?;
    let end = LaneEnd::Cluster(cluster);
    for row in carriers(group) {
        let Some(lane) = row.lane else { continue };
        let path = builder.path_among(cluster, &config(row, lane, local))?;
        if takes_all(group) {
            for address in row.peer.health_check_ips() {
                builder.pin(address, path);
            }
        }
    }
    for row in group {
        let Some(Lane { lane, .. }) = row.lane else { continue };
        builder.identity(row.peer.identity, lane);
        for address in row.peer.tunnel_addresses() {
            builder.tunnel_address(lane, address);
        }
        if !carriers(group).any(|carrier| std::ptr::eq(row, carrier)) {
            builder.lane(lane, LaneInfo { end, mtu_bytes: local.path_mtu });
        }
    }
    Ok(end)
}

fn config(row: &Row, lane: Lane, local: &Local) -> PathConfig {
    PathConfig {
        lane: lane.lane,
        cable: lane.cable,
        mtu_bytes: local.path_mtu,
        key: row.peer.key(),
        weight: row.peer.spec.weight(),
    }
}

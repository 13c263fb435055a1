//! Globalnet's state in one place, for the admin socket, the metrics and the writer of sessions.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use trieste_control::admin::{
    AllocationStatus, Condition, ControllersStatus, EgressStatus, FailureCount, GlobalnetStatus,
    IngressStatus, MAX_ROWS, NatWorkerStatus, PoolStatus, PortUse, SharingStatus, SnapshotStatus,
};
use trieste_control::conditions::Conditions;
use trieste_control::globalnet::{EgressKind, EgressRule, GlobalnetState, IngressPair};
use trieste_nat::{Refusal, Share, Stats};
use trieste_pipeline::Fleet;

use super::sessions::SnapshotWriter;
use crate::tables::Translation;
use crate::worker::{PublishedSessions, WorkerHandle};

/// Ports, or ICMP identifiers, of an address.
const PORTS: u64 = 65_536;
/// Conditions that belong to Globalnet, besides those of the state.
const CONDITIONS: [&str; 6] = [
    "GlobalIp",
    "GlobalnetAway",
    "GlobalnetRule",
    "GlobalnetTimers",
    "GlobalnetWriteRefused",
    "SessionsNotKept",
];

/// Globalnet's state: allocations, rules, sessions, controllers and the session snapshot.
#[derive(Debug)]
pub struct GlobalnetView {
    is_enabled: bool,
    workers: Vec<WorkerHandle>,
    conditions: Conditions,
    membership: Option<Arc<Fleet>>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    state: Arc<GlobalnetState>,
    translation: Option<Arc<Translation>>,
    controllers: ControllersStatus,
    writer: Option<SnapshotWriter>,
    restored: SnapshotStatus,
}

impl GlobalnetView {
    /// Returns a view without a state. `restored` describes the sessions that were restored from the last process.
    #[must_use]
    pub fn new(
        is_enabled: bool,
        workers: Vec<WorkerHandle>,
        conditions: Conditions,
        restored: SnapshotStatus,
    ) -> Self {
        let inner = Inner { restored, ..Inner::default() };
        Self { is_enabled, workers, conditions, membership: None, inner: Mutex::new(inner) }
    }

    /// Adds the state shared with the other gateways of the cluster.
    #[must_use]
    pub fn with_membership(mut self, membership: Arc<Fleet>) -> Self {
        self.membership = Some(membership);
        self
    }

    /// Returns `true` if this cluster has a global CIDR.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.is_enabled
    }

    /// Sets the newest state and the rules compiled from it.
    pub fn set(&self, state: Arc<GlobalnetState>, translation: Option<Arc<Translation>>) {
        let mut inner = self.lock();
        inner.state = state;
        inner.translation = translation;
    }

    /// Returns the newest state.
    #[must_use]
    pub fn state(&self) -> Arc<GlobalnetState> {
        Arc::clone(&self.lock().state)
    }

    /// Sets the controllers' status.
    pub fn set_controllers(&self, controllers: ControllersStatus) {
        self.lock().controllers = controllers;
    }

    /// Sets the writer of sessions.
    pub fn set_writer(&self, writer: Option<SnapshotWriter>) {
        // Dropping the last one takes a round: not under the lock.
        let before = std::mem::replace(&mut self.lock().writer, writer);
        drop(before);
    }

    /// Returns `true` if there is a writer of sessions.
    #[must_use]
    pub fn has_writer(&self) -> bool {
        self.lock().writer.is_some()
    }

    /// Returns the status of the session snapshot on disk.
    #[must_use]
    pub fn snapshot(&self) -> SnapshotStatus {
        let inner = self.lock();
        inner.writer.as_ref().map_or_else(|| inner.restored.clone(), SnapshotWriter::status)
    }

    /// Returns the workers.
    #[must_use]
    pub fn workers(&self) -> &[WorkerHandle] {
        &self.workers
    }

    /// Returns the status document.
    #[must_use]
    pub fn status(&self) -> GlobalnetStatus {
        let sessions: Vec<(u32, PublishedSessions)> = self
            .workers
            .iter()
            .map(|worker| (worker.id.0.into(), worker.published().sessions.clone()))
            .collect();
        let mut snapshot = self.snapshot();
        let (state, translation, controllers) = {
            let inner = self.lock();
            (Arc::clone(&inner.state), inner.translation.clone(), inner.controllers.clone())
        };
        snapshot.restored += sessions.iter().map(|(_, published)| published.restored).sum::<u64>();
        snapshot.not_restored += sessions.iter().map(|(_, published)| published.not_restored).sum::<u64>();
        let stats: Vec<(u32, &Stats)> =
            sessions.iter().filter_map(|(id, published)| Some((*id, published.stats.as_deref()?))).collect();
        let use_of = Use::of(&stats);
        let mut status = GlobalnetStatus {
            is_enabled: self.is_enabled,
            controllers,
            pools: state.pool.iter().map(pool).collect(),
            allocations: allocations(&state),
            egress: state.egress.iter().map(|rule| egress(rule, &use_of)).collect(),
            ingress: ingress(&state, &use_of),
            left_out: 0,
            refused_rules: translation.map(|translation| translation.refused.clone()).unwrap_or_default(),
            workers: stats.iter().map(|(id, stats)| worker(*id, stats)).collect(),
            ports: use_of.ports(),
            failures: failures(&stats),
            sharing: self.membership.as_deref().and_then(|membership| sharing(membership, &sessions)),
            snapshot,
            conditions: self.conditions(&state),
        };
        status.left_out = cut(&mut status.allocations) + cut(&mut status.egress) + cut(&mut status.ingress);
        status.left_out += cut(&mut status.ports);
        status
    }

    fn conditions(&self, state: &GlobalnetState) -> Vec<Condition> {
        let is_ours = |condition: &Condition| {
            CONDITIONS.contains(&condition.name.as_str())
                || state.problems.iter().any(|problem| problem.name == condition.name)
        };
        self.conditions.list().into_iter().filter(is_ours).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Leaves out what is too much; gives how many.
fn cut<T>(rows: &mut Vec<T>) -> usize {
    let beyond = rows.len().saturating_sub(MAX_ROWS);
    rows.truncate(MAX_ROWS);
    beyond
}

/// Use of global addresses by all workers.
#[derive(Default)]
struct Use(BTreeMap<Ipv4Addr, Of>);

/// Use of one global address.
#[derive(Default)]
struct Of {
    sessions: u64,
    ports: [u64; 3],
}

impl Use {
    fn of(stats: &[(u32, &Stats)]) -> Self {
        let mut all = BTreeMap::<Ipv4Addr, Of>::new();
        for address in stats.iter().flat_map(|(_, stats)| &stats.addresses) {
            let sum = all.entry(address.address).or_default();
            sum.sessions += u64::from(address.sessions);
            let ports = [address.tcp_ports, address.udp_ports, address.icmp_ids];
            sum.ports.iter_mut().zip(ports).for_each(|(sum, ports)| *sum += u64::from(ports));
        }
        Self(all)
    }

    fn sessions(&self, addresses: &[Ipv4Addr]) -> u64 {
        addresses.iter().filter_map(|address| self.0.get(address)).map(|of| of.sessions).sum()
    }

    fn ports(&self) -> Vec<PortUse> {
        let of_address = |(address, of): (&Ipv4Addr, &Of)| {
            let address = *address;
            ["tcp", "udp", "icmp"]
                .into_iter()
                .zip(of.ports)
                .filter(|(_, used)| *used > 0)
                .map(move |(protocol, used)| PortUse {
                    address,
                    protocol: protocol.to_owned(),
                    used,
                    of: PORTS,
                })
                .collect::<Vec<_>>()
        };
        self.0.iter().flat_map(of_address).collect()
    }
}

fn pool(pool: &trieste_control::globalnet::PoolFill) -> PoolStatus {
    PoolStatus {
        cidr: pool.cidr.to_string(),
        size: pool.size.into(),
        allocated: pool.allocated.into(),
        available: pool.available().into(),
        cluster_egress: pool.cluster_egress.into(),
        egress: pool.egress.into(),
        ingress: pool.ingress.into(),
        gateways: pool.gateways.into(),
    }
}

/// Returns the addresses of every object. A headless target's egress has those of its ingress.
fn allocations(state: &GlobalnetState) -> Vec<AllocationStatus> {
    let of_rule = |rule: &EgressRule| {
        let kind = match rule.kind {
            EgressKind::Pods | EgressKind::Namespace => "GlobalEgressIP",
            EgressKind::Cluster => "ClusterGlobalEgressIP",
            EgressKind::HeadlessPod | EgressKind::HeadlessEndpoints => return None,
        };
        Some(allocation(kind, &rule.name, rule.addresses.clone()))
    };
    let of_pair = |pair: &IngressPair| allocation("GlobalIngressIP", &pair.name, vec![pair.global]);
    let of_gateway = |(name, address): &(String, Ipv4Addr)| allocation("Gateway", name, vec![*address]);
    let mut rows: Vec<AllocationStatus> = state.egress.iter().filter_map(of_rule).collect();
    rows.extend(state.ingress.iter().map(of_pair));
    rows.extend(state.gateways.iter().map(of_gateway));
    rows.sort_by(|a, b| (&a.kind, &a.namespace, &a.name).cmp(&(&b.kind, &b.namespace, &b.name)));
    rows
}

fn allocation(kind: &str, name: &str, addresses: Vec<Ipv4Addr>) -> AllocationStatus {
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    AllocationStatus {
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        addresses,
    }
}

fn egress(rule: &EgressRule, use_of: &Use) -> EgressStatus {
    EgressStatus {
        class: rule.kind.to_string(),
        name: rule.name.clone(),
        addresses: rule.addresses.clone(),
        members: rule.members.iter().map(member).collect(),
        sessions: use_of.sessions(&rule.addresses),
    }
}

/// Formats a network; a single address without its prefix length.
fn member(net: &ipnet::Ipv4Net) -> String {
    if net.prefix_len() == 32 { net.addr().to_string() } else { net.to_string() }
}

fn ingress(state: &GlobalnetState, use_of: &Use) -> Vec<IngressStatus> {
    use trieste_control::globalnet::IngressKind::{HeadlessEndpoints, HeadlessPod, Service};
    let of_pair = |pair: &IngressPair| IngressStatus {
        class: pair.kind.to_string(),
        name: pair.name.clone(),
        global: pair.global,
        inside: pair.inside,
        sessions: match pair.kind {
            Service => None,
            HeadlessPod | HeadlessEndpoints => Some(use_of.sessions(&[pair.global])),
        },
    };
    state.ingress.iter().map(of_pair).collect()
}

fn worker(worker: u32, stats: &Stats) -> NatWorkerStatus {
    NatWorkerStatus {
        worker,
        sessions: stats.sessions.into(),
        max_sessions: stats.session_limit.into(),
        mappings: stats.mappings.into(),
        shared_ports: stats.shared,
        begun: stats.begun,
        ended: stats.ended,
    }
}

/// Returns what all workers share with other gateways; `None` without any.
fn sharing(membership: &Fleet, workers: &[(u32, PublishedSessions)]) -> Option<SharingStatus> {
    // Those at whose ports mappings are made now: what is not confirmed for long is no longer used.
    let share = membership.share(Instant::now());
    let mut status = SharingStatus {
        is_ready: membership.is_ready(),
        is_draining: membership.is_draining(),
        slots: (0..trieste_nat::SLOTS).filter(|slot| share.overlaps(Share::of_slot(*slot))).collect(),
        ..SharingStatus::default()
    };
    for sibling in membership.siblings().filter(|sibling| sibling.is_up) {
        status.siblings_up += 1;
        status.siblings_ready += u32::from(sibling.is_ready);
    }
    let mut all = workers.iter().filter_map(|(_, published)| published.sharing).peekable();
    all.peek()?;
    for stats in all {
        // Every worker sees the same owners.
        status.buckets = stats.buckets;
        status.adopted = status.adopted.max(stats.adopted);
        status.told += stats.told;
        status.taken += stats.taken;
        status.refused += stats.refused;
        status.repeated += stats.repeated;
        status.lost += stats.lost;
        status.backlog += stats.backlog;
        status.quarantined += stats.quarantined;
    }
    Some(status)
}

/// Returns the packets refused by all workers, by reason; reasons without any are left out.
fn failures(stats: &[(u32, &Stats)]) -> Vec<FailureCount> {
    let count = |refusal: &Refusal| FailureCount {
        reason: refusal.as_str().to_owned(),
        packets: stats.iter().map(|(_, stats)| stats.refused(*refusal)).sum(),
    };
    Refusal::ALL.iter().map(count).filter(|failure| failure.packets > 0).collect()
}

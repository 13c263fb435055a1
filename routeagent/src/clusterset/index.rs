//! Where clusterset IPs lead, from imports, slices and gateways. Pure; an event costs what it concerns: the services that it
//! is about, or those that are exported by a cluster that came or went.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use ipnet::IpNet;
use trieste_control::api::{Kind, Object, placed};
use trieste_control::services::{Frontend, Protocol, ServiceIndex};
use trieste_control::sets;
use trieste_control::store::StoreEvent;
use trieste_discovery_objects::index::{Index, Source};
use trieste_discovery_objects::reach::Reach;
use trieste_discovery_objects::read::{SERVICE_NAME, Unusable};
use trieste_dns::{
    Change, HealthConfig, Import, Label, Lead, MAX_IPS, MAX_PORTS, Port, Protocol as PortProtocol, Records,
    ServiceKind, ServiceName, Writer,
};

use super::virtual_ips::VirtualIps;
use crate::services::Pick;

/// Ours: most addresses and ports that are led. Other clusters write imports, and each pass reads the table.
pub const MAX_LEADS: usize = 10_000;

/// See the module.
#[derive(Debug)]
pub struct ClustersetIndex {
    local: Label,
    range: Vec<IpNet>,
    index: Index,
    reach: Reach,
    writer: Writer,
    records: Records,
    /// The own cluster's slices.
    own: ServiceIndex,
    services: BTreeMap<ServiceName, Virtual>,
    /// The namespace in which imports and slices stand whose own is missing.
    operator: String,
    /// What else their imports say: those in the services' own namespaces (`false`), and those whose namespace is missing.
    imported: BTreeMap<(ServiceName, bool), Imported>,
    /// The services that claim an address, the oldest import first, which has it: who may write an import into a namespace of
    /// his own takes nobody's.
    claims: BTreeMap<IpAddr, BTreeSet<(i64, ServiceName)>>,
    /// The services that a cluster exports, by the slices that say so.
    exported: BTreeMap<Label, BTreeMap<ServiceName, BTreeSet<Box<str>>>>,
    /// Those of them with an address that the own cluster exports.
    exported_here: BTreeSet<ServiceName>,
    ips: VirtualIps,
    /// How often a pod is a target.
    pods: BTreeMap<IpAddr, usize>,
    /// Services that are not led, or not by all of their ports, because there are too many.
    left_out: BTreeSet<ServiceName>,
}

/// What is read of an import beside the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Imported {
    /// Whether a client stays with a back end.
    keeps_clients: bool,
    /// When it was made, in Unix seconds.
    created: i64,
}

/// A service with a clusterset IP.
#[derive(Debug, Clone, Default)]
struct Virtual {
    /// When its import was made.
    created: i64,
    /// Its addresses in the range.
    ips: Vec<IpAddr>,
    /// Its ports.
    ports: Vec<Port>,
    /// The addresses and ports that are led, and the pods among their targets.
    led: Vec<(Frontend, Vec<IpAddr>)>,
}

impl ClustersetIndex {
    /// Creates the index of a node of a cluster; nothing is led but addresses of the range. `None` without a range, or if the
    /// cluster's id is no label.
    pub fn new(cluster: &str, range: &[IpNet]) -> Option<Self> {
        let local = Label::new(cluster).ok().filter(|_| !range.is_empty())?;
        let (writer, records) = Writer::new(local.clone());
        Some(Self {
            index: Index::new(local.clone()),
            reach: Reach::new(HealthConfig::default()),
            writer,
            records,
            own: ServiceIndex::default(),
            services: BTreeMap::new(),
            operator: String::new(),
            imported: BTreeMap::new(),
            claims: BTreeMap::new(),
            exported: BTreeMap::new(),
            exported_here: BTreeSet::new(),
            ips: VirtualIps::default(),
            pods: BTreeMap::new(),
            left_out: BTreeSet::new(),
            local,
            range: range.to_vec(),
        })
    }

    /// Reads also what stands in the operator's namespace, because its own is missing.
    pub fn with_displaced_in(mut self, operator: &str) -> Self {
        self.index = self.index.with_displaced_in(operator);
        operator.clone_into(&mut self.operator);
        self
    }

    /// Returns whether the imports have been read once, or cannot be.
    pub fn has_imports(&self) -> bool {
        self.index.is_listed(&Source::Imports)
    }

    /// Returns whether any import has an address of the range.
    pub fn has_any(&self) -> bool {
        !self.services.is_empty()
    }

    /// Returns whether the own cluster exports a service that has one: then its pods have to be known.
    pub fn needs_pods(&self) -> bool {
        !self.exported_here.is_empty()
    }

    /// Returns whether all was read that is needed.
    pub fn is_complete(&self) -> bool {
        self.index.is_listed(&Source::Imports)
            && (!self.has_any()
                || self.index.is_listed(&Source::Exported)
                    && self.reach.is_listed()
                    && (!self.needs_pods() || self.own.has_slices()))
    }

    /// Returns the number of services that are left out, as a whole or in part, because there are too many.
    pub fn left_out(&self) -> usize {
        self.left_out.len()
    }

    /// Returns where clusterset IPs lead.
    pub fn ips(&self) -> &VirtualIps {
        &self.ips
    }

    /// Handles an event of the imports. Returns objects that cannot be used, and why.
    pub fn handle_imports(&mut self, event: StoreEvent) -> Vec<(String, Unusable)> {
        let mut touched = self.note_imported(&event);
        let (changes, unusable) = self.index.handle(&Source::Imports, event);
        self.apply(changes, &mut touched);
        self.lead(touched);
        unusable
    }

    /// Handles an event of the slices of exported services.
    pub fn handle_exported(&mut self, event: StoreEvent) -> Vec<(String, Unusable)> {
        let mut touched = BTreeSet::new();
        let (changes, unusable) = self.index.handle(&Source::Exported, event);
        self.apply(changes, &mut touched);
        self.lead(touched);
        unusable
    }

    /// Handles an event of all slices of the own cluster.
    pub fn handle_slices(&mut self, event: &StoreEvent) {
        let mut touched = BTreeSet::new();
        match event {
            StoreEvent::Listed(_) => touched.extend(self.services.keys().cloned()),
            StoreEvent::Applied(object) | StoreEvent::Deleted(object) => {
                let (namespace, name) = (&object.metadata.namespace, &object.metadata.name);
                let before = self.own.service_of(namespace, name);
                touched.extend(before.and_then(|(namespace, service)| service_name(namespace, service)));
                let now = object.metadata.labels.get(SERVICE_NAME);
                touched.extend(now.and_then(|service| service_name(namespace, service)));
            }
            StoreEvent::Unavailable(_) | _ => {}
        }
        if self.own.take(Kind::EndpointSlice, event) {
            self.lead(touched);
        }
    }

    /// Clears the slices of the own cluster, which are not needed any more.
    pub fn clear_slices(&mut self) {
        self.own = ServiceIndex::default();
    }

    /// Handles an event of the gateways; `None` says that there are none to be read.
    pub fn handle_gateways(&mut self, event: Option<StoreEvent>, now: Instant) {
        let changes = match event {
            Some(event) => self.reach.handle(event, now),
            None => self.reach.handle_absent(now),
        };
        let mut touched = BTreeSet::new();
        self.apply(changes, &mut touched);
        self.lead(touched);
    }

    /// Returns whether the gateways have been read once, or cannot be.
    pub fn has_gateways(&self) -> bool {
        self.reach.is_listed()
    }

    /// Handles that time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        let changes = self.reach.handle_timeout(now);
        let mut touched = BTreeSet::new();
        self.apply(changes, &mut touched);
        self.lead(touched);
    }

    /// Returns when [`ClustersetIndex::handle_timeout`] wants to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.reach.poll_timeout()
    }

    /// Notes what imports say beside the records; returns the services of which that has changed.
    fn note_imported(&mut self, event: &StoreEvent) -> BTreeSet<ServiceName> {
        let operator = self.operator.as_str();
        let key = |object: &Object| {
            let displaced = placed(object, operator);
            let metadata = &displaced.as_ref().unwrap_or(object).metadata;
            Some((service_name(&metadata.namespace, &metadata.name)?, displaced.is_some()))
        };
        let (object, now) = match event {
            StoreEvent::Listed(objects) => {
                let listed = objects.iter().filter_map(|object| Some((key(object)?, Imported::of(object))));
                let before = std::mem::replace(&mut self.imported, listed.collect());
                let has_changed = |key: &&(ServiceName, bool)| before.get(*key) != self.imported.get(*key);
                let changed = before.keys().chain(self.imported.keys()).filter(has_changed);
                return changed.map(|(name, _)| name.clone()).collect();
            }
            StoreEvent::Applied(object) => (object, Some(Imported::of(object))),
            StoreEvent::Deleted(object) => (object, None),
            StoreEvent::Unavailable(_) | _ => return BTreeSet::new(),
        };
        let Some(key) = key(object) else { return BTreeSet::new() };
        let before = match now {
            Some(now) => self.imported.insert(key.clone(), now),
            None => self.imported.remove(&key),
        };
        if before == now { BTreeSet::new() } else { [key.0].into() }
    }

    /// Returns what a service's import says beside the records: the one in its own namespace, if there is one.
    fn imported(&self, name: &ServiceName) -> Option<Imported> {
        [false, true]
            .into_iter()
            .find_map(|is_displaced| self.imported.get(&(name.clone(), is_displaced)).copied())
    }

    /// Applies changes to the records, and notes the services that they concern.
    fn apply(&mut self, changes: Vec<Change>, touched: &mut BTreeSet<ServiceName>) {
        for change in changes {
            let change = match change {
                Change::Import(name, import) => {
                    touched.insert(name.clone());
                    self.claim(&name, Some(&import), touched);
                    // Clusters are chosen as for a service without them.
                    Change::Import(name, Import { ips: Vec::new(), ..import })
                }
                Change::ImportRemoved(name) => {
                    touched.insert(name.clone());
                    self.claim(&name, None, touched);
                    Change::ImportRemoved(name)
                }
                Change::Slice(name, cluster, slice, content) => {
                    touched.insert(name.clone());
                    let exported = self.exported.entry(cluster.clone()).or_default();
                    exported.entry(name.clone()).or_default().insert(slice.clone());
                    Change::Slice(name, cluster, slice, content)
                }
                Change::SliceRemoved(name, cluster, slice) => {
                    touched.insert(name.clone());
                    self.remove_slice(&name, &cluster, &slice);
                    Change::SliceRemoved(name, cluster, slice)
                }
                Change::Cluster(cluster, state) => {
                    let exported = self.exported.get(&cluster).into_iter().flat_map(BTreeMap::keys);
                    touched.extend(exported.cloned());
                    Change::Cluster(cluster, state)
                }
                Change::UnknownClusters { are_up } => {
                    touched.extend(self.services.keys().cloned());
                    Change::UnknownClusters { are_up }
                }
                Change::Synced => Change::Synced,
            };
            if let Err(error) = self.writer.apply(change) {
                tracing::warn!(%error, "change of clusterset IPs exceeds a bound");
            }
        }
    }

    fn remove_slice(&mut self, name: &ServiceName, cluster: &Label, slice: &str) {
        let Some(exported) = self.exported.get_mut(cluster) else { return };
        sets::remove(exported, name, &slice.into());
        if exported.is_empty() {
            self.exported.remove(cluster);
        }
    }

    /// Takes in the addresses that an import has; touches those who claim or have claimed the same.
    fn claim(&mut self, name: &ServiceName, import: Option<&Import>, touched: &mut BTreeSet<ServiceName>) {
        let is_virtual = |import: &&Import| import.kind == ServiceKind::ClusterSetIp;
        let ips = import.filter(is_virtual).into_iter().flat_map(|import| import.ips.iter().copied());
        let ips = ips.take(MAX_IPS).filter(|ip| self.range.iter().any(|range| range.contains(ip)));
        let ips: Vec<IpAddr> = ips.collect();
        let old = self.services.get(name);
        let (old, since) = old.map(|service| (service.ips.clone(), service.created)).unwrap_or_default();
        for ip in &old {
            sets::remove(&mut self.claims, ip, &(since, name.clone()));
        }
        let created = self.imported(name).map_or(i64::MAX, |imported| imported.created);
        for ip in &ips {
            self.claims.entry(*ip).or_default().insert((created, name.clone()));
        }
        for ip in old.iter().chain(&ips) {
            touched.extend(self.claims.get(ip).into_iter().flatten().map(|(_, name)| name.clone()));
        }
        if ips.is_empty() {
            self.left_out.remove(name);
            if let Some(service) = self.services.remove(name) {
                self.unlead(service.led);
            }
            return;
        }
        let service = self.services.entry(name.clone()).or_default();
        (service.ips, service.created) = (ips, created);
        let ports = import.into_iter().flat_map(|import| import.ports.iter().take(MAX_PORTS));
        service.ports = ports.cloned().collect();
    }

    /// Decides anew where services lead.
    fn lead(&mut self, mut touched: BTreeSet<ServiceName>) {
        // One that gives up an address comes before one that takes it.
        for name in &touched {
            if let Some(service) = self.services.get_mut(name) {
                let led = std::mem::take(&mut service.led);
                self.unlead(led);
            }
            self.note_exported_here(name);
        }
        if self.ips.leads.len() < MAX_LEADS {
            touched.append(&mut self.left_out);
        }
        for name in touched {
            let led = self.leads(&name);
            let Some(service) = self.services.get_mut(&name) else { continue };
            self.left_out.remove(&name);
            for (frontend, pick, pods) in led {
                if self.ips.leads.len() >= MAX_LEADS {
                    self.left_out.insert(name.clone());
                    break;
                }
                if self.ips.leads.contains_key(&frontend) {
                    continue;
                }
                for pod in &pods {
                    *self.pods.entry(*pod).or_default() += 1;
                    self.ips.pods.insert(*pod);
                }
                self.ips.leads.insert(frontend, Arc::new(pick));
                service.led.push((frontend, pods));
            }
        }
    }

    fn note_exported_here(&mut self, name: &ServiceName) {
        let exported = self.exported.get(&self.local);
        if self.services.contains_key(name) && exported.is_some_and(|exported| exported.contains_key(name)) {
            self.exported_here.insert(name.clone());
        } else {
            self.exported_here.remove(name);
        }
    }

    fn unlead(&mut self, led: Vec<(Frontend, Vec<IpAddr>)>) {
        for (frontend, pods) in led {
            self.ips.leads.remove(&frontend);
            for pod in pods {
                if let Some(count) = self.pods.get_mut(&pod) {
                    *count -= 1;
                    if *count == 0 {
                        self.pods.remove(&pod);
                        self.ips.pods.remove(&pod);
                    }
                }
            }
        }
    }

    /// Returns where a service's addresses and ports lead, and the pods among the targets.
    fn leads(&self, name: &ServiceName) -> Vec<(Frontend, Pick, Vec<IpAddr>)> {
        let Some(service) = self.services.get(name) else { return Vec::new() };
        let holder = |ip: &IpAddr| self.claims.get(ip)?.first().map(|(_, name)| name);
        let is_holder = |ip: &&IpAddr| holder(ip) == Some(name);
        let mut led = Vec::new();
        for address in service.ips.iter().filter(is_holder) {
            for port in &service.ports {
                let frontend =
                    Frontend { address: *address, protocol: protocol(port.protocol), port: port.number };
                let leads = self.records.leads(name, port, address.is_ipv4());
                let pods = self.pods_of(name, port, address.is_ipv4(), &leads);
                let of_others = leads.iter().filter(|lead| !lead.is_local);
                // Each exports it by one.
                let of_others = of_others.filter_map(|lead| {
                    lead.addresses.first().map(|address| ((*address, lead.port), lead.weight))
                });
                let targets: Vec<_> = of_others.chain(pods.iter().map(|pod| (*pod, 1))).collect();
                let by_port = self.imported(name).is_none_or(|imported| !imported.keeps_clients);
                let Some(pick) = Pick::weighted(frontend.protocol, by_port, &targets) else { continue };
                led.push((frontend, pick, pods.into_iter().map(|(pod, _)| pod).collect()));
            }
        }
        led
    }

    /// Returns the pods that serve a port, where the own cluster is led to.
    fn pods_of(&self, name: &ServiceName, port: &Port, is_ipv4: bool, leads: &[Lead]) -> Vec<(IpAddr, u16)> {
        if leads.iter().all(|lead| !lead.is_local) {
            return Vec::new();
        }
        let called = port.name.as_ref().map(ToString::to_string).unwrap_or_default();
        let port = (called.as_str(), protocol(port.protocol));
        let backends = self.own.backends_of((&name.namespace(), &name.service()), is_ipv4, port);
        backends.into_iter().map(|backend| (backend.address, backend.port)).collect()
    }
}

fn protocol(protocol: PortProtocol) -> Protocol {
    match protocol {
        PortProtocol::Tcp => Protocol::Tcp,
        PortProtocol::Udp => Protocol::Udp,
        PortProtocol::Sctp => Protocol::Sctp,
    }
}

fn service_name(namespace: &str, service: &str) -> Option<ServiceName> {
    ServiceName::parse(namespace, service).ok()
}

impl Imported {
    fn of(import: &Object) -> Self {
        let affinity = import.body.get("spec").and_then(|spec| spec.get("sessionAffinity"));
        let keeps_clients = affinity.and_then(serde_json::Value::as_str) == Some("ClientIP");
        let created = import.metadata.creation_timestamp.map_or(i64::MAX, |time| time.as_second());
        Self { keeps_clients, created }
    }
}

#[cfg(test)]
mod tests;

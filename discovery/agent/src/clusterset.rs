//! Addresses that stand for a service in all clusters: which import on the broker has which, and which one this cluster gives next.
//!
//! The imports are the record. An address is given to a service by the first plan that needs one, and is that service's from then on:
//! promised until the broker has it, then by the import. Whatever is on the broker counts as taken, also what makes no sense
//! otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::Ipv4Net;
use trieste_control::api::{Object, annotation};
use trieste_control::globalnet::Pool;
use trieste_control::sets;
use trieste_control::sync::Networks;

use crate::name::ServiceName;
use crate::owned::clusterset_ips;

/// From the definition of imports: they have one address; a second is that of another family.
const MAX_IPS: usize = 2;
/// Ours: so many addresses in a row are looked at that are free and cannot be used.
const MAX_UNUSABLE: usize = 1024;

/// Why this cluster has no address for a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Lacking {
    /// It has no block.
    Block,
    /// All addresses of its block are in use: so many.
    Free(u32),
    /// What is free of its block is in this cluster's networks.
    InNetworks(Ipv4Addr, String),
    /// What is free of its block is not in the set's range.
    OutOfRange(Ipv4Addr),
}

impl fmt::Display for Lacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block => f.write_str(
                "this cluster has no block of clusterset IPs; it gets one by join --enable-clusterset-ip, or by the \
                 setting SUBMARINER_CLUSTERSET_IP_CIDR of its agent",
            ),
            Self::Free(size) => write!(
                f,
                "all {size} clusterset IPs of this cluster are in use; a larger block is given by join \
                 --clusterset-ip-cidr"
            ),
            Self::InNetworks(ip, cluster) => write!(
                f,
                "{ip} of this cluster's block is in the networks of cluster {cluster}; another block is given by join \
                 --clusterset-ip-cidr"
            ),
            Self::OutOfRange(ip) => write!(
                f,
                "{ip} of this cluster's block is not in the range of the set; another block is given by join \
                 --clusterset-ip-cidr"
            ),
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct ClustersetIps {
    /// This cluster's blocks.
    blocks: Vec<Pool>,
    /// Where all blocks are; nothing is known if there is none.
    ranges: Vec<Ipv4Net>,
    /// The addresses of each import on the broker, by its name, and since when the service is exported.
    imports: BTreeMap<String, (i64, Vec<IpAddr>)>,
    /// The imports that have an address, the one first whose it is.
    holders: BTreeMap<IpAddr, BTreeSet<(i64, String)>>,
    promises: BTreeMap<ServiceName, Promise>,
    promised: BTreeSet<Ipv4Addr>,
    /// What this cluster could not give, and why.
    lacking: BTreeMap<ServiceName, Lacking>,
}

/// An address that the broker does not have yet.
#[derive(Debug)]
struct Promise {
    ip: Ipv4Addr,
    /// Whether it may have it, since the reply was lost.
    is_unconfirmed: bool,
}

impl ClustersetIps {
    /// Returns what is known at the start. A block that has no address for a service is none.
    pub(crate) fn new(blocks: &[Ipv4Net], ranges: &[Ipv4Net]) -> Self {
        Self {
            blocks: blocks.iter().filter_map(|block| Pool::new(&block.to_string()).ok()).collect(),
            ranges: ranges.to_vec(),
            imports: BTreeMap::new(),
            holders: BTreeMap::new(),
            promises: BTreeMap::new(),
            promised: BTreeSet::new(),
            lacking: BTreeMap::new(),
        }
    }

    /// Returns the imports that have addresses.
    pub(crate) fn imports(&self) -> impl Iterator<Item = &String> {
        self.imports.keys()
    }

    /// Takes in an import on the broker as it is now. Returns the others for which this changes whose an address is.
    pub(crate) fn put(&mut self, import: &Object) -> BTreeSet<String> {
        let mut ips = clusterset_ips(import);
        ips.truncate(MAX_IPS);
        let entry = Some((since(import), ips)).filter(|(_, ips)| !ips.is_empty());
        self.replace(&import.metadata.name, entry)
    }

    /// Takes in that an import is not on the broker any more; likewise.
    pub(crate) fn remove(&mut self, name: &str) -> BTreeSet<String> {
        self.replace(name, None)
    }

    fn replace(&mut self, name: &str, entry: Option<(i64, Vec<IpAddr>)>) -> BTreeSet<String> {
        let (former, ips) = (self.imports.remove(name), entry.as_ref().map(|(_, ips)| ips.clone()));
        let concerned: BTreeSet<IpAddr> =
            former.iter().flat_map(|(_, ips)| ips.clone()).chain(ips.into_iter().flatten()).collect();
        let before: Vec<Option<String>> = concerned.iter().map(|ip| self.holder(*ip)).collect();
        for (since, ip) in former.iter().flat_map(|(since, ips)| ips.iter().map(move |ip| (since, ip))) {
            sets::remove(&mut self.holders, ip, &(*since, name.to_owned()));
        }
        if let Some((since, ips)) = entry {
            for ip in &ips {
                self.holders.entry(*ip).or_default().insert((since, name.to_owned()));
            }
            self.imports.insert(name.to_owned(), (since, ips));
        }
        let mut changed = BTreeSet::new();
        for (ip, before) in concerned.into_iter().zip(before) {
            let after = self.holder(ip);
            if before != after {
                changed.extend(before.into_iter().chain(after).filter(|holder| holder != name));
            }
            self.note_use(ip);
        }
        changed
    }

    /// Returns the import whose an address is.
    fn holder(&self, ip: IpAddr) -> Option<String> {
        self.holders.get(&ip)?.first().map(|(_, name)| name.clone())
    }

    /// Takes in the names of all imports that the broker has. Returns the services that may have got something else than is
    /// thought, and those that others' imports concern.
    pub(crate) fn list(
        &mut self,
        present: impl Fn(&str) -> bool,
    ) -> (BTreeSet<ServiceName>, BTreeSet<String>) {
        let gone: Vec<String> = self.imports.keys().filter(|name| !present(name)).cloned().collect();
        let changed = gone.iter().flat_map(|name| self.remove(name)).collect();
        let unconfirmed = self.promises.iter_mut().filter(|(_, promise)| promise.is_unconfirmed);
        let settled = unconfirmed.map(|(service, promise)| {
            promise.is_unconfirmed = false;
            service.clone()
        });
        (settled.collect(), changed)
    }

    /// Returns what is wrong with the addresses of an import on the broker; `None` if nothing is.
    pub(crate) fn problem(&self, import: &Object, networks: &Networks) -> Option<String> {
        let (_, ips) = self.imports.get(&import.metadata.name)?;
        ips.iter().find_map(|ip| {
            if let Some(holder) = networks.holder(*ip) {
                return Some(format!(
                    "has the clusterset IP {ip}, which is in the networks of cluster {holder}"
                ));
            }
            if let IpAddr::V4(ip) = ip
                && !self.is_in_range(*ip)
            {
                let ranges: Vec<String> = self.ranges.iter().map(ToString::to_string).collect();
                let ranges = ranges.join(", ");
                return Some(format!("has the clusterset IP {ip}, which is not in the set's range {ranges}"));
            }
            let (_, first) = self.holders.get(ip)?.first()?;
            let is_others = *first != import.metadata.name;
            is_others
                .then(|| format!("has the clusterset IP {ip}, which is that of the older import {first}"))
        })
    }

    fn is_in_range(&self, ip: Ipv4Addr) -> bool {
        self.ranges.is_empty() || self.ranges.iter().any(|range| range.contains(&ip))
    }

    /// Returns the address that a service is to get.
    pub(crate) fn promise(&self, service: &ServiceName) -> Option<Ipv4Addr> {
        self.promises.get(service).map(|promise| promise.ip)
    }

    /// Returns why there is none for it.
    pub(crate) fn lacking(&self, service: &ServiceName) -> Option<&Lacking> {
        self.lacking.get(service)
    }

    /// Promises an address to a service that needs one: that which it was promised before, one that it had, or the first that
    /// nobody has. Returns `true` if there was one before and is none now, or the other way round.
    pub(crate) fn give(
        &mut self,
        service: &ServiceName,
        former: Option<Ipv4Addr>,
        networks: &Networks,
    ) -> bool {
        if let Some(ip) = self.promise(service) {
            if self.is_usable(ip, service, networks) {
                return false;
            }
            self.withdraw(service);
        }
        match self.first_free(former, networks) {
            Ok(ip) => {
                self.promised.insert(ip);
                self.promises.insert(service.clone(), Promise { ip, is_unconfirmed: false });
                self.note_use(IpAddr::V4(ip));
                self.lacking.remove(service).is_some()
            }
            Err(why) => self.lacking.insert(service.clone(), why.clone()) != Some(why),
        }
    }

    /// Returns whether an address that was promised can still be given: another import may have it meanwhile.
    fn is_usable(&self, ip: Ipv4Addr, service: &ServiceName, networks: &Networks) -> bool {
        let holders = self.holders.get(&IpAddr::V4(ip));
        let is_free =
            holders.is_none_or(|holders| holders.iter().all(|(_, name)| *name == service.aggregate()));
        is_free && networks.holder(IpAddr::V4(ip)).is_none()
    }

    fn first_free(&self, former: Option<Ipv4Addr>, networks: &Networks) -> Result<Ipv4Addr, Lacking> {
        let size: u32 = self.blocks.iter().map(Pool::size).sum();
        let former = former.filter(|ip| self.blocks.iter().any(|block| block.is_free(*ip)));
        let free = self.blocks.iter().flat_map(Pool::free);
        let mut why = if size == 0 { Lacking::Block } else { Lacking::Free(size) };
        for ip in former.into_iter().chain(free).take(MAX_UNUSABLE) {
            why = match networks.holder(IpAddr::V4(ip)) {
                Some(holder) => Lacking::InNetworks(ip, holder.to_owned()),
                None if !self.is_in_range(ip) => Lacking::OutOfRange(ip),
                None => return Ok(ip),
            };
        }
        Err(why)
    }

    /// Returns the services that other networks of clusters may let have an address.
    pub(crate) fn blocked(&self) -> impl Iterator<Item = &ServiceName> {
        let blocked = self.lacking.iter().filter(|(_, why)| matches!(why, Lacking::InNetworks(..)));
        blocked.map(|(service, _)| service)
    }

    /// Takes in that a service needs no address, or has one. Returns `true` if it lacked one.
    pub(crate) fn settle(&mut self, service: &ServiceName) -> bool {
        if self.promises.get(service).is_some_and(|promise| !promise.is_unconfirmed) {
            self.withdraw(service);
        }
        self.lacking.remove(service).is_some()
    }

    fn withdraw(&mut self, service: &ServiceName) {
        if let Some(promise) = self.promises.remove(service) {
            self.promised.remove(&promise.ip);
            self.note_use(IpAddr::V4(promise.ip));
        }
    }

    /// Takes in whether it is known what became of a write for a service.
    pub(crate) fn note_unconfirmed(&mut self, service: &ServiceName, is_unconfirmed: bool) {
        if let Some(promise) = self.promises.get_mut(service) {
            promise.is_unconfirmed = is_unconfirmed;
        }
    }

    /// Returns services that lacked an address, as many as there are addresses again.
    pub(crate) fn take_served(&mut self) -> Vec<ServiceName> {
        if self.lacking.is_empty() {
            return Vec::new();
        }
        let available: u32 = self.blocks.iter().map(Pool::available).sum();
        let waiting = self.lacking.iter().filter(|(_, why)| matches!(why, Lacking::Free(_)));
        let available = usize::try_from(available).unwrap_or(usize::MAX);
        let served: Vec<ServiceName> = waiting.take(available).map(|(service, _)| service.clone()).collect();
        served.iter().for_each(|service| drop(self.lacking.remove(service)));
        served
    }

    /// Brings the blocks to what is known of an address: in use, or free.
    fn note_use(&mut self, ip: IpAddr) {
        let IpAddr::V4(v4) = ip else { return };
        let is_used = self.holders.contains_key(&ip) || self.promised.contains(&v4);
        for block in &mut self.blocks {
            if is_used {
                // It is another block's, or has been reserved before.
                let _ = block.reserve(&[v4]);
            } else {
                block.release(&[v4]);
            }
        }
    }
}

/// Returns since when the service of an import is exported by anybody, as the import says.
fn since(import: &Object) -> i64 {
    let annotations = import.metadata.annotations.iter();
    let times = annotations.filter(|(key, _)| key.starts_with(annotation::TIMESTAMP_PREFIX));
    times.filter_map(|(_, time)| time.parse().ok()).min().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;

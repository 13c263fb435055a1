//! Addresses that stand for a service in all clusters: which import on the broker has which, and which one this cluster gives next.
//!
//! The imports are the record. An address is given to a service by the first plan that needs one, and is that service's from then on:
//! promised until the broker has it, then by the import. Whatever is on the broker counts as taken, also what makes no sense
//! otherwise.

mod block;
mod lacking;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use trieste_control::api::{Object, annotation};
use trieste_control::sets;
use trieste_control::sync::Networks;

use crate::family::{Family, PerFamily};
use crate::name::ServiceName;
use crate::owned::clusterset_ips;
use block::Block;
pub(crate) use lacking::Lacking;

/// From the definition of imports: they have one address of each family. A further one is that of our annotation.
const MAX_IPS: usize = 3;
/// Ours: so many addresses in a row are looked at that are free and cannot be used.
const MAX_UNUSABLE: usize = 1024;

/// See the module.
#[derive(Debug)]
pub(crate) struct ClustersetIps {
    /// This cluster's blocks.
    blocks: Vec<Block>,
    /// The same as networks.
    own: Vec<IpNet>,
    /// Where all blocks are; nothing is known if there is none.
    ranges: Vec<IpNet>,
    /// The addresses of each import on the broker, by its name, and since when the service is exported.
    imports: BTreeMap<String, (i64, Vec<IpAddr>)>,
    /// The imports that have an address, the one first whose it is.
    holders: BTreeMap<IpAddr, BTreeSet<(i64, String)>>,
    promises: BTreeMap<ServiceName, PerFamily<Option<Promise>>>,
    promised: BTreeSet<IpAddr>,
    /// What this cluster could not give, and why.
    lacking: BTreeMap<(ServiceName, Family), Lacking>,
}

/// An address that the broker does not have yet.
#[derive(Debug, Clone, Copy)]
struct Promise {
    ip: IpAddr,
    /// Whether it may have it, since the reply was lost.
    is_unconfirmed: bool,
}

impl ClustersetIps {
    /// Returns what is known at the start. A block that has no address for a service is none.
    pub(crate) fn new(blocks: &[IpNet], ranges: &[IpNet]) -> Self {
        Self {
            blocks: blocks.iter().filter_map(|block| Block::new(*block)).collect(),
            own: blocks.to_vec(),
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
        let is_unconfirmed = |(_, promises): &(&ServiceName, &PerFamily<Option<Promise>>)| {
            promises.iter().any(|(_, promise)| promise.is_some_and(|promise| promise.is_unconfirmed))
        };
        let settled: BTreeSet<ServiceName> =
            self.promises.iter().filter(is_unconfirmed).map(|(service, _)| service.clone()).collect();
        settled.iter().for_each(|service| self.note_unconfirmed(service, false));
        (settled, changed)
    }

    /// Returns what is wrong with the addresses of an import on the broker; `None` if nothing is.
    pub(crate) fn problem(&self, import: &Object, networks: &Networks) -> Option<String> {
        Family::ALL.into_iter().find_map(|family| self.problem_of(import, family, networks))
    }

    /// Returns what is wrong with its address of a family.
    pub(crate) fn problem_of(&self, import: &Object, family: Family, networks: &Networks) -> Option<String> {
        let (_, ips) = self.imports.get(&import.metadata.name)?;
        ips.iter().filter(|ip| Family::of(**ip) == family).find_map(|ip| {
            if let Some(holder) = networks.holder(*ip) {
                return Some(format!(
                    "has the clusterset IP {ip}, which is in the networks of cluster {holder}"
                ));
            }
            if !self.is_in_range(*ip) {
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

    fn is_in_range(&self, ip: IpAddr) -> bool {
        // A cluster that was told of no range takes IPv4's as upstream does. Nothing of IPv6 is upstream's.
        let is_unknown = self.ranges.is_empty() && ip.is_ipv4();
        is_unknown || self.ranges.iter().chain(&self.own).any(|range| range.contains(&ip))
    }

    /// Returns the address of a family that a service is to get.
    pub(crate) fn promise(&self, service: &ServiceName, family: Family) -> Option<IpAddr> {
        self.promises.get(service)?[family].map(|promise| promise.ip)
    }

    /// Returns why there is none for it.
    pub(crate) fn lacking(&self, service: &ServiceName, family: Family) -> Option<&Lacking> {
        // Few services lack one, in most clusters none.
        let lacking = || self.lacking.get(&(service.clone(), family));
        (!self.lacking.is_empty()).then(lacking)?
    }

    /// Promises an address to a service that needs one: that which it was promised before, one that it had, or the first that
    /// nobody has. Returns `true` if there was one before and is none now, or the other way round.
    pub(crate) fn give(
        &mut self,
        service: &ServiceName,
        family: Family,
        former: Option<IpAddr>,
        networks: &Networks,
    ) -> bool {
        if let Some(ip) = self.promise(service, family) {
            if self.is_usable(ip, service, networks) {
                return false;
            }
            self.withdraw(service, family);
        }
        let key = (service.clone(), family);
        match self.first_free(family, former, networks) {
            Ok(ip) => {
                self.promised.insert(ip);
                let promises = self.promises.entry(service.clone()).or_default();
                promises[family] = Some(Promise { ip, is_unconfirmed: false });
                self.note_use(ip);
                self.lacking.remove(&key).is_some()
            }
            Err(why) => self.lacking.insert(key, why.clone()) != Some(why),
        }
    }

    /// Returns whether an address that was promised can still be given: another import may have it meanwhile.
    fn is_usable(&self, ip: IpAddr, service: &ServiceName, networks: &Networks) -> bool {
        let holders = self.holders.get(&ip);
        let is_free =
            holders.is_none_or(|holders| holders.iter().all(|(_, name)| *name == service.aggregate()));
        is_free && networks.holder(ip).is_none()
    }

    fn first_free(
        &self,
        family: Family,
        former: Option<IpAddr>,
        networks: &Networks,
    ) -> Result<IpAddr, Lacking> {
        let blocks = || self.blocks.iter().filter(|block| block.family() == family);
        let size: u64 = blocks().map(Block::size).sum();
        let former = former.filter(|ip| blocks().any(|block| block.is_free(*ip)));
        let free = blocks().flat_map(Block::free);
        let mut why = if size == 0 { Lacking::Block(family) } else { Lacking::Free(family, size) };
        for ip in former.into_iter().chain(free).take(MAX_UNUSABLE) {
            why = match networks.holder(ip) {
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
        blocked.map(|((service, _), _)| service)
    }

    /// Takes in that a service needs no address of a family, or has one. Returns `true` if it lacked one.
    pub(crate) fn settle(&mut self, service: &ServiceName, family: Family) -> bool {
        let promise = self.promises.get(service).and_then(|promises| promises[family]);
        if promise.is_some_and(|promise| !promise.is_unconfirmed) {
            self.withdraw(service, family);
        }
        !self.lacking.is_empty() && self.lacking.remove(&(service.clone(), family)).is_some()
    }

    fn withdraw(&mut self, service: &ServiceName, family: Family) {
        let Some(promises) = self.promises.get_mut(service) else { return };
        let promise = promises[family].take();
        if promises.iter().all(|(_, promise)| promise.is_none()) {
            self.promises.remove(service);
        }
        if let Some(Promise { ip, .. }) = promise {
            self.promised.remove(&ip);
            self.note_use(ip);
        }
    }

    /// Takes in whether it is known what became of a write for a service.
    pub(crate) fn note_unconfirmed(&mut self, service: &ServiceName, is_unconfirmed: bool) {
        let Some(promises) = self.promises.get_mut(service) else { return };
        for family in Family::ALL {
            if let Some(promise) = &mut promises[family] {
                promise.is_unconfirmed = is_unconfirmed;
            }
        }
    }

    /// Returns services that lacked an address, as many as there are addresses again.
    pub(crate) fn take_served(&mut self) -> Vec<ServiceName> {
        if self.lacking.is_empty() {
            return Vec::new();
        }
        let mut served: Vec<(ServiceName, Family)> = Vec::new();
        for family in Family::ALL {
            let blocks = self.blocks.iter().filter(|block| block.family() == family);
            let available = usize::try_from(blocks.map(Block::available).sum::<u64>()).unwrap_or(usize::MAX);
            let is_waiting = |key: &(ServiceName, Family), why: &Lacking| {
                key.1 == family && matches!(why, Lacking::Free(..))
            };
            let waiting = self.lacking.iter().filter(|(key, why)| is_waiting(key, why));
            served.extend(waiting.take(available).map(|(key, _)| key.clone()));
        }
        served.iter().for_each(|key| drop(self.lacking.remove(key)));
        served.into_iter().map(|(service, _)| service).collect()
    }

    /// Brings the blocks to what is known of an address: in use, or free.
    fn note_use(&mut self, ip: IpAddr) {
        let is_used = self.holders.contains_key(&ip) || self.promised.contains(&ip);
        self.blocks.iter_mut().for_each(|block| block.set_used(ip, is_used));
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

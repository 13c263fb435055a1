//! The rights to addresses: of two clusters that claim the same, the one that was there first.
//!
//! The rule is one for the whole set, so that every member refuses the same endpoints: claimants in the order of their
//! clusters' ages, ties by cluster ID, each taken in unless it overlaps one of another cluster that was taken in
//! before. We are a claimant like any other.
//!
//! A change is judged among those that it can concern: those that overlap it, those that overlap them, and so on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipnet::IpNet;
use jiff::Timestamp;

use super::name::Name;
use crate::network_map::NetworkMap;
use crate::sets;

/// Why a claimant cannot have its addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Conflict {
    /// One of its subnets.
    pub(super) claimed: IpNet,
    /// The older claim that it overlaps.
    pub(super) held: IpNet,
    /// Whose that is.
    pub(super) holder: Arc<str>,
}

/// Every claim, and who lost.
#[derive(Debug, Default)]
pub(super) struct Claims {
    claimants: BTreeMap<Name, Claimant>,
    by_origin: BTreeMap<Arc<str>, BTreeSet<Name>>,
    by_net: NetworkMap<BTreeSet<Name>>,
    ages: BTreeMap<Arc<str>, Timestamp>,
    lost: BTreeMap<Name, Conflict>,
    /// Networks around which something changed since the last evaluation.
    stale: BTreeSet<IpNet>,
    evaluated: u64,
}

#[derive(Debug, PartialEq, Eq)]
struct Claimant {
    origin: Arc<str>,
    subnets: Vec<IpNet>,
}

impl Claims {
    /// Says what `name` of cluster `origin` claims; nothing is a claim of no subnets.
    pub(super) fn claim(&mut self, name: &Name, origin: &str, subnets: &[IpNet]) {
        let is_known = self
            .claimants
            .get(name)
            .is_some_and(|known| *known.origin == *origin && known.subnets == subnets);
        if is_known || (subnets.is_empty() && !self.claimants.contains_key(name)) {
            return;
        }
        self.withdraw(name);
        if subnets.is_empty() {
            return;
        }
        let origin: Arc<str> = Arc::from(origin);
        for net in subnets {
            self.by_net.entry(*net).insert(name.clone());
            self.stale.insert(*net);
        }
        self.by_origin.entry(Arc::clone(&origin)).or_default().insert(name.clone());
        self.claimants.insert(name.clone(), Claimant { origin, subnets: subnets.to_vec() });
    }

    /// Withdraws the claim of `name`. Returns `true` if there was one.
    pub(super) fn withdraw(&mut self, name: &Name) -> bool {
        let Some(Claimant { origin, subnets }) = self.claimants.remove(name) else { return false };
        self.lost.remove(name);
        for net in subnets {
            self.stale.insert(net);
            let Some(names) = self.by_net.get_mut(&net) else { continue };
            names.remove(name);
            if names.is_empty() {
                self.by_net.remove(&net);
            }
        }
        sets::remove(&mut self.by_origin, &origin, name);
        true
    }

    /// Says since when a cluster has been there; `None` if nobody knows, which is later than everybody.
    pub(super) fn age(&mut self, origin: &str, age: Option<Timestamp>) {
        if self.ages.get(origin).copied() == age {
            return;
        }
        match age {
            Some(age) => drop(self.ages.insert(Arc::from(origin), age)),
            None => drop(self.ages.remove(origin)),
        }
        let names = self.by_origin.get(origin).into_iter().flatten();
        let nets = names.filter_map(|name| self.claimants.get(name)).flat_map(|claimant| &claimant.subnets);
        self.stale.extend(nets);
    }

    /// Returns the conflict that keeps `name` from its claim, as of the last [`Claims::evaluate`].
    pub(super) fn conflict(&self, name: &Name) -> Option<&Conflict> {
        self.lost.get(name)
    }

    /// Returns the cluster of a claim that contains this network, if there is one: that of the largest.
    pub(super) fn claimant(&self, net: IpNet) -> Option<&str> {
        let names = self.by_net.covering(net).flat_map(|(_, names)| names);
        let claimants = names.filter_map(|name| self.claimants.get(name));
        claimants.map(|claimant| &*claimant.origin).next()
    }

    /// Counts the claimants evaluated since the beginning.
    pub(super) fn evaluated(&self) -> u64 {
        self.evaluated
    }

    /// Evaluates the claims around all changes. Returns the names whose outcome is another one now.
    pub(super) fn evaluate(&mut self) -> BTreeSet<Name> {
        let mut turned = BTreeSet::new();
        if self.stale.is_empty() {
            return turned;
        }
        let concerned = self.concerned();
        self.evaluated += concerned.len() as u64;
        let mut taken = NetworkMap::<Option<Arc<str>>>::default();
        for (_, origin, name) in concerned {
            let Some(claimant) = self.claimants.get(&name) else { continue };
            let conflict = claimant.subnets.iter().find_map(|net| conflict(&taken, *net, &origin));
            if conflict.is_none() {
                claimant.subnets.iter().for_each(|net| *taken.entry(*net) = Some(Arc::clone(&origin)));
            }
            if self.lost.get(&name) != conflict.as_ref() {
                match conflict {
                    Some(conflict) => drop(self.lost.insert(name.clone(), conflict)),
                    None => drop(self.lost.remove(&name)),
                }
                turned.insert(name);
            }
        }
        turned
    }

    /// Returns all claimants that the changes can concern, oldest first.
    fn concerned(&mut self) -> BTreeSet<(Timestamp, Arc<str>, Name)> {
        let mut nets: Vec<IpNet> = std::mem::take(&mut self.stale).into_iter().collect();
        let mut walked = BTreeSet::new();
        let mut names = BTreeSet::new();
        let mut concerned = BTreeSet::new();
        while let Some(net) = nets.pop() {
            // Whatever overlaps lies within the largest that contains it; that one is walked once.
            let outermost = self.by_net.covering(net).next().map_or(net, |(outer, _)| outer);
            if !walked.insert(outermost) {
                continue;
            }
            for name in self.by_net.within(outermost).flat_map(|(_, names)| names) {
                let Some(claimant) = self.claimants.get(name).filter(|_| names.insert(name.clone())) else {
                    continue;
                };
                let age = self.ages.get(&claimant.origin).copied().unwrap_or(Timestamp::MAX);
                concerned.insert((age, Arc::clone(&claimant.origin), name.clone()));
                nets.extend(&claimant.subnets);
            }
        }
        concerned
    }
}

fn conflict(taken: &NetworkMap<Option<Arc<str>>>, claimed: IpNet, origin: &Arc<str>) -> Option<Conflict> {
    taken.overlapping(claimed).find_map(|(held, holder)| {
        let holder = holder.as_ref().filter(|holder| *holder != origin)?;
        Some(Conflict { claimed, held, holder: Arc::clone(holder) })
    })
}

//! The routes that are there, indexed by what the kernel keys them by. Pure.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use trieste_reconcile::differences;

use crate::constants::{METRIC_FAIL_CLOSED, TABLE_DELIVERY, TABLE_GATEWAY, TABLE_MAIN};
use crate::family::Family;
use crate::hostnet::Route;
use crate::observed::{ObservedRoute, RouteKind};

/// Family, table, destination and metric, in the order in which the kernel is read.
type Key = (Family, u32, IpNet, u32);

/// Routes by their keys. Several of one key are numbered in the order in which they were found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RouteIndex(BTreeMap<(Key, u32), ObservedRoute>);

impl FromIterator<ObservedRoute> for RouteIndex {
    fn from_iter<I: IntoIterator<Item = ObservedRoute>>(routes: I) -> Self {
        let mut all: Vec<(Key, ObservedRoute)> =
            routes.into_iter().map(|route| (key_of(&route), route)).collect();
        all.sort_by_key(|(key, _)| *key);
        let (mut last, mut number) = (None, 0);
        let numbered = all.into_iter().map(|(key, route)| {
            number = if last == Some(key) { number + 1 } else { 0 };
            last = Some(key);
            ((key, number), route)
        });
        Self(numbered.collect())
    }
}

impl RouteIndex {
    /// Returns all routes.
    pub(crate) fn all(&self) -> impl Iterator<Item = &ObservedRoute> {
        self.0.values()
    }

    /// Returns the routes of our tables to these destinations, in the order of all routes.
    pub(crate) fn to<'a>(&'a self, destinations: &BTreeSet<IpNet>) -> Vec<&'a ObservedRoute> {
        let mut routes: Vec<(&(Key, u32), &ObservedRoute)> = Vec::new();
        for destination in destinations {
            for table in [TABLE_DELIVERY, TABLE_GATEWAY, TABLE_MAIN] {
                let key = |metric| (Family::of_net(destination), table, *destination, metric);
                routes.extend(self.0.range((key(0), 0)..=(key(u32::MAX), u32::MAX)));
            }
        }
        routes.sort_by_key(|(key, _)| **key);
        routes.into_iter().map(|(_, route)| route).collect()
    }

    /// Returns the routes that a wanted one could replace.
    pub(crate) fn of(&self, route: &Route) -> impl Iterator<Item = &ObservedRoute> {
        let key = (route.family(), route.table, route.destination, route.metric);
        let routes = self.0.range((key, 0)..=(key, u32::MAX)).map(|(_, there)| there);
        routes.filter(|there| there.tos == 0)
    }

    /// Returns `true` if the kernel refuses a network because this or an earlier process asked it to.
    pub(crate) fn refuse(&self, network: &IpNet) -> bool {
        self.to(&[*network].into()).into_iter().any(is_refusal)
    }

    /// Returns the networks that the kernel refuses because this or an earlier process asked it to.
    pub(crate) fn refused(&self) -> BTreeSet<IpNet> {
        self.all().filter(|there| is_refusal(there)).map(|there| there.destination).collect()
    }

    /// Returns the destinations that have other routes in the two.
    pub(crate) fn difference(&self, other: &Self) -> BTreeSet<IpNet> {
        type Entry<'a> = (&'a (Key, u32), &'a ObservedRoute);
        let order = |this: &Entry<'_>, that: &Entry<'_>| (this != that).then(|| this.0.cmp(that.0));
        let (these, those) = differences(self.0.iter(), other.0.iter(), order);
        these.into_iter().chain(those).map(|(_, route)| route.destination).collect()
    }

    /// Adds a route after all others of its key.
    pub(crate) fn add(&mut self, route: ObservedRoute) {
        let key = key_of(&route);
        let last = self.0.range((key, 0)..=(key, u32::MAX)).next_back();
        let number = last.map_or(0, |((_, number), _)| number.saturating_add(1));
        self.0.insert((key, number), route);
    }

    /// Replaces the first route of the same key; returns `false` if there is none.
    pub(crate) fn replace(&mut self, route: &Route) -> bool {
        let key = (route.family(), route.table, route.destination, route.metric);
        let mut routes = self.0.range_mut((key, 0)..=(key, u32::MAX)).map(|(_, there)| there);
        let Some(there) = routes.find(|there| there.tos == 0) else { return false };
        *there = ObservedRoute::from_route(route);
        true
    }

    /// Removes a route; returns `false` if it is not there.
    pub(crate) fn remove(&mut self, route: &ObservedRoute) -> bool {
        let key = key_of(route);
        let mut routes = self.0.range((key, 0)..=(key, u32::MAX));
        let Some(at) = routes.find(|(_, there)| *there == route).map(|(at, _)| *at) else { return false };
        self.0.remove(&at).is_some()
    }

    /// Returns those routes that are still there.
    pub(crate) fn without(&self, is_gone: impl Fn(&ObservedRoute) -> bool) -> Self {
        self.all().filter(|route| !is_gone(route)).cloned().collect()
    }
}

fn key_of(route: &ObservedRoute) -> Key {
    (Family::of_net(&route.destination), route.table, route.destination, route.metric)
}

fn is_refusal(there: &ObservedRoute) -> bool {
    there.is_ours() && there.kind == RouteKind::Unreachable && there.metric == METRIC_FAIL_CLOSED
}

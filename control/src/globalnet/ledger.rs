//! Who holds which address, by what the objects say: the pool as it is after a restart, every time anew.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde_json::Value;

use super::facts::{Ingress, Service};
use super::objects::Objects;
use super::pool::{Pool, PoolError};
use super::state::PoolFill;
use crate::api::{ClusterGlobalEgressIp, Kind, Object, ObjectKey, annotation};

/// The pool, with all that is given out reserved; and what could not be, since two have it or it is not of this CIDR.
#[derive(Debug)]
pub(super) struct Ledger {
    pool: Result<Pool, PoolError>,
    /// Why nothing more is given out.
    closed: Option<PoolError>,
    held: BTreeMap<ObjectKey, Vec<Ipv4Addr>>,
    broken: BTreeMap<ObjectKey, PoolError>,
}

impl Ledger {
    /// Reserves in the order in which upstream's controllers start, so that both settle a quarrel alike: who comes
    /// later is given another address.
    pub(super) fn reserve(pool: Result<Pool, PoolError>, objects: &Objects, namespace: &str) -> Self {
        let mut ledger = Self { pool, closed: None, held: BTreeMap::new(), broken: BTreeMap::new() };
        let egress = objects.of(Kind::GlobalEgressIp);
        for object in objects
            .get(Kind::ClusterGlobalEgressIp, "", ClusterGlobalEgressIp::NAME)
            .into_iter()
            .chain(egress)
        {
            let allocated = object.body.get("status").and_then(|status| status.get("allocatedIPs"));
            let texts = allocated.and_then(Value::as_array).into_iter().flatten();
            let texts: Vec<&str> = texts.map(|text| text.as_str().unwrap_or_default()).collect();
            ledger.enter(object, &texts);
        }
        for ingress in objects.of(Kind::GlobalIngressIp).filter_map(Ingress::new) {
            let text = ingress.allocated();
            ledger.enter(ingress.object, if text.is_empty() { &[] } else { std::slice::from_ref(&text) });
        }
        for gateway in objects.inside(Kind::Gateway, namespace) {
            if let Some(text) = gateway.metadata.annotations.get(annotation::GLOBAL_IP) {
                ledger.enter(gateway, &[text.as_str()]);
            }
        }
        // As long as a service answers under an address, nobody else is to have it.
        for service in
            objects.of(Kind::Service).map(Service::new).filter(|service| service.stands_for().is_some())
        {
            for address in service.external_ips().filter_map(|text| text.parse().ok()) {
                ledger.hold(address);
            }
        }
        ledger
    }

    /// Gives nothing out from now on, because of this.
    pub(super) fn close(&mut self, reason: String) {
        self.closed = Some(PoolError::Closed(reason));
    }

    /// What an object holds rightly.
    pub(super) fn held(&self, key: &ObjectKey) -> &[Ipv4Addr] {
        self.held.get(key).map_or(&[], Vec::as_slice)
    }

    /// Why an object may not hold what its status says.
    pub(super) fn broken(&self, key: &ObjectKey) -> Option<&PoolError> {
        self.broken.get(key)
    }

    /// Whether there are addresses at all. Where there are none, what objects say of them is left alone.
    pub(super) fn is_usable(&self) -> bool {
        self.pool.is_ok()
    }

    /// Gives an object so many other addresses instead of those it holds. Those are not given to others before its
    /// status says so: a write that fails must not make two holders of one address.
    pub(super) fn exchange(&mut self, key: &ObjectKey, number: u32) -> Result<Vec<Ipv4Addr>, PoolError> {
        let old = self.held(key).to_vec();
        if number == 0 {
            return Ok(Vec::new());
        }
        if let Some(closed) = &self.closed {
            return Err(closed.clone());
        }
        let pool = self.pool.as_mut().map_err(|error| error.clone())?;
        pool.release(&old);
        let given = pool.allocate(number);
        for address in old {
            // Those that are in the new ones are held already.
            let _ = pool.reserve(&[address]);
        }
        given
    }

    /// How full the pool is.
    pub(super) fn fill(&self) -> Option<PoolFill> {
        let pool = self.pool.as_ref().ok()?;
        let count = |kind: Kind| {
            let held = self.held.iter().filter(|(key, _)| key.kind == kind);
            u32::try_from(held.map(|(_, addresses)| addresses.len()).sum::<usize>()).unwrap_or(u32::MAX)
        };
        let cluster_egress = count(Kind::ClusterGlobalEgressIp);
        let (egress, ingress) = (count(Kind::GlobalEgressIp), count(Kind::GlobalIngressIp));
        let gateways = count(Kind::Gateway);
        Some(PoolFill {
            cidr: pool.cidr(),
            size: pool.size(),
            allocated: cluster_egress + egress + ingress + gateways,
            cluster_egress,
            egress,
            ingress,
            gateways,
        })
    }

    fn enter(&mut self, object: &Object, texts: &[&str]) {
        let Ok(pool) = &mut self.pool else { return };
        if texts.is_empty() {
            return;
        }
        let read = |text: &&str| {
            text.parse::<Ipv4Addr>().map_err(|_| {
                let address = text.chars().take(64).flat_map(char::escape_debug).collect();
                PoolError::Foreign { address, cidr: pool.cidr() }
            })
        };
        let addresses: Result<Vec<Ipv4Addr>, PoolError> = texts.iter().map(read).collect();
        match addresses.and_then(|addresses| pool.reserve(&addresses).map(|()| addresses)) {
            Ok(addresses) => drop(self.held.insert(object.key(), addresses)),
            Err(error) => drop(self.broken.insert(object.key(), error)),
        }
    }

    fn hold(&mut self, address: Ipv4Addr) {
        if let Ok(pool) = &mut self.pool {
            // Mostly its GlobalIngressIP has it already.
            let _ = pool.reserve(&[address]);
        }
    }
}

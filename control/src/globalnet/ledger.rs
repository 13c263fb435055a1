//! The holders of addresses, by the objects: always the pool as it would be after a restart.
//!
//! Two that say they hold one address are a quarrel, which the order of [`ORDER`] settles. Where there is none, what an
//! object says is a matter between it and the pool; each change of a quarrel has all that is said entered anew.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use serde_json::Value;

use super::facts::{Ingress, Service};
use super::pool::{Pool, PoolError};
use super::state::PoolFill;
use crate::api::{ClusterGlobalEgressIp, Kind, Object, ObjectKey, annotation};

/// The order in which upstream's controllers start and reserve, so that both settle a quarrel alike: who comes later is
/// given another address.
const ORDER: [Kind; 4] =
    [Kind::ClusterGlobalEgressIp, Kind::GlobalEgressIp, Kind::GlobalIngressIp, Kind::Gateway];

/// The pool, with all that is given out reserved; and what could not be, since two have it or it is not of this CIDR.
#[derive(Debug)]
pub(super) struct Ledger {
    /// The pool with nothing reserved.
    empty: Result<Pool, PoolError>,
    pool: Result<Pool, PoolError>,
    /// Why nothing more is given out.
    closed: Option<PoolError>,
    /// The claims of objects, in the order in which they count.
    claims: BTreeMap<(usize, ObjectKey), Vec<String>>,
    uses: BTreeMap<Ipv4Addr, Use>,
    held: BTreeMap<ObjectKey, Vec<Ipv4Addr>>,
    broken: BTreeMap<ObjectKey, PoolError>,
    /// How many addresses are held by each kind of [`ORDER`].
    counts: [u32; 4],
    /// Addresses that are given to nobody else while a plan is made.
    given: Vec<Ipv4Addr>,
    changed: BTreeSet<ObjectKey>,
    is_quarrel: bool,
    version: u64,
    giving: Giving,
}

/// Addresses that are given, or why they are not.
pub(super) type Given = Result<Vec<Ipv4Addr>, PoolError>;

/// How an object that asks for addresses is answered.
#[derive(Debug, Default)]
enum Giving {
    /// By the pool.
    #[default]
    Pool,
    /// Not at all; how many it asked for is noted.
    Nothing(Option<u32>),
    /// By what was found out before.
    Found(Given),
}

/// The claims to an address.
#[derive(Debug, Clone, Copy, Default)]
struct Use {
    /// How many objects say that they hold it.
    claims: u32,
    /// How many internal Services answer under it.
    services: u32,
    /// Whether an object holds it rightly.
    is_held: bool,
}

impl Use {
    const fn is_none(self) -> bool {
        self.claims == 0 && self.services == 0 && !self.is_held
    }
}

impl Ledger {
    /// Returns a ledger of which nobody holds anything.
    pub(super) fn new(pool: Result<Pool, PoolError>) -> Self {
        Self {
            empty: pool.clone(),
            pool,
            closed: None,
            claims: BTreeMap::new(),
            uses: BTreeMap::new(),
            held: BTreeMap::new(),
            broken: BTreeMap::new(),
            counts: [0; 4],
            given: Vec::new(),
            changed: BTreeSet::new(),
            is_quarrel: false,
            version: 0,
            giving: Giving::Pool,
        }
    }

    /// Gives nothing out from now on, because of this.
    pub(super) fn close(&mut self, reason: String) {
        self.closed = Some(PoolError::Closed(reason));
        self.version += 1;
    }

    /// Takes in what an object says it holds; `None` if it is gone. Gateways are those of the cluster's namespace.
    pub(super) fn enter(&mut self, key: &ObjectKey, object: Option<&Object>) {
        let Some(rank) = ORDER.iter().position(|kind| *kind == key.kind) else { return };
        let texts = object.map(claimed).unwrap_or_default();
        let place = (rank, key.clone());
        if self.claims.get(&place).map_or(&[][..], Vec::as_slice) == texts {
            return;
        }
        let before = self.claims.remove(&place).unwrap_or_default();
        for address in addresses(&before) {
            self.amend(address, |of| {
                let was_quarrel = of.claims > 1;
                of.claims = of.claims.saturating_sub(1);
                was_quarrel
            });
        }
        for address in addresses(&texts) {
            self.amend(address, |of| {
                of.claims += 1;
                of.claims > 1
            });
        }
        if !self.is_quarrel {
            self.leave(key);
            self.reserve(rank, key, &texts);
        }
        self.changed.insert(key.clone());
        if !texts.is_empty() {
            self.claims.insert(place, texts);
        }
    }

    /// Takes in under which addresses a Service answered, and answers. As long as an internal one does, nobody else is to
    /// have them.
    pub(super) fn answer(&mut self, before: Option<&Object>, after: Option<&Object>) {
        let (before, after) = (answered(before), answered(after));
        if before == after {
            return;
        }
        for address in after {
            let mut is_new = false;
            self.amend(address, |of| {
                is_new = of.services == 0 && !of.is_held;
                of.services += 1;
                false
            });
            if is_new && let Ok(pool) = &mut self.pool {
                self.version += 1;
                // One that is none of the pool's is nobody's.
                let _ = pool.reserve(&[address]);
            }
        }
        for address in before {
            self.amend(address, |of| {
                of.services = of.services.saturating_sub(1);
                false
            });
            self.release(address);
        }
    }

    /// Settles quarrels. Returns the objects that hold something else than when this was called last.
    pub(super) fn settle(&mut self) -> BTreeSet<ObjectKey> {
        if std::mem::take(&mut self.is_quarrel) {
            let (held, broken) = (std::mem::take(&mut self.held), std::mem::take(&mut self.broken));
            self.enter_all();
            let keys = held.keys().chain(broken.keys()).chain(self.held.keys()).chain(self.broken.keys());
            let differs = |key: &&ObjectKey| {
                held.get(key) != self.held.get(key) || broken.get(key) != self.broken.get(key)
            };
            let changed: Vec<ObjectKey> = keys.filter(differs).cloned().collect();
            self.changed.extend(changed);
        }
        std::mem::take(&mut self.changed)
    }

    /// Returns what an object holds rightly.
    pub(super) fn held(&self, key: &ObjectKey) -> &[Ipv4Addr] {
        self.held.get(key).map_or(&[], Vec::as_slice)
    }

    /// Returns why an object may not hold what its status says.
    pub(super) fn broken(&self, key: &ObjectKey) -> Option<&PoolError> {
        self.broken.get(key)
    }

    /// Returns `true` if there are addresses at all. Where there are none, what objects say of them is left alone.
    pub(super) fn is_usable(&self) -> bool {
        self.pool.is_ok()
    }

    /// Returns the pool's CIDR; `None` if there are no addresses.
    pub(super) fn cidr(&self) -> Option<ipnet::Ipv4Net> {
        self.pool.as_ref().ok().map(Pool::cidr)
    }

    /// Returns a number that is another one whenever other addresses are free.
    pub(super) const fn version(&self) -> u64 {
        self.version
    }

    /// Runs `work`, and returns how many addresses it asked for; `None` if it did not. None are given meanwhile.
    pub(super) fn probe(&mut self, work: impl FnOnce(&mut Self)) -> Option<u32> {
        self.giving = Giving::Nothing(None);
        work(self);
        match std::mem::take(&mut self.giving) {
            Giving::Nothing(asked) => asked,
            Giving::Pool | Giving::Found(_) => None,
        }
    }

    /// Runs `work`, which is given these addresses when it asks for some.
    pub(super) fn with_given(&mut self, given: Given, work: impl FnOnce(&mut Self)) {
        self.giving = Giving::Found(given);
        work(self);
        self.giving = Giving::Pool;
    }

    /// Gives an object so many other addresses instead of those it holds. The old ones are not given to others before
    /// its status says so: a write that fails must not make two holders of one address.
    pub(super) fn exchange(&mut self, key: &ObjectKey, number: u32) -> Given {
        if number == 0 {
            return Ok(Vec::new());
        }
        match &mut self.giving {
            Giving::Pool => {}
            Giving::Nothing(asked) => {
                *asked = Some(number);
                return Err(PoolError::Exhausted);
            }
            Giving::Found(given) => return given.clone(),
        }
        let old = self.held(key).to_vec();
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
        self.given.extend(given.iter().flatten());
        given
    }

    /// Takes back all that was given since the last time: it is held once statuses say so.
    pub(super) fn take_back(&mut self) {
        for address in std::mem::take(&mut self.given) {
            let of = self.uses.get(&address).copied().unwrap_or_default();
            if !of.is_held
                && of.services == 0
                && let Ok(pool) = &mut self.pool
            {
                pool.release(&[address]);
            }
        }
    }

    /// Returns how full the pool is.
    pub(super) fn fill(&self) -> Option<PoolFill> {
        let pool = self.pool.as_ref().ok()?;
        let [cluster_egress, egress, ingress, gateways] = self.counts;
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

    fn enter_all(&mut self) {
        self.pool.clone_from(&self.empty);
        self.counts = [0; 4];
        self.version += 1;
        self.uses.retain(|_, of| {
            of.is_held = false;
            !of.is_none()
        });
        for ((rank, key), texts) in std::mem::take(&mut self.claims) {
            self.reserve(rank, &key, &texts);
            self.claims.insert((rank, key), texts);
        }
        if let Ok(pool) = &mut self.pool {
            for (address, _) in self.uses.iter().filter(|(_, of)| of.services > 0) {
                // Mostly its GlobalIngressIP has it already.
                let _ = pool.reserve(&[*address]);
            }
        }
    }

    /// Reserves what an object says it holds: all of it or nothing.
    fn reserve(&mut self, rank: usize, key: &ObjectKey, texts: &[String]) {
        let Ok(pool) = &mut self.pool else { return };
        if texts.is_empty() {
            return;
        }
        let cidr = pool.cidr();
        let read = |text: &String| text.parse().map_err(|_| foreign(text, cidr));
        let outcome = texts.iter().map(read).collect::<Result<Vec<Ipv4Addr>, PoolError>>();
        let outcome = outcome.and_then(|addresses| {
            // What only an internal Service answers under is the object's.
            let free = |address: &&Ipv4Addr| self.uses.get(*address).is_some_and(|of| !of.is_held);
            let answered: Vec<Ipv4Addr> = addresses.iter().filter(free).copied().collect();
            pool.release(&answered);
            let reserved = pool.reserve(&addresses);
            for address in answered {
                if self.uses.get(&address).is_some_and(|of| of.services > 0) {
                    let _ = pool.reserve(&[address]);
                }
            }
            reserved.map(|()| addresses)
        });
        self.version += 1;
        match outcome {
            Ok(addresses) => {
                for address in &addresses {
                    self.uses.entry(*address).or_default().is_held = true;
                }
                self.counts[rank] += length(&addresses);
                self.held.insert(key.clone(), addresses);
            }
            Err(error) => drop(self.broken.insert(key.clone(), error)),
        }
    }

    /// Takes from an object what it holds.
    fn leave(&mut self, key: &ObjectKey) {
        self.broken.remove(key);
        let Some(held) = self.held.remove(key) else { return };
        if let Some(rank) = ORDER.iter().position(|kind| *kind == key.kind) {
            self.counts[rank] -= length(&held);
        }
        for address in held {
            self.amend(address, |of| {
                of.is_held = false;
                false
            });
            self.release(address);
        }
    }

    /// Gives an address back to the pool if nobody uses it.
    fn release(&mut self, address: Ipv4Addr) {
        let of = self.uses.get(&address).copied().unwrap_or_default();
        if !of.is_held
            && of.services == 0
            && let Ok(pool) = &mut self.pool
        {
            pool.release(&[address]);
            self.version += 1;
        }
    }

    /// Changes what is said of an address, and notes whether it is quarrelled over.
    fn amend(&mut self, address: Ipv4Addr, amend: impl FnOnce(&mut Use) -> bool) {
        let of = self.uses.entry(address).or_default();
        self.is_quarrel |= amend(of);
        if of.is_none() {
            self.uses.remove(&address);
        }
    }
}

fn length(addresses: &[Ipv4Addr]) -> u32 {
    u32::try_from(addresses.len()).unwrap_or(u32::MAX)
}

fn foreign(text: &str, cidr: ipnet::Ipv4Net) -> PoolError {
    PoolError::Foreign { address: text.chars().take(64).flat_map(char::escape_debug).collect(), cidr }
}

/// Returns the addresses among these texts, each once.
fn addresses(texts: &[String]) -> BTreeSet<Ipv4Addr> {
    texts.iter().filter_map(|text| text.parse().ok()).collect()
}

/// Returns what an object says it holds, as it is written.
fn claimed(object: &Object) -> Vec<String> {
    if object.kind == Kind::GlobalIngressIp {
        let text = Ingress::new(object).map(|ingress| ingress.allocated()).unwrap_or_default();
        return if text.is_empty() { Vec::new() } else { vec![text.to_owned()] };
    }
    if object.kind == Kind::Gateway {
        return object.metadata.annotations.get(annotation::GLOBAL_IP).cloned().into_iter().collect();
    }
    if object.kind == Kind::ClusterGlobalEgressIp && object.metadata.name != ClusterGlobalEgressIp::NAME {
        return Vec::new();
    }
    let allocated = object.body.get("status").and_then(|status| status.get("allocatedIPs"));
    let texts = allocated.and_then(Value::as_array).into_iter().flatten();
    texts.map(|text| text.as_str().unwrap_or_default().to_owned()).collect()
}

/// Returns the addresses under which an internal Service answers, each once.
fn answered(service: Option<&Object>) -> BTreeSet<Ipv4Addr> {
    let internal = service.map(Service::new).filter(|service| service.stands_for().is_some());
    let texts = internal.iter().flat_map(Service::external_ips);
    texts.filter_map(|text| text.parse().ok()).collect()
}

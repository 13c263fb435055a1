//! The laws of every reconciler, with the controller as the planner of one write after the other.

use trieste_reconcile::Host;
use trieste_reconcile::laws::{self, check};

use super::default_pool::{default_pool, ibm_service, service};
use super::*;

/// Pools behind an API that takes none which overlaps another one.
#[derive(Debug, Clone)]
struct Api(BTreeMap<String, Object>);

impl Host for Api {
    /// GatewayRoutes and Services; `None` where nothing is wanted, whatever they name.
    type Wanted = Option<[Vec<Object>; 2]>;
    type Observed = Vec<Object>;
    type Change = Write;
    type Error = String;

    fn observe(&self) -> Result<Vec<Object>, String> {
        Ok(self.0.values().cloned().collect())
    }

    /// Plans the first write: the controller plans each after it has observed the one before.
    fn plan(wanted: &Self::Wanted, observed: &Vec<Object>) -> Vec<Write> {
        let wish = if wanted.is_some() { Wish::Everything } else { Wish::Nothing };
        let (mut controller, now) = (PoolsController::new(NAMESPACE, wish), Instant::now());
        let [routes, services] = wanted.clone().unwrap_or_default();
        controller.observe(&Watch::new(0, Kind::Service, NAMESPACE), StoreEvent::Listed(services), now);
        controller.observe(&Watch::new(0, Kind::GatewayRoute, NAMESPACE), StoreEvent::Listed(routes), now);
        controller.observe(&Watch::new(0, Kind::IpPool, ""), StoreEvent::Listed(observed.clone()), now);
        let context = Context { now, wall: jiff::Timestamp::UNIX_EPOCH, leadership: None };
        let keys = controller.keys();
        keys.iter().flat_map(|key| controller.reconcile(key, &context).writes).take(1).collect()
    }

    fn apply(&mut self, change: &Write) -> Result<(), String> {
        match change {
            Write::Create(pool) | Write::Update(pool) => {
                let (name, wanted) = (&pool.metadata.name, network(pool).ok_or("no network")?);
                for other in self.0.values().filter(|other| other.metadata.name != *name) {
                    if network(other).is_some_and(|net| net.contains(&wanted) || wanted.contains(&net)) {
                        return Err(format!("{} overlaps", other.metadata.name));
                    }
                }
                self.0.insert(name.clone(), pool.clone());
            }
            Write::Delete(pool) => drop(self.0.remove(&pool.metadata.name).ok_or("not there")?),
            Write::UpdateStatus(_) | Write::Annotate { .. } => return Err("neither is planned".to_owned()),
        }
        Ok(())
    }
}

impl laws::Model for Api {
    type Foreign = Vec<Object>;

    const PASSES: usize = 16;

    fn foreign(&self) -> Vec<Object> {
        let others = self.0.values().filter(|pool| !is_ours(pool));
        // Of the default pool its mode is ours while it has the marks.
        others.map(|pool| roks::restored(pool).unwrap_or_else(|| pool.clone())).collect()
    }

    fn ours(&self) -> Vec<String> {
        let ours = self.0.iter().filter(|(_, pool)| is_ours(pool) || roks::is_managed(pool));
        ours.map(|(name, _)| name.clone()).collect()
    }
}

/// Pools as they may be found: ours or somebody else's, of the network that their name stands for or of another one.
fn any_pools() -> impl Strategy<Value = Vec<Object>> {
    let cidr = || prop::sample::select(vec!["10.2.0.0/16", "10.2.4.0/24", "10.3.0.0/16", "fd00:2::/48"]);
    let one = (cidr(), cidr(), any::<[bool; 2]>()).prop_map(|(named, cidr, [is_of_us, is_masquerading])| {
        let name = name(if named.contains(':') { "c" } else { "b" }, named.parse().unwrap());
        let mut pool = foreign(if is_of_us { &name } else { "other" }, cidr, is_masquerading);
        if is_of_us {
            pool.metadata.labels.insert(label::REMOTE_POOL.to_owned(), "true".to_owned());
        }
        pool
    });
    prop::collection::vec(one, 0..4)
}

/// Returns the default pool in any state: none, or with any modes and marks.
fn any_default_pool() -> impl Strategy<Value = Option<Object>> {
    let mode = || prop::sample::select(vec![None, Some("Never"), Some("CrossSubnet"), Some("Always")]);
    let mark = prop::sample::select(vec![None, None, Some(""), Some("Never"), Some("Always"), Some("x")]);
    let pool = (mode(), mode(), mark, any::<bool>()).prop_map(|(ipip, vxlan, mark, has_label)| {
        let mut pool = default_pool(ipip, vxlan);
        let annotation = mark.map(|mode| ("submariner-prev-ipipmode".to_owned(), mode.to_owned()));
        pool.metadata.annotations.extend(annotation);
        let label = has_label.then(|| ("submariner-managed".to_owned(), "true".to_owned()));
        pool.metadata.labels.extend(label);
        pool
    });
    prop::option::weighted(0.9, pool)
}

proptest! {
    #[test]
    fn plugin_calico_pools_keep_the_laws_of_every_reconciler(
        (pools, default) in (any_pools(), any_default_pool()), b in any_networks(), c in any_networks(),
        is_roks in any::<bool>(), number in any::<usize>(),
    ) {
        let mut api = Api(BTreeMap::new());
        for pool in pools.into_iter().chain(default) {
            // As the API server lets it be.
            drop(api.apply(&Write::Create(pool)));
        }
        let services = vec![if is_roks { ibm_service() } else { service(None) }];
        prop_assert_eq!(check(&api, &Some([vec![route("b", &b), route("c", &c)], services]), number), Ok(()));
    }
}

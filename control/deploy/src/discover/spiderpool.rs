//! Whether a cluster has Spiderpool, which gives pods devices on the nodes' own networks beside any network plugin.

use ipnet::IpNet;
use serde_json::Value;

use super::Observed;

/// Most SpiderCoordinators that are named.
const MOST: usize = 8;

/// What was found of Spiderpool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spiderpool {
    /// The names of the SpiderCoordinators, by which it was found.
    pub coordinators: Vec<String>,
    /// The SpiderIPPools that are not switched off.
    pub pools: Vec<Pool>,
}

/// A SpiderIPPool: addresses that pods have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// The network that its addresses are in.
    pub network: IpNet,
}

impl Spiderpool {
    /// Returns what tells that it is there, for people.
    pub fn shown(&self) -> String {
        let names: Vec<&str> = self.coordinators.iter().take(MOST).map(String::as_str).collect();
        let more = self.coordinators.len().saturating_sub(MOST);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("found (SpiderCoordinator {}{more})", names.join(", "))
    }
}

/// Returns what there is of Spiderpool; `None` without a SpiderCoordinator, which makes pods' routes.
pub(super) fn find(observed: &Observed) -> Option<Spiderpool> {
    let all = |kind: &str| observed.others.get(kind).into_iter().flatten();
    let coordinators: Vec<String> = all("SpiderCoordinator").filter_map(name).collect();
    let pools = all("SpiderIPPool").filter_map(pool).collect();
    (!coordinators.is_empty()).then_some(Spiderpool { coordinators, pools })
}

fn pool(object: &Value) -> Option<Pool> {
    let network: IpNet = object["spec"]["subnet"].as_str()?.trim().parse().ok()?;
    let is_on = object["spec"]["disable"] != true;
    is_on.then_some(Pool { name: name(object)?, network: network.trunc() })
}

fn name(object: &Value) -> Option<String> {
    object["metadata"]["name"].as_str().map(str::to_owned)
}

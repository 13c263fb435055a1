//! Whether Spiderpool leads what pods send to other clusters to their nodes.
//!
//! ```text
//!   SpiderCoordinator   spec.hijackCIDR ─────────────┬─▶ routes of a pod, made with its network and never again
//!   SpiderMultusConfig  spec.coordinator.hijackCIDR ─┘   (its own list takes the place of the other)
//! ```
//!
//! Our worker keeps the remote networks in these lists, and records in an annotation since when. It leaves out what overlaps a
//! SpiderIPPool: pods would be cut off from their own network.

mod few;
mod objects;
mod pods;

use std::collections::BTreeSet;

use ipnet::IpNet;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use trieste_control::network_map::NetworkMap;
use trieste_control::spiderpool::{self, ANNOTATION};
use trieste_control::steps::{Outcome, Steps};

use self::few::{Few, MANY};
use self::objects::{Config, Coordinator, List, Pool, Record};
use self::pods::{Endpoints, Older, Origins};
use super::{CheckError, Checked};
use crate::facts::{Found, pages, within};
use crate::path::evidence::Cluster;

/// The Deployment of the worker.
pub(super) const SYNC: &str = "trieste-spiderpool-sync";
/// Pods that may still send something, for the API server.
const ALIVE: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// Remarks, and how they are meant.
type Remarks = Vec<(Outcome, String)>;

/// What keeps the lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Worker {
    /// The worker.
    There,
    /// The worker, which is not there.
    Missing,
    /// Nothing: the cluster was not joined by us.
    Nobody,
}

/// Reads the SpiderCoordinators; there are none without Spiderpool. Who may not read them is told so: most clusters have none.
pub(super) async fn coordinators(checked: &Checked, steps: &mut dyn Steps) -> Vec<Coordinator> {
    match read(checked, "SpiderCoordinator", "spidercoordinators", Coordinator::of).await {
        Ok(coordinators) => coordinators,
        Err(error) => {
            steps.begin("Looking for Spiderpool");
            steps.remark(
                Outcome::Warning,
                &format!("whether the cluster has Spiderpool was not found out: {error}"),
            );
            steps.end(Outcome::Success);
            Vec::new()
        }
    }
}

/// Looks for remote networks to which pods have no routes, and for pods' networks that other clusters do not reach.
///
/// # Errors
/// When the API server does not say.
pub(super) async fn routes(
    checked: &Checked,
    coordinators: &[Coordinator],
    is_ours: bool,
    remote: &[IpNet],
    steps: &mut dyn Steps,
) -> Result<(), CheckError> {
    steps.begin("Spiderpool detected, checking that pods' routes lead to other clusters");
    let configs = read(checked, "SpiderMultusConfig", "spidermultusconfigs", Config::of).await?;
    let pools = read(checked, "SpiderIPPool", "spiderippools", Pool::of).await?;
    let worker = worker(checked, is_ours).await?;
    let cluster = crate::facts::cluster(&checked.source, &checked.kubectl, &mut Vec::new()).await?;
    if remote.is_empty() {
        steps.remark(
            Outcome::Warning,
            "no active gateway is connected to another cluster: there is nothing to check yet",
        );
    }
    let clashes = Clashes::new(&pools, remote);
    let lists: Vec<&List> = coordinators
        .iter()
        .map(|coordinator| &coordinator.list)
        .chain(configs.iter().filter_map(Config::used))
        .collect();
    let mut remarks = not_synced(coordinators);
    remarks.extend(unreadable(&lists));
    let logs = format!("kubectl{} -n {} logs deployment/{SYNC}", checked.kubectl, checked.source.namespace);
    remarks.extend(missing(&lists, &clashes.without(remote), worker, &logs));
    remarks.extend(clashes.remark());
    remarks.extend(unannounced(&pools, &announced(&cluster)));
    let origins = Origins::new(coordinators, &configs, remote);
    if origins.has_additions() {
        remarks.extend(older(checked, &origins).await?.remarks(&checked.kubectl));
    }
    for (outcome, text) in remarks {
        steps.remark(outcome, &text);
    }
    steps.end(Outcome::Success);
    Ok(())
}

/// Reads Spiderpool's objects of a kind, of all namespaces; none where the kind is not known.
async fn read<T>(
    checked: &Checked,
    kind: &str,
    plural: &str,
    of: impl Fn(&DynamicObject) -> Option<T>,
) -> Result<Vec<T>, CheckError> {
    let mut all = Vec::new();
    let objects = objects(checked, kind, plural);
    pages(plural, &objects, "", |page| all.extend(page.iter().filter_map(&of))).await?;
    Ok(all)
}

fn objects(checked: &Checked, kind: &str, plural: &str) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: "spiderpool.spidernet.io".to_owned(),
        version: "v2beta1".to_owned(),
        api_version: "spiderpool.spidernet.io/v2beta1".to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    };
    Api::all_with(checked.source.client.clone(), &resource)
}

/// Tells who writes what is missing, since `--fix` does not.
pub(super) fn not_fixed(is_ours: bool) -> String {
    match is_ours {
        true => format!("--fix writes nothing of Spiderpool's: Deployment {SYNC} keeps its lists"),
        false => "--fix writes nothing of Spiderpool's: in a cluster that was not joined by Trieste its lists are kept by hand".to_owned(),
    }
}

async fn worker(checked: &Checked, is_ours: bool) -> Result<Worker, CheckError> {
    let deployments = Api::<Deployment>::namespaced(checked.source.client.clone(), &checked.source.namespace);
    Ok(match within(&format!("Deployment {SYNC}"), deployments.get(SYNC)).await? {
        Found::There(_) => Worker::There,
        Found::Missing if is_ours => Worker::Missing,
        Found::Missing => Worker::Nobody,
    })
}

/// Reads pods, a page at a time: of a big cluster they are many.
async fn older(checked: &Checked, origins: &Origins<'_>) -> Result<Older, CheckError> {
    let (mut endpoints, mut older) = (Endpoints::default(), Older::default());
    let objects = objects(checked, "SpiderEndpoint", "spiderendpoints");
    pages("spiderendpoints", &objects, "", |page| page.iter().for_each(|one| endpoints.add(one))).await?;
    if endpoints.is_empty() {
        return Ok(older);
    }
    let pods = Api::<Pod>::all(checked.source.client.clone());
    pages("pods", &pods, ALIVE, |page| page.iter().for_each(|pod| older.add(pod, &endpoints, origins)))
        .await?;
    Ok(older)
}

fn not_synced(coordinators: &[Coordinator]) -> Remarks {
    let texts = coordinators.iter().filter_map(|coordinator| {
        let why = coordinator.not_synced.as_ref()?;
        let name = &coordinator.name;
        Some(format!("SpiderCoordinator {name} is not synced ({why}): Spiderpool itself refuses new pods"))
    });
    first(Outcome::Warning, texts)
}

fn unreadable(lists: &[&List]) -> Remarks {
    let texts = lists.iter().filter_map(|list| {
        let Record::Unreadable(why) = &list.record else { return None };
        Some(format!(
            "the annotation {ANNOTATION} of {} cannot be read: {why}. It is not clear which pods are older than their routes, and \
             {SYNC} leaves the list as it is: take other clusters' networks out of {}, and remove the annotation",
            list.object, list.field
        ))
    });
    first(Outcome::Warning, texts)
}

/// Returns the lists that lack remote networks, and what to do.
fn missing(lists: &[&List], wanted: &[IpNet], worker: Worker, logs: &str) -> Remarks {
    let texts = lists.iter().filter_map(|list| {
        // Two halves cover the whole.
        let covered = map(&IpNet::aggregate(&list.networks));
        let missing: Few = wanted.iter().filter(|net| covered.covering(**net).next().is_none()).collect();
        (missing.count() > 0).then(|| {
            let List { object, field, .. } = list;
            let mend = match (&list.record, worker) {
                (Record::Unmanaged, _) => {
                    format!("its list is kept by hand ({ANNOTATION}): add them to {field}")
                }
                (Record::Added(_) | Record::Unreadable(_), Worker::Missing) => {
                    format!("there is no Deployment {SYNC}, which adds them: join again")
                }
                (Record::Added(_) | Record::Unreadable(_), Worker::Nobody) => {
                    format!("nothing adds them in a cluster that was not joined by Trieste: add them to {field}")
                }
                (Record::Added(_) | Record::Unreadable(_), Worker::There) => {
                    format!("{SYNC} adds them, and logs why it does not: {logs}")
                }
            };
            format!("{object} has no entry for {missing}: pods get no routes to these networks of other clusters; {mend}")
        })
    });
    first(Outcome::Failure, texts)
}

/// Remote networks that overlap those of SpiderIPPools.
struct Clashes<'a> {
    /// With a pool of each.
    networks: Vec<(IpNet, IpNet, &'a str)>,
}

impl<'a> Clashes<'a> {
    /// Returns them. Pods may have addresses of a pool that is disabled.
    fn new(pools: &'a [Pool], remote: &[IpNet]) -> Self {
        let mut by_network = NetworkMap::default();
        pools.iter().for_each(|pool| by_network.add(pool.network, pool.name.as_str()));
        let clash = |network: &IpNet| {
            let (pool, name) = by_network.overlapping(*network).next()?;
            Some((*network, pool, *name))
        };
        Self { networks: remote.iter().map(IpNet::trunc).filter_map(|network| clash(&network)).collect() }
    }

    /// Returns the remote networks that lists should have: each is judged by itself, as the worker does.
    fn without(&self, remote: &[IpNet]) -> Vec<IpNet> {
        let left_out: BTreeSet<IpNet> = self.networks.iter().map(|(network, ..)| *network).collect();
        remote.iter().map(IpNet::trunc).filter(|network| !left_out.contains(network)).collect()
    }

    fn remark(&self) -> Option<(Outcome, String)> {
        let all = self.networks.iter();
        let named: Few =
            all.map(|(network, pool, name)| format!("{network} (SpiderIPPool {name}: {pool})")).collect();
        (named.count() > 0).then(|| {
            let text = format!(
                "networks of other clusters overlap those of SpiderIPPools: {named}. {SYNC} leaves them out of the lists, since \
                 pods would be cut off from their own network: give the clusters different networks or use globalnet"
            );
            (Outcome::Failure, text)
        })
    }
}

/// Returns what the cluster announces of itself; nothing with Globalnet, which announces other networks on purpose.
fn announced(cluster: &Cluster) -> Vec<IpNet> {
    if cluster.is_global {
        return Vec::new();
    }
    let subnets = cluster.endpoint().map(|endpoint| endpoint.subnets.as_slice()).unwrap_or_default();
    subnets.iter().filter_map(|net| net.parse().ok()).chain(cluster.networks.iter().copied()).collect()
}

/// Returns pods' networks that are not announced; a family of which nothing is announced is left out on purpose.
fn unannounced(pools: &[Pool], announced: &[IpNet]) -> Option<(Outcome, String)> {
    let enabled = pools.iter().filter(|pool| !pool.is_disabled);
    let by_network =
        spiderpool::unannounced(enabled.map(|pool| (pool.network, pool.name.as_str())), announced);
    let named: Few =
        by_network.iter().map(|(network, name)| format!("{network} (SpiderIPPool {name})")).collect();
    (named.count() > 0).then(|| {
        let text = format!(
            "the cluster does not announce {named}: pods' addresses in it are not reachable from other clusters. Join again with \
             --extra-cidrs, which takes all such networks of the cluster"
        );
        (Outcome::Warning, text)
    })
}

fn map(networks: &[IpNet]) -> NetworkMap<()> {
    let mut map = NetworkMap::default();
    networks.iter().for_each(|network| map.add(*network, ()));
    map
}

/// Returns the first of remarks on objects, and how many more there are.
fn first(outcome: Outcome, mut texts: impl Iterator<Item = String>) -> Remarks {
    let mut remarks: Remarks = texts.by_ref().take(MANY).map(|text| (outcome, text)).collect();
    let more = texts.count();
    if more > 0 {
        remarks.push((outcome, format!("and the same of {more} more objects")));
    }
    remarks
}

#[cfg(test)]
mod tests;

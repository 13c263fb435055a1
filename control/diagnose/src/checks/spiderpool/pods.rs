//! Which pods were made before the routes that they would need. Pure.

use std::collections::{BTreeSet, HashMap};

use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DynamicObject;
use serde::Deserialize;
use serde_json::Value;
use trieste_control::steps::Outcome;

use super::few::Few;
use super::objects::{Addition, Config, Coordinator, List, Record};
use crate::facts::is_host_network;

/// The annotation with the networks that a pod has devices in, by Multus.
const STATUS: &str = "k8s.v1.cni.cncf.io/network-status";
/// The condition of a pod whose network has been made. Older versions of Kubernetes have none.
const NETWORK_MADE: &str = "PodReadyToStartContainers";
/// The SpiderCoordinator that Spiderpool makes.
const USUAL: &str = "default";
/// Ours: clocks differ, and times are whole seconds. A pod that was made so shortly after an addition may be without it.
const CLOCKS: SignedDuration = SignedDuration::from_secs(5);

/// An entry of [`STATUS`].
#[derive(Deserialize)]
struct Attached {
    #[serde(default)]
    name: String,
}

/// The pods that have addresses of Spiderpool, by namespace and name.
#[derive(Default)]
pub(super) struct Endpoints(HashMap<String, Endpoint>);

struct Endpoint {
    uid: String,
    has_v4: bool,
    has_v6: bool,
}

/// What the routes of pods with a device are made from.
enum Origin {
    /// They get none.
    Nothing,
    /// The SpiderMultusConfig's own list, with these additions.
    Own(Vec<Addition>),
    /// The SpiderCoordinator's list.
    Common,
}

/// What pods' routes are made from. Additions are the newest first.
pub(super) struct Origins<'a> {
    by_attachment: HashMap<&'a str, Origin>,
    common: Vec<Addition>,
    /// Whether pods without a SpiderMultusConfig get none.
    is_off: bool,
}

/// Pods that are older than routes, and pods of which that cannot be told.
#[derive(Default)]
pub(super) struct Older {
    older: Few,
    unreadable: Few,
}

impl Endpoints {
    /// Adds a SpiderEndpoint.
    pub(super) fn add(&mut self, object: &DynamicObject) {
        let of = |path: &str| object.data.pointer(path);
        let Some(uid) = of("/status/current/uid").and_then(Value::as_str) else { return };
        let Some(name) = &object.metadata.name else { return };
        let addresses = of("/status/current/ips").and_then(Value::as_array);
        let has = |family: &str| {
            let mut texts = addresses.into_iter().flatten().filter_map(|device| device.get(family)?.as_str());
            texts.any(|text| !text.is_empty())
        };
        let (has_v4, has_v6) = (has("ipv4"), has("ipv6"));
        // One that does not tell its addresses may have both.
        let is_silent = !has_v4 && !has_v6;
        let endpoint =
            Endpoint { uid: uid.to_owned(), has_v4: has_v4 || is_silent, has_v6: has_v6 || is_silent };
        self.0.insert(full_name(object.metadata.namespace.as_deref(), name), endpoint);
    }

    /// Says whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Endpoint {
    /// Says whether the pod gets routes to a network: it gets none of a family of which its device has no address.
    fn takes_routes_to(&self, network: &IpNet) -> bool {
        if network.addr().is_ipv4() { self.has_v4 } else { self.has_v6 }
    }
}

impl<'a> Origins<'a> {
    /// Returns what lists tell of networks that are still remote ones.
    pub(super) fn new(coordinators: &[Coordinator], configs: &'a [Config], remote: &[IpNet]) -> Self {
        let remote: BTreeSet<IpNet> = remote.iter().map(IpNet::trunc).collect();
        let usual = coordinators.iter().find(|coordinator| coordinator.name == USUAL);
        let common = usual.or_else(|| coordinators.first());
        let is_off = common.is_some_and(|coordinator| coordinator.is_off);
        let mut by_attachment = HashMap::new();
        for config in configs {
            let own = config.list.as_ref().map(|list| Origin::Own(additions(list, &remote)));
            let has_routes = config.has_routes.unwrap_or(!is_off);
            let origin = if has_routes { own.unwrap_or(Origin::Common) } else { Origin::Nothing };
            by_attachment.entry(config.attachment.as_str()).or_insert(origin);
        }
        let common = common.map(|coordinator| additions(&coordinator.list, &remote)).unwrap_or_default();
        Self { by_attachment, common, is_off }
    }

    /// Says whether any list has additions: without them no pod can be older.
    pub(super) fn has_additions(&self) -> bool {
        let is_some = |origin: &Origin| match origin {
            Origin::Own(additions) => !additions.is_empty(),
            Origin::Nothing | Origin::Common => false,
        };
        !self.common.is_empty() || self.by_attachment.values().any(is_some)
    }

    /// Returns the additions to the list that a pod's routes were made from.
    fn of(&self, attached: &[Attached]) -> &[Addition] {
        let mut common = None;
        for origin in attached.iter().filter_map(|one| self.by_attachment.get(one.name.as_str())) {
            match origin {
                Origin::Own(additions) => return additions,
                Origin::Common => common = Some(true),
                Origin::Nothing => common = common.or(Some(false)),
            }
        }
        // A NetworkAttachmentDefinition that somebody has written has the coordinator's list too.
        if common.unwrap_or(!self.is_off) { &self.common } else { &[] }
    }
}

impl Older {
    /// Adds a pod, if it has addresses of Spiderpool and is older than a route that it needs.
    pub(super) fn add(&mut self, pod: &Pod, endpoints: &Endpoints, origins: &Origins<'_>) {
        let name =
            full_name(pod.metadata.namespace.as_deref(), pod.metadata.name.as_deref().unwrap_or_default());
        let is_its = |endpoint: &&Endpoint| pod.metadata.uid.as_ref() == Some(&endpoint.uid);
        let endpoint = endpoints.0.get(&name).filter(is_its).filter(|_| is_meant(pod));
        let (Some(endpoint), Some(since)) = (endpoint, network_since(pod)) else { return };
        let status = pod.metadata.annotations.as_ref().and_then(|all| all.get(STATUS));
        let Ok(attached) = status.map_or(Ok(Vec::new()), |text| serde_json::from_str::<Vec<Attached>>(text))
        else {
            self.unreadable.push(|| name);
            return;
        };
        let additions = origins.of(&attached);
        let is_later = |addition: &Addition| addition.0.duration_since(since) > -CLOCKS;
        let later = &additions[..additions.partition_point(is_later)];
        let mut missing =
            later.iter().map(|(_, network)| network).filter(|net| endpoint.takes_routes_to(net));
        if let Some(first) = missing.next() {
            self.older.push(|| {
                let networks: Few = std::iter::once(first).chain(missing).collect();
                format!("{name} (since {since}: {networks})")
            });
        }
    }

    /// Returns what there is to say of them.
    pub(super) fn remarks(&self, kubectl: &str) -> Vec<(Outcome, String)> {
        let Self { older, unreadable } = self;
        let mut remarks = Vec::new();
        if unreadable.count() > 0 {
            let text = format!(
                "the annotation {STATUS} of {} pods cannot be read, so that it is not clear which routes they have: {unreadable}",
                unreadable.count()
            );
            remarks.push((Outcome::Warning, text));
        }
        if older.count() > 0 {
            let text = format!(
                "{} pods are older than routes to other clusters' networks and do not reach them: {older}; restart them \
                 (kubectl{kubectl} -n NAMESPACE rollout restart deployment NAME)",
                older.count()
            );
            remarks.push((Outcome::Warning, text));
        }
        remarks
    }
}

fn full_name(namespace: Option<&str>, name: &str) -> String {
    format!("{}/{name}", namespace.unwrap_or_default())
}

/// Returns the networks of a list's record that are still remote ones, the newest first.
fn additions(list: &List, remote: &BTreeSet<IpNet>) -> Vec<Addition> {
    let mut additions = match &list.record {
        Record::Added(all) => all.clone(),
        Record::Unmanaged | Record::Unreadable(_) => Vec::new(),
    };
    additions.retain(|(_, network)| remote.contains(network));
    additions.sort_by(|(one, of_one), (other, of_other)| other.cmp(one).then(of_one.cmp(of_other)));
    additions
}

/// Says whether a pod has a network of its own, and will have it for a while.
fn is_meant(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Running" | "Pending"))
        && pod.metadata.deletion_timestamp.is_none()
        && !is_host_network(pod)
}

/// Returns when a pod's network was made; `None` if it is not made now.
fn network_since(pod: &Pod) -> Option<Timestamp> {
    let status = pod.status.as_ref()?;
    let made = status.conditions.iter().flatten().find(|condition| condition.type_ == NETWORK_MADE);
    let time = match made {
        // It is made again after its node's restart for one, and then has all routes.
        Some(condition) if condition.status != "True" => None,
        Some(condition) => condition.last_transition_time.as_ref().or(status.start_time.as_ref()),
        None => status.start_time.as_ref(),
    };
    time.map(|time| time.0)
}

//! Everything that an installation could leave behind: the state of each node's network, files, and all objects.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;

use super::cluster::Cluster;
use super::node::Node;
use crate::kubernetes::Client;
use crate::wait::eventually;

/// What is printed on a node: one line of output is one entry. What moves by itself is left out: counters, ages, and
/// what was learned from traffic.
const LOOKS: [(&str, &str); 13] = [
    ("link", r"ip -d -o link show | sed -E 's/^[0-9]+: //; s/@[^:]*:/:/; s/[a-z_]*_timer +[0-9.]+//g'"),
    ("address", "ip -o address show | sed -E 's/^[0-9]+: //; s/(valid|preferred)_lft [^ ]+//g'"),
    ("route", "ip -4 route show table all; ip -6 route show table all | sed -E 's/ expires [0-9]+sec//'"),
    ("rule", "ip -4 rule; ip -6 rule"),
    ("fdb", "bridge fdb show | grep -E 'permanent|static' || true"),
    ("neighbour", "ip neighbour show nud permanent; ip -6 neighbour show proxy; ip -4 neighbour show proxy"),
    // Chains of Services that are gone are emptied at once, and deleted when kube-proxy next goes through all.
    (
        "nftables",
        r"nft -s list ruleset | sed -E -z 's/\n\tchain (service|endpoint|external|firewall)-[^\n]* \{\n\t\}\n//g'",
    ),
    ("iptables", "iptables-save | sed -E '/^#/d; s/\\[[0-9]+:[0-9]+\\]//'"),
    ("ip6tables", "ip6tables-save | sed -E '/^#/d; s/\\[[0-9]+:[0-9]+\\]//'"),
    (
        "sysctl",
        "sysctl -a 2>/dev/null | grep '^net\\.' | grep -v -E 'nf_conntrack_count|\\.stable_secret|mptcp' || true",
    ),
    // The lock is everybody's who calls iptables: whoever removed it would let two in.
    ("folder", "find /run /var/lib -mindepth 1 -maxdepth 1 ! -name xtables.lock"),
    ("file", "find /var/lib/trieste /run/trieste /etc/cni /opt/cni 2>/dev/null || true"),
    ("set", "ipset list -n 2>/dev/null || true"),
];

/// Resources that Kubernetes writes all the time.
const MOVING: [&str; 3] = ["componentstatuses", "apiservices", "leases"];

/// What there is in a cluster, to be compared with what there is later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Footprint {
    entries: BTreeSet<String>,
}

impl Footprint {
    /// Looks at all nodes that are on, and at all objects.
    ///
    /// # Errors
    /// If a node or the API server does not answer.
    pub fn of(cluster: &Cluster) -> anyhow::Result<Self> {
        let mut entries = BTreeSet::new();
        for node in cluster.nodes().iter().filter(|node| node.is_on()) {
            entries.extend(on_node(node)?);
        }
        entries.extend(Self::of_objects(cluster)?.entries);
        Ok(Self { entries })
    }

    /// Looks at objects alone, which takes a fraction of the time.
    ///
    /// # Errors
    /// If the API server does not answer.
    pub fn of_objects(cluster: &Cluster) -> anyhow::Result<Self> {
        let objects = objects(cluster.client()).context("listing all objects")?;
        let entries = objects.into_iter().map(|(key, value)| format!("{}: {key} {value}", cluster.name()));
        Ok(Self { entries: entries.collect() })
    }

    /// Looks until two looks in a row find the same: what has just been started is not all there.
    ///
    /// # Errors
    /// If the cluster does not come to rest within two minutes.
    pub fn at_rest(cluster: &Cluster) -> anyhow::Result<Self> {
        let mut before = Self::of(cluster)?;
        eventually("the cluster to come to rest", Duration::from_secs(120), || {
            std::thread::sleep(Duration::from_secs(2));
            let unready: Vec<_> =
                before.entries.iter().filter(|entry| entry.contains("\"ready\":false")).cloned().collect();
            let now = Self::of(cluster)?;
            let changes = before.changes(&now);
            before = now;
            anyhow::ensure!(changes.is_empty() && unready.is_empty(), "{changes:?} {unready:?}");
            Ok(())
        })?;
        Ok(before)
    }

    /// What has come (`+`) and what has gone (`-`) until a later look.
    pub fn changes(&self, later: &Self) -> Vec<String> {
        let gone = self.entries.difference(&later.entries).map(|entry| format!("- {entry}"));
        let come = later.entries.difference(&self.entries).map(|entry| format!("+ {entry}"));
        gone.chain(come).collect()
    }
}

/// All looks in one go: entering a node costs more than looking.
fn on_node(node: &Node) -> anyhow::Result<Vec<String>> {
    let look = |(name, words): &(&str, &str)| format!("{{ {words}; }} | sed 's/^/{name} /'\n");
    let script: String = LOOKS.iter().map(look).collect();
    let text = node.exec(&["bash", "-c", &format!("set -e -o pipefail\n{script}")])?;
    Ok(numbered(&text).map(|line| format!("{}: {line}", node.name())).collect())
}

/// Lines that are equal, such as braces of a ruleset, are told apart by their number.
fn numbered(text: &str) -> impl Iterator<Item = String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    text.lines().map(move |line| {
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        let count = seen.entry(line.clone()).or_default();
        *count += 1;
        format!("{line} ({count})")
    })
}

/// Every object without what Kubernetes itself changes.
fn objects(client: &Client) -> anyhow::Result<BTreeMap<String, Value>> {
    let mut all = BTreeMap::new();
    client.every_object(&["events"], |version, resource, object| {
        let (namespace, name) = (&object["metadata"]["namespace"], &object["metadata"]["name"]);
        let is_moving = MOVING.contains(&resource)
            && namespace.as_str().is_none_or(|namespace| namespace.starts_with("kube-"));
        if !(is_moving || name == "kubernetes.io") {
            all.insert(format!("{version}/{resource} {namespace}/{name}"), bare(object));
        }
    })?;
    Ok(all)
}

/// Labels, annotations, finalizers and everything but status. Of a node, also the names of what it offers.
fn bare(mut object: Value) -> Value {
    if let Some(labels) = object["metadata"]["labels"].as_object_mut() {
        labels.remove("kubernetes.io/legacy-token-last-used"); // a date, written when somebody comes with the token
    }
    if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
        annotations.remove("endpoints.kubernetes.io/last-change-trigger-time"); // when a back end was ready again
    }
    let kept = ["labels", "annotations", "finalizers", "ownerReferences"];
    let metadata: Value = kept
        .iter()
        .filter(|key| !object["metadata"][**key].is_null())
        .map(|key| ((*key).to_owned(), object["metadata"][*key].clone()))
        .collect();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
        fields.insert("metadata".to_owned(), metadata);
    }
    object
}

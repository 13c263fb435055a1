//! What is on nodes and in API servers, to be compared before and after.

use std::collections::BTreeSet;

use crate::clusters::{Cluster, ClusterSet, Node};

/// Kinds of objects that belong to no namespace, and those of ours that could be left in one that stays.
const KINDS: &str = "namespaces,nodes,customresourcedefinitions,clusterroles,clusterrolebindings,\
                     validatingadmissionpolicies,validatingadmissionpolicybindings,services,serviceaccounts,secrets,\
                     daemonsets,deployments,roles,rolebindings";

/// What a node says about its network; the second asks for what nobody but us has. Empty chains are kube-proxy's, of Services that
/// are gone: it deletes them when it next goes through all. The bridge is the network plugin's: it comes with a
/// node's first pod, and stays.
const NODE: &str = "ip -o link show | sed 's/^[0-9]*: \\([^:@]*\\).*/link \\1/' | grep -v -e 'link veth' -e 'link cni0'
for family in 4 6; do
    ip -$family rule show | sed \"s/^/rule $family /\"
    ip -$family -o route show table all | grep -v -e veth -e cni0 -e ' metric 256 linkdown' | sed \"s/ expires.*//; s/^/route $family /\"
done
nft list tables
nft list ruleset | sed -E -z 's/\\n\\tchain (service|endpoint|external|firewall)-[^\\n]* \\{\\n\\t\\}\\n//g' \\
    | grep -i -e submariner -e trieste || true";

/// A set's state, as lines.
#[derive(Debug)]
pub(super) struct State {
    lines: BTreeSet<String>,
}

impl State {
    /// Reads it.
    pub(super) fn of(set: &ClusterSet) -> anyhow::Result<Self> {
        let mut lines = BTreeSet::new();
        for cluster in set.clusters.all() {
            lines.extend(objects(cluster)?);
            for node in cluster.nodes() {
                lines.extend(network(node)?);
            }
        }
        Ok(Self { lines })
    }

    /// Fails with what differs.
    pub(super) fn compare(&self, after: &Self) -> anyhow::Result<()> {
        let more: Vec<_> = after.lines.difference(&self.lines).map(|line| format!("+ {line}")).collect();
        let less: Vec<_> = self.lines.difference(&after.lines).map(|line| format!("- {line}")).collect();
        let differ = [more, less].concat();
        anyhow::ensure!(differ.is_empty(), "these differ:\n{}", differ.join("\n"));
        Ok(())
    }

    /// How much was compared.
    pub(super) fn summary(&self) -> String {
        format!(
            "{} links, routes, rules, tables, objects and labels compared, none differs",
            self.lines.len()
        )
    }
}

fn objects(cluster: &Cluster) -> anyhow::Result<Vec<String>> {
    let words = [
        "get",
        KINDS,
        "--all-namespaces",
        "--no-headers",
        "-o",
        "custom-columns=K:.kind,S:.metadata.namespace,N:.metadata.name",
    ];
    let told = cluster.kubectl(&words)?.success()?;
    let labels = cluster.kubectl(&[
        "get",
        "nodes",
        "-o",
        "jsonpath={range .items[*]}{.metadata.name} {.metadata.labels} {.metadata.annotations}{\"\\n\"}{end}",
    ])?;
    let named =
        |line: &str| format!("{}: {}", cluster.name(), line.split_whitespace().collect::<Vec<_>>().join(" "));
    Ok(told.lines().chain(labels.success()?.lines()).map(named).collect())
}

fn network(node: &Node) -> anyhow::Result<Vec<String>> {
    let told = node.exec(&["sh", "-ec", NODE])?;
    Ok(told.lines().map(|line| format!("{}: {}", node.name(), line.trim_end())).collect())
}

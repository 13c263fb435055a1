//! A cluster's networks.

use serde::Serialize;
use serde_json::Value;

use crate::api::text;
use crate::output::printable;
use trieste_control::api::ClusterSpec;
use trieste_deploy::objects::names;

/// A cluster's CIDRs, as the Submariner object or the cluster's own Cluster object has them.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Networks {
    cluster: String,
    /// Only the Submariner object knows it.
    #[serde(skip_serializing_if = "String::is_empty")]
    network_plugin: String,
    /// With OVN-Kubernetes: which zones there are and what tells so, as `join` has found it.
    #[serde(skip_serializing_if = "String::is_empty")]
    ovn_zones: String,
    /// Likewise: where the northbound databases are.
    #[serde(skip_serializing_if = "String::is_empty")]
    ovn_databases: String,
    service_cidrs: Vec<String>,
    cluster_cidrs: Vec<String>,
    global_cidrs: Vec<String>,
    #[serde(rename = "clustersetIPCIDRs")]
    clusterset_ip_cidrs: Vec<String>,
}

impl Networks {
    /// From the own Cluster object.
    pub(crate) fn of_cluster(spec: &ClusterSpec) -> Self {
        Self {
            cluster: spec.cluster_id.clone(),
            network_plugin: String::new(),
            ovn_zones: String::new(),
            ovn_databases: String::new(),
            service_cidrs: spec.service_cidr.clone(),
            cluster_cidrs: spec.cluster_cidr.clone(),
            global_cidrs: spec.global_cidr.clone(),
            clusterset_ip_cidrs: Vec::new(),
        }
    }

    /// From the Submariner object: its status, and where that is blank what was asked for.
    pub(crate) fn of_submariner(submariner: &Value) -> Self {
        let field = |name: &str| {
            let found = text(submariner, &format!("/status/{name}"));
            if found.is_empty() { text(submariner, &format!("/spec/{name}")) } else { found }
        };
        let list = |name: &str| {
            let cidrs = field(name).split(',').map(|cidr| cidr.trim().to_owned());
            cidrs.filter(|cidr| !cidr.is_empty()).collect()
        };
        Self {
            cluster: field("clusterID").to_owned(),
            network_plugin: field("networkPlugin").to_owned(),
            ovn_zones: annotation(submariner, names::OVN_ZONES),
            ovn_databases: annotation(submariner, names::OVN_DATABASES),
            service_cidrs: list("serviceCIDR"),
            cluster_cidrs: list("clusterCIDR"),
            global_cidrs: list("globalCIDR"),
            clusterset_ip_cidrs: list("clustersetIPCIDR"),
        }
    }

    /// Upstream's lines; those of which nothing is known are left out, but for the two that every cluster has.
    pub(crate) fn text(&self) -> String {
        // Upstream's Submariner object holds a list as one text, and its tool prints that text in brackets.
        let list = |cidrs: &[String]| format!("[{}]", cidrs.join(","));
        let mut lines = vec!["    Discovered network details via Submariner:".to_owned()];
        if !self.network_plugin.is_empty() {
            lines.push(format!("        Network plugin:  {}", self.network_plugin));
        }
        let ovn = [("OVN zones:     ", &self.ovn_zones), ("OVN databases: ", &self.ovn_databases)];
        let ovn = ovn.into_iter().filter(|(_, found)| !found.is_empty());
        lines.extend(ovn.map(|(name, found)| format!("        {name}  {found}")));
        lines.push(format!("        Service CIDRs:   {}", list(&self.service_cidrs)));
        lines.push(format!("        Cluster CIDRs:   {}", list(&self.cluster_cidrs)));
        if !self.global_cidrs.is_empty() {
            lines.push(format!("        Global CIDR:     {}", self.global_cidrs.join(",")));
        }
        if !self.clusterset_ip_cidrs.is_empty() {
            lines.push(format!("        ClustersetIP CIDR:     {}", self.clusterset_ip_cidrs.join(",")));
        }
        lines.iter().map(|line| printable(line) + "\n").collect()
    }
}

fn annotation(object: &Value, name: &str) -> String {
    object["metadata"]["annotations"][name].as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use trieste_control::api::{Cluster, Object, Resource as _};

    const RECORDED: &str = include_str!("../../../tests/golden/cli/show-all.txt");
    const A_CLUSTERS: &str = include_str!("../../../tests/golden/plain/a-clusters.yaml");

    /// The recorded lines of cluster-a.
    fn recorded() -> String {
        let a = RECORDED.split_once("Cluster \"cluster-a\"").unwrap().1;
        let (_, block) = a.split_once(" ✓ Showing Network details\n").unwrap();
        block.split_once("\n\n").unwrap().0.to_owned() + "\n"
    }

    #[test]
    fn network_details_of_an_own_cluster_object_are_upstreams_but_for_the_plugin() {
        let list: Value = serde_saphyr::from_str(A_CLUSTERS).unwrap();
        let clusters = list["items"].as_array().unwrap().iter();
        let clusters: Vec<Cluster> = clusters
            .map(|item| Cluster::from_object(&Object::from_value(item.clone()).unwrap()).unwrap())
            .collect();
        let own = clusters.iter().find(|cluster| cluster.spec.cluster_id == "cluster-a").unwrap();
        let expected = recorded().replace("        Network plugin:  generic\n", "");
        assert_eq!(Networks::of_cluster(&own.spec).text(), expected);
        assert_eq!(own.metadata.origin(), None, "the own Cluster is no copy");
    }

    #[test]
    fn network_details_of_a_submariner_object_are_upstreams() {
        let status = json!({"clusterID": "cluster-a", "networkPlugin": "generic",
            "serviceCIDR": "100.1.0.0/16", "clusterCIDR": "10.1.0.0/16"});
        assert_eq!(Networks::of_submariner(&json!({"status": status})).text(), recorded());
        assert_eq!(
            Networks::of_submariner(&json!({"spec": status, "status": {"serviceCIDR": ""}})).text(),
            recorded()
        );
    }

    #[test]
    fn plugin_ovn_layout_is_shown_as_join_has_found_it() {
        let mut options = trieste_deploy::objects::example();
        options.network_plugin = "OVNKubernetes".to_owned();
        options.ovn.zones = "one for all nodes (no node has the annotation)".to_owned();
        options.ovn.databases = "tcp:db:6641 (pod a/b)".to_owned();
        let mut object = trieste_deploy::objects::submariner_resource(&options).as_value().clone();
        object["status"] = trieste_deploy::objects::submariner_status(&options);
        let networks = Networks::of_submariner(&object);
        let expected = "        Network plugin:  OVNKubernetes\n\
            \x20       OVN zones:       one for all nodes (no node has the annotation)\n\
            \x20       OVN databases:   tcp:db:6641 (pod a/b)\n";
        assert!(networks.text().contains(expected), "{}", networks.text());
        let shown = serde_json::to_value(&networks).unwrap();
        assert_eq!(shown["ovnDatabases"], "tcp:db:6641 (pod a/b)");
        let others = serde_json::to_value(Networks::of_submariner(&json!({}))).unwrap();
        assert!(others.get("ovnZones").is_none());
    }

    #[test]
    fn two_families_and_global_ranges_are_in_upstreams_form() {
        let text = Networks::of_submariner(&json!({"status": {
            "serviceCIDR": "100.1.0.0/16,fd00:100::/112", "clusterCIDR": "10.1.0.0/16",
            "globalCIDR": "242.0.0.0/16", "clustersetIPCIDR": "243.0.0.0/20"}}))
        .text();
        let expected = "    Discovered network details via Submariner:\n\
            \x20       Service CIDRs:   [100.1.0.0/16,fd00:100::/112]\n\
            \x20       Cluster CIDRs:   [10.1.0.0/16]\n\
            \x20       Global CIDR:     242.0.0.0/16\n\
            \x20       ClustersetIP CIDR:     243.0.0.0/20\n";
        assert_eq!(text, expected);
    }
}

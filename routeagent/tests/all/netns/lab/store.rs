//! The store of a lab, and the objects that tests put into it.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::{Lab, NAMESPACE};

impl Lab {
    pub(crate) fn store(&self) -> PathBuf {
        self.directory.path().join("store")
    }

    /// The usual two clusters.
    pub(crate) fn join(&self) {
        self.put_endpoint(
            "a",
            "a-gw1",
            &["100.65.0.0/16", "10.1.0.0/16", "fd00:1::/48"],
            "172.31.1.11",
            "10.1.1.1",
        );
        self.put_endpoint("b", "b-gw1", &["100.66.0.0/16", "10.2.0.0/16", "fd00:2::/48"], "203.0.113.21", "");
    }

    pub(crate) fn put_endpoint(
        &self,
        cluster: &str,
        hostname: &str,
        subnets: &[&str],
        private_ip: &str,
        health: &str,
    ) {
        let spec = json!({
            "cluster_id": cluster, "cable_name": format!("submariner-cable-{cluster}"), "hostname": hostname,
            "subnets": subnets, "private_ip": private_ip, "public_ip": "", "nat_enabled": false,
            "backend": "wireguard", "healthCheckIP": health,
            "backend_config": {"interface-name": "submariner", "udp-port": "4500"},
        });
        self.put("Endpoint", "endpoints", cluster, &spec);
    }

    pub(crate) fn put_cluster(&self, cluster: &str, networks: &[&str]) {
        let spec =
            json!({"cluster_id": cluster, "service_cidr": [], "cluster_cidr": networks, "global_cidr": []});
        self.put("Cluster", "clusters", cluster, &spec);
    }

    pub(crate) fn put_global_cluster(
        &self,
        cluster: &str,
        pods: &[&str],
        services: &[&str],
        global: &[&str],
    ) {
        let spec = json!({"cluster_id": cluster, "service_cidr": services, "cluster_cidr": pods, "global_cidr": global});
        self.put("Cluster", "clusters", cluster, &spec);
    }

    /// A Node object, as the API server has it.
    pub(crate) fn put_node(&self, name: &str, address: &str, pod_networks: &[String]) {
        let object = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "spec": {"podCIDR": pod_networks[0], "podCIDRs": pod_networks},
            "status": {"addresses": [{"type": "InternalIP", "address": address}]},
        });
        self.put_object("nodes", &object);
    }

    /// Says that a cluster knows of several gateways at once.
    pub(crate) fn tell_paths(&self, cluster: &str) {
        let path = self.object("endpoints", cluster);
        let mut object: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        object["spec"]["backend_config"]["trieste.paths"] = "1".into();
        self.put_object("endpoints", &object);
    }

    /// Says that a gateway of ours wrote a cluster's Endpoint, which has one active gateway.
    pub(crate) fn tell_term(&self, cluster: &str) {
        let path = self.object("endpoints", cluster);
        let mut object: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        object["metadata"]["annotations"]["trieste.io/term"] = "3".into();
        self.put_object("endpoints", &object);
    }

    /// A gateway of cluster `a` among its siblings, with the key of its notices in base64 if it sends some.
    pub(crate) fn put_member(
        &self,
        cable: &str,
        hostname: &str,
        address: &str,
        health: &str,
        key: Option<&str>,
    ) {
        let mut settings = json!({"interface-name": "submariner", "udp-port": "4500", "trieste.paths": "1"});
        if let Some(key) = key {
            settings["trieste.notice-key"] = key.into();
        }
        let object = json!({
            "apiVersion": "submariner.io/v1", "kind": "Endpoint",
            "metadata": {
                "name": format!("trieste-{cable}"), "namespace": format!("{NAMESPACE}-paths"),
                "labels": {"trieste.io/clusterID": "a"},
            },
            "spec": {
                "cluster_id": "a", "cable_name": cable, "hostname": hostname,
                "subnets": ["100.65.0.0/16", "10.1.0.0/16", "fd00:1::/48"], "private_ip": address, "public_ip": "",
                "nat_enabled": false, "backend": "wireguard", "healthCheckIP": health, "backend_config": settings,
            },
        });
        self.put_object("endpoints", &object);
    }

    /// What upstream's agent says of a node.
    pub(crate) fn put_upstreams_agent(&self, node: &str) {
        let object = json!({
            "apiVersion": "submariner.io/v1", "kind": "RouteAgent",
            "metadata": {"name": node, "namespace": NAMESPACE},
            "status": {"version": "release-0.23-0a1b2c3d", "statusFailure": "", "remoteEndpoints": []},
        });
        self.put_object("routeagents", &object);
    }

    fn put(&self, kind: &str, plural: &str, name: &str, spec: &Value) {
        let object = json!({
            "apiVersion": "submariner.io/v1", "kind": kind, "spec": spec,
            "metadata": {"name": name, "namespace": NAMESPACE, "creationTimestamp": "2026-01-01T00:00:00Z"},
        });
        self.put_object(plural, &object);
    }

    /// Any object, in the folder of its kind and of its namespace, if it has one.
    pub(crate) fn put_object(&self, plural: &str, object: &Value) {
        let metadata = &object["metadata"];
        let namespace = metadata["namespace"].as_str().unwrap_or("_cluster");
        let directory = self.store().join(namespace).join(plural);
        std::fs::create_dir_all(&directory).unwrap();
        let draft = self.directory.path().join("draft");
        std::fs::write(&draft, object.to_string()).unwrap();
        let name = metadata["name"].as_str().unwrap();
        std::fs::rename(draft, directory.join(format!("{name}.yaml"))).unwrap();
    }

    /// An object without a namespace.
    pub(crate) fn delete_object(&self, plural: &str, name: &str) {
        let folder = self.store().join("_cluster").join(plural);
        std::fs::remove_file(folder.join(format!("{name}.yaml"))).unwrap();
    }

    pub(crate) fn delete_endpoint(&self, cluster: &str) {
        std::fs::remove_file(self.object("endpoints", cluster)).unwrap();
    }

    pub(crate) fn delete_agent(&self, node: &str) {
        std::fs::remove_file(self.object("routeagents", node)).unwrap();
    }

    fn object(&self, plural: &str, name: &str) -> PathBuf {
        self.store().join(NAMESPACE).join(plural).join(format!("{name}.yaml"))
    }
}

//! The lab's broker, written to as another implementation would: files put into the directory by hand.

use std::path::{Path, PathBuf};

use anyhow::Context;
use ipnet::IpNet;
use trieste_control::api::EndpointSpec;

use crate::cluster::{BROKER_NAMESPACE, NAMESPACE};
use crate::installation::put_whole;

/// A foreign gateway's announcement.
#[derive(Debug, Clone)]
pub struct ForeignEndpoint {
    /// Its cluster's ID.
    pub cluster_id: String,
    /// Its node's name.
    pub hostname: String,
    /// Its underlay address.
    pub private_ip: std::net::IpAddr,
    /// UDP port of its cable.
    pub udp_port: u16,
    /// Its WireGuard public key, base64.
    pub public_key: String,
    /// What is reachable behind it.
    pub subnets: Vec<IpNet>,
}

impl ForeignEndpoint {
    /// Puts it on the broker, complete or not at all; returns the file.
    ///
    /// # Errors
    /// If the broker's directory cannot be written.
    pub fn publish(&self, broker: &Path) -> anyhow::Result<PathBuf> {
        let name = self.name();
        put(broker, BROKER_NAMESPACE, &name, &self.yaml(&name, BROKER_NAMESPACE))
    }

    /// Puts it into a cluster's own store, as its leader does who has found it on a broker; returns the file.
    ///
    /// # Errors
    /// If the store's directory cannot be written.
    pub fn publish_own(&self, store: &Path) -> anyhow::Result<PathBuf> {
        let name = self.name();
        put(store, NAMESPACE, &name, &self.yaml(&name, NAMESPACE))
    }

    fn name(&self) -> String {
        format!("{}-{}", self.cluster_id, self.cable_name())
    }

    fn cable_name(&self) -> String {
        let address = self.private_ip.to_string().replace(['.', ':'], "-");
        format!("submariner-cable-{}-{}", self.cluster_id, address.trim_matches('-'))
    }

    fn yaml(&self, name: &str, namespace: &str) -> String {
        let subnets: String = self.subnets.iter().map(|net| format!("    - \"{net}\"\n")).collect();
        format!(
            "apiVersion: submariner.io/v1\n\
             kind: Endpoint\n\
             metadata:\n\
             \x20 name: {name}\n\
             \x20 namespace: {namespace}\n\
             \x20 labels:\n\
             \x20   submariner-io/clusterID: {cluster}\n\
             spec:\n\
             \x20 cluster_id: {cluster}\n\
             \x20 cable_name: {cable}\n\
             \x20 hostname: {hostname}\n\
             \x20 private_ip: \"{address}\"\n\
             \x20 public_ip: \"\"\n\
             \x20 nat_enabled: false\n\
             \x20 backend: wireguard\n\
             \x20 backend_config:\n\
             \x20   publicKey: \"{key}\"\n\
             \x20   udp-port: \"{port}\"\n\
             \x20 subnets:\n{subnets}",
            cluster = self.cluster_id,
            cable = self.cable_name(),
            hostname = self.hostname,
            address = self.private_ip,
            key = self.public_key,
            port = self.udp_port,
        )
    }
}

/// Returns an Endpoint as it is on the broker, by upstream's names.
#[must_use]
pub fn endpoint(spec: &EndpointSpec) -> serde_json::Value {
    serde_json::json!({
        "apiVersion": "submariner.io/v1",
        "kind": "Endpoint",
        "metadata": {
            "name": format!("{}-{}", spec.cluster_id, spec.cable_name),
            "namespace": BROKER_NAMESPACE,
            "labels": { "submariner-io/clusterID": spec.cluster_id },
        },
        "spec": spec,
    })
}

/// Puts an Endpoint on the broker that says exactly this; returns the file.
///
/// # Errors
/// If the broker's directory cannot be written.
pub fn publish(broker: &Path, spec: &EndpointSpec) -> anyhow::Result<PathBuf> {
    let object = endpoint(spec);
    let name = object["metadata"]["name"].as_str().context("an object has a name")?;
    // JSON is YAML.
    put(broker, BROKER_NAMESPACE, name, &serde_json::to_string_pretty(&object)?)
}

fn put(store: &Path, namespace: &str, name: &str, text: &str) -> anyhow::Result<PathBuf> {
    let folder = store.join(namespace).join("endpoints");
    std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let file = folder.join(format!("{name}.yaml"));
    put_whole(&file, text)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announcement_is_read_as_an_endpoint() {
        let foreign = ForeignEndpoint {
            cluster_id: "west".to_owned(),
            hostname: "west-gw1".to_owned(),
            private_ip: "fd00:31::2:1".parse().unwrap(),
            udp_port: 4500,
            public_key: "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=".to_owned(),
            subnets: vec!["10.2.0.0/16".parse().unwrap()],
        };

        let text = foreign.yaml("west-submariner-cable-west-fd00-31--2-1", BROKER_NAMESPACE);

        for line in ["  cluster_id: west", "  private_ip: \"fd00:31::2:1\"", "    - \"10.2.0.0/16\""] {
            assert!(text.lines().any(|other| other == line), "{text}");
        }
    }
}

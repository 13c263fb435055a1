//! Kubernetes' objects in a directory: what a user and Kubernetes itself would write, and globalnet's answers.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::installation::put_whole;
use crate::wait::eventually;

/// The one ClusterGlobalEgressIP that counts.
pub const EGRESS: &str = "cluster-egress.submariner.io";

/// How long globalnet may take to give an address.
const SOON: Duration = Duration::from_secs(90);

/// A cluster's directory.
#[derive(Debug, Clone)]
pub struct Objects {
    store: PathBuf,
}

impl Objects {
    /// That of a cluster.
    pub fn of(cluster: &Cluster) -> Self {
        Self::at(cluster.store())
    }

    /// That of a cluster whose store this is.
    pub fn at(store: PathBuf) -> Self {
        Self { store }
    }

    /// Puts any object into the folder of its kind; `namespace` is empty for kinds without.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn put(&self, folder: &str, object: &Value) -> anyhow::Result<()> {
        let metadata = &object["metadata"];
        let name = metadata["name"].as_str().context("an object has a name")?;
        let folder = self.folder(folder, metadata["namespace"].as_str().unwrap_or_default());
        std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        // JSON is YAML.
        put_whole(&folder.join(format!("{name}.yaml")), &object.to_string())
    }

    /// Removes an object.
    ///
    /// # Errors
    /// If it is not there.
    pub fn remove(&self, folder: &str, namespace: &str, name: &str) -> anyhow::Result<()> {
        let file = self.folder(folder, namespace).join(format!("{name}.yaml"));
        std::fs::remove_file(&file).with_context(|| format!("removing {}", file.display()))
    }

    /// A namespace.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn namespace(&self, name: &str) -> anyhow::Result<()> {
        self.put("namespaces", &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
    }

    /// A running pod with labels `app` and `pod`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn pod(&self, namespace: &str, name: &str, app: &str, ip: Ipv4Addr) -> anyhow::Result<()> {
        let labels = json!({"app": app, "pod": name});
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "spec": {"containers": [{"name": "responder"}]},
            "status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]}});
        self.put("pods", &pod)
    }

    /// A service for the pods with a label of this value, from port 80; headless without an address.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn service(
        &self,
        name: &str,
        (label, value): (&str, &str),
        address: Option<Ipv4Addr>,
    ) -> anyhow::Result<()> {
        self.put("services", &service(name, (label, value), address))
    }

    /// Exports a service.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn export(&self, name: &str) -> anyhow::Result<()> {
        self.put("serviceexports", &export(name))
    }

    /// Egress addresses for a namespace, or for its pods of an app.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn egress(&self, namespace: &str, name: &str, count: u32, app: Option<&str>) -> anyhow::Result<()> {
        self.put("globalegressips", &egress(namespace, name, count, app))
    }

    /// Waits for a cluster's own egress addresses.
    ///
    /// # Errors
    /// If they are not given soon.
    pub fn cluster_egress(&self) -> anyhow::Result<Vec<Ipv4Addr>> {
        self.wait("clusterglobalegressips", "", EGRESS)
    }

    /// Waits for the addresses of a GlobalEgressIP.
    ///
    /// # Errors
    /// If they are not given soon.
    pub fn egress_of(&self, namespace: &str, name: &str) -> anyhow::Result<Vec<Ipv4Addr>> {
        self.wait("globalegressips", namespace, name)
    }

    /// Waits for the address of a GlobalIngressIP of the namespace `default`.
    ///
    /// # Errors
    /// If it is not given soon.
    pub fn ingress_of(&self, name: &str) -> anyhow::Result<Ipv4Addr> {
        self.wait("globalingressips", "default", name)?.first().copied().context("no address")
    }

    fn wait(&self, folder: &str, namespace: &str, name: &str) -> anyhow::Result<Vec<Ipv4Addr>> {
        eventually(&format!("addresses of {namespace}/{name} in {folder}"), SOON, || {
            allocated(&self.read(folder, namespace, name)?)
        })
    }

    /// Reads an object.
    ///
    /// # Errors
    /// If it is not there, or no YAML.
    pub fn read(&self, folder: &str, namespace: &str, name: &str) -> anyhow::Result<Value> {
        let file = self.folder(folder, namespace).join(format!("{name}.yaml"));
        let text = std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        serde_saphyr::from_str(&text).with_context(|| format!("reading {}", file.display()))
    }

    fn folder(&self, folder: &str, namespace: &str) -> PathBuf {
        let namespace = if namespace.is_empty() { "_cluster" } else { namespace };
        self.store.join(namespace).join(folder)
    }
}

/// Returns a service of the namespace `default` for the pods with a label of this value, from port 80; headless without an address.
pub fn service(name: &str, (label, value): (&str, &str), address: Option<Ipv4Addr>) -> Value {
    let ip = address.map_or_else(|| "None".to_owned(), |address| address.to_string());
    let port = |protocol: &str| json!({"name": protocol.to_lowercase(), "protocol": protocol, "port": 80});
    json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"type": "ClusterIP", "clusterIP": ip, "clusterIPs": [ip], "ipFamilies": ["IPv4"],
            "selector": {label: value}, "ports": [port("TCP"), port("UDP")]}})
}

/// Returns the export of a service of the namespace `default`.
pub fn export(name: &str) -> Value {
    json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceExport",
        "metadata": {"name": name, "namespace": "default"}})
}

/// A GlobalEgressIP for a namespace, or for its pods of an app.
pub fn egress(namespace: &str, name: &str, count: u32, app: Option<&str>) -> Value {
    let mut object = json!({"apiVersion": "submariner.io/v1", "kind": "GlobalEgressIP",
        "metadata": {"name": name, "namespace": namespace}, "spec": {"numberOfIPs": count}});
    if let Some(app) = app {
        object["spec"]["podSelector"] = json!({"matchLabels": {"app": app}});
    }
    object
}

/// The addresses in an object's status.
///
/// # Errors
/// As long as there are none.
pub fn allocated(object: &Value) -> anyhow::Result<Vec<Ipv4Addr>> {
    let status = &object["status"];
    let many = status["allocatedIPs"].as_array().into_iter().flatten();
    let texts =
        many.chain([&status["allocatedIP"]]).filter_map(Value::as_str).filter(|text| !text.is_empty());
    let found = texts.map(|text| text.parse().with_context(|| format!("{text} is no address")));
    let found: Vec<Ipv4Addr> = found.collect::<anyhow::Result<_>>()?;
    anyhow::ensure!(!found.is_empty(), "it has none: {status}");
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_in_either_form_of_a_status() {
        let ingress = json!({"status": {"allocatedIP": "242.1.255.254"}});
        let egress = json!({"status": {"allocatedIPs": ["242.1.0.1", "242.1.0.2"]}});

        assert_eq!(allocated(&ingress).unwrap(), [Ipv4Addr::new(242, 1, 255, 254)]);
        assert_eq!(allocated(&egress).unwrap().len(), 2);
        assert!(allocated(&json!({"status": {"allocatedIP": "", "allocatedIPs": []}})).is_err());
        assert!(allocated(&json!({})).is_err());
    }
}

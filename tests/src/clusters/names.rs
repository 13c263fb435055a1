//! Names of exported services: exporting, and asking for them in pods.

use std::net::IpAddr;
use std::time::Duration;

use serde_json::json;

use super::{Cluster, ClusterSet, Pod};
use crate::wait::eventually;

/// How long a CoreDNS may take to read what has become of its ConfigMap: the kubelet's minute, and its own 45 s.
pub const RELOADED: Duration = Duration::from_secs(180);

impl ClusterSet {
    /// Exports a service of the namespace `default`, or with `unexport` as the verb exports it no more.
    ///
    /// # Errors
    /// If the command failed.
    pub fn export(&self, cluster: &Cluster, verb: &str, service: &str) -> anyhow::Result<()> {
        let run = self.trieste(cluster).args([verb, "service", service, "-n", "default"]);
        run.output()?.success().map(drop)
    }
}

impl Cluster {
    /// Starts CoreDNS again, which reads its ConfigMap then and not up to a minute later.
    ///
    /// # Errors
    /// If it does not get ready.
    pub fn restart_dns(&self) -> anyhow::Result<()> {
        let path = "/apis/apps/v1/namespaces/kube-system/deployments/coredns";
        let since = &self.client().get(path)?["metadata"]["resourceVersion"];
        let annotations = json!({"restarted-after": since});
        let template = json!({"metadata": {"annotations": annotations}});
        self.client().patch(path, &json!({"spec": {"template": template}}))?;
        self.wait_rollout("kube-system", "deployment/coredns")
    }
}

impl Pod {
    /// Returns the addresses of both families that its resolver is given for a name, sorted; none for a name that has none.
    ///
    /// # Errors
    /// If the program cannot be run.
    pub fn resolve(&self, name: &str) -> anyhow::Result<Vec<IpAddr>> {
        let output = self.exec(&["nslookup", name])?;
        let answer = output.stdout.split_once("Name:").map_or("", |(_, answer)| answer);
        let lines = answer.lines().filter_map(|line| line.strip_prefix("Address")?.rsplit(' ').next());
        let mut addresses: Vec<IpAddr> = lines.filter_map(|word| word.parse().ok()).collect();
        addresses.sort_unstable();
        addresses.dedup();
        Ok(addresses)
    }

    /// Asks for a name until these are the answer, in whatever order.
    ///
    /// # Errors
    /// If they are not in time.
    pub fn wait_resolved(&self, name: &str, wanted: &[IpAddr], within: Duration) -> anyhow::Result<()> {
        let mut wanted = wanted.to_vec();
        wanted.sort_unstable();
        eventually(&format!("{name} to be answered by {wanted:?}"), within, || {
            let found = self.resolve(name)?;
            anyhow::ensure!(found == wanted, "it is {found:?}");
            Ok(())
        })
    }
}

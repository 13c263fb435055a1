//! Who is who in a cluster: its authority, and a kubeconfig for each component and for the administrator.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::plan::{API_PLACE, ClusterPlan, joined};
use super::programs::Programs;
use crate::command::Run;

/// Components and whom their certificates name.
const COMPONENTS: [(&str, &str); 3] = [
    ("kube-controller-manager", "system:kube-controller-manager"),
    ("kube-scheduler", "system:kube-scheduler"),
    ("kube-proxy", "system:kube-proxy"),
];

/// Makes `pki/` and `conf/` in the cluster's folder. The API server's own certificate names all its addresses.
///
/// # Errors
/// If a file cannot be written.
pub(super) fn make(programs: &Programs, plan: &ClusterPlan, folder: &Path) -> anyhow::Result<()> {
    let (pki, conf) = (folder.join("pki"), folder.join("conf"));
    std::fs::create_dir_all(&conf)?;
    let mut addresses: Vec<_> = plan.nodes[0].addresses.iter().map(ipnet::IpNet::addr).collect();
    addresses.extend(plan.service_addresses(API_PLACE));
    let nodes = plan.nodes.iter().map(|node| format!("{0}=system:node:{0}/system:nodes", node.name));
    let components = COMPONENTS.iter().map(|(name, subject)| format!("{name}={subject}"));
    Run::new(programs.kubernetes())
        .arg("certificates")
        .arg(&pki)
        .arg(joined(&addresses))
        .arg("apiserver-kubelet=apiserver-kubelet/system:masters")
        .args(nodes.chain(components))
        .timeout(Duration::from_secs(60))
        .stdout()?;
    let names = plan.nodes.iter().map(|node| node.name.as_str());
    for name in names.chain(COMPONENTS.iter().map(|(name, _)| *name)) {
        let own = Identity::of(plan, &pki, name)?;
        std::fs::write(conf.join(format!("{name}.conf")), kubeconfig(&[own])?)?;
    }
    Ok(())
}

/// A server and somebody whom it knows; named as the cluster.
pub(super) struct Identity {
    name: String,
    cluster: Value,
    user: Value,
}

impl Identity {
    /// The administrator.
    ///
    /// # Errors
    /// If there are no certificates yet.
    pub(super) fn administrator(plan: &ClusterPlan, folder: &Path) -> anyhow::Result<Self> {
        Self::of(plan, &folder.join("pki"), "admin")
    }

    fn of(plan: &ClusterPlan, pki: &Path, name: &str) -> anyhow::Result<Self> {
        let encoded = |file: &str| {
            let path: PathBuf = pki.join(file);
            let bytes = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
            anyhow::Ok(STANDARD.encode(bytes))
        };
        let server = format!("https://{}", std::net::SocketAddr::new(plan.api(), 6443));
        Ok(Self {
            name: plan.shape.name.clone(),
            cluster: json!({"server": server, "certificate-authority-data": encoded("ca.crt")?}),
            user: json!({
                "client-certificate-data": encoded(&format!("{name}.crt"))?,
                "client-key-data": encoded(&format!("{name}.key"))?,
            }),
        })
    }
}

/// A kubeconfig (JSON is YAML) with a context for each; the first one is current.
///
/// # Errors
/// If there is none.
pub(super) fn kubeconfig(identities: &[Identity]) -> anyhow::Result<String> {
    let all = |entry: &dyn Fn(&Identity) -> Value| identities.iter().map(entry).collect::<Vec<_>>();
    let user = |identity: &Identity| format!("{}-admin", identity.name);
    let text = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": all(&|identity| json!({"name": identity.name, "cluster": identity.cluster})),
        "users": all(&|identity| json!({"name": user(identity), "user": identity.user})),
        "contexts": all(&|identity| {
            json!({"name": identity.name, "context": {"cluster": identity.name, "user": user(identity)}})
        }),
        "current-context": identities.first().context("a kubeconfig of nobody")?.name,
    });
    Ok(format!("{text:#}\n"))
}

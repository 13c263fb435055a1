//! Where the set's objects are: directories, or API servers.

use std::path::PathBuf;

use anyhow::Context;
use clap::ValueEnum;
use serde_json::Value;
use trieste_control::api::EndpointSpec;
use trieste_tests::broker;
use trieste_tests::cluster::{BROKER_NAMESPACE, Settings};
use trieste_tests::kubernetes::{KubernetesLab, objects, rbac};
use trieste_tests::lab::Lab;
use trieste_tests::mesh::Mesh;
use trieste_tests::topology::Topology;

/// What the broker and each cluster's own store are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum StoreKind {
    /// A directory.
    Directory,
    /// A kube-apiserver with an etcd of its own, one for each cluster and one for the broker.
    ApiServer,
}

impl StoreKind {
    /// Returns its name on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Directory => "directory",
            Self::ApiServer => "api-server",
        }
    }
}

/// The broker, as somebody else's gateways write to it.
#[derive(Debug)]
pub(super) enum Broker {
    /// Its directory.
    Directory(PathBuf),
    /// Its API server, and those of the clusters.
    ApiServer(Box<KubernetesLab>),
}

/// Returns the settings of clusters with a cable.
pub(super) fn settings(lab: &Lab, driver: &str) -> Settings {
    Settings { extra: vec![format!("cable-driver: {driver}")], ..Settings::of(lab) }
}

/// Builds a topology and starts its clusters on stores of this kind; waits for nothing.
///
/// # Errors
/// The first thing that does not work.
pub(super) fn start(
    lab: &Lab,
    topology: &Topology,
    kind: StoreKind,
    mut settings: Settings,
) -> anyhow::Result<(Mesh, Broker)> {
    let (plan, broker) = match kind {
        StoreKind::Directory => {
            let broker = settings.broker.clone().context("a lab has a broker")?;
            (lab.build(topology)?, Broker::Directory(broker))
        }
        StoreKind::ApiServer => {
            let servers = KubernetesLab::start_in(lab.clone(), topology)?;
            for cluster in &servers.clusters {
                if !cluster.plan.global_cidrs.is_empty() {
                    objects::install_service_exports(cluster.server.client())?;
                    rbac::may_do_globalnet(cluster.server.client())?;
                }
                settings.api.insert(cluster.plan.id.clone(), servers.access(&cluster.plan.id)?);
            }
            (servers.plan.clone(), Broker::ApiServer(Box::new(servers)))
        }
    };
    let mesh = Mesh::start_in(lab, plan, &settings)?;
    Ok((mesh, broker))
}

impl Broker {
    /// Writes an Endpoint, for the first time or changed; returns its name.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn publish(&self, spec: &EndpointSpec) -> anyhow::Result<String> {
        let object = broker::endpoint(spec);
        let name = object["metadata"]["name"].as_str().context("an object has a name")?.to_owned();
        match self {
            Self::Directory(folder) => drop(broker::publish(folder, spec)?),
            Self::ApiServer(servers) => drop::<Value>(servers.broker.client().apply(&object)?),
        }
        Ok(name)
    }

    /// Removes an Endpoint.
    ///
    /// # Errors
    /// If it is not there.
    pub(super) fn withdraw(&self, name: &str) -> anyhow::Result<()> {
        match self {
            Self::Directory(folder) => {
                let file = folder.join(BROKER_NAMESPACE).join("endpoints").join(format!("{name}.yaml"));
                std::fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))
            }
            Self::ApiServer(servers) => {
                let path = format!("/apis/submariner.io/v1/namespaces/{BROKER_NAMESPACE}/endpoints/{name}");
                let was_there = servers.broker.client().delete(&path)?;
                anyhow::ensure!(was_there, "cannot remove {name}: it is not there");
                Ok(())
            }
        }
    }
}

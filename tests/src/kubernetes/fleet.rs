//! Clusters on API servers with the gateways that run in them, and questions that tests ask of them.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};
use trieste_control::api::HaStatus;

use super::client::Client;
use super::lab::KubernetesLab;
use super::objects;
use super::pod::GatewayPod;
use crate::cluster::{BROKER_NAMESPACE, NAMESPACE};
use crate::wait::eventually;

/// How long anything may take: labs share two cores.
const PATIENCE: Duration = Duration::from_secs(45);

/// A lab of `east`, or of `east` and `west`, and its gateways. They end before the lab does.
#[derive(Debug)]
pub struct Fleet {
    gateways: BTreeMap<(String, usize), GatewayPod>,
    /// The lab.
    pub lab: KubernetesLab,
}

impl Fleet {
    /// A lab of so many clusters without a gateway; its nodes say their public address as those of an air-gapped
    /// installation do.
    ///
    /// # Errors
    /// The first thing that does not work.
    pub fn new(count: usize) -> anyhow::Result<Self> {
        let lab = KubernetesLab::start(count)?;
        for cluster in &lab.clusters {
            for node in cluster.plan.gateways() {
                let resolver = format!("ipv4:{}", node.underlay_address());
                let change =
                    json!({"metadata": {"annotations": {"gateway.submariner.io/public-ip": resolver}}});
                cluster.server.client().patch(&objects::node_path(&node.name), &change)?;
            }
        }
        Ok(Self { gateways: BTreeMap::new(), lab })
    }

    /// Starts a gateway with the operator's settings, for the first time or again.
    ///
    /// # Errors
    /// If it cannot start.
    pub fn start(&mut self, cluster: &str, index: usize) -> anyhow::Result<()> {
        let settings = self.lab.settings(cluster, index)?;
        self.start_with(cluster, index, &settings)
    }

    /// The same with settings of the test's.
    ///
    /// # Errors
    /// If it cannot start.
    pub fn start_with(
        &mut self,
        cluster: &str,
        index: usize,
        settings: &BTreeMap<String, String>,
    ) -> anyhow::Result<()> {
        let gateway = self.lab.spawn_gateway(cluster, index, settings)?;
        self.gateways.insert((cluster.to_owned(), index), gateway);
        Ok(())
    }

    /// A gateway that runs.
    ///
    /// # Panics
    /// If it was not started, or was taken away.
    pub fn gateway(&self, cluster: &str, index: usize) -> &GatewayPod {
        self.gateways.get(&(cluster.to_owned(), index)).expect("the caller has started it")
    }

    /// Hands a gateway over, to stop or to kill it.
    ///
    /// # Panics
    /// If it was not started, or was taken away.
    pub fn take(&mut self, cluster: &str, index: usize) -> GatewayPod {
        self.gateways.remove(&(cluster.to_owned(), index)).expect("the caller has started it")
    }

    /// Waits until a gateway says that it is active.
    ///
    /// # Errors
    /// If it does not.
    pub fn wait_active(&self, cluster: &str, index: usize) -> anyhow::Result<()> {
        eventually(&format!("{cluster}'s gateway {index} to be active"), PATIENCE, || {
            let status = self.gateway(cluster, index).status()?;
            anyhow::ensure!(status.ha_status == HaStatus::Active, "{:?}", status.election);
            Ok(())
        })
    }

    /// Waits until a gateway's Gateway object is there and its status is good.
    ///
    /// # Errors
    /// If that does not happen.
    pub fn wait_gateway(
        &self,
        cluster: &str,
        index: usize,
        is_good: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<()> {
        let name = &self.lab.gateway_node(cluster, index).name;
        let cluster = self.lab.cluster(cluster);
        cluster.wait_object("gateways", name, PATIENCE, |gateway| is_good(&gateway["status"])).map(drop)
    }

    /// Waits until a cluster's Endpoint, original or copy, in its own store, on the broker or in another cluster, is
    /// of this gateway, and it is the only one.
    ///
    /// # Errors
    /// If that does not happen.
    pub fn wait_endpoint(&self, of: &str, index: usize, at: Place<'_>) -> anyhow::Result<Value> {
        let hostname = &self.lab.gateway_node(of, index).name;
        eventually(&format!("{at:?} to know {hostname} as {of}'s Endpoint"), PATIENCE, || {
            let mut found = self.endpoints(of, at)?;
            let names: Vec<_> = found.iter().map(|found| found["metadata"]["name"].clone()).collect();
            anyhow::ensure!(
                found.len() == 1 && found[0]["spec"]["hostname"] == hostname.as_str(),
                "there are {names:?}"
            );
            found.pop().context("there is one")
        })
    }

    /// The Endpoints of a cluster in one place.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn endpoints(&self, of: &str, at: Place<'_>) -> anyhow::Result<Vec<Value>> {
        let mut found = at.client(&self.lab).list(&at.path("endpoints"))?;
        found.retain(|endpoint| endpoint["spec"]["cluster_id"] == of);
        Ok(found)
    }
}

/// Where objects are looked at.
#[derive(Debug, Clone, Copy)]
pub enum Place<'a> {
    /// In a cluster of this ID.
    Cluster(&'a str),
    /// On the broker.
    Broker,
}

impl Place<'_> {
    /// A client of its API server.
    pub fn client<'a>(&self, lab: &'a KubernetesLab) -> &'a Client {
        match self {
            Self::Cluster(id) => lab.cluster(id).server.client(),
            Self::Broker => lab.broker.client(),
        }
    }

    /// The API path of the objects of a kind, by its plural.
    pub fn path(&self, plural: &str) -> String {
        let namespace = match self {
            Self::Cluster(_) => NAMESPACE,
            Self::Broker => BROKER_NAMESPACE,
        };
        let api = match plural {
            "pods" => "/api/v1".to_owned(),
            "leases" => "/apis/coordination.k8s.io/v1".to_owned(),
            _ => "/apis/submariner.io/v1".to_owned(),
        };
        format!("{api}/namespaces/{namespace}/{plural}")
    }
}

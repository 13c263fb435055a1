//! Clusters of namespaces with an API server each, a broker with its own, and gateways as their pods.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use base64::Engine as _;
use ipnet::IpNet;

use super::pod::{GatewayPod, PodFiles, RouteAgentPod};
use super::server::{ApiServer, Options};
use super::{objects, rbac};
use crate::cluster::{ApiAccess, BROKER_NAMESPACE, NAMESPACE, PSK};
use crate::daemon::Daemon;
use crate::lab::Lab;
use crate::netns::Namespace;
use crate::programs;
use crate::topology::{ClusterPlan, Families, NodePlan, Plan, Topology};

/// The Secret with a cluster's access to the broker, mounted into its gateways, and on the broker the one that its
/// tokens are bound to.
pub const BROKER_SECRET: &str = "submariner-broker-secret";

/// One cluster: its nodes and its API server.
#[derive(Debug)]
pub struct KubernetesCluster {
    /// Names and addresses.
    pub plan: ClusterPlan,
    /// Its API server.
    pub server: ApiServer,
}

/// Clusters, a broker, and the network between them. The fields are in the order in which they have to end.
#[derive(Debug)]
pub struct KubernetesLab {
    /// The clusters, in the order of the topology.
    pub clusters: Vec<KubernetesCluster>,
    /// The broker's API server.
    pub broker: ApiServer,
    /// Names and addresses.
    pub plan: Plan,
    /// The lab that they live in.
    pub lab: Lab,
}

impl KubernetesLab {
    /// The first `count` of `east` and `west`, each with two gateway nodes, a worker and one pod per node, over IPv4, an
    /// API server per cluster and one as the broker, all ready, with definitions, rights, Node and Pod objects; clusters
    /// have joined the broker. None of our programs runs yet.
    ///
    /// # Errors
    /// The first thing that does not work; the lab is gone then.
    pub fn start(count: usize) -> anyhow::Result<Self> {
        let mut topology = Topology::two_clusters().with_nodes(2, 1).with_underlay(Families::V4).with_pods(1);
        topology.clusters.truncate(count);
        Self::start_in(Lab::new()?, &topology)
    }

    /// The same for clusters of any shape, in a lab that nothing was built in.
    ///
    /// # Errors
    /// The first thing that does not work.
    pub fn start_in(lab: Lab, topology: &Topology) -> anyhow::Result<Self> {
        let plan = lab.build(topology)?;
        let build = || {
            let broker_place = lab.plug_in(&plan, "broker", 250)?;
            let places: Vec<_> = (1_u8..)
                .zip(&plan.clusters)
                .map(|(number, cluster)| lab.plug_in(&plan, &format!("{}-api", cluster.id), number))
                .collect::<anyhow::Result<_>>()?;
            // Each start is mostly one processor's work: together they take as long as two of them.
            let (broker, clusters) = std::thread::scope(|scope| {
                let broker = scope.spawn(|| start_broker(&lab, &plan, &broker_place));
                let clusters: Vec<_> = plan
                    .clusters
                    .iter()
                    .zip(&places)
                    .map(|(cluster, place)| {
                        let lab = &lab;
                        scope.spawn(move || KubernetesCluster::start(lab, cluster, place))
                    })
                    .collect();
                (
                    joined(broker.join()),
                    clusters.into_iter().map(|one| joined(one.join())).collect::<Vec<_>>(),
                )
            });
            anyhow::Ok((broker?, clusters.into_iter().collect::<anyhow::Result<Vec<_>>>()?))
        };
        let built = build();
        match built {
            Ok((broker, clusters)) => Ok(Self { clusters, broker, plan, lab }),
            Err(error) => {
                lab.show_logs();
                Err(error)
            }
        }
    }

    /// The cluster of this ID.
    ///
    /// # Panics
    /// If there is none: the caller asked for it.
    pub fn cluster(&self, id: &str) -> &KubernetesCluster {
        let found = self.clusters.iter().find(|cluster| cluster.plan.id == id);
        found.expect("the caller named a cluster of its own lab")
    }

    /// The same, to stop and start its server.
    ///
    /// # Panics
    /// If there is none: the caller asked for it.
    pub fn cluster_mut(&mut self, id: &str) -> &mut KubernetesCluster {
        let found = self.clusters.iter_mut().find(|cluster| cluster.plan.id == id);
        found.expect("the caller named a cluster of its own lab")
    }

    /// Gateway node number `index` (from 0) of a cluster.
    ///
    /// # Panics
    /// If there is none.
    pub fn gateway_node(&self, cluster: &str, index: usize) -> &NodePlan {
        &self.cluster(cluster).plan.gateways()[index]
    }

    /// What upstream's operator would tell the gateway of this node: its environment, air-gapped, over WireGuard.
    /// Access to the broker is in the Secret and, as upstream does it, in variables too.
    ///
    /// # Errors
    /// If the broker makes no token.
    pub fn settings(&self, cluster: &str, index: usize) -> anyhow::Result<BTreeMap<String, String>> {
        let (cluster, node) = (self.cluster(cluster), self.gateway_node(cluster, index));
        let authority = std::fs::read(self.broker.ca_file())?;
        let authority = base64::engine::general_purpose::STANDARD.encode(authority);
        let token = self.broker_token(&cluster.plan.id)?;
        let (pod_cidrs, service_cidrs) = (list(&cluster.plan.pod_cidrs), list(&cluster.plan.service_cidrs));
        let (api, broker) = (cluster.server.address(), self.broker.server());
        let (pod, api_host, api_port) =
            (objects::gateway_pod(&node.name), api.ip().to_string(), api.port().to_string());
        let variables = [
            ("NODE_NAME", node.name.as_str()),
            ("POD_NAME", &pod),
            ("KUBERNETES_SERVICE_HOST", &api_host),
            ("KUBERNETES_SERVICE_PORT", &api_port),
            ("SUBMARINER_NAMESPACE", NAMESPACE),
            ("SUBMARINER_CLUSTERID", &cluster.plan.id),
            ("SUBMARINER_CLUSTERCIDR", &pod_cidrs),
            ("SUBMARINER_SERVICECIDR", &service_cidrs),
            ("SUBMARINER_GLOBALCIDR", ""),
            ("SUBMARINER_COLORCODES", "blue"),
            ("SUBMARINER_DEBUG", "true"),
            ("SUBMARINER_NATENABLED", "false"),
            ("AIR_GAPPED_DEPLOYMENT", "true"),
            ("SUBMARINER_BROKER", "k8s"),
            ("SUBMARINER_CABLEDRIVER", "wireguard"),
            ("BROKER_K8S_APISERVER", &broker),
            ("BROKER_K8S_APISERVERTOKEN", &token),
            ("BROKER_K8S_REMOTENAMESPACE", BROKER_NAMESPACE),
            ("BROKER_K8S_CA", &authority),
            ("BROKER_K8S_INSECURE", "false"),
            ("BROKER_K8S_SECRET", BROKER_SECRET),
            ("CE_IPSEC_PSK", PSK),
            ("CE_IPSEC_PSKSECRET", ""),
            ("CE_IPSEC_DEBUG", "false"),
            ("CE_IPSEC_NATTPORT", "4500"),
            ("CE_IPSEC_PREFERREDSERVER", "false"),
            ("CE_IPSEC_FORCEENCAPS", "false"),
            ("SUBMARINER_HEALTHCHECKENABLED", "true"),
            ("SUBMARINER_HEALTHCHECKINTERVAL", "1"),
            ("SUBMARINER_HEALTHCHECKMAXPACKETLOSSCOUNT", "5"),
            ("SUBMARINER_METRICSPORT", "32780"),
            ("SUBMARINER_HALT_ON_CERT_ERROR", "true"),
        ];
        Ok(variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into())
    }

    /// Starts the gateway of a node with these settings, for the first time or again, as its DaemonSet would: the same
    /// pod, without arguments.
    ///
    /// # Errors
    /// If it is not built or cannot start.
    pub fn spawn_gateway(
        &self,
        cluster: &str,
        index: usize,
        settings: &BTreeMap<String, String>,
    ) -> anyhow::Result<GatewayPod> {
        let files = self.gateway_files(cluster, index)?;
        self.write_service_account(cluster, &files, rbac::GATEWAY)?;
        let token = self.broker_token(cluster)?;
        self.broker.write_credentials(&files.secret(BROKER_SECRET), BROKER_NAMESPACE, &token)?;
        let node = self.gateway_node(cluster, index);
        let run = files.command(node, programs::path("trieste-gateway")?, settings);
        let daemon = Daemon::start(&self.lab, &objects::gateway_pod(&node.name), &run)?;
        Ok(GatewayPod { daemon, files })
    }

    /// Starts Globalnet's own process on a gateway's node, as the container of upstream's DaemonSet.
    ///
    /// # Errors
    /// If it is not built or cannot start.
    pub fn spawn_globalnet(&self, cluster: &str, index: usize) -> anyhow::Result<Daemon> {
        let node = self.gateway_node(cluster, index);
        let files = PodFiles::new(&self.lab, &format!("{}-globalnet", node.name))?;
        self.write_service_account(cluster, &files, rbac::GLOBALNET)?;
        let api = self.cluster(cluster).server.address();
        let variables = [
            ("NODE_NAME", node.name.clone()),
            ("KUBERNETES_SERVICE_HOST", api.ip().to_string()),
            ("KUBERNETES_SERVICE_PORT", api.port().to_string()),
            ("SUBMARINER_NAMESPACE", NAMESPACE.to_owned()),
            ("SUBMARINER_CLUSTERID", cluster.to_owned()),
            ("SUBMARINER_METRICSPORT", "32781".to_owned()),
        ];
        let environment = variables.map(|(name, value)| (name.to_owned(), value)).into();
        // By the name that upstream's operator starts it by.
        let program = files.outside("submariner-globalnet.sh");
        if !program.is_symlink() {
            std::os::unix::fs::symlink(programs::path("trieste-gateway")?, &program)?;
        }
        Daemon::start(
            &self.lab,
            &format!("{}-globalnet", node.name),
            &files.command(node, program, &environment),
        )
    }

    /// The files of a node's gateway container, also before and after it runs: to change its tokens, or to look at
    /// what it has kept.
    ///
    /// # Errors
    /// If its folders cannot be made.
    pub fn gateway_files(&self, cluster: &str, index: usize) -> anyhow::Result<PodFiles> {
        PodFiles::new(&self.lab, &self.gateway_node(cluster, index).name)
    }

    /// The container of a node's route agent with what upstream's operator would tell it, recorded.
    ///
    /// # Errors
    /// If its folders cannot be made, or the server makes no token.
    pub fn route_agent(&self, cluster: &str, node: &NodePlan) -> anyhow::Result<RouteAgentPod<'_>> {
        let files = PodFiles::new(&self.lab, &format!("{}-routeagent", node.name))?;
        self.write_service_account(cluster, &files, rbac::ROUTE_AGENT)?;
        let KubernetesCluster { plan, server } = self.cluster(cluster);
        let (api_host, api_port) = (server.address().ip().to_string(), server.address().port().to_string());
        let variables = [
            ("NODE_NAME", node.name.as_str()),
            ("KUBERNETES_SERVICE_HOST", &api_host),
            ("KUBERNETES_SERVICE_PORT", &api_port),
            ("SUBMARINER_NAMESPACE", NAMESPACE),
            ("SUBMARINER_CLUSTERID", &plan.id),
            ("SUBMARINER_DEBUG", "true"),
            ("SUBMARINER_CLUSTERCIDR", &list(&plan.pod_cidrs)),
            ("SUBMARINER_SERVICECIDR", &list(&plan.service_cidrs)),
            ("SUBMARINER_GLOBALCIDR", ""),
            ("SUBMARINER_NETWORKPLUGIN", "generic"),
            ("SUBMARINER_HEALTHCHECKENABLED", "true"),
            ("SUBMARINER_HEALTHCHECKINTERVAL", "1"),
            ("SUBMARINER_HEALTHCHECKMAXPACKETLOSSCOUNT", "5"),
        ];
        let environment = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        Ok(RouteAgentPod { lab: &self.lab, node: node.clone(), files, environment })
    }

    /// Writes a fresh token of one of a cluster's own service accounts where the container looks for it.
    ///
    /// # Errors
    /// If the server makes none.
    pub fn write_service_account(
        &self,
        cluster: &str,
        files: &PodFiles,
        account: &str,
    ) -> anyhow::Result<()> {
        let server = &self.cluster(cluster).server;
        let token = server.token(NAMESPACE, account, None)?;
        server.write_credentials(&files.service_account(), NAMESPACE, &token)
    }

    /// Kubeconfigs for a cluster's programs where they do not run as pods, with tokens that are good for an hour.
    ///
    /// # Errors
    /// If a server makes no token.
    pub fn access(&self, cluster: &str) -> anyhow::Result<ApiAccess> {
        let server = &self.cluster(cluster).server;
        Ok(ApiAccess {
            gateway: server.kubeconfig_of(NAMESPACE, rbac::GATEWAY)?,
            route_agent: server.kubeconfig_of(NAMESPACE, rbac::ROUTE_AGENT)?,
            broker: self.broker.kubeconfig_of(BROKER_NAMESPACE, &rbac::cluster_account(cluster))?,
        })
    }

    /// A token of a cluster's account on the broker. It dies with the broker's Secret `BROKER_SECRET-CLUSTER`; the
    /// next call makes that again.
    ///
    /// # Errors
    /// If the broker refuses.
    pub fn broker_token(&self, cluster: &str) -> anyhow::Result<String> {
        let secret = broker_secret(cluster);
        self.broker.create_secret(BROKER_NAMESPACE, &secret)?;
        self.broker.token(BROKER_NAMESPACE, &rbac::cluster_account(cluster), Some(&secret))
    }

    /// Ends every token that a cluster has for the broker.
    ///
    /// # Errors
    /// If the broker refuses.
    pub fn revoke_broker_tokens(&self, cluster: &str) -> anyhow::Result<()> {
        self.broker.delete_secret(BROKER_NAMESPACE, &broker_secret(cluster))
    }
}

impl KubernetesCluster {
    fn start(lab: &Lab, plan: &ClusterPlan, place: &Place) -> anyhow::Result<Self> {
        let name = format!("{}-api", plan.id);
        let mut options = Options::default();
        // Globalnet gives addresses to services of the cluster's own network alone.
        if let (false, Some(services)) = (plan.global_cidrs.is_empty(), plan.service_cidrs.first()) {
            options.services = *services;
        }
        let server = ApiServer::start_with(lab, &name, &place.0, place.1, options)?;
        let client = server.client();
        rbac::prepare_cluster(client)?;
        objects::install_definitions(client)?;
        for node in plan.gateways() {
            objects::create_node(client, node, true, &BTreeMap::new())?;
            objects::create_gateway_pod(client, node)?;
        }
        for node in plan.workers() {
            objects::create_node(client, node, false, &BTreeMap::new())?;
        }
        Ok(Self { plan: plan.clone(), server })
    }

    /// Waits until an object of this kind (plural, such as `endpoints`) is there and `is_good`, in the operator's
    /// namespace.
    ///
    /// # Errors
    /// If that does not happen within `timeout`.
    pub fn wait_object(
        &self,
        plural: &str,
        name: &str,
        timeout: Duration,
        is_good: impl Fn(&serde_json::Value) -> bool,
    ) -> anyhow::Result<serde_json::Value> {
        self.server.client().wait(&format!("{}/{name}", path_of(plural)), timeout, is_good)
    }

    /// The objects of this kind (plural, such as `endpoints`) in the operator's namespace.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn objects(&self, plural: &str) -> anyhow::Result<Vec<serde_json::Value>> {
        self.server.client().list(&path_of(plural))
    }
}

/// Where an API server goes.
type Place = (Namespace, IpAddr);

fn start_broker(lab: &Lab, plan: &Plan, place: &Place) -> anyhow::Result<ApiServer> {
    let server = ApiServer::start(lab, "broker", &place.0, place.1)?;
    rbac::prepare_broker(server.client())?;
    objects::install_definitions(server.client())?;
    for cluster in &plan.clusters {
        rbac::join_broker(server.client(), &cluster.id)?;
    }
    Ok(server)
}

fn broker_secret(cluster: &str) -> String {
    format!("{BROKER_SECRET}-{cluster}")
}

fn path_of(plural: &str) -> String {
    let group = if plural == "leases" { "coordination.k8s.io" } else { "submariner.io" };
    format!("/apis/{group}/v1/namespaces/{NAMESPACE}/{plural}")
}

fn list(nets: &[IpNet]) -> String {
    nets.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn joined<T>(result: std::thread::Result<T>) -> T {
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

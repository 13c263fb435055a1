//! The writers of objects in this gateway's name, except for its heartbeat.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::sync::watch;
use tokio::task::JoinSet;
use trieste_control::admin::Severity;
use trieste_control::api::{ClusterNetworks, EndpointSpec, HaStatus, Kind, ObjectKey, ensure_valid_name};
use trieste_control::election::{Candidate, ElectionConfig, Term};
use trieste_control::leader::LeaderConfig;
use trieste_control::publicip::PublicIp;
use trieste_control::publish::{OwnPod, keep_pod_label};
use trieste_control::recorder::Recorder;
use trieste_control::store::AnyStore;
use trieste_control::sync::SyncConfig;
use trieste_control::{election, leader, live_networks};

use super::environment::Environment;
use super::own_endpoint::OwnEndpoint;
use crate::role::{self, BrokerReport, LeaderTasks};
use crate::shared::SyncTotals;

/// How long the first announcement waits for the public address: peers that take a first one for good get the right one.
const PUBLIC_IP_TIMEOUT: Duration = Duration::from_secs(3);

/// Waits until the public address is known and our Endpoint has it, or it is known to be unknown; not for long. An
/// Endpoint that came first without it would make every peer ask for our address twice.
async fn first_public_ip(
    mut public_ip: watch::Receiver<PublicIp>,
    mut endpoint: watch::Receiver<EndpointSpec>,
) {
    let published = async {
        let is_settled = |known: &PublicIp| known.address.is_some() || known.error.is_some();
        let known = public_ip.wait_for(is_settled).await.ok().and_then(|known| known.address);
        let Some(address) = known.map(|address| address.to_string()) else { return };
        // The sender lives as long as the gateway.
        let _ = endpoint.wait_for(|spec| spec.public_ip == address).await;
    };
    let _ = tokio::time::timeout(PUBLIC_IP_TIMEOUT, published).await;
}

/// Everything that writes objects in this gateway's name, but for its heartbeat.
pub(super) struct ControlTasks {
    pub(super) candidate: Candidate,
    pub(super) broker: watch::Receiver<BrokerReport>,
    /// The newest term in which this gateway became its cluster's Endpoint.
    pub(super) announced: watch::Receiver<Option<Term>>,
    pub(super) recorder: Recorder,
    pub(super) totals: Arc<SyncTotals>,
    /// Each gives its name if it ended although it should not.
    tasks: JoinSet<Option<&'static str>>,
}

impl ControlTasks {
    /// Starts all of them.
    pub(super) fn start(
        environment: &Environment<'_>,
        endpoint: &watch::Receiver<EndpointSpec>,
        networks: &watch::Receiver<ClusterNetworks>,
        own: &OwnEndpoint,
    ) -> Self {
        let Environment { config, node, store, conditions, .. } = environment;
        let election = ElectionConfig::gateway(&config.namespace, &node.hostname, config.election);
        let candidate = election::spawn(store.clone(), election);
        let (recorder, events) = Recorder::new();
        let mut tasks = JoinSet::new();
        let record = role::record(candidate.events(), node.hostname.clone(), recorder.clone());
        tasks.spawn(record.map(|()| None));
        if let AnyStore::Kube(kube) = store {
            let name = ensure_valid_name(&node.hostname);
            let about = ObjectKey::new(Kind::Gateway, &config.namespace, name);
            tasks.spawn(events.write_to(kube.clone(), about, conditions.clone()).map(|()| None));
        }
        let public_ip = own.is_sought.then(|| own.public_ip.public_ip.clone());
        let (announcing, announced) = watch::channel(None);
        let announced_parts = (networks.clone(), endpoint.clone());
        tasks.spawn(announce(environment, &candidate, announced_parts, public_ip, announcing));
        tasks.spawn(keep_networks(environment, &candidate));
        let (status, ha_status) = watch::channel(HaStatus::Passive);
        tasks.spawn(role::publish_ha_status(candidate.clone(), status).map(|()| Some("the election")));
        let pod = own_pod(environment);
        let registry = environment.controllers.clone();
        let labels = keep_pod_label(store.clone(), pod, ha_status, conditions.clone(), registry);
        tasks.spawn(labels.map(|()| None));
        let totals: Arc<SyncTotals> = Arc::default();
        let (view, seen) = watch::channel(BrokerReport::default());
        if let Some(leader_tasks) = leader_tasks(environment, &candidate, networks, &recorder, &totals) {
            tasks.spawn(leader_tasks.run(view).map(|()| Some("the broker's syncer")));
        }
        Self { candidate, broker: seen, announced, recorder, totals, tasks }
    }

    /// Waits until something ends that should run as long as the gateway does.
    pub(super) async fn failed(&mut self) -> anyhow::Error {
        while let Some(ended) = self.tasks.join_next().await {
            match ended {
                Ok(None) => {}
                Ok(Some(name)) => return anyhow::anyhow!("{name} has ended by itself"),
                Err(error) => return anyhow::Error::new(error).context("a control task failed"),
            }
        }
        std::future::pending().await
    }

    /// Ends all of them.
    pub(super) async fn close(mut self) {
        self.tasks.shutdown().await;
    }
}

/// Announces this gateway as its cluster's Endpoint whenever it leads. Gives its name when it ends.
fn announce(
    environment: &Environment<'_>,
    candidate: &Candidate,
    (networks, endpoint): (watch::Receiver<ClusterNetworks>, watch::Receiver<EndpointSpec>),
    public_ip: Option<watch::Receiver<PublicIp>>,
    announcing: watch::Sender<Option<Term>>,
) -> impl Future<Output = Option<&'static str>> + Send + use<> {
    let Environment { config, store, conditions, controllers, .. } = environment;
    let (namespace, cluster_id) = (config.namespace.clone(), config.cluster_id.clone());
    let leader = LeaderConfig { namespace, cluster_id, networks };
    let (store, candidate, conditions) = (store.clone(), candidate.clone(), conditions.clone());
    let controllers = controllers.clone();
    async move {
        if let Some(public_ip) = public_ip {
            first_public_ip(public_ip, endpoint.clone()).await;
        }
        let leader = leader::spawn(store, leader, candidate, endpoint);
        controllers.add("endpoint", leader.runner.metrics.clone());
        role::watch_leader(leader.status.clone(), announcing, conditions).await;
        Some("announcing this gateway")
    }
}

/// Keeps the lists of the cluster's networks that follow its own objects, while this gateway leads. Gives its name when it ends.
fn keep_networks(
    environment: &Environment<'_>,
    candidate: &Candidate,
) -> impl Future<Output = Option<&'static str>> + Send + use<> {
    let Environment { config, store, conditions, controllers, .. } = environment;
    let (namespace, conditions, controllers) =
        (config.namespace.clone(), conditions.clone(), controllers.clone());
    let (store, candidate) = (store.clone(), candidate.clone());
    async move {
        let (sender, mut problems) = watch::channel(None);
        let publish = move |problem: &Option<String>| drop(sender.send_replace(problem.clone()));
        let runner = live_networks::spawn(store, &namespace, candidate, publish);
        controllers.add(live_networks::NAME, runner.metrics.clone());
        loop {
            let problem = problems.borrow_and_update().clone();
            conditions.put("NetworksNotFollowed", Severity::Info, "", problem);
            if problems.changed().await.is_err() {
                return Some("following the cluster's networks");
            }
        }
    }
}

/// Returns the Pod that this gateway labels with its part.
fn own_pod(environment: &Environment<'_>) -> OwnPod {
    let Environment { config, node, .. } = environment;
    OwnPod {
        namespace: config.namespace.clone(),
        name: config.pod_name.clone(),
        node: config.node_name.clone().unwrap_or_else(|| node.hostname.clone()),
    }
}

/// Returns what keeps the local store and the broker in step while this gateway leads, where there is a broker.
fn leader_tasks(
    environment: &Environment<'_>,
    candidate: &Candidate,
    networks: &watch::Receiver<ClusterNetworks>,
    recorder: &Recorder,
    totals: &Arc<SyncTotals>,
) -> Option<LeaderTasks> {
    let Environment { config, store, broker, conditions, controllers, .. } = environment;
    let broker = broker.clone()?;
    let mut sync = SyncConfig::new(&config.cluster_id, networks.borrow().published());
    sync.local_namespace.clone_from(&config.namespace);
    sync.broker_namespace.clone_from(&config.broker_namespace);
    sync.allowed = config.allowed.clone();
    Some(LeaderTasks {
        candidate: candidate.clone(),
        local: store.clone(),
        broker,
        sync,
        networks: networks.clone(),
        conditions: conditions.clone(),
        totals: Arc::clone(totals),
        controllers: controllers.clone(),
        recorder: recorder.clone(),
    })
}

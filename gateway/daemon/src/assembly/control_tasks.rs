//! What writes objects in this gateway's name, but for its heartbeat.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::sync::watch;
use tokio::task::JoinSet;
use trieste_control::api::{EndpointSpec, HaStatus, Kind, ObjectKey, ensure_valid_name};
use trieste_control::conditions::Conditions;
use trieste_control::election::{Candidate, ElectionConfig, Term};
use trieste_control::leader::LeaderConfig;
use trieste_control::publicip::PublicIp;
use trieste_control::publish::{OwnPod, keep_pod_label};
use trieste_control::recorder::Recorder;
use trieste_control::store::AnyStore;
use trieste_control::sync::SyncConfig;
use trieste_control::{election, leader};

use crate::config::Config;
use crate::memory::Remembered;
use crate::node::Node;
use crate::role::{self, BrokerView, Duties};
use crate::shared::{Sources, SyncTotals};

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
pub(super) struct Office {
    pub(super) candidate: Candidate,
    pub(super) broker: watch::Receiver<BrokerView>,
    /// The newest term in which this gateway became its cluster's Endpoint.
    pub(super) announced: watch::Receiver<Option<Term>>,
    pub(super) recorder: Recorder,
    pub(super) totals: Arc<SyncTotals>,
    /// Each gives its name if it ended although it should not.
    pub(super) tasks: JoinSet<Option<&'static str>>,
}

impl Office {
    pub(super) fn open(
        config: &Config,
        node: &Node,
        store: &AnyStore,
        broker: Option<AnyStore>,
        (endpoint, public_ip): (watch::Receiver<EndpointSpec>, Option<watch::Receiver<PublicIp>>),
        conditions: &Conditions,
    ) -> Self {
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
        let duties = LeaderConfig { namespace: config.namespace.clone(), cluster: Node::cluster(config) };
        let (leader_store, candidate_of_leader, said) =
            (store.clone(), candidate.clone(), conditions.clone());
        let (announcing, announced) = watch::channel(None);
        tasks.spawn(async move {
            if let Some(public_ip) = public_ip {
                first_public_ip(public_ip, endpoint.clone()).await;
            }
            let leader = leader::spawn(leader_store, duties, candidate_of_leader, endpoint);
            role::watch_leader(leader.status.clone(), announcing, said).await;
            Some("announcing this gateway")
        });
        let (status, ha_status) = watch::channel(HaStatus::Passive);
        tasks.spawn(role::tell_ha_status(candidate.clone(), status).map(|()| Some("the election")));
        let pod = OwnPod {
            namespace: config.namespace.clone(),
            name: config.pod_name.clone(),
            node: config.node_name.clone().unwrap_or_else(|| node.hostname.clone()),
        };
        tasks.spawn(keep_pod_label(store.clone(), pod, ha_status, conditions.clone()).map(|()| None));
        let totals: Arc<SyncTotals> = Arc::default();
        let (view, seen) = watch::channel(BrokerView::default());
        if let Some(broker) = broker {
            let mut sync = SyncConfig::new(&config.cluster_id, config.published_subnets());
            sync.local_namespace.clone_from(&config.namespace);
            sync.broker_namespace.clone_from(&config.broker_namespace);
            sync.allowed = config.allowed.clone();
            let duties = Duties {
                candidate: candidate.clone(),
                local: store.clone(),
                broker,
                sync,
                conditions: conditions.clone(),
                totals: Arc::clone(&totals),
                recorder: recorder.clone(),
            };
            tasks.spawn(duties.run(view).map(|()| Some("the broker's syncer")));
        }
        Self { candidate, broker: seen, announced, recorder, totals, tasks }
    }

    /// Where numbers are asked for.
    pub(super) fn sources(
        &self,
        store: &AnyStore,
        broker: Option<AnyStore>,
        remembered: Option<&Remembered>,
    ) -> Sources {
        Sources {
            store: store.clone(),
            broker,
            recorder: self.recorder.clone(),
            sync: Arc::clone(&self.totals),
            started_from_memory: remembered.is_some_and(|known| !known.endpoints.is_empty()),
        }
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

    pub(super) async fn close(mut self) {
        self.tasks.shutdown().await;
    }
}

//! Starting and ending what publishes this gateway and follows the others: a controller for each of the two stores, which
//! do not wait for one another, and the driver of the port shares.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{BoxStream, StreamExt as _, select_all};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::broker::{BrokerController, BrokerInput, BrokerStatus, LocalView};
use super::local::{LocalController, LocalInput, LocalStatus};
use super::shares::PortShares;
use super::{Heartbeats, Members, MembersConfig, Publication, Shutdown, further_name, paths_namespace};
use crate::admin::Severity;
use crate::api::{EndpointSpec, Kind, ObjectKey};
use crate::conditions::Conditions;
use crate::runner::{self, ControllerMetrics, Fence, Handle, Limits, WRITE_TIMEOUT, port, values};
use crate::store::{Store, delete_if_exists};

/// The condition that says that this cluster's gateways cannot all be active, and why.
pub const ONE_GATEWAY: &str = "OneActiveGateway";
/// The condition that says that the broker does not take this gateway's further Endpoint.
pub const NOT_ON_BROKER: &str = "GatewayNotOnBroker";

/// What may change at any time.
#[derive(Debug, Clone)]
pub struct Inputs {
    /// The sole form of this gateway's Endpoint.
    pub endpoint: watch::Receiver<EndpointSpec>,
    /// Whether this gateway is to get no new flows.
    pub draining: watch::Receiver<bool>,
    /// The cables to siblings that are not dead.
    pub live: watch::Receiver<BTreeSet<String>>,
    /// Where problems are reported.
    pub conditions: Conditions,
}

/// The other gateways, followed. Dropping it ends it; what it has written stays.
#[derive(Debug)]
pub struct MembersHandle {
    /// The other gateways. What was known before stays known while a store is unavailable.
    pub members: watch::Receiver<Members>,
    /// What the controllers count, by their names.
    pub metrics: Vec<(&'static str, ControllerMetrics)>,
    stop: watch::Sender<Option<Stop>>,
    tasks: JoinSet<()>,
}

/// How everything is to be ended.
#[derive(Debug, Clone, Copy)]
struct Stop {
    shutdown: Shutdown,
    within: Duration,
}

impl MembersHandle {
    /// Removes what this gateway has published of itself, and ends; waits at most `within`. One that is removed also gives up
    /// its shares of the outside ports, and must make no mappings any more.
    pub async fn stop(mut self, shutdown: Shutdown, within: Duration) {
        self.stop.send_replace(Some(Stop { shutdown, within }));
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if timeout(within, all).await.is_err() {
            tracing::warn!("this gateway's further Endpoint may stay behind; its siblings will remove it");
        }
    }
}

/// Starts to publish this gateway and to follow the others, from what was `known` before.
///
/// # Panics
/// Outside a tokio runtime.
pub fn spawn<S: Store + Clone, B: Store>(
    store: S,
    broker: Option<B>,
    config: &MembersConfig,
    inputs: &Inputs,
    known: Members,
) -> MembersHandle {
    let local_view = LocalView { is_multi: known.is_multi, vanished: BTreeSet::new() };
    let (members, all) = watch::channel(known);
    let (stop, stopped) = watch::channel(None);
    let (views, view) = watch::channel(local_view.clone());
    let (first, first_slot) = watch::channel(None);
    let (statuses, status) = watch::channel(LocalStatus {
        is_multi: local_view.is_multi,
        publication: Publication::Pending,
        refusal: None,
        siblings: None,
        vanished: BTreeSet::new(),
        heartbeats: Arc::new(Heartbeats::new(&config.hostname)),
    });
    let mut tasks = JoinSet::new();
    let local = start_local(&store, config, inputs, first_slot, (members.clone(), views, statuses));
    let mut metrics = vec![("members", local.metrics.clone())];
    let endpoint = &inputs.endpoint;
    let namespace = paths_namespace(&config.namespace);
    tasks.spawn(withdraw_at_stop(local, store.clone(), namespace, endpoint.clone(), stopped.clone()));
    if let Some(broker) = broker.map(Arc::new) {
        let controller = start_broker(&broker, config, inputs, view, members.clone());
        metrics.push(("broker-members", controller.metrics.clone()));
        let namespace = config.broker_namespace.clone();
        tasks.spawn(withdraw_at_stop(controller, broker, namespace, endpoint.clone(), stopped.clone()));
    }
    if config.has_slots {
        let shares = PortShares::new(store, config, status, members, first);
        tasks.spawn(shares.run(async move { stop_of(stopped).await.shutdown }));
    }
    MembersHandle { members: all, metrics, stop, tasks }
}

/// Every change of what a gateway publishes of itself is to be written soon, whoever else writes it.
const LIMITS: Limits = Limits { limits_objects: false, ..Limits::DEFAULT };

/// Where the state of the own store is published: to everybody, to the broker's controller, to the driver of the shares.
type LocalOutputs = (watch::Sender<Members>, watch::Sender<LocalView>, watch::Sender<LocalStatus>);

/// Starts the controller of the own store.
fn start_local<S: Store + Clone>(
    store: &S,
    config: &MembersConfig,
    inputs: &Inputs,
    first_slot: watch::Receiver<Option<u8>>,
    (members, views, statuses): LocalOutputs,
) -> Handle {
    let is_multi = members.borrow().is_multi;
    let controller = LocalController::new(config.clone(), inputs.endpoint.borrow().clone(), is_multi);
    let (conditions, config) = (inputs.conditions.clone(), config.clone());
    let inputs = select_all::<[BoxStream<'static, LocalInput>; 4]>([
        values(inputs.endpoint.clone()).map(|endpoint| LocalInput::Endpoint(Box::new(endpoint))).boxed(),
        values(inputs.draining.clone()).map(LocalInput::Draining).boxed(),
        values(inputs.live.clone()).map(LocalInput::LiveCables).boxed(),
        values(first_slot).map(LocalInput::FirstSlot).boxed(),
    ]);
    let publish = move |status: &LocalStatus| {
        let refusal = status.refusal.as_deref().filter(|_| config.is_wanted);
        let message = refusal.map(|reason| one_gateway(reason, &paths_namespace(&config.namespace)));
        conditions.put(ONE_GATEWAY, Severity::Warning, "", message);
        members.send_if_modified(|members| {
            let siblings = status.siblings.as_deref().filter(|siblings| **siblings != *members.siblings);
            let has_changed = siblings.is_some()
                || (members.is_multi, members.publication) != (status.is_multi, status.publication);
            if let Some(siblings) = siblings {
                members.siblings = siblings.to_vec();
            }
            (members.is_multi, members.publication) = (status.is_multi, status.publication);
            has_changed
        });
        views.send_if_modified(|view| {
            let has_changed = view.is_multi != status.is_multi || view.vanished != status.vanished;
            if has_changed {
                *view = LocalView { is_multi: status.is_multi, vanished: status.vanished.clone() };
            }
            has_changed
        });
        statuses.send_replace(status.clone());
    };
    runner::spawn(controller, vec![port(store.clone())], Fence::Open, inputs.boxed(), LIMITS, publish)
}

fn one_gateway(reason: &str, namespace: &str) -> String {
    format!(
        "gateways cannot tell one another of themselves: {reason}; one of this cluster's gateways carries everything and \
         the others stand by. trieste join makes the namespace {namespace} and gives the right"
    )
}

/// Starts the controller of the broker.
fn start_broker<B: Store>(
    broker: &Arc<B>,
    config: &MembersConfig,
    inputs: &Inputs,
    view: watch::Receiver<LocalView>,
    members: watch::Sender<Members>,
) -> Handle {
    let local = view.borrow().clone();
    let controller = BrokerController::new(config.clone(), inputs.endpoint.borrow().clone(), local);
    let conditions = inputs.conditions.clone();
    let inputs = select_all::<[BoxStream<'static, BrokerInput>; 3]>([
        values(inputs.endpoint.clone()).map(|endpoint| BrokerInput::Endpoint(Box::new(endpoint))).boxed(),
        values(inputs.draining.clone()).map(BrokerInput::Draining).boxed(),
        values(view).map(BrokerInput::Local).boxed(),
    ]);
    let publish = move |status: &BrokerStatus| {
        let message = status.refusal.as_ref();
        let message = message.map(|error| format!("remote clusters see one gateway of ours less: {error}"));
        conditions.put(NOT_ON_BROKER, Severity::Warning, "", message);
        let Some(remote) = &status.remote else { return };
        members.send_if_modified(|members| {
            let has_changed = members.remote != *remote;
            members.remote = Arc::clone(remote);
            has_changed
        });
    };
    let port = port(Arc::clone(broker));
    runner::spawn(controller, vec![port], Fence::Open, inputs.boxed(), LIMITS, publish)
}

/// Ends a controller when this gateway is to stop, and removes what it has published.
async fn withdraw_at_stop<S: Store>(
    controller: Handle,
    store: S,
    namespace: String,
    endpoint: watch::Receiver<EndpointSpec>,
    stopped: watch::Receiver<Option<Stop>>,
) {
    let Stop { within, .. } = stop_of(stopped).await;
    // What is on its way must not come after its removal.
    controller.stop(within / 2).await;
    let own = endpoint.borrow().cable_name.clone();
    let Ok(name) = further_name(&own) else { return };
    let object = ObjectKey::new(Kind::Endpoint, namespace, name);
    match timeout(WRITE_TIMEOUT, delete_if_exists(&store, &object)).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::debug!(%object, %error, "cannot remove the further Endpoint"),
        Err(_) => tracing::debug!(%object, "the removal of the further Endpoint was not answered"),
    }
}

/// Waits until this gateway is to stop; for ever if the handle is dropped.
async fn stop_of(mut stopped: watch::Receiver<Option<Stop>>) -> Stop {
    let stop = stopped.wait_for(Option::is_some).await.map(|stop| *stop);
    match stop {
        Ok(Some(stop)) => stop,
        Ok(None) | Err(_) => std::future::pending().await,
    }
}

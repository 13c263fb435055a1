//! The other gateways.

use std::collections::BTreeSet;
use std::time::Instant;

use jiff::Timestamp;
use tokio::sync::watch;
use trieste_control::admin::Severity;
use trieste_control::api::{EndpointSpec, NoticeKey};
use trieste_control::conditions::Conditions;
use trieste_control::members::{self, Inputs, MembersConfig, SlotTimes};

use super::environment::Environment;
use crate::config::Config;
use crate::control::Peers;

/// Starts to publish this gateway's further Endpoint and to watch the others', from their remembered state.
pub(super) fn start(
    environment: &Environment<'_>,
    key: NoticeKey,
    endpoint: &watch::Receiver<EndpointSpec>,
) -> Peers {
    let Environment { config, node, store, broker, remembered, conditions, controllers, .. } = environment;
    let (draining, is_draining) = watch::channel(false);
    let (live_siblings, live) = watch::channel(BTreeSet::new());
    report_plugin(config, conditions);
    report_driver_change(config, conditions);
    let members = MembersConfig {
        namespace: config.namespace.clone(),
        broker_namespace: config.broker_namespace.clone(),
        cluster_id: config.cluster_id.clone(),
        hostname: node.hostname.clone(),
        is_wanted: config.all_gateways_active,
        has_slots: config.has_globalnet(),
        notice_key: Some(key),
        times: SlotTimes::default(),
    };
    let inputs =
        Inputs { endpoint: endpoint.clone(), draining: is_draining, live, conditions: conditions.clone() };
    let known = remembered.as_ref().filter(|_| config.all_gateways_active);
    let known = known.map(|known| known.members.members(Instant::now(), Timestamp::now()));
    let handle = members::spawn(store.clone(), broker.clone(), &members, &inputs, known.unwrap_or_default());
    for (name, metrics) in &handle.metrics {
        controllers.add(name, metrics.clone());
    }
    Peers { handle, draining, live_siblings }
}

/// Reports that the cluster set changes its cable driver, which somebody has to bring to its end.
fn report_driver_change(config: &Config, conditions: &Conditions) {
    let Some(former) = &config.former_cable_driver else { return };
    let newer = &config.cable_driver;
    let why = format!(
        "gateways that do not have the cable driver {newer} yet are connected by {former}; when all clusters of the set \
         have joined with --cable-driver {newer}, join here once more, and {former} is offered no longer"
    );
    conditions.put("FormerDriver", Severity::Info, "", Some(why));
}

/// Reports what the network plugin has to do with the number of active gateways.
fn report_plugin(config: &Config, conditions: &Conditions) {
    let Some(plugin) = &config.own_addressing else { return };
    let (severity, what) = if config.all_gateways_active {
        let what = "answers that come by another gateway than the question went by are lost; active-gateways: one \
                    (trieste join --active-gateways one) has one carry everything";
        (Severity::Warning, what)
    } else {
        (Severity::Info, "one gateway carries traffic, the others stand by")
    };
    let why = format!(
        "the network plugin {plugin} gives pods addresses that Kubernetes does not assign by node: {what}"
    );
    conditions.put("OwnAddressing", severity, "", Some(why));
}

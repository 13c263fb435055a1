//! What follows the stores and tells others, beside the control loop.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use trieste_control::api::EndpointSpec;
use trieste_control::conditions::Conditions;
use trieste_control::store::AnyStore;
use trieste_pipeline::services::Services;

use crate::config::Config;
use crate::control;
use crate::devices::OUTER_MARK;
use crate::engine::Engine;
use crate::natdiscovery::Discovery;
use crate::node::{Found, Node};
use crate::notice::Notices;
use crate::services::Following;

/// Starts to follow which node serves what.
pub(super) fn deliver(
    config: &Config,
    node: &Node,
    store: &AnyStore,
    services: Arc<ArcSwap<Services>>,
    conditions: &Conditions,
) -> tokio::task::JoinHandle<()> {
    let following = Following {
        store: store.clone(),
        namespace: config.namespace.clone(),
        node: config.node_name.clone().unwrap_or_else(|| node.hostname.clone()),
        networks: config.service_cidrs.clone(),
        services,
        conditions: conditions.clone(),
    };
    tokio::spawn(following.run())
}

/// What asks and tells outside of cables: NAT discovery, and notices to route agents.
pub(super) fn outside(
    config: &Config,
    (node, spec, found): (&Node, &EndpointSpec, &Found),
    state_dir: Option<&std::path::Path>,
    engine: &Engine,
    conditions: &Conditions,
) -> anyhow::Result<(Discovery, Notices)> {
    let local = control::discovery_local(config, spec, found, node.private_ip);
    let discovery = Discovery::start(local, state_dir.map(Into::into), OUTER_MARK, conditions.clone());
    let here = SocketAddr::new(node.private_ip, config.notice_port);
    let paths = (Arc::clone(engine.paths()), engine.path_changes());
    let notices = Notices::start(&spec.cable_name, here, state_dir, paths, conditions.clone())
        .context("starting the thread for notices")?;
    Ok((discovery, notices))
}

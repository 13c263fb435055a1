//! The environment of a gateway at its start: stores, the state directory, and the node.

use std::path::Path;
use std::time::Instant;

use trieste_control::admin::Severity;
use trieste_control::api::{ClusterNetworks, Kind, ObjectKey};
use trieste_control::conditions::Conditions;
use trieste_control::runner::ControllerRegistry;
use trieste_control::store::{AnyStore, Location, Store as _};

use crate::config::Config;
use crate::memory::{Memory, Remembered};
use crate::node::Node;
use crate::services::{RememberedServices, ServicesMemory};
use crate::settings::NodeSettings;
use crate::{control, privileges, state, stores};

/// The environment of a gateway.
pub(super) struct Environment<'a> {
    /// When the start began.
    pub(super) started: Instant,
    pub(super) config: &'a Config,
    pub(super) conditions: Conditions,
    /// The controllers of this process, for its metrics.
    pub(super) controllers: ControllerRegistry,
    /// The cluster's own store.
    pub(super) store: AnyStore,
    pub(super) broker: Option<AnyStore>,
    /// The state directory if it can be used.
    pub(super) state_dir: Option<&'a Path>,
    /// The file in it that a restart starts from.
    pub(super) memory: Option<Memory>,
    /// Its content.
    pub(super) remembered: Option<Remembered>,
    /// What the process before delivered packets for services by.
    pub(super) services: Option<RememberedServices>,
    /// The Node object's settings.
    pub(super) settings: NodeSettings,
    /// Whether the settings could not be read, and what was taken instead is a guess.
    pub(super) is_guess: bool,
    pub(super) node: Node,
    /// The cluster's networks.
    pub(super) networks: ClusterNetworks,
}

impl<'a> Environment<'a> {
    /// Opens the stores and looks at state directory and node. Waits for the Node object and the cluster's networks, but not
    /// for long.
    ///
    /// # Errors
    /// Settings of the broker that make no sense, a directory that cannot be made, a node that was another cluster's
    /// gateway or has no address.
    pub(super) async fn read(config: &'a Config) -> anyhow::Result<Self> {
        let started = Instant::now();
        let conditions = privileges::conditions(config);
        let store = stores::local(config)?;
        let broker = stores::broker(config)?;
        let state_dir = usable_state(config, &conditions)?;
        let mut memory = state_dir.map(Memory::new);
        let remembered = memory.as_mut().and_then(Memory::load);
        let services = state_dir.and_then(|dir| ServicesMemory::new(dir).load());
        let ((settings, is_guess), networks) = tokio::join!(
            node_settings(config, &store, remembered.as_ref()),
            control::networks::at_start(config, &store, remembered.as_ref()),
        );
        let node = Node::discover(config, &settings)?;
        Ok(Self {
            started,
            config,
            conditions,
            controllers: ControllerRegistry::default(),
            store,
            broker,
            state_dir,
            memory,
            remembered,
            services,
            settings,
            is_guess,
            node,
            networks,
        })
    }

    /// Returns the name of this node's objects.
    pub(super) fn node_name(&self) -> &str {
        self.config.node_name.as_ref().unwrap_or(&self.node.hostname)
    }
}

/// Returns the state directory if it can be used. Without one nothing is remembered at a start, and peers have to learn
/// a new key.
///
/// # Errors
/// That the node was another cluster's gateway.
fn usable_state<'a>(config: &'a Config, conditions: &Conditions) -> anyhow::Result<Option<&'a Path>> {
    let dir = config.state_dir.as_path();
    if let Err(error) = state::prepare(dir) {
        let message = format!("{error}: every start makes a new key and asks everything anew");
        conditions.set("StateNotKept", Severity::Warning, "", message);
        return Ok(None);
    }
    state::claim_cluster(dir, &config.cluster_id)?;
    // Upstream's DaemonSet mounts nothing.
    if matches!(config.store, Location::Kube { path: None, .. }) && !state::is_volume(dir) {
        let message = format!(
            "{} is no volume: what is kept there goes with this container, the next one makes a new key and asks \
             everything anew; mount a directory of the node there",
            dir.display()
        );
        conditions.set("StateNotOnVolume", Severity::Info, "", message);
    }
    Ok(Some(dir))
}

/// Returns the Node object's settings, asked for or remembered when nobody answers in time, and whether they are a guess.
async fn node_settings(
    config: &Config,
    store: &AnyStore,
    remembered: Option<&Remembered>,
) -> (NodeSettings, bool) {
    let Some(name) = &config.node_name else { return (NodeSettings::default(), false) };
    let known = remembered.and_then(|remembered| remembered.node.clone());
    let key = ObjectKey::new(Kind::Node, "", name);
    match stores::ask_at_start("Node", known.is_some(), async || store.get(&key).await).await {
        Some(node) => (node.as_ref().map(NodeSettings::read).unwrap_or_default(), false),
        None => {
            let is_guess = known.is_none();
            (known.unwrap_or_default(), is_guess)
        }
    }
}

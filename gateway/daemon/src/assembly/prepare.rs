//! What can be refused: the state directory, the settings of the node, devices and the kind of cable.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use trieste_control::admin::Severity;
use trieste_control::api::{Kind, ObjectKey};
use trieste_control::conditions::Conditions;
use trieste_control::store::{AnyStore, Location, Store as _};

use crate::config::Config;
use crate::devices::Devices;
use crate::kinds::{KindContext, Kinds, Made};
use crate::memory::Remembered;
use crate::node::Node;
use crate::settings::NodeSettings;
use crate::state;

/// How often the Node object is asked for at start.
const NODE_RETRY: Duration = Duration::from_millis(250);
/// How long a start waits for the Node object where its settings are remembered, and where they are not.
const NODE_TIMEOUT_REMEMBERED: Duration = Duration::from_millis(250);
const NODE_TIMEOUT: Duration = Duration::from_secs(5);

/// The state directory if it can be used. Without one everything is asked anew at every start, and peers have to learn
/// a new key.
///
/// # Errors
/// That the node was another cluster's gateway.
pub(super) fn usable_state<'a>(
    config: &'a Config,
    conditions: &Conditions,
) -> anyhow::Result<Option<&'a std::path::Path>> {
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

/// The Node object's settings: asked for, or remembered when nobody answers in time. Gives whether they are a guess.
pub(super) async fn node_settings(
    config: &Config,
    store: &AnyStore,
    remembered: Option<&Remembered>,
) -> (NodeSettings, bool) {
    let Some(name) = &config.node_name else { return (NodeSettings::default(), false) };
    let known = remembered.and_then(|remembered| remembered.node.clone());
    let timeout = if known.is_some() { NODE_TIMEOUT_REMEMBERED } else { NODE_TIMEOUT };
    let key = ObjectKey::new(Kind::Node, "", name);
    let asked = async {
        loop {
            match store.get(&key).await {
                Ok(node) => return node,
                Err(error) => tracing::debug!(%error, "the Node object cannot be read yet"),
            }
            tokio::time::sleep(NODE_RETRY).await;
        }
    };
    match tokio::time::timeout(timeout, asked).await {
        Ok(node) => (node.as_ref().map(NodeSettings::read).unwrap_or_default(), false),
        Err(_) => {
            let is_guess = known.is_none();
            (known.unwrap_or_default(), is_guess)
        }
    }
}

/// The devices of the process before this one, or new ones.
pub(super) fn open_devices(config: &Config, node: &Node) -> anyhow::Result<Devices> {
    let inherited = trieste_io::inherited::take();
    if inherited.is_empty() {
        // The Node's own port wins.
        let config = Config { udp_port: node.udp_port, ..config.clone() };
        return Devices::open(&config, node.underlay_mtu);
    }
    Devices::adopt(config, inherited).context("taking over inherited descriptors")
}

/// The kind of cable that is configured.
pub(super) fn make_kind(
    config: &Config,
    kinds: &Kinds,
    state_dir: Option<&std::path::Path>,
    (node, settings): (&Node, &NodeSettings),
    now: Instant,
) -> anyhow::Result<Made> {
    let facts = key_facts(config, node);
    let (udp_port, preferred_server) = (node.udp_port, settings.preferred_server);
    kinds.make(&KindContext { config, state_dir, facts, udp_port, preferred_server, now })
}

/// What peers have to learn with a new key, because upstream ignores other changes under a known one (wireformat §3).
fn key_facts(config: &Config, node: &Node) -> String {
    let mut facts = format!(
        "{:?} {:?} {} {}",
        config.service_cidrs, config.cluster_cidrs, node.private_ip, node.udp_port
    );
    if !config.global_cidrs.is_empty() {
        facts.push_str(&format!(" {:?}", config.global_cidrs));
    }
    facts
}

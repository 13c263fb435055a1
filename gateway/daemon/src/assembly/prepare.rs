//! The first phase: all that can be refused.

use anyhow::Context as _;

use super::environment::Environment;
use super::own_endpoint::OwnEndpoint;
use super::servers::Listeners;
use crate::config::Config;
use crate::devices::Devices;
use crate::kinds::{KindContext, Kinds, Made};
use crate::node::Node;
use crate::submariner;

/// A gateway that can start: whatever may be in the way was asked for. Nothing is published, and nobody reads the
/// devices yet.
pub(super) struct Prepared<'a> {
    pub(super) environment: Environment<'a>,
    pub(super) listeners: Listeners,
    /// The TUN device and the sockets of the workers.
    pub(super) devices: Devices,
    /// The kind of cable.
    pub(super) made: Made,
    pub(super) own: OwnEndpoint,
}

impl<'a> Prepared<'a> {
    /// Prepares a gateway.
    ///
    /// # Errors
    /// The problem, and what to do about it.
    pub(super) async fn new(config: &'a Config, kinds: &Kinds) -> anyhow::Result<Self> {
        let environment = Environment::read(config).await?;
        let listeners = Listeners::bind(config)?;
        let devices = open_devices(config, &environment.node).await?;
        let made = make_kind(kinds, &environment)?;
        let own = OwnEndpoint::find(&environment, &*made.kind);
        Ok(Self { environment, listeners, devices, made, own })
    }
}

/// Takes over the devices of the process before this one, or opens new ones.
async fn open_devices(config: &Config, node: &Node) -> anyhow::Result<Devices> {
    let inherited = trieste_io::inherited::take();
    if inherited.is_empty() {
        // The Node's own port wins.
        let config = Config { udp_port: node.udp_port, ..config.clone() };
        let opened = Devices::open(&config, node.underlay_mtu);
        let Err(error) = opened else { return opened };
        // Submariner's gateway may have left what is in the way.
        return match submariner::remove_devices(&config.tun_name, config.metrics_port).await {
            Ok(true) => Devices::open(&config, node.underlay_mtu),
            Ok(false) => Err(error),
            Err(why) => Err(error.context(format!("{why:#}"))),
        };
    }
    Devices::adopt(config, inherited).context("taking over inherited descriptors")
}

/// Makes the kind of cable that is configured.
fn make_kind(kinds: &Kinds, environment: &Environment<'_>) -> anyhow::Result<Made> {
    let Environment { config, state_dir, node, networks, settings, started, .. } = environment;
    let facts = node.key_facts(networks);
    let (udp_port, preferred_server) = (node.udp_port, settings.preferred_server);
    kinds.make(&KindContext {
        config,
        state_dir: *state_dir,
        facts,
        udp_port,
        preferred_server,
        now: *started,
    })
}

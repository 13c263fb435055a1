//! The control loop: follows the stores, and keeps cables, Endpoint and status up to date.
//!
//! ```text
//!   Endpoints ─────┐                     ┌─▶ engine: cables and tables
//!   discovery ─────┤                     ├─▶ discovery, probes: who is remote
//!   leadership ────┼──▶ control loop ────┼─▶ Endpoint spec ─▶ leader ─▶ local store ─▶ broker
//!   Node, public ──┤                     ├─▶ status document, conditions
//!   IP, addresses ─┤                     └─▶ what is remembered over a restart
//!   Globalnet,     │
//!   settings ──────┘
//! ```
//!
//! Level-driven: whatever changed, everything is worked out again from the newest state of all inputs.

mod addresses;
mod announcement;
mod converge;
mod drain;
mod endpoints;
mod flows;
mod globalnet;
mod inputs;
mod leave;
mod members;
pub(crate) mod networks;
mod peers;
mod report;
mod run;
mod settings;
mod throttle;
mod translate;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use tokio::sync::watch;
use trieste_control::admin::BrokerStatus;
use trieste_control::api::{ClusterNetworks, Endpoint, EndpointSpec};
use trieste_control::conditions::Conditions;
use trieste_control::election::{Candidate, Term};
use trieste_control::health::Probes;
use trieste_control::publicip::PublicIpWatcher;
use trieste_control::recorder::Recorder;
use trieste_control::store::AnyStore;

use crate::config::Config;
use crate::memory::{MemberObjects, MemoryWriter, Remembered};
use crate::natdiscovery::{Discovery, Remotes};
use crate::node::{Found, Node};
use crate::notice::Notices;
use crate::role::BrokerReport;
use crate::shared::Shared;
use crate::status::Fixed;
use crate::tables::Peer;
use crate::unreachable::Unreachable;
use announcement::Announcement;
use drain::Drain;
use endpoints::Endpoints;
use globalnet::RuleState;

pub(crate) use addresses::discovery_local;
pub(crate) use globalnet::Globalnet;
pub(crate) use peers::Peers;
pub(crate) use settings::Settings;

/// The parts that the loop uses.
pub(crate) struct Control<'a> {
    pub(crate) config: &'a Config,
    pub(crate) node: Node,
    pub(crate) store: AnyStore,
    pub(crate) driver: Driver,
    pub(crate) fixed: Fixed,
    pub(crate) shared: Arc<Shared>,
    pub(crate) names: Arc<ArcSwap<BTreeMap<u16, String>>>,
    pub(crate) candidate: Candidate,
    pub(crate) broker: watch::Receiver<BrokerReport>,
    pub(crate) announced: watch::Receiver<Option<Term>>,
    pub(crate) endpoint: watch::Sender<EndpointSpec>,
    pub(crate) networks: watch::Sender<ClusterNetworks>,
    pub(crate) discovery: Discovery,
    pub(crate) notices: Notices,
    pub(crate) unreachable: Unreachable,
    pub(crate) probes: Option<Probes>,
    pub(crate) public_ip: PublicIpWatcher,
    pub(crate) conditions: Conditions,
    pub(crate) recorder: Recorder,
    pub(crate) memory: Option<MemoryWriter>,
    pub(crate) globalnet: Globalnet,
    pub(crate) peers: Peers,
    pub(crate) settings: Settings<'a>,
    pub(crate) state: State,
}

/// The cable driver's part of the Endpoint.
pub(crate) struct Driver {
    pub(crate) name: String,
    pub(crate) backend_config: BTreeMap<String, String>,
}

/// The loop's state.
#[derive(Default)]
pub(crate) struct State {
    found: Found,
    remembered: Option<Remembered>,
    mirror: Endpoints,
    link: BrokerStatus,
    /// Since when another gateway's Endpoint is there while this one does not lead.
    superseded: Option<Instant>,
    /// The cables that are in error, in the status's order, and since when each has been.
    in_error: Vec<(String, Instant)>,
    /// Whether something may have changed that is remembered over a restart.
    is_dirty: bool,
    /// The Endpoints that were remembered, until the store has answered.
    begun_with: Vec<Arc<Endpoint>>,
    /// The remote gateways that discovery looks for.
    remotes: Remotes,
    /// The gateways that are pinged.
    pinged: Vec<Arc<Peer>>,
    /// The cables that readers of their numbers know of: [`crate::engine::Engine::cable_set`].
    noted: Option<u64>,
    /// Which cables have come up, as far as readers know: [`crate::engine::Engine::established_set`].
    established: Option<(u64, u64)>,
    /// What is remembered of the other gateways.
    member_objects: MemberObjects,
    /// Whether the node has been labelled as a gateway.
    was_gateway: bool,
    /// Whether the Node's settings could not be read at start, and what was taken instead is a guess.
    is_guess: bool,
    /// The setting by which the public address is sought, and whether without its load balancers, which lead to another
    /// gateway.
    sought: (Option<String>, bool),
    /// Why this gateway has to start again.
    restart: Option<String>,
    /// The object with the networks.
    announcement: Announcement,
    globalnet: RuleState,
    drain: Drain,
}

impl State {
    /// Makes what is known at start; the public address is sought already.
    pub(crate) fn new(config: &Config, found: Found, remembered: Option<Remembered>, is_guess: bool) -> Self {
        let was_gateway =
            found.settings.is_gateway || remembered.as_ref().is_some_and(|known| known.was_gateway);
        let sought = (found.resolvers(config).map(str::to_owned), false);
        let mirror = Endpoints::of(&config.cluster_id);
        Self { found, remembered, mirror, was_gateway, is_guess, sought, ..Self::default() }
    }
}

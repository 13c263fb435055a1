//! Inputs of the control loop.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::Interval;
use trieste_control::api::Kind;
use trieste_control::election::{Leadership, Term};
use trieste_control::members::Members;
use trieste_control::publicip::PublicIp;
use trieste_control::settings::Seen;
use trieste_control::store::{Store as _, StoreEvent};

use super::Control;
use super::throttle::Throttle;
use super::translate::{self, States};
use crate::natdiscovery::Selections;

/// Ours: the share of a core, in percent, that what the status document says is to take, and the longest that it rests for that.
const STATUS_SHARE: u32 = 4;
const LONGEST_STATUS: Duration = Duration::from_secs(1);
/// Ours: the share of a core, in percent, that cables and tables are to take while Endpoints change, and the longest that a
/// change waits for others for that.
const CONVERGE_SHARE: u32 = 25;
const LONGEST_REST: Duration = Duration::from_millis(100);
/// Ours: the share of a core, in percent, that rules for translation are to take while the controllers' state changes, and
/// the longest that a change waits for others for that.
const TRANSLATE_SHARE: u32 = 25;
const LONGEST_TRANSLATE_REST: Duration = Duration::from_millis(200);
/// How often this node's addresses are looked at.
const ADDRESS_INTERVAL: Duration = Duration::from_secs(5);

/// Something that the loop has to do something about.
pub(super) enum Input {
    /// An event of the Endpoints.
    Endpoint(StoreEvent),
    /// NAT discovery has chosen other addresses.
    Selections,
    /// Cables and tables are due, after a change of either.
    Converge,
    /// An event of the Node object.
    Node(StoreEvent),
    /// An event of the object that says the cluster's networks.
    Networks(StoreEvent),
    /// Something else is known of the cluster's settings.
    Settings,
    /// An event of the own Gateway object.
    Gateway(StoreEvent),
    /// The other gateways are others.
    Members,
    /// A term was begun, renewed or lost.
    Leadership,
    /// The public address, or when it is asked for next.
    PublicIp,
    /// The status document is due.
    Report,
    /// The state of Globalnet's controllers has changed.
    Globalnet,
    /// Rules for translation are due, after such a change.
    Translate,
    /// This node's addresses are to be looked at.
    Addresses,
    /// Somebody wants new keys for all cables.
    Rekey,
}

/// All that the loop waits for, but for its end.
pub(super) struct Inputs {
    /// When cables and tables are made to fit what has changed.
    pub(super) converging: Throttle,
    /// When rules for translation are made to fit the controllers' state.
    pub(super) translating: Throttle,
    /// When what the status document says is taken.
    pub(super) reporting: Throttle,
    endpoints: BoxStream<'static, StoreEvent>,
    node: BoxStream<'static, StoreEvent>,
    gateway: BoxStream<'static, StoreEvent>,
    networks: BoxStream<'static, StoreEvent>,
    settings: watch::Receiver<Seen>,
    leadership: watch::Receiver<Option<Leadership>>,
    /// The term that was seen last.
    term: Option<Term>,
    selections: watch::Receiver<Selections>,
    public_ip: watch::Receiver<PublicIp>,
    members: watch::Receiver<Members>,
    addresses: Interval,
    globalnet: States,
    rekey: Option<Signal>,
}

impl Inputs {
    /// Begins to follow all of them. The status document is due at once.
    pub(super) fn of(control: &Control<'_>) -> Self {
        let mut reporting = Throttle::new(STATUS_SHARE, LONGEST_STATUS);
        reporting.ask(Instant::now());
        Self {
            converging: Throttle::new(CONVERGE_SHARE, LONGEST_REST),
            translating: Throttle::new(TRANSLATE_SHARE, LONGEST_TRANSLATE_REST),
            reporting,
            endpoints: control.store.list_watch(Kind::Endpoint, &control.config.namespace).boxed(),
            node: control.follow_node(),
            gateway: control.follow_gateway(),
            networks: control.follow_networks(),
            settings: control.settings.seen.clone(),
            leadership: control.candidate.leadership(),
            term: None,
            selections: control.discovery.selections(),
            public_ip: control.public_ip.public_ip.clone(),
            members: control.peers.handle.members.clone(),
            addresses: tokio::time::interval(ADDRESS_INTERVAL),
            globalnet: control.globalnet_states(),
            rekey: signal(SignalKind::user_defined1()).ok(),
        }
    }

    /// Waits for the next. Nothing is lost where somebody waits for something else beside it and drops this.
    ///
    /// # Errors
    /// The task that has ended, which should run as long as the gateway.
    pub(super) async fn next(&mut self) -> anyhow::Result<Input> {
        Ok(tokio::select! {
            event = self.endpoints.next() => Input::Endpoint(event.context("the store has no more events")?),
            () = reached(self.converging.due()) => Input::Converge,
            Some(event) = self.node.next() => Input::Node(event),
            Some(event) = self.gateway.next() => Input::Gateway(event),
            Some(event) = self.networks.next() => Input::Networks(event),
            changed = self.settings.changed() => {
                changed.context("following the settings has ended")?;
                Input::Settings
            }
            changed = self.members.changed() => {
                changed.context("following the other gateways has ended")?;
                Input::Members
            }
            changed = self.leadership.changed() => {
                changed.context("the election has ended")?;
                Input::Leadership
            }
            changed = self.selections.changed() => {
                changed.context("NAT discovery has ended")?;
                Input::Selections
            }
            changed = self.public_ip.changed() => {
                changed.context("the public address's watcher has ended")?;
                Input::PublicIp
            }
            () = reached(self.reporting.due()) => Input::Report,
            () = translate::changed(&mut self.globalnet) => Input::Globalnet,
            () = reached(self.translating.due()) => Input::Translate,
            _ = self.addresses.tick() => Input::Addresses,
            () = received(&mut self.rekey) => Input::Rekey,
        })
    }

    /// Returns another event of the Endpoints, if there is one already.
    pub(super) fn another_endpoint(&mut self) -> Option<StoreEvent> {
        self.endpoints.next().now_or_never().flatten()
    }

    /// Returns `true` if this gateway leads in another term than when this was asked last, or leads no more: every renewal
    /// comes by here.
    pub(super) fn has_other_term(&mut self) -> bool {
        let newest = self.leadership.borrow_and_update().map(|held| held.term);
        std::mem::replace(&mut self.term, newest) != newest
    }
}

/// Waits until a moment; for ever if there is none.
pub(super) async fn reached(end: Option<Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end.into()).await,
        None => std::future::pending().await,
    }
}

/// Waits for a signal; for ever if it cannot be had.
async fn received(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}

//! One pass: observe, compute, plan, apply. The shell around the pure parts; it decides nothing about policy.

mod events;
mod outcome;
mod prepare;
mod prepared;
mod reading;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::change::Change;
use crate::clusterset::table::{DesiredClusterset, clusterset_change};
use crate::condition::Condition;
use crate::driver::{Driver, Memory};
use crate::events::Dispatcher;
use crate::grace::Grace;
use crate::hostnet::{Guard, HostNet};
use crate::keep::Closed;
use crate::names::Resolved;
use crate::notices::{ListenerConfig, Live};
use crate::plan::{Plan, plan};
use crate::port::{Host, PortError, Query};
use crate::restore::Restoration;
use crate::schedule::Outcome;
use crate::state::{DeviceAddress, Node};
use crate::takeover::{Sweep, Takeover};
use crate::view::ClusterView;
use crate::zone::Zone;
pub use outcome::Serving;
use outcome::{MOST_LINES, is_closing, is_failure, is_others, is_outdated, serving, shortened, waits_for};
use prepared::{Graces, Last, Lingering, Prepared};
use reading::Reading;

/// The result of a pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pass {
    /// The planned changes.
    pub changes: Vec<Change>,
    /// Everything that is not as wanted, failed changes included.
    pub conditions: BTreeSet<Condition>,
    /// Addresses of the node's devices, as the pass found them.
    pub addresses: BTreeSet<DeviceAddress>,
    /// How it went.
    pub outcome: Outcome,
    /// Whether refusals and packet filter are in place, whatever else failed.
    pub is_closed: bool,
    /// What this node does for services.
    pub serving: Serving,
}

/// Brings one node to what its driver wants, again and again.
pub struct Reconciler<H> {
    host: H,
    driver: &'static dyn Driver,
    node: Node,
    grace: Graces,
    /// Former values of settings: the packet filter's table has them too, but somebody may flush that.
    loosened: BTreeMap<String, u32>,
    /// The packet filter as the last pass left it.
    filter: Restoration,
    /// Where what is closed is kept, and what is.
    kept: Option<(PathBuf, Option<Closed>)>,
    live: watch::Receiver<Live>,
    names: watch::Receiver<Resolved>,
    listener: watch::Sender<ListenerConfig>,
    last_changes: Vec<Change>,
    last_conditions: BTreeSet<Condition>,
    /// The settings and addresses that the last pass needed.
    query: Option<Query>,
    /// The network as the last pass left it, if that is known.
    left: Option<Reading>,
    /// What Submariner's programs have left here, as far as it is still looked for.
    sweep: Sweep,
    /// What the last pass desired.
    memory: Option<Box<dyn Memory>>,
    /// What the network plugin's database has to say.
    zones: watch::Sender<Option<Zone>>,
    /// The driver's handler of events, if it has one.
    events: Dispatcher,
}

impl<H: Host> Reconciler<H> {
    /// Returns a reconciler for a node.
    pub fn new(host: H, driver: &'static dyn Driver, node: Node) -> Self {
        let (last_changes, last_conditions) = (Vec::new(), BTreeSet::new());
        let loosened = BTreeMap::new();
        let (grace, kept) = (Graces::default(), None);
        let (live, listener) =
            (watch::channel(Live::default()).1, watch::channel(ListenerConfig::default()).0);
        let names = watch::channel(Resolved::default()).1;
        let filter = Restoration::default();
        let mut events = Dispatcher::new(&node.plugin);
        if let Some(handler) = driver.handler() {
            events.register(handler);
        }
        Self {
            host,
            driver,
            node,
            grace,
            loosened,
            filter,
            kept,
            live,
            names,
            listener,
            last_changes,
            last_conditions,
            query: None,
            left: None,
            sweep: Sweep::default(),
            memory: None,
            zones: watch::Sender::default(),
            events,
        }
    }

    /// Returns a receiver of what the network plugin's database has to say of remote clusters, if this node is to write that.
    pub fn zones(&self) -> watch::Receiver<Option<Zone>> {
        self.zones.subscribe()
    }

    /// Sets how long a network stays closed after nobody claims it any more.
    #[must_use]
    pub fn with_grace(self, period: Duration) -> Self {
        let grace = || Grace::new(period);
        Self { grace: Graces { claims: grace(), bridges: grace() }, ..self }
    }

    /// Keeps what is closed in a state directory, if there is one.
    #[must_use]
    pub fn with_memory(self, directory: &Path) -> Self {
        Self { kept: Some((directory.to_owned(), None)), ..self }
    }

    /// Takes gateways' standings from the listener for notices, and sends it its configuration.
    #[must_use]
    pub fn with_notices(self, live: watch::Receiver<Live>, listener: watch::Sender<ListenerConfig>) -> Self {
        Self { live, listener, ..self }
    }

    /// Protects the addresses of servers that are known by a name.
    #[must_use]
    pub fn with_names(self, names: watch::Receiver<Resolved>) -> Self {
        Self { names, ..self }
    }

    /// Wakes when names have other addresses.
    pub fn names(&self) -> watch::Receiver<Resolved> {
        self.names.clone()
    }

    /// Returns a receiver that is notified when gateways' standings change.
    pub fn live(&self) -> watch::Receiver<Live> {
        self.live.clone()
    }

    /// Plans a pass without applying it.
    ///
    /// # Errors
    ///
    /// The host could not be observed.
    pub async fn dry_run(&mut self, view: &ClusterView) -> Result<Plan, PortError> {
        self.node.follow(view.own_networks.as_ref());
        Ok(self.prepare(view, &mut self.grace.clone(), Last::nothing()).await?.plan)
    }

    /// Makes one pass.
    ///
    /// # Errors
    ///
    /// The host could not be observed. That a change failed is part of the result.
    pub async fn pass(&mut self, view: &ClusterView) -> Result<Pass, PortError> {
        self.pass_once(view, false).await
    }

    /// Makes one pass for a changed view, planned from the network as the last pass left it: the caller knows that the kernel
    /// has reported no change since. A later [`Reconciler::pass`] reads what came of it.
    ///
    /// # Errors
    ///
    /// As [`Reconciler::pass`].
    pub async fn follow(&mut self, view: &ClusterView) -> Result<Pass, PortError> {
        let was_known = self.left.is_some();
        let pass = self.pass_once(view, true).await?;
        // Something may be different from what was known.
        if was_known && pass.outcome == Outcome::Failed { self.pass(view).await } else { Ok(pass) }
    }

    /// Makes one pass; `is_unchanged` says that the network is as the last one left it.
    async fn pass_once(&mut self, view: &ClusterView, is_unchanged: bool) -> Result<Pass, PortError> {
        // They stay while the object that says them is away.
        self.node.follow(view.own_networks.as_ref());
        let mut grace = self.grace.clone();
        self.live.mark_unchanged();
        let last = Last { left: self.left.take(), is_unchanged, memory: self.memory.take() };
        let prepared = self.prepare(view, &mut grace, last).await?;
        let Prepared { mut plan, memory, reading, listener, is_new, has_filter, had_services, removed } =
            prepared;
        if is_new && self.zones.receiver_count() > 0 {
            let zone = memory.zone();
            self.zones.send_if_modified(|last| std::mem::replace(last, zone.clone()) != zone);
        }
        let hostnet = &memory.desired().hostnet;
        let addresses = reading.observed.addresses.clone();
        let has_events = !self.events.is_empty();
        let state = has_events.then(|| self.state(view, &reading.observed, Lingering::default()));
        self.query = Some(reading.query.clone());
        let mut conditions = plan.conditions.clone();
        conditions.extend(self.keep(hostnet, is_new));
        self.grace = grace;
        self.loosened = plan.loosened.clone();
        let failed = self.apply(&plan, &mut conditions).await;
        // After what closes the node. What the handler refuses comes again in the next pass, and delays nothing.
        conditions.extend(self.send_events(state.as_ref()));
        self.left = reading.after(&plan.changes).filter(|_| failed.is_empty());
        let has_failed = failed.iter().any(|change| matches!(change, Change::Takeover(_)));
        let swept = self.sweep.after(hostnet.takeover, removed, has_failed);
        if has_failed && swept.due(hostnet.takeover) == Takeover::Nothing {
            warn!(
                "what Submariner has left cannot all be removed; the lines before say why, and the next start tries again"
            );
        }
        self.sweep = swept;
        let was_restored = self.note_filter(hostnet, &plan, &failed);
        // Done already, and a change all the same: somebody may undo it time after time.
        plan.changes.extend(was_restored);
        self.listener.send_if_modified(|last| std::mem::replace(last, listener.clone()) != listener);
        // Failures in what is another program's become conditions; they neither delay the rest nor are they undone.
        let is_refused = |change: &&Change| is_others(change) && failed.contains(*change);
        let made: Vec<Change> = plan.changes.iter().filter(|change| !is_refused(change)).cloned().collect();
        let is_repeated = made.len() == self.last_changes.len()
            && made.iter().zip(&self.last_changes).all(|(this, last)| this.repeats(last));
        let outcome = match (is_failure(&failed), made.is_empty()) {
            (true, _) => Outcome::Failed,
            (false, true) => Outcome::Settled,
            (false, false) if is_repeated => Outcome::Repeated,
            (false, false) => Outcome::Changed,
        };
        self.last_changes = made;
        let serving = serving(hostnet, &plan, &failed, had_services);
        let is_closed = has_filter && hostnet.guard.is_some() && !failed.iter().any(is_closing);
        self.memory = Some(memory);
        Ok(Pass { changes: plan.changes, conditions, addresses, outcome, is_closed, serving })
    }

    /// Restores the packet filter of the last pass, if it is missing and a restoration is due. The next pass does the rest.
    pub async fn restore_filter(&mut self, now: Instant) {
        let Some(change) = self.filter.due(now).map(Change::Guard) else { return };
        match self.host.apply(&change).await {
            Ok(()) => {
                info!(driver = self.driver.name(), %change, "packet filter was removed by somebody and is restored");
                self.filter.record();
            }
            // The next pass says what is wrong. Mostly somebody else made it meanwhile.
            Err(error) => debug!(%change, %error, "packet filter not restored"),
        }
    }

    /// Keeps the filter that a pass leaves; returns what was restored before it.
    fn note_filter(&mut self, hostnet: &HostNet, plan: &Plan, failed: &[Change]) -> Option<Change> {
        let has_failed = failed.iter().any(|change| matches!(change, Change::Guard(_)));
        let left = hostnet.guard.clone().filter(|_| !has_failed);
        let left = left.map(|guard| Guard { loosened: plan.loosened.clone(), ..guard });
        self.filter.pass(left).map(Change::Guard)
    }

    /// Plans the changes of [`Reconciler::uninstall`].
    ///
    /// # Errors
    ///
    /// The host could not be observed.
    pub async fn removal(&self) -> Result<Plan, PortError> {
        let observed = self.host.observe(&Query::default()).await?;
        let mut plan = plan(&HostNet::default(), &observed);
        let clusterset = clusterset_change(&DesiredClusterset::Absent, &observed.clusterset);
        plan.changes.extend(clusterset.map(Change::Clusterset));
        plan.conditions.extend(observed.conditions);
        Ok(plan)
    }

    /// Removes everything of ours from the node.
    ///
    /// # Errors
    ///
    /// The host could not be observed. That a change failed is part of the result.
    pub async fn uninstall(&mut self) -> Result<Pass, PortError> {
        // While the node is still closed, and whether or not it can be observed.
        let refused = self.uninstall_handlers();
        let plan = self.removal().await?;
        let mut conditions = plan.conditions.clone();
        let is_clean = self.apply(&plan, &mut conditions).await.is_empty() && refused.is_empty();
        conditions.extend(refused);
        let outcome = if is_clean { Outcome::Changed } else { Outcome::Failed };
        let (addresses, serving) = (BTreeSet::new(), Serving::default());
        Ok(Pass { changes: plan.changes, conditions, addresses, outcome, is_closed: false, serving })
    }

    /// Logs each condition once when it appears and once when it is gone.
    pub fn report(&mut self, conditions: BTreeSet<Condition>) {
        let (lines, more) = shortened(conditions.difference(&self.last_conditions));
        lines.into_iter().for_each(|new| warn!(condition = new.name(), detail = %new, "condition set"));
        more.into_iter()
            .for_each(|(condition, more)| warn!(condition, more, "more conditions of this kind set"));
        let (lines, more) = shortened(self.last_conditions.difference(&conditions));
        lines.into_iter().for_each(|old| info!(condition = old.name(), detail = %old, "condition resolved"));
        more.into_iter()
            .for_each(|(condition, more)| info!(condition, more, "more conditions of this kind resolved"));
        self.last_conditions = conditions;
    }

    /// Writes down what is closed where that changed: before it is, so that a reboot in between finds it.
    fn keep(&mut self, hostnet: &HostNet, is_new: bool) -> Option<Condition> {
        let (directory, kept) = self.kept.as_mut()?;
        if kept.is_some() && !is_new {
            return None;
        }
        let closed = Closed::of(&self.node.cluster, hostnet);
        if kept.as_ref() == Some(&closed) {
            return None;
        }
        match closed.write(directory) {
            Ok(()) => {
                *kept = Some(closed);
                None
            }
            Err(error) => {
                *kept = None;
                Some(Condition::NotKept {
                    directory: directory.display().to_string(),
                    error: error.to_string(),
                })
            }
        }
    }

    /// Applies what can be applied; returns what failed.
    async fn apply(&self, plan: &Plan, conditions: &mut BTreeSet<Condition>) -> Vec<Change> {
        let mut pass = trieste_reconcile::Pass::new(&plan.changes);
        loop {
            let waits = |change: &&Change, failed: &[&Change]| {
                let condition = waits_for(change, failed);
                let has_to_wait = condition.is_some() || is_outdated(change, &self.live);
                conditions.extend(condition.flatten());
                has_to_wait
            };
            let are_routes =
                |last: &&Change, next: &&Change| last.of_route().is_some() && next.of_route().is_some();
            let changes = pass.next_changes(waits, are_routes);
            if changes.is_empty() {
                break;
            }
            let outcomes = self.host.apply_all(&changes).await;
            for (change, outcome) in changes.into_iter().zip(outcomes) {
                conditions.extend(self.log(change, &outcome, pass.made.len()));
                pass.record(change, outcome);
            }
        }
        let made = pass.made.len();
        if made > MOST_LINES {
            info!(driver = self.driver.name(), more = made - MOST_LINES, "more changes of the same pass");
        }
        pass.failed.into_iter().cloned().collect()
    }

    /// Logs what became of a change, one by one only for the first of a pass; returns the condition of one that failed.
    fn log(&self, change: &Change, outcome: &Result<(), PortError>, made: usize) -> Option<Condition> {
        match outcome {
            Ok(()) if made < MOST_LINES => info!(driver = self.driver.name(), %change, "change made"),
            Ok(()) => debug!(driver = self.driver.name(), %change, "change made"),
            Err(PortError::NoNft) => return Some(Condition::NoNft),
            Err(error) => {
                debug!(%change, %error, "cannot apply change");
                return Some(Condition::Failed { change: change.to_string(), error: error.to_string() });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;

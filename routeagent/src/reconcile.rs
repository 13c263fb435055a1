//! One pass: observe, compute, plan, apply. The shell around the pure parts; it decides nothing about policy.

mod outcome;
mod reading;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::change::Change;
use crate::condition::Condition;
use crate::driver::{Desired, Driver};
use crate::grace::Grace;
use crate::guard::ObservedGuard;
use crate::hostnet::{Guard, HostNet};
use crate::keep::Closed;
use crate::names::Resolved;
use crate::notices::{ListenerConfig, Live};
use crate::observed::Observed;
use crate::plan::settings::{host_conditions, reverse_path};
use crate::plan::{Plan, plan};
use crate::port::{Host, PortError, Query};
use crate::restore::Restoration;
use crate::schedule::Outcome;
use crate::services::ObservedServices;
use crate::state::{ClusterState, DeviceAddress, Node, Services};
use crate::view::ClusterView;
pub use outcome::Serving;
use outcome::{
    MOST_LINES, closed, closed_in_kernel, is_closing, is_failure, is_outdated, left_out, serving, settings,
    shortened, waits_for,
};
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

/// The results of preparing a pass.
struct Prepared {
    plan: Plan,
    hostnet: HostNet,
    reading: Reading,
    listener: ListenerConfig,
    /// Whether the packet filter can be read, and so written.
    has_filter: bool,
    /// Whether the kernel had the table of services.
    had_services: bool,
}

/// How long networks stay closed that no longer have to be: those that nobody claims, and those of pods whose device is
/// gone. Of the latter the kernel's routes say nothing, since they could be of the former that became ours.
#[derive(Debug, Clone, Default)]
struct Graces {
    claims: Grace,
    bridges: Grace,
}

/// Networks that stay closed without being desired.
#[derive(Debug, Clone, Default)]
struct Lingering {
    claims: BTreeSet<IpNet>,
    bridges: BTreeSet<IpNet>,
}

/// Brings one node to what its driver wants, again and again.
pub struct Reconciler<H, D> {
    host: H,
    driver: D,
    node: Node,
    grace: Graces,
    /// Former values of settings: the packet filter's table has them too, but somebody may flush that.
    loosened: BTreeMap<String, u32>,
    /// The packet filter as the last pass left it.
    filter: Restoration,
    /// Where what is closed is kept, and what is.
    memory: Option<(PathBuf, Option<Closed>)>,
    live: watch::Receiver<Live>,
    names: watch::Receiver<Resolved>,
    listener: watch::Sender<ListenerConfig>,
    last_changes: Vec<Change>,
    last_conditions: BTreeSet<Condition>,
    /// The settings and addresses that the last pass needed.
    query: Option<Query>,
    /// The network as the last pass left it, if that is known.
    known: Option<Reading>,
}

impl<H: Host, D: Driver> Reconciler<H, D> {
    /// Returns a reconciler for a node.
    pub fn new(host: H, driver: D, node: Node) -> Self {
        let (last_changes, last_conditions) = (Vec::new(), BTreeSet::new());
        let loosened = BTreeMap::new();
        let (grace, memory) = (Graces::default(), None);
        let (live, listener) =
            (watch::channel(Live::default()).1, watch::channel(ListenerConfig::default()).0);
        let names = watch::channel(Resolved::default()).1;
        let filter = Restoration::default();
        Self {
            host,
            driver,
            node,
            grace,
            loosened,
            filter,
            memory,
            live,
            names,
            listener,
            last_changes,
            last_conditions,
            query: None,
            known: None,
        }
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
        Self { memory: Some((directory.to_owned(), None)), ..self }
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
    pub async fn dry_run(&self, view: &ClusterView) -> Result<Plan, PortError> {
        Ok(self.prepare(view, &mut self.grace.clone(), None).await?.plan)
    }

    /// Makes one pass.
    ///
    /// # Errors
    ///
    /// The host could not be observed. That a change failed is part of the result.
    pub async fn pass(&mut self, view: &ClusterView) -> Result<Pass, PortError> {
        self.known = None;
        self.pass_once(view).await
    }

    /// Makes one pass for a changed view, planned from the network as the last pass left it: the caller knows that the kernel
    /// has reported no change since. A later [`Reconciler::pass`] reads what came of it.
    ///
    /// # Errors
    ///
    /// As [`Reconciler::pass`].
    pub async fn follow(&mut self, view: &ClusterView) -> Result<Pass, PortError> {
        let was_known = self.known.is_some();
        let pass = self.pass_once(view).await?;
        // Something may be different from what was known.
        if was_known && pass.outcome == Outcome::Failed { self.pass(view).await } else { Ok(pass) }
    }

    async fn pass_once(&mut self, view: &ClusterView) -> Result<Pass, PortError> {
        let mut grace = self.grace.clone();
        self.live.mark_unchanged();
        let known = self.known.take();
        let prepared = self.prepare(view, &mut grace, known).await?;
        let Prepared { mut plan, hostnet, reading, listener, has_filter, had_services } = prepared;
        let addresses = reading.observed.addresses.clone();
        self.query = Some(reading.query.clone());
        let mut conditions = plan.conditions.clone();
        conditions.extend(self.keep(&hostnet));
        self.grace = grace;
        self.loosened = plan.loosened.clone();
        let failed = self.apply(&plan, &mut conditions).await;
        self.known = reading.after(&plan.changes).filter(|_| failed.is_empty());
        let was_restored = self.note_filter(&hostnet, &plan, &failed);
        // Done already, and a change all the same: somebody may undo it time after time.
        plan.changes.extend(was_restored);
        self.listener.send_if_modified(|last| std::mem::replace(last, listener.clone()) != listener);
        // Failures in another program's filter become conditions; they neither delay the rest nor are they undone.
        let is_refused = |change: &&Change| matches!(change, Change::Foreign(_)) && failed.contains(*change);
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
        let serving = serving(&hostnet, &plan, &failed, had_services);
        let is_closed = has_filter && hostnet.guard.is_some() && !failed.iter().any(is_closing);
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
        plan.conditions.extend(observed.conditions);
        Ok(plan)
    }

    /// Removes everything of ours from the node.
    ///
    /// # Errors
    ///
    /// The host could not be observed. That a change failed is part of the result.
    pub async fn uninstall(&mut self) -> Result<Pass, PortError> {
        let plan = self.removal().await?;
        let mut conditions = plan.conditions.clone();
        let is_clean = self.apply(&plan, &mut conditions).await.is_empty();
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

    /// Plans a pass, from what is known of the network if that is everything that is needed.
    async fn prepare(
        &self,
        view: &ClusterView,
        graces: &mut Graces,
        known: Option<Reading>,
    ) -> Result<Prepared, PortError> {
        let mut reading = match known {
            Some(reading) => reading,
            None => self.read(self.query.clone().unwrap_or_else(|| self.first_query(view))).await?,
        };
        let mut state = self.state(view, &reading.observed, Lingering::default());
        let mut desired = self.driver.desired(&state);
        let needed =
            Query { sysctls: settings(&desired.hostnet), lookup_addresses: state.lookup_addresses() };
        if !reading.has(&needed) {
            reading = self.read(needed).await?;
            state = self.state(view, &reading.observed, Lingering::default());
            desired = self.driver.desired(&state);
        }
        let observed = &reading.observed;
        let claimed = closed(&desired.hostnet);
        let (now, in_kernel) = (Instant::now(), closed_in_kernel(observed));
        let lingering = Lingering {
            claims: graces.claims.update(now, claimed.clone(), &in_kernel),
            bridges: graces.bridges.update(now, state.bridged_networks(), &BTreeSet::new()),
        };
        if !(lingering.claims.is_empty() && lingering.bridges.is_empty()) {
            state = self.state(view, observed, lingering);
            desired = self.driver.desired(&state);
        }
        let Desired { hostnet, conditions } = desired;
        let mut plan = plan(&hostnet, observed);
        plan.conditions.extend(conditions);
        let all_closed = closed(&hostnet);
        let vanished = all_closed.difference(&claimed).filter(|network| !state.unplugged.contains(network));
        plan.conditions.extend(vanished.copied().map(Condition::Vanished));
        plan.conditions.extend(host_conditions(&hostnet, observed));
        plan.conditions.extend(view.conditions.iter().cloned());
        plan.conditions.extend(left_out(&state, &self.live.borrow()));
        plan.conditions.extend(observed.conditions.iter().cloned());
        let has_filter = observed.guard != ObservedGuard::Unknown;
        let had_services = matches!(observed.services, ObservedServices::Present(_));
        let local = hostnet.vxlan.as_ref().map(|vxlan| vxlan.local);
        let listener = ListenerConfig {
            local,
            gateways: state.notice_senders(),
            nexthop_groups: hostnet.nexthop_groups.clone(),
        };
        Ok(Prepared { plan, hostnet, reading, listener, has_filter, had_services })
    }

    /// Returns what the first pass reads: the settings to read follow from the device names, those from the view alone.
    fn first_query(&self, view: &ClusterView) -> Query {
        let blind = self.state(view, &Observed::default(), Lingering::default());
        let provisional = self.driver.desired(&blind);
        Query { sysctls: settings(&provisional.hostnet), lookup_addresses: blind.lookup_addresses() }
    }

    async fn read(&self, query: Query) -> Result<Reading, PortError> {
        let mut observed = self.host.observe(&query).await?;
        observed.remember(&self.loosened);
        Ok(Reading { query, observed })
    }

    /// Writes down what is closed where that changed: before it is, so that a reboot in between finds it.
    fn keep(&mut self, hostnet: &HostNet) -> Option<Condition> {
        let (directory, kept) = self.memory.as_mut()?;
        let closed = Closed::of(&self.node.cluster, hostnet);
        if kept.as_ref() == Some(&closed) {
            return None;
        }
        match closed.write(directory) {
            Ok(()) => {
                *kept = Some(closed);
                None
            }
            Err(error) => Some(Condition::NotKept {
                directory: directory.display().to_string(),
                error: error.to_string(),
            }),
        }
    }

    fn state(&self, view: &ClusterView, observed: &Observed, lingering: Lingering) -> ClusterState {
        ClusterState {
            node: self.node.clone(),
            endpoints: view.endpoints.clone(),
            members: view.members.clone(),
            live: self.live.borrow().gateways.clone(),
            has_nexthops: observed.has_nexthops,
            is_strict: observed.sysctls.get(&reverse_path()) == Some(&1),
            clusters: view.clusters.clone(),
            nodes: view.nodes.clone(),
            servers: view.servers.clone(),
            named: self.names.borrow().addresses.clone(),
            addresses: observed.addresses.clone(),
            mtus: observed.links.iter().map(|(name, link)| (name.clone(), link.mtu)).collect(),
            resolved_routes: observed.resolved_routes.clone(),
            lingering: lingering.claims,
            unplugged: lingering.bridges,
            services: Services {
                // Gateways that go on alone still send as before: flows must not end with the others.
                is_wanted: view.services.is_wanted
                    || matches!(observed.services, ObservedServices::Present(_)),
                here: view.services.here.clone(),
            },
            is_agent_foreign: view.is_agent_foreign,
        }
    }

    /// Applies what can be applied; returns what failed.
    async fn apply(&self, plan: &Plan, conditions: &mut BTreeSet<Condition>) -> Vec<Change> {
        let (mut failed, mut made) = (Vec::new(), 0);
        for change in &plan.changes {
            if is_outdated(change, &self.live) {
                continue;
            }
            if let Some(condition) = waits_for(change, &failed) {
                conditions.extend(condition);
                continue;
            }
            match self.host.apply(change).await {
                Ok(()) => {
                    made += 1;
                    match made {
                        ..=MOST_LINES => info!(driver = self.driver.name(), %change, "change made"),
                        _ => debug!(driver = self.driver.name(), %change, "change made"),
                    }
                }
                Err(error) => {
                    debug!(%change, %error, "cannot apply change");
                    failed.push(change.clone());
                    conditions.insert(if let PortError::NoNft = error {
                        Condition::NoNft
                    } else {
                        Condition::Failed { change: change.to_string(), error: error.to_string() }
                    });
                }
            }
        }
        if made > MOST_LINES {
            info!(driver = self.driver.name(), more = made - MOST_LINES, "more changes of the same pass");
        }
        failed
    }
}

#[cfg(test)]
mod tests;

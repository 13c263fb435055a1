//! What is desired of the node in a pass, and what it takes to get there.

use std::collections::BTreeSet;
use std::time::Instant;

use ipnet::IpNet;
use trieste_control::admin::Severity;

use super::Reconciler;
use super::outcome::{closed, left_out, settings};
use super::prepared::{Graces, Last, Lingering, Prepared};
use super::reading::Reading;
use crate::change::Change;
use crate::clusterset;
use crate::clusterset::table::clusterset_change;
use crate::condition::Condition;
use crate::driver::{Desired, Memory, missing_synchronizer};
use crate::guard::ObservedGuard;
use crate::notices::ListenerConfig;
use crate::observed::Observed;
use crate::plan::plan_routes;
use crate::plan::settings::{host_conditions, reverse_path};
use crate::port::{Host, PortError, Query};
use crate::services::ObservedServices;
use crate::state::{ClusterState, Services};
use crate::submariner::removals;
use crate::view::ClusterView;

/// What is desired, and what is said of it.
struct Wanted {
    memory: Box<dyn Memory>,
    conditions: Vec<Condition>,
    listener: ListenerConfig,
    /// Destinations of routes that may be other than desired; `None` if all may be.
    destinations: Option<BTreeSet<IpNet>>,
    is_new: bool,
}

impl<H: Host> Reconciler<H> {
    /// Plans a pass, from what is known of the network if that is everything that is needed.
    pub(super) async fn prepare(
        &self,
        view: &ClusterView,
        graces: &mut Graces,
        last: Last,
    ) -> Result<Prepared, PortError> {
        let Last { left, is_unchanged, memory } = last;
        let is_known = is_unchanged && left.is_some();
        let (mut reading, left) = match left {
            Some(reading) if is_known => (reading, None),
            left => {
                let query = self.last_query();
                (self.read(query.unwrap_or_else(|| self.first_query(view))).await?, left)
            }
        };
        let followed = memory.and_then(|memory| {
            let different = match &left {
                _ if is_known => Some(BTreeSet::new()),
                Some(left) => Some(reading.routes.difference(&left.routes)),
                None => None,
            };
            let is_settled = match &left {
                Some(left) => reading.is_settled_as(left),
                None => is_known && reading.is_as_desired,
            };
            self.follow_view(view, graces, memory, (&reading, different, is_settled))
        });
        let wanted = match followed {
            Some(wanted) => wanted,
            None => {
                let (wanted, again) = self.compute(view, graces, reading).await?;
                reading = again;
                wanted
            }
        };
        let Wanted { memory, conditions, listener, destinations, is_new } = wanted;
        let (desired, observed) = (memory.desired(), &reading.observed);
        let mut plan = plan_routes(&desired.hostnet, observed, &reading.routes, destinations.as_ref());
        let (clusterset, conditions_of_ips) = clusterset::desired(&self.node, &view.clusterset);
        plan.changes.extend(clusterset_change(&clusterset, &observed.clusterset).map(Change::Clusterset));
        let removals = removals(&desired.hostnet, observed, self.sweep.due(desired.hostnet.takeover));
        let is_seen = observed.guard != ObservedGuard::Unknown && !observed.leftover.is_incomplete;
        let removed = is_seen.then_some(removals.len());
        plan.changes.extend(removals.into_iter().map(Change::Takeover));
        let is_as_desired = plan.conditions.iter().all(|condition| condition.severity() != Severity::Error);
        plan.conditions.extend(desired.conditions.iter().cloned());
        plan.conditions.extend(conditions);
        plan.conditions.extend(conditions_of_ips);
        plan.conditions.extend(host_conditions(&desired.hostnet, observed));
        plan.conditions.extend(view.conditions.iter().cloned());
        plan.conditions.extend(observed.conditions.iter().cloned());
        let has_filter = observed.guard != ObservedGuard::Unknown;
        let had_services = match observed.services {
            ObservedServices::Unknown => None,
            ObservedServices::Absent => Some(false),
            ObservedServices::Present(_) => Some(true),
        };
        reading.is_as_desired = is_as_desired;
        Ok(Prepared { plan, memory, reading, listener, is_new, has_filter, had_services, removed })
    }

    /// Computes what is desired from what was desired last; `None` where all of it has to be computed. `different` has the
    /// destinations of routes that are not as the last pass left them, if that is known.
    fn follow_view(
        &self,
        view: &ClusterView,
        graces: &mut Graces,
        mut memory: Box<dyn Memory>,
        (reading, different, is_settled): (&Reading, Option<BTreeSet<IpNet>>, bool),
    ) -> Option<Wanted> {
        let mut state = self.surroundings(view, &reading.observed);
        let now = Instant::now();
        state.unplugged = graces.bridges.update(now, state.bridged_networks(), &BTreeSet::new());
        let turnover = memory.follow(&state, view)?;
        let routes = &reading.routes;
        let newly_refused = match &different {
            Some(networks) => networks.iter().filter(|net| routes.refuse(net)).copied().collect(),
            None => routes.refused(),
        };
        let lingering = graces.claims.follow(now, &turnover, &newly_refused, |net| routes.refuse(net));
        let mut destinations = memory.close(&lingering)?;
        let is_new = !destinations.is_empty();
        destinations.extend(different.iter().flatten());
        let mut conditions = left_out(&state, &self.live.borrow());
        conditions.extend(missing_synchronizer(self.driver, &state));
        conditions.extend(memory.vanished().iter().copied().map(Condition::Vanished));
        let listener = listener(&state, memory.desired());
        let destinations = Some(destinations).filter(|_| is_settled);
        Some(Wanted { memory, conditions, listener, destinations, is_new })
    }

    /// Computes what is desired from the whole state; reads the network again where more of it is needed.
    async fn compute(
        &self,
        view: &ClusterView,
        graces: &mut Graces,
        mut reading: Reading,
    ) -> Result<(Wanted, Reading), PortError> {
        let mut state = self.state(view, &reading.observed, Lingering::default());
        let mut desired = self.driver.desired(&state);
        let needed = self.query(&state, &desired);
        if !reading.has(&needed) {
            reading = self.read(needed).await?;
            state = self.state(view, &reading.observed, Lingering::default());
            desired = self.driver.desired(&state);
        }
        let claimed = closed(&desired.hostnet);
        let (now, in_kernel) = (Instant::now(), reading.routes.refused());
        let lingering = Lingering {
            claims: graces.claims.update(now, claimed.clone(), &in_kernel),
            bridges: graces.bridges.update(now, state.bridged_networks(), &BTreeSet::new()),
        };
        if !(lingering.claims.is_empty() && lingering.bridges.is_empty()) {
            state = self.state(view, &reading.observed, lingering);
            desired = self.driver.desired(&state);
        }
        let all_closed = closed(&desired.hostnet);
        let vanished = all_closed.difference(&claimed).filter(|network| !state.unplugged.contains(network));
        let mut conditions = left_out(&state, &self.live.borrow());
        conditions.extend(missing_synchronizer(self.driver, &state));
        conditions.extend(vanished.copied().map(Condition::Vanished));
        let listener = listener(&state, &desired);
        let memory = self.driver.remember(state, desired);
        Ok((Wanted { memory, conditions, listener, destinations: None, is_new: true }, reading))
    }

    /// Returns what the last pass needed, without what is not looked for any more.
    fn last_query(&self) -> Option<Query> {
        let query = self.query.clone()?;
        Some(Query { takeover: self.sweep.due(query.takeover), ..query })
    }

    /// Returns what the first pass reads: the settings to read follow from the device names, those from the view alone.
    fn first_query(&self, view: &ClusterView) -> Query {
        let blind = self.state(view, &Observed::default(), Lingering::default());
        let provisional = self.driver.desired(&blind);
        self.query(&blind, &provisional)
    }

    fn query(&self, state: &ClusterState, desired: &Desired) -> Query {
        let mut lookup_addresses = state.lookup_addresses();
        lookup_addresses.extend(self.driver.lookups(state));
        let takeover = self.sweep.due(desired.hostnet.takeover);
        Query { sysctls: settings(&desired.hostnet), lookup_addresses, takeover }
    }

    async fn read(&self, query: Query) -> Result<Reading, PortError> {
        let mut observed = self.host.observe(&query).await?;
        observed.remember(&self.loosened);
        Ok(Reading::new(query, observed))
    }

    /// Returns the whole state.
    pub(super) fn state(
        &self,
        view: &ClusterView,
        observed: &Observed,
        lingering: Lingering,
    ) -> ClusterState {
        ClusterState {
            endpoints: view.endpoints.clone(),
            clusters: view.clusters.clone(),
            lingering: lingering.claims,
            unplugged: lingering.bridges,
            ..self.surroundings(view, observed)
        }
    }

    /// Returns what is known of services. A gateway that goes on alone sends, and is sent to, as it was with the others: flows
    /// must not end with those.
    fn services(&self, view: &ClusterView, observed: &Observed) -> Services {
        let before = match &observed.services {
            ObservedServices::Present(table) => Some(table),
            ObservedServices::Unknown | ObservedServices::Absent => None,
        };
        let mut pods = self.node.pod_networks.iter();
        let was_asymmetric = before.is_some_and(|table| pods.any(|network| table.leaves_untracked(network)));
        Services {
            is_wanted: view.services.is_wanted || before.is_some(),
            is_asymmetric: view.services.is_asymmetric || was_asymmetric,
            here: view.services.here.clone(),
        }
    }

    /// Returns the state but for remote clusters and networks that stay closed.
    pub(super) fn surroundings(&self, view: &ClusterView, observed: &Observed) -> ClusterState {
        let own = view.endpoints.iter().filter(|endpoint| endpoint.cluster == self.node.cluster);
        ClusterState {
            node: self.node.clone(),
            endpoints: own.cloned().collect(),
            members: view.members.clone(),
            live: self.live.borrow().gateways.clone(),
            has_nexthops: observed.has_nexthops,
            is_strict: observed.sysctls.get(&reverse_path()) == Some(&1),
            clusters: Vec::new(),
            nodes: view.nodes.clone(),
            servers: view.servers.clone(),
            named: self.names.borrow().addresses.clone(),
            addresses: observed.addresses.clone(),
            mtus: observed.links.iter().map(|(name, link)| (name.clone(), link.mtu)).collect(),
            resolved_routes: observed.resolved_routes.clone(),
            lingering: BTreeSet::new(),
            unplugged: BTreeSet::new(),
            services: self.services(view, observed),
            is_agent_foreign: view.is_agent_foreign,
        }
    }
}

fn listener(state: &ClusterState, desired: &Desired) -> ListenerConfig {
    ListenerConfig {
        local: desired.hostnet.vxlan.as_ref().map(|vxlan| vxlan.local),
        gateways: state.notice_senders(),
        nexthop_groups: desired.hostnet.nexthop_groups.clone(),
    }
}

//! Replacing the gateways' pods one by one, each drained first, and stopping when health falls.
//!
//! ```text
//!   observe ──▶ View ──▶ Roll::next ──▶ Step ──▶ drain, restart, undrain, or wait ──▶ observe …
//! ```
//!
//! While it goes on the DaemonSet's update strategy is `OnDelete`, so that Kubernetes replaces nothing by itself. How far it is
//! stands in the objects alone: which pods are of the present template, and which gateway is drained for it. So a roll that was
//! interrupted is continued by the next one, and going back is a roll like any other. A gateway that ends takes its object with
//! it, the mark of its drain among that: the new one takes flows as soon as its node and its paths are ready.

mod hold;
mod observe;
mod run;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

pub(crate) use hold::hold;
pub(crate) use run::run;

/// How long a gateway is waited for that flows still come by after it was asked to hand them over: clusters that know one gateway
/// per cluster go on sending to the leader.
const DRAIN_LIMIT: Duration = Duration::from_secs(30);

/// A node's gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Gateway {
    /// The node.
    pub(crate) node: String,
    /// Whether the node is ready: on others no pod comes or goes.
    pub(crate) is_node_ready: bool,
    /// Its pod, if there is one.
    pub(crate) pod: Option<Pod>,
    /// The name of its Gateway object, if there is one.
    pub(crate) object: Option<String>,
    /// Whether it carries traffic, as opposed to standing by.
    pub(crate) is_active: bool,
    /// Whether it has the lead.
    pub(crate) is_leader: bool,
    /// Whether somebody has asked for a drain.
    pub(crate) is_asked: bool,
    /// Whether that was for a roll.
    pub(crate) is_for_update: bool,
    /// How far it has handed its flows over.
    pub(crate) drain: Drain,
    /// The remote clusters that it lists, and whether it reaches them.
    pub(crate) clusters: BTreeMap<String, bool>,
    /// Whether the list is cut short.
    pub(crate) is_cut: bool,
}

/// A gateway's pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Pod {
    pub(crate) name: String,
    /// Whether it is of the DaemonSet's present template.
    pub(crate) is_current: bool,
    pub(crate) is_ready: bool,
    /// Whether its deletion was asked for.
    pub(crate) is_ending: bool,
}

/// How far a gateway has handed its flows over. One that has just started is [`Drain::Going`], too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Drain {
    /// It takes flows.
    #[default]
    No,
    /// Flows may still come.
    Going,
    /// Nothing comes any more.
    Done,
}

/// What is there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// Whether Kubernetes has taken note of the DaemonSet as it is.
    pub(crate) is_observed: bool,
    /// How many more pods there are to be.
    pub(crate) missing: usize,
    /// By node.
    pub(crate) gateways: Vec<Gateway>,
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Every gateway that can be replaced is of the present template, and none is drained for it.
    Done,
    /// Ask this gateway to hand its flows over.
    Drain(Gateway),
    /// Delete this gateway's pod, although or because.
    Restart(Gateway, Why),
    /// Let this gateway take flows again.
    Undrain(Gateway),
    /// Nothing yet.
    Wait(Reason),
}

/// Why a gateway's pod may be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// It is not ready: what comes in its place can only be better.
    NotReady,
    /// It stands by.
    StandsBy,
    /// It has handed its flows over.
    Drained,
    /// It was asked to, for long enough.
    StillDraining,
    /// It carries everything, and one that stands by takes over.
    TakenOver,
    /// There is no other.
    Alone,
}

/// Why nothing can be done yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Kubernetes has not taken note of the DaemonSet.
    NotObserved,
    /// So many pods are not there.
    Missing(usize),
    /// A pod of the present template is not ready.
    NotReady { node: String },
    /// A gateway does not reach clusters that it has reached.
    NotReaching { node: String, clusters: Vec<String> },
    /// A gateway that has started does not take flows yet.
    NotTaking { node: String },
    /// There are fewer gateways that carry traffic than when the roll began.
    NotActive { now: usize, before: usize },
    /// Flows still come by a gateway.
    Draining { node: String },
    /// A gateway carries everything, since no other one takes flows at present.
    Alone { node: String },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotObserved => write!(f, "Kubernetes did not take note of the gateways' DaemonSet"),
            Self::Missing(count) => write!(f, "{count} pods of gateways were not there"),
            Self::NotReady { node } => write!(f, "the new pod of gateway {node} was not ready"),
            Self::NotReaching { node, clusters } => {
                write!(f, "gateway {node} did not reach {}, which it had reached", clusters.join(", "))
            }
            Self::NotTaking { node } => write!(f, "gateway {node} did not take flows"),
            Self::NotActive { now, before } => {
                write!(f, "{now} gateways were active, and {before} had been before")
            }
            Self::Alone { node } => {
                write!(
                    f,
                    "no other gateway took flows in the place of {node}: it is drained, starting, or on a node that is away"
                )
            }
            Self::Draining { node } => write!(f, "gateway {node} did not hand its flows over"),
        }
    }
}

/// A roll: what gateways that are still to be replaced have reached when it began is to be reached throughout, and as many are to
/// carry traffic.
#[derive(Debug, Clone, Default)]
pub(crate) struct Roll {
    reached: BTreeMap<String, BTreeSet<String>>,
    active: usize,
}

impl Roll {
    /// Begins one.
    pub(crate) fn new(view: &View) -> Self {
        let reached = |gateway: &Gateway| {
            let reached = gateway.clusters.iter().filter(|(_, is_reached)| **is_reached);
            (gateway.node.clone(), reached.map(|(cluster, _)| cluster.clone()).collect())
        };
        // One that an earlier run has replaced, and that may be why it has stopped, is no measure.
        let former = view.gateways.iter().filter(|gateway| !is_current(gateway));
        let active = view.gateways.iter().filter(|gateway| is_live(gateway) && gateway.is_active).count();
        Self { reached: former.map(reached).collect(), active }
    }

    /// Returns what is to be done, `waited` after the last thing that was done.
    pub(crate) fn next(&self, view: &View, waited: Duration) -> Step {
        if !view.is_observed {
            return Step::Wait(Reason::NotObserved);
        }
        let mut live: Vec<&Gateway> = view.gateways.iter().filter(|gateway| is_live(gateway)).collect();
        live.sort_by_key(|gateway| order(gateway));
        if let Some(step) = self.before_the_next(view, &live) {
            return step;
        }
        match live.iter().find(|gateway| !is_current(gateway)) {
            Some(gateway) => replace(gateway, view, &live, waited),
            // Marks of gateways that went before they were replaced.
            None => match view.gateways.iter().find(|gateway| gateway.is_asked && gateway.is_for_update) {
                Some(gateway) => Step::Undrain(gateway.clone()),
                None => Step::Done,
            },
        }
    }

    /// Returns what comes before the next gateway: what has begun is brought to its end, and all is well.
    fn before_the_next(&self, view: &View, live: &[&Gateway]) -> Option<Step> {
        let pods = || live.iter().filter_map(|gateway| Some((*gateway, gateway.pod.as_ref()?)));
        let wait = |reason| Some(Step::Wait(reason));
        if let Some((gateway, _)) = pods().find(|(_, pod)| pod.is_current && (pod.is_ending || !pod.is_ready))
        {
            return wait(Reason::NotReady { node: gateway.node.clone() });
        }
        if pods().any(|(_, pod)| pod.is_ending) || view.missing > 0 {
            return wait(Reason::Missing(view.missing.max(1)));
        }
        // One that carries nothing as it is: what comes in its place can only be better.
        if let Some((gateway, _)) = pods().find(|(_, pod)| !pod.is_ready) {
            return Some(Step::Restart(gateway.clone(), Why::NotReady));
        }
        let now = live.iter().filter(|gateway| gateway.is_active).count();
        if now < self.active {
            return wait(Reason::NotActive { now, before: self.active });
        }
        for gateway in live {
            let clusters = self.unreached(gateway, live);
            if !clusters.is_empty() {
                return wait(Reason::NotReaching { node: gateway.node.clone(), clusters });
            }
        }
        let current = || live.iter().filter(|gateway| is_current(gateway));
        if let Some(gateway) = current().find(|gateway| gateway.is_asked && gateway.is_for_update) {
            return Some(Step::Undrain((*gateway).clone()));
        }
        let starting = current().find(|gateway| !gateway.is_asked && gateway.drain != Drain::No);
        starting.and_then(|gateway| wait(Reason::NotTaking { node: gateway.node.clone() }))
    }

    /// Returns what an active gateway does not reach and has reached when the roll began; of one that stood by then, what any
    /// gateway has. A cluster that no other gateway lists any more has left the set.
    fn unreached(&self, gateway: &Gateway, live: &[&Gateway]) -> Vec<String> {
        if !gateway.is_active {
            return Vec::new();
        }
        let own = self.reached.get(&gateway.node).filter(|reached| !reached.is_empty());
        let wanted: BTreeSet<&String> = match own {
            Some(own) => own.iter().collect(),
            None => self.reached.values().flatten().collect(),
        };
        let others = || live.iter().filter(|other| other.node != gateway.node && other.is_active);
        // By the word of others, or of one that lists some.
        let has_left = |cluster: &String| {
            !(gateway.clusters.is_empty() && others().next().is_none())
                && others().all(|other| !other.is_cut && !other.clusters.contains_key(cluster))
        };
        let is_missed = |cluster: &&&String| match gateway.clusters.get(**cluster) {
            Some(is_reached) => !is_reached,
            None => !gateway.is_cut && !has_left(cluster),
        };
        wanted.iter().filter(is_missed).map(|cluster| (*cluster).clone()).collect()
    }
}

/// Drains and replaces a gateway of an earlier template.
fn replace(gateway: &Gateway, view: &View, live: &[&Gateway], waited: Duration) -> Step {
    let others = || live.iter().filter(|other| other.node != gateway.node);
    let takes = |other: &&&Gateway| other.is_active && !other.is_asked && other.drain == Drain::No;
    let restart = |why| Step::Restart(gateway.clone(), why);
    let alone = || Step::Wait(Reason::Alone { node: gateway.node.clone() });
    if !gateway.is_active || gateway.object.is_none() {
        return restart(Why::StandsBy);
    }
    if !others().any(|other| takes(&other)) {
        let is_on_lost_node = |other: &Gateway| other.node != gateway.node && !other.is_node_ready;
        return match () {
            () if others().any(|other| !other.is_active) => restart(Why::TakenOver),
            () if others().next().is_some() => alone(),
            // A node that is starting again comes back; one that is dead does not.
            () if waited < DRAIN_LIMIT && view.gateways.iter().any(is_on_lost_node) => alone(),
            () => restart(Why::Alone),
        };
    }
    match gateway.drain {
        _ if !gateway.is_asked => Step::Drain(gateway.clone()),
        Drain::Done => restart(Why::Drained),
        Drain::No | Drain::Going if waited < DRAIN_LIMIT => {
            Step::Wait(Reason::Draining { node: gateway.node.clone() })
        }
        Drain::No | Drain::Going => restart(Why::StillDraining),
    }
}

/// Returns where a gateway stands in the order: those in hand first, then those that stand by, and the leader last, which hands the
/// lead over once.
fn order(gateway: &Gateway) -> (bool, bool, bool, String) {
    (!gateway.is_for_update, gateway.is_active, gateway.is_leader, gateway.node.clone())
}

/// Returns `true` if a gateway can be replaced: it has a pod, on a node that answers.
fn is_live(gateway: &Gateway) -> bool {
    gateway.is_node_ready && gateway.pod.is_some()
}

fn is_current(gateway: &Gateway) -> bool {
    gateway.pod.as_ref().is_some_and(|pod| pod.is_current)
}

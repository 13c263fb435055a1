//! Doing something to one gateway while flows are probed: what it is, how it is done and undone, and whom it concerned.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Context;

use super::Mesh;
use super::carriers::Carriers;
use super::cut::Cut;
use crate::fault::Fault;
use crate::flow::{FlowOutage, FlowSpec, Outages, Probing};
use crate::interrupt::pause;

/// How long a flap lasts.
pub const FLAP: Duration = Duration::from_millis(300);
/// Flows find their way before anything counts.
const WARM_UP: Duration = Duration::from_millis(500);
/// For so long it is noted who carries which flow.
const NOTED: Duration = Duration::from_millis(300);
/// How long a gateway may take to end when it is asked to: a pod's grace period.
pub const GRACE: Duration = Duration::from_secs(30);
/// How long a gateway may take until all of its paths are good again.
const SETTLE: Duration = Duration::from_secs(90);

/// What is done to a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scenario {
    /// SIGKILL.
    Kill,
    /// SIGSTOP: the process is there and does nothing.
    Stop,
    /// Nothing goes between its node and the other clusters.
    Cut,
    /// Nothing comes from the other clusters to its node.
    Deaf,
    /// Nothing goes from its node to the other clusters.
    Mute,
    /// Nothing goes to or from its node.
    Node,
    /// Its node's link is down for [`FLAP`], and the node's kernel sees it.
    Flap,
    /// `trieste drain`.
    Drain,
    /// SIGTERM, and started again as soon as it has ended.
    Restart,
}

impl Scenario {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Kill,
        Self::Stop,
        Self::Cut,
        Self::Deaf,
        Self::Mute,
        Self::Node,
        Self::Flap,
        Self::Drain,
        Self::Restart,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Stop => "stop",
            Self::Cut => "cut",
            Self::Deaf => "deaf",
            Self::Mute => "mute",
            Self::Node => "node",
            Self::Flap => "flap",
            Self::Drain => "drain",
            Self::Restart => "restart",
        }
    }

    /// What it is, for people.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Kill => "gateway killed (SIGKILL)",
            Self::Stop => "gateway stands still (SIGSTOP)",
            Self::Cut => "node cut off from the other clusters",
            Self::Deaf => "node hears nothing from the other clusters",
            Self::Mute => "node is not heard by the other clusters",
            Self::Node => "node cut off from everybody",
            Self::Flap => "node's link down for 300 ms",
            Self::Drain => "gateway drained (trieste drain)",
            Self::Restart => "gateway ended (SIGTERM) and started again",
        }
    }

    /// The scenario of this name.
    ///
    /// # Errors
    /// If there is none; the error lists them.
    pub fn parse(name: &str) -> Result<Self, String> {
        let all = Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|scenario| scenario.name() == name);
        found.ok_or_else(|| format!("scenarios are {all}"))
    }

    /// Whether the gateway's process is another one afterwards.
    pub const fn starts_anew(self) -> bool {
        matches!(self, Self::Kill | Self::Restart)
    }

    /// Whether the node's own pods have no way to anybody meanwhile.
    const fn isolates_pods(self) -> bool {
        matches!(self, Self::Node | Self::Flap)
    }
}

impl std::fmt::Display for Scenario {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Whom something is done to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The cluster.
    pub cluster: String,
    /// Its gateway, from 0.
    pub gateway: usize,
}

/// What was seen while something was done.
#[derive(Debug, Clone)]
pub struct Trial {
    /// What flows saw from just before it was done.
    pub outages: Outages,
    /// Own ports of the flows that the gateway carried just before.
    pub carried: BTreeSet<u16>,
    /// Flows of pods that could reach nobody meanwhile; they do not count.
    pub isolated: BTreeSet<u16>,
}

impl Trial {
    /// The flows that the gateway carried.
    pub fn affected(&self) -> impl Iterator<Item = &FlowOutage> {
        self.counted().filter(|flow| self.carried.contains(&flow.port))
    }

    /// The flows that it had nothing to do with.
    pub fn others(&self) -> impl Iterator<Item = &FlowOutage> {
        self.counted().filter(|flow| !self.carried.contains(&flow.port))
    }

    fn counted(&self) -> impl Iterator<Item = &FlowOutage> {
        self.outages.flows.iter().filter(|flow| !self.isolated.contains(&flow.port))
    }

    /// One line for people.
    pub fn line(&self) -> String {
        let longest = |flows: &mut dyn Iterator<Item = &FlowOutage>| {
            let (mut count, mut lost, mut longest) = (0, 0, 0);
            for flow in flows {
                (count, lost, longest) = (count + 1, lost + flow.lost, longest.max(flow.longest_us));
            }
            format!("{count} flows, {lost} lost, longest silence {:.1} ms", f64::from(longest) / 1e3)
        };
        format!(
            "its own {}; others {}; own turn missed for at most {:.1} ms",
            longest(&mut self.affected()),
            longest(&mut self.others()),
            f64::from(self.outages.own_stall_us) / 1e3
        )
    }
}

/// Something that was done and has to be undone.
#[derive(Debug)]
enum Injury {
    Dead,
    Still,
    Fault(Fault),
    Drained,
    None,
}

impl Mesh {
    /// Does something to a gateway while flows are probed, watches for `watched` and undoes it. `carriers` watches the port
    /// of the flows' echo.
    ///
    /// # Errors
    /// If it cannot be done or undone.
    pub fn trial(
        &mut self,
        scenario: Scenario,
        target: &Target,
        flows: &[FlowSpec],
        carriers: Option<&Carriers>,
        watched: Duration,
    ) -> anyhow::Result<Trial> {
        let node = self.side(&target.cluster).gateway_node(target.gateway).clone();
        let probing = Probing::start_every(self.interval, flows)?;
        pause(WARM_UP)?;
        if let Some(carriers) = carriers {
            carriers.forget()?;
        }
        pause(NOTED)?;
        let carried = carriers.map(|carriers| carriers.of(&node.name)).transpose()?.unwrap_or_default();
        probing.mark();
        pause(Duration::from_millis(100))?;
        let injury = self.injure(scenario, target).with_context(|| scenario.describe())?;
        pause(watched)?;
        let outages = probing.finish();
        self.heal(injury, target).with_context(|| format!("undoing: {}", scenario.describe()))?;
        let pods: Vec<_> = node.pods.iter().collect();
        let is_isolated = |flow: &FlowSpec| {
            pods.iter().any(|pod| pod.namespace == flow.from || pod.ips().contains(&flow.to.ip()))
        };
        let isolated = flows.iter().filter(|flow| scenario.isolates_pods() && is_isolated(flow));
        let isolated = isolated.map(|flow| flow.port).collect();
        Ok(Trial { outages, carried, isolated })
    }

    fn injure(&mut self, scenario: Scenario, target: &Target) -> anyhow::Result<Injury> {
        let gateway = target.gateway;
        let node = self.side(&target.cluster).gateway_node(gateway).clone();
        let cut = match scenario {
            Scenario::Cut => Cut::Uplink,
            Scenario::Deaf => Cut::Deaf,
            Scenario::Mute => Cut::Mute,
            Scenario::Node => Cut::Node,
            Scenario::Kill => {
                self.side_mut(&target.cluster).kill_gateway(gateway)?;
                return Ok(Injury::Dead);
            }
            Scenario::Stop => {
                self.side(&target.cluster).gateway(gateway)?.pause()?;
                return Ok(Injury::Still);
            }
            Scenario::Flap => {
                let fault = self.unplug(&node)?;
                pause(FLAP)?;
                drop(fault);
                return Ok(Injury::None);
            }
            Scenario::Drain => {
                self.side(&target.cluster).drain(gateway, false)?;
                return Ok(Injury::Drained);
            }
            Scenario::Restart => {
                let side = self.side_mut(&target.cluster);
                side.stop_gateway(gateway, GRACE)?;
                side.start_gateway(gateway)?;
                return Ok(Injury::None);
            }
        };
        Ok(Injury::Fault(self.cut(&node, cut)?))
    }

    fn heal(&mut self, injury: Injury, target: &Target) -> anyhow::Result<()> {
        let gateway = target.gateway;
        match injury {
            Injury::Dead => self.side_mut(&target.cluster).start_gateway(gateway),
            Injury::Still => self.side(&target.cluster).gateway(gateway)?.resume(),
            Injury::Fault(fault) => {
                drop(fault);
                Ok(())
            }
            Injury::Drained => self.side(&target.cluster).drain(gateway, true),
            Injury::None => Ok(()),
        }
    }

    /// Waits until every gateway that runs has good paths to all gateways of the other clusters.
    ///
    /// # Errors
    /// If that takes longer than a minute and a half.
    pub fn settle(&self) -> anyhow::Result<()> {
        for side in &self.sides {
            let others = self.sides.iter().filter(|other| other.plan().id != side.plan().id);
            let paths = others.map(|other| other.plan().gateways().len()).sum();
            for gateway in (0..side.plan().gateways().len()).filter(|gateway| side.gateway(*gateway).is_ok())
            {
                side.wait_paths(gateway, paths, SETTLE)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_are_read_by_the_names_that_they_print() {
        for scenario in Scenario::ALL {
            assert_eq!(Scenario::parse(scenario.name()), Ok(scenario));
        }
        assert!(Scenario::parse("earthquake").unwrap_err().contains("kill, stop"));
    }
}

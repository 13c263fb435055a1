//! What a world must come to: on both sides exactly the SAs that there are to be, and the same ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::atomic::Ordering;
use std::time::Duration;

use trieste_cables::ipsec::ike::PeerReport;
use trieste_cables::ipsec::{ChildSa, Spi};

use super::world::World;

/// Most SAs of one peer that may be there at once, old and new, for each that is wanted: both ends may be making a new
/// one, more than once while the old ones go.
const BOUND: usize = 12;

/// Most half-open SAs that an impostor has, who begins every few seconds and is turned away.
const IMPOSTORS: u64 = 4;

impl World {
    /// Lets time pass until the world is settled; says how long that took. Where keys are renewed every few seconds, each
    /// two gateways have to have been so at some moment; else all are, at the end.
    ///
    /// # Panics
    /// When it takes longer than `bound`.
    pub(crate) fn settle(&mut self, bound: Duration) -> Duration {
        let (begin, step) = (self.now(), Duration::from_millis(500));
        let mut open: BTreeSet<(usize, usize)> = self.ends().into_iter().filter(|(a, b)| a < b).collect();
        loop {
            let results = open.iter().map(|ends| (*ends, self.has_settled(*ends)));
            let problems: Vec<_> = results.filter_map(|(ends, result)| Some((ends, result.err()?))).collect();
            if problems.is_empty() {
                return self.now() - begin;
            }
            if self.is_restless {
                open = problems.iter().map(|(ends, _)| *ends).collect();
            }
            assert!(
                self.now() < begin + bound,
                "not settled after {bound:?}: {problems:?}\n{}",
                self.story()
            );
            self.run(step);
            self.assert_bounded();
        }
    }

    /// Whether all is as it is to be between two gateways.
    fn has_settled(&self, (a, b): (usize, usize)) -> Result<(), String> {
        for (from, to) in [(a, b), (b, a)] {
            let (here, there) = (self.report(from, to)?, self.report(to, from)?);
            self.is_whole(&here, (from, to)).map_err(|what| format!("{from} of {to}: {what}"))?;
            same("children", crosswise(&here, false), crosswise(&there, true))?;
            same("IKE SAs", ikes(&here), ikes(&there))?;
            self.have_same_keys(from, to)?;
            self.has_no_leftovers(from)?;
        }
        Ok(())
    }

    fn has_no_leftovers(&self, index: usize) -> Result<(), String> {
        let gateway = &self.gateways[index];
        let Some(engine) = &gateway.engine else { return Err(format!("{index} does not run")) };
        same("peers", engine.report(self.now()).len(), self.gateways.len() - 1)?;
        let half_open = engine.load().half_open.load(Ordering::Relaxed);
        let most = if self.impostor.is_some() { IMPOSTORS } else { 0 };
        same("as few half-open SAs as there may be", half_open <= most, true)?;
        let cut = gateway.lanes.values().filter(|side| side.cut.is_some());
        same("pairs of cables that are cut", cut.map(|side| side.pairs.len()).sum(), 0)
    }

    /// The SAs of all gateways: IKE SAs, and child SAs that exist, by our SPI.
    pub(crate) fn sas(&self) -> (BTreeSet<(u64, u64)>, BTreeSet<Spi>) {
        let reports = || self.ends().into_iter().filter_map(|(from, to)| self.report(from, to).ok());
        let ikes = reports().flat_map(|report| ikes(&report)).map(|(begun, answered, _)| (begun, answered));
        let children = reports().flat_map(|report| report.children).filter_map(|child| child.inbound);
        (ikes.collect(), children.collect())
    }

    fn report(&self, from: usize, to: usize) -> Result<PeerReport, String> {
        self.gateways[from].report(to, self.now()).ok_or_else(|| format!("{from} does not know {to}"))
    }

    fn is_whole(&self, report: &PeerReport, ends: (usize, usize)) -> Result<(), String> {
        same("children", report.children.len(), self.shape.children())?;
        same("IKE SAs", report.ikes.len(), self.shape.ikes(ends, self.gateways.len()))?;
        same("is up", report.is_up, true)?;
        // That somebody else is turned away who says that it is this peer is told there, and is no fault of the cable's.
        let error = report.error.clone().filter(|error| !error.contains("turned away: it comes from"));
        same("error", error, None)?;
        for child in &report.children {
            same("state of a child", child.state, "installed")?;
            same("sealing", child.is_sealing, true)?;
            same("error of a child", child.error.clone(), None)?;
        }
        for ike in &report.ikes {
            same("state of an IKE SA", ike.state, "established")?;
            same("pending", ike.pending, None)?;
        }
        Ok(())
    }

    /// What the lanes have been ordered, key for key.
    fn have_same_keys(&self, from: usize, to: usize) -> Result<(), String> {
        let (here, there) = (self.pairs(from, to)?, self.pairs(to, from)?);
        same("pairs in the lane", here.len(), self.shape.children())?;
        for child in here.values() {
            let other = there.get(&child.outbound).ok_or("the other lane has no such pair")?;
            let is_same = other.outbound == child.inbound
                && other.inbound_keys == child.outbound_keys
                && other.outbound_keys == child.inbound_keys
                && other.suite == child.suite
                && other.has_esn == child.has_esn;
            let is_mirrored = sorted(&other.selectors.local) == sorted(&child.selectors.remote)
                && sorted(&other.selectors.remote) == sorted(&child.selectors.local);
            same("same pair at both ends", (is_same, is_mirrored), (true, true))?;
        }
        Ok(())
    }

    /// The pairs that a lane has, by our SPI. Where keys are renewed every few seconds, without those that are only opened
    /// with any more.
    fn pairs(&self, from: usize, to: usize) -> Result<BTreeMap<Spi, &ChildSa>, String> {
        let lane = self.gateways[from].lane_to(to).ok_or("no lane")?;
        let pairs = self.gateways[from].lanes[&lane].pairs.iter();
        let counted = pairs.filter(|(_, (_, is_retired))| !(self.is_restless && *is_retired));
        Ok(counted.map(|(spi, (child, _))| (*spi, child)).collect())
    }

    /// One packet for each pair of subnets and direction gets through, and exactly as many pairs are used as there
    /// are to be.
    pub(crate) fn assert_usable(&mut self) {
        self.checker.in_use.clear();
        let probes = self.probe();
        self.run(Duration::from_secs(1));
        assert_eq!(self.checker.missing(probes), [], "after all has settled\n{}", self.story());
        let directions = self.ends().len();
        if !self.is_restless {
            let used = self.checker.in_use.len();
            assert_eq!(used, directions * self.shape.children(), "pairs in use\n{}", self.story());
        }
    }

    /// No engine keeps more than what can be wanted at once.
    pub(crate) fn assert_bounded(&self) {
        for gateway in &self.gateways {
            let Some(engine) = &gateway.engine else { continue };
            for report in engine.report(self.now()) {
                let bound = (BOUND * self.shape.children(), BOUND * self.shape.children());
                let is_bounded = report.ikes.len() <= bound.0 && report.children.len() <= bound.1;
                assert!(is_bounded, "more and more SAs\n{}", self.story());
            }
            for side in gateway.lanes.values() {
                let most = 2 * BOUND * self.shape.children();
                assert!(
                    side.pairs.len() <= most,
                    "more and more pairs: {}\n{}",
                    side.pairs.len(),
                    self.story()
                );
            }
        }
    }

    /// What the engines say, for people.
    pub(crate) fn story(&self) -> String {
        let mut story = format!("{:?} after {:?}\n", self.shape, self.age());
        for (from, to) in self.ends() {
            let pairs = self.pairs(from, to).map(|pairs| pairs.into_keys().collect::<Vec<_>>());
            story += &format!("{from} of {to}: pairs {pairs:?}\n");
            let Ok(report) = self.report(from, to) else { continue };
            story += &format!("  up {} at {:?}, error {:?}\n", report.is_up, report.address, report.error);
            for ike in &report.ikes {
                let (begun, answered) = (ike.initiator_spi, ike.responder_spi);
                let side = if ike.is_initiator { "ours" } else { "theirs" };
                story +=
                    &format!("  IKE {begun:016x}/{answered:016x} {side} {} {:?}\n", ike.state, ike.pending);
            }
            for child in &report.children {
                let (state, error) = (child.state, &child.error);
                let (inbound, outbound) = (child.inbound, child.outbound);
                story += &format!("  ESP {inbound:?}/{outbound:?} {} {state} {error:?}\n", child.selectors);
            }
        }
        story
    }
}

#[expect(clippy::needless_pass_by_value, reason = "reads like an assertion")]
fn same<T: PartialEq + Debug>(what: &str, is: T, should: T) -> Result<(), String> {
    if is == should { Ok(()) } else { Err(format!("{what}: {is:?}, not {should:?}")) }
}

fn sorted<T: Ord + Clone>(of: &[T]) -> Vec<T> {
    let mut all = of.to_vec();
    all.sort();
    all
}

type Named = (Option<Spi>, Option<Spi>, [BTreeSet<String>; 2], String);

/// The child SAs of a report, as the other end names them if so wanted.
fn crosswise(report: &PeerReport, is_mirrored: bool) -> BTreeSet<Named> {
    let all = report.children.iter().map(|child| {
        let (local, remote) = child.selectors.split_once(" === ").unwrap_or((&child.selectors, ""));
        let side = |text: &str| text.split(',').map(str::to_owned).collect::<BTreeSet<String>>();
        let (local, remote, algorithms) = (side(local), side(remote), child.algorithms.clone());
        if is_mirrored {
            (child.outbound, child.inbound, [remote, local], algorithms)
        } else {
            (child.inbound, child.outbound, [local, remote], algorithms)
        }
    });
    all.collect()
}

fn ikes(report: &PeerReport) -> BTreeSet<(u64, u64, String)> {
    report.ikes.iter().map(|ike| (ike.initiator_spi, ike.responder_spi, ike.algorithms.clone())).collect()
}

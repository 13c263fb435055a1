//! Whether gateways use all of their paths, by what their metrics say.
//!
//! A path that was lost is held back for up to a minute after it works again, and flows go by the others meanwhile: Gateway
//! objects call it connected all the same.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::Context;
use trieste_tests::clusters::Node;
use trieste_tests::traffic;
use trieste_tests::wait::eventually;

use crate::shared::{SOON, Two};

/// Where a gateway tells its metrics, on its node.
const METRICS_PORT: u16 = 32780;
/// How long it may take until no path is held back at the same moment: each for up to a minute after it was lost, and beside
/// other tests another may be lost meanwhile.
const ALL_USED: Duration = Duration::from_secs(300);
/// The longest that it may take to tell them, beside other tests.
const TIMEOUT: Duration = Duration::from_secs(5);

impl Two {
    /// Does something while every path is used, and returns what came of it. If `complaint` has one and a path has changed meanwhile,
    /// it is done once more, for a while: a path that is lost under it is no fault of what is done.
    ///
    /// # Errors
    /// What came of it last; or paths are not used, or a gateway does not say.
    pub(crate) fn undisturbed<T>(
        &self,
        mut attempt: impl FnMut() -> anyhow::Result<T>,
        complaint: impl Fn(&anyhow::Result<T>) -> Option<String>,
    ) -> anyhow::Result<T> {
        let end = Instant::now() + SOON;
        loop {
            let changes = self.steady()?;
            let result = attempt();
            match complaint(&result) {
                Some(complaint) if Instant::now() < end && self.changes()? != changes => {
                    self.say(&format!("{complaint} while a path was not used: once more"));
                }
                _ => return result,
            }
        }
    }

    /// Waits until every gateway uses every path, those to siblings too. Returns how often any of them has changed: as long as
    /// [`Two::changes`] returns the same, all were used all the time.
    ///
    /// # Errors
    /// If they do not soon, which is longer than a path is ever held back.
    pub(crate) fn steady(&self) -> anyhow::Result<u64> {
        let gateways = self.gateway_nodes()?;
        // There is one to each other gateway, of either cluster.
        let wanted = gateways.len().saturating_sub(1);
        // The first one that does not use all ends the attempt: gateways have more to do than to render pages.
        let attempt = || {
            gateways.iter().map(|node| Paths::of(node)?.changes_of(node, wanted)).sum::<anyhow::Result<u64>>()
        };
        eventually("every path to be used", ALL_USED, attempt)
    }

    /// Returns how often paths of any gateway have changed their states since they are there.
    ///
    /// # Errors
    /// If a gateway does not say.
    fn changes(&self) -> anyhow::Result<u64> {
        let gateways = self.gateway_nodes()?;
        gateways.iter().map(|node| Paths::of(node).map(|paths| paths.changes)).sum::<anyhow::Result<u64>>()
    }

    /// Returns the nodes with a gateway, of both clusters.
    fn gateway_nodes(&self) -> anyhow::Result<Vec<&Node>> {
        let mut all = Vec::new();
        for cluster in self.set.clusters.all() {
            let (gateways, _) = cluster.gateways_and_workers()?;
            all.extend(gateways);
        }
        Ok(all)
    }
}

/// What a gateway tells of its paths.
struct Paths {
    /// Those that it uses, and packets are known to get through.
    used: usize,
    /// The state of each, with the other end.
    states: Vec<String>,
    /// How often any of them has changed.
    changes: u64,
}

impl Paths {
    /// Reads the metrics of the gateway on a node.
    fn of(node: &Node) -> anyhow::Result<Self> {
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, METRICS_PORT));
        let page = traffic::get(node.netns(), to, "/metrics", TIMEOUT)
            .with_context(|| format!("metrics of the gateway on {}", node.name()))?;
        let states = series(&page, "trieste_path_state").filter(|(_, is_it)| *is_it == 1);
        let states: Vec<String> = states.map(|(labels, _)| labels.to_owned()).collect();
        let used = states.iter().filter(|labels| labels.contains("state=\"up\"")).count();
        let changes = series(&page, "trieste_path_transitions_total").map(|(_, count)| count).sum();
        Ok(Self { used, states, changes })
    }

    /// Returns how often they have changed, if as many as wanted are used.
    fn changes_of(self, node: &Node, wanted: usize) -> anyhow::Result<u64> {
        let (used, states) = (self.used, &self.states);
        anyhow::ensure!(used == wanted, "{} uses {used} of {wanted} paths: {states:?}", node.name());
        Ok(self.changes)
    }
}

/// Returns labels and values of a metric's series.
fn series<'a>(page: &'a str, name: &'a str) -> impl Iterator<Item = (&'a str, u64)> {
    page.lines().filter_map(move |line| {
        let (labels, value) = line.strip_prefix(name)?.strip_prefix('{')?.rsplit_once("} ")?;
        Some((labels, value.parse::<u64>().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_read_with_their_labels_and_no_longer_names_among_them() {
        let page = "# TYPE trieste_path_state gauge\n\
                    trieste_path_state{cable=\"c-1\",remote_cluster=\"west\",state=\"up\"} 1\n\
                    trieste_path_state{cable=\"c-1\",remote_cluster=\"west\",state=\"held\"} 0\n\
                    trieste_path_states{cable=\"c-1\"} 7\ntrieste_path_rtt_seconds{cable=\"c-1\"} 0.001\n";
        let read: Vec<_> = series(page, "trieste_path_state").map(|(_, value)| value).collect();
        assert_eq!(read, [1, 0]);
        let (labels, _) = series(page, "trieste_path_state").next().unwrap();
        assert_eq!(labels, "cable=\"c-1\",remote_cluster=\"west\",state=\"up\"");
    }
}

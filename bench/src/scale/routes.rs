//! The routes to the others' networks, as the kernel reports them: a look at all of them for each change would cost more than
//! what is measured.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::time::{Duration, Instant};

use anyhow::Context;
use trieste_tests::daemon::Daemon;
use trieste_tests::lab::Lab;
use trieste_tests::netns::Namespace;

/// How often all routes are looked at while some are awaited, in case that a report was lost.
const LOOK: Duration = Duration::from_secs(1);

/// Follows the routes of one node.
pub(super) struct Routes {
    node: Namespace,
    monitor: Daemon,
    reports: File,
    /// What was read of the last report, which is not whole yet.
    rest: String,
    known: BTreeSet<Route>,
    looked_at: Instant,
}

/// A route to one of the others' networks that leads somewhere: destination and table.
type Route = (String, String);

impl Routes {
    /// Starts to follow the routes of a node.
    ///
    /// # Errors
    /// If `ip monitor` does not start, or routes cannot be read.
    pub(super) fn follow(lab: &Lab, node: &Namespace) -> anyhow::Result<Self> {
        let run = node.run("ip").args(["-4", "-o", "-rcvbuf", "16777216", "monitor", "route"]);
        let monitor = Daemon::start(lab, &format!("routes-{}", node.name()), &run)?;
        let reports = File::open(monitor.log()).context("opening the reports of routes")?;
        let known = look(node)?;
        Ok(Self {
            node: node.clone(),
            monitor,
            reports,
            rest: String::new(),
            known,
            looked_at: Instant::now(),
        })
    }

    /// Returns `true` if there are routes to so many of the others' networks, and that is what the kernel says when it is asked.
    ///
    /// # Errors
    /// If the reports end, or routes cannot be read.
    pub(super) fn has(&mut self, count: usize) -> anyhow::Result<bool> {
        self.monitor.check()?;
        let mut new = Vec::new();
        self.reports.read_to_end(&mut new).context("reading the reports of routes")?;
        self.rest.push_str(&String::from_utf8_lossy(&new));
        let whole = self.rest.rfind('\n').map_or(0, |at| at + 1);
        for line in self.rest[..whole].lines() {
            take_report(&mut self.known, line);
        }
        self.rest.drain(..whole);
        let is_reached = self.networks() == count;
        if is_reached || self.looked_at.elapsed() >= LOOK {
            self.known = look(&self.node)?;
            self.looked_at = Instant::now();
        }
        Ok(self.networks() == count)
    }

    /// Counts the networks that there are routes to.
    pub(super) fn networks(&self) -> usize {
        let mut networks: Vec<&str> = self.known.iter().map(|(network, _)| network.as_str()).collect();
        networks.dedup();
        networks.len()
    }
}

/// Takes in what is reported of a route.
fn take_report(known: &mut BTreeSet<Route>, line: &str) {
    let (is_gone, line) = match line.strip_prefix("Deleted ") {
        Some(line) => (true, line),
        None => (false, line),
    };
    let Some(route) = theirs(line) else { return };
    if is_gone {
        known.remove(&route);
    } else {
        known.insert(route);
    }
}

/// Reads the routes that there are.
fn look(node: &Namespace) -> anyhow::Result<BTreeSet<Route>> {
    let text = node.run("ip").args(["-4", "route", "show", "table", "all"]).stdout()?;
    Ok(text.lines().filter_map(theirs).collect())
}

/// Parses a route to one of the others' networks, of up to 4,096 members, that leads somewhere.
fn theirs(line: &str) -> Option<Route> {
    let is_theirs = line.strip_prefix("100.").is_some_and(|rest| !rest.starts_with("127."));
    if !is_theirs || !(line.contains(" dev ") || line.contains(" nhid ")) {
        return None;
    }
    let mut words = line.split_whitespace();
    let network = words.next()?.to_owned();
    let table = words.skip_while(|word| *word != "table").nth(1).unwrap_or("main");
    Some((network, table.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_say_which_routes_come_and_go() {
        let mut known = BTreeSet::new();
        for line in [
            "100.0.0.0/24 nhid 7 via 240.0.0.1 dev vx-submariner table 100 proto static",
            "100.0.0.0/24 dev trieste0 scope link",
            "100.0.1.0/24 nhid 7 table 100 proto static",
            "unreachable 100.0.2.0/24 proto static metric 4278198272",
            "100.127.0.0/24 dev trieste0",
            "10.1.0.0/16 dev trieste0",
        ] {
            take_report(&mut known, line);
        }
        let of = |network: &str, table: &str| (network.to_owned(), table.to_owned());
        let two = [of("100.0.0.0/24", "100"), of("100.0.0.0/24", "main"), of("100.0.1.0/24", "100")];
        assert_eq!(known, two.clone().into());
        take_report(&mut known, "Deleted 100.0.1.0/24 nhid 7 table 100 proto static");
        take_report(&mut known, "Deleted unreachable 100.0.0.0/24 proto static metric 4278198272");
        assert_eq!(known, two[..2].iter().cloned().collect());
    }
}

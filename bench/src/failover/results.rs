//! Histograms of outages, and whether they are short enough.

use std::collections::BTreeMap;

use serde::Serialize;
use trieste_tests::mesh::scenario::{Scenario, Trial};

use super::Options;
use super::strain::Strained;
use crate::machine::Circumstances;
use crate::report::Table;

/// Upper bounds of the histogram's classes in milliseconds.
const CLASSES: [u32; 10] = [5, 10, 20, 30, 50, 70, 100, 200, 500, 1000];

/// What is wanted: milliseconds at the 99th percentile, and at most.
const WANTED_P99: f64 = 100.0;
const WANTED_MAX: f64 = 1000.0;
/// A flap may cost so much in milliseconds.
const WANTED_FLAP: f64 = 320.0;

/// The whole result.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    #[serde(flatten)]
    circumstances: Circumstances,
    gateways: u8,
    workers: u8,
    flows: u16,
    load_percent: u8,
    /// What the path carried in Gbit/s, each time that it was measured.
    capacity_gbit_s: Vec<f64>,
    scenarios: BTreeMap<&'static str, Outcome>,
    #[serde(skip_serializing_if = "Option::is_none")]
    strained: Option<Strained>,
}

/// What one scenario has cost.
#[derive(Debug, Default, Serialize)]
struct Outcome {
    trials: u32,
    /// The longest silence of each flow that the gateway carried, each time, in milliseconds.
    #[serde(skip)]
    silences: Vec<f64>,
    affected: Summary,
    others: Summary,
    /// Flows by their longest silence: class's upper bound in milliseconds, number of flows.
    histogram: Vec<(String, usize)>,
    /// The prober's own longest stall in milliseconds.
    own_stall_ms: f64,
    /// wireguard-go's longest silence in milliseconds, after a fault that ends by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    wireguard_go_ms: Option<f64>,
}

/// Some flows.
#[derive(Debug, Default, Serialize)]
struct Summary {
    flows: usize,
    sent: u64,
    lost: u64,
    /// Flows that lost a packet.
    flows_with_loss: usize,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
}

impl Report {
    pub(super) fn new(circumstances: Circumstances, options: &Options) -> Self {
        Self {
            circumstances,
            gateways: options.gateways,
            workers: options.workers,
            flows: options.flows,
            load_percent: options.load,
            capacity_gbit_s: Vec::new(),
            scenarios: BTreeMap::new(),
            strained: None,
        }
    }

    pub(super) fn load(&mut self, gbit_s: f64) {
        self.capacity_gbit_s.push(gbit_s);
    }

    pub(super) fn strained(&mut self, strained: Strained) {
        self.strained = Some(strained);
    }

    pub(super) fn baseline(&mut self, scenario: Scenario, ms: f64) {
        self.scenarios.entry(scenario.name()).or_default().wireguard_go_ms = Some(ms);
    }

    pub(super) fn add(&mut self, scenario: Scenario, trial: &Trial) {
        let outcome = self.scenarios.entry(scenario.name()).or_default();
        outcome.trials += 1;
        outcome.own_stall_ms = outcome.own_stall_ms.max(f64::from(trial.outages.own_stall_us) / 1e3);
        for flow in trial.affected() {
            outcome.silences.push(f64::from(flow.longest_us) / 1e3);
            outcome.affected.add(flow.sent, flow.lost);
        }
        for flow in trial.others() {
            outcome.others.add(flow.sent, flow.lost);
            outcome.others.max_ms = outcome.others.max_ms.max(f64::from(flow.longest_us) / 1e3);
        }
        outcome.silences.sort_unstable_by(f64::total_cmp);
        outcome.affected.p50_ms = percentile(&outcome.silences, 50.0);
        outcome.affected.p99_ms = percentile(&outcome.silences, 99.0);
        outcome.affected.max_ms = percentile(&outcome.silences, 100.0);
        outcome.histogram = histogram(&outcome.silences);
    }

    /// The result for people.
    pub(super) fn text(&self) -> String {
        let capacity = self.capacity_gbit_s.iter().map(|gbit_s| format!("{gbit_s:.2}")).collect::<Vec<_>>();
        let mut text = format!(
            "{}\n{} gateways and {} workers in each of two clusters, {} flows of a datagram a millisecond\n",
            self.circumstances.line(),
            self.gateways,
            self.workers,
            self.flows
        );
        if self.load_percent > 0 {
            text += &format!(
                "beside them TCP at {} % of what the path carries: {} Gbit/s\n",
                self.load_percent,
                capacity.join(", ")
            );
        }
        if let Some(strained) = &self.strained {
            return text + "\n" + &strained.text();
        }
        let mut table = Table::new(&[
            "scenario",
            "trials",
            "its flows",
            "p50 ms",
            "p99 ms",
            "max ms",
            "lost",
            "other flows",
            "lost",
            "own stall ms",
            "wireguard-go ms",
        ]);
        for (name, outcome) in self.scenarios.iter().filter(|(_, outcome)| outcome.trials > 0) {
            table.row(vec![
                (*name).to_owned(),
                outcome.trials.to_string(),
                outcome.affected.flows.to_string(),
                format!("{:.1}", outcome.affected.p50_ms),
                format!("{:.1}", outcome.affected.p99_ms),
                format!("{:.1}", outcome.affected.max_ms),
                outcome.affected.lost.to_string(),
                outcome.others.flows.to_string(),
                outcome.others.lost.to_string(),
                format!("{:.1}", outcome.own_stall_ms),
                outcome.wireguard_go_ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.0}")),
            ]);
        }
        text += &format!("\n{}\nflows by their longest silence\n", table.text());
        text += &self.histograms().text();
        for line in self.missed() {
            text += &format!("MISSED: {line}\n");
        }
        text
    }

    fn histograms(&self) -> Table {
        let names: Vec<String> = classes();
        let header: Vec<&str> = ["scenario"].into_iter().chain(names.iter().map(String::as_str)).collect();
        let mut table = Table::new(&header);
        for (name, outcome) in self.scenarios.iter().filter(|(_, outcome)| outcome.trials > 0) {
            let counts = outcome.histogram.iter().map(|(_, count)| count.to_string());
            table.row([(*name).to_owned()].into_iter().chain(counts).collect());
        }
        table
    }

    /// What was wanted and is not so.
    fn missed(&self) -> Vec<String> {
        let mut missed = Vec::new();
        for (name, outcome) in self.scenarios.iter().filter(|(_, outcome)| outcome.trials > 0) {
            let mut bar = |what: &str, value: f64, bar: f64| {
                if value > bar {
                    missed.push(format!("{name}: {what} {value:.1}, wanted at most {bar:.0}"));
                }
            };
            match *name {
                "flap" => bar("longest silence in ms", outcome.affected.max_ms, WANTED_FLAP),
                "drain" | "restart" => bar("lost packets of its flows", outcome.affected.lost as f64, 0.0),
                _ => {
                    bar("99th percentile in ms", outcome.affected.p99_ms, WANTED_P99);
                    bar("longest silence in ms", outcome.affected.max_ms, WANTED_MAX);
                }
            }
            bar("lost packets of other flows", outcome.others.lost as f64, 0.0);
        }
        missed
    }
}

impl Summary {
    fn add(&mut self, sent: u32, lost: u32) {
        self.flows += 1;
        self.sent += u64::from(sent);
        self.lost += u64::from(lost);
        self.flows_with_loss += usize::from(lost > 0);
    }
}

/// The value that this many percent do not exceed; of values in order.
fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let rank = (sorted.len() as f64 * percent / 100.0).ceil();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank is no larger than a length"
    )]
    let rank = (rank as usize).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

fn classes() -> Vec<String> {
    let mut names: Vec<String> = CLASSES.iter().map(|bound| format!("≤{bound}")).collect();
    names.push(">1000 ms".to_owned());
    names
}

fn histogram(silences: &[f64]) -> Vec<(String, usize)> {
    let mut counts = vec![0; CLASSES.len() + 1];
    for silence in silences {
        let class = CLASSES.iter().position(|bound| *silence <= f64::from(*bound)).unwrap_or(CLASSES.len());
        counts[class] += 1;
    }
    classes().into_iter().zip(counts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!(percentile(&values, 50.0), 100.0);
        assert_eq!(percentile(&values, 99.0), 198.0);
        assert_eq!(percentile(&values, 100.0), 200.0);
        assert_eq!(percentile(&[7.0], 99.0), 7.0);
        assert_eq!(percentile(&[], 99.0), 0.0);
    }

    #[test]
    fn every_silence_is_in_one_class() {
        let histogram = histogram(&[0.1, 5.0, 5.1, 99.0, 5000.0]);
        assert_eq!(histogram.iter().map(|(_, count)| count).sum::<usize>(), 5);
        assert_eq!(histogram[0], ("≤5".to_owned(), 2));
        assert_eq!(histogram.last(), Some(&(">1000 ms".to_owned(), 1)));
    }
}

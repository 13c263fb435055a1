//! Medians, what each hop adds, and whether they may be believed.

use std::collections::BTreeMap;

use serde::Serialize;

use super::paths::Path;
use crate::machine::Circumstances;
use crate::measure::Spread;
use crate::report::Table;

/// Load without traffic above this share of the machine makes the run inconclusive.
const MAX_IDLE_LOAD: f64 = 0.15;
/// So does a path whose best round is this many times its worst.
const MAX_SPREAD: f64 = 1.5;

/// One path, one round.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measured {
    /// What the receiver got.
    pub(super) gbit_s: f64,
    /// CPU seconds of the whole machine per gigabyte, less what it uses without traffic.
    pub(super) cpu_s_per_gb: f64,
    /// Mean round trip of a small ping on the idle path.
    pub(super) ping_ms: f64,
    /// Share of the machine that was in use without traffic: the clusters' own components, and others.
    pub(super) idle_load: f64,
}

/// The whole result.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    #[serde(flatten)]
    circumstances: Circumstances,
    rounds: u32,
    paths: BTreeMap<&'static str, Results>,
    /// By what a packet passes in addition to the cable between gateway nodes.
    hops: BTreeMap<&'static str, Hop>,
    idle_load: Spread,
    /// Why the figures prove nothing; empty if they do.
    inconclusive: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Results {
    gbit_s: Spread,
    cpu_s_per_gb: Spread,
    ping_ms: Spread,
}

/// What is added to the path between gateway nodes: medians of the rounds' differences and ratios.
#[derive(Debug, Serialize)]
struct Hop {
    /// Throughput to that of `gateway-gateway`.
    throughput_ratio: f64,
    cpu_s_per_gb: f64,
    ping_us: f64,
}

impl Report {
    /// Puts together what was measured: by path, then by round.
    pub(super) fn new(circumstances: Circumstances, rounds: u32, measured: &[Vec<Measured>]) -> Self {
        let of = |rounds: &[Measured], what: fn(&Measured) -> f64| -> Vec<f64> {
            rounds.iter().map(what).collect()
        };
        let mut report = Self {
            circumstances,
            rounds,
            paths: BTreeMap::new(),
            hops: BTreeMap::new(),
            idle_load: Spread::of(&of(&measured.concat(), |one| one.idle_load)),
            inconclusive: Vec::new(),
        };
        let base = &measured[0];
        for (path, rounds) in Path::ALL.into_iter().zip(measured) {
            let results = Results {
                gbit_s: Spread::of(&of(rounds, |one| one.gbit_s)),
                cpu_s_per_gb: Spread::of(&of(rounds, |one| one.cpu_s_per_gb)),
                ping_ms: Spread::of(&of(rounds, |one| one.ping_ms)),
            };
            let spread = results.gbit_s.max / results.gbit_s.min;
            if spread > MAX_SPREAD {
                let name = path.name();
                report.inconclusive.push(format!("the rounds of {name} differ by a factor of {spread:.2}"));
            }
            report.paths.insert(path.name(), results);
            if path != Path::OwnCluster && path != Path::GatewayToGateway {
                let added = |what: fn(&Measured) -> f64| {
                    let differences: Vec<f64> =
                        rounds.iter().zip(base).map(|(one, base)| what(one) - what(base)).collect();
                    Spread::of(&differences).median
                };
                let hop = Hop {
                    throughput_ratio: Spread::ratio(
                        &of(rounds, |one| one.gbit_s),
                        &of(base, |one| one.gbit_s),
                    ),
                    cpu_s_per_gb: added(|one| one.cpu_s_per_gb),
                    ping_us: added(|one| one.ping_ms) * 1000.0,
                };
                report.hops.insert(path.name(), hop);
            }
        }
        if report.idle_load.max > MAX_IDLE_LOAD {
            report.inconclusive.push(format!(
                "{:.1} % of the machine was in use without traffic (at most {:.0} %)",
                report.idle_load.max * 100.0,
                MAX_IDLE_LOAD * 100.0
            ));
        }
        report
    }

    /// The result for people.
    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "{}\n{} rounds; median, and least to greatest\n\n",
            self.circumstances.line(),
            self.rounds
        );
        let mut table = Table::new(&[
            "path",
            "Gbit/s",
            "range",
            "machine CPU s/GB",
            "ping ms",
            "x gateway-gateway",
            "+ CPU s/GB",
            "+ ping us",
        ]);
        for path in Path::ALL {
            let Some(results) = self.paths.get(path.name()) else { continue };
            let hop = self.hops.get(path.name());
            let added = |what: fn(&Hop) -> String| hop.map_or_else(String::new, what);
            table.row(vec![
                path.name().to_owned(),
                format!("{:.2}", results.gbit_s.median),
                format!("{:.2}-{:.2}", results.gbit_s.min, results.gbit_s.max),
                format!("{:.2}", results.cpu_s_per_gb.median),
                format!("{:.3}", results.ping_ms.median),
                added(|hop| format!("{:.2}", hop.throughput_ratio)),
                added(|hop| format!("{:+.2}", hop.cpu_s_per_gb)),
                added(|hop| format!("{:+.0}", hop.ping_us)),
            ]);
        }
        text += &table.text();
        text += &format!("machine without traffic: {:.1} % in use\n", self.idle_load.median * 100.0);
        for reason in &self.inconclusive {
            text += &format!("INCONCLUSIVE: {reason}\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(gbit_s: f64, cpu_s_per_gb: f64, ping_ms: f64) -> Vec<Measured> {
        vec![Measured { gbit_s, cpu_s_per_gb, ping_ms, idle_load: 0.05 }; 3]
    }

    fn report(measured: &[Vec<Measured>]) -> Report {
        Report::new(Circumstances::read(), 3, measured)
    }

    #[test]
    fn hops_are_what_comes_on_top_of_the_cable() {
        let cable = || rounds(4.0, 2.0, 0.5);
        let report = report(&[cable(), cable(), cable(), rounds(3.0, 2.5, 0.75), rounds(9.0, 1.0, 0.1)]);
        let hop = &report.hops["worker-worker"];
        assert_eq!((hop.throughput_ratio, hop.cpu_s_per_gb, hop.ping_us), (0.75, 0.5, 250.0));
        assert!(report.inconclusive.is_empty());
        assert!(!report.hops.contains_key("own-cluster"));
    }

    #[test]
    fn noise_is_said() {
        let mut wild = rounds(4.0, 2.0, 0.5);
        wild[1].gbit_s = 6.1;
        wild[2].idle_load = 0.2;
        let report = report(&vec![wild; 5]);
        assert_eq!(report.inconclusive.len(), 6);
    }
}

//! Medians, ratios, and whether they may be believed.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Job;
use super::run::INNER_MTU;
use crate::machine::Circumstances;
use crate::measure::Spread;
use crate::report::Table;

/// Other load above this share of the machine makes a case inconclusive.
const MAX_OTHER_LOAD: f64 = 0.05;
/// So does a candidate whose best round is this many times its worst.
const MAX_SPREAD: f64 = 1.5;

/// What is wanted: in cases whose names begin so, who, to whom, and the bound.
const WANTED: [(&str, &str, &str, Bound); 6] = [
    ("tcp1", "trieste-esp", "wireguard-go", Bound::Speed(1.7)),
    ("tcp1", "trieste-esp", "strongswan", Bound::Speed(5.0)),
    ("tcp1", "trieste-esp", "trieste-plain", Bound::Speed(0.65)),
    ("tcp1", "trieste-esp", "wireguard-go", Bound::Cpu(0.4)),
    ("small64", "trieste-wireguard-xdp", "trieste-wireguard", Bound::Packets(2.0)),
    ("small64", "trieste-wireguard-xdp", "wireguard-go", Bound::Packets(4.0)),
];

/// A bound on a ratio.
#[derive(Debug, Clone, Copy)]
enum Bound {
    /// At least, in Gbit/s.
    Speed(f64),
    /// At least, in packets per second.
    Packets(f64),
    /// At most, in CPU seconds of the daemons per gigabyte.
    Cpu(f64),
}

/// One candidate, one case, one round.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measured {
    /// The highest rate of packets without loss, in the cases that look for it.
    pub(super) packets_s: Option<f64>,
    /// Share of the packets that were lost in the long trial at that rate.
    pub(super) lost: f64,
    /// What the receiver got.
    pub(super) gbit_s: f64,
    /// CPU seconds of both gateways' daemons per gigabyte carried.
    pub(super) cpu_s_per_gb: f64,
    /// CPU seconds of the whole machine per gigabyte carried.
    pub(super) machine_cpu_s_per_gb: f64,
    /// Share of the machine that went to others.
    pub(super) other_load: f64,
}

/// The whole result.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    #[serde(flatten)]
    circumstances: Circumstances,
    rounds: u32,
    cases: Vec<CaseReport>,
}

#[derive(Debug, Serialize)]
struct CaseReport {
    case: String,
    congestion: Option<String>,
    mtu_bytes: u16,
    results: BTreeMap<String, Results>,
    /// By `NAME/NAME`: medians of the ratios round by round.
    ratio: BTreeMap<String, Ratio>,
    /// Why the figures of this case prove nothing; empty if they do.
    inconclusive: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Results {
    #[serde(skip_serializing_if = "Option::is_none")]
    packets_s: Option<Spread>,
    gbit_s: Spread,
    cpu_s_per_gb: Spread,
    machine_cpu_s_per_gb: Spread,
    other_load: Spread,
}

#[derive(Debug, Serialize)]
struct Ratio {
    #[serde(skip_serializing_if = "Option::is_none")]
    packets_s: Option<f64>,
    gbit_s: f64,
    cpu_s_per_gb: f64,
}

impl Report {
    /// Puts together what was measured: by job, then by candidate, then by round.
    pub(super) fn new(
        circumstances: Circumstances,
        rounds: u32,
        names: &[String],
        jobs: &[Job],
        measured: &[Vec<Vec<Measured>>],
    ) -> Self {
        let cases = jobs.iter().zip(measured).map(|(job, measured)| CaseReport::new(job, names, measured));
        Self { circumstances, rounds, cases: cases.collect() }
    }

    /// The result for people.
    pub(super) fn text(&self) -> String {
        let mut text =
            format!("{}\n{} rounds; median, and least to greatest\n", self.circumstances.line(), self.rounds);
        for case in &self.cases {
            let congestion = case.congestion.as_ref().map_or(String::new(), |name| format!(", {name}"));
            text += &format!("\n{}{congestion}, inner MTU {}\n", case.case, case.mtu_bytes);
            text += &case.table().text();
            for line in case.wanted() {
                text += &format!("{line}\n");
            }
            for reason in &case.inconclusive {
                text += &format!("INCONCLUSIVE: {reason}\n");
            }
        }
        text
    }
}

impl CaseReport {
    fn new(job: &Job, names: &[String], measured: &[Vec<Measured>]) -> Self {
        let of = |rounds: &[Measured], what: fn(&Measured) -> f64| -> Vec<f64> {
            rounds.iter().map(what).collect()
        };
        let packets = |rounds: &[Measured]| -> Option<Vec<f64>> {
            rounds.iter().map(|one| one.packets_s).collect::<Option<Vec<f64>>>().filter(|all| !all.is_empty())
        };
        let mut report = Self {
            case: job.case.name(),
            congestion: job.congestion.clone(),
            mtu_bytes: INNER_MTU,
            results: BTreeMap::new(),
            ratio: BTreeMap::new(),
            inconclusive: Vec::new(),
        };
        for (name, rounds) in names.iter().zip(measured) {
            let results = Results {
                packets_s: packets(rounds).map(|all| Spread::of(&all)),
                gbit_s: Spread::of(&of(rounds, |one| one.gbit_s)),
                cpu_s_per_gb: Spread::of(&of(rounds, |one| one.cpu_s_per_gb)),
                machine_cpu_s_per_gb: Spread::of(&of(rounds, |one| one.machine_cpu_s_per_gb)),
                other_load: Spread::of(&of(rounds, |one| one.other_load)),
            };
            report.inconclusive.extend(results.doubts(name));
            let lost = rounds.iter().fold(0.0, |most: f64, one| most.max(one.lost)) * 100.0;
            if lost > 0.0 {
                report.inconclusive.push(format!(
                    "{lost:.4} % lost in a long trial of {name}, at a rate without loss before"
                ));
            }
            report.results.insert(name.clone(), results);
            for (base_name, base) in names.iter().zip(measured).filter(|(base, _)| *base != name) {
                let ratio = |what| Spread::ratio(&of(rounds, what), &of(base, what));
                let ratio = Ratio {
                    packets_s: packets(rounds)
                        .zip(packets(base))
                        .map(|(own, base)| Spread::ratio(&own, &base)),
                    gbit_s: ratio(|one| one.gbit_s),
                    cpu_s_per_gb: ratio(|one| one.cpu_s_per_gb),
                };
                report.ratio.insert(format!("{name}/{base_name}"), ratio);
            }
        }
        report
    }

    /// How the ratios that something is wanted of stand to that, a line each.
    fn wanted(&self) -> Vec<String> {
        let wanted = WANTED.iter().filter(|(case, ..)| self.case.starts_with(case));
        let line = |&(_, name, base, bound): &(&str, &str, &str, Bound)| {
            let ratio = self.ratio.get(&format!("{name}/{base}"))?;
            let (what, value, word, limit, is_met) = match bound {
                Bound::Speed(limit) => ("Gbit/s", ratio.gbit_s, "at least", limit, ratio.gbit_s >= limit),
                Bound::Packets(limit) => {
                    let packets_s = ratio.packets_s?;
                    ("packets/s", packets_s, "at least", limit, packets_s >= limit)
                }
                Bound::Cpu(limit) => {
                    ("CPU s/GB", ratio.cpu_s_per_gb, "at most", limit, ratio.cpu_s_per_gb <= limit)
                }
            };
            let verdict = if is_met { "met" } else { "MISSED" };
            Some(format!("{name} to {base}, {what}: {value:.2}; wanted {word} {limit}: {verdict}"))
        };
        wanted.filter_map(line).collect()
    }

    fn table(&self) -> Table {
        let names: Vec<&String> = self.results.keys().collect();
        let mut columns =
            vec!["name", "packets/s", "Gbit/s", "range", "CPU s/GB", "machine CPU s/GB", "other load %"];
        let headers: Vec<String> = names.iter().map(|name| format!("x {name}")).collect();
        columns.extend(headers.iter().map(String::as_str));
        let mut table = Table::new(&columns);
        for (name, results) in &self.results {
            let mut row = vec![
                name.clone(),
                results
                    .packets_s
                    .as_ref()
                    .map_or_else(|| "-".to_owned(), |rate| format!("{:.0}", rate.median)),
                format!("{:.2}", results.gbit_s.median),
                format!("{:.2}-{:.2}", results.gbit_s.min, results.gbit_s.max),
                format!("{:.2}", results.cpu_s_per_gb.median),
                format!("{:.2}", results.machine_cpu_s_per_gb.median),
                format!("{:.1}", results.other_load.max * 100.0),
            ];
            for base in &names {
                let ratio = self.ratio.get(&format!("{name}/{base}"));
                row.push(ratio.map_or_else(String::new, |ratio| {
                    format!("{:.2} ({:.2} CPU)", ratio.gbit_s, ratio.cpu_s_per_gb)
                }));
            }
            table.row(row);
        }
        table
    }
}

impl Results {
    fn doubts(&self, name: &str) -> Vec<String> {
        let mut doubts = Vec::new();
        let load = self.other_load.max * 100.0;
        if self.other_load.max > MAX_OTHER_LOAD {
            doubts.push(format!(
                "other load of {load:.1} % in a round of {name} (at most {:.0} %)",
                MAX_OTHER_LOAD * 100.0
            ));
        }
        let spread = self.gbit_s.max / self.gbit_s.min;
        if spread > MAX_SPREAD {
            doubts.push(format!(
                "the rounds of {name} differ by a factor of {spread:.2} (at most {MAX_SPREAD})"
            ));
        }
        doubts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::Case;

    fn round(gbit_s: f64, other_load: f64) -> Measured {
        Measured {
            packets_s: None,
            lost: 0.0,
            gbit_s,
            cpu_s_per_gb: 8.0 / gbit_s,
            machine_cpu_s_per_gb: 16.0 / gbit_s,
            other_load,
        }
    }

    fn report(measured: &[Vec<Measured>]) -> CaseReport {
        let job = Job { case: Case::parse("tcp1").unwrap(), congestion: Some("cubic".to_owned()) };
        CaseReport::new(&job, &["ours".to_owned(), "theirs".to_owned()], measured)
    }

    #[test]
    fn ratios_are_medians_of_rounds_and_go_both_ways() {
        let report = report(&[
            vec![round(4.0, 0.0), round(4.4, 0.0), round(4.2, 0.0)],
            vec![round(2.0, 0.0), round(2.0, 0.0), round(2.1, 0.0)],
        ]);
        assert_eq!(report.ratio["ours/theirs"].gbit_s, 2.0);
        assert_eq!(report.ratio["theirs/ours"].cpu_s_per_gb, 2.0);
        assert!(report.inconclusive.is_empty());
    }

    #[test]
    fn what_is_wanted_is_said_of_those_who_ran() {
        let job = Job { case: Case::parse("tcp1").unwrap(), congestion: None };
        let names = ["trieste-esp", "wireguard-go"].map(str::to_owned);
        let report = CaseReport::new(&job, &names, &[vec![round(4.0, 0.0)], vec![round(2.0, 0.0)]]);
        assert_eq!(
            report.wanted(),
            [
                "trieste-esp to wireguard-go, Gbit/s: 2.00; wanted at least 1.7: met",
                "trieste-esp to wireguard-go, CPU s/GB: 0.50; wanted at most 0.4: MISSED"
            ]
        );
    }

    #[test]
    fn packets_have_ratios_of_their_own_where_all_have_counted_them() {
        let job = Job { case: Case::parse("small64").unwrap(), congestion: None };
        let names = ["trieste-wireguard-xdp", "trieste-wireguard"].map(str::to_owned);
        let rate = |packets_s| Measured { packets_s: Some(packets_s), ..round(1.0, 0.0) };
        let report = CaseReport::new(&job, &names, &[vec![rate(300.0)], vec![rate(200.0)]]);
        assert_eq!(report.ratio["trieste-wireguard-xdp/trieste-wireguard"].packets_s, Some(1.5));
        assert_eq!(
            report.wanted(),
            ["trieste-wireguard-xdp to trieste-wireguard, packets/s: 1.50; wanted at least 2: MISSED"]
        );
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["results"]["trieste-wireguard"]["packets_s"]["median"], 200.0);
        assert!(report.inconclusive.is_empty(), "{:?}", report.inconclusive);
        let lossy = Measured { lost: 0.01, ..rate(300.0) };
        let report = CaseReport::new(&job, &names, &[vec![lossy], vec![rate(200.0)]]);
        assert!(report.inconclusive[0].starts_with("1.0000 % lost"), "{:?}", report.inconclusive);
        let streams = CaseReport::new(&job, &names, &[vec![round(4.0, 0.0)], vec![rate(200.0)]]);
        assert_eq!(streams.ratio["trieste-wireguard-xdp/trieste-wireguard"].packets_s, None);
    }

    #[test]
    fn noise_makes_a_case_inconclusive() {
        let calm = vec![round(4.0, 0.0), round(4.0, 0.0)];
        let loaded = vec![round(4.0, 0.0), round(4.0, 0.06)];
        let wild = vec![round(4.0, 0.0), round(6.1, 0.0)];
        assert!(report(&[calm.clone(), loaded]).inconclusive[0].contains("other load of 6.0 %"));
        assert!(report(&[calm, wild]).inconclusive[0].contains("factor of 1.5"));
    }
}

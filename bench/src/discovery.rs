//! What service discovery costs in a large cluster set: the agent and the DNS server of one cluster, between an API server of
//! its own and the broker's, on which many other clusters export services.
//!
//! How long it takes until all are answered; from one change anywhere to an answer, with what is written for it; a hundred
//! exports at once; what both use at rest; and until everything is gone again.

mod bed;
mod pair;
mod pair_row;
mod resolver;
mod row;
mod servers;
mod shape;

use clap::Args;

use crate::machine::Circumstances;
use crate::scale::{Report, in_lab};
use bed::Bed;
use pair::Pair;
use row::Row;

/// Options of `discovery`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Exported services of other clusters, one run for each number.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 10, 100, 1000],
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    services: Vec<u32>,
    /// Clusters that export them; no more than there are services.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=250))]
    clusters: u32,
    /// Their endpoints, most of which are headless services' [default: ten for each service].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=300_000))]
    endpoints: Option<u32>,
    /// Seconds that both programs rest before they are measured at rest, and for as long again.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    rest: u64,
    /// Seconds that anything may take.
    #[arg(long, default_value_t = 300)]
    patience: u64,
    /// Measures two clusters with an agent each in place of one among objects of others: from what is done in one to the answers
    /// of the other.
    #[arg(long, conflicts_with_all = ["services", "clusters", "endpoints"])]
    pair: bool,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// Measures and prints; says on standard error how far it is. A bar that is missed is printed and fails nothing, and so is a
/// size that cannot be measured.
///
/// # Errors
/// When this is not root, a program is missing, or nothing could be measured at all.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let mut report = Report::new(Circumstances::read());
    if options.pair {
        report.begin("api-server, two clusters".to_owned(), "services");
        let row = in_lab(|lab| Pair::measure(lab, options))?;
        report.take(1, row, pair_row::Row::point)?;
    } else {
        report.begin(format!("api-server, {} clusters", options.clusters), "services");
        for &services in &options.services {
            let row = in_lab(|lab| Bed::measure(lab, options, services))?;
            report.take(services, row, Row::point)?;
        }
    }
    anyhow::ensure!(!report.is_empty(), "nothing could be measured:\n{}", report.text());
    if options.json {
        crate::report::print_json(&report.json())
    } else {
        crate::report::print(&report.text())
    }
}

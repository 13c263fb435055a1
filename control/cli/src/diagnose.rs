//! `trieste diagnose`: finds what is wrong, in one cluster or between two.

mod path;

use std::process::ExitCode;

use clap::Subcommand;

use super::output::Output;

#[derive(Debug, clap::Args)]
pub(super) struct DiagnoseArgs {
    #[command(subcommand)]
    what: Check,
}

#[derive(Debug, Subcommand)]
enum Check {
    /// Walk one connection hop by hop, and name the broken one
    Path(path::PathArgs),
}

pub(super) async fn run(args: &DiagnoseArgs, output: &mut Output) -> anyhow::Result<ExitCode> {
    match &args.what {
        Check::Path(args) => path::run(args, output).await,
    }
}

/// The words that make `kubectl` talk to a cluster.
fn kubectl(context: Option<&str>) -> String {
    context.map(|context| format!(" --context {context}")).unwrap_or_default()
}

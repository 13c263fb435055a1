//! `trieste-lab`: the demo, and tidying up after labs that crashed or were kept.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use trieste_tests::demo::{self, Options};
use trieste_tests::{interrupt, registry};

/// Clusters out of network namespaces, on this machine. Needs root.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Two clusters joined by an encrypted cable, shown step by step.
    Demo(Options),
    /// Removes what crashed and kept labs left: namespaces, processes, files. Running labs are not touched.
    Clean {
        /// Leave labs alone that were kept on purpose.
        #[arg(long)]
        crashed: bool,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    interrupt::watch();
    let result = match &arguments.verb {
        Verb::Demo(options) => demo::run(options),
        Verb::Clean { crashed } => clean(*crashed),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) if interrupt::is_interrupted() => {
            eprintln!("\ninterrupted; everything was removed");
            ExitCode::from(130)
        }
        Err(error) => {
            eprintln!("\n{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn clean(only_crashed: bool) -> anyhow::Result<()> {
    anyhow::ensure!(rustix::process::geteuid().is_root(), "removing namespaces needs root");
    for claim in registry::abandoned()?.into_iter().filter(|claim| !(only_crashed && claim.record().kept)) {
        let id = claim.record().id.clone();
        let removed = claim.remove()?;
        eprintln!("removed lab {id}: {} processes, {} namespaces", removed.processes, removed.namespaces);
    }
    Ok(())
}

//! `trieste-discovery`: chooses the program by its name or its first argument. Everything else is in the library.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Command, FromArgMatches as _};
use trieste_control::command_line;
use trieste_discovery::{agent, ask, dns};

/// The program that was chosen.
enum Chosen {
    Agent(agent::Options),
    Dns(dns::Options),
    Ask(ask::Options),
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    if arguments.first().is_some_and(|name| dns::lighthouse::is_name(name)) {
        return dns::lighthouse::main_with(&arguments[1..]);
    }
    if arguments.first().is_some_and(|name| agent::lighthouse::is_name(name)) {
        return agent::lighthouse::main_with(&arguments[1..]);
    }
    let command = Command::new("trieste-discovery")
        .version(concat!("version: v", env!("CARGO_PKG_VERSION")))
        .about("Service discovery: the programs that run in a cluster")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(agent::Options::subcommand())
        .subcommand(dns::Options::subcommand())
        .subcommand(ask::Options::subcommand());
    let matches = command_line::matches(command, arguments, |name| std::env::var_os(name), &[]);
    let chosen = matches.and_then(|matches| match matches.subcommand() {
        Some((agent::NAME, matches)) => agent::Options::from_arg_matches(matches).map(Chosen::Agent),
        Some((dns::NAME, matches)) => dns::Options::from_arg_matches(matches).map(Chosen::Dns),
        Some((ask::NAME, matches)) => ask::Options::from_arg_matches(matches).map(Chosen::Ask),
        // clap has refused it.
        _ => Err(clap::Error::new(clap::error::ErrorKind::MissingSubcommand)),
    });
    match chosen {
        Ok(Chosen::Agent(options)) => agent::main_with(&options),
        Ok(Chosen::Dns(options)) => dns::main_with(&options),
        Ok(Chosen::Ask(options)) => ask::main_with(&options),
        Err(error) => command_line::refuse(&error),
    }
}

//! `trieste-discovery`: chooses the program by its name or its first argument. Everything else is in the library.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Command, FromArgMatches as _};
use trieste_control::command_line;
use trieste_discovery::dns;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    if arguments.first().is_some_and(|name| dns::lighthouse::is_name(name)) {
        return dns::lighthouse::main_with(&arguments[1..]);
    }
    let command = Command::new("trieste-discovery")
        .version(concat!("version: v", env!("CARGO_PKG_VERSION")))
        .about("Service discovery: the programs that run in a cluster")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(dns::Options::subcommand());
    let matches = command_line::matches(command, arguments, |name| std::env::var_os(name), &[]);
    let chosen = matches.and_then(|matches| match matches.subcommand() {
        Some((dns::NAME, matches)) => dns::Options::from_arg_matches(matches),
        // clap has refused it.
        _ => Err(clap::Error::new(clap::error::ErrorKind::MissingSubcommand)),
    });
    match chosen {
        Ok(options) => dns::main_with(&options),
        Err(error) => command_line::refuse(&error),
    }
}

//! `trieste-operator`: carries out Fabric resources. Everything is in the library.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};
use trieste_control::command_line;
use trieste_operator::config::Options;
use trieste_operator::run;

fn main() -> ExitCode {
    let matches =
        command_line::matches(Options::command(), std::env::args_os(), |name| std::env::var_os(name), &[]);
    match matches.and_then(|matches| Options::from_arg_matches(&matches)) {
        Ok(options) => run::main_with(&options),
        Err(error) => command_line::refuse(&error),
    }
}

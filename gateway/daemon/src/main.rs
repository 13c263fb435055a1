//! The binary: registers the kinds of cable and runs the library.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::error::ErrorKind;
use trieste_control::version::upstream_component;
use trieste_gateway::config::CommandLine;
use trieste_gateway::{kinds::Kinds, run::main_with};

fn main() -> ExitCode {
    let is_upstreams = std::env::args_os().next().is_some_and(|name| upstream_component(&name).is_some());
    match CommandLine::from_flags_and_environment(std::env::args_os(), |name| std::env::var_os(name)) {
        Ok(command_line) => main_with(&command_line, &Kinds::default()),
        Err(error) => {
            if error.kind() == ErrorKind::DisplayVersion && is_upstreams {
                // Where upstream's tool looks.
                eprint!("{error}");
            }
            error.exit()
        }
    }
}

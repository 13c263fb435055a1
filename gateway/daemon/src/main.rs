//! The binary: registers the kinds of cable and runs the library.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use trieste_control::command_line;
use trieste_gateway::config::CommandLine;
use trieste_gateway::globalnet::process::run as process;
use trieste_gateway::{kinds::Kinds, run::main_with};

fn main() -> ExitCode {
    if process::is_meant() {
        return process::main_with(std::env::args_os());
    }
    match CommandLine::from_flags_and_environment(std::env::args_os(), |name| std::env::var_os(name)) {
        Ok(command_line) => main_with(&command_line, &Kinds::default()),
        Err(error) => command_line::refuse(&error),
    }
}

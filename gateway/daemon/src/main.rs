//! The binary: registers the kinds of cable and runs the library.

use clap::Parser as _;
use std::process::ExitCode;
use trieste_gateway::config::CommandLine;
use trieste_gateway::run::{Kinds, main_with};

fn main() -> ExitCode {
    main_with(&CommandLine::parse(), &Kinds::default())
}

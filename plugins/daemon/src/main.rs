//! `trieste-plugin-sync`: flags, logging. Everything else is in the library.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use trieste_control::{command_line, logging};
use trieste_plugin_sync::config::Options;
use trieste_plugin_sync::run::run;

fn main() -> ExitCode {
    let options = Options::from_flags_and_environment(std::env::args_os(), |name| std::env::var_os(name));
    let options = match options {
        Ok(options) => options,
        Err(error) => command_line::refuse(&error),
    };
    logging::to_stderr(options.log.filter());
    match options.config().and_then(|config| run(&config)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("trieste-plugin-sync: {error:#}");
            ExitCode::FAILURE
        }
    }
}

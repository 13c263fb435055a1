//! The command `trieste`; see [`trieste_control::cli`].

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    trieste_control::cli::main()
}

//! The command `trieste`; see [`trieste_cli`].

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    trieste_cli::main()
}

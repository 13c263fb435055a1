//! Where programs that run in pods log to.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::EnvFilter;

/// Targets that are never logged, but by a more specific directive: the client library would write whole answers that
/// it cannot decode, and a line at each try where rights are missing, which conditions and events say once.
const QUIET: [&str; 2] = ["kube_client::client=error", "kube_runtime::watcher=error"];

/// Logs to standard error, as `RUST_LOG` says, else as `default` does.
///
/// # Panics
/// If something logs already.
pub fn to_stderr(default: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let quiet = QUIET.map(|text| text.parse().expect("a directive"));
    let filter = quiet.into_iter().fold(filter, EnvFilter::add_directive);
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr)
        .init();
}

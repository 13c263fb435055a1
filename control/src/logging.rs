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

/// Returns what is logged by default, by upstream's numbers: 3 is as much as for debugging, 4 and more is everything. What the
/// API server refuses is in our own words already.
#[must_use]
pub const fn filter(is_debug: bool, verbosity: u8) -> &'static str {
    match (is_debug, verbosity) {
        (_, 4..) => "trace,h2=info,hyper=info,hyper_util=info,rustls=info,tower=info",
        (true, _) | (_, 3) => {
            "debug,kube_client=info,kube_runtime=off,h2=info,hyper=info,hyper_util=info,rustls=info,tower=info,netlink_proto=info"
        }
        (false, _) => "info,kube_runtime=off",
    }
}

//! Where programs that run in pods log to.

use std::io::{self, IsTerminal as _};
use std::sync::OnceLock;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Targets that are never logged, but by a more specific directive: the client library would write whole answers that
/// it cannot decode, and a line at each try where rights are missing, which conditions and events say once.
const QUIET: [&str; 2] = ["kube_client::client=error", "kube_runtime::watcher=error"];

/// The longest text of directives, in bytes.
const LONGEST: usize = 1024;

/// Puts another filter in the place of the one that counts.
type Change = Box<dyn Fn(EnvFilter) + Send + Sync>;

/// How the filter of this process is changed, once it logs.
static CHANGE: OnceLock<Change> = OnceLock::new();

/// Logs to standard error, as `RUST_LOG` says, else as `default` does.
///
/// # Panics
/// If something logs already.
pub fn to_stderr(default: &str) {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter_of(None, default))
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr)
        .with_filter_reloading();
    let handle = builder.reload_handle();
    let change = move |filter| {
        if let Err(error) = handle.reload(filter) {
            tracing::warn!(%error, "cannot change what is logged");
        }
    };
    // Nobody has set it: what follows panics where something logs already.
    let _ = CHANGE.set(Box::new(change));
    builder.init();
}

/// Changes what is logged: as `chosen` says, else as `RUST_LOG`, else as `default` does. Without effect before [`to_stderr`].
pub fn change(chosen: Option<&str>, default: &str) {
    if let Some(change) = CHANGE.get() {
        change(filter_of(chosen, default));
    }
}

/// Returns `true` if a text is a level, or directives as `RUST_LOG` has them. A word alone is a level: as the name of a module,
/// which it may be there, a mistyped level would silence everything else.
pub fn is_filter(text: &str) -> bool {
    let is_clear =
        |directive: &str| directive.contains(['=', '[']) || directive.trim().parse::<LevelFilter>().is_ok();
    !text.is_empty()
        && text.len() <= LONGEST
        && text.split(',').all(is_clear)
        && EnvFilter::builder().parse(text).is_ok()
}

fn filter_of(chosen: Option<&str>, default: &str) -> EnvFilter {
    let chosen = chosen.and_then(|text| EnvFilter::builder().parse(text).ok());
    let from_environment = || EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let filter = chosen.unwrap_or_else(from_environment);
    let quiet = QUIET.map(|text| text.parse().expect("a directive"));
    quiet.into_iter().fold(filter, EnvFilter::add_directive)
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

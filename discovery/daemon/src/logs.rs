//! What the programs log.

/// Returns what is logged unless `RUST_LOG` says otherwise, by upstream's numbers.
#[must_use]
pub(crate) const fn filter(is_debug: bool, verbosity: u8) -> &'static str {
    match (is_debug, verbosity) {
        (_, 4..) => "trace,h2=info,hyper=info,hyper_util=info,rustls=info,tower=info",
        (true, _) | (_, 3) => {
            "debug,kube_client=info,kube_runtime=off,h2=info,hyper=info,hyper_util=info,rustls=info,tower=info"
        }
        (false, _) => "info,kube_runtime=off",
    }
}

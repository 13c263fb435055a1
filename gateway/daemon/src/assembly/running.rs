//! What goes on while the gateway runs.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::watch;
use trieste_control::publish::Publisher;
use trieste_control::store::AnyStore;

use crate::shared::Shared;
use crate::status;

pub(super) fn notify(states: &[sd_notify::NotifyState<'_>]) {
    // Not started by systemd: nobody to tell.
    let _ = sd_notify::notify(states);
}

/// Writes the Gateway object every five seconds.
pub(super) async fn heartbeat(
    publisher: Publisher<Arc<AnyStore>>,
    shared: Arc<Shared>,
    mut stop: watch::Receiver<bool>,
) {
    let status = || {
        shared.iterations.fetch_add(1, Ordering::Relaxed);
        status::published(&shared.status.load())
    };
    let stopped = async {
        // The sender lives as long as the gateway.
        let _ = stop.wait_for(|is_stopped| *is_stopped).await;
    };
    publisher.keep_gateway(status, stopped).await;
}

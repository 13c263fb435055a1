//! Signals that ask a program to end.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Watches for SIGTERM and SIGINT from now on; the future resolves at the first. Call it inside a tokio runtime.
///
/// # Errors
/// The kernel's.
pub fn stop() -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

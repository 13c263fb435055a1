//! Ctrl-C: everything in the lab that waits asks here, so that an interrupted run unwinds and tidies up as any other
//! failed run does.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static WATCH: Once = Once::new();

/// Starts to watch for SIGINT, SIGTERM and SIGHUP; from here on they do not end the process by themselves.
/// Later calls do nothing.
pub fn watch() {
    WATCH.call_once(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        let Ok(runtime) = runtime else { return };
        // The handlers are in place before anything is made that they would have to save.
        let guard = runtime.enter();
        let handlers = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal);
        drop(guard);
        let [Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)] = handlers else { return };
        let watcher = move || {
            runtime.block_on(async {
                loop {
                    tokio::select! {
                        _ = interrupt.recv() => {}
                        _ = terminate.recv() => {}
                        _ = hangup.recv() => {}
                    }
                    INTERRUPTED.store(true, Ordering::Relaxed);
                }
            });
        };
        // Without the thread the default handlers are gone and the flag stays false: nothing better can be done.
        let _ = std::thread::Builder::new().name("signals".into()).spawn(watcher);
    });
}

/// Fails once a signal has asked this process to end.
///
/// # Errors
/// "interrupted".
pub fn check() -> anyhow::Result<()> {
    anyhow::ensure!(!is_interrupted(), "interrupted");
    Ok(())
}

/// Whether a signal has asked this process to end.
pub fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Waits, but not past an interruption.
///
/// # Errors
/// "interrupted".
pub fn pause(duration: Duration) -> anyhow::Result<()> {
    let end = Instant::now() + duration;
    loop {
        check()?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
}

//! The process of a gateway: logs, configuration, runtime, signals.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::MissedTickBehavior;
use trieste_control::logging;
use trieste_io::heap::{self, Shrinking};

use crate::assembly::run;
use crate::config::{CommandLine, Log};
use crate::kinds::Kinds;
use crate::live::LiveSettings;
use crate::{privileges, uninstall};

/// How long file operations that nobody waits for may go on.
const FILES_TIMEOUT: Duration = Duration::from_millis(20);
/// How many heaps there are for all threads, and how large an allocation is kept when it is free.
const HEAPS: u16 = 2;
const LARGE_FROM: u32 = 128 << 10;
/// How often to check for memory that has become free: a set that has shrunk is followed within twice that.
const TRIM_INTERVAL: Duration = Duration::from_secs(5);
/// Exit code of a failed start or a fatal error (env-metrics §6).
const FATAL: u8 = 255;

/// Runs the program: logs, configuration, runtime, signals.
#[must_use]
pub fn main_with(command_line: &CommandLine, kinds: &Kinds) -> ExitCode {
    // By flags and environment alone: the file and the cluster's settings have not been read yet.
    let options = &command_line.options;
    let log = Log {
        chosen: options.log_level.clone(),
        is_debug: options.debug.unwrap_or(false),
        is_ipsec_debug: options.ipsec_debug.unwrap_or(false),
    };
    logging::to_stderr(&log.default_filter());
    match start(command_line, kinds) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let error = format!("{error:#}");
            tracing::error!(%error, "gateway failed");
            ExitCode::from(FATAL)
        }
    }
}

fn start(command_line: &CommandLine, kinds: &Kinds) -> anyhow::Result<()> {
    privileges::keep_memory_private();
    // Memory of the stores' objects is free again soon, and is returned to the kernel then. Packets do not use the heap.
    heap::bound(HEAPS, LARGE_FROM);
    let config = command_line.load()?;
    if command_line.uninstall {
        // The device has the name that the settings give it.
        let config = LiveSettings::at_start(command_line, &config).map_or(config, |(_, with)| with);
        privileges::settle(command_line, &config)?;
        return threads()?.block_on(uninstall::uninstall(&config));
    }
    let (live, config) = LiveSettings::at_start(command_line, &config)?;
    logging::change(config.log.chosen.as_deref(), &config.log.default_filter());
    // Threads have capabilities of their own: before the first one.
    privileges::settle(command_line, &config)?;
    let runtime = threads()?;
    runtime.spawn(give_memory_back());
    let outcome = runtime.block_on(run(&config, live, kinds, terminated()));
    // A directory that is slow to read must not hold the process up: whatever is written there is written whole or not.
    runtime.shutdown_timeout(FILES_TIMEOUT);
    outcome
}

/// Starts the control threads.
fn threads() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("control")
        .enable_all()
        .build()
        .context("starting the control threads")
}

/// Gives memory back to the kernel after the set has shrunk. Without it, pages that were used for what is gone stay with the
/// process, since what is still used lies between them.
async fn give_memory_back() {
    let mut shrinking = Shrinking::default();
    let mut ticks = tokio::time::interval(TRIM_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(before) = heap::usage() else { return };
        if !shrinking.is_due(before) {
            continue;
        }
        heap::trim();
        let after = heap::usage().unwrap_or_default();
        shrinking.trimmed(after);
        tracing::debug!(free_bytes = before.free, used_bytes = after.used, "free memory was given back");
    }
}

/// Completes at SIGTERM or SIGINT.
async fn terminated() {
    let (Ok(mut term), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = interrupt.recv() => {}
    }
}

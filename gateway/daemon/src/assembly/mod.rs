//! How a gateway is put together. Each phase is a struct that the next ones borrow from, in a file of its own:
//!
//! ```text
//!   Prepared ──▶ DataPlane ──▶ ControlPlane ──▶ Servers ──▶ Running ──▶ shutdown::in_order
//! ```
//!
//! * [`Prepared`] — all that can be refused: stores, state directory, node, listeners, devices, kind of cable. Nothing is
//!   published, and no packet is read.
//! * [`DataPlane`] — workers and engine: packets are read from here on.
//! * [`ControlPlane`] — what follows the stores and writes to them: elections, members, syncer, control loop.
//! * [`Servers`] — the admin socket and the metrics port, bound since the first phase, are answered.
//! * [`Running`] — the Gateway object is kept up to date, until somebody asks for the end or a part fails.
//! * [`shutdown`] — what ends, in which order, and how long it may take.

mod control_plane;
mod control_tasks;
mod data_plane;
mod environment;
mod kept_sessions;
mod own_endpoint;
mod peers;
mod prepare;
mod running;
mod servers;
mod shutdown;

use std::future::Future;

use crate::config::Config;
use crate::kinds::Kinds;
use crate::live::LiveSettings;
use control_plane::ControlPlane;
use data_plane::DataPlane;
use prepare::Prepared;
use running::Running;
use servers::Servers;

/// Runs a gateway until `stop` completes or something fatal happens.
///
/// # Errors
/// Why it could not start, or what was fatal.
pub(crate) async fn run(
    config: &Config,
    live: LiveSettings<'_>,
    kinds: &Kinds,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let prepared = Prepared::new(config, kinds).await?;
    let mut data_plane =
        DataPlane::start(&prepared.environment, prepared.devices, prepared.made, &prepared.own.spec)?;
    let mut control_plane = ControlPlane::start(prepared.environment, prepared.own, live, &data_plane)?;
    let servers = Servers::start(prepared.listeners, &data_plane, &control_plane);
    let running = Running::begin(&mut data_plane, &mut control_plane).await;
    let end = running.until_end(&mut data_plane, &mut control_plane, stop).await;
    shutdown::in_order(end, running, servers, control_plane, data_plane).await
}

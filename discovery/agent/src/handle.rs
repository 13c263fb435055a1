//! Starting an agent on two stores.

use futures::stream::{self, StreamExt as _};
use tokio::sync::watch;
use trieste_control::runner::{self, Fence, Handle, port};
use trieste_control::store::Store;

use crate::config::AgentConfig;
use crate::controller::{AgentController, LIMITS};
use crate::status::AgentStatus;

/// A running agent. Dropping it ends it; what it has written stays.
#[derive(Debug)]
pub struct AgentHandle {
    /// How far it is.
    pub status: watch::Receiver<AgentStatus>,
    /// The runner.
    pub runner: Handle,
}

/// Starts an agent that writes while the fence lets it.
///
/// # Panics
/// Outside a tokio runtime.
pub fn spawn<L: Store, B: Store>(local: L, broker: B, config: AgentConfig, fence: Fence) -> AgentHandle {
    let (sender, status) = watch::channel(AgentStatus::default());
    let publish = move |status: &AgentStatus| drop(sender.send_replace(status.clone()));
    let stores = vec![port(local), port(broker)];
    let controller = AgentController::new(config);
    let runner = runner::spawn(controller, stores, fence, stream::pending().boxed(), LIMITS, publish);
    AgentHandle { status, runner }
}

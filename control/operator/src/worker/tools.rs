//! What a worker works with.

use std::sync::Arc;
use std::time::Duration;

use trieste_deploy::{BrokerLogin, DeployError, Server};

/// How long steps of a pass may take that wait for others, such as for nodes that are being cleaned.
pub(super) const STEP_LIMIT: Duration = Duration::from_secs(120);

/// Name of the cluster that an operator runs in, in what it says.
pub const THIS_CLUSTER: &str = "this cluster";

/// Makes a client of a broker.
pub type Connect = Arc<dyn Fn(&BrokerLogin) -> Result<Server, DeployError> + Send + Sync>;

/// What a worker works with.
#[derive(Clone)]
pub struct Tools {
    /// This cluster's API server.
    pub server: Server,
    /// Makes a client of a broker.
    pub connect: Connect,
    /// The image of pods where nobody gives one.
    pub image: String,
    /// After which time an order that was carried out is repeated.
    pub resync: Duration,
}

impl std::fmt::Debug for Tools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tools").field("server", &self.server).finish_non_exhaustive()
    }
}

//! The health check of a gateway: [`Probes`] as this gateway's configuration wants them.

use trieste_control::conditions::Conditions;
use trieste_control::health::{PingerConfig, ProbeOptions, Probes};

use crate::config::{Config, HealthCheck};

/// Starts pinging as configured, on the current tokio runtime, out of the TUN device alone.
///
/// # Panics
/// Outside a tokio runtime.
#[must_use]
pub fn start(config: &Config, check: HealthCheck, conditions: Conditions) -> Probes {
    let options = ProbeOptions {
        cluster_id: config.cluster_id.clone(),
        pinger: PingerConfig::new(check.interval, check.max_loss),
        // The address that peers ping need not be the node's own (Globalnet's is not): the kernel chooses.
        sources: Vec::new(),
        device: Some(config.tun_name.clone()),
    };
    Probes::spawn(options, conditions)
}

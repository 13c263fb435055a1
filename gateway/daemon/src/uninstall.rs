//! Leaving nothing behind.

use anyhow::Context as _;
use trieste_control::api::{Kind, ObjectKey};
use trieste_control::election::GATEWAY_LEASE;
use trieste_control::publish::{Publisher, withdraw_from_broker};
use trieste_control::store::{Location, delete_if_exists};

use crate::config::Config;
use crate::{devices, host, memory, natdiscovery, state, stores};

/// Removes what this gateway has put anywhere: the TUN device, its objects in the local store, its cluster's
/// objects on the broker, and what it has kept on the node, its key included. Can be run again.
///
/// # Errors
/// What could not be removed.
pub async fn uninstall(config: &Config) -> anyhow::Result<()> {
    if std::os::unix::net::UnixStream::connect(&config.admin_socket).is_ok() {
        anyhow::bail!(
            "a gateway answers on {}: stop it first, or what is removed comes back",
            config.admin_socket.display()
        );
    }
    devices::remove(&config.tun_name)?;
    let is_there = match &config.store {
        Location::Dir(path) => path.exists(),
        Location::Kube { .. } | _ => true,
    };
    if is_there {
        let store = stores::local(config)?;
        let hostname = config.hostname.clone().unwrap_or_else(host::hostname);
        Publisher::new(store.clone(), &config.namespace, &config.cluster_id, &hostname)
            .withdraw()
            .await
            .context("removing this gateway's objects")?;
        let lease = ObjectKey::new(Kind::Lease, &config.namespace, GATEWAY_LEASE);
        delete_if_exists(&store, &lease).await.context("removing the election's Lease")?;
    }
    if let Some(broker) = stores::broker(config)? {
        withdraw_from_broker(&broker, &config.broker_namespace, &config.cluster_id).await.context(
            "removing this cluster's objects from the broker (run it again when the broker is there)",
        )?;
    }
    memory::forget(&config.state_dir).context("forgetting what was remembered")?;
    natdiscovery::forget(&config.state_dir).context("forgetting what NAT discovery had found")?;
    state::forget(&config.state_dir)?;
    tracing::info!("uninstalled");
    Ok(())
}

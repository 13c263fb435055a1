//! Leaving nothing behind.

use std::future::Future;
use std::time::Duration;

use anyhow::Context as _;
use trieste_control::api::{Kind, ObjectKey};
use trieste_control::election::GATEWAY_LEASE;
use trieste_control::members;
use trieste_control::publish::{Publisher, withdraw_from_broker};
use trieste_control::settings::{Program, remove_file};
use trieste_control::store::{Location, delete_if_exists};

use crate::config::Config;
use crate::globalnet::sessions;
use crate::{devices, host, memory, natdiscovery, notice, services, state, stores};

/// Removes what this gateway has put anywhere: the TUN device, its objects in the local store, its cluster's
/// objects on the broker, and what it has kept on the node, its key included. Can be run again.
///
/// # Errors
/// Objects that could not be removed.
pub async fn uninstall(config: &Config) -> anyhow::Result<()> {
    if std::os::unix::net::UnixStream::connect(&config.admin_socket).is_ok() {
        anyhow::bail!(
            "a gateway answers on {}: stop it first, or what is removed comes back",
            config.admin_socket.display()
        );
    }
    // One step that fails, such as a broker that was removed first, keeps none of the others from being taken.
    let steps = [
        devices::remove(&config.tun_name).context("removing the TUN device"),
        bounded(of_store(config)).await,
        bounded(of_broker(config)).await.context(
            "removing this cluster's objects from the broker (run it again when the broker is there)",
        ),
        memory::remove_files(&config.state_dir).context("removing the remembered state"),
        services::remove_files(&config.state_dir).context("removing what is remembered of services"),
        natdiscovery::remove_files(&config.state_dir).context("removing the results of NAT discovery"),
        notice::remove_files(&config.state_dir).context("removing the key of notices"),
        sessions::remove_files(&config.state_dir).context("removing the translated sessions"),
        remove_file(&config.state_dir, Program::Gateway).context("removing the remembered settings"),
        state::remove_files(&config.state_dir).map_err(Into::into),
    ];
    let failed: Vec<String> =
        steps.into_iter().filter_map(|step| Some(format!("{:#}", step.err()?))).collect();
    anyhow::ensure!(failed.is_empty(), "not everything could be removed: {}", failed.join("; "));
    tracing::info!("uninstalled");
    Ok(())
}

/// How long a store may take.
const STORE_TIMEOUT: Duration = Duration::from_secs(30);

async fn bounded(step: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let late = || anyhow::anyhow!("no answer within {STORE_TIMEOUT:?}");
    tokio::time::timeout(STORE_TIMEOUT, step).await.unwrap_or_else(|_| Err(late()))
}

async fn of_store(config: &Config) -> anyhow::Result<()> {
    if let Location::Dir(path) = &config.store
        && !path.exists()
    {
        return Ok(());
    }
    let store = stores::local(config)?;
    let hostname = config.hostname.clone().unwrap_or_else(host::hostname);
    let publisher = Publisher::new(store.clone(), &config.namespace, &config.cluster_id, &hostname);
    publisher.withdraw().await.context("removing this gateway's objects")?;
    let withdrawn = members::withdraw(&store, &config.namespace).await;
    withdrawn.context("removing what gateways tell one another")?;
    if config.has_globalnet() {
        // Without Globalnet the gateway's account has no right to look.
        let withdrawn = trieste_control::globalnet::withdraw(&store, &config.namespace).await;
        withdrawn.context("removing what Globalnet has made")?;
    }
    let lease = ObjectKey::new(Kind::Lease, &config.namespace, GATEWAY_LEASE);
    delete_if_exists(&store, &lease).await.context("removing the election's Lease")?;
    Ok(())
}

async fn of_broker(config: &Config) -> anyhow::Result<()> {
    let Some(broker) = stores::broker(config)? else { return Ok(()) };
    Ok(withdraw_from_broker(&broker, &config.broker_namespace, &config.cluster_id).await?)
}

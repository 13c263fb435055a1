//! The stores that the settings name.

use anyhow::Context as _;
use trieste_control::store::kube::Access;
use trieste_control::store::{AnyStore, KubeStore, Location};

use super::config::Broker;

/// Opens this cluster's own store. An API server need not be there.
///
/// # Errors
/// A directory that cannot be made.
pub fn local(location: &Location) -> anyhow::Result<AnyStore> {
    AnyStore::open(location).context("opening the local store")
}

/// Attaches to the broker. It need not be there.
///
/// # Errors
/// Settings that make no sense, by name.
pub fn broker(broker: &Broker) -> anyhow::Result<AnyStore> {
    match broker {
        Broker::At(location) => Ok(AnyStore::attach(location)),
        Broker::Server(settings) => {
            let access = Access::server(settings.clone()).context("the broker's settings (BROKER_K8S_…)")?;
            Ok(KubeStore::new(access).into())
        }
    }
}

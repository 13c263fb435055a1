//! The part that makes the cluster the broker.

use kube::config::Kubeconfig;
use trieste_control::api::{BrokerConfig, BrokerInfoSource, FabricSpec, PublishedBrokerInfo};
use trieste_control::steps::Record;
use trieste_deploy::deploy_broker::{DeployBroker, deploy_broker};
use trieste_deploy::objects::broker_info_secret;
use trieste_deploy::objects::names::{BROKER_INFO, BROKER_NAMESPACE, NAMESPACE};
use trieste_deploy::uninstall::{self, Scope, Uninstall};
use trieste_deploy::{ObjectRef, Server};

use super::failure::Failure;
use super::join_data::read_broker_info;
use super::keeps::keeps;
use super::tools::{STEP_LIMIT, Tools};
use crate::order::{Facts, Order, Outcome, Reason};
use crate::translate::{broker_options, published};

/// Makes the cluster the broker, or brings it up to date, and publishes its join data.
pub(super) async fn install(
    tools: &Tools,
    spec: &FabricSpec,
    steps: &mut Record,
) -> Result<Outcome, Failure> {
    let Some(config) = &spec.broker_config else { return Ok(Outcome::Removed) };
    let server = &tools.server;
    let own = published(BrokerInfoSource::Secret);
    // The set's key is in what was published: without that a new one would be made. What cannot be read may have one.
    let known = match read_broker_info(server, &own).await {
        Ok(info) => Some(info),
        Err(Failure::Missing { .. }) => None,
        Err(failure) => return Err(failure),
    };
    let options = DeployBroker {
        broker: broker_options(config)?,
        url: public_url(server, config).await?,
        psk: None,
        replace_psk: false,
        known,
    };
    let info = deploy_broker(server, &options, steps).await?;
    server.apply(broker_info_secret(BROKER_NAMESPACE, &info).as_value()).await?;
    let published =
        PublishedBrokerInfo { namespace: BROKER_NAMESPACE.to_owned(), name: BROKER_INFO.to_owned() };
    Ok(Outcome::Installed(Box::new(Facts { broker_info: Some(published), ..Facts::default() })))
}

/// Returns the address under which members reach this API server: the one that is given, or the one that kubeadm publishes.
async fn public_url(server: &Server, config: &BrokerConfig) -> Result<String, Failure> {
    if let Some(url) = &config.public_api_server_url {
        return Ok(url.clone());
    }
    let place = ObjectRef::namespaced("v1", "ConfigMap", "kube-public", "cluster-info");
    let found = server.find(&place).await?;
    let text = found.as_ref().and_then(|map| map["data"]["kubeconfig"].as_str());
    let url = text.and_then(|text| {
        let clusters = Kubeconfig::from_yaml(text).ok()?.clusters;
        clusters.into_iter().find_map(|cluster| cluster.cluster?.server)
    });
    url.ok_or_else(|| Failure::Missing {
        reason: "NoPublicURL",
        message: "how members reach this cluster's API server is not known: give brokerConfig.publicAPIServerURL, such as \
                  https://east.example.com:6443"
            .to_owned(),
    })
}

/// Removes the broker, once no cluster is registered with it.
pub(super) async fn remove(tools: &Tools, order: &Order, steps: &mut Record) -> Result<Outcome, Failure> {
    let server = &tools.server;
    let options = options(keeps(order));
    let found = uninstall::observe(server, &options).await?;
    // A pass that was killed may have left definitions alone.
    if found.is_nothing() {
        return Ok(Outcome::Removed);
    }
    let members = uninstall::registered_members(server, BROKER_NAMESPACE).await?;
    if !members.is_empty() {
        let message = format!(
            "these clusters are registered with the broker: {}; it goes when they have left (one that is gone for good: \
             trieste remove-member)",
            members.join(", ")
        );
        return Ok(Outcome::Waiting(Reason { reason: "MembersRegistered", message }));
    }
    uninstall::uninstall(server, None, &found, &options, steps).await?;
    let left = uninstall::observe(server, &options).await?;
    if left.objects.is_empty() {
        return Ok(Outcome::Removed);
    }
    let message = format!("{} objects of the broker are left", left.objects.len());
    Ok(Outcome::Waiting(Reason { reason: "Removing", message }))
}

fn options(keeps: Vec<ObjectRef>) -> Uninstall {
    Uninstall {
        namespace: NAMESPACE.to_owned(),
        broker_namespace: BROKER_NAMESPACE.to_owned(),
        patience: STEP_LIMIT,
        force: false,
        scope: Scope::BROKER,
        keeps,
    }
}

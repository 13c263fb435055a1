//! What a resource of the first users says, carried out: translated, and then as a Fabric; with join data where that operator has it.

use trieste_control::api::{BrokerConfig, BrokerInfoSource, FabricSpec};
use trieste_control::steps::Record;
use trieste_deploy::Server;
use trieste_deploy::objects::broker_info_config_map;
use trieste_deploy::objects::names::{BROKER_INFO, BROKER_NAMESPACE, MANAGED_BY_LABEL, TRIESTE};

use super::failure::Failure;
use super::join_data::{place, read_broker_info};
use super::remark::remark;
use super::tools::Tools;
use super::{broker, cloud, member};
use crate::kinds::is_of_tkestack;
use crate::order::{Facts, Order, Outcome, Part, Tkestack};
use crate::translate::published;
use crate::translate::tkestack::{Translated, cloud as translate_cloud, translate};

/// Makes the cluster what a resource says, or brings it up to date.
pub(super) async fn install(
    tools: &Tools,
    order: &Order,
    content: &Tkestack,
    earlier: Option<&Facts>,
    steps: &mut Record,
) -> Result<Outcome, Failure> {
    if order.part == Part::Broker && !content.publishes_config_map {
        withdraw(&tools.server).await?;
    }
    let order = with_join_info(tools, order.clone()).await?;
    let source = order.join_info.as_ref().map_or(BrokerInfoSource::Secret, |found| found.kind);
    let Translated { spec, warnings } = translate(&content.spec, source)?;
    let outcome = match order.part {
        Part::Broker => {
            let outcome = broker::install(tools, &spec, steps).await?;
            if let Some(config) = spec.broker_config.as_ref().filter(|_| content.publishes_config_map) {
                publish(&tools.server, &order, config, steps).await?;
            }
            outcome
        }
        Part::Cloud => prepare(tools, &order, (content, spec), earlier, steps).await?,
        Part::Member if order.join_info.is_none() => return Err(missing()),
        Part::Member => member::install(tools, &order, &spec, steps).await?,
        // Such a resource does not have it.
        Part::ServiceDiscovery => Outcome::Removed,
    };
    remark(&warnings, steps);
    Ok(outcome)
}

/// Prepares the cloud, if it is one that can be.
async fn prepare(
    tools: &Tools,
    order: &Order,
    (content, spec): (&Tkestack, FabricSpec),
    earlier: Option<&Facts>,
    steps: &mut Record,
) -> Result<Outcome, Failure> {
    let Some(cloud) = translate_cloud(&content.spec, &order.source.namespace)? else {
        return Ok(Outcome::Removed);
    };
    if !cloud.is_named && !cloud::is_aws(&tools.server).await? {
        let nothing = "cloudPrepareConfig is not carried out: it has no field aws, and the nodes are not AWS's. Other clouds are \
                       prepared by cloudPrepareConfig of a Fabric of trieste.io";
        remark(&[nothing.to_owned()], steps);
        return Ok(Outcome::Installed(Box::default()));
    }
    let spec = FabricSpec { cloud_prepare_config: Some(cloud.config), ..spec };
    cloud::install(tools, order, &spec, earlier, steps).await
}

/// Returns an order that says where the join data is, if it is about a member by a resource of the first users and there is some: in a
/// Secret, or else in a ConfigMap.
pub(super) async fn with_join_info(tools: &Tools, order: Order) -> Result<Order, Failure> {
    if !is_of_tkestack(order.source.kind) || order.part != Part::Member {
        return Ok(order);
    }
    for source in [BrokerInfoSource::Secret, BrokerInfoSource::ConfigMap].map(published) {
        if tools.server.find(&place(&source)).await?.is_some() {
            return Ok(Order { join_info: Some(source), ..order });
        }
    }
    Ok(order)
}

fn missing() -> Failure {
    Failure::Missing {
        reason: "BrokerInfoMissing",
        message: format!(
            "neither a Secret nor a ConfigMap {BROKER_INFO} is in {BROKER_NAMESPACE}: copy the Secret of that name from the \
             broker's cluster, or the ConfigMap, to the same namespace here"
        ),
    }
}

/// Publishes the broker's join data as that operator does.
async fn publish(
    server: &Server,
    order: &Order,
    config: &BrokerConfig,
    steps: &mut Record,
) -> Result<(), Failure> {
    let info = read_broker_info(server, &published(BrokerInfoSource::Secret)).await?;
    let manifest = broker_info_config_map(&info, config, &order.source);
    server.apply(manifest.as_value()).await?;
    let exposed = format!(
        "the ConfigMap {BROKER_INFO} in {BROKER_NAMESPACE} has the broker's token and the set's key in clear: whoever may read \
         ConfigMaps there may let clusters join, and read what they send. Take the annotation off, and have members copy the \
         Secret of that name"
    );
    remark(&[exposed], steps);
    Ok(())
}

/// Takes back what was published before, if it was by us.
pub(super) async fn withdraw(server: &Server) -> Result<(), trieste_deploy::DeployError> {
    let place = place(&published(BrokerInfoSource::ConfigMap));
    let is_ours = |map: &serde_json::Value| map["metadata"]["labels"][MANAGED_BY_LABEL] == TRIESTE;
    match server.find(&place).await? {
        Some(map) if is_ours(&map) => server.delete(&place).await.map(drop),
        Some(_) | None => Ok(()),
    }
}

//! From `cloudPrepareConfig` to what a cloud has to have.

use trieste_cloud::{Ports, Wanted};
use trieste_control::api::{
    AwsConfig, AzureConfig, CloudPrepareConfig, GcpConfig, GenericConfig, JoinConfig, RhosConfig,
};

use super::field::{FieldError, cidrs};

/// The one cloud that a part is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cloud<'c> {
    /// AWS.
    Aws(&'c AwsConfig),
    /// Google's cloud.
    Gcp(&'c GcpConfig),
    /// Azure.
    Azure(&'c AzureConfig),
    /// OpenStack.
    Rhos(&'c RhosConfig),
    /// Any other.
    Generic(&'c GenericConfig),
}

impl<'c> Cloud<'c> {
    /// Returns how many gateways there are to be, and the type of their machines.
    fn gateways(self) -> (u32, Option<&'c str>) {
        match self {
            Self::Aws(aws) => (aws.gateways, Some(&aws.gateway_instance)),
            Self::Gcp(gcp) => (gcp.gateways, Some(&gcp.gateway_instance)),
            Self::Azure(azure) => (azure.gateways, Some(&azure.gateway_instance)),
            Self::Rhos(rhos) => (rhos.gateways, Some(&rhos.gateway_instance)),
            Self::Generic(generic) => (generic.gateways, None),
        }
    }
}

/// Returns the cloud that a part names.
///
/// # Errors
/// [`FieldError`] unless it is one.
pub fn cloud(config: &CloudPrepareConfig) -> Result<Cloud<'_>, FieldError> {
    let named = [
        config.aws.as_ref().map(Cloud::Aws),
        config.gcp.as_ref().map(Cloud::Gcp),
        config.azure.as_ref().map(Cloud::Azure),
        config.rhos.as_ref().map(Cloud::Rhos),
        config.generic.as_ref().map(Cloud::Generic),
    ];
    let mut named = named.into_iter().flatten();
    match (named.next(), named.next()) {
        (Some(one), None) => Ok(one),
        (None | Some(_), _) => {
            Err(FieldError::new("cloudPrepareConfig", "name one of aws, gcp, azure, rhos and generic"))
        }
    }
}

/// Translates the part, with the ports of the member that is beside it.
///
/// # Errors
/// [`FieldError`] naming a field that makes no sense.
pub fn cloud_wanted(config: &CloudPrepareConfig, join: Option<&JoinConfig>) -> Result<Wanted, FieldError> {
    let (gateways, instance) = cloud(config)?.gateways();
    let mut ports = Ports::default();
    if let Some(join) = join {
        (ports.natt, ports.nat_discovery, ports.ike) =
            (join.natt_port, join.nat_discovery_port, join.ike_port);
    }
    Ok(Wanted {
        ports,
        sources: cidrs("cloudPrepareConfig.sources", Some(&config.sources.join(",")))?,
        gateways: usize::try_from(gateways).unwrap_or(1),
        instance: instance.map(str::to_owned),
        load_balancer: join.is_some_and(|join| join.load_balancer_enabled),
    })
}

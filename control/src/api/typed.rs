//! The typed kinds, listed once: their metadata, and the shape that a definition's schema checks. Apart from [`Object`],
//! which the kinds import.

use super::{
    ApiError, Broker, Cluster, ClusterGlobalEgressIp, Endpoint, Gateway, GatewayRoute, GlobalEgressIp,
    GlobalIngressIp, Kind, NonGatewayRoute, Object, ObjectMeta, Resource, RouteAgent, Submariner,
};

macro_rules! resources {
    ($($kind:ident)*) => {$(
        impl Resource for $kind {
            const KIND: Kind = Kind::$kind;

            fn metadata(&self) -> &ObjectMeta {
                &self.metadata
            }
        }
    )*};
}

resources! {
    Broker Cluster ClusterGlobalEgressIp Endpoint Gateway GatewayRoute GlobalEgressIp GlobalIngressIp NonGatewayRoute
    RouteAgent Submariner
}

impl Object {
    /// Checks that the body has the required fields of its kind, each of the right type: what an API server's schema
    /// checks. Values (is this a CIDR?) are left to those who use them.
    ///
    /// # Errors
    /// [`ApiError::Field`], naming the first field at fault.
    pub fn check_shape(&self) -> Result<(), ApiError> {
        match self.kind {
            Kind::Cluster => Cluster::from_object(self).and_then(|cluster| cluster.spec.check_shape()),
            Kind::Endpoint => {
                Endpoint::from_object(self).and_then(|endpoint| endpoint.spec.check_shape("spec"))
            }
            Kind::Gateway => Gateway::from_object(self).and_then(|gateway| gateway.check_shape()),
            Kind::RouteAgent => RouteAgent::from_object(self).and_then(|agent| agent.check_shape()),
            Kind::GatewayRoute => GatewayRoute::from_object(self).map(drop),
            Kind::NonGatewayRoute => NonGatewayRoute::from_object(self).map(drop),
            Kind::ClusterGlobalEgressIp => {
                ClusterGlobalEgressIp::from_object(self).and_then(|egress| egress.check_shape())
            }
            Kind::GlobalEgressIp => GlobalEgressIp::from_object(self).and_then(|egress| egress.check_shape()),
            Kind::GlobalIngressIp => GlobalIngressIp::from_object(self).map(drop),
            Kind::Submariner => Submariner::from_object(self).map(drop),
            Kind::Broker => Broker::from_object(self).map(drop),
            // These are what Kubernetes makes them.
            Kind::Lease
            | Kind::Node
            | Kind::Pod
            | Kind::Service
            | Kind::Event
            | Kind::CoreEndpoints
            | Kind::ServiceExport
            | Kind::EndpointSlice => Ok(()),
        }
    }
}

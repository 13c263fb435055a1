//! The typed kinds, listed once: their metadata, and the shape that a definition's schema checks. Apart from [`Object`],
//! which the kinds import.

use super::{
    ApiError, Broker, Cluster, ClusterGlobalEgressIp, Endpoint, Fabric, Gateway, GatewayRoute,
    GlobalEgressIp, GlobalIngressIp, Kind, NonGatewayRoute, Object, ObjectMeta, Resource, RouteAgent,
    ServiceDiscovery, ServiceImport, Submariner,
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
    Broker Cluster ClusterGlobalEgressIp Endpoint Fabric Gateway GatewayRoute GlobalEgressIp GlobalIngressIp NonGatewayRoute
    RouteAgent ServiceDiscovery ServiceImport Submariner
}

impl Object {
    /// Checks that the body has the required fields of its kind, each of the right type: what an API server's schema
    /// checks. Values (is this a CIDR?) are left to those who use them. Of a body that has it, that is found out once for all
    /// copies.
    ///
    /// # Errors
    /// [`ApiError::Field`], naming the first field at fault.
    pub fn check_shape(&self) -> Result<(), ApiError> {
        if self.withheld.is_none() && self.body.facts().shape.get() == Some(&self.kind) {
            return Ok(());
        }
        self.check_fields()?;
        self.note_shape();
        Ok(())
    }

    /// Notes that the body has the shape of its kind, as [`Object::check_shape`] would find.
    pub(crate) fn note_shape(&self) {
        let _ = self.body.facts().shape.set(self.kind);
    }

    fn check_fields(&self) -> Result<(), ApiError> {
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
            Kind::ServiceDiscovery => ServiceDiscovery::from_object(self).map(drop),
            Kind::ServiceImport => ServiceImport::from_object(self).map(drop),
            Kind::Fabric => Fabric::from_object(self).map(drop),
            // These are what Kubernetes makes them.
            Kind::Lease
            | Kind::Node
            | Kind::Pod
            | Kind::Service
            | Kind::Event
            | Kind::CoreEndpoints
            | Kind::ServiceExport
            | Kind::EndpointSlice
            | Kind::Namespace
            | Kind::IpPool
            | Kind::ConfigMap
            | Kind::CiliumNode
            | Kind::SpiderCoordinator
            | Kind::SpiderMultusConfig
            | Kind::SpiderIpPool
            | Kind::ServiceCidr
            | Kind::CiliumPodIpPool
            | Kind::OpenShiftNetwork
            | Kind::DaemonSet
            | Kind::Deployment
            // Their definition may be another operator's.
            | Kind::TkestackFabric
            | Kind::Knitnet => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_shape_of_a_body_is_found_out_once_for_its_copies_and_again_when_one_changes() {
        let mut object = Object::new(Kind::Cluster, ObjectMeta::new("ns", "a"));
        assert!(object.check_shape().is_err() && object.body.facts().shape.get().is_none());
        let spec = json!({"cluster_id": "a", "color_codes": [], "service_cidr": [], "cluster_cidr": [],
            "global_cidr": []});
        object.body.insert("spec".to_owned(), spec);
        object.check_shape().unwrap();
        let copy = object.clone();
        assert_eq!(copy.body.facts().shape.get(), Some(&Kind::Cluster));
        let other = Object { kind: Kind::Endpoint, ..copy };
        assert!(other.check_shape().is_err(), "it is another kind's");
        assert!(
            Object { withheld: Some("it is too large".to_owned()), ..object.clone() }.check_shape().is_err()
        );
        object.body["spec"]["cluster_id"] = json!(7);
        assert!(object.check_shape().is_err());
    }
}

//! The objects of `submariner.io/v1`: those that clusters exchange, those that components publish, and globalnet's;
//! the three of `submariner.io/v1alpha1` that say what was chosen when a broker was deployed and a cluster joined; and what
//! clusters import of each other's services.
//!
//! These are wire types: field names, optionality and equality are those of upstream Submariner, addresses and CIDRs
//! stay the text they were, and fields that we do not know survive reading and writing at every level. Fields that must
//! be correct before they become a route or a peer are parsed once, by [`EndpointSpec::parse`], [`ClusterSpec::parse`]
//! and [`RouteSpec::parse`], into types that cannot be wrong and are not beyond [`limits`]. [`crd`] makes the
//! definitions for an API server out of the types.
//!
//! An [`Object`] is any kind with its body left as JSON; the store and the syncer move those, so that a newer
//! peer's fields pass through. [`Resource`] turns an [`Object`] into a typed kind and back.

mod body;
mod broker;
mod cluster;
mod cluster_networks;
mod condition;
pub mod crd;
mod displaced;
mod duration;
mod egress;
mod endpoint;
mod error;
mod fabric;
mod gateway;
mod ingress;
mod kind;
mod lenient;
pub mod limits;
mod meta;
mod names;
mod object;
mod paths;
mod route_agent;
mod routes;
mod routing;
mod selector;
mod service_discovery;
mod service_import;
mod submariner;
mod subnets;
mod tkestack;
mod typed;

pub use body::Body;
pub use broker::{Broker, BrokerSpec};
pub use cluster::{Cluster, ClusterFacts, ClusterSpec};
pub use cluster_networks::ClusterNetworks;
pub use condition::{Condition, ConditionStatus};
pub use displaced::{displace, placed};
pub use duration::{GoDuration, GoDurationError};
pub use egress::{
    ClusterGlobalEgressIp, ClusterGlobalEgressIpSpec, EgressStatus, GlobalEgressIp, GlobalEgressIpSpec,
};
pub use endpoint::{Endpoint, EndpointFacts, EndpointSpec, backend_config};
pub use error::ApiError;
pub use fabric::{
    AwsConfig, AzureConfig, BrokerConfig, BrokerInfoRef, BrokerInfoSource, CloudPrepareConfig,
    CredentialsSecret, Fabric, FabricGateway, FabricNetworks, FabricPhase, FabricSpec, FabricStatus,
    GcpConfig, GenericConfig, JoinConfig, ProxyConfig, PublishedBrokerInfo, RhosConfig,
};
pub use gateway::{Connection, ConnectionStatus, Gateway, HaStatus, LatencyRtt, LeftOut, PublishedStatus};
pub use ingress::{GlobalIngressIp, GlobalIngressIpSpec, IngressStatus, IngressTarget};
pub use kind::{API_VERSION, Kind, OPERATOR_API_VERSION, OWN_API_VERSION, TKESTACK_API_VERSION};
pub use meta::{ObjectMeta, annotation, finalizer, label};
pub use names::{
    MAX_NAME_LEN, NameError, cable_name, check_cluster_id, check_namespace, check_object_name,
    endpoint_object_name, ensure_valid_name, internal_service_name,
};
pub(crate) use object::cut;
pub use object::{Object, ObjectKey, Resource};
pub use paths::{DEFAULT_WEIGHT, MAX_WEIGHT, NAT_SLOTS, NoticeKey};
pub use route_agent::{NodeCondition, RemoteEndpoint, RouteAgent, RouteAgentStatus};
pub use routes::{
    GatewayRoute, NonGatewayRoute, RouteFacts, RouteSpec, closed_routes_name, has_closed_routes,
};
pub use routing::{MAX_PREFERENCE_LEN, check_routing};
pub use selector::{LabelRequirement, LabelSelector, LocalReference, SelectorError};
pub use service_discovery::{ServiceDiscovery, ServiceDiscoverySpec};
pub use service_import::{
    ExportingCluster, ImportFacts, ImportPort, ServiceImport, ServiceImportSpec, ServiceImportStatus,
    ServiceImportType,
};
pub use submariner::{HealthCheckSpec, Hidden, Submariner, SubmarinerSpec, SubmarinerStatus};
use subnets::parse_ip;
pub use subnets::{overlap, parse_cidrs, published};
pub use tkestack::{
    PUBLISH_BROKER_INFO, TkestackAction, TkestackAws, TkestackBroker, TkestackCloud, TkestackJoin,
    TkestackResource, TkestackSecret, TkestackSpec,
};

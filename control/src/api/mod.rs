//! The objects that clusters exchange: `submariner.io/v1` Cluster, Endpoint and Gateway.
//!
//! These are wire types: field names, optionality and equality are those of upstream Submariner, addresses and
//! CIDRs stay the text they were, and fields that we do not know survive reading and writing at every level.
//! What must be correct before it becomes a route or a peer is parsed once, by [`EndpointSpec::parse`] and
//! [`ClusterSpec::parse`], into types that cannot be wrong.
//!
//! An [`Object`] is any kind with its body left as JSON; the store and the syncer move those, so that a newer
//! peer's fields pass through. [`Resource`] turns an [`Object`] into a typed kind and back.

mod cluster;
mod duration;
mod endpoint;
mod error;
mod gateway;
mod kind;
mod lenient;
mod meta;
mod names;
mod object;
mod subnets;

pub use cluster::{Cluster, ClusterFacts, ClusterSpec};
pub use duration::{GoDuration, GoDurationError};
pub use endpoint::{Endpoint, EndpointFacts, EndpointSpec, backend_config};
pub use error::ApiError;
pub use gateway::{Connection, ConnectionStatus, Gateway, HaStatus, LatencyRtt, PublishedStatus};
pub use kind::{API_VERSION, Kind};
pub use meta::{ObjectMeta, annotation, label};
pub use names::{
    MAX_NAME_LEN, NameError, cable_name, check_cluster_id, check_namespace, check_object_name,
    endpoint_object_name, ensure_valid_name,
};
pub use object::{Object, ObjectKey, Resource};
pub use subnets::{overlap, parse_cidrs};

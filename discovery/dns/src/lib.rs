#![forbid(unsafe_code)]
//! Names across clusters: an authoritative DNS responder for `clusterset.local` and custom domains.
//!
//! ```text
//!  objects ─▶ Change ─▶ Writer ─▶ Records ◀── answer() ◀── datagrams; streams of messages
//!  gateways ─▶ Health ─▶ Change ─┘  (shards, read without a lock)
//! ```
//!
//! [`answer()`] is a function of a query's bytes, [`Records`] and [`Settings`]. It opens no socket and reads no clock:
//! sockets and the objects of a cluster set are those of `trieste-discovery`, which passes each change to
//! [`Writer::apply`], and what it reads of a TCP connection to a [`Stream`].

mod answer;
mod cluster;
mod connections;
mod export;
mod family;
mod health;
mod label;
mod lead;
mod name;
mod node;
mod outcome;
mod pick;
mod records;
mod request;
mod response;
mod reverse;
mod routing;
mod schedule;
mod service;
mod settings;
mod sharded;
mod slice;
mod source;
mod stream;
mod survey;
mod target;
mod transport;
mod wire_name;
mod writer;
mod zone;

pub use answer::answer;
pub use cluster::ClusterState;
pub use connections::{ConnectionLimits, Connections};
pub use health::{Health, HealthConfig};
pub use label::{Label, LabelError, MAX_LABEL_BYTES, ServiceName};
pub use lead::Lead;
pub use outcome::{Answer, DropReason, Outcome, QueryType, Summary};
pub use records::{Answered, Records};
pub use routing::{MAX_FAILOVER, Routing, RoutingError};
pub use service::ServiceKind;
pub use settings::{DEFAULT_TTL, MAX_TTL, MAX_ZONES, Settings, SettingsError};
pub use slice::{Endpoint, MAX_ENDPOINTS, MAX_PORTS, Port, Protocol, Slice};
pub use stream::{Stream, StreamEnd, StreamTimes};
pub use survey::{ClusterSurvey, Survey};
pub use transport::Transport;
pub use writer::{Change, ChangeError, Import, MAX_CLUSTERS, MAX_IPS, MAX_SLICES, Writer};
pub use zone::{Zone, ZoneError};

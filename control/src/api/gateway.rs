//! Gateway: what a gateway says about its state and its connections, every five seconds.

use std::fmt;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::lenient::null_as_default;
use super::{
    ApiError, EndpointSpec, GoDuration, ObjectMeta, annotation, check_object_name, ensure_valid_name,
};

/// One gateway's published status. The object's name is the host name, made valid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Gateway {
    /// Metadata, with the annotation [`annotation::UPDATE_TIMESTAMP`].
    #[schemars(with = "Map<String, Value>")]
    pub metadata: ObjectMeta,
    /// The status.
    pub status: PublishedStatus,
    /// Unknown top-level fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Gateway {
    /// Returns a new Gateway object in `namespace`, named after the host.
    ///
    /// # Errors
    /// [`ApiError::Field`] when no object name can be made of the host name.
    pub fn new(namespace: &str, hostname: &str, status: PublishedStatus) -> Result<Self, ApiError> {
        let name = ensure_valid_name(hostname);
        check_object_name(&name).map_err(|error| ApiError::field("metadata.name", error.to_string()))?;
        Ok(Self { metadata: ObjectMeta::new(namespace, name), status, extra: Map::new() })
    }

    /// Checks what upstream's schema does beyond types.
    pub(super) fn check_shape(&self) -> Result<(), ApiError> {
        self.status.check_shape()
    }

    /// Returns the time at which the gateway last wrote this object; `None` when the annotation is missing or no
    /// number.
    pub fn updated(&self) -> Option<Timestamp> {
        let seconds = self.metadata.annotations.get(annotation::UPDATE_TIMESTAMP)?.parse().ok()?;
        Timestamp::from_second(seconds).ok()
    }

    /// Returns how many connections the gateway has besides those in its status, by the annotation
    /// [`annotation::CONNECTIONS_LEFT_OUT`]; none where that makes no sense.
    pub fn left_out(&self) -> LeftOut {
        let text = self.metadata.annotations.get(annotation::CONNECTIONS_LEFT_OUT);
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }
}

/// `Gateway.status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PublishedStatus {
    /// The gateway's software version.
    pub version: String,
    /// Whether this gateway carries traffic: `active` or `passive`.
    #[schemars(with = "String")]
    pub ha_status: HaStatus,
    /// The gateway's own endpoint.
    pub local_endpoint: EndpointSpec,
    /// Why the gateway cannot work; empty if it can.
    pub status_failure: String,
    /// One entry per cable; empty on a passive gateway, never absent.
    #[serde(deserialize_with = "null_as_default")]
    pub connections: Vec<Connection>,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl PublishedStatus {
    /// Checks what upstream's schema does beyond types.
    pub(crate) fn check_shape(&self) -> Result<(), ApiError> {
        self.local_endpoint.check_shape("status.localEndpoint")?;
        self.connections.iter().enumerate().try_for_each(|(index, connection)| {
            connection.endpoint.check_shape(&format!("status.connections[{index}].endpoint"))
        })
    }
}

/// How many connections a status has no space for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeftOut {
    /// Those that are connected.
    pub connected: usize,
    /// Those that are not.
    pub others: usize,
}

impl LeftOut {
    /// Returns how many there are in all.
    pub const fn total(self) -> usize {
        self.connected.saturating_add(self.others)
    }
}

/// Whether a gateway carries traffic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum HaStatus {
    /// It does.
    Active,
    /// It stands by.
    #[default]
    Passive,
}

impl HaStatus {
    /// Returns the status as the API has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Passive => "passive",
        }
    }
}

impl fmt::Display for HaStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A cable, as its owner sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Connection {
    /// The state: `connected`, `connecting`, `error` or `none`.
    #[schemars(with = "String")]
    pub status: ConnectionStatus,
    /// Why, for people; may be empty.
    pub status_message: String,
    /// The other end.
    pub endpoint: EndpointSpec,
    /// The address in use towards the other end; absent until one is chosen.
    #[serde(rename = "usingIP", default, skip_serializing_if = "String::is_empty")]
    pub using_ip: String,
    /// Whether that address is behind NAT; absent when false.
    #[serde(rename = "usingNAT", default, skip_serializing_if = "std::ops::Not::not")]
    pub using_nat: bool,
    /// Round trips of the health check, if there is one.
    #[serde(rename = "latencyRTT", default, skip_serializing_if = "Option::is_none")]
    pub latency_rtt: Option<LatencyRtt>,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// The state of a cable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ConnectionStatus {
    /// Packets go through.
    Connected,
    /// Being set up.
    #[default]
    Connecting,
    /// Set up, and packets do not go through.
    Error,
    /// Not judged.
    None,
}

impl ConnectionStatus {
    /// Returns the status as the API has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Connecting => "connecting",
            Self::Error => "error",
            Self::None => "none",
        }
    }
}

impl fmt::Display for ConnectionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Round-trip times over the health check's window, each in Go's duration text (see [`GoDuration`]).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LatencyRtt {
    /// The newest.
    pub last: String,
    /// The shortest.
    pub min: String,
    /// The mean.
    pub average: String,
    /// The longest.
    pub max: String,
    /// The standard deviation.
    pub std_dev: String,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl LatencyRtt {
    /// Creates round-trip times from durations.
    pub fn new(
        last: GoDuration,
        min: GoDuration,
        average: GoDuration,
        max: GoDuration,
        std_dev: GoDuration,
    ) -> Self {
        Self {
            last: last.to_string(),
            min: min.to_string(),
            average: average.to_string(),
            max: max.to_string(),
            std_dev: std_dev.to_string(),
            extra: Map::new(),
        }
    }
}

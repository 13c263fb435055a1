//! The kinds of objects that the stores hold.

use std::fmt;
use std::str::FromStr;

/// Group and version of every kind here.
pub const API_VERSION: &str = "submariner.io/v1";

/// A kind of object. All are namespaced and none has a status subresource: writers replace the whole object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A member of the cluster set: its ID and CIDRs.
    Cluster,
    /// One way into a cluster: a gateway's addresses, keys and subnets.
    Endpoint,
    /// A gateway's own status, connections included.
    Gateway,
}

impl Kind {
    /// Every kind, in the order in which a gateway writes them.
    pub const ALL: [Self; 3] = [Self::Cluster, Self::Endpoint, Self::Gateway];

    /// The name in an object's `kind` field.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cluster => "Cluster",
            Self::Endpoint => "Endpoint",
            Self::Gateway => "Gateway",
        }
    }

    /// The lower-case plural, as in resource paths and directory names.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Cluster => "clusters",
            Self::Endpoint => "endpoints",
            Self::Gateway => "gateways",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or_else(|| format!("unknown kind `{text}`"))
    }
}

impl serde::Serialize for Kind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> serde::Deserialize<'de> for Kind {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

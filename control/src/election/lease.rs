//! Lease: Kubernetes' record of who leads, `coordination.k8s.io/v1`.

use std::fmt;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::api::{Kind, ObjectMeta, Resource};

/// A Lease object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// The holder and its term.
    #[serde(default, deserialize_with = "lenient")]
    pub spec: LeaseSpec,
    /// Unknown top-level fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Lease {
    /// Creates a new Lease object.
    pub fn new(namespace: &str, name: &str, spec: LeaseSpec) -> Self {
        Self { metadata: ObjectMeta::new(namespace, name), spec, extra: Map::new() }
    }

    /// Returns the version that a write must be based on; empty on an object that no store has seen.
    pub(super) fn version(&self) -> &str {
        self.metadata.resource_version.as_deref().unwrap_or_default()
    }

    /// Returns `true` if two states of the object name the same leadership. A re-created object never does.
    pub(super) fn is_same_record(&self, other: &Self) -> bool {
        self.spec == other.spec && self.metadata.uid == other.metadata.uid
    }
}

impl Resource for Lease {
    const KIND: Kind = Kind::Lease;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}

/// The holder of a Lease, since when, and for how long. A field that somebody spoilt by hand is read as absent: the
/// next holder writes it anew.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaseSpec {
    /// The holder; empty when it has been released.
    #[serde(default, deserialize_with = "lenient")]
    pub holder_identity: String,
    /// For how long, in seconds, others must have seen no change before they may take the Lease.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub lease_duration_seconds: Option<i32>,
    /// When the holder took it, on the holder's clock.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub acquire_time: Option<MicroTime>,
    /// When the holder last said that it is alive, on the holder's clock.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub renew_time: Option<MicroTime>,
    /// How often the holder has changed.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub lease_transitions: Option<i32>,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A time to the microsecond, written with exactly six digits as Kubernetes' `MicroTime` demands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MicroTime(Timestamp);

impl MicroTime {
    /// Creates it from a time, to the microsecond.
    pub fn new(time: Timestamp) -> Self {
        Self(Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time))
    }

    /// Returns the time.
    pub fn timestamp(self) -> Timestamp {
        self.0
    }
}

impl fmt::Display for MicroTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.as_microsecond();
        let seconds = Timestamp::from_second(micros.div_euclid(1_000_000)).unwrap_or(self.0);
        write!(f, "{}.{:06}Z", seconds.strftime("%Y-%m-%dT%H:%M:%S"), micros.rem_euclid(1_000_000))
    }
}

impl Serialize for MicroTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MicroTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Timestamp::deserialize(deserializer).map(Self::new)
    }
}

/// Reads a value; one of the wrong type as if it were absent.
fn lenient<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(deserializer: D) -> Result<T, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(deserializer)?).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Object;

    #[test]
    fn a_recorded_lease_reads_and_writes_back_unchanged() {
        let recorded = serde_json::json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"creationTimestamp": "2026-11-21T05:48:28Z", "name": "submariner-gateway-lock",
                "namespace": "submariner-operator", "resourceVersion": "2174",
                "uid": "c3082109-ba13-4d99-bbe4-01ec74331994"},
            "spec": {"acquireTime": "2026-11-21T05:57:39.941744Z", "holderIdentity": "a-gw1-submariner-gateway",
                "leaseDurationSeconds": 15, "leaseTransitions": 4, "renewTime": "2026-11-21T06:14:14.400000Z",
                "strategy": "OldestEmulationVersion"},
        });
        let lease = Lease::from_object(&Object::from_value(recorded.clone()).unwrap()).unwrap();
        assert_eq!(lease.spec.lease_transitions, Some(4));
        assert_eq!(lease.to_object().to_value(), recorded);
    }

    #[test]
    fn what_was_spoilt_by_hand_is_read_as_absent() {
        let spoilt = serde_json::json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "x", "namespace": "y"},
            "spec": {"holderIdentity": 7, "leaseDurationSeconds": "long", "renewTime": "yesterday",
                "leaseTransitions": 9_999_999_999_i64},
        });
        let lease = Lease::from_object(&Object::from_value(spoilt).unwrap()).unwrap();
        assert_eq!(lease.spec, LeaseSpec::default());
    }

    #[test]
    fn times_have_six_digits_always() {
        for (time, text) in
            [("2026-01-02T03:04:05Z", "05.000000Z"), ("1969-12-31T23:59:59.5Z", "23:59:59.500000Z")]
        {
            let shown = MicroTime::new(time.parse().unwrap()).to_string();
            assert!(shown.ends_with(text), "{shown}");
        }
    }
}

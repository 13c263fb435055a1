//! ServiceImport of the Multi-Cluster Services API: a service that clusters of the set export.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::lenient::null_as_default;
use super::{ApiError, Condition, ObjectMeta, check_cluster_id, limits, parse_ip};

/// A service that other clusters may reach: what is the same in all that export it, and which those are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceImport {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What is the same in all clusters.
    pub spec: ServiceImportSpec,
    /// The clusters that export it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<ServiceImportStatus>,
    /// Unknown top-level fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// `ServiceImport.spec`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceImportSpec {
    /// What addresses it has.
    #[serde(rename = "type")]
    pub kind: ServiceImportType,
    /// Its addresses for the whole set, or, in a cluster's own part, of that cluster.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<String>,
    /// Its ports, of all clusters that export it.
    #[serde(default, deserialize_with = "null_as_default")]
    pub ports: Vec<ImportPort>,
    /// Whether a client stays with a back end: `None` or `ClientIP`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_affinity: Option<String>,
    /// For how long, as a Service says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_affinity_config: Option<Value>,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// What addresses an imported service has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ServiceImportType {
    /// One in each cluster, or one for the whole set.
    #[serde(rename = "ClusterSetIP")]
    ClusterSetIp,
    /// Those of its pods.
    Headless,
}

impl ServiceImportType {
    /// Returns the type as the API has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClusterSetIp => "ClusterSetIP",
            Self::Headless => "Headless",
        }
    }
}

/// A port of an imported service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImportPort {
    /// Its name; empty where a service has a single port.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// `TCP`, `UDP` or `SCTP`.
    #[serde(default = "tcp")]
    pub protocol: String,
    /// What is spoken on it, if the service says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_protocol: Option<String>,
    /// Its number.
    pub port: u16,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

fn tcp() -> String {
    "TCP".to_owned()
}

/// `ServiceImport.status`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceImportStatus {
    /// The clusters that export the service.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<ExportingCluster>,
    /// What newer definitions say of it.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A cluster that exports a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportingCluster {
    /// Its ID.
    pub cluster: String,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A [`ServiceImport`] whose every value has been checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportFacts {
    /// What addresses it has.
    pub kind: ServiceImportType,
    /// Its addresses.
    pub ips: Vec<IpAddr>,
    /// Its ports.
    pub ports: Vec<ImportPort>,
    /// The clusters that export it, in published order.
    pub clusters: Vec<String>,
}

impl ServiceImport {
    /// Reads the texts into types that cannot be wrong.
    ///
    /// # Errors
    /// [`ApiError::Field`] for the first field whose value cannot be, or that is beyond all measure.
    pub fn parse(&self) -> Result<ImportFacts, ApiError> {
        let spec = &self.spec;
        limits::check_list("spec.ips", spec.ips.len(), limits::MAX_SERVICE_IPS)?;
        let ips = spec.ips.iter().enumerate();
        let ips = ips
            .map(|(index, text)| parse_ip(&format!("spec.ips[{index}]"), text))
            .collect::<Result<_, _>>()?;
        limits::check_list("spec.ports", spec.ports.len(), limits::MAX_SERVICE_PORTS)?;
        for (index, port) in spec.ports.iter().enumerate() {
            limits::check_text(&format!("spec.ports[{index}].name"), &port.name, limits::MAX_TEXT_LEN)?;
            limits::check_text(
                &format!("spec.ports[{index}].protocol"),
                &port.protocol,
                limits::MAX_TEXT_LEN,
            )?;
        }
        let clusters = self.status.iter().flat_map(|status| &status.clusters);
        limits::check_list("status.clusters", clusters.clone().count(), limits::MAX_EXPORTING_CLUSTERS)?;
        let clusters = clusters.enumerate().map(|(index, entry)| {
            let field = format!("status.clusters[{index}].cluster");
            check_cluster_id(&entry.cluster).map_err(|error| ApiError::field(field, error.to_string()))?;
            Ok(entry.cluster.clone())
        });
        let clusters = clusters.collect::<Result<_, ApiError>>()?;
        Ok(ImportFacts { kind: spec.kind, ips, ports: spec.ports.clone(), clusters })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::{Kind, Object, Resource as _};

    fn import(spec: &Value, clusters: &Value) -> Result<ServiceImport, ApiError> {
        let mut object = Object::new(Kind::ServiceImport, ObjectMeta::new("shop", "web"));
        object.body.insert("spec".to_owned(), spec.clone());
        object.body.insert("status".to_owned(), json!({"clusters": clusters}));
        object.check_shape()?;
        ServiceImport::from_object(&object)
    }

    #[test]
    fn an_import_is_read_and_written_with_the_fields_of_newer_definitions() {
        let spec = json!({"type": "ClusterSetIP", "ips": ["243.0.0.1"], "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10}}, "ipFamilies": ["IPv4"],
            "ports": [{"name": "http", "protocol": "TCP", "port": 80, "appProtocol": "h2c"}]});
        let import = import(&spec, &json!([{"cluster": "a", "weight": 2}])).unwrap();
        assert_eq!(import.to_object().body["spec"], spec);
        assert_eq!(import.to_object().body["status"], json!({"clusters": [{"cluster": "a", "weight": 2}]}));
        let facts = import.parse().unwrap();
        assert_eq!(facts.ips, ["243.0.0.1".parse::<IpAddr>().unwrap()]);
        assert_eq!((facts.clusters, facts.kind.as_str()), (vec!["a".to_owned()], "ClusterSetIP"));
    }

    #[test]
    fn what_go_leaves_out_or_writes_as_null_is_nothing() {
        let import = import(&json!({"type": "Headless", "ips": null, "ports": null}), &Value::Null).unwrap();
        assert_eq!(import.spec.kind, ServiceImportType::Headless);
        let facts = import.parse().unwrap();
        assert!(facts.ips.is_empty() && facts.ports.is_empty() && facts.clusters.is_empty());
        let port: ImportPort = serde_json::from_value(json!({"port": 53})).unwrap();
        assert_eq!((port.name.as_str(), port.protocol.as_str()), ("", "TCP"));
    }

    #[test]
    fn a_field_of_the_wrong_type_is_refused_where_objects_are_read() {
        for spec in
            [json!({}), json!({"type": "Other"}), json!({"type": "Headless", "ports": [{"port": 65536}]})]
        {
            assert!(import(&spec, &json!([])).is_err());
        }
        assert!(import(&json!({"type": "Headless"}), &json!([{"cluster": 7}])).is_err());
    }

    #[test]
    fn what_is_beyond_all_measure_is_refused_before_it_is_acted_on() {
        let ports: Vec<_> = (0..=limits::MAX_SERVICE_PORTS).map(|port| json!({"port": port})).collect();
        let ips = json!(["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
        let long = "x".repeat(limits::MAX_TEXT_LEN + 1);
        for (spec, clusters) in [
            (json!({"type": "Headless", "ports": ports}), json!([])),
            (json!({"type": "ClusterSetIP", "ips": ips}), json!([])),
            (json!({"type": "ClusterSetIP", "ips": ["nowhere"]}), json!([])),
            (json!({"type": "Headless", "ports": [{"name": long, "port": 1}]}), json!([])),
            (json!({"type": "Headless"}), json!([{"cluster": "No ID"}])),
        ] {
            assert!(import(&spec, &clusters).unwrap().parse().is_err());
        }
    }
}

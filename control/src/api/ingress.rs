//! GlobalIngressIP: the address under which an exported service, or one of its pods, appears to others.

use std::fmt;
use std::net::Ipv4Addr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::lenient::null_as_default;
use super::{
    ApiError, Condition, LocalReference, ObjectMeta, annotation, check_object_name, ensure_valid_name, label,
};

/// An address for something that others may reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GlobalIngressIp {
    /// Metadata.
    #[schemars(with = "Map<String, Value>")]
    pub metadata: ObjectMeta,
    /// What the address is for.
    pub spec: GlobalIngressIpSpec,
    /// What was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<IngressStatus>,
    /// Unknown top-level fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl GlobalIngressIp {
    /// Returns the object for an exported service with a cluster IP: it has the service's namespace and name.
    ///
    /// # Errors
    /// [`ApiError::Field`] when `service` is not an object name.
    pub fn for_service(namespace: &str, service: &str) -> Result<Self, ApiError> {
        Self::named(namespace, service, IngressTarget::ClusterIpService, service)
    }

    /// Returns the object for one pod of an exported headless service: `pod-` and the first 59 characters of the pod's
    /// name.
    ///
    /// # Errors
    /// [`ApiError::Field`] when no object name can be made of the pod's name.
    pub fn for_headless_pod(
        namespace: &str,
        service: &str,
        pod: &str,
        address: Ipv4Addr,
    ) -> Result<Self, ApiError> {
        let name = format!("pod-{}", first(59, pod));
        let mut object = Self::named(namespace, &name, IngressTarget::HeadlessServicePod, service)?;
        object.spec.pod_ref = Some(LocalReference::new(pod));
        object.refer(service, annotation::HEADLESS_POD_IP, address);
        Ok(object)
    }

    /// Returns the object for one address of an exported headless service without selector: `ep-`, the first 44
    /// characters of the Endpoints object's name, a dash, and the address.
    ///
    /// # Errors
    /// [`ApiError::Field`] when no object name can be made of these.
    pub fn for_headless_endpoints(
        namespace: &str,
        service: &str,
        endpoints: &str,
        address: Ipv4Addr,
    ) -> Result<Self, ApiError> {
        let name = format!("ep-{}-{address}", first(44, endpoints));
        let mut object = Self::named(namespace, &name, IngressTarget::HeadlessServiceEndpoints, service)?;
        object.refer(service, annotation::HEADLESS_ENDPOINTS_IP, address);
        Ok(object)
    }

    fn named(namespace: &str, name: &str, target: IngressTarget, service: &str) -> Result<Self, ApiError> {
        // A cut name can end in a dash, which upstream's API server refuses.
        let name = ensure_valid_name(name);
        check_object_name(&name).map_err(|error| ApiError::field("metadata.name", error.to_string()))?;
        let spec = GlobalIngressIpSpec {
            target,
            service_ref: Some(LocalReference::new(service)),
            pod_ref: None,
            extra: Map::new(),
        };
        Ok(Self { metadata: ObjectMeta::new(namespace, name), spec, status: None, extra: Map::new() })
    }

    fn refer(&mut self, service: &str, key: &str, address: Ipv4Addr) {
        self.metadata.labels.insert(label::SERVICE_REF.to_owned(), service.to_owned());
        self.metadata.annotations.insert(key.to_owned(), address.to_string());
    }
}

fn first(count: usize, text: &str) -> &str {
    text.char_indices().nth(count).map_or(text, |(end, _)| &text[..end])
}

/// `GlobalIngressIP.spec`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GlobalIngressIpSpec {
    /// What kind of thing the address is for: `ClusterIPService`, `HeadlessServicePod` or `HeadlessServiceEndpoints`.
    #[schemars(with = "String")]
    pub target: IngressTarget,
    /// The service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_ref: Option<LocalReference>,
    /// The pod, if the address is for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_ref: Option<LocalReference>,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// What kind of thing a global address is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum IngressTarget {
    /// A service with a cluster IP.
    #[serde(rename = "ClusterIPService")]
    ClusterIpService,
    /// One pod of a headless service.
    HeadlessServicePod,
    /// One address of a headless service without selector.
    HeadlessServiceEndpoints,
}

impl IngressTarget {
    /// Returns the target as the API has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClusterIpService => "ClusterIPService",
            Self::HeadlessServicePod => "HeadlessServicePod",
            Self::HeadlessServiceEndpoints => "HeadlessServiceEndpoints",
        }
    }
}

impl fmt::Display for IngressTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// `GlobalIngressIP.status`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IngressStatus {
    /// The address given; empty while there is none.
    #[serde(rename = "allocatedIP", default)]
    pub allocated_ip: String,
    /// `Allocated`.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

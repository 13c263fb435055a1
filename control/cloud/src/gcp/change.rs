//! Changes, and how they are made.

use std::fmt;

use http::Method;
use serde_json::{Value, json};
use trieste_deploy::Server;

use super::api::Compute;
use super::firewall::in_words;
use super::names::GATEWAY_TAG;
use super::state::Id;
use crate::CloudError;
use crate::cluster::NodeChange;
use crate::exchange::Exchange;
use crate::provider;

/// One change.
#[derive(Debug, Clone, PartialEq)]
pub struct Change(pub(super) Kind);

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    /// Makes a firewall rule.
    Create { project: String, rule: Value },
    /// Changes a firewall rule by a merge patch.
    Patch { project: String, name: String, patch: Value },
    /// Removes a firewall rule.
    Delete { project: String, name: String },
    /// Replaces the tags of an instance.
    Tags { instance: Id, tags: Vec<String>, fingerprint: String },
    /// Changes the cluster.
    Cluster(NodeChange),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Create { rule, .. } => {
                let name = rule["name"].as_str().unwrap_or_default();
                write!(f, "create firewall rule {name}: {}", in_words(rule))
            }
            Kind::Patch { name, patch, .. } => {
                let fields: Vec<&str> =
                    patch.as_object().into_iter().flatten().map(|(field, _)| field.as_str()).collect();
                write!(f, "change firewall rule {name}: {}", fields.join(", "))
            }
            Kind::Delete { name, .. } => write!(f, "delete firewall rule {name}"),
            Kind::Tags { instance, tags, .. } => {
                let Id { zone, name, .. } = instance;
                if tags.iter().any(|tag| tag == GATEWAY_TAG) {
                    write!(f, "give instance {name} in {zone} the network tag {GATEWAY_TAG}")
                } else {
                    write!(f, "take the network tag {GATEWAY_TAG} off instance {name} in {zone}")
                }
            }
            Kind::Cluster(change) => change.fmt(f),
        }
    }
}

impl provider::Change for Change {
    fn waits(&self) -> bool {
        false
    }
}

/// The rights on a project that changes may need
/// (<https://cloud.google.com/compute/docs/access/iam-permissions>).
const ON_PROJECT: [&str; 4] = [
    "compute.firewalls.create",
    "compute.firewalls.update",
    "compute.firewalls.delete",
    "compute.networks.updatePolicy",
];

impl Change {
    /// Returns what the credentials may not do of it, as in "compute.firewalls.create in project p-1".
    pub(super) async fn denies<E: Exchange>(
        &self,
        compute: &Compute<E>,
    ) -> Result<Option<String>, CloudError> {
        let on_rule = |right: &'static str| [right, "compute.networks.updatePolicy"];
        let (missing, place) = match &self.0 {
            Kind::Create { project, .. } => (on_rule("compute.firewalls.create"), project),
            Kind::Patch { project, .. } => (on_rule("compute.firewalls.update"), project),
            Kind::Delete { project, .. } => (on_rule("compute.firewalls.delete"), project),
            Kind::Tags { instance, .. } => {
                let missing =
                    compute.missing_on_instance(&instance.path(), &["compute.instances.setTags"]).await?;
                let name = &instance.name;
                return Ok(missing.first().map(|right| format!("{right} of instance {name}")));
            }
            Kind::Cluster(_) => return Ok(None),
        };
        let missing = compute.missing_on_project(place, &ON_PROJECT, &missing).await?;
        Ok((!missing.is_empty()).then(|| format!("{} in project {place}", missing.join(" and "))))
    }

    /// Makes it.
    pub(super) async fn make<E: Exchange>(
        &self,
        compute: &Compute<E>,
        server: &Server,
    ) -> Result<(), CloudError> {
        let purpose = self.to_string();
        let (method, path, body) = match &self.0 {
            Kind::Create { project, rule } => {
                (Method::POST, format!("{project}/global/firewalls"), Some(rule.clone()))
            }
            Kind::Patch { project, name, patch } => {
                (Method::PATCH, format!("{project}/global/firewalls/{name}"), Some(patch.clone()))
            }
            Kind::Delete { project, name } => {
                (Method::DELETE, format!("{project}/global/firewalls/{name}"), None)
            }
            Kind::Tags { instance, tags, fingerprint } => {
                let body = json!({"items": tags, "fingerprint": fingerprint});
                (Method::POST, format!("{}/setTags", instance.path()), Some(body))
            }
            Kind::Cluster(change) => return change.apply(server).await,
        };
        compute.change(method, &path, body.as_ref(), &purpose).await
    }
}

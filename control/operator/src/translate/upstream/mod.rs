//! From the kinds of upstream's operator to the spec that a Fabric has, one function per kind. What they say beyond that, since the
//! cluster is registered with its broker already, is in [`Membership`].
//!
//! Images are named in none of the usual ways: what those objects name are upstream's images, and pods run ours. An image of ours is
//! named by the override `trieste`.

mod broker;
mod member;
mod options;
mod service_discovery;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ipnet::IpNet;
use serde_json::{Map, Value};
use trieste_control::api::{Hidden, JoinConfig, check_cluster_id};
use trieste_deploy::objects::Secret;
use trieste_deploy::objects::names::NAMESPACE;

pub use broker::broker_config;
pub use member::member;
pub use options::{Credentials, RegisteredContext, registered_options, service_discovery_options};
pub use service_discovery::service_discovery;

use super::field::FieldError;

/// The component whose image override is ours.
pub const IMAGE: &str = "trieste";

/// How a cluster that is registered already is a member.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Membership {
    /// The broker's API server: `host:port`.
    pub api_server: String,
    /// The members' namespace there.
    pub namespace: String,
    /// The Secret with the cluster's own token.
    pub secret: Option<String>,
    /// That token, where it is in the object.
    pub token: Option<Secret>,
    /// The authority of the broker's certificate, PEM, where it is in the object.
    pub ca: Option<Vec<u8>>,
    /// Whether that certificate is not checked.
    pub insecure: bool,
    /// The Secret with the pre-shared key.
    pub psk_secret: Option<String>,
    /// That key, where it is in the object.
    pub psk: Option<Secret>,
    /// Whether gateways end when the broker's certificate is not accepted.
    pub halt_on_certificate_error: bool,
    /// The global addresses that the cluster was given.
    pub global: Vec<IpNet>,
    /// Whether services are known by global addresses.
    pub has_global_services: bool,
}

/// What an object says in our words.
#[derive(Debug, Clone, PartialEq)]
pub struct TranslatedMember {
    /// The part of the spec.
    pub config: JoinConfig,
    /// How the cluster is a member.
    pub membership: Membership,
    /// Fields that say something which is not carried out, and why.
    pub warnings: Vec<String>,
}

/// Returns a text, if there is one.
fn given(text: Option<&str>) -> Option<String> {
    text.filter(|text| !text.is_empty()).map(str::to_owned)
}

/// Decodes what an object has in base64, if anything.
fn decoded(field: &'static str, text: Option<&str>) -> Result<Option<Vec<u8>>, FieldError> {
    let text = text.filter(|text| !text.is_empty());
    text.map(|text| STANDARD.decode(text.trim()).map_err(|_| FieldError::new(field, "is no base64")))
        .transpose()
}

fn secret(hidden: Option<&Hidden>) -> Option<Secret> {
    given(hidden.map(|hidden| hidden.0.as_str())).map(Secret::new)
}

fn checked_namespace(namespace: &str) -> Result<(), FieldError> {
    if namespace == NAMESPACE {
        return Ok(());
    }
    Err(FieldError::new(
        "spec.namespace",
        format!("is `{namespace}`: the operator installs members in {NAMESPACE} alone"),
    ))
}

fn checked_id(id: &str) -> Result<Option<String>, FieldError> {
    check_cluster_id(id).map_err(|error| FieldError::new("spec.clusterID", error))?;
    Ok(Some(id.to_owned()))
}

/// Returns the ConfigMap of the cluster's DNS as [`JoinConfig`] has it.
fn custom_dns(
    config: Option<&Map<String, Value>>,
    warnings: &mut Vec<String>,
) -> Result<Option<String>, FieldError> {
    const FIELD: &str = "spec.coreDNSCustomConfig";
    /// The namespace in which the operator writes ConfigMaps of DNS.
    const DNS_NAMESPACE: &str = "kube-system";
    let Some(config) = config else { return Ok(None) };
    warnings.extend(unknown(
        FIELD,
        config.keys().filter(|key| !["configMapName", "namespace"].contains(&key.as_str())),
    ));
    let text = |key: &str| config.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let Some(name) = text("configMapName") else { return Ok(None) };
    let namespace = text("namespace").unwrap_or(DNS_NAMESPACE);
    if namespace != DNS_NAMESPACE {
        let reason = format!(
            "names the namespace {namespace}: the operator writes ConfigMaps of DNS in {DNS_NAMESPACE} alone"
        );
        return Err(FieldError::new(FIELD, reason));
    }
    Ok(Some(format!("{namespace}/{name}")))
}

/// Returns the image that is named, if one of ours is, and remarks on those that are not.
fn image(
    (repository, version): (Option<&String>, Option<&String>),
    overrides: &std::collections::BTreeMap<String, String>,
    warnings: &mut Vec<String>,
) -> Option<String> {
    let named = [("spec.repository", repository), ("spec.version", version)];
    let named = named.into_iter().filter_map(|(field, text)| Some((field.to_owned(), text?.as_str())));
    let others = overrides.iter().filter(|(component, _)| *component != IMAGE);
    let others = others.map(|(component, text)| (format!("spec.imageOverrides.{component}"), text.as_str()));
    let all: Vec<String> = named.chain(others).map(|(field, text)| format!("{field} {text}")).collect();
    if !all.is_empty() {
        warnings.push(format!(
            "{} not carried out: pods run the image of trieste-operator, or the one that spec.imageOverrides.{IMAGE} names",
            all.join(", ")
        ));
    }
    overrides.get(IMAGE).filter(|reference| !reference.is_empty()).cloned()
}

/// Returns what to remark on fields that nobody here has heard of.
fn unknown<'a>(at: &str, fields: impl Iterator<Item = &'a String>) -> Option<String> {
    let names: Vec<&str> = fields.map(String::as_str).take(16).collect();
    (!names.is_empty())
        .then(|| format!("{at}: {} not carried out: this version has no such field", names.join(", ")))
}

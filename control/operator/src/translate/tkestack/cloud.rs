//! `cloudPrepareConfig` of the resource of the first users, of which AWS is the only cloud that has fields.

use serde_json::{Map, Value};
use trieste_control::api::{AwsConfig, CloudPrepareConfig, CredentialsSecret, TkestackCloud};
use trieste_deploy::objects::names::{BROKER_NAMESPACE, NAMESPACE, OPERATOR};

use super::nulls::remove_nulls;
use crate::translate::field::FieldError;

/// The field.
pub(super) const FIELD: &str = "cloudPrepareConfig";

/// How a cloud is to be prepared, in our words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranslatedCloud {
    /// The part.
    pub config: CloudPrepareConfig,
    /// Whether it names its cloud. If it does not, it is AWS where the nodes are that one's, and otherwise nothing.
    pub is_named: bool,
}

/// Translates the part; `None` if nothing is asked for. The Secret is in the resource's own namespace if the operator reads Secrets
/// there, and otherwise in the operator's.
///
/// # Errors
/// [`FieldError`] if a field has a type or value that it cannot have.
pub fn cloud(spec: &Map<String, Value>, namespace: &str) -> Result<Option<TranslatedCloud>, FieldError> {
    let Some(part) = spec.get(FIELD).filter(|part| asks_for_something(part)) else { return Ok(None) };
    let mut part = part.clone();
    remove_nulls(&mut part);
    let part: TkestackCloud = serde_path_to_error::deserialize(&part)
        .map_err(|error| FieldError::new(FIELD, format!("{}: {}", error.path(), error.inner())))?;
    let readable = [OPERATOR, NAMESPACE, BROKER_NAMESPACE].into_iter().find(|own| *own == namespace);
    let secret = part.credentials_secret.as_ref().map(|secret| secret.name()).filter(|name| !name.is_empty());
    let given = |text: String| (!text.is_empty()).then_some(text);
    let is_named = part.aws.is_some();
    let aws = part.aws.unwrap_or_default();
    let config = CloudPrepareConfig {
        credentials_secret: secret.map(|name| CredentialsSecret {
            name: name.to_owned(),
            namespace: readable.unwrap_or(OPERATOR).to_owned(),
        }),
        infra_id: given(part.infra_id),
        region: given(part.region),
        aws: Some(AwsConfig {
            gateway_instance: aws.gateway_instance,
            gateways: aws.gateways,
            ..AwsConfig::default()
        }),
        ..CloudPrepareConfig::default()
    };
    Ok(Some(TranslatedCloud { config, is_named }))
}

/// Returns `true` unless all that is there is what that operator's programs write where nobody has asked for anything.
pub(super) fn asks_for_something(cloud: &Value) -> bool {
    let is_given = |value: &Value| match value {
        Value::String(text) => !text.is_empty(),
        Value::Object(fields) => {
            fields.get("name").and_then(Value::as_str).is_some_and(|name| !name.is_empty())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => false,
    };
    ["credentialsSecret", "infraID", "region"].iter().any(|field| cloud.get(*field).is_some_and(is_given))
}

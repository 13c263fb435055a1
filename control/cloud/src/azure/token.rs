//! Tokens for the Resource Manager (OAuth 2.0, RFC 6749 section 4.4 and RFC 7523; Azure's Instance Metadata Service).

use std::fmt;

use http::{HeaderName, HeaderValue, Method};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::credentials::{Credentials, Identity};
use crate::CloudError;
use crate::exchange::Exchange;
use crate::form::{FORM, encode};
use crate::rest::{Question, Rest};

/// Azure's service for machines' own identities.
const METADATA: &str = "http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018-02-01";
/// Ours: how long before its end a token is renewed.
const RENEW_BEFORE: SignedDuration = SignedDuration::from_mins(5);
/// How long a token is good for that gives no time: as long as Entra ID's shortest.
const SHORTEST: i64 = 600;

/// A token.
#[derive(Clone)]
pub(super) struct Token {
    pub(super) text: String,
    ends: Timestamp,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("ends", &self.ends).finish_non_exhaustive()
    }
}

impl Token {
    /// Returns `true` if it can be used at this time.
    pub(super) fn is_good(&self, now: Timestamp) -> bool {
        now.checked_add(RENEW_BEFORE).is_ok_and(|soon| soon < self.ends)
    }

    /// Asks for one.
    ///
    /// # Errors
    /// [`CloudError`] if there is none.
    pub(super) async fn ask<E: Exchange>(
        rest: &Rest<E>,
        credentials: &Credentials,
        now: Timestamp,
    ) -> Result<Self, CloudError> {
        let action = "asking for a token";
        let metadata = (HeaderName::from_static("metadata"), HeaderValue::from_static("true"));
        let answer = match &credentials.identity {
            Identity::Managed { client } => {
                let resource = encode([("resource", credentials.management.as_str())]);
                let client = client.as_ref().map(|client| encode([("client_id", client.as_str())]));
                let client = client.map_or_else(String::new, |client| format!("&{client}"));
                let url = format!("{METADATA}&{resource}{client}");
                rest.ask(Question::get(&url, action), &[metadata]).await?
            }
            Identity::Secret { tenant, .. } | Identity::Federated { tenant, .. } => {
                let url = format!("{}/{tenant}/oauth2/v2.0/token", credentials.login);
                let form = form(credentials)?;
                let body = Some((FORM, form.into_bytes()));
                rest.ask(Question { method: Method::POST, url: &url, body, operation: action }, &[]).await?
            }
        };
        let text = answer.body["access_token"].as_str().filter(|text| !text.is_empty());
        let text = text.map(str::to_owned).ok_or_else(|| {
            CloudError::credentials(
                format!("{} answered without a token", rest.name()),
                "check the address of Entra ID in the credentials (activeDirectoryEndpointUrl)",
            )
        })?;
        let seconds = seconds(&answer.body["expires_in"]).unwrap_or(SHORTEST).clamp(0, 86_400);
        let ends = now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(now);
        Ok(Self { text, ends })
    }
}

/// Reads a number that the metadata service writes as a text.
fn seconds(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
}

fn form(credentials: &Credentials) -> Result<String, CloudError> {
    let scope = format!("{}/.default", credentials.management);
    let common = [("grant_type", "client_credentials"), ("scope", scope.as_str())];
    let own = match &credentials.identity {
        Identity::Secret { client, secret, .. } => {
            encode([("client_id", client.as_str()), ("client_secret", secret.as_str())])
        }
        Identity::Federated { client, token_file, .. } => {
            let assertion = std::fs::read_to_string(token_file).map_err(|error| {
                CloudError::credentials(
                    format!("cannot read the federated token in {}: {error}", token_file.display()),
                    "AZURE_FEDERATED_TOKEN_FILE names the file; the webhook of workload identity mounts it",
                )
            })?;
            encode([
                ("client_id", client.as_str()),
                ("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"),
                ("client_assertion", assertion.trim()),
            ])
        }
        Identity::Managed { .. } => String::new(),
    };
    Ok(format!("{}&{own}", encode(common)))
}

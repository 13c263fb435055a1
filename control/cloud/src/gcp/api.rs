//! Compute Engine's REST API, and the Resource Manager's question for rights.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use trieste_control::https::escaped;

use super::names::{is_part, last_part};
use super::settings::Settings;
use super::token::Tokens;
use crate::CloudError;
use crate::exchange::{Clock, Exchange};
use crate::rest::{Question, Rest, absent};

/// <https://cloud.google.com/compute/docs/reference/rest/v1>
const COMPUTE: &str = "https://compute.googleapis.com/compute/v1";
/// <https://cloud.google.com/resource-manager/reference/rest>
const RESOURCE_MANAGER: &str = "https://cloudresourcemanager.googleapis.com";
/// <https://cloud.google.com/compute/docs/metadata/querying-metadata>
const METADATA_SERVER: &str = "http://metadata.google.internal";
/// Ours: how many pages of a list are read.
const MOST_PAGES: usize = 1000;
/// What a page has at most, by Compute Engine's rules.
const PER_PAGE: usize = 500;
/// Ours: how long to wait before an operation is asked for again, and how often. A rule takes some 10 s.
const PAUSE: Duration = Duration::from_secs(1);
const POLLS: usize = 180;

/// Access to the API.
pub(super) struct Compute<E> {
    rest: Rest<E>,
    tokens: Tokens,
    settings: Settings,
    clock: Clock,
    base: String,
    /// The rights of the credentials by what they are on; `None` where no such question is answered.
    rights: Mutex<BTreeMap<String, Option<BTreeSet<String>>>>,
}

impl<E> fmt::Debug for Compute<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compute").field("base", &self.base).finish_non_exhaustive()
    }
}

impl<E: Exchange> Compute<E> {
    /// Creates it; `settings` has addresses and credentials.
    pub(super) fn new(http: E, settings: &Settings, clock: Clock) -> Self {
        Self {
            rest: Rest::new(http, "Compute Engine"),
            tokens: Tokens::default(),
            base: base(settings.endpoint.as_deref()),
            settings: settings.clone(),
            clock,
            rights: Mutex::default(),
        }
    }

    async fn ask(
        &self,
        method: Method,
        url: &str,
        body: Option<&Value>,
        purpose: &str,
    ) -> Result<Value, CloudError> {
        let server = self.settings.metadata_server.as_deref().unwrap_or(METADATA_SERVER);
        let server = server.trim_end_matches('/');
        let now = (self.clock)().as_second();
        let token = self.tokens.header(&self.rest, &self.settings.credentials, server, now).await?;
        let question = match body {
            Some(body) => Question::json(method, url, body, purpose),
            None => Question { method, url, body: None, operation: purpose },
        };
        let answer = self.rest.ask(question, &[token]).await?.body;
        if answer.is_object() {
            return Ok(answer);
        }
        let reason = "the answer is no object of JSON: see whether something between here and Google answers in its stead";
        Err(self.failed(purpose, "NO_OBJECT", reason.to_owned()))
    }

    /// Reads what is at a path below `projects/`; `None` if there is nothing.
    pub(super) async fn find(&self, path: &str, purpose: &str) -> Result<Option<Value>, CloudError> {
        let url = format!("{}/projects/{path}", self.base);
        absent(self.ask(Method::GET, &url, None, purpose).await)
    }

    /// Reads the named fields of all items of a list, page by page, and keeps what `keep` makes of each. Instances have metadata
    /// of up to half a MiB each, so that fields are named.
    pub(super) async fn list<T: Send>(
        &self,
        path: &str,
        fields: &str,
        purpose: &str,
        keep: impl Fn(&Value) -> Option<T> + Send + Sync,
    ) -> Result<Vec<T>, CloudError> {
        let first = format!(
            "{}/projects/{path}?maxResults={PER_PAGE}&fields=nextPageToken,items({fields})",
            self.base
        );
        let (mut kept, mut tokens) = (Vec::new(), BTreeSet::new());
        let mut url = first.clone();
        for _ in 0..MOST_PAGES {
            let page = self.ask(Method::GET, &url, None, purpose).await?;
            kept.extend(page["items"].as_array().into_iter().flatten().filter_map(&keep));
            let next = page["nextPageToken"].as_str().unwrap_or_default();
            if next.is_empty() || !tokens.insert(next.to_owned()) {
                return Ok(kept);
            }
            url = format!("{first}&pageToken={}", escaped(next));
        }
        Err(self.failed(purpose, "TOO_MANY_PAGES", format!("the list has more than {MOST_PAGES} pages")))
    }

    /// Makes a change at a path below `projects/` and waits until it is made. Where somebody else has done something to the same
    /// meanwhile, that is no error: what is left to do is to be read again.
    pub(super) async fn change(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        purpose: &str,
    ) -> Result<(), CloudError> {
        let url = format!("{}/projects/{path}", self.base);
        let is_of_existing = method != Method::POST || path.ends_with("/setTags");
        let outcome = match self.ask(method, &url, body, purpose).await {
            Ok(operation) => self.finish(path, operation, purpose).await,
            Err(error) => Err(error),
        };
        match outcome {
            Err(error) if is_overtaken(&error, is_of_existing) => Ok(()),
            outcome => outcome,
        }
    }

    /// Waits for the end of an operation (<https://cloud.google.com/compute/docs/api/how-tos/api-requests-responses>).
    async fn finish(&self, path: &str, mut operation: Value, purpose: &str) -> Result<(), CloudError> {
        let project = path.split('/').next().unwrap_or_default();
        let name = operation["name"].as_str().unwrap_or_default().to_owned();
        let zone = last_part(operation["zone"].as_str().unwrap_or_default()).to_owned();
        if !is_part(&name) || !(zone.is_empty() || is_part(&zone)) {
            return Err(self.failed(purpose, "NO_OPERATION", "the answer names no operation".to_owned()));
        }
        let scope = if zone.is_empty() { "global".to_owned() } else { format!("zones/{zone}") };
        let url = format!("{}/projects/{project}/{scope}/operations/{name}", self.base);
        for _ in 0..POLLS {
            if operation["status"] == "DONE" {
                return self.outcome(&operation, purpose);
            }
            tokio::time::sleep(PAUSE).await;
            operation = self.ask(Method::GET, &url, None, purpose).await?;
        }
        let within = PAUSE.as_secs() * POLLS as u64;
        Err(self.failed(purpose, "TIMEOUT", format!("operation {name} did not end within {within} s")))
    }

    fn outcome(&self, operation: &Value, purpose: &str) -> Result<(), CloudError> {
        let Some(errors) = operation["error"]["errors"].as_array().filter(|errors| !errors.is_empty()) else {
            return Ok(());
        };
        let text = |error: &Value, field: &str| error[field].as_str().unwrap_or_default().to_owned();
        let reasons: Vec<String> = errors.iter().take(3).map(|error| text(error, "message")).collect();
        let code = errors.first().map(|error| text(error, "code")).unwrap_or_default();
        let status = operation["httpErrorStatusCode"].as_u64().unwrap_or_default();
        let reason: String = reasons.join("; ").chars().take(500).collect();
        Err(self.failed_with(
            purpose,
            u16::try_from(status).ok(),
            if code.is_empty() { "FAILED" } else { &code },
            format!("{status} {reason}"),
        ))
    }

    fn failed(&self, purpose: &str, code: &str, reason: String) -> CloudError {
        self.failed_with(purpose, None, code, reason)
    }

    fn failed_with(&self, purpose: &str, status: Option<u16>, code: &str, reason: String) -> CloudError {
        CloudError::Api {
            service: self.rest.name().to_owned(),
            operation: purpose.to_owned(),
            status,
            code: code.to_owned(),
            reason,
        }
    }

    /// Returns those of some rights on a project that the credentials do not have; none where the question is not answered
    /// (<https://cloud.google.com/resource-manager/reference/rest/v1/projects/testIamPermissions>).
    pub(super) async fn missing_on_project(
        &self,
        project: &str,
        all: &[&str],
        rights: &[&str],
    ) -> Result<Vec<String>, CloudError> {
        let manager = self.settings.resource_manager.as_deref().unwrap_or(RESOURCE_MANAGER);
        let url = format!("{}/v1/projects/{project}:testIamPermissions", manager.trim_end_matches('/'));
        self.missing(&url, all, rights).await
    }

    /// Returns those of some rights on an instance that the credentials do not have
    /// (<https://cloud.google.com/compute/docs/reference/rest/v1/instances/testIamPermissions>).
    pub(super) async fn missing_on_instance(
        &self,
        path: &str,
        rights: &[&str],
    ) -> Result<Vec<String>, CloudError> {
        self.missing(&format!("{}/projects/{path}/testIamPermissions", self.base), rights, rights).await
    }

    async fn missing(&self, url: &str, all: &[&str], rights: &[&str]) -> Result<Vec<String>, CloudError> {
        let mut asked = self.rights.lock().await;
        if !asked.contains_key(url) {
            let body = json!({"permissions": all});
            let answer = match self.ask(Method::POST, url, Some(&body), "asking for rights").await {
                Ok(answer) => Some(answer),
                Err(CloudError::Api { .. }) => None,
                Err(error) => return Err(error),
            };
            let granted = answer.filter(Value::is_object).map(|answer| {
                let granted = answer["permissions"].as_array().into_iter().flatten();
                granted.filter_map(Value::as_str).map(str::to_owned).collect()
            });
            asked.insert(url.to_owned(), granted);
        }
        let Some(Some(granted)) = asked.get(url) else { return Ok(Vec::new()) };
        let missing = rights.iter().filter(|right| !granted.contains(**right));
        Ok(missing.map(|right| (*right).to_owned()).collect())
    }
}

/// Returns the API's address without a slash at its end; a host alone gets the API's own path.
fn base(endpoint: Option<&str>) -> String {
    let Some(endpoint) = endpoint else { return COMPUTE.to_owned() };
    let endpoint = endpoint.trim_end_matches('/');
    let (_, rest) = endpoint.split_once("://").unwrap_or_default();
    if rest.contains('/') { endpoint.to_owned() } else { format!("{endpoint}/compute/v1") }
}

/// Returns `true` for a refusal that comes of what somebody else has done meanwhile: it is there already, it has gone, its
/// fingerprint is another one, or an operation on it is under way.
fn is_overtaken(error: &CloudError, is_of_existing: bool) -> bool {
    let CloudError::Api { code, .. } = error else { return false };
    let has = |status: u16, name: &str| error.has_status(status) || code == name;
    has(409, "RESOURCE_ALREADY_EXISTS")
        || has(412, "CONDITION_NOT_MET")
        || code == "RESOURCE_NOT_READY"
        || (is_of_existing && has(404, "RESOURCE_NOT_FOUND"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_api_are_completed() {
        let cases = [
            (None, COMPUTE),
            (Some("https://compute.example/compute/v1/"), "https://compute.example/compute/v1"),
            (Some("https://compute.example"), "https://compute.example/compute/v1"),
            (Some("http://127.0.0.1:8080/"), "http://127.0.0.1:8080/compute/v1"),
        ];
        for (endpoint, expected) in cases {
            assert_eq!(base(endpoint), expected, "{endpoint:?}");
        }
    }
}

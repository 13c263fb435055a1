//! Azure Resource Manager: resources by their IDs, pages of lists, and operations that take a while.
//!
//! Source: "Resource Manager REST API reference" and "Track asynchronous Azure operations" of Azure's documentation.

use std::fmt;
use std::time::Duration;

use http::header::{IF_MATCH, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::credentials::Credentials;
use super::token::Token;
use crate::CloudError;
use crate::exchange::{Clock, Exchange};
use crate::rest::{Answer, Question, Rest, absent, bearer};

/// The API versions that are spoken.
pub(super) const NETWORK: &str = "2023-09-01";
pub(super) const COMPUTE_SKUS: &str = "2021-07-01";
pub(super) const SCALE_SET_INTERFACES: &str = "2018-10-01";
pub(super) const PERMISSIONS: &str = "2022-04-01";

/// Ours: how many pages of a list are read.
const MOST_PAGES: usize = 1_000;
/// Ours: how often a change is sent that another one is in the way of, and how long it is waited before the first repetition; each
/// further wait is twice as long.
const TRIES: u32 = 6;
const FIRST_WAIT: Duration = Duration::from_secs(2);
/// Ours: how often an operation is asked for its end where the service gives no time, and for how long.
const POLL: Duration = Duration::from_secs(2);
const LONGEST_POLL: Duration = Duration::from_secs(30);
const OPERATION_TIMEOUT: Duration = Duration::from_secs(900);
/// The header with the address of an operation.
const OPERATION: HeaderName = HeaderName::from_static("azure-asyncoperation");

/// How the codes begin with which it is refused to remove what an interface has had a moment ago.
const IN_USE: [&str; 3] = ["InUse", "PublicIPAddressCannotBeDeleted", "NetworkSecurityGroupInUse"];

/// The Resource Manager.
pub(super) struct Arm<E> {
    rest: Rest<E>,
    credentials: Credentials,
    clock: Clock,
    token: Mutex<Option<Token>>,
}

impl<E> fmt::Debug for Arm<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arm").field("credentials", &self.credentials).finish_non_exhaustive()
    }
}

impl<E: Exchange> Arm<E> {
    /// Speaks to the Resource Manager of these credentials.
    pub(super) fn new(http: E, credentials: Credentials, clock: Clock) -> Self {
        Self { rest: Rest::new(http, "Azure"), credentials, clock, token: Mutex::new(None) }
    }

    /// Returns the credentials' subscription; empty if they name none.
    pub(super) fn subscription(&self) -> &str {
        &self.credentials.subscription
    }

    /// Reads a resource; `None` if it is not there.
    ///
    /// # Errors
    /// [`CloudError::Api`].
    pub(super) async fn find(
        &self,
        id: &str,
        version: &str,
        action: &str,
    ) -> Result<Option<Value>, CloudError> {
        let url = self.url(id, version)?;
        absent(self.ask(Method::GET, &url, None, None, action).await)
            .map(|found| found.map(|answer| answer.body))
    }

    /// Reads all pages of a list. One of what is not there is empty.
    ///
    /// # Errors
    /// [`CloudError::Api`].
    pub(super) async fn list(
        &self,
        path: &str,
        version: &str,
        more: &str,
        action: &str,
    ) -> Result<Vec<Value>, CloudError> {
        let mut url = format!("{}{more}", self.url(path, version)?);
        let mut found = Vec::new();
        for _ in 0..MOST_PAGES {
            let Some(answer) = absent(self.ask(Method::GET, &url, None, None, action).await)? else { break };
            let mut body = answer.body;
            if let Some(Value::Array(items)) = body.get_mut("value").map(Value::take) {
                found.extend(items);
            }
            let next = body["nextLink"].as_str().unwrap_or_default();
            if next.is_empty() || next == url {
                break;
            }
            url = self.own(next, action)?;
        }
        Ok(found)
    }

    /// Makes a resource, or changes it, and waits until that has ended. With `etag`, only if nobody has changed it since.
    ///
    /// # Errors
    /// [`CloudError::Api`], also if the operation fails after it was taken.
    pub(super) async fn put(
        &self,
        id: &str,
        body: &Value,
        etag: Option<&str>,
        action: &str,
    ) -> Result<(), CloudError> {
        let url = self.url(id, NETWORK)?;
        let mut answer = self.change(Method::PUT, &url, Some(body), etag, action).await?;
        if let Some(operation) = operation(&answer.headers) {
            return self.wait_for(&operation, &answer.headers, action).await;
        }
        let until = Instant::now() + OPERATION_TIMEOUT;
        while !is_final(answer.body["properties"]["provisioningState"].as_str(), answer.status) {
            self.pause(&answer.headers, until, action).await?;
            answer = self.ask(Method::GET, &url, None, None, action).await?;
        }
        let properties = &answer.body["properties"];
        self.ended(properties["provisioningState"].as_str(), properties, action)
    }

    /// Removes a resource, and waits until it has gone. One that is not there is no error.
    ///
    /// # Errors
    /// [`CloudError::Api`].
    pub(super) async fn delete(&self, id: &str, action: &str) -> Result<(), CloudError> {
        let url = self.url(id, NETWORK)?;
        let Some(answer) = absent(self.change(Method::DELETE, &url, None, None, action).await)? else {
            return Ok(());
        };
        if let Some(operation) = operation(&answer.headers) {
            return self.wait_for(&operation, &answer.headers, action).await;
        }
        let mut headers = answer.headers;
        let until = Instant::now() + OPERATION_TIMEOUT;
        while let Some(answer) = absent(self.ask(Method::GET, &url, None, None, action).await)? {
            headers.extend(answer.headers);
            self.pause(&headers, until, action).await?;
        }
        Ok(())
    }

    /// Waits for the end of an operation that has an address of its own.
    async fn wait_for(&self, operation: &str, headers: &HeaderMap, action: &str) -> Result<(), CloudError> {
        let url = self.own(operation, action)?;
        let until = Instant::now() + OPERATION_TIMEOUT;
        let mut headers = headers.clone();
        loop {
            let answer = self.ask(Method::GET, &url, None, None, action).await?;
            let status = answer.body["status"].as_str();
            if is_final(status, answer.status) {
                return self.ended(status, &answer.body, action);
            }
            headers.extend(answer.headers);
            self.pause(&headers, until, action).await?;
        }
    }

    async fn pause(&self, headers: &HeaderMap, until: Instant, action: &str) -> Result<(), CloudError> {
        if Instant::now() >= until {
            let reason = format!("it has not ended within {} s", OPERATION_TIMEOUT.as_secs());
            return Err(self.failed(action, "OperationNotEnded", reason));
        }
        let asked = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        tokio::time::sleep(asked.map_or(POLL, Duration::from_secs).min(LONGEST_POLL)).await;
        Ok(())
    }

    /// Returns the error of an operation that has ended without success.
    fn ended(&self, status: Option<&str>, body: &Value, action: &str) -> Result<(), CloudError> {
        if status.is_none_or(|status| status.eq_ignore_ascii_case("Succeeded")) {
            return Ok(());
        }
        let text = |field: &str| body["error"][field].as_str();
        let code = text("code").or(status).unwrap_or_default();
        let reason = text("message").map_or_else(
            || format!("the operation ended as {}", status.unwrap_or_default()),
            |message| message.chars().take(500).collect(),
        );
        Err(self.failed(action, code, reason))
    }

    fn failed(&self, action: &str, code: &str, reason: String) -> CloudError {
        CloudError::Api {
            service: self.rest.name().to_owned(),
            operation: action.to_owned(),
            status: None,
            code: code.to_owned(),
            reason,
        }
    }

    /// Sends a change, and again as long as another operation is in its way, or what was let go of just now counts as in use.
    async fn change(
        &self,
        method: Method,
        url: &str,
        body: Option<&Value>,
        etag: Option<&str>,
        action: &str,
    ) -> Result<Answer, CloudError> {
        let mut wait = FIRST_WAIT;
        for _ in 1..TRIES {
            match self.ask(method.clone(), url, body, etag, action).await {
                Err(error) if error.has_status(409) || method == Method::DELETE && is_in_use(&error) => {}
                outcome => return outcome,
            }
            tokio::time::sleep(wait).await;
            wait *= 2;
        }
        self.ask(method, url, body, etag, action).await
    }

    /// Asks with a token, and once more with another one if it is refused: it may have been withdrawn.
    async fn ask(
        &self,
        method: Method,
        url: &str,
        body: Option<&Value>,
        etag: Option<&str>,
        action: &str,
    ) -> Result<Answer, CloudError> {
        for is_fresh in [false, true] {
            let mut headers = vec![bearer(&self.token(is_fresh).await?)?];
            if let Some(etag) = etag.and_then(|etag| HeaderValue::from_str(etag).ok()) {
                headers.push((IF_MATCH, etag));
            }
            let question = match body {
                Some(body) => Question::json(method.clone(), url, body, action),
                None => Question { method: method.clone(), url, body: None, operation: action },
            };
            match self.rest.ask(question, &headers).await {
                Err(error) if !is_fresh && error.has_status(401) => {}
                outcome => return outcome,
            }
        }
        Err(self.failed(action, "401", "401: two tokens were refused".to_owned()))
    }

    async fn token(&self, is_fresh: bool) -> Result<String, CloudError> {
        let now = (self.clock)();
        let mut token = self.token.lock().await;
        if let Some(token) = token.as_ref().filter(|token| !is_fresh && token.is_good(now)) {
            return Ok(token.text.clone());
        }
        let new = Token::ask(&self.rest, &self.credentials, now).await?;
        Ok(token.insert(new).text.clone())
    }

    /// Returns the address of a resource. IDs come from answers and from nodes, and must lead nowhere else.
    fn url(&self, path: &str, version: &str) -> Result<String, CloudError> {
        let is_fine = |c: char| c.is_ascii_alphanumeric() || "-_.()/".contains(c);
        if path.starts_with("/subscriptions/") && path.chars().all(is_fine) && !path.contains("..") {
            return Ok(format!("{}{path}?api-version={version}", self.credentials.management));
        }
        Err(CloudError::refused(
            format!("`{}` is no ID of a resource of Azure's", path.escape_debug()),
            "check spec.providerID of the nodes, and the resource that names it",
        ))
    }

    /// Returns an address that an answer gave, if it is the service's own: others do not get its token.
    fn own(&self, url: &str, action: &str) -> Result<String, CloudError> {
        let authority = |text: &str| {
            let uri: Option<http::Uri> = text.parse().ok();
            uri.and_then(|uri| {
                Some((uri.scheme_str()?.to_owned(), uri.authority()?.as_str().to_ascii_lowercase()))
            })
        };
        let own = authority(&self.credentials.management);
        if own.is_some() && authority(url) == own {
            return Ok(url.to_owned());
        }
        Err(self.failed(
            action,
            "ForeignAddress",
            "it goes on at an address that is not the service's".to_owned(),
        ))
    }
}

fn operation(headers: &HeaderMap) -> Option<String> {
    headers.get(OPERATION)?.to_str().ok().map(str::to_owned)
}

/// Returns `true` for the states that end an operation, and where an answer other than 202 has none ("Track asynchronous Azure
/// operations": 202 is the answer of one that goes on).
fn is_final(state: Option<&str>, answer: StatusCode) -> bool {
    let finals = ["Succeeded", "Failed", "Canceled"];
    match state {
        Some(state) => finals.iter().any(|end| state.eq_ignore_ascii_case(end)),
        None => answer != StatusCode::ACCEPTED,
    }
}

/// Returns `true` for a refusal since something else uses what is to be removed.
fn is_in_use(error: &CloudError) -> bool {
    let CloudError::Api { code, .. } = error else { return false };
    error.has_status(400) && IN_USE.iter().any(|begin| code.starts_with(begin))
}

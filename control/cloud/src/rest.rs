//! Services that speak JSON: Google's, Azure's, OpenStack's.

use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use serde_json::Value;

use crate::CloudError;
use crate::exchange::{Exchange, send_until_taken};

/// Ours: how much of a reason that a service gives is shown, in characters.
const MOST_REASON: usize = 500;

/// A service.
#[derive(Debug)]
pub struct Rest<E> {
    http: E,
    /// What errors call it.
    name: String,
}

/// One question to a service.
#[derive(Debug, Clone)]
pub struct Question<'q> {
    /// The method.
    pub method: Method,
    /// The whole URL.
    pub url: &'q str,
    /// Its body: its type and its bytes.
    pub body: Option<(&'static str, Vec<u8>)>,
    /// What it is for, as in "reading firewall rules": errors begin with it.
    pub operation: &'q str,
}

impl<'q> Question<'q> {
    /// Asks for what is at a URL.
    pub const fn get(url: &'q str, operation: &'q str) -> Self {
        Self { method: Method::GET, url, body: None, operation }
    }

    /// Sends JSON.
    pub fn json(method: Method, url: &'q str, body: &Value, operation: &'q str) -> Self {
        Self { method, url, body: Some(("application/json", body.to_string().into_bytes())), operation }
    }
}

/// An answer of success.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its body; `null` if there is none.
    pub body: Value,
    /// Its headers.
    pub headers: http::HeaderMap,
}

impl<E: Exchange> Rest<E> {
    /// Speaks to the service that errors call `name`.
    pub fn new(http: E, name: impl Into<String>) -> Self {
        Self { http, name: name.into() }
    }

    /// Returns what errors call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Asks, with headers such as the one that has the token; their values are shown nowhere. Sends again where the service is busy.
    ///
    /// # Errors
    /// [`CloudError::Api`] without success; its code is the service's own where it gives one, else the HTTP status.
    pub async fn ask(
        &self,
        question: Question<'_>,
        headers: &[(HeaderName, HeaderValue)],
    ) -> Result<Answer, CloudError> {
        let failed = |status: Option<StatusCode>, code: String, reason: String| CloudError::Api {
            service: self.name.clone(),
            operation: question.operation.to_owned(),
            status: status.map(|status| status.as_u16()),
            code,
            reason: reason.chars().take(MOST_REASON).collect(),
        };
        let mut request = Request::builder().method(question.method.clone()).uri(question.url);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        if let Some((content_type, _)) = &question.body {
            request = request.header(CONTENT_TYPE, *content_type);
        }
        let body = question.body.as_ref().map_or_else(Vec::new, |(_, bytes)| bytes.clone());
        let request = request.body(body).map_err(|error| failed(None, String::new(), error.to_string()))?;
        let answer = send_until_taken(&self.http, &request, is_busy).await;
        let (parts, bytes) = answer.map_err(|error| failed(None, String::new(), error))?.into_parts();
        let body: Value = match bytes.is_empty() {
            true => Value::Null,
            false => {
                serde_json::from_slice(&bytes).unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into())
            }
        };
        if parts.status.is_success() {
            return Ok(Answer { status: parts.status, body, headers: parts.headers });
        }
        let (code, reason) = refusal(&body);
        let code = code.unwrap_or_else(|| parts.status.as_u16().to_string());
        Err(failed(Some(parts.status), code, format!("{}: {reason}", parts.status)))
    }
}

/// Returns the header with a bearer's token, which no log shows.
///
/// # Errors
/// [`CloudError::Credentials`] if the token has characters that no header may have.
pub fn bearer(token: &str) -> Result<(HeaderName, HeaderValue), CloudError> {
    secret_header(AUTHORIZATION, &format!("Bearer {token}"))
}

/// Returns a header whose value no log shows.
///
/// # Errors
/// [`CloudError::Credentials`] if the value has characters that no header may have.
pub fn secret_header(name: HeaderName, value: &str) -> Result<(HeaderName, HeaderValue), CloudError> {
    let mut value = HeaderValue::from_str(value).map_err(|_| {
        CloudError::credentials(
            "the service gave a token that no HTTP header can carry",
            "look at the credentials' address",
        )
    })?;
    value.set_sensitive(true);
    Ok((name, value))
}

/// Returns `None` for what is not there, which is no failure where something is only read or removed.
///
/// # Errors
/// Every other one.
pub fn absent<T>(outcome: Result<T, CloudError>) -> Result<Option<T>, CloudError> {
    match outcome {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.has_status(404) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_busy(answer: &Response<Vec<u8>>) -> bool {
    match answer.status() {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => true,
        // Google refuses so what it would do a little later.
        StatusCode::FORBIDDEN => String::from_utf8_lossy(answer.body()).contains("\"rateLimitExceeded\""),
        _ => false,
    }
}

/// Returns code and reason of a refusal in one of the forms in which Google, Azure, OpenStack and OAuth give them.
fn refusal(body: &Value) -> (Option<String>, String) {
    let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let inner =
        body.as_object().and_then(|fields| fields.values().find(|value| value["message"].is_string()));
    let code = text("/error/status").or_else(|| text("/error/code")).or_else(|| text("/error"));
    let code = code.or_else(|| inner.and_then(|inner| inner["type"].as_str()).map(str::to_owned));
    let reason = text("/error/message").or_else(|| text("/error_description"));
    let reason = reason.or_else(|| inner.and_then(|inner| inner["message"].as_str()).map(str::to_owned));
    let whole = if body.is_null() { "no reason was given".to_owned() } else { body.to_string() };
    (code, reason.unwrap_or(whole))
}

//! EC2's Query API: an action and its parameters as a form, an answer in XML (Amazon EC2 API Reference, version 2016-11-15).

use std::fmt;

use http::{HeaderValue, Request, Response, StatusCode};
use jiff::Timestamp;
use tokio::sync::Mutex;

use super::credentials::{Credentials, Keys};
use super::form::form_request;
use super::sign::{Signed, headers};
use super::xml::Element;
use crate::CloudError;
use crate::exchange::{Clock, Exchange, send_until_taken};
use crate::form::{FORM, encode};

/// The API's version.
const VERSION: &str = "2016-11-15";
/// Ours: how many pages of a list are read.
const MOST_PAGES: usize = 1_000;

/// The parameters of an action, in order.
pub(super) type Parameters = Vec<(String, String)>;

/// EC2 in one region.
pub(super) struct Ec2<E> {
    http: E,
    credentials: Credentials,
    region: String,
    url: String,
    sts: String,
    clock: Clock,
    keys: Mutex<Option<Keys>>,
}

impl<E> fmt::Debug for Ec2<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ec2").field("url", &self.url).finish_non_exhaustive()
    }
}

impl<E: Exchange> Ec2<E> {
    /// Speaks to a region's EC2, at its own address or at the first of `endpoints`; the second is
    /// that of the token service.
    pub(super) fn new(
        http: E,
        credentials: Credentials,
        region: &str,
        endpoints: [Option<&str>; 2],
        clock: Clock,
    ) -> Self {
        let domain = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
        let of = |service: &str, endpoint: Option<&str>| {
            let own = format!("https://{service}.{region}.{domain}/");
            endpoint.map_or(own, |endpoint| format!("{}/", endpoint.trim_end_matches('/')))
        };
        let [ec2, sts] = endpoints;
        let (url, sts) = (of("ec2", ec2), of("sts", sts));
        Self { http, credentials, region: region.to_owned(), url, sts, clock, keys: Mutex::new(None) }
    }

    /// Returns what errors call it.
    pub(super) fn name(&self) -> String {
        format!("EC2 in {}", self.region)
    }

    /// Returns its region.
    pub(super) fn region(&self) -> &str {
        &self.region
    }

    /// Asks for an action. Sends again where EC2 has had too many requests.
    ///
    /// # Errors
    /// [`CloudError::Api`] with EC2's code, [`CloudError::Credentials`].
    pub(super) async fn ask(
        &self,
        action: &str,
        parameters: &Parameters,
        operation: &str,
    ) -> Result<Element, CloudError> {
        let failed = |code: &str, reason: String| CloudError::Api {
            service: self.name(),
            operation: operation.to_owned(),
            status: None,
            code: code.to_owned(),
            reason,
        };
        let fixed = [("Action", action), ("Version", VERSION)];
        let all =
            fixed.into_iter().chain(parameters.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        let request = self.signed(encode(all).into_bytes()).await?;
        let answer =
            send_until_taken(&self.http, &request, is_busy).await.map_err(|error| failed("", error))?;
        let text = String::from_utf8_lossy(answer.body());
        let status = answer.status();
        let root = Element::parse(&text).map_err(|error| {
            failed(status.as_str(), format!("{status}, and the answer is no XML: {error}"))
        })?;
        if status.is_success() {
            return Ok(root);
        }
        match root.find("Error") {
            Some(error) => {
                Err(failed(error.text("Code"), format!("{}: {}", error.text("Code"), error.text("Message"))))
            }
            None => Err(failed(status.as_str(), format!("{status} with a {}", root.name()))),
        }
    }

    /// Asks for all pages of a list, and returns the items that stand at a path in each.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub(super) async fn list(
        &self,
        action: &str,
        parameters: &Parameters,
        path: &str,
        operation: &str,
    ) -> Result<Vec<Element>, CloudError> {
        let mut found = Vec::new();
        let mut next = String::new();
        for _ in 0..MOST_PAGES {
            let mut parameters = parameters.clone();
            if !next.is_empty() {
                parameters.push(("NextToken".to_owned(), next.clone()));
            }
            let root = self.ask(action, &parameters, operation).await?;
            found.extend(root.items(path).cloned());
            let token = root.text("nextToken").to_owned();
            if token.is_empty() || token == next {
                break;
            }
            next = token;
        }
        Ok(found)
    }

    async fn signed(&self, body: Vec<u8>) -> Result<Request<Vec<u8>>, CloudError> {
        let now = (self.clock)();
        let keys = self.keys(now).await?;
        let mut request = form_request(&self.url, body).map_err(|error| {
            CloudError::refused(format!("{} is no URL: {error}", self.url), "see to the endpoint of EC2")
        })?;
        let host = request.uri().authority().map(ToString::to_string).unwrap_or_default();
        let signed = Signed {
            host: &host,
            content_type: Some(FORM),
            body: request.body(),
            region: &self.region,
            service: "ec2",
        };
        let added = headers(&signed, &keys, now);
        for (name, value) in added {
            let mut value = HeaderValue::from_str(&value).map_err(|_| {
                CloudError::credentials(
                    "the AWS keys have characters that no header can carry",
                    "see to the keys' source",
                )
            })?;
            value.set_sensitive(true);
            request.headers_mut().insert(name, value);
        }
        Ok(request)
    }

    async fn keys(&self, now: Timestamp) -> Result<Keys, CloudError> {
        let mut kept = self.keys.lock().await;
        if let Some(keys) = kept.as_ref().filter(|keys| keys.are_valid(now)) {
            return Ok(keys.clone());
        }
        let keys = self.credentials.keys(&self.http, &self.sts, now).await?;
        *kept = Some(keys.clone());
        Ok(keys)
    }
}

/// Returns the parameters of a filter: the `number`th of a request.
pub(super) fn filter(number: usize, name: &str, values: &[&str]) -> Parameters {
    let mut parameters = vec![(format!("Filter.{number}.Name"), name.to_owned())];
    let value =
        |(at, value): (usize, &&str)| (format!("Filter.{number}.Value.{}", at + 1), (*value).to_owned());
    parameters.extend(values.iter().enumerate().map(value));
    parameters
}

fn is_busy(answer: &Response<Vec<u8>>) -> bool {
    let is_limited = |body: &[u8]| {
        let text = String::from_utf8_lossy(body);
        text.contains("<Code>RequestLimitExceeded</Code>") || text.contains("<Code>Throttling</Code>")
    };
    match answer.status() {
        StatusCode::TOO_MANY_REQUESTS => true,
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::BAD_REQUEST => is_limited(answer.body()),
        _ => false,
    }
}

//! Access tokens: one at a time, a new one when it is used up.

use std::fmt;

use http::header::HeaderName;
use http::{HeaderValue, Method};
use serde_json::Value;
use tokio::sync::Mutex;

use super::key::ServiceAccount;
use super::settings::Credentials;
use crate::CloudError;
use crate::exchange::Exchange;
use crate::form::{FORM, encode};
use crate::rest::{Question, Rest, bearer};

/// Ours: how long before its end a token is not used any more, in seconds: longer than a request takes.
const MARGIN: i64 = 60;
/// Ours: the most seconds that a token is believed to hold.
const MOST_SECONDS: i64 = 12 * 3600;
/// The metadata server's answer
/// (<https://cloud.google.com/compute/docs/access/authenticate-workloads#applications>).
const METADATA_PATH: &str = "/computeMetadata/v1/instance/service-accounts/default/token";
/// The grant of an assertion (RFC 7523, section 2.1).
const GRANT: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// Ours: the longest word of a refusal that is shown. A longer one may be an assertion.
const LONGEST_WORD: usize = 64;

type Header = (HeaderName, HeaderValue);

/// The token in use. No text of it has the token.
#[derive(Default)]
pub(super) struct Tokens {
    held: Mutex<Option<(Header, i64)>>,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").finish_non_exhaustive()
    }
}

impl Tokens {
    /// Returns the header with a token that holds at `now`, in seconds since 1970.
    pub(super) async fn header<E: Exchange>(
        &self,
        rest: &Rest<E>,
        credentials: &Credentials,
        metadata_server: &str,
        now: i64,
    ) -> Result<Header, CloudError> {
        let mut held = self.held.lock().await;
        if let Some((header, until)) = &*held
            && now < *until
        {
            return Ok(header.clone());
        }
        let answer = match credentials {
            Credentials::Key(account) => exchange(rest, account, now).await?,
            Credentials::MetadataServer => of_machine(rest, metadata_server).await?,
        };
        let Some(token) = answer["access_token"].as_str().filter(|token| !token.is_empty()) else {
            return Err(CloudError::credentials(
                "Google answered the question for a token without one",
                "see to the token_uri of the key, or to the metadata server",
            ));
        };
        let header = bearer(token)?;
        let seconds = answer["expires_in"].as_i64().unwrap_or(0).clamp(0, MOST_SECONDS);
        *held = Some((header.clone(), now.saturating_add(seconds - MARGIN)));
        Ok(header)
    }
}

async fn exchange<E: Exchange>(
    rest: &Rest<E>,
    account: &ServiceAccount,
    now: i64,
) -> Result<Value, CloudError> {
    let form = encode([("grant_type", GRANT), ("assertion", account.assertion(now)?.as_str())]);
    let question = Question {
        method: Method::POST,
        url: account.token_uri(),
        body: Some((FORM, form.into_bytes())),
        operation: "asking for a token",
    };
    let outcome = rest.ask(question, &[]).await;
    outcome.map(|answer| answer.body).map_err(|error| match refusal(&error) {
        Some(why) => CloudError::credentials(
            format!("Google gives no token for {}: {why}", account.email()),
            "see whether the key is still there (`gcloud iam service-accounts keys list`) and the clock of this machine is right",
        ),
        None => error,
    })
}

async fn of_machine<E: Exchange>(rest: &Rest<E>, metadata_server: &str) -> Result<Value, CloudError> {
    let url = format!("{metadata_server}{METADATA_PATH}");
    let flavor = (HeaderName::from_static("metadata-flavor"), HeaderValue::from_static("Google"));
    let outcome = rest.ask(Question::get(&url, "asking the metadata server for a token"), &[flavor]).await;
    outcome.map(|answer| answer.body).map_err(|error| {
        let why = refusal(&error).unwrap_or_else(|| "it does not answer".to_owned());
        CloudError::credentials(
            format!("the metadata server at {metadata_server} gives no token: {why}"),
            "give a service account's key with --credentials, or run this on a machine of Compute Engine that has a service account",
        )
    })
}

/// Returns why a service refused, without words that are long enough to be an assertion; `None` if it did not answer.
fn refusal(error: &CloudError) -> Option<String> {
    let CloudError::Api { code, reason, .. } = error else { return None };
    if code.is_empty() {
        return None;
    }
    let shown = |word| if str::len(word) > LONGEST_WORD { "…" } else { word };
    let words: Vec<&str> = [code.as_str()].into_iter().chain(reason.split(' ')).map(shown).collect();
    Some(words.join(" "))
}

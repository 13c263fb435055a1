//! One request to a cloud's service, and its answer.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use jiff::Timestamp;
use trieste_control::https::HttpsClient;

/// Ours: how long one request may take.
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// Ours: how much of an answer is read, in bytes.
pub const MOST: usize = 16 << 20;

/// Returns the time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Sends requests. The real one is [`HttpsClient`]; tests play a cloud behind it.
pub trait Exchange: Send + Sync {
    /// Sends a request and returns the answer, whatever its status; the error is why there is none.
    fn send(
        &self,
        request: Request<Vec<u8>>,
    ) -> impl Future<Output = Result<Response<Vec<u8>>, String>> + Send;
}

impl Exchange for HttpsClient {
    async fn send(&self, request: Request<Vec<u8>>) -> Result<Response<Vec<u8>>, String> {
        let host = request.uri().host().unwrap_or_default().to_owned();
        let answer = tokio::time::timeout(TIMEOUT, self.exchange(request.map(Bytes::from), MOST)).await;
        let answer = answer.map_err(|_| format!("{host} did not answer within {} s", TIMEOUT.as_secs()))?;
        let answer = answer.map_err(|error| error.to_string())?;
        if answer.body().len() >= MOST {
            return Err(format!("{host} answered more than {} MiB", MOST >> 20));
        }
        Ok(answer)
    }
}

impl<E: Exchange> Exchange for &E {
    fn send(
        &self,
        request: Request<Vec<u8>>,
    ) -> impl Future<Output = Result<Response<Vec<u8>>, String>> + Send {
        (**self).send(request)
    }
}

/// Ours: how often a request is sent that a service is too busy for, and how long it is waited before the first repetition; each
/// further wait is twice as long.
const TRIES: u32 = 5;
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// Sends a request, and again as long as the answer is that the service is too busy for it. The error is why there is no answer.
///
/// # Errors
/// As [`Exchange::send`].
pub async fn send_until_taken(
    http: &impl Exchange,
    request: &Request<Vec<u8>>,
    is_busy: impl Fn(&Response<Vec<u8>>) -> bool + Send,
) -> Result<Response<Vec<u8>>, String> {
    let mut wait = FIRST_WAIT;
    for _ in 1..TRIES {
        let answer = http.send(request.clone()).await?;
        if !is_busy(&answer) {
            return Ok(answer);
        }
        tokio::time::sleep(wait).await;
        wait *= 2;
    }
    http.send(request.clone()).await
}

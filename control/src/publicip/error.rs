//! Why a resolver has no answer.

use std::time::Duration;

use crate::https::HttpError;
use crate::store::StoreError;

/// From the specification: how long one question may take.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LookupError {
    /// Nothing came in time.
    #[error("timed out after {} s", TIMEOUT.as_secs())]
    TimedOut,
    /// The HTTPS request failed; the text says where.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The answer is of no use.
    #[error("the answer holds no address of a host")]
    NoAddressInBody,
    /// The name server could not be asked.
    #[error("cannot resolve {0}: {1}")]
    Dns(String, #[source] std::io::Error),
    /// The name has no IPv4 address.
    #[error("no A record for {0}")]
    NoRecord(String),
    /// No Service has this name.
    #[error("there is no such Service")]
    NoService,
    /// The Service has no ingress yet.
    #[error("the Service has no load balancer's address yet")]
    NoIngress,
    /// The Service's ingress makes no sense.
    #[error("status.loadBalancer.ingress[0].{field} of the Service is `{value}`")]
    Ingress {
        /// Which field.
        field: &'static str,
        /// Its value.
        value: String,
    },
    /// The Service could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

//! Plans, credentials and requests.

mod credentials;
mod exchange;
mod plan;

//! A store on a Kubernetes API server.
//!
//! ```text
//!   KubeStore ── raw (JSON) ──► transport (time-outs, 401, 429, counters) ──► session (TLS, token) ──► dial (TCP)
//!       └── list (pages) ── watch (paced) ───────┘
//! ```
//!
//! * **Objects** keep every field that the server sends but `managedFields`, which only costs memory.
//! * **Writes** replace whole objects, of the version that they are based on, but for single annotations, which are merge
//!   patches. Fields that the server sets are not sent. For kinds
//!   whose status is a resource of its own ([`has_status_subresource`](crate::api::Kind::has_status_subresource)) the
//!   server keeps its own status whatever an update says: an update never loses a status, and never writes one. The
//!   answer has the status as it is.
//! * **Time-outs**: [`KubeStore::DEFAULT_TIMEOUT`] until an answer begins. A server that takes 5 s is slow, not dead.
//! * **A dead connection**, by a cut cable or a stopped server alike, is noticed within 15 s by HTTP/2's pings; a watch
//!   then tries a new one, and after 10 s more says that the server is away. With a server that only speaks HTTP/1.1 it
//!   is 25 s as well, by one small request per 15 s in which nothing was heard. An idle connection costs some bytes
//!   every 5 s over HTTP/2.
//! * **Answers are bounded** (`bounds`, `list`): bytes by what was asked for, objects and pages of a list, and the memory
//!   that its objects take. One that makes no sense, or is too large, is there without its body; the others are as they are.
//! * **Nothing is sent** until it is needed: a store is made although its server is away.
//! * **Proxies**: `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` are obeyed; only plain HTTP proxies can be used.

mod access;
mod bounds;
mod changes;
mod dial;
mod failure;
mod list;
mod patch;
mod raw;
mod requests;
mod scope;
mod session;
mod store;
#[cfg(test)]
mod tests;
mod transport;
mod versions;
mod watch;

pub use access::{Access, AccessError, ServerSettings};
pub use requests::{Outcome, Requests, Verb};
pub use store::KubeStore;

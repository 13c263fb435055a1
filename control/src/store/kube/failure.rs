//! The meaning of an API server's refusals and a connection's failures for a store's user.

use std::error::Error;
use std::io;

use http::StatusCode;
use kube::core::Status;
use rustls::CertificateError;

use super::access::Access;
use super::requests::Verb;
use crate::api::{ObjectKey, cut};
use crate::store::{CertificateRefused, StoreError};

/// An operation, with its object and server.
#[derive(Debug, Clone)]
pub(super) struct Operation {
    pub(super) verb: Verb,
    /// The object; without a name all objects of the kind and namespace.
    pub(super) key: ObjectKey,
    /// The version that a write is based on.
    pub(super) version: Option<String>,
    pub(super) server: String,
}

impl Operation {
    /// Returns an operation that is based on no version.
    pub(super) fn new(verb: Verb, key: ObjectKey, access: &Access) -> Self {
        Self { verb, key, version: None, server: access.to_string() }
    }

    /// Returns the error of a request without an answer.
    pub(super) fn lost(&self, source: io::Error) -> StoreError {
        StoreError::Unavailable { operation: self.to_string(), source }
    }

    /// Returns the error of an answer of another shape than asked for.
    pub(super) fn invalid_response(&self, reason: impl std::fmt::Display) -> StoreError {
        self.lost(io::Error::new(io::ErrorKind::InvalidData, format!("invalid response: {reason}")))
    }

    /// Says that an answer exceeds a bound.
    pub(super) fn too_much(&self, reason: impl std::fmt::Display) -> StoreError {
        self.lost(io::Error::new(io::ErrorKind::FileTooLarge, reason.to_string()))
    }

    /// Returns the error of a refusal with this body.
    pub(super) fn refused(&self, code: StatusCode, body: &[u8]) -> StoreError {
        let status = serde_json::from_slice(body).map_or_else(
            |_| {
                // Not an API server's own words: a proxy's, or a path that it does not serve.
                let text = String::from_utf8_lossy(&body[..body.len().min(MAX_TEXT)]);
                Status::failure(text.trim(), "").with_code(code.as_u16())
            },
            shortened,
        );
        self.status(code, &status)
    }

    /// Returns `true` if an answer says that the kind is not served in the version that was asked for.
    pub(super) fn is_unserved(&self, code: StatusCode, body: &[u8]) -> bool {
        let status: Option<Status> = serde_json::from_slice(body).ok();
        let is_about = |status: &Status| {
            let details = status.details.as_ref();
            (self.verb != Verb::Create && self.names_object(status))
                || details.is_some_and(|details| details.kind == "namespaces")
        };
        code == StatusCode::NOT_FOUND && !status.is_some_and(|status| is_about(&status))
    }

    /// Returns the error of a refusal with this status.
    pub(super) fn status(&self, code: StatusCode, status: &Status) -> StoreError {
        let key = || self.key.clone();
        let is_write = matches!(self.verb, Verb::Create | Verb::Update | Verb::Patch | Verb::Delete);
        match code {
            StatusCode::NOT_FOUND if self.verb != Verb::Create && self.names_object(status) => {
                StoreError::NotFound(key())
            }
            StatusCode::NOT_FOUND => self.not_served(status),
            StatusCode::CONFLICT if self.verb == Verb::Create && status.reason == "AlreadyExists" => {
                StoreError::AlreadyExists(key())
            }
            // The only other conflict of a creation: the namespace is going away.
            StatusCode::CONFLICT if is_write && self.verb != Verb::Create => StoreError::Conflict {
                key: key(),
                expected: self.version.clone().unwrap_or_else(|| "any".to_owned()),
                found: "a newer one".to_owned(),
            },
            StatusCode::UNPROCESSABLE_ENTITY | StatusCode::BAD_REQUEST if is_write => {
                let (field, reason) = cause(status);
                StoreError::invalid(&self.key, &field, reason)
            }
            StatusCode::UNAUTHORIZED => {
                self.forbidden("it does not accept our credentials; have they expired?", status)
            }
            StatusCode::FORBIDDEN if is_write && self.is_about_object(status) => {
                StoreError::Denied { key: key(), reason: status.message.clone() }
            }
            StatusCode::FORBIDDEN => self.forbidden("it does not allow this", status),
            code => {
                let kind = if code == StatusCode::TOO_MANY_REQUESTS {
                    io::ErrorKind::WouldBlock
                } else {
                    io::ErrorKind::Other
                };
                let text = with_message(&format!("it answers {}", code.as_u16()), status);
                self.lost(io::Error::new(kind, text))
            }
        }
    }

    fn forbidden(&self, meaning: &str, status: &Status) -> StoreError {
        let source = io::Error::new(io::ErrorKind::PermissionDenied, with_message(meaning, status));
        StoreError::Forbidden { operation: self.to_string(), source }
    }

    /// Returns `true` if a 403 is about this object, and not about our rights in general or about the namespace. The
    /// server has one word for all of them; only by the text the authorizer, which has looked at no object, can be told
    /// from those that have.
    fn is_about_object(&self, status: &Status) -> bool {
        let contains = |text: &str| status.message.contains(text);
        let is_right = contains(&format!("cannot {} resource \"{}\"", self.verb, self.key.kind.plural()));
        let mut causes = status.details.iter().flat_map(|details| &details.causes);
        let is_ending = causes.any(|cause| cause.reason == "NamespaceTerminating");
        (contains(" is forbidden: ") || contains("admission webhook")) && !is_right && !is_ending
    }

    /// Returns `true` if a 404 is about our object, and not about its namespace or kind.
    fn names_object(&self, status: &Status) -> bool {
        let details = status.details.as_ref();
        details.is_some_and(|details| details.name == self.key.name && details.kind == self.key.kind.plural())
    }

    fn not_served(&self, status: &Status) -> StoreError {
        let namespace = &self.key.namespace;
        let is_namespace = status.details.as_ref().is_some_and(|details| details.kind == "namespaces");
        let meaning = if is_namespace {
            format!("it has no namespace {namespace}")
        } else {
            let kind = self.key.kind;
            let newer = kind.newer_version().map_or_else(String::new, |newer| format!(" or {newer}"));
            format!(
                "it does not serve {} of {}{newer}; is the CRD installed?",
                kind.plural(),
                kind.api_version()
            )
        };
        self.lost(io::Error::new(io::ErrorKind::NotFound, with_message(&meaning, status)))
    }
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { verb, key, server, .. } = self;
        if !key.name.is_empty() {
            return write!(f, "{verb} {key} at {server}");
        }
        write!(f, "{verb} {}", key.kind.plural())?;
        if !key.namespace.is_empty() {
            write!(f, " in {}", key.namespace)?;
        }
        write!(f, " at {server}")
    }
}

/// Ours: enough of a foreign answer to recognise it by.
const MAX_TEXT: usize = 200;
/// Ours: most characters of a server's own message. Policies explain themselves in one or two sentences.
const MAX_MESSAGE: usize = 1024;

/// Cuts the texts of a refusal that are shown.
fn shortened(mut status: Status) -> Status {
    status.message = cut(&status.message, MAX_MESSAGE);
    for cause in status.details.iter_mut().flat_map(|details| &mut details.causes) {
        cause.message = cut(&cause.message, MAX_MESSAGE);
        cause.field = cut(&cause.field, MAX_TEXT);
    }
    status
}

fn with_message(meaning: &str, status: &Status) -> String {
    if status.message.is_empty() { meaning.to_owned() } else { format!("{meaning} ({})", status.message) }
}

/// Returns the field at fault and why; the whole object where the server names none.
fn cause(status: &Status) -> (String, String) {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    match causes.into_iter().find(|cause| !cause.field.is_empty()) {
        Some(cause) => (cause.field.clone(), cause.message.clone()),
        None if status.message.is_empty() => (".".to_owned(), "is refused without a reason".to_owned()),
        None => (".".to_owned(), status.message.clone()),
    }
}

/// Explains a connection's failure in one sentence; what can be told apart is.
pub(super) fn explain(error: &(dyn Error + 'static)) -> io::Error {
    let chain = chain(error);
    if let Some(tls) = chain.iter().find_map(|error| error.downcast_ref::<rustls::Error>()) {
        let text = explain_tls(tls);
        let kind = io::ErrorKind::InvalidData;
        return if matches!(tls, rustls::Error::InvalidCertificate(_)) {
            io::Error::new(kind, CertificateRefused(text))
        } else {
            io::Error::new(kind, text)
        };
    }
    // The innermost input or output error has the kind, the innermost error of all mostly has the reason.
    let kind = chain.iter().rev().find_map(|error| error.downcast_ref::<io::Error>()).map(io::Error::kind);
    let mut texts: Vec<String> = Vec::new();
    for text in chain.iter().map(ToString::to_string) {
        if !texts.iter().any(|known| known.contains(&text)) {
            texts.push(text);
        }
    }
    io::Error::new(kind.unwrap_or(io::ErrorKind::Other), texts.join(": "))
}

/// Iterates over the error and its causes, also those inside of input and output errors, which hide them.
fn chain<'a>(error: &'a (dyn Error + 'static)) -> Vec<&'a (dyn Error + 'static)> {
    /// Ours: no real chain is longer.
    const MAX_DEPTH: usize = 16;
    let mut found: Vec<&'a (dyn Error + 'static)> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next.filter(|_| found.len() < MAX_DEPTH) {
        found.push(error);
        let hidden = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = hidden.map(|inner| inner as &(dyn Error + 'static)).or_else(|| error.source());
    }
    found
}

fn explain_tls(error: &rustls::Error) -> String {
    let meaning = if let rustls::Error::InvalidCertificate(reason) = error {
        explain_certificate(reason)
    } else if let rustls::Error::AlertReceived(_) = error {
        "the server ended the TLS handshake"
    } else if let rustls::Error::InvalidMessage(_) = error {
        "the server does not speak TLS"
    } else {
        "TLS failed"
    };
    format!("{meaning} ({error})")
}

fn explain_certificate(reason: &CertificateError) -> &'static str {
    use CertificateError as Bad;
    if matches!(reason, Bad::Expired | Bad::ExpiredContext { .. }) {
        "the server's certificate has expired"
    } else if matches!(reason, Bad::NotValidYet | Bad::NotValidYetContext { .. }) {
        "the server's certificate is not valid yet; is this node's clock right?"
    } else if matches!(reason, Bad::UnknownIssuer) {
        "the server's certificate is not from an authority that we trust; is the CA the right one?"
    } else if matches!(reason, Bad::NotValidForName | Bad::NotValidForNameContext { .. }) {
        "the server's certificate is for another host name"
    } else {
        "the server's certificate is not valid"
    }
}

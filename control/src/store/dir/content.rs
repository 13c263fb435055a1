//! A file's bytes, and why they are no object.

use std::fmt::Write as _;

use ring::digest::{SHA256, SHA256_OUTPUT_LEN};

use crate::api::{ApiError, cut};

/// Most characters of a reason: errors of the parser quote what they found.
const MAX_REASON_CHARS: usize = 300;

/// The SHA-256 of a file's bytes, which tells them from all others. Of the two crates here that make it, ring's takes half the
/// time on processors without instructions for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Digest([u8; SHA256_OUTPUT_LEN]);

impl Digest {
    fn of(bytes: &[u8]) -> Self {
        #[cfg(test)]
        DIGESTS.with(|digests| digests.set(digests.get() + 1));
        let digest = ring::digest::digest(&SHA256, bytes);
        Self(digest.as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }

    /// Returns the version of an object in these bytes: 64 bits of the digest, in hexadecimal.
    pub(super) fn version(&self) -> String {
        self.0.iter().take(8).fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

#[cfg(test)]
thread_local! {
    /// Digests that this thread has made.
    static DIGESTS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Returns how many digests this thread has made.
#[cfg(test)]
pub(super) fn digests() -> u64 {
    DIGESTS.with(std::cell::Cell::get)
}

/// A file's bytes, with their digest.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) bytes: Vec<u8>,
    pub(super) digest: Digest,
}

impl Content {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self { digest: Digest::of(&bytes), bytes }
    }

    /// Returns bytes of which the digest may be known already.
    pub(super) fn with(bytes: Vec<u8>, known: impl FnOnce(&[u8]) -> Option<Digest>) -> Self {
        let digest = known(&bytes).unwrap_or_else(|| Digest::of(&bytes));
        Self { bytes, digest }
    }
}

/// A file that is no object of its directory: the field at fault, if one is, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BadFile {
    pub(super) field: Option<String>,
    pub(super) reason: String,
}

impl BadFile {
    pub(super) fn whole(reason: impl Into<String>) -> Self {
        Self { field: None, reason: cut(&reason.into(), MAX_REASON_CHARS) }
    }

    pub(super) fn of(error: &ApiError) -> Self {
        Self { field: error.field_path().map(str::to_owned), reason: reason_of(error) }
    }

    pub(super) fn field(field: &str, reason: impl Into<String>) -> Self {
        Self { field: Some(field.to_owned()), ..Self::whole(reason) }
    }
}

/// Returns an error without its field, which is shown by itself.
fn reason_of(error: &ApiError) -> String {
    match error {
        ApiError::Field { reason, .. } => one_line(reason),
        ApiError::WrongKind { .. } | ApiError::Withheld(_) => one_line(error),
    }
}

/// Returns an error as one line.
pub(super) fn one_line(error: &impl ToString) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

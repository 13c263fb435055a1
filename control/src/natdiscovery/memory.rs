//! Results that outlive the process, as a JSON document. The daemon reads and writes the file.
//!
//! A result is used only for an Endpoint that is what it was ([`Remote`], and our own addresses), and
//! only if its address is still one that the Endpoint publishes: the file can choose between two addresses, and can
//! name no other.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::remote::{How, Selection};
use super::respond::MAX_NAME;
use super::{Local, MAX_REMOTES, Remote};

/// Largest document that is worth reading, in bytes: [`MAX_REMOTES`] results and some air.
pub const MAX_BYTES: usize = MAX_REMOTES * 512;

const VERSION: u32 = 1;

/// Why a document is no memory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// It is not JSON of this shape.
    #[error("cannot read NAT discovery results: {0}")]
    Shape(#[from] serde_json::Error),
    /// Another version of this program wrote it.
    #[error("cannot read NAT discovery results of version {0}: this program reads {VERSION}")]
    Version(u32),
    /// It has more entries than can be.
    #[error("cannot read {0} NAT discovery results: more than {MAX_REMOTES}")]
    TooMany(usize),
}

/// Results by cable name; at most [`MAX_REMOTES`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    results: BTreeMap<String, Remembered>,
    revision: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Remembered {
    /// The Endpoint that it was found for.
    fingerprint: String,
    ip: IpAddr,
    use_nat: bool,
    how: How,
}

#[derive(Debug, Serialize, Deserialize)]
struct Document {
    version: u32,
    results: BTreeMap<String, Remembered>,
}

impl Memory {
    /// Reads a document.
    ///
    /// # Errors
    /// [`MemoryError`]. Nothing is read of a document that is wrong anywhere.
    pub fn parse(text: &str) -> Result<Self, MemoryError> {
        let Document { version, results } = serde_json::from_str(text)?;
        if version != VERSION {
            return Err(MemoryError::Version(version));
        }
        if results.len() > MAX_REMOTES {
            return Err(MemoryError::TooMany(results.len()));
        }
        Ok(Self { results, revision: 0 })
    }

    /// Writes a document.
    #[must_use]
    pub fn emit(&self) -> String {
        let document = Document { version: VERSION, results: self.results.clone() };
        let mut text = serde_json::to_string_pretty(&document).expect("text keys and plain values");
        text.push('\n');
        text
    }

    /// Returns how many results there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.results.len()
    }

    /// Returns `true` if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.results.is_empty()
    }

    /// Grows with every change since it was read.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the selection found for this very Endpoint, and whether it was an answer.
    pub(super) fn recall(&self, remote: &Remote, local: &Local) -> Option<(Selection, bool)> {
        let found = self.results.get(&remote.cable_name)?;
        if found.fingerprint != remote.fingerprint(local) || !remote.has(found.ip) {
            return None;
        }
        let is_answer = matches!(found.how, How::Private | How::Public);
        Some((Selection { ip: found.ip, use_nat: found.use_nat, how: How::Remembered }, is_answer))
    }

    /// Remembers a result. Where there is no room, the first cable that `is_live` does not know is forgotten.
    pub(super) fn remember(
        &mut self,
        remote: &Remote,
        local: &Local,
        selection: Selection,
        is_live: impl Fn(&str) -> bool,
    ) {
        if remote.cable_name.len() > MAX_NAME {
            return;
        }
        let Selection { ip, use_nat, how } = selection;
        let result = Remembered { fingerprint: remote.fingerprint(local), ip, use_nat, how };
        if self.results.get(&remote.cable_name) == Some(&result) {
            return;
        }
        if self.results.len() >= MAX_REMOTES && !self.results.contains_key(&remote.cable_name) {
            let Some(dead) = self.results.keys().find(|name| !is_live(name)).cloned() else { return };
            self.results.remove(&dead);
        }
        self.results.insert(remote.cable_name.clone(), result);
        self.revision += 1;
    }
}

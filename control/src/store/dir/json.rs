//! An object as JSON on one line, in two halves: the head, which changes with every annotation, is made anew each time, and the
//! body, which may be large, once for all its copies.

use std::borrow::Cow;
use std::io;

use crate::api::{Body, Object};

/// Size from which on a document is written as JSON, in bytes of it. Ours: of 625 kB, writing takes 2 ms instead of the 71 ms of
/// YAML, and reading 11 ms instead of 138 ms; those that people read and edit are smaller.
pub(super) const JSON_BYTES: usize = 16 << 10;

/// An object's document, without the version, which is the digest of what is left.
pub(super) struct Json<'a> {
    /// Type and metadata, up to the body's first field.
    head: Vec<u8>,
    /// The body by itself, whose opening brace is left out.
    body: Cow<'a, [u8]>,
}

impl<'a> Json<'a> {
    /// Makes the document of an object, or puts it together from what is kept of its body.
    ///
    /// # Errors
    /// [`io::Error`] where a value is no JSON.
    pub(super) fn of(object: &'a Object) -> io::Result<Self> {
        let mut bare = Object::new(object.kind, object.metadata.clone());
        bare.api_version.clone_from(&object.api_version);
        bare.metadata.resource_version = None;
        let mut head = serde_json::to_vec(&bare)?;
        head.pop();
        if !object.body.is_empty() {
            head.push(b',');
        }
        let body = match object.body.facts().json.get() {
            Some(known) => Cow::Borrowed(known.as_slice()),
            None => Cow::Owned(serde_json::to_vec(&object.body)?),
        };
        Ok(Self { head, body })
    }

    /// Returns its parts in order.
    fn parts(&self) -> [&[u8]; 3] {
        [&self.head, self.body.get(1..).unwrap_or_default(), b"\n"]
    }

    /// Returns its length in bytes.
    pub(super) fn len(&self) -> usize {
        self.parts().iter().map(|part| part.len()).sum()
    }

    /// Returns it in one piece.
    pub(super) fn to_vec(&self) -> Vec<u8> {
        self.parts().concat()
    }

    /// Returns `true` if these bytes are the document.
    pub(super) fn is(&self, bytes: &[u8]) -> bool {
        let rest = self.parts().into_iter().try_fold(bytes, |rest, part| rest.strip_prefix(part));
        rest.is_some_and(<[u8]>::is_empty)
    }

    /// Keeps the body's half for all copies of the body, whose it is, if it is worth it.
    pub(super) fn keep(self, body: &Body) {
        if let Cow::Owned(json) = self.body
            && json.len() >= JSON_BYTES
        {
            let _ = body.facts().json.set(json);
        }
    }
}

/// Returns the head of a document that has a body of which the JSON is kept, as a document of its own.
pub(super) fn head_before(text: &str, body: &Body) -> Option<String> {
    let known = body.facts().json.get()?.get(1..)?;
    let head = text.as_bytes().strip_suffix(b"\n")?.strip_suffix(known)?.strip_suffix(b",")?;
    Some(format!("{}}}", std::str::from_utf8(head).ok()?))
}

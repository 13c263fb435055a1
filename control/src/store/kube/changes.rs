//! The changes that a watch brings: one JSON document a line.

use std::io;

use bytes::{Bytes, BytesMut};
use http::Response;
use http_body_util::BodyExt as _;
use serde::Deserialize;
use serde_json::Value;

use super::raw::Raw;
use super::transport::Guarded;
use crate::api::{Kind, Object};
use crate::store::decode::{Bounded, MEMBER_OBJECT_BYTES, OBJECT_BYTES, describe};
use crate::store::quota::has_quota;

/// A change, as a watch tells of it.
#[derive(Debug)]
pub(super) enum Change {
    /// An object was created or changed.
    Applied(Object),
    /// An object is gone.
    Deleted(Object),
    /// Nothing has changed up to this version.
    Bookmark(String),
    /// The server ends the watch, with this code.
    Ended(u64),
}

/// Why there is no further change.
#[derive(Debug)]
pub(super) enum Failure {
    /// The answer has ended.
    Over,
    /// The connection has failed, or a change is longer than it may be.
    Broken(io::Error),
    /// The line is no change; a sentence without anything of it.
    Invalid(String),
}

/// An open watch.
pub(super) struct Changes {
    kind: Kind,
    body: Guarded,
    /// The lines, or parts of them, that were not read yet. The body is bounded by lines.
    buffer: BytesMut,
    /// How many bytes of it have no end of a line.
    searched: usize,
}

impl Changes {
    /// Reads the changes of objects of this kind from a server's answer.
    pub(super) fn new(kind: Kind, response: Response<Guarded>) -> Self {
        Self { kind, body: response.into_body(), buffer: BytesMut::new(), searched: 0 }
    }

    /// Waits for the next change.
    ///
    /// # Errors
    /// That there is none, and why: then the watch is over.
    pub(super) async fn next(&mut self) -> Result<Change, Failure> {
        loop {
            let line = self.line().await?;
            if !line.iter().all(u8::is_ascii_whitespace) {
                let decode = match has_quota(self.kind) {
                    true => decode::<MEMBER_OBJECT_BYTES>,
                    false => decode::<OBJECT_BYTES>,
                };
                return decode(&line, self.kind).map_err(Failure::Invalid);
            }
        }
    }

    async fn line(&mut self) -> Result<Bytes, Failure> {
        loop {
            if let Some(end) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(self.searched + end + 1).freeze();
                self.searched = 0;
                if self.buffer.is_empty() {
                    // Else the space of a long line would stay for as long as the watch.
                    self.buffer = BytesMut::new();
                }
                return Ok(line);
            }
            self.searched = self.buffer.len();
            match self.body.frame().await {
                // What has no end of a line was cut.
                None => return Err(Failure::Over),
                Some(Err(error)) => return Err(Failure::Broken(error)),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
            }
        }
    }
}

#[derive(Deserialize)]
struct Line<const LIMIT: usize> {
    #[serde(rename = "type")]
    event: String,
    object: Bounded<LIMIT>,
}

fn decode<const LIMIT: usize>(line: &[u8], kind: Kind) -> Result<Change, String> {
    let Line::<LIMIT> { event, object } = serde_json::from_slice(line).map_err(|error| describe(&error))?;
    let versioned = |raw: Raw<LIMIT>| {
        let object = raw.into_object(kind);
        let has_version =
            object.metadata.resource_version.as_ref().is_some_and(|version| !version.is_empty());
        if has_version { Ok(object) } else { Err("an object without resourceVersion has changed".to_owned()) }
    };
    match event.as_str() {
        "ADDED" | "MODIFIED" => versioned(Raw::from_document(object)).map(Change::Applied),
        "DELETED" => versioned(Raw::from_document(object)).map(Change::Deleted),
        "BOOKMARK" => {
            let version = object.document.pointer("/metadata/resourceVersion").and_then(Value::as_str);
            let version = version.ok_or_else(|| "a bookmark has no resourceVersion".to_owned());
            version.map(|version| Change::Bookmark(version.to_owned()))
        }
        "ERROR" => {
            let code = object.document.get("code").and_then(Value::as_u64);
            Ok(Change::Ended(code.unwrap_or_default()))
        }
        _ => Err("an event is of no type that there is".to_owned()),
    }
}

//! A file's bytes to an object and back.

use std::fmt::Write as _;
use std::io;

use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::layout::KindDir;
use crate::api::{ApiError, Kind, Object, check_object_name, cut};
use crate::store::decode::{Bounded, MEMBER_OBJECT_BYTES, OBJECT_BYTES};
use crate::store::quota::has_quota;

/// Largest file that is read, in bytes. Ours: etcd's limit for an object is 1.5 MiB, and ours are under 10 KiB.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// The same for what members of a set write. Ours: four times what such an object may take in memory.
const MAX_MEMBER_FILE_BYTES: u64 = 128 << 10;
/// Most characters of a reason: errors of the parser quote what they found.
const MAX_REASON_CHARS: usize = 300;

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

    fn field(field: &str, reason: impl Into<String>) -> Self {
        Self { field: Some(field.to_owned()), ..Self::whole(reason) }
    }
}

/// Reads an object of this directory out of a file's bytes. `modified` is the file's age mark, in Unix seconds: it
/// stands in for the creation time of an object that was written by hand.
pub(super) fn parse(bytes: &[u8], dir: &KindDir, modified: i64) -> Result<Object, BadFile> {
    let most = most_bytes(dir.kind);
    if bytes.len() as u64 > most {
        return Err(BadFile::whole(format!("is larger than {most} bytes")));
    }
    let text =
        std::str::from_utf8(bytes).map_err(|error| BadFile::whole(format!("is not UTF-8: {error}")))?;
    let (value, withheld) = decode(text, dir.kind)?;
    check_kind(&value, dir)?;
    let check = |object: Object| match withheld {
        Some(_) => Ok(Object { withheld, ..object }),
        None => object.check_shape().map(|()| object),
    };
    let mut object = Object::from_value(value).and_then(check).map_err(|error| BadFile {
        field: error.field_path().map(str::to_owned),
        reason: reason_of(&error),
    })?;
    let metadata = &mut object.metadata;
    check_object_name(&metadata.name).map_err(|error| BadFile::field("metadata.name", error.to_string()))?;
    if metadata.namespace.is_empty() {
        metadata.namespace.clone_from(&dir.namespace);
    }
    if metadata.namespace != dir.namespace {
        let reason = format!("is `{}` in the directory of `{}`", metadata.namespace, dir.namespace);
        return Err(BadFile::field("metadata.namespace", reason));
    }
    if metadata.creation_timestamp.is_none() {
        metadata.creation_timestamp = Timestamp::from_second(modified).ok();
    }
    metadata.resource_version = Some(version_of(bytes));
    Ok(object)
}

/// Returns how large a file of this kind may be.
pub(super) fn most_bytes(kind: Kind) -> u64 {
    if has_quota(kind) { MAX_MEMBER_FILE_BYTES } else { MAX_FILE_BYTES }
}

/// Decodes a document within the memory that an object of this kind may take. Gives why nothing but who it is was kept, if so.
fn decode(text: &str, kind: Kind) -> Result<(Value, Option<String>), BadFile> {
    fn within<const LIMIT: usize>(text: &str) -> Result<(Value, Option<String>), BadFile> {
        let Bounded::<LIMIT> { document, exceeded } = serde_saphyr::from_str(text).map_err(|error| {
            BadFile::whole(format!("is not YAML: {}", one_line(&error.without_snippet())))
        })?;
        Ok((document, exceeded))
    }
    if has_quota(kind) { within::<MEMBER_OBJECT_BYTES>(text) } else { within::<OBJECT_BYTES>(text) }
}

/// Tells a foreign document from a broken one of ours, before its fields are judged.
fn check_kind(value: &Value, dir: &KindDir) -> Result<(), BadFile> {
    let Value::Object(fields) = value else {
        let what = if value.is_null() { "is empty" } else { "is not a YAML mapping" };
        return Err(BadFile::whole(what));
    };
    let text = |key: &str| fields.get(key).and_then(Value::as_str).unwrap_or_default();
    let expected = dir.kind.api_version();
    if text("apiVersion") != expected {
        let reason = format!("is `{}`, expected `{expected}`", text("apiVersion").escape_debug());
        return Err(BadFile::field("apiVersion", reason));
    }
    if text("kind") != dir.kind.as_str() {
        let reason = format!("is `{}` in the directory of `{}`", text("kind").escape_debug(), dir.kind);
        return Err(BadFile::field("kind", reason));
    }
    Ok(())
}

/// An error without its field, which is told separately.
fn reason_of(error: &ApiError) -> String {
    match error {
        ApiError::Field { reason, .. } => one_line(reason),
        ApiError::WrongKind { .. } | ApiError::Withheld(_) => one_line(error),
    }
}

fn one_line(error: &impl ToString) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A version: 64 bits of the digest of a file's bytes, in hexadecimal.
pub(super) fn version_of(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(8).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns an object's file: without the version, which is the digest of what is left.
///
/// # Errors
/// [`io::ErrorKind::FileTooLarge`] for a file that would not be read back.
pub(super) fn emit(object: &Object) -> io::Result<Vec<u8>> {
    let mut stored = object.clone();
    stored.metadata.resource_version = None;
    let text = serde_saphyr::to_string(&stored.to_value()).map_err(io::Error::other)?;
    let most = most_bytes(object.kind);
    if text.len() as u64 > most {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("is larger than {most} bytes")));
    }
    Ok(text.into_bytes())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::api::Kind;
    use crate::store::conformance::sample;

    fn dir() -> KindDir {
        KindDir::new(Path::new("/nowhere"), Kind::Cluster, "ns").expect("a valid namespace")
    }

    /// Any JSON that a peer could put into an object.
    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
            "[ \t\n:#'\"&*!|>%@`,{}\\[\\]~=<?0-9a-zA-Z.+_-]{0,60}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map("\\PC{0,12}", inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn whatever_is_written_is_read_back(text: String, value in json()) {
            let mut object = sample("ns", "a");
            object.metadata.annotations.insert("text".to_owned(), text);
            object.body.insert("extra".to_owned(), value);
            let bytes = emit(&object).unwrap();
            let read = parse(&bytes, &dir(), 0).unwrap();
            prop_assert!(read.same_content(&object), "{}", String::from_utf8_lossy(&bytes));
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = parse(&bytes, &dir(), 0);
        }

        /// A reader that comes while somebody writes in place sees the beginning of a file.
        #[test]
        fn no_beginning_of_a_file_panics_and_none_is_another_object(share in 0.0f64..1.0) {
            let bytes = emit(&sample("ns", "a-rather-long-name")).unwrap();
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a short length")]
            let end = (bytes.len() as f64 * share) as usize;
            if let Ok(object) = parse(&bytes[..end], &dir(), 0) {
                prop_assert_eq!(object.metadata.name, "a-rather-long-name");
            }
        }
    }

    #[test]
    fn the_version_follows_the_bytes() {
        let object = sample("ns", "a");
        let read =
            |object: &Object| parse(&emit(object).unwrap(), &dir(), 0).unwrap().metadata.resource_version;
        let first = read(&object);
        let mut versioned = object;
        versioned.metadata.resource_version = first.clone();
        assert_eq!(read(&versioned), first, "the version itself does not count");
        versioned.body["spec"]["color_codes"] = json!([]);
        assert_ne!(read(&versioned), first);
    }
}

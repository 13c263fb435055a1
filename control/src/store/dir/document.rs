//! A file's bytes to an object and back: YAML, and JSON where it is large.

use std::io;

use jiff::Timestamp;
use serde_json::Value;

use super::content::{BadFile, Content, one_line};
use super::json::{JSON_BYTES, Json, head_before};
use super::layout::KindDir;
use crate::api::{Kind, Object, check_object_name};
use crate::store::decode::{Bounded, MEMBER_OBJECT_BYTES, OBJECT_BYTES, is_exact};
use crate::store::quota::has_quota;

/// Largest file that is read or written, in bytes: etcd's limit for an object. The largest of ours is a Gateway with a status of
/// [`crate::publish::MAX_STATUS_BYTES`].
const MAX_FILE_BYTES: u64 = 3 << 19;
/// The same for what members of a set write. Ours: four times what such an object may take in memory.
const MAX_MEMBER_FILE_BYTES: u64 = 128 << 10;

/// Reads an object of this directory out of a file's bytes. `modified` is the file's age mark, in Unix seconds: it
/// stands in for the creation time of an object that was written by hand. `known` is a valid object of the directory, such as
/// the file's last one: a body that is equal to its body is shared with it, and is not checked again.
pub(super) fn parse(
    content: &Content,
    dir: &KindDir,
    modified: i64,
    known: Option<&Object>,
) -> Result<Object, BadFile> {
    let most = most_bytes(dir.kind);
    if content.bytes.len() as u64 > most {
        return Err(BadFile::whole(format!("is larger than {most} bytes")));
    }
    let text = std::str::from_utf8(&content.bytes)
        .map_err(|error| BadFile::whole(format!("is not UTF-8: {error}")))?;
    let mut object = decode_own(text, dir.kind, known).map_or_else(|| decode(text, dir), Ok)?;
    match known.filter(|known| known.withheld.is_none() && known.body == object.body) {
        _ if object.withheld.is_some() => {}
        Some(known) => object.body = known.body.clone(),
        None => object.check_shape().map_err(|error| BadFile::of(&error))?,
    }
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
    metadata.resource_version = Some(content.digest.version());
    Ok(object)
}

/// Returns how large a file of this kind may be.
pub(super) fn most_bytes(kind: Kind) -> u64 {
    if has_quota(kind) { MAX_MEMBER_FILE_BYTES } else { MAX_FILE_BYTES }
}

fn most_memory(kind: Kind) -> usize {
    if has_quota(kind) { MEMBER_OBJECT_BYTES } else { OBJECT_BYTES }
}

/// Decodes a document that is JSON, byte for byte as [`emit`] writes it. Of all others, which are read as YAML whether they are
/// JSON or not, there is none: so that the bounds of YAML documents hold for every file. Of one that has the body of the `known`
/// object, the head alone is decoded.
fn decode_own(text: &str, kind: Kind, known: Option<&Object>) -> Option<Object> {
    fn within<const LIMIT: usize>(text: &str) -> Option<Value> {
        let Bounded::<LIMIT> { document, exceeded } = serde_json::from_str(text).ok()?;
        exceeded.is_none().then_some(document)
    }
    if text.len() < JSON_BYTES || !text.starts_with('{') {
        return None;
    }
    let same = known.and_then(|known| Some((head_before(text, &known.body)?, known.body.clone())));
    let (text_to_decode, body) = match &same {
        Some((head, body)) => (head.as_str(), Some(body)),
        None => (text, None),
    };
    let value = if has_quota(kind) {
        within::<MEMBER_OBJECT_BYTES>(text_to_decode)
    } else {
        within::<OBJECT_BYTES>(text_to_decode)
    };
    let mut object = Object::from_value(value?).ok()?;
    if let Some(body) = body {
        object.body.is_empty().then_some(())?;
        object.body = body.clone();
    }
    let is_candidate = object.kind == kind && is_exact(&object, most_memory(kind));
    (is_candidate && is_own(&object, text.as_bytes())).then_some(object)
}

/// Returns `true` if these bytes are the JSON that [`emit`] makes of an object. That of its body is kept then.
pub(super) fn is_own(object: &Object, bytes: &[u8]) -> bool {
    if bytes.len() < JSON_BYTES {
        return false;
    }
    let Ok(json) = Json::of(object) else { return false };
    let is_own = json.is(bytes);
    if is_own {
        keep(json, object);
    }
    is_own
}

/// Keeps the JSON of an object's body, but for objects of members, which have no space for it.
fn keep(json: Json<'_>, object: &Object) {
    if !has_quota(object.kind) {
        json.keep(&object.body);
    }
}

/// Decodes a document within the memory that an object of this directory may take. Of one that takes more, nothing is kept but
/// who it is.
fn decode(text: &str, dir: &KindDir) -> Result<Object, BadFile> {
    fn within<const LIMIT: usize>(text: &str) -> Result<(Value, Option<String>), BadFile> {
        let Bounded::<LIMIT> { document, exceeded } = serde_saphyr::from_str(text).map_err(|error| {
            BadFile::whole(format!("is not YAML: {}", one_line(&error.without_snippet())))
        })?;
        Ok((document, exceeded))
    }
    let (value, withheld) =
        if has_quota(dir.kind) { within::<MEMBER_OBJECT_BYTES>(text) } else { within::<OBJECT_BYTES>(text) }?;
    check_kind(&value, dir)?;
    let object = Object::from_value(value).map_err(|error| BadFile::of(&error))?;
    Ok(Object { withheld, ..object })
}

/// Tells a foreign document from a broken one of ours, before its fields are judged.
fn check_kind(value: &Value, dir: &KindDir) -> Result<(), BadFile> {
    let Value::Object(fields) = value else {
        let what = if value.is_null() { "is empty" } else { "is not a YAML mapping" };
        return Err(BadFile::whole(what));
    };
    let text = |key: &str| fields.get(key).and_then(Value::as_str).unwrap_or_default();
    let expected = dir.kind.api_version();
    if !dir.kind.has_api_version(text("apiVersion")) {
        let reason = format!("is `{}`, expected `{expected}`", text("apiVersion").escape_debug());
        return Err(BadFile::field("apiVersion", reason));
    }
    if text("kind") != dir.kind.as_str() {
        let reason = format!("is `{}` in the directory of `{}`", text("kind").escape_debug(), dir.kind);
        return Err(BadFile::field("kind", reason));
    }
    Ok(())
}

/// An object's file, to be written.
#[derive(Debug)]
pub(super) struct Emitted {
    pub(super) content: Content,
    /// Whether the object is, but for its version, exactly what is read from the file.
    pub(super) is_exact: bool,
}

/// Returns an object's file: JSON if it is large, or else YAML; without the version, which is the digest of what is left.
///
/// # Errors
/// [`io::ErrorKind::FileTooLarge`] for a file that would not be read back.
pub(super) fn emit(object: &Object) -> io::Result<Emitted> {
    let is_exact = is_exact(object, most_memory(object.kind));
    let json = if is_exact { Some(Json::of(object)?) } else { None };
    let bytes = match json.filter(|json| json.len() >= JSON_BYTES) {
        Some(json) => {
            let bytes = json.to_vec();
            keep(json, object);
            bytes
        }
        None => {
            let mut stored = object.clone();
            stored.metadata.resource_version = None;
            serde_saphyr::to_string(&stored.to_value()).map_err(io::Error::other)?.into_bytes()
        }
    };
    let most = most_bytes(object.kind);
    if bytes.len() as u64 > most {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("is larger than {most} bytes")));
    }
    Ok(Emitted { content: Content::new(bytes), is_exact })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::api::label;
    use crate::store::conformance::sample;

    fn dir() -> KindDir {
        KindDir::new(Path::new("/nowhere"), Kind::Cluster, "ns").expect("a valid namespace")
    }

    fn read(bytes: &[u8]) -> Result<Object, BadFile> {
        parse(&Content::new(bytes.to_vec()), &dir(), 0, None)
    }

    /// Makes any JSON that a peer could put into an object.
    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
            "[ \t\n:#'\"&*!|>%@`,{}\\[\\]~=<?0-9a-zA-Z.+_-]{0,60}".prop_map(Value::from),
        ];
        let key =
            prop_oneof!["\\PC{0,12}", any::<String>(), Just("<<".to_owned()), "[ \t\n:#'\"~?0-9.-]{0,6}"];
        leaf.prop_recursive(4, 32, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map(key.clone(), inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    /// Returns a sample as a store makes it.
    fn made() -> Object {
        let mut object = sample("ns", "a");
        object.metadata.uid = Some("u".to_owned());
        object.metadata.creation_timestamp = Some(Timestamp::UNIX_EPOCH);
        object.metadata.generation = Some(1);
        object
    }

    /// Returns one that is written as JSON.
    fn large() -> Object {
        let mut object = made();
        object.body.insert("note".to_owned(), "x".repeat(JSON_BYTES).into());
        object
    }

    /// Gives the object that is read of a file as it was emitted, and whether it was said to be exactly the one that was written.
    fn round_trip(object: &Object) -> (Object, Object, bool) {
        let Emitted { content, is_exact } = emit(object).unwrap();
        let mut wanted = object.clone();
        wanted.metadata.resource_version = Some(content.digest.version());
        let text = String::from_utf8_lossy(&content.bytes);
        let read = parse(&content, &dir(), 0, None).unwrap_or_else(|bad| panic!("{bad:?}: {text}"));
        (read, wanted, is_exact)
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(text: String, key: String, value in json(), is_large: bool) {
            let mut object = if is_large { large() } else { made() };
            object.metadata.annotations.insert("text".to_owned(), text.clone());
            object.metadata.annotations.insert(key, text);
            object.metadata.extra.insert("finalizers".to_owned(), value.clone());
            object.body.insert("extra".to_owned(), value);
            let (read, wanted, is_exact) = round_trip(&object);
            if is_exact {
                prop_assert_eq!(read, wanted);
            }
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = read(&bytes);
        }

        /// Covers a reader that comes while somebody writes in place, and sees the beginning of a file.
        #[test]
        fn no_beginning_of_a_file_panics_and_none_is_another_object(share in 0.0f64..1.0) {
            let bytes = emit(&sample("ns", "a-rather-long-name")).unwrap().content.bytes;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a short length")]
            let end = (bytes.len() as f64 * share) as usize;
            if let Ok(object) = read(&bytes[..end]) {
                prop_assert_eq!(object.metadata.name, "a-rather-long-name");
            }
        }
    }

    #[test]
    fn a_large_object_is_json_which_is_yaml_and_a_small_one_is_yaml() {
        let text = |object: &Object| String::from_utf8(emit(object).unwrap().content.bytes).unwrap();
        assert!(text(&made()).starts_with("apiVersion: submariner.io/v1\n"));
        let object = large();
        let large = text(&object);
        assert!(
            large.starts_with("{\"apiVersion\":") && large.ends_with("}\n") && large.lines().count() == 1
        );
        assert_eq!(decode_own(&large, Kind::Cluster, None), Some(object.clone()));
        assert_eq!(decode(&large, &dir()), Ok(object.clone()));
        let mut with_fraction = object;
        with_fraction.body.insert("x".to_owned(), json!(0.1));
        assert!(text(&with_fraction).starts_with("apiVersion: "), "formats round fractions differently");
    }

    #[test]
    fn json_that_is_not_as_it_is_written_is_held_to_the_bounds_of_yaml() {
        let text = String::from_utf8(emit(&large()).unwrap().content.bytes).unwrap();
        let with = |field: &str| text.replacen("{", &format!("{{\"x\":{field},"), 1);
        let nested = |depth| with(&format!("{}{}", "[".repeat(depth), "]".repeat(depth)));
        let rows = [
            ("spaces", text.replace(",\"", ", \""), Ok(None)),
            ("an unknown field", with("0"), Ok(None)),
            ("a key twice", with("0,\"x\":0"), Err("duplicate")),
            ("a key twice inside", with("{\"y\":0,\"y\":0}"), Err("duplicate")),
            ("too deep to keep", nested(61), Ok(Some("nests deeper than 60 levels"))),
            ("too deep to read", nested(100), Err("is not YAML: budget breached: Depth")),
            ("too heavy", with(&format!("[{}0]", "{},".repeat(100))), Ok(Some("is too large"))),
            ("cut", text[..text.len() - 10].to_owned(), Err("is not YAML")),
            ("two documents", format!("{text}---\nx: 1\n"), Err("is not YAML")),
        ];
        for (row, text, wanted) in rows {
            match (read(text.as_bytes()), wanted) {
                (Ok(object), Ok(reason)) => {
                    let withheld = object.withheld.unwrap_or_default();
                    assert!(withheld.contains(reason.unwrap_or_default()), "{row}: {withheld}");
                    assert_eq!(withheld.is_empty(), reason.is_none(), "{row}: {withheld}");
                }
                (Err(bad), Err(reason)) => assert!(bad.reason.contains(reason), "{row}: {bad:?}"),
                (found, _) => panic!("{row}: {found:?}"),
            }
        }
    }

    #[test]
    fn an_object_of_which_reading_gives_another_is_not_exact() {
        type Change = fn(&mut Object, Value);
        let long = "x".repeat(2_000);
        let nested = (0..61).fold(json!(0), |value, _| json!([value]));
        let changes: [(&str, Change, Value); 9] = [
            ("none", |_, _| {}, json!(0)),
            ("a fraction", |object, value| drop(object.body.insert("x".to_owned(), value)), json!(0.1)),
            ("levels", |object, value| drop(object.body.insert("x".to_owned(), value)), nested),
            (
                "size",
                |object, value| drop(object.body.insert("x".to_owned(), value)),
                json!("x".repeat(31 << 10)),
            ),
            ("type", |object, value| drop(object.body.insert("kind".to_owned(), value)), json!("Cluster")),
            ("time", |object, _| object.metadata.creation_timestamp = None, json!(0)),
            (
                "origin",
                |object, value| {
                    let id = value.as_str().unwrap().to_owned();
                    drop(object.metadata.labels.insert(label::CLUSTER_ID.to_owned(), id));
                },
                json!(long),
            ),
            (
                "fields",
                |object, value| drop(object.metadata.extra.insert("managedFields".to_owned(), value)),
                json!([]),
            ),
            ("withheld", |object, _| object.withheld = Some("it is too large".to_owned()), json!(0)),
        ];
        for (row, change, value) in changes {
            let mut object = made();
            change(&mut object, value);
            let (read, wanted, is_exact) = round_trip(&object);
            assert_eq!(is_exact, row == "none", "{row}");
            assert_eq!(read == wanted, matches!(row, "none" | "a fraction"), "{row}");
        }
    }

    #[test]
    fn a_body_that_is_known_is_shared_and_not_checked_again() {
        let object = made();
        let mut newer = object.clone();
        newer.metadata.annotations.insert("a".to_owned(), "1".to_owned());
        let content = emit(&newer).unwrap().content;
        let read = |known: &Object| parse(&content, &dir(), 0, Some(known)).unwrap();
        assert!(read(&object).body.is_shared_with(&object.body));
        let mut other = object.clone();
        other.body["spec"]["color_codes"] = json!([]);
        let found = read(&other);
        assert!(!found.body.is_shared_with(&other.body) && found.same_content(&newer));
        assert!(!read(&object.withhold("it is too large")).body.is_empty());
    }

    #[test]
    fn the_version_follows_the_bytes() {
        let object = sample("ns", "a");
        let version = |object: &Object| round_trip(object).0.metadata.resource_version;
        let first = version(&object);
        let mut versioned = object;
        versioned.metadata.resource_version = first.clone();
        assert_eq!(version(&versioned), first, "the version itself does not count");
        versioned.body["spec"]["color_codes"] = json!([]);
        assert_ne!(version(&versioned), first);
    }
}

//! A large body of which the JSON is kept: a write that changes an annotation alone costs its bytes once, and what is read is the
//! same with and without it.

use std::fs;

use serde_json::{Value, json};

use super::DirStore;
use super::content::{Content, digests};
use super::document::{emit, parse};
use super::json::Json;
use super::lab::Lab;
use super::layout::KindDir;
use crate::api::{Kind, Object, ObjectMeta, annotation};
use crate::publish::samples::status;
use crate::store::conformance::sample;

const BEATS: u64 = 5;

fn lab() -> Lab {
    Lab::new(Kind::Gateway, "gw1")
}

/// Returns a Gateway that is written as JSON.
fn gateway() -> Object {
    let mut object = Object::new(Kind::Gateway, ObjectMeta::new("ns", "gw1"));
    object.body.insert("status".to_owned(), serde_json::to_value(status(50, 1)).unwrap());
    object
}

fn stamped(object: &Object, stamp: u64) -> Object {
    let mut object = object.clone();
    object.metadata.annotations.insert(annotation::UPDATE_TIMESTAMP.to_owned(), stamp.to_string());
    object
}

/// Returns an object's document, made in one piece.
fn whole(object: &Object) -> Vec<u8> {
    let mut object = object.clone();
    object.metadata.resource_version = None;
    let mut json = serde_json::to_vec(&object).unwrap();
    json.push(b'\n');
    json
}

#[test]
fn a_document_in_halves_is_that_in_one_piece() {
    let mut bare = sample("ns", "a");
    bare.body = Default::default();
    let mut more = gateway();
    more.body.insert("theirs".to_owned(), json!({"a\"b": [1, null, "\u{2028}"]}));
    for object in [bare, sample("ns", "a"), gateway(), more] {
        let text = whole(&object);
        for _ in 0..2 {
            let json = Json::of(&object).unwrap();
            assert_eq!((json.to_vec(), json.len()), (text.clone(), text.len()));
            assert!(json.is(&text) && !json.is(&text[1..]) && !json.is(&text[..text.len() - 1]));
            json.keep(&object.body);
        }
    }
}

#[test]
fn a_beat_makes_the_body_no_more_and_digests_its_file_once() {
    let lab = lab();
    let made = lab.store.inner.create(gateway()).unwrap();
    let kept = std::ptr::from_ref(made.body.facts().json.get().unwrap());
    let before = digests();
    let mut newest = made;
    for beat in 0..BEATS {
        newest = lab.store.inner.update(stamped(&newest, beat)).unwrap();
        assert_eq!(lab.text().into_bytes(), whole(&newest));
        // The file is young and is read again, whoever looks.
        (0..3).for_each(|_| assert_eq!(*lab.cached(), newest));
    }
    assert_eq!(newest.body.facts().json.get().map(std::ptr::from_ref), Some(kept));
    assert_eq!(digests() - before, BEATS);
}

#[test]
fn another_reader_decodes_the_head_of_a_beat_alone_and_finds_the_same() {
    let lab = lab();
    let other = DirStore::attach(lab.root.path());
    let mut newest = lab.store.inner.create(gateway()).unwrap();
    let read = || Object::clone(&other.inner.list(Kind::Gateway, "ns").unwrap()[0]);
    let first = read();
    assert_eq!(first, newest);
    for beat in 0..BEATS {
        newest = lab.store.inner.update(stamped(&newest, beat)).unwrap();
        let found = read();
        assert!(found == newest && found.body.is_shared_with(&first.body));
    }
}

#[test]
fn bytes_of_another_hand_are_told_from_our_own() {
    let lab = lab();
    let made = lab.store.inner.create(gateway()).unwrap();
    let (path, own) = (lab.path(), lab.text());
    // Says the same, and is not the document that we make: a version of its own.
    fs::write(&path, own.replacen(':', ": ", 1)).unwrap();
    let foreign = lab.cached();
    assert!(
        foreign.same_content(&made) && foreign.metadata.resource_version != made.metadata.resource_version
    );
    fs::write(&path, &own).unwrap();
    assert_eq!(*lab.cached(), made);
    fs::write(&path, own.replace("cluster-7\"", "cluster-8\"")).unwrap();
    assert_ne!(lab.cached().body, made.body);
    fs::write(&path, &own).unwrap();
    assert_eq!(*lab.cached(), made);
}

#[test]
fn a_known_body_changes_nothing_in_what_is_read() {
    let dir = KindDir::new(std::path::Path::new("/nowhere"), Kind::Gateway, "ns").unwrap();
    let mut known = gateway();
    known.metadata.creation_timestamp = Some(jiff::Timestamp::UNIX_EPOCH);
    let text = String::from_utf8(emit(&known).unwrap().content.bytes).unwrap();
    assert!(known.body.facts().json.get().is_some());
    let field = |field: &str| text.replacen('{', &format!("{{{field},"), 1);
    let before_body = |field: &str| text.replacen("},\"status\":", &format!("}},{field},\"status\":"), 1);
    let rows = [
        text.clone(),
        stamp_in_text(&text),
        field("\"x\":1"),
        field("\"status\":{}"),
        field("\"kind\":\"Gateway\""),
        before_body("\"spec\":7"),
        before_body("\"status\":{}"),
        before_body("\"metadata\":{}"),
        before_body("\"x\":{\"y\":\"\""),
        text.replacen("},\"status\":", ",\"status\":", 1),
        text.replacen("\"Gateway\"", "\"Endpoint\"", 1),
        text.replacen("\"gw1\"", "7", 1),
        text.replacen("{\"apiVersion\"", "[{\"apiVersion\"", 1),
        text[text.find("\"status\"").unwrap()..].to_owned(),
    ];
    for row in rows {
        let content = Content::new(row.clone().into_bytes());
        let [with, without] = [Some(&known), None].map(|known| parse(&content, &dir, 0, known));
        assert_eq!(with, without, "{}", &row[..200]);
        let is_shared = with.is_ok_and(|object| object.body.is_shared_with(&known.body));
        let says_the_same = serde_json::from_str::<Value>(&row)
            .is_ok_and(|value| value.as_object().is_some_and(|fields| fields.len() == 4));
        assert!(!is_shared || says_the_same, "{}", &row[..200]);
    }
}

/// Returns the document with an annotation.
fn stamp_in_text(text: &str) -> String {
    text.replacen("\"namespace\":\"ns\"", "\"namespace\":\"ns\",\"annotations\":{\"a\":\"b\"}", 1)
}

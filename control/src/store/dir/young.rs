//! Files that are read again, because they are young or were touched, or that were just written, are parsed when their bytes
//! have changed and at no other time.

use std::fs::{self, File, FileTimes};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::json;

use super::DirStore;
use super::cache::DirCache;
use super::lab::Lab;
use super::scan::{object, refresh};
use crate::api::{Kind, ObjectKey};
use crate::store::conformance::sample;
use crate::store::{Store as _, StoreError};

fn lab() -> Lab {
    Lab::new(Kind::Cluster, "a")
}

impl Lab {
    fn key(&self) -> ObjectKey {
        ObjectKey::new(Kind::Cluster, "ns", "a")
    }

    /// Writes in place, and gives the file this time of change.
    fn write(&self, text: &str, modified: SystemTime) {
        fs::write(self.path(), text).unwrap();
        touch(&self.path(), modified);
    }
}

fn touch(path: &PathBuf, modified: SystemTime) {
    File::options()
        .append(true)
        .open(path)
        .unwrap()
        .set_times(FileTimes::new().set_modified(modified))
        .unwrap();
}

fn modified(path: &PathBuf) -> SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

#[tokio::test]
async fn an_own_write_is_what_another_reader_finds_and_is_not_read_again() {
    let lab = lab();
    let made = lab.store.create(sample("ns", "a")).await.unwrap();
    let cached = lab.cached();
    assert!(cached.body.is_shared_with(&made.body), "the object that was written is the one in the cache");
    let mut changed = made.clone();
    changed.metadata.annotations.insert("text".to_owned(), ": #'\"\u{85}\u{feff}\0".to_owned());
    changed.body["spec"]["color_codes"] = json!(["~", "1e3", " x ", "\u{2028}"]);
    let changed = lab.store.update(changed).await.unwrap();
    assert_eq!(*lab.cached(), changed);
    assert!(lab.cached().body.is_shared_with(&changed.body));
    let mut other = DirCache::default();
    refresh(&lab.dir, &mut other, Duration::ZERO).unwrap();
    let read = object("a", &lab.dir, &other).unwrap();
    assert_eq!(*read, changed);
    assert!(!read.body.is_shared_with(&changed.body));

    let annotated = lab.store.annotate(&changed, "text", Some("x")).await.unwrap();
    assert_eq!(lab.cached().metadata, annotated);
    assert!(lab.cached().body.is_shared_with(&changed.body), "an annotation leaves the body as it is");
}

#[tokio::test]
async fn a_foreign_write_of_the_same_length_in_the_same_second_is_seen_beside_an_own_one() {
    let lab = lab();
    let made = lab.store.create(sample("ns", "a")).await.unwrap();
    let (text, time) = (lab.text(), modified(&lab.path()));
    // In place, and with the file's own times: of all that a stamp has, only the time of change tells them apart, if it does.
    lab.write(&text.replace("blue", "pink"), time);
    let foreign = lab.cached();
    assert_eq!(foreign.body["spec"]["color_codes"], json!(["pink"]));
    assert_ne!(foreign.metadata.resource_version, made.metadata.resource_version);
    let refused = lab.store.update(made.clone()).await;
    assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{refused:?}");

    // Another process: by rename.
    let other = lab.dir.path.join(".other");
    fs::write(&other, text.replace("blue", "gold")).unwrap();
    touch(&other, time);
    fs::rename(&other, lab.path()).unwrap();
    assert_eq!(
        lab.store.get(&lab.key()).await.unwrap().unwrap().body["spec"]["color_codes"],
        json!(["gold"])
    );
    let second = DirStore::attach(lab.store.root());
    let mut theirs = second.get(&lab.key()).await.unwrap().unwrap();
    theirs.body["spec"]["color_codes"] = json!(["teal"]);
    let theirs = second.update(theirs).await.unwrap();
    assert_eq!(*lab.cached(), theirs);
}

#[tokio::test]
async fn bytes_that_have_not_changed_are_not_parsed_again_when_their_file_is_touched_or_replaced() {
    let lab = lab();
    lab.store.create(sample("ns", "a")).await.unwrap();
    let cached = lab.cached();
    let later = SystemTime::now() + Duration::from_secs(100);
    touch(&lab.path(), later);
    assert!(Arc::ptr_eq(&lab.cached(), &cached));
    let copy = lab.dir.path.join(".copy");
    fs::copy(lab.path(), &copy).unwrap();
    fs::rename(&copy, lab.path()).unwrap();
    assert!(Arc::ptr_eq(&lab.cached(), &cached));
}

#[test]
fn an_object_without_a_time_of_creation_takes_that_of_its_file_as_it_is_at_present() {
    let lab = lab();
    let text = "apiVersion: submariner.io/v1\nkind: Cluster\nmetadata: {name: a}\nspec: {cluster_id: a, \
                service_cidr: [], cluster_cidr: [], global_cidr: []}\n";
    let at = |second| SystemTime::UNIX_EPOCH + Duration::from_secs(second);
    let created = |lab: &Lab| lab.cached().metadata.creation_timestamp.unwrap().as_second();
    lab.write(text, at(1_000));
    assert_eq!(created(&lab), 1_000);
    touch(&lab.path(), at(2_000));
    assert_eq!(created(&lab), 2_000);
}

#[test]
fn a_file_that_is_withheld_or_bad_is_parsed_whenever_it_is_read() {
    let lab = lab();
    let now = SystemTime::now();
    let good = "apiVersion: submariner.io/v1\nkind: Cluster\nmetadata: {name: a}\nspec: {cluster_id: a, \
                service_cidr: [], cluster_cidr: [], global_cidr: [], note: NOTE}\n";
    lab.write(&good.replace("NOTE", &"x".repeat(40_000)), now);
    let withheld = lab.cached();
    assert!(withheld.withheld.is_some() && withheld.body.is_empty());
    touch(&lab.path(), now + Duration::from_secs(1));
    assert!(lab.cached().withheld.is_some());
    lab.write(good, now);
    assert!(lab.cached().withheld.is_none(), "it has shrunk");
    lab.write(&good[..good.len() - 20], now);
    assert_eq!(lab.cached().body["spec"]["note"], json!("NOTE"), "its last good state");
    assert_eq!(lab.store.problems().len(), 1);
    lab.write(good, now);
    assert!(lab.cached().withheld.is_none() && lab.store.problems().is_empty());
}

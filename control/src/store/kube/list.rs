//! Reading a list, a page at a time.
//!
//! * A page that is longer than it may be is asked for again with a quarter of the objects, down to one; after each page that was
//!   not, twice as many are asked for, up to where it began.
//! * Objects are decoded one by one, each within its bound, and counted while the page is read: no more is ever held than a list
//!   may hold, and one page. Of what members write there is a quota; of other kinds the youngest objects are withheld.
//! * A list ends. Each page is asked for by another token than the one before, and all pages together are asked for no more
//!   objects than would fill the longest list twice.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use jiff::Timestamp;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use super::bounds::{MEMBER_PAGE_BYTES, OBJECT_BYTES as ONE_OBJECT_BYTES, PAGE_BYTES};
use super::failure::Operation;
use super::raw::{Raw, collection};
use super::requests::Verb;
use super::scope::Selection;
use super::transport::Transport;
use crate::api::{Kind, Object, ObjectKey};
use crate::https::escaped;
use crate::store::StoreError;
use crate::store::decode::{MEMBER_OBJECT_BYTES, OBJECT_BYTES, describe};
use crate::store::limits::MAX_OBJECTS;
use crate::store::quota::{LIST_BYTES, Quota, has_quota};
use crate::store::size;

/// Ours: objects per page of a list, as client-go.
const PAGE: usize = 500;
/// Ours: objects per page of a list of what members write, which may be a few times as large as usual.
const MEMBER_PAGE: usize = 250;
/// Ours: how many objects the pages of a list are asked for in all. Servers fill pages, but for what a selector leaves out.
const MAX_ASKED: usize = 2 * MAX_OBJECTS;
/// Ours: how often a list that became too old while it was read is begun again.
const MAX_RESTARTS: usize = 3;
/// Ours: longest token that says where a page begins, in bytes. Kubernetes' hold a version and a key.
const MAX_TOKEN_BYTES: usize = 8 << 10;

/// Reads all objects of a selection. Each page has begun within `limit`.
///
/// # Errors
/// That the server refused or did not answer, or that the list exceeds a bound.
pub(super) async fn read(
    transport: &Arc<Transport>,
    limit: Duration,
    selection: &Selection,
) -> Result<List, StoreError> {
    let key = &selection.key;
    let operation = Operation::new(Verb::List, key.clone(), &transport.access);
    let path = |version| format!("{}?{}", collection(key.kind, version, &key.namespace), selection.query());
    let mut version = transport.versions.of(key.kind);
    let mut is_other = false;
    let mut list = List::new(key.kind);
    let mut pages = Pages::new(key.kind);
    loop {
        let limits = (limit, pages.bytes());
        let asked = format!("{}{}", path(version), pages.query());
        let answer = transport.call_within(Verb::List, Method::GET, &asked, None, limits).await;
        let (code, body) = match answer {
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                if pages.shrink() {
                    continue;
                }
                let reason = format_args!("a page of one object is longer than {} bytes", pages.bytes());
                return Err(operation.too_much(reason));
            }
            answer => answer.map_err(|error| operation.lost(error))?,
        };
        if code == StatusCode::GONE && pages.restart() {
            // The list took too long to read in pages: what is left is of another version. Once more, whole.
            list = List::new(key.kind);
            continue;
        }
        if code == StatusCode::NOT_FOUND
            && !is_other
            && let Some(other) = transport.versions.other(key.kind, version)
        {
            // What was read so far is of a version that is served no more.
            (version, is_other) = (other, true);
            (list, pages) = (List::new(key.kind), Pages::new(key.kind));
            continue;
        }
        if !code.is_success() {
            return Err(operation.refused(code, &body));
        }
        let metadata = list.decode(&body).map_err(|error| match list.is_too_long() {
            true => operation.too_much(format_args!("there are more than {MAX_OBJECTS} objects")),
            false => operation.invalid_response(describe(&error)),
        })?;
        if metadata.next.is_empty() {
            list.version = metadata.version;
            return Ok(list);
        }
        pages.turn(metadata.next).map_err(|reason| operation.too_much(reason))?;
    }
}

/// Objects of one kind in the order in which lists are given: by namespace and name.
pub(super) struct List {
    kind: Kind,
    pub(super) objects: BTreeMap<ObjectKey, Object>,
    /// How much of what members write is kept.
    pub(super) quota: Option<Quota<ObjectKey>>,
    /// How many bytes of memory the objects of a kind without quota take.
    bytes: usize,
    /// The version from which a watch goes on.
    pub(super) version: String,
    /// How many objects were read; the server may give one of them twice.
    read: usize,
}

impl List {
    fn new(kind: Kind) -> Self {
        let quota = has_quota(kind).then(|| Quota::new(kind));
        Self { kind, objects: BTreeMap::new(), quota, bytes: 0, version: String::new(), read: 0 }
    }

    /// Reads the objects of a page and returns what else it says.
    fn decode(&mut self, body: &[u8]) -> serde_json::Result<PageMeta> {
        let mut parser = serde_json::Deserializer::from_slice(body);
        let metadata = if has_quota(self.kind) {
            Page::<MEMBER_OBJECT_BYTES>(self).deserialize(&mut parser)
        } else {
            Page::<OBJECT_BYTES>(self).deserialize(&mut parser)
        }?;
        parser.end()?;
        Ok(metadata)
    }

    fn is_too_long(&self) -> bool {
        self.read > MAX_OBJECTS
    }

    /// Adds an object; those that are over the quota stay without their bodies.
    fn take_in(&mut self, object: Object) {
        let key = object.key();
        let Some(quota) = &mut self.quota else {
            self.bytes += size::of_object(&object, OBJECT_BYTES);
            self.objects.insert(key, object);
            if self.bytes > LIST_BYTES {
                self.bytes = shed(&mut self.objects, LIST_BYTES);
            }
            return;
        };
        let over = quota.enter(&key, &object);
        self.objects.insert(key, object);
        for (key, reason) in over {
            if let Some(object) = self.objects.get_mut(&key) {
                *object = object.withhold(reason);
            }
        }
    }
}

/// Withholds the youngest objects until the others take three quarters of `most` bytes, and returns how many they take. Less
/// than all, so that the next object is not the next to be looked for among all.
fn shed(objects: &mut BTreeMap<ObjectKey, Object>, most: usize) -> usize {
    let mut by_age: Vec<_> = objects.values_mut().filter(|object| object.withheld.is_none()).collect();
    by_age.sort_by_key(|object| object.metadata.creation_timestamp.unwrap_or(Timestamp::MAX));
    let mut bytes = 0;
    for object in by_age {
        let size = size::of_object(object, most);
        if bytes + size <= most / 4 * 3 {
            bytes += size;
        } else {
            let reason =
                format!("all objects of this kind take more than {most} bytes; the oldest are taken");
            *object = object.withhold(reason);
        }
    }
    bytes
}

/// Where the next page begins, and how many objects it is to have.
struct Pages {
    kind: Kind,
    size: usize,
    token: String,
    /// How many there were since the list was begun, and how many objects they were asked for.
    read: usize,
    asked: usize,
    restarts: usize,
}

impl Pages {
    fn new(kind: Kind) -> Self {
        Self { kind, size: first_size(kind), token: String::new(), read: 0, asked: 0, restarts: 0 }
    }

    fn query(&self) -> String {
        let size = self.size;
        if self.token.is_empty() {
            format!("limit={size}")
        } else {
            format!("limit={size}&continue={}", escaped(&self.token))
        }
    }

    /// Returns how many bytes the page may have.
    fn bytes(&self) -> usize {
        match self.size {
            1 => ONE_OBJECT_BYTES,
            _ if has_quota(self.kind) => MEMBER_PAGE_BYTES,
            _ => PAGE_BYTES,
        }
    }

    /// Asks for fewer objects, after a page that was too long. Gives `false` if that cannot be.
    fn shrink(&mut self) -> bool {
        let is_smaller = self.size > 1;
        self.size = (self.size / 4).max(1);
        is_smaller
    }

    /// Begins anew, after a page that was too late. Gives `false` if there was none before it, or if that happens too often.
    fn restart(&mut self) -> bool {
        if self.token.is_empty() || self.restarts >= MAX_RESTARTS {
            return false;
        }
        *self = Self { restarts: self.restarts + 1, size: self.size, ..Self::new(self.kind) };
        true
    }

    /// Goes on where the server says.
    ///
    /// # Errors
    /// Why the list has no end.
    fn turn(&mut self, token: String) -> Result<(), String> {
        self.read += 1;
        self.asked += self.size;
        if token == self.token {
            return Err(format!("it has no end: page {} is followed by itself", self.read));
        }
        if token.len() > MAX_TOKEN_BYTES {
            return Err(format!("the token after page {} is longer than {MAX_TOKEN_BYTES} bytes", self.read));
        }
        if self.asked >= MAX_ASKED {
            return Err(format!(
                "it has no end after {} pages with space for {} objects",
                self.read, self.asked
            ));
        }
        self.token = token;
        self.size = (self.size * 2).min(first_size(self.kind));
        Ok(())
    }
}

/// Returns how many objects the first page of a list is asked for.
fn first_size(kind: Kind) -> usize {
    if has_quota(kind) { MEMBER_PAGE } else { PAGE }
}

/// A page of a list, whose objects go into the list as they are decoded.
struct Page<'a, const LIMIT: usize>(&'a mut List);

/// The objects of a page.
struct Items<'a, const LIMIT: usize>(&'a mut List);

#[derive(Default, serde::Deserialize)]
struct PageMeta {
    #[serde(default, rename = "continue")]
    next: String,
    #[serde(default, rename = "resourceVersion")]
    version: String,
}

impl<'de, const LIMIT: usize> DeserializeSeed<'de> for Page<'_, LIMIT> {
    type Value = PageMeta;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<PageMeta, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, const LIMIT: usize> Visitor<'de> for Page<'_, LIMIT> {
    type Value = PageMeta;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<PageMeta, A::Error> {
        let mut metadata = PageMeta::default();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "metadata" => metadata = map.next_value()?,
                "items" => map.next_value_seed(Items::<LIMIT>(self.0))?,
                _ => drop(map.next_value::<serde::de::IgnoredAny>()?),
            }
        }
        Ok(metadata)
    }
}

impl<'de, const LIMIT: usize> DeserializeSeed<'de> for Items<'_, LIMIT> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de, const LIMIT: usize> Visitor<'de> for Items<'_, LIMIT> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    /// Visits null, as which a Go server writes an empty list.
    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(raw) = seq.next_element::<Raw<LIMIT>>()? {
            self.0.read += 1;
            if self.0.is_too_long() {
                return Err(A::Error::custom("too many objects"));
            }
            self.0.take_in(raw.into_object(self.0.kind));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ObjectMeta;

    #[test]
    fn pages_are_smaller_after_one_that_was_too_long_and_grow_again() {
        let mut pages = Pages::new(Kind::Pod);
        let mut sizes = vec![pages.size];
        while pages.shrink() {
            sizes.push(pages.size);
        }
        assert_eq!(sizes, [500, 125, 31, 7, 1]);
        assert_eq!(pages.bytes(), ONE_OBJECT_BYTES);
        for (nth, size) in [2, 4, 8, 16, 32, 64, 128, 256, 500, 500].into_iter().enumerate() {
            pages.turn(format!("page {nth}")).unwrap();
            assert_eq!((pages.size, pages.query()), (size, format!("limit={size}&continue=page%20{nth}")));
        }
    }

    #[test]
    fn a_list_without_end_is_refused() {
        let mut pages = Pages::new(Kind::Cluster);
        let error = (0..).find_map(|nth| pages.turn(format!("{}", nth % 2)).err()).unwrap();
        assert_eq!(error, "it has no end after 800 pages with space for 200000 objects");
        let mut pages = Pages::new(Kind::Cluster);
        pages.turn("same".to_owned()).unwrap();
        assert_eq!(pages.turn("same".to_owned()).unwrap_err(), "it has no end: page 2 is followed by itself");
        let error = pages.turn("x".repeat(MAX_TOKEN_BYTES + 1)).unwrap_err();
        assert_eq!(error, "the token after page 3 is longer than 8192 bytes");
    }

    #[test]
    fn of_a_list_that_is_too_large_the_youngest_are_withheld() {
        let object = |name: &str, second: i64| {
            let mut metadata = ObjectMeta::new("", name);
            metadata.creation_timestamp = Timestamp::from_second(second).ok();
            let mut object = Object::new(Kind::Node, metadata);
            object.body.insert("spec".to_owned(), "x".repeat(900).into());
            (object.key(), object)
        };
        let mut objects = BTreeMap::from([object("a", 4), object("b", 2), object("c", 1), object("d", 3)]);
        let bytes = shed(&mut objects, 4_000);
        let kept: Vec<_> = objects.values().filter(|object| object.withheld.is_none()).collect();
        assert_eq!(kept.iter().map(|object| object.metadata.name.as_str()).collect::<Vec<_>>(), ["b", "c"]);
        assert_eq!(bytes, kept.iter().map(|object| size::of_object(object, 4_000)).sum::<usize>());
        let reason = objects.values().find_map(|object| object.withheld.clone()).unwrap();
        assert_eq!(reason, "all objects of this kind take more than 4000 bytes; the oldest are taken");
        assert_eq!(shed(&mut objects, 4_000), bytes);
    }
}

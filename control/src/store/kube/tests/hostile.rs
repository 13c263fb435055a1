//! Answers that no API server gives: too long, without end, and without sense. Each is refused with a sentence, reads no more
//! than it may, leaves nothing of itself in a log, and is over with the next good answer; objects beside it are as they are.

use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use serde_json::json;
use tracing::Level;

use super::fake::{Asked, Log, Reply, Step, cluster, event, list, refusal, store};
use crate::api::{Kind, ObjectKey};
use crate::store::kube::bounds::{EVENT_BYTES, OBJECT_BYTES};
use crate::store::logged::Logged;
use crate::store::{KubeStore, Store, StoreEvent};

/// Stands in every hostile answer where it may not be repeated.
pub(super) const MARK: &str = "SECRET";
/// The bytes that may be on the way beside those read: the connection's buffer, and a part on each side.
pub(super) const ON_THE_WAY: usize = 1 << 20;
/// From when on a server that was hostile is not: after two tries or so.
const HEALED: Duration = Duration::from_secs(1);

/// An answer to a list that costs the whole list.
struct BadList {
    row: &'static str,
    answer: fn(&Asked) -> Reply,
    /// Stands in the error.
    error: &'static str,
    /// Most bytes of one answer that are read.
    most: usize,
}

pub(super) fn bytes(text: impl Into<String>) -> Bytes {
    Bytes::from(text.into())
}

fn page(next: &str, items: &str) -> Reply {
    let metadata = json!({"resourceVersion": "1", "continue": next});
    Reply::Bytes(200, bytes(format!(r#"{{"items": [{items}], "metadata": {metadata}}}"#)))
}

/// So many objects that are none, which are cheap.
fn many(count: usize) -> String {
    vec!["{}"; count].join(",")
}

const SMALL: usize = 64 << 10;

const BAD_LISTS: [BadList; 18] = [
    BadList {
        row: "a page that does not end",
        answer: |_| {
            let part = Bytes::from(MARK.repeat(10_000));
            Reply::Endless(200, bytes(r#"{"items": [{"metadata": {"name": ""#), part, Duration::ZERO)
        },
        error: "a page of one object is longer than 16777216 bytes",
        most: OBJECT_BYTES,
    },
    BadList {
        row: "a page that announces more than it may have",
        answer: |_| Reply::Announced(9 << 30),
        error: "a page of one object is longer than 16777216 bytes",
        most: 0,
    },
    BadList {
        row: "a page that trickles",
        answer: |_| Reply::Endless(200, bytes("{"), bytes(" "), Duration::from_secs(5)),
        error: "no answer within 60s",
        most: SMALL,
    },
    BadList {
        row: "no JSON",
        answer: |_| Reply::Bytes(200, bytes(format!("{MARK} <html>"))),
        error: "invalid response: expected value at line 1 column 1",
        most: SMALL,
    },
    BadList {
        row: "no UTF-8",
        answer: |_| {
            Reply::Bytes(200, Bytes::from([b"{\"".as_slice(), MARK.as_bytes(), b"\xff\": 1}"].concat()))
        },
        error: "invalid response: invalid unicode code point at line 1",
        most: SMALL,
    },
    BadList {
        row: "half a list",
        answer: |_| Reply::Bytes(200, bytes(format!(r#"{{"items": [{{"metadata": {{"name": "{MARK}""#))),
        error: "invalid response: EOF while parsing",
        most: SMALL,
    },
    BadList {
        row: "more than a list",
        answer: |_| Reply::Bytes(200, bytes(format!("{{\"items\": null}} \"{MARK}\""))),
        error: "invalid response: trailing characters",
        most: SMALL,
    },
    BadList {
        row: "no object",
        answer: |_| Reply::Bytes(200, bytes(format!(r#"["{MARK}"]"#))),
        error: "invalid response: expected a list at line 1",
        most: SMALL,
    },
    BadList {
        row: "no items",
        answer: |_| Reply::Bytes(200, bytes(format!(r#"{{"items": "{MARK}"}}"#))),
        error: "invalid response: expected a list of objects at line 1",
        most: SMALL,
    },
    BadList {
        row: "a token that is none",
        answer: |_| {
            Reply::Bytes(200, bytes(format!(r#"{{"items": [], "metadata": {{"continue": ["{MARK}"]}}}}"#)))
        },
        error: "invalid response: expected a string at line 1",
        most: SMALL,
    },
    BadList {
        row: "a list without version",
        answer: |_| Reply::Bytes(200, bytes(r#"{"items": []}"#)),
        error: "it has no resourceVersion",
        most: SMALL,
    },
    BadList {
        row: "a million objects in one page",
        answer: |_| page("", &many(1_000_000)),
        error: "there are more than 100000 objects",
        most: 4 << 20,
    },
    BadList {
        row: "a million objects in pages",
        answer: |asked| page(&format!("{}", asked.nth), &many(250)),
        error: "there are more than 100000 objects",
        most: SMALL,
    },
    BadList {
        row: "pages without objects and without end",
        answer: |asked| page(&format!("{}", asked.nth), ""),
        error: "it has no end after 800 pages with space for 200000 objects",
        most: SMALL,
    },
    BadList {
        row: "a page that is followed by itself",
        answer: |_| page(MARK, "{}"),
        error: "it has no end: page 2 is followed by itself",
        most: SMALL,
    },
    BadList {
        row: "a token without end",
        answer: |_| page(&MARK.repeat(100_000), "{}"),
        error: "the token after page 1 is longer than 8192 bytes",
        most: 1 << 20,
    },
    BadList {
        row: "a refusal without end",
        answer: |_| {
            let head = bytes(format!("<html>{}", "x".repeat(200)));
            Reply::Endless(502, head, Bytes::from(MARK.repeat(10_000)), Duration::ZERO)
        },
        error: "it answers 502 (<html>xxx",
        most: SMALL,
    },
    BadList {
        row: "a refusal that says too much",
        answer: |_| {
            let text = format!("etcd is away {}{MARK}", "x".repeat(8_000));
            Reply::Json(500, refusal(500, "InternalError", &text))
        },
        error: "it answers 500 (etcd is away xxx",
        most: 0,
    },
];

#[tokio::test(start_paused = true)]
async fn a_list_that_cannot_be_read_is_refused_with_a_sentence_and_over_with_the_next_good_one() {
    for BadList { row, answer, error, most } in BAD_LISTS {
        let logged = Logged::begin(Level::TRACE);
        let (store, log) = store(move |asked| match (asked.is_watch, asked.at < HEALED) {
            (true, _) => Reply::Watch(vec![Step::Silence]),
            (false, true) => answer(asked),
            (false, false) => list("10", &[("good", "9")]),
        });
        let mut events = store.list_watch(Kind::Cluster, "ns");

        check_refused(
            row,
            &events.next().await.unwrap(),
            "cannot list clusters in ns at http://api.test: ",
            error,
        );
        assert_eq!(listed(row, &mut events).await, ["good"]);
        assert!(log.most_taken() <= most + ON_THE_WAY, "{row}: {} bytes were taken", log.most_taken());
        logged.check(row, MARK);
    }
}

/// Checks that the store says that it cannot be read, in one bounded sentence.
pub(super) fn check_refused(row: &str, event: &StoreEvent, what: &str, reason: &str) {
    let StoreEvent::Unavailable(error) = event else { panic!("{row}: {event:?}") };
    let text = error.to_string();
    assert!(text.starts_with(what) && text.contains(reason), "{row}: {text}");
    assert!(text.len() < 1_500 && !text.contains(MARK), "{row}: {text}");
}

/// The names of the objects of a list; those that are withheld in brackets.
pub(super) async fn listed(row: &str, events: &mut (impl Stream<Item = StoreEvent> + Unpin)) -> Vec<String> {
    let event = events.next().await.unwrap();
    let StoreEvent::Listed(objects) = event else { panic!("{row}: {event:?} instead of a list") };
    let names = objects.into_iter().map(|object| match &object.withheld {
        None => object.metadata.name,
        Some(reason) => {
            assert!(reason.len() < 1_000 && !reason.contains(MARK), "{row}: {reason}");
            assert!(object.body.is_empty(), "{row}: {object:?}");
            format!("({})", object.metadata.name)
        }
    });
    names.collect()
}

/// An item of a list that makes no sense by itself, as JSON.
struct BadItem {
    row: &'static str,
    item: fn() -> String,
    /// As much of its name as can be read.
    name: &'static str,
    reason: &'static str,
}

pub(super) fn nested(depth: usize) -> String {
    format!("{}{}", "[".repeat(depth), "]".repeat(depth))
}

/// The bad item's name and version, and this beside them, as JSON.
fn named(metadata: &str, rest: &str) -> String {
    format!(r#"{{"metadata": {{"name": "bad", "namespace": "ns", "resourceVersion": "8"{metadata}}}{rest}}}"#)
}

const BAD_ITEMS: [BadItem; 12] = [
    BadItem { row: "null", item: || "null".to_owned(), name: "", reason: "field `.`: is not an object" },
    BadItem {
        row: "a text",
        item: || format!("\"{MARK}\""),
        name: "",
        reason: "field `.`: is not an object",
    },
    BadItem {
        row: "a list",
        item: || format!("[\"{MARK}\"]"),
        name: "",
        reason: "field `.`: is not an object",
    },
    BadItem { row: "nothing", item: || "{}".to_owned(), name: "", reason: "field `metadata" },
    BadItem {
        row: "metadata that are none",
        item: || format!(r#"{{"metadata": "{MARK}"}}"#),
        name: "",
        reason: "field `metadata",
    },
    BadItem {
        row: "a name without end",
        item: || format!(r#"{{"metadata": {{"name": "{}"}}}}"#, MARK.repeat(1_000)),
        name: "",
        reason: "field `metadata.name`: is too large",
    },
    BadItem {
        row: "labels of another type",
        item: || named(&format!(r#", "labels": {{"x": ["{MARK}"]}}"#), ""),
        name: "bad",
        reason: "field `metadata.labels.x`: expected a string",
    },
    BadItem {
        row: "a time that is none",
        item: || named(&format!(r#", "creationTimestamp": "{MARK}""#), ""),
        name: "bad",
        reason: "field `metadata.creationTimestamp`",
    },
    BadItem {
        row: "a body that nests too deep",
        item: || named("", &format!(r#", "spec": {}"#, nested(10_000))),
        name: "bad",
        reason: "field `spec`: nests deeper than 60 levels",
    },
    BadItem {
        row: "annotations that nest too deep",
        item: || named(&format!(r#", "annotations": {}"#, nested(10_000)), ""),
        name: "bad",
        reason: "field `metadata.annotations`: nests deeper than 60 levels",
    },
    BadItem {
        row: "a body of 9 MiB",
        item: || named("", &format!(r#", "spec": "{}""#, MARK.repeat((9 << 20) / MARK.len()))),
        name: "bad",
        reason: "field `spec`: is too large: an object may take 32768 bytes in all",
    },
    BadItem {
        row: "a field with a name of 1 MiB",
        item: || named("", &format!(r#", "{}": 1"#, "x".repeat(1 << 20))),
        name: "bad",
        reason: "is too large: an object may take 32768 bytes in all",
    },
];

/// A list of these items, in pages as they are asked for.
fn paged(items: &[String], asked: &Asked) -> Reply {
    let part =
        |name: &str| asked.query.split('&').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
    let (first, limit): (usize, usize) =
        (part("continue").map_or(0, |token| token.parse().unwrap()), part("limit").unwrap().parse().unwrap());
    let end = items.len().min(first + limit);
    let next = if end < items.len() { end.to_string() } else { String::new() };
    page(&next, &items[first..end].join(","))
}

#[tokio::test(start_paused = true)]
async fn an_object_that_makes_no_sense_is_withheld_and_hides_none_beside_it() {
    for BadItem { row, item, name, reason } in BAD_ITEMS {
        let logged = Logged::begin(Level::TRACE);
        let (store, log) = store(move |asked| match (asked.is_watch, asked.nth) {
            (false, _) => {
                paged(&[cluster("before", "1").to_string(), item(), cluster("good", "9").to_string()], asked)
            }
            (true, 0) => {
                let bad = bytes(format!("{{\"type\": \"MODIFIED\", \"object\": {}}}\n", item()));
                let is_event = bad.len() < EVENT_BYTES && name == "bad";
                let bad = is_event.then_some(Step::Bytes(bad));
                let good = event("MODIFIED", cluster("bad", "12"));
                Reply::Watch(bad.into_iter().chain([good, Step::Silence]).collect())
            }
            (true, _) => Reply::Watch(vec![Step::Silence]),
        });
        let single = store.list(Kind::Cluster, "ns").await.unwrap();
        let bad = single.iter().find(|object| object.withheld.is_some()).unwrap();
        let mut events = store.list_watch(Kind::Cluster, "ns");
        let mut names = listed(row, &mut events).await;

        names.retain(|name| !["before", "good"].contains(&name.as_str()));
        assert_eq!(names, [format!("({name})")], "{row}");
        let withheld = bad.withheld.as_deref().unwrap();
        assert!(withheld.contains(reason), "{row}: {withheld}");
        loop {
            let event = events.next().await.unwrap();
            let StoreEvent::Applied(object) = event else { panic!("{row}: {event:?}") };
            assert_eq!(object.metadata.name, "bad", "{row}");
            if object.withheld.is_none() {
                break;
            }
            assert!(object.withheld.unwrap().contains(reason) && object.body.is_empty(), "{row}");
        }
        assert!(
            log.most_taken() <= OBJECT_BYTES + ON_THE_WAY,
            "{row}: {} bytes were taken",
            log.most_taken()
        );
        logged.check(row, MARK);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_about_one_object_is_bounded_and_not_repeated() {
    let get = async |store: &KubeStore| {
        let outcome = store.get(&ObjectKey::new(Kind::Cluster, "ns", "a")).await;
        let text = outcome.unwrap_err().to_string();
        assert!(!text.contains(MARK) && text.len() < 1_000, "{text}");
        text
    };
    let check = async |reply: fn() -> Reply, reason: &str, most: usize| {
        let logged = Logged::begin(Level::TRACE);
        let (store, log): (KubeStore, Log) = store(move |_| reply());
        let text = get(&store).await;
        assert!(text.contains(reason), "{text}");
        assert!(log.most_taken() <= most + ON_THE_WAY, "{} bytes were taken", log.most_taken());
        logged.check(reason, MARK);
    };
    let endless =
        || Reply::Endless(200, bytes("{\"spec\": \""), Bytes::from(MARK.repeat(10_000)), Duration::ZERO);
    check(endless, "the answer is longer than 16777216 bytes", OBJECT_BYTES).await;
    check(|| Reply::Announced(1 << 40), "the answer is longer than 16777216 bytes", 0).await;
    check(|| Reply::Bytes(200, bytes(format!("\"{MARK}"))), "invalid response: EOF", SMALL).await;
    check(|| Reply::Bytes(200, bytes(format!("\"{MARK}\""))), "invalid response: it is about Cluster", SMALL)
        .await;
}

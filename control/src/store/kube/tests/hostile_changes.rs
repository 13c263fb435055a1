//! Changes that no API server tells of: as in [`super::hostile`], of a watch.

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use serde_json::{Value, json};
use tracing::Level;

use super::fake::{Reply, Step, cluster, event, list, store};
use super::hostile::{MARK, ON_THE_WAY, bytes, check_refused, listed, nested};
use crate::api::Kind;
use crate::store::logged::Logged;
use crate::store::{Store, StoreEvent};

/// The lines of a watch that cannot be read.
struct BadChange {
    row: &'static str,
    step: fn() -> Step,
    /// Stands in the error; empty if there is none, as the watch is resumed.
    error: &'static str,
}

fn line(text: impl AsRef<str>) -> Step {
    Step::Bytes(bytes(format!("{}\n", text.as_ref())))
}

const BAD_CHANGES: [BadChange; 12] = [
    BadChange {
        row: "an event of 9 MiB",
        step: || event("MODIFIED", Value::from(MARK.repeat((9 << 20) / MARK.len()))),
        error: "an event of the watch is longer than 4194304 bytes",
    },
    BadChange {
        row: "an event that does not end",
        step: || Step::Endless(Bytes::from(MARK.repeat(10_000))),
        error: "an event of the watch is longer than 4194304 bytes",
    },
    BadChange {
        row: "no JSON",
        step: || line(format!("{MARK} <html>")),
        error: "invalid response: expected value at line 1 column 1",
    },
    BadChange {
        row: "no UTF-8",
        step: || Step::Bytes(Bytes::from([b"{\"".as_slice(), MARK.as_bytes(), b"\xff\": 1}\n"].concat())),
        error: "invalid response: invalid unicode code point at line 1",
    },
    BadChange {
        row: "no object",
        step: || line(format!("\"{MARK}\"")),
        error: "invalid response: expected struct Line at line 1",
    },
    BadChange {
        row: "an event of no type",
        step: || event(MARK, cluster("bad", "11")),
        error: "invalid response: an event is of no type that there is",
    },
    BadChange {
        row: "an event without an object",
        step: || line(r#"{"type": "ADDED"}"#),
        error: "invalid response: missing field `object`",
    },
    BadChange {
        row: "an object that is none",
        step: || event("ADDED", Value::from(MARK)),
        error: "invalid response: an object without resourceVersion has changed",
    },
    BadChange {
        row: "an event that nests too deep",
        step: || line(format!(r#"{{"type": {}, "object": 1}}"#, nested(10_000))),
        error: "invalid response: expected a string at line 1",
    },
    BadChange {
        row: "a bookmark without version",
        step: || event("BOOKMARK", json!({"metadata": {"name": MARK}})),
        error: "invalid response: a bookmark has no resourceVersion",
    },
    BadChange {
        row: "half an event",
        step: || {
            Step::Bytes(bytes(format!(r#"{{"type": "ADDED", "object": {{"metadata": {{"name": "{MARK}""#)))
        },
        error: "",
    },
    BadChange { row: "lines with nothing in them", step: || line("\n \n\r\n"), error: "" },
];

#[tokio::test(start_paused = true)]
async fn a_change_that_cannot_be_read_is_refused_with_a_sentence_and_all_is_listed_again() {
    for BadChange { row, step, error } in BAD_CHANGES {
        let logged = Logged::begin(Level::TRACE);
        let (store, log) = store(move |asked| match (asked.is_watch, asked.nth) {
            (false, 0) => list("10", &[("good", "9")]),
            (false, _) => list("20", &[("good", "9"), ("late", "15")]),
            (true, 0) => Reply::Watch(vec![event("MODIFIED", cluster("good", "11")), step()]),
            (true, _) => Reply::Watch(vec![event("MODIFIED", cluster("good", "21")), Step::Silence]),
        });
        let mut events = store.list_watch(Kind::Cluster, "ns");

        assert_eq!(listed(row, &mut events).await, ["good"]);
        check_applied(row, &events.next().await.unwrap(), "11");
        if !error.is_empty() {
            let what = "cannot watch clusters in ns at http://api.test: ";
            check_refused(row, &events.next().await.unwrap(), what, error);
            assert_eq!(listed(row, &mut events).await, ["good", "late"]);
        }
        check_applied(row, &events.next().await.unwrap(), "21");
        // The server is asked from the last version that was seen, or from that of the new list.
        let version = if error.is_empty() { "resourceVersion=11" } else { "resourceVersion=20" };
        assert!(log.watches()[1].query.contains(version), "{row}: {:?}", log.watches());
        assert!(log.most_taken() <= (9 << 20) + ON_THE_WAY, "{row}: {} bytes were taken", log.most_taken());
        logged.check(row, MARK);
    }
}

fn check_applied(row: &str, event: &StoreEvent, version: &str) {
    let StoreEvent::Applied(object) = event else { panic!("{row}: {event:?}") };
    assert_eq!(object.metadata.resource_version.as_deref(), Some(version), "{row}");
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_watches_cannot_be_read_is_asked_ever_less() {
    let (store, log) = store(|asked| match asked.is_watch {
        false => list("10", &[("good", "9")]),
        true => Reply::Watch(vec![line(MARK)]),
    });
    let mut events = store.list_watch(Kind::Cluster, "ns");
    let follow = async {
        loop {
            events.next().await;
        }
    };
    let outcome: Result<(), _> = tokio::time::timeout(Duration::from_secs(300), follow).await;
    assert!(outcome.is_err());
    let asked = log.all().len();
    assert!((12..=60).contains(&asked), "{asked} requests in 300 s");
}

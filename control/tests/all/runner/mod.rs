//! The runner: the controller of the documentation, and every fault under every controller.

mod copy_label;
mod faults;
mod limits;

use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt as _};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use trieste_control::api::{Kind, Object, ObjectMeta};
use trieste_control::runner::{Fence, Handle, Limits, port, spawn};

use self::copy_label::{CopyLabel, CopyLabelStatus};
use crate::memory_store::{Fault, MemoryStore};

/// The namespace of the objects.
const NS: &str = "submariner-operator";

/// Returns a Service with the label `color`.
fn service(name: &str, color: &str) -> Object {
    let mut service = Object::new(Kind::Service, ObjectMeta::new(NS, name));
    service.metadata.labels.insert("color".to_owned(), color.to_owned());
    service
}

fn none<T: Send + 'static>() -> BoxStream<'static, T> {
    stream::pending().boxed()
}

fn start(store: MemoryStore) -> (Handle, watch::Receiver<CopyLabelStatus>) {
    let (sender, status) = watch::channel(CopyLabelStatus::default());
    let publish = move |status: &CopyLabelStatus| drop(sender.send_replace(status.clone()));
    let handle =
        spawn(CopyLabel::new(NS), vec![port(store)], Fence::Open, none(), Limits::default(), publish);
    (handle, status)
}

async fn done(status: &mut watch::Receiver<CopyLabelStatus>) {
    let done = status.wait_for(|status| status.is_done);
    timeout(Duration::from_secs(120), done).await.expect("all is copied").unwrap();
}

fn copy(store: &MemoryStore, name: &str) -> Option<String> {
    store.peek(Kind::Service, name)?.metadata.labels.get("colour").cloned()
}

#[tokio::test(start_paused = true)]
async fn copy_label_copies_labels() {
    let store = MemoryStore::default();
    store.put(service("a", "red"));
    store.put(service("b", "blue"));
    let (handle, mut status) = start(store.clone());
    done(&mut status).await;
    assert_eq!((copy(&store, "a").as_deref(), copy(&store, "b").as_deref()), (Some("red"), Some("blue")));

    store.edit(Kind::Service, "a", |service| drop(service.metadata.labels.remove("color")));
    sleep(Duration::from_millis(1)).await;
    done(&mut status).await;
    assert_eq!(copy(&store, "a"), None);
    let numbers = handle.metrics.snapshot(std::time::Instant::now());
    assert_eq!((numbers.writes, numbers.depth, numbers.errors.len()), (3, 0, 0), "{numbers:?}");
    handle.stop(Duration::from_secs(1)).await;
    store.edit(Kind::Service, "b", |service| drop(service.metadata.labels.remove("color")));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(copy(&store, "b").as_deref(), Some("blue"), "one that was stopped writes nothing");
}

/// Every block of the page is in the code, word by word.
#[test]
fn copy_label_is_what_the_page_shows() {
    let page = include_str!("../../../../docs/development/controllers.md");
    let code = [include_str!("copy_label.rs"), include_str!("mod.rs")];
    let blocks: Vec<&str> =
        page.split("```rust\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(blocks.len(), 6);
    for block in blocks {
        assert!(code.iter().any(|code| code.contains(block)), "the page differs from the code:\n{block}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_refused_holds_up_no_other_and_is_tried_ever_more_seldom() {
    let store = MemoryStore::default();
    store.set_fault(Fault::Forbids);
    (0..20).for_each(|number| store.put(service(&format!("s{number}"), "red")));
    let (_handle, mut status) = start(store.clone());
    sleep(Duration::from_secs(600)).await;
    let requests = store.take_log().iter().filter(|line| line.starts_with("update")).count();
    assert!((20 * 5..20 * 60).contains(&requests), "{requests} requests for 20 objects in ten minutes");
    assert!(status.borrow().problem.as_ref().is_some_and(|problem| problem.contains("no right")));
    store.set_fault(Fault::None);
    done(&mut status).await;
    assert_eq!(status.borrow().problem, None);
}

#[tokio::test(start_paused = true)]
async fn somebody_who_undoes_every_write_is_not_fought_at_full_speed() {
    let store = MemoryStore::default();
    store.put(service("a", "red"));
    let (_handle, _status) = start(store.clone());
    let mut fights = 0;
    for _ in 0..6_000 {
        sleep(Duration::from_millis(100)).await;
        if copy(&store, "a").is_some() {
            fights += 1;
            store.edit(Kind::Service, "a", |service| drop(service.metadata.labels.remove("colour")));
        }
    }
    assert!((8..60).contains(&fights), "{fights} writes in ten minutes");
}

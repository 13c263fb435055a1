//! What a controller may ask of the runner: a guard that ends it, watches that are opened anew, waits after a refusal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;
use trieste_control::api::Kind;
use trieste_control::runner::{Fence, Handle, Limits, port, spawn};

use super::copy_label::{CopyLabel, CopyLabelStatus};
use super::{NS, copy, done, none, service};
use crate::memory_store::{Fault, MemoryStore};

fn start(store: &MemoryStore, fence: Fence, limits: Limits) -> (Handle, watch::Receiver<CopyLabelStatus>) {
    let (sender, status) = watch::channel(CopyLabelStatus::default());
    let publish = move |status: &CopyLabelStatus| drop(sender.send_replace(status.clone()));
    (spawn(CopyLabel::new(NS), vec![port(store.clone())], fence, none(), limits, publish), status)
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_says_no_ends_the_controller_before_it_writes() {
    let store = MemoryStore::default();
    store.put(service("a", "red"));
    let may_write = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&may_write);
    let guard = Fence::Guard(Arc::new(move || asked.load(Ordering::Relaxed)));
    let (handle, mut status) = start(&store, guard, Limits::default());
    done(&mut status).await;
    may_write.store(false, Ordering::Relaxed);
    sleep(Duration::from_secs(60)).await;
    assert!(!handle.has_ended(), "there is nothing to write");
    store.put(service("b", "blue"));
    sleep(Duration::from_secs(1)).await;
    assert!(handle.has_ended());
    may_write.store(true, Ordering::Relaxed);
    sleep(Duration::from_secs(60)).await;
    assert_eq!((copy(&store, "a").as_deref(), copy(&store, "b")), (Some("red"), None));
}

#[tokio::test(start_paused = true)]
async fn watches_that_break_or_give_no_list_are_opened_anew_after_growing_waits() {
    let store = MemoryStore::default();
    store.put(service("a", "red"));
    let limits = Limits { list_within: Some(Duration::from_secs(10)), ..Limits::DEFAULT };
    store.set_fault(Fault::Hangs);
    let (_handle, mut status) = start(&store, Fence::Open, limits);
    sleep(Duration::from_secs(60)).await;
    assert!(!status.borrow().is_done && copy(&store, "a").is_none());
    store.set_fault(Fault::None);
    done(&mut status).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(copy(&store, "a").as_deref(), Some("red"));
    for round in 0..3 {
        store.break_watches();
        store.put(service(&format!("b{round}"), "blue"));
        sleep(Duration::from_secs(1)).await;
        assert_eq!(copy(&store, &format!("b{round}")).as_deref(), Some("blue"), "the first wait is short");
        sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_object_is_tried_once_a_minute_and_when_it_changes() {
    let store = MemoryStore::default();
    store.put(service("a", "red"));
    store.set_fault(Fault::Forbids);
    let minute = Duration::from_secs(60);
    let limits = Limits { refusal_wait: Some(minute), limits_objects: false, ..Limits::DEFAULT };
    let (_handle, mut status) = start(&store, Fence::Open, limits);
    let tries =
        |store: &MemoryStore| store.take_log().iter().filter(|line| line.starts_with("update")).count();
    sleep(minute * 10 - Duration::from_secs(1)).await;
    assert_eq!(tries(&store), 10);
    store.edit(Kind::Service, "a", |service| {
        drop(service.metadata.labels.insert("color".to_owned(), "blue".to_owned()));
    });
    sleep(Duration::from_millis(100)).await;
    assert_eq!(tries(&store), 1, "it has changed");
    store.set_fault(Fault::None);
    sleep(minute).await;
    done(&mut status).await;
    assert_eq!(copy(&store, "a").as_deref(), Some("blue"));
}

//! What is written to a server, in order.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::Value;

use super::client::Client;
use super::fleet::Place;

/// How often a follower looks whether it is over.
const TICK: Duration = Duration::from_millis(50);

/// Follows kinds of one server from now on.
#[derive(Debug)]
pub struct Journal {
    entries: Arc<Mutex<Vec<Entry>>>,
    is_over: Arc<AtomicBool>,
    followers: Vec<JoinHandle<()>>,
}

/// One write.
#[derive(Debug, Clone)]
pub struct Entry {
    /// When the watch told of it.
    pub heard: Instant,
    /// The server's counter of writes: orders those of all kinds.
    pub version: u64,
    /// ADDED, MODIFIED or DELETED.
    pub verb: String,
    /// The object, as it was before in case of a deletion.
    pub object: Value,
}

impl Entry {
    /// Such as `ADDED Endpoint east-…`.
    pub fn title(&self) -> String {
        let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
        format!("{} {} {}", self.verb, text(&self.object["kind"]), text(&self.object["metadata"]["name"]))
    }
}

impl Journal {
    /// Begins to follow these kinds, by their plurals.
    ///
    /// # Errors
    /// If the server refuses.
    pub fn open(client: &Client, at: Place<'_>, plurals: &[&str]) -> anyhow::Result<Self> {
        let entries = Arc::new(Mutex::new(Vec::new()));
        let is_over = Arc::new(AtomicBool::new(false));
        let mut followers = Vec::new();
        for plural in plurals {
            let path = at.path(plural);
            let list = client.get(&path)?;
            let version = list["metadata"]["resourceVersion"].as_str().context("a list without a version")?;
            let watch = client.watch(&path, version)?;
            let (entries, is_over) = (Arc::clone(&entries), Arc::clone(&is_over));
            followers.push(std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    // An ended watch ends the journal: the test misses entries then, and says which.
                    let Ok(event) = watch.poll(TICK) else { return };
                    if let Some(entry) = event.as_ref().and_then(entry) {
                        entries.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
                    }
                }
            }));
        }
        Ok(Self { entries, is_over, followers })
    }

    /// What was written so far, in order.
    pub fn entries(&self) -> Vec<Entry> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner).clone();
        entries.sort_by_key(|entry| entry.version);
        entries
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for follower in self.followers.drain(..) {
            let _ = follower.join();
        }
    }
}

fn entry(event: &Value) -> Option<Entry> {
    let object = event["object"].clone();
    Some(Entry {
        heard: Instant::now(),
        version: object["metadata"]["resourceVersion"].as_str()?.parse().ok()?,
        verb: event["type"].as_str()?.to_owned(),
        object,
    })
}

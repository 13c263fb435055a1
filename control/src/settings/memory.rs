//! The settings at a start: asked for, else as they were remembered.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::read::{Data, OBJECT, data_of};
use super::standing::Read;
use super::table::Program;
use crate::api::{Kind, ObjectKey};
use crate::store::{Store, StoreError};

/// The largest file that is read, in bytes.
const LARGEST: u64 = 1 << 20;
/// How often a store is asked that does not answer, and for how long: not for long where the answer is remembered.
const RETRY: Duration = Duration::from_millis(100);
const WITHIN: Duration = Duration::from_secs(2);
const WITHIN_REMEMBERED: Duration = Duration::from_millis(250);

/// Returns what was in force before, as the state directory has it, and the entries of the ConfigMap. Where the store does not
/// answer in time, or refuses, these are what was in force: a start does not depend on it.
pub async fn at_start<S: Store>(store: &S, namespace: &str, program: Program, state_dir: &Path) -> Read {
    let remembered = load(&state_dir.join(program.file()));
    let within = if remembered.is_some() { WITHIN_REMEMBERED } else { WITHIN };
    let asked = tokio::time::timeout(within, ask(store, namespace)).await;
    let before = remembered.unwrap_or_default();
    let data = asked.ok().flatten().unwrap_or_else(|| before.clone());
    Read { before, data }
}

/// Asks until there is an answer. `None` for who may not read it, or where it is too large: of an API server that has just started
/// the first says nothing yet of rights.
fn ask<S: Store>(store: &S, namespace: &str) -> impl Future<Output = Option<Data>> {
    let key = ObjectKey::new(Kind::ConfigMap, namespace, OBJECT);
    async move {
        loop {
            match store.get(&key).await {
                Ok(None) => return Some(Data::new()),
                Ok(Some(object)) if object.withheld.is_none() => return Some(data_of(&object)),
                Ok(Some(_)) | Err(StoreError::Forbidden { .. }) => return None,
                Err(_) => tokio::time::sleep(RETRY).await,
            }
        }
    }
}

/// Keeps what is in force for the next start. Without a state directory nothing is kept.
pub fn remember(state_dir: &Path, program: Program, data: &Data) {
    let path = state_dir.join(program.file());
    if load(&path).as_ref() == Some(data) || !state_dir.is_dir() {
        return;
    }
    if let Err(error) = store_file(&path, data) {
        tracing::debug!(%error, "cannot save the settings");
    }
}

/// Removes what is kept, and what a write that was broken off has left.
///
/// # Errors
/// A file that cannot be removed.
pub fn remove_file(state_dir: &Path, program: Program) -> io::Result<()> {
    let path = state_dir.join(program.file());
    for path in [aside(&path), path] {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn store_file(path: &Path, data: &Data) -> io::Result<()> {
    let aside = aside(path);
    std::fs::write(&aside, serde_json::to_vec(data)?)?;
    std::fs::rename(aside, path)
}

/// Returns where the file is written before it takes its place.
fn aside(path: &Path) -> PathBuf {
    path.with_extension("new")
}

fn load(path: &Path) -> Option<Data> {
    let is_small = std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() <= LARGEST);
    is_small.then(|| serde_json::from_slice(&std::fs::read(path).ok()?).ok()).flatten()
}

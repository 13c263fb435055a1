//! What was read of each file, so that unchanged files are neither read nor complained about again.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::changes::Changes;
use super::content::{BadFile, Digest};
use super::document;
use super::file::Stamp;
use super::listen::Listener;
use super::problem::FileProblem;
use crate::api::Object;
use crate::store::quota::Quota;

/// The directories that were read.
#[derive(Debug, Default)]
pub(super) struct FileCache {
    dirs: BTreeMap<PathBuf, DirCache>,
}

/// The last reading of each file of a directory, by its name. Bounded by the files that are there: the others are removed.
#[derive(Debug, Default)]
pub(super) struct DirCache {
    files: BTreeMap<OsString, CachedFile>,
    /// The files that claim to be an object, by its name.
    claims: BTreeMap<String, BTreeSet<OsString>>,
    changes: Changes,
    /// How much of the objects is kept.
    quota: Option<Quota<OsString>>,
    /// Collects the names of files that change, once somebody follows the directory.
    listener: Option<Listener>,
    /// When all files were looked at.
    refreshed_at: Option<Instant>,
}

/// Files to look at.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stale {
    /// All that there are.
    All,
    /// Those of these names, if they are there.
    Named(BTreeSet<OsString>),
}

/// In which state a file was read.
#[derive(Debug, Clone, Copy)]
pub(super) struct FileState {
    pub(super) stamp: Stamp,
    /// Read so soon after its last change that the stamp alone cannot vouch for it.
    pub(super) is_fresh: bool,
    /// The digest of the file's bytes, if these were read.
    pub(super) digest: Option<Digest>,
    /// Whether the bytes are the JSON that we make of the object: [`document::is_own`].
    pub(super) is_own: bool,
}

/// One file's last reading.
#[derive(Debug)]
pub(super) struct CachedFile {
    state: FileState,
    /// What the last reading gave.
    pub(super) outcome: Result<Arc<Object>, BadFile>,
    /// The newest state that could be read, if the last reading failed.
    pub(super) last_good: Option<Arc<Object>>,
    /// The newest complaint that was made about the file, and about which state of it.
    complaint: Option<(Stamp, FileProblem)>,
}

impl CachedFile {
    /// Returns what the file claims to be: by its newest readable state.
    pub(super) fn object(&self) -> Option<&Arc<Object>> {
        self.outcome.as_ref().ok().or(self.last_good.as_ref())
    }

    /// Returns the object of the last reading, if that gave one whose body is kept.
    pub(super) fn whole(&self) -> Option<&Arc<Object>> {
        self.outcome.as_ref().ok().filter(|object| object.withheld.is_none())
    }

    /// Returns `true` if reading the file in this state again gives what its last reading gave: it has the same bytes, and
    /// these hold a whole object that does not take its creation time from the file's.
    fn is_same(&self, state: &FileState) -> bool {
        let (before, now) = (self.state.stamp.modified(), state.stamp.modified());
        let is_independent = |object: &Arc<Object>| {
            before == now || object.metadata.creation_timestamp != Timestamp::from_second(before).ok()
        };
        state.digest.is_some()
            && state.digest == self.state.digest
            && self.whole().is_some_and(is_independent)
    }

    /// Returns the digest of these bytes if they are those of the last reading, and that need not be kept to tell.
    pub(super) fn digest_of(&self, bytes: &[u8]) -> Option<Digest> {
        let object = self.whole().filter(|_| self.state.is_own)?;
        self.state.digest.filter(|_| document::is_own(object, bytes))
    }

    fn object_mut(&mut self) -> Option<&mut Arc<Object>> {
        self.outcome.as_mut().ok().or(self.last_good.as_mut())
    }
}

impl FileCache {
    /// Returns what was read in a directory.
    pub(super) fn dir(&mut self, path: &Path) -> &mut DirCache {
        if !self.dirs.contains_key(path) {
            self.dirs.insert(path.to_owned(), DirCache::default());
        }
        self.dirs.get_mut(path).expect("it is there now")
    }

    /// Returns what is wrong at present, by path.
    pub(super) fn problems(&self) -> Vec<FileProblem> {
        let files = self.dirs.values().flat_map(|dir| dir.files.values());
        files.filter_map(|file| file.complaint.clone()).map(|(_, problem)| problem).collect()
    }
}

impl DirCache {
    /// Returns the file's last reading, if the file has not changed since.
    pub(super) fn unchanged(&self, name: &OsStr, stamp: Stamp) -> Option<&CachedFile> {
        self.files.get(name).filter(|file| file.state.stamp == stamp && !file.state.is_fresh)
    }

    /// Returns a file's last reading.
    pub(super) fn get(&self, name: &OsStr) -> Option<&CachedFile> {
        self.files.get(name)
    }

    /// Returns how many files were read.
    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    /// Returns the files that claim to be an object, by name, so that every reader settles duplicates alike.
    pub(super) fn claims(&self, object: &str) -> impl Iterator<Item = &OsString> {
        self.claims.get(object).into_iter().flatten()
    }

    /// Returns the names of all objects, sorted.
    pub(super) fn objects(&self) -> impl Iterator<Item = &str> {
        self.claims.keys().map(String::as_str)
    }

    /// Returns which objects have changed, and when.
    pub(super) fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Collects the names of files that change with a listener that watches the directory.
    pub(super) fn listen(&mut self, listener: Listener) {
        self.listener = Some(listener);
        // It does not say what was before it.
        self.refreshed_at = None;
    }

    /// Gives whether the names of files that change are collected.
    pub(super) fn is_listening(&self) -> bool {
        self.listener.as_ref().is_some_and(|listener| !listener.is_lost())
    }

    /// Takes the files that are to be looked at: all, unless all were within the last `within`, and it is collected which
    /// have changed since.
    pub(super) fn take_stale(&mut self, now: Instant, within: Duration) -> Stale {
        // Whatever happens from now on is collected for the next time.
        let named = self.listener.as_ref().and_then(Listener::take_names);
        let is_due = self.refreshed_at.is_none_or(|at| now.saturating_duration_since(at) >= within);
        match named {
            Some(named) if !is_due => Stale::Named(named),
            Some(_) | None => Stale::All,
        }
    }

    /// Returns when all files were looked at.
    pub(super) fn refreshed_at(&self) -> Option<Instant> {
        self.refreshed_at
    }

    /// Notes when all files were looked at, or that they have to be; returns when that was before.
    pub(super) fn set_refreshed(&mut self, at: Option<Instant>) -> Option<Instant> {
        std::mem::replace(&mut self.refreshed_at, at)
    }

    /// Takes in that a file is in this state. Returns `true` if it is known what reading it gives.
    pub(super) fn confirm(&mut self, name: &OsStr, state: FileState) -> bool {
        let known = self.files.get_mut(name).filter(|file| file.is_same(&state));
        known.map(|file| file.state = FileState { is_own: file.state.is_own, ..state }).is_some()
    }

    /// Stores a reading. The last good state is kept over bad ones.
    pub(super) fn store(&mut self, name: &OsStr, state: FileState, outcome: Result<Object, BadFile>) {
        let before = self.files.remove(name);
        let was = before.as_ref().and_then(CachedFile::object).cloned();
        let (last_good, complaint) = match before {
            None => (None, None),
            Some(before) => (before.outcome.ok().or(before.last_good), before.complaint),
        };
        // What is the same is shared with those that have it.
        let outcome = outcome.map(|object| match &was {
            Some(was) if **was == object => Arc::clone(was),
            Some(_) | None => Arc::new(object),
        });
        let last_good = if outcome.is_ok() { None } else { last_good };
        let file = CachedFile { state, outcome, last_good, complaint };
        self.change_claim(name, was.as_ref(), file.object());
        self.files.insert(name.to_owned(), file);
        self.count(name);
    }

    /// Removes a file that is not there any more.
    pub(super) fn remove(&mut self, name: &OsStr) {
        let Some(file) = self.files.remove(name) else { return };
        self.change_claim(name, file.object(), None);
        if let Some(quota) = &mut self.quota {
            quota.leave(&name.to_owned());
        }
    }

    /// Takes in that a file claims to be another object, or the same with another content, or none.
    fn change_claim(&mut self, file: &OsStr, was: Option<&Arc<Object>>, is: Option<&Arc<Object>>) {
        if was.is_some_and(|was| is.is_some_and(|is| Arc::ptr_eq(was, is))) {
            return;
        }
        if let Some(was) = was.map(|was| &was.metadata.name) {
            if let Some(files) = self.claims.get_mut(was) {
                files.remove(file);
                if files.is_empty() {
                    self.claims.remove(was);
                }
            }
            self.changes.add(was);
        }
        if let Some(is) = is.map(|is| &is.metadata.name) {
            self.claims.entry(is.clone()).or_default().insert(file.to_owned());
            if was.is_none_or(|was| was.metadata.name != *is) {
                self.changes.add(is);
            }
        }
    }

    /// Counts what is kept of a file against the quota, and drops the bodies of those that are over it.
    fn count(&mut self, name: &OsStr) {
        let Some(object) = self.files.get(name).and_then(CachedFile::object) else { return };
        let quota = self.quota.get_or_insert_with(|| Quota::new(object.kind));
        for (name, reason) in quota.enter(&name.to_owned(), object) {
            if let Some(object) = self.files.get_mut(&name).and_then(CachedFile::object_mut) {
                *object = Arc::new(object.withhold(reason));
                self.changes.add(&object.metadata.name);
            }
        }
    }

    /// Returns, once, the files that were over the quota and are to be read again, as others have gone.
    pub(super) fn take_hopeful(&mut self) -> BTreeSet<OsString> {
        let hopeful = self.quota.as_mut().map(Quota::take_hopeful).unwrap_or_default();
        for name in &hopeful {
            if let Some(file) = self.files.get_mut(name) {
                file.state.is_fresh = true;
            }
        }
        hopeful
    }

    /// Removes the files that are not there any more; `there` is sorted.
    pub(super) fn retain(&mut self, there: &[OsString]) {
        let is_gone = |name: &&OsString| there.binary_search(name).is_err();
        let gone: Vec<OsString> = self.files.keys().filter(is_gone).cloned().collect();
        gone.iter().for_each(|name| self.remove(name));
    }

    /// Notes what is wrong with a file, and logs it unless that was done for this state of the file.
    pub(super) fn complain(&mut self, name: &OsStr, problem: FileProblem) {
        let Some(file) = self.files.get_mut(name) else { return };
        if file.complaint.as_ref().is_some_and(|(stamp, made)| *stamp == file.state.stamp && *made == problem)
        {
            return;
        }
        let kept = if file.last_good.is_some() { "; its last readable state is used" } else { "; ignored" };
        tracing::warn!(file = %problem.path.display(), field = problem.field.as_deref(), "{problem}{kept}");
        file.complaint = Some((file.state.stamp, problem));
    }

    /// Notes that nothing is wrong with a file of this directory.
    pub(super) fn absolve(&mut self, dir: &Path, name: &OsStr) {
        if let Some(file) = self.files.get_mut(name)
            && file.complaint.take().is_some()
        {
            let path = dir.join(name);
            tracing::info!(file = %path.display(), "{}: is in order again", path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use inotify::WatchMask;

    use super::*;

    const WITHIN: Duration = Duration::from_secs(10);

    fn named(names: &[&str]) -> Stale {
        Stale::Named(names.iter().map(OsString::from).collect())
    }

    #[test]
    fn only_files_that_have_changed_are_looked_at_and_from_time_to_time_all() {
        let root = tempfile::tempdir().unwrap();
        let now = Instant::now();
        let mut files = DirCache::default();
        assert_eq!(files.take_stale(now, WITHIN), Stale::All);
        files.set_refreshed(Some(now));
        assert_eq!(files.take_stale(now, WITHIN), Stale::All, "nobody says what changes");

        let listener = Listener::collecting().unwrap();
        assert!(listener.watch(root.path(), WatchMask::CREATE.union(WatchMask::DELETE_SELF)).unwrap());
        files.listen(listener);
        assert!(files.is_listening());
        assert_eq!(files.take_stale(now, WITHIN), Stale::All, "it does not know what was before it");
        files.set_refreshed(Some(now));
        assert_eq!(files.take_stale(now, WITHIN), named(&[]));
        fs::write(root.path().join("a.yaml"), "").unwrap();
        let mut waited = 0;
        let stale = loop {
            match files.take_stale(now, WITHIN) {
                stale if stale == named(&[]) && waited < 2_000 => waited += 1,
                stale => break stale,
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        assert_eq!(stale, named(&["a.yaml"]));
        assert_eq!(files.take_stale(now + WITHIN, WITHIN), Stale::All, "events may be lost");
        files.set_refreshed(None);
        assert_eq!(files.take_stale(now, WITHIN), Stale::All, "the last look failed");
    }
}

//! What was read of each file, so that unchanged files are neither read nor complained about again.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::file::{BadFile, Stamp};
use super::problem::FileProblem;
use crate::api::Object;
use crate::store::quota::Quota;

/// The directories that were read.
#[derive(Debug, Default)]
pub(super) struct FileCache {
    dirs: BTreeMap<PathBuf, DirCache>,
}

/// The last reading of each file of a directory, by its name. Bounded by the files that are there: [`DirCache::retain`]
/// forgets the others.
#[derive(Debug, Default)]
pub(super) struct DirCache {
    files: BTreeMap<OsString, CachedFile>,
    /// How much of the objects is kept.
    quota: Option<Quota<OsString>>,
}

/// One file's last reading.
#[derive(Debug)]
pub(super) struct CachedFile {
    pub(super) stamp: Stamp,
    /// Read so soon after its last change that the stamp alone cannot vouch for it.
    pub(super) is_fresh: bool,
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

    /// What is wrong at present, by path.
    pub(super) fn problems(&self) -> Vec<FileProblem> {
        let files = self.dirs.values().flat_map(|dir| dir.files.values());
        files.filter_map(|file| file.complaint.clone()).map(|(_, problem)| problem).collect()
    }
}

impl DirCache {
    /// The file's last reading, if the file has not changed since.
    pub(super) fn unchanged(&self, name: &OsStr, stamp: Stamp) -> Option<&CachedFile> {
        self.files.get(name).filter(|file| file.stamp == stamp && !file.is_fresh)
    }

    pub(super) fn get(&self, name: &OsStr) -> Option<&CachedFile> {
        self.files.get(name)
    }

    /// Stores a reading. The last good state is kept over bad ones.
    pub(super) fn store(
        &mut self,
        name: &OsStr,
        stamp: Stamp,
        is_fresh: bool,
        outcome: Result<Object, BadFile>,
    ) {
        let before = self.files.remove(name);
        let (last_good, complaint) = match before {
            None => (None, None),
            Some(before) => (before.outcome.ok().or(before.last_good), before.complaint),
        };
        let outcome = outcome.map(Arc::new);
        let last_good = if outcome.is_ok() { None } else { last_good };
        self.files.insert(name.to_owned(), CachedFile { stamp, is_fresh, outcome, last_good, complaint });
        self.count(name);
    }

    /// Counts what is kept of a file against the quota, and drops the bodies of those that are over it.
    fn count(&mut self, name: &OsStr) {
        let Some(object) = self.files.get(name).and_then(CachedFile::object) else { return };
        let quota = self.quota.get_or_insert_with(|| Quota::new(object.kind));
        for (name, reason) in quota.enter(&name.to_owned(), object) {
            if let Some(object) = self.files.get_mut(&name).and_then(CachedFile::object_mut) {
                *object = Arc::new(object.withhold(reason));
            }
        }
    }

    /// Returns, once, the files that were over the quota and are to be read again, as others have gone.
    pub(super) fn take_hopeful(&mut self) -> BTreeSet<OsString> {
        let hopeful = self.quota.as_mut().map(Quota::take_hopeful).unwrap_or_default();
        for name in &hopeful {
            if let Some(file) = self.files.get_mut(name) {
                file.is_fresh = true;
            }
        }
        hopeful
    }

    /// Forgets the files that are not there any more; `there` is sorted.
    pub(super) fn retain(&mut self, there: &[OsString]) {
        let quota = &mut self.quota;
        self.files.retain(|name, _| {
            let is_kept = there.binary_search(name).is_ok();
            if let Some(quota) = quota.as_mut().filter(|_| !is_kept) {
                quota.leave(name);
            }
            is_kept
        });
    }

    /// Notes what is wrong with a file, and logs it unless that was done for this state of the file.
    pub(super) fn complain(&mut self, name: &OsStr, problem: FileProblem) {
        let Some(file) = self.files.get_mut(name) else { return };
        if file.complaint.as_ref().is_some_and(|(stamp, made)| *stamp == file.stamp && *made == problem) {
            return;
        }
        let kept = if file.last_good.is_some() { "; its last readable state is used" } else { "; ignored" };
        tracing::warn!(file = %problem.path.display(), field = problem.field.as_deref(), "{problem}{kept}");
        file.complaint = Some((file.stamp, problem));
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

//! What was read of each file, so that unchanged files are neither read nor complained about again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::file::{BadFile, Stamp};
use super::problem::FileProblem;
use crate::api::Object;
use crate::store::quota::{Quota, has_quota};

/// Per path, its last reading. Bounded by the files that are there: [`FileCache::retain_dir`] forgets the others.
#[derive(Debug, Default)]
pub(super) struct FileCache {
    files: BTreeMap<PathBuf, CachedFile>,
    /// How much of what members write is kept, per directory of a kind that has a quota.
    quotas: BTreeMap<PathBuf, Quota<PathBuf>>,
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
    /// The file's last reading, if the file has not changed since.
    pub(super) fn unchanged(&self, path: &Path, stamp: Stamp) -> Option<&CachedFile> {
        self.files.get(path).filter(|file| file.stamp == stamp && !file.is_fresh)
    }

    pub(super) fn get(&self, path: &Path) -> Option<&CachedFile> {
        self.files.get(path)
    }

    /// Stores a reading. The last good state is kept over bad ones.
    pub(super) fn store(
        &mut self,
        path: &Path,
        stamp: Stamp,
        is_fresh: bool,
        outcome: Result<Object, BadFile>,
    ) {
        let before = self.files.remove(path);
        let (last_good, complaint) = match before {
            None => (None, None),
            Some(before) => (before.outcome.ok().or(before.last_good), before.complaint),
        };
        let outcome = outcome.map(Arc::new);
        let last_good = if outcome.is_ok() { None } else { last_good };
        self.files.insert(path.to_owned(), CachedFile { stamp, is_fresh, outcome, last_good, complaint });
        self.count(path);
    }

    /// Counts what is kept of a file against the quota, and drops the bodies of those that are over it.
    fn count(&mut self, path: &Path) {
        let Some(object) = self.files.get(path).and_then(CachedFile::object) else { return };
        let Some(dir) = path.parent().filter(|_| has_quota(object.kind)) else { return };
        let quota = self.quotas.entry(dir.to_owned()).or_insert_with(Quota::new);
        for (path, reason) in quota.enter(&path.to_owned(), object) {
            if let Some(object) = self.files.get_mut(&path).and_then(CachedFile::object_mut) {
                *object = Arc::new(object.withhold(reason));
            }
        }
    }

    /// Returns, once, the files of a directory that were over the quota and are to be read again, as others have gone.
    pub(super) fn take_hopeful(&mut self, dir: &Path) -> BTreeSet<PathBuf> {
        let hopeful = self.quotas.get_mut(dir).map(Quota::take_hopeful).unwrap_or_default();
        for path in &hopeful {
            if let Some(file) = self.files.get_mut(path) {
                file.is_fresh = true;
            }
        }
        hopeful
    }

    /// Forgets the files of a directory that are not there any more.
    pub(super) fn retain_dir(&mut self, dir: &Path, is_there: impl Fn(&Path) -> bool) {
        let mut quota = self.quotas.get_mut(dir);
        self.files.retain(|path, _| {
            let is_kept = path.parent() != Some(dir) || is_there(path);
            if let Some(quota) = quota.as_mut().filter(|_| !is_kept) {
                quota.leave(path);
            }
            is_kept
        });
    }

    /// Notes what is wrong with a file, and logs it unless that was done for this state of the file.
    pub(super) fn complain(&mut self, problem: FileProblem) {
        let Some(file) = self.files.get_mut(&problem.path) else { return };
        if file.complaint.as_ref().is_some_and(|(stamp, made)| *stamp == file.stamp && *made == problem) {
            return;
        }
        let kept = if file.last_good.is_some() { "; its last readable state is used" } else { "; ignored" };
        tracing::warn!(file = %problem.path.display(), field = problem.field.as_deref(), "{problem}{kept}");
        file.complaint = Some((file.stamp, problem));
    }

    /// Notes that nothing is wrong with a file.
    pub(super) fn absolve(&mut self, path: &Path) {
        if let Some(file) = self.files.get_mut(path)
            && file.complaint.take().is_some()
        {
            tracing::info!(file = %path.display(), "{}: is in order again", path.display());
        }
    }

    /// What is wrong at present, by path.
    pub(super) fn problems(&self) -> Vec<FileProblem> {
        self.files.values().filter_map(|file| file.complaint.clone()).map(|(_, problem)| problem).collect()
    }
}

//! What was read of each file, so that unchanged files are neither read nor complained about again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::file::{BadFile, Stamp};
use super::problem::FileProblem;
use crate::api::Object;

/// Per path, its last reading. Bounded by the files that are there: [`FileCache::retain_dir`] forgets the others.
#[derive(Debug, Default)]
pub(super) struct FileCache {
    files: BTreeMap<PathBuf, CachedFile>,
}

/// One file's last reading.
#[derive(Debug)]
pub(super) struct CachedFile {
    pub(super) stamp: Stamp,
    /// Read so soon after its last change that the stamp alone cannot vouch for it.
    pub(super) is_fresh: bool,
    /// What the last reading gave.
    pub(super) outcome: Result<Object, BadFile>,
    /// The newest state that could be read, if the last reading failed.
    pub(super) last_good: Option<Object>,
    /// The newest complaint that was made about the file, and about which state of it.
    complaint: Option<(Stamp, FileProblem)>,
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
        let last_good = if outcome.is_ok() { None } else { last_good };
        self.files.insert(path.to_owned(), CachedFile { stamp, is_fresh, outcome, last_good, complaint });
    }

    /// Forgets the files of a directory that are not there any more.
    pub(super) fn retain_dir(&mut self, dir: &Path, is_there: impl Fn(&Path) -> bool) {
        self.files.retain(|path, _| path.parent() != Some(dir) || is_there(path));
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

//! Reading a directory: which objects there are, and which file each of them lives in.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;

use super::cache::{DirCache, FileCache};
use super::file::{self, BadFile, Stamp};
use super::layout::{ASIDE_MARK, KindDir, TEMP_PREFIX, too_many, unavailable};
use super::problem::FileProblem;
use crate::api::Object;
use crate::store::StoreError;
use crate::store::limits::MAX_OBJECTS;

/// Most files of writers that did not finish which are found at a time. Ours: each writer leaves one, if any.
const MAX_LEFTOVERS: usize = 1_000;

/// A directory's contents.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// Every object, by name.
    pub(super) objects: BTreeMap<String, Claim>,
    /// Files of writers that did not finish.
    pub(super) leftovers: Vec<PathBuf>,
}

/// An object and the files that claim to be it.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) object: Arc<Object>,
    /// The file that was believed.
    pub(super) file: ClaimFile,
    /// Other files that claim the same object.
    pub(super) duplicates: Vec<ClaimFile>,
}

/// A file that claims to be an object.
#[derive(Debug)]
pub(super) struct ClaimFile {
    pub(super) path: PathBuf,
    /// Whether it cannot be read at present, and the claim is what it last said.
    pub(super) is_stale: bool,
}

/// Reads a directory. Bad files are noted in the cache and left out; a directory that is not there has no objects.
///
/// # Errors
/// [`StoreError::Unavailable`] when the root is missing or the directory cannot be read.
pub(super) fn scan(dir: &KindDir, cache: &mut FileCache) -> Result<Scan, StoreError> {
    let mut scan = Scan::default();
    let names = if dir.exists()? { files_of(dir, &mut scan)? } else { Vec::new() };
    let files = cache.dir(&dir.path);
    files.retain(&names);
    for name in &names {
        refresh(name, dir, files);
    }
    for name in files.take_hopeful() {
        refresh(&name, dir, files);
    }
    let mut claims: BTreeMap<String, Vec<(OsString, Arc<Object>)>> = BTreeMap::new();
    for name in names {
        match claim_of(&name, files) {
            Some(object) => claims.entry(object.metadata.name.clone()).or_default().push((name, object)),
            None => judge(&name, None, dir, files),
        }
    }
    // Had the root gone away meanwhile, what is missing would look deleted.
    dir.check_root()?;
    scan.objects =
        claims.into_iter().map(|(name, claims)| (name.clone(), settle(&name, claims, dir, files))).collect();
    Ok(scan)
}

/// Takes in a file that we have just written.
pub(super) fn take_in(path: &Path, dir: &KindDir, cache: &mut FileCache) {
    let Some(name) = path.file_name() else { return };
    let files = cache.dir(&dir.path);
    refresh(name, dir, files);
    judge(name, None, dir, files);
}

/// The names of the directory's files that are meant as objects, sorted, so that every reader settles duplicates alike.
fn files_of(dir: &KindDir, scan: &mut Scan) -> Result<Vec<OsString>, StoreError> {
    let failed = |source| unavailable("read directory", &dir.path, source);
    let mut names = Vec::new();
    for entry in fs::read_dir(&dir.path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let file = entry.file_name();
        match file.to_str() {
            Some(name) if name.starts_with(TEMP_PREFIX) => {
                // Others are found when these are gone.
                if scan.leftovers.len() < MAX_LEFTOVERS {
                    scan.leftovers.push(entry.path());
                }
            }
            Some(name) if is_editors_or_ours(name) => {}
            Some(_) | None => names.push(file),
        }
        if names.len() > MAX_OBJECTS {
            return Err(failed(too_many("files")));
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Hidden files, editors' backups, and what was set aside: no news to anyone.
fn is_editors_or_ours(name: &str) -> bool {
    name.starts_with('.') || name.starts_with('#') || name.ends_with('~') || name.contains(ASIDE_MARK)
}

/// Brings the cache's entry for this file up to date.
fn refresh(name: &OsStr, dir: &KindDir, files: &mut DirCache) {
    let path = &dir.path.join(name);
    let Ok(found) = fs::symlink_metadata(path) else { return };
    let stamp = Stamp::of(&found);
    if files.unchanged(name, stamp).is_some() {
        return;
    }
    let now = Timestamp::now();
    let (stamp, outcome) = if !is_yaml(path) {
        (stamp, Err(BadFile::whole("is not a YAML file (NAME.yaml)")))
    } else if found.is_symlink() {
        (stamp, Err(BadFile::whole("is a symbolic link, which is not followed")))
    } else if !found.is_file() {
        (stamp, Err(BadFile::whole("is not a regular file")))
    } else {
        match file::read(path, dir) {
            Ok(reading) => reading,
            // It went away since it was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return;
            }
            Err(error) => (stamp, Err(BadFile::whole(format!("cannot be read: {error}")))),
        }
    };
    files.store(name, stamp, stamp.is_fresh(now), outcome);
}

fn is_yaml(path: &Path) -> bool {
    matches!(path.extension().and_then(OsStr::to_str), Some("yaml" | "yml"))
}

/// What a file claims to be: by its newest readable state.
fn claim_of(name: &OsStr, files: &DirCache) -> Option<Arc<Object>> {
    files.get(name)?.object().cloned()
}

/// Of several files that claim one object the one named after it is believed, or else the first.
fn settle(
    name: &str,
    mut claims: Vec<(OsString, Arc<Object>)>,
    dir: &KindDir,
    files: &mut DirCache,
) -> Claim {
    let winner = if claims.len() == 1 {
        0
    } else {
        let canonical = dir.file_of(name);
        let is_canonical =
            |(file, _): &(OsString, Arc<Object>)| Some(file.as_os_str()) == canonical.file_name();
        claims.iter().position(is_canonical).unwrap_or(0)
    };
    let (winner, object) = claims.remove(winner);
    judge(&winner, None, dir, files);
    for (duplicate, _) in &claims {
        let reason = format!("is `{name}`, which {} already is", dir.path.join(&winner).display());
        let bad = BadFile { field: Some("metadata.name".to_owned()), reason };
        judge(duplicate, Some(bad), dir, files);
    }
    let file = |name: OsString| {
        let is_stale = files.get(&name).is_some_and(|file| file.outcome.is_err());
        ClaimFile { path: dir.path.join(name), is_stale }
    };
    Claim { object, file: file(winner), duplicates: claims.into_iter().map(|(name, _)| file(name)).collect() }
}

/// Complains of a file once, or takes the complaint back. A file's own fault counts before `other`.
fn judge(name: &OsStr, other: Option<BadFile>, dir: &KindDir, files: &mut DirCache) {
    let own = files.get(name).and_then(|file| file.outcome.as_ref().err().cloned());
    match own.or(other) {
        Some(bad) => {
            let path = dir.path.join(name);
            files.complain(name, FileProblem { path, field: bad.field, reason: bad.reason });
        }
        None => files.absolve(&dir.path, name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Kind;
    use crate::store::logged::Logged;

    #[test]
    fn a_bad_file_is_logged_once_per_change_with_file_and_field_and_once_more_when_it_is_repaired() {
        let root = tempfile::tempdir().unwrap();
        let dir = KindDir::new(root.path(), Kind::Cluster, "ns").unwrap();
        dir.make().unwrap();
        let path = dir.path.join("bad.yaml");
        let mut cache = FileCache::default();
        let mut lines_after = |text: &str| {
            fs::write(&path, text).unwrap();
            logged(|| (0..3).for_each(|_| drop(scan(&dir, &mut cache).unwrap())))
        };

        let first = lines_after("apiVersion: submariner.io/v1\nkind: Pod\n");
        assert_eq!(first.lines().count(), 1, "{first}");
        assert!(first.contains("WARN") && first.contains("bad.yaml: field `kind`: is `Pod`"), "{first}");
        let second = lines_after("apiVersion: submariner.io/v1\nkind: Service\n");
        assert_eq!(second.lines().count(), 1, "{second}");
        assert_eq!(logged(|| drop(scan(&dir, &mut FileCache::default()).unwrap())).lines().count(), 1);
        let good = "apiVersion: submariner.io/v1\nkind: Cluster\nmetadata: {name: a}\nspec: {cluster_id: a, \
                    service_cidr: [], cluster_cidr: [], global_cidr: []}\n";
        let third = lines_after(good);
        assert!(third.lines().count() == 1 && third.contains("is in order again"), "{third}");
        assert_eq!(lines_after(&format!("{good}# comment\n")), "");
    }

    /// What is logged on this thread meanwhile.
    fn logged(work: impl FnOnce()) -> String {
        let logged = Logged::begin(tracing::Level::INFO);
        work();
        logged.text()
    }
}

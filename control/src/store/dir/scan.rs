//! Reading a directory: which objects there are, and which file each of them lives in.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::cache::{CachedFile, DirCache, FileState, Stale};
use super::content::{BadFile, Content, Digest};
use super::document::{is_own, most_bytes, parse};
use super::errors::{too_many, unavailable};
use super::file::{self, Stamp};
use super::layout::KindDir;
use super::names::{ASIDE_MARK, TEMP_PREFIX};
use super::problem::FileProblem;
use crate::api::Object;
use crate::store::StoreError;
use crate::store::limits::MAX_OBJECTS;
use crate::timer::clock;

/// Most files of writers that did not finish which are found at a time. Ours: each writer leaves one, if any.
const MAX_LEFTOVERS: usize = 1_000;

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

/// Brings the cache of a directory up to date: with the files that the kernel has named, or with all of them where it cannot
/// say which have changed, and when all were last looked at longer ago than `within`. Bad files are noted in the cache and
/// left out; a directory that is not there has no objects.
///
/// Returns the files of writers that did not finish, which only a look at all files finds.
///
/// # Errors
/// [`StoreError::Unavailable`] when the root is missing or the directory cannot be read.
pub(super) fn refresh(
    dir: &KindDir,
    files: &mut DirCache,
    within: Duration,
) -> Result<Vec<PathBuf>, StoreError> {
    let now = clock();
    let stale = files.take_stale(now, within);
    let refreshed_at = files.set_refreshed(None);
    let outcome = match &stale {
        Stale::Named(names) if dir.exists()? => refresh_named(names, dir, files),
        Stale::Named(_) | Stale::All => refresh_all(dir, files),
    };
    // Had the root gone away meanwhile, what is missing would look deleted.
    let leftovers = outcome.and_then(|leftovers| dir.check_root().map(|()| leftovers))?;
    files.set_refreshed(if matches!(stale, Stale::All) { Some(now) } else { refreshed_at });
    Ok(leftovers)
}

fn refresh_all(dir: &KindDir, files: &mut DirCache) -> Result<Vec<PathBuf>, StoreError> {
    let (names, leftovers) = if dir.exists()? { names_of(dir)? } else { Default::default() };
    let next = files.changes().next();
    files.retain(&names);
    read_all(names.iter(), next, dir, files);
    Ok(leftovers)
}

fn refresh_named(
    names: &BTreeSet<OsString>,
    dir: &KindDir,
    files: &mut DirCache,
) -> Result<Vec<PathBuf>, StoreError> {
    let next = files.changes().next();
    read_all(names.iter().filter(|name| is_meant(name)), next, dir, files);
    if files.len() > MAX_OBJECTS {
        return Err(unavailable("read directory", &dir.path, too_many("files")));
    }
    Ok(Vec::new())
}

/// Reads those of these files that have changed, and says what is wrong with what they and all changes since `next` claim.
fn read_all<'a>(names: impl Iterator<Item = &'a OsString>, next: u64, dir: &KindDir, files: &mut DirCache) {
    let read = names.filter(|name| read_file(name, dir, files)).cloned().collect();
    take_changes(read, next, dir, files);
}

/// Says what is wrong with the files that were read, and with what all changes since `next` claim.
fn take_changes(mut read: BTreeSet<OsString>, next: u64, dir: &KindDir, files: &mut DirCache) {
    let hopeful = files.take_hopeful();
    read.extend(hopeful.into_iter().filter(|name| read_file(name, dir, files)));
    let changed = match files.changes().since(next) {
        Some(changed) => changed.map(str::to_owned).collect(),
        None => files.objects().map(str::to_owned).collect(),
    };
    complain(read, changed, dir, files);
}

/// Says what is wrong with these files, and with all that claim to be one of these objects.
fn complain(read: BTreeSet<OsString>, mut objects: BTreeSet<String>, dir: &KindDir, files: &mut DirCache) {
    for name in read {
        match files.get(&name).and_then(|file| file.object()) {
            Some(object) => drop(objects.insert(object.metadata.name.clone())),
            None => complain_or_absolve(&name, None, dir, files),
        }
    }
    for object in objects {
        settle(&object, dir, files);
    }
}

/// Returns an object and its files as they are now. The cache of the directory was brought up to date for all others.
pub(super) fn find(object: &str, dir: &KindDir, files: &mut DirCache) -> Option<Claim> {
    let next = files.changes().next();
    let mut names: BTreeSet<OsString> = files.claims(object).cloned().collect();
    names.extend(dir.file_of(object).file_name().map(OsStr::to_owned));
    read_all(names.iter(), next, dir, files);
    settle(object, dir, files)
}

/// A file that has just been given its name.
#[derive(Debug)]
pub(super) struct Written {
    /// The object, in the version that the file is.
    pub(super) object: Object,
    pub(super) digest: Digest,
    /// The stamp that the file had before.
    pub(super) before: Stamp,
    /// Whether the object is exactly what is read from the file.
    pub(super) is_exact: bool,
}

/// Takes in a file that we have just written. It is not read, unless somebody has changed it meanwhile.
pub(super) fn take_written(path: &Path, written: &Written, dir: &KindDir, files: &mut DirCache) {
    let found = fs::symlink_metadata(path).ok().map(|found| Stamp::of(&found));
    let ours = found.filter(|stamp| written.is_exact && stamp.is_renamed(&written.before));
    let (Some(name), Some(stamp)) = (path.file_name(), ours) else {
        return take_in(path, dir, files);
    };
    let next = files.changes().next();
    // Bytes that are changed in place at once may leave the stamp as it is: a young file is read again, if not parsed.
    let is_fresh = stamp.is_fresh(Timestamp::now());
    // It is JSON if it is as long as that, as it is exactly what is read.
    let state = FileState { stamp, is_fresh, digest: Some(written.digest), is_own: true };
    files.store(name, state, Ok(written.object.clone()));
    take_changes([name.to_owned()].into(), next, dir, files);
}

/// Takes in a file as it is.
fn take_in(path: &Path, dir: &KindDir, files: &mut DirCache) {
    let Some(name) = path.file_name() else { return };
    let next = files.changes().next();
    read_all([name.to_owned()].iter(), next, dir, files);
}

/// Returns whether a file claims to be an object, as it is now.
pub(super) fn is_claim(path: &Path, dir: &KindDir, files: &mut DirCache) -> bool {
    let Some(name) = path.file_name() else { return false };
    take_in(path, dir, files);
    files.get(name).is_some_and(|file| file.object().is_some())
}

/// Returns the names of the directory's files that are meant as objects, sorted, and the files of writers that did not finish.
fn names_of(dir: &KindDir) -> Result<(Vec<OsString>, Vec<PathBuf>), StoreError> {
    let failed = |source| unavailable("read directory", &dir.path, source);
    let (mut names, mut leftovers) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(&dir.path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        if is_meant(&name) {
            names.push(name);
        // Others are found when these are gone.
        } else if name.as_bytes().starts_with(TEMP_PREFIX.as_bytes()) && leftovers.len() < MAX_LEFTOVERS {
            leftovers.push(entry.path());
        }
        if names.len() > MAX_OBJECTS {
            return Err(failed(too_many("files")));
        }
    }
    names.sort_unstable();
    Ok((names, leftovers))
}

/// Returns whether a file is meant as an object: not if it is hidden, an editor's backup, or was set aside.
fn is_meant(name: &OsStr) -> bool {
    let is_other = |name: &str| {
        name.starts_with('.') || name.starts_with('#') || name.ends_with('~') || name.contains(ASIDE_MARK)
    };
    !name.to_str().is_some_and(is_other)
}

/// Brings the cache's entry for a file up to date; gives whether the file was read.
fn read_file(name: &OsStr, dir: &KindDir, files: &mut DirCache) -> bool {
    let path = &dir.path.join(name);
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) => {
            if error.kind() == io::ErrorKind::NotFound {
                files.remove(name);
            }
            return false;
        }
    };
    if files.unchanged(name, Stamp::of(&found)).is_some() {
        return false;
    }
    let now = Timestamp::now();
    let known = |bytes: &[u8]| files.get(name).and_then(|file| file.digest_of(bytes));
    let Some((stamp, content)) = read_content(path, &found, dir, known) else {
        // It went away since it was found.
        files.remove(name);
        return false;
    };
    let digest = content.as_ref().ok().map(|content| content.digest);
    let mut state = FileState { stamp, is_fresh: stamp.is_fresh(now), digest, is_own: false };
    if !files.confirm(name, state) {
        let known = files.get(name).and_then(CachedFile::whole);
        let outcome = content.and_then(|content| {
            let object = parse(&content, dir, stamp.modified(), known.map(|object| &**object))?;
            state.is_own = is_own(&object, &content.bytes);
            Ok(object)
        });
        files.store(name, state, outcome);
    }
    true
}

/// Reads a file that was found; `None` if it is not there any more.
fn read_content(
    path: &Path,
    found: &Metadata,
    dir: &KindDir,
    known: impl FnOnce(&[u8]) -> Option<Digest>,
) -> Option<(Stamp, Result<Content, BadFile>)> {
    let bad = |reason: String| Some((Stamp::of(found), Err(BadFile::whole(reason))));
    if !is_yaml(path) {
        return bad("is not a YAML file (NAME.yaml)".to_owned());
    }
    if found.is_symlink() {
        return bad("is a symbolic link, which is not followed".to_owned());
    }
    if !found.is_file() {
        return bad("is not a regular file".to_owned());
    }
    match file::read(path, most_bytes(dir.kind), known) {
        Ok(reading) => Some(reading),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => bad(format!("cannot be read: {error}")),
    }
}

fn is_yaml(path: &Path) -> bool {
    matches!(path.extension().and_then(OsStr::to_str), Some("yaml" | "yml"))
}

/// Returns the file that is believed of several that claim one object: the one named after it, or else the first.
fn believed<'a>(object: &str, dir: &KindDir, files: &'a DirCache) -> Option<&'a OsString> {
    let canonical = dir.file_of(object);
    let mut claims = files.claims(object);
    let first = claims.next()?;
    let is_canonical = |name: &&OsString| Some(name.as_os_str()) == canonical.file_name();
    Some(std::iter::once(first).chain(claims).find(is_canonical).unwrap_or(first))
}

/// Returns all objects as the cache has them, by name.
pub(super) fn objects(dir: &KindDir, files: &DirCache) -> impl Iterator<Item = Arc<Object>> {
    files.objects().filter_map(|name| object(name, dir, files))
}

/// Returns an object as the cache has it.
pub(super) fn object(name: &str, dir: &KindDir, files: &DirCache) -> Option<Arc<Object>> {
    files.get(believed(name, dir, files)?)?.object().cloned()
}

/// Settles which file is an object, and complains of the others.
fn settle(object: &str, dir: &KindDir, files: &mut DirCache) -> Option<Claim> {
    let winner = believed(object, dir, files)?.clone();
    let duplicates: Vec<OsString> = files.claims(object).filter(|name| **name != winner).cloned().collect();
    complain_or_absolve(&winner, None, dir, files);
    for duplicate in &duplicates {
        let reason = format!("is `{object}`, which {} already is", dir.path.join(&winner).display());
        let bad = BadFile { field: Some("metadata.name".to_owned()), reason };
        complain_or_absolve(duplicate, Some(bad), dir, files);
    }
    let file = |name: OsString| {
        let is_stale = files.get(&name).is_some_and(|file| file.outcome.is_err());
        ClaimFile { path: dir.path.join(name), is_stale }
    };
    let object = files.get(&winner)?.object().cloned()?;
    Some(Claim { object, file: file(winner), duplicates: duplicates.into_iter().map(file).collect() })
}

/// Complains of a file once, or takes the complaint back. A file's own fault counts before `other`.
fn complain_or_absolve(name: &OsStr, other: Option<BadFile>, dir: &KindDir, files: &mut DirCache) {
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
        let mut cache = DirCache::default();
        let mut lines_after = |text: &str| {
            fs::write(&path, text).unwrap();
            logged(|| (0..3).for_each(|_| drop(refresh(&dir, &mut cache, Duration::ZERO).unwrap())))
        };

        let first = lines_after("apiVersion: submariner.io/v1\nkind: Pod\n");
        assert_eq!(first.lines().count(), 1, "{first}");
        assert!(first.contains("WARN") && first.contains("bad.yaml: field `kind`: is `Pod`"), "{first}");
        let second = lines_after("apiVersion: submariner.io/v1\nkind: Service\n");
        assert_eq!(second.lines().count(), 1, "{second}");
        assert_eq!(
            logged(|| drop(refresh(&dir, &mut DirCache::default(), Duration::ZERO).unwrap())).lines().count(),
            1
        );
        let good = "apiVersion: submariner.io/v1\nkind: Cluster\nmetadata: {name: a}\nspec: {cluster_id: a, \
                    service_cidr: [], cluster_cidr: [], global_cidr: []}\n";
        let third = lines_after(good);
        assert!(third.lines().count() == 1 && third.contains("is in order again"), "{third}");
        assert_eq!(lines_after(&format!("{good}# comment\n")), "");
    }

    /// Returns what is logged on this thread meanwhile.
    fn logged(work: impl FnOnce()) -> String {
        let logged = Logged::begin(tracing::Level::INFO);
        work();
        logged.text()
    }
}

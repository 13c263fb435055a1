//! What a lab has made, on disk: a run that crashes cannot tidy up, so the next one does.
//!
//! Each lab has a record `/run/trieste-lab/ID.json` and holds a lock on `ID.lock` while it lives. A record whose
//! lock is free belongs to a lab that crashed, or to one that was kept on purpose. Names go into the record before
//! the thing exists, processes right after; whatever slipped through lives in one of the lab's namespaces, and is
//! found there.

use std::fs::{File, TryLockError};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::command::Run;
use crate::process::ProcessId;

/// Where records live: memory, so that a reboot forgets what it has ended anyway.
const DIRECTORY: &str = "/run/trieste-lab";

/// How long a process may take to end by itself.
const GRACE: Duration = Duration::from_secs(3);

/// Everything that a lab has to remove.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// The lab's name, a prefix of everything it makes.
    pub id: String,
    /// Left up on purpose: only `trieste-lab clean` removes it.
    pub kept: bool,
    /// Its files.
    pub directory: PathBuf,
    /// Names of its network namespaces.
    pub namespaces: Vec<String>,
    /// Its processes.
    pub processes: Vec<ProcessId>,
    /// Files outside of its directory, such as control sockets of foreign programs.
    pub files: Vec<PathBuf>,
    /// Its control groups; those in them go too.
    #[serde(default)]
    pub groups: Vec<PathBuf>,
}

/// What was removed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Removed {
    /// Processes that still ran.
    pub processes: usize,
    /// Namespaces that still existed.
    pub namespaces: usize,
}

/// A record that this process holds the lock of.
#[derive(Debug)]
pub struct Claim {
    record: Record,
    folder: PathBuf,
    _lock: File,
}

impl Claim {
    /// Starts the record of a new lab.
    ///
    /// # Errors
    /// If `/run/trieste-lab` cannot be written or the name is taken.
    pub fn new(id: &str, directory: &Path) -> anyhow::Result<Self> {
        let folder = PathBuf::from(DIRECTORY);
        std::fs::create_dir_all(&folder).with_context(|| format!("making {DIRECTORY}"))?;
        let lock = try_lock(&folder, id)?.with_context(|| format!("a lab called {id} is running"))?;
        let record = Record {
            id: id.to_owned(),
            kept: false,
            directory: directory.to_owned(),
            namespaces: Vec::new(),
            processes: Vec::new(),
            files: Vec::new(),
            groups: Vec::new(),
        };
        let claim = Self { record, folder, _lock: lock };
        claim.save()?;
        Ok(claim)
    }

    /// Changes the record and writes it.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn change(&mut self, change: impl FnOnce(&mut Record)) -> anyhow::Result<()> {
        change(&mut self.record);
        self.save()
    }

    /// The record as it stands.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Removes everything in the record, and then the record.
    ///
    /// # Errors
    /// If a namespace or the record cannot be removed; the rest has been.
    pub fn remove(self) -> anyhow::Result<Removed> {
        let removed = remove_all(&self.record)?;
        std::fs::remove_file(path_of(&self.folder, &self.record.id))?;
        std::fs::remove_file(lock_of(&self.folder, &self.record.id))?;
        Ok(removed)
    }

    /// Half a record is worse than an old one: written aside, then moved into place.
    fn save(&self) -> anyhow::Result<()> {
        let path = path_of(&self.folder, &self.record.id);
        let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
        file.write_all(&serde_json::to_vec_pretty(&self.record)?)?;
        file.persist(&path).with_context(|| format!("writing {}", path.display()))?;
        Ok(())
    }
}

/// The labs that nobody holds: crashed ones and kept ones.
///
/// # Errors
/// If the records cannot be listed. A record that cannot be read is reported on standard error and left alone.
pub fn abandoned() -> anyhow::Result<Vec<Claim>> {
    let folder = PathBuf::from(DIRECTORY);
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("listing {DIRECTORY}")),
    };
    let mut claims = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let Some(id) = name.strip_suffix(".json") else { continue };
        let Some(lock) = try_lock(&folder, id)? else { continue };
        match read(&path) {
            Ok(Some(record)) => claims.push(Claim { record, folder: folder.clone(), _lock: lock }),
            Ok(None) => {}
            Err(error) => eprintln!("{}: {error:#}", path.display()),
        }
    }
    claims.sort_by(|a, b| a.record.id.cmp(&b.record.id));
    Ok(claims)
}

/// `None` if the owner removed it between our listing and our lock.
fn read(path: &Path) -> anyhow::Result<Option<Record>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn path_of(folder: &Path, id: &str) -> PathBuf {
    folder.join(format!("{id}.json"))
}

fn lock_of(folder: &Path, id: &str) -> PathBuf {
    folder.join(format!("{id}.lock"))
}

fn try_lock(folder: &Path, id: &str) -> anyhow::Result<Option<File>> {
    let path = lock_of(folder, id);
    let file = File::options()
        .create(true)
        .write(true)
        .truncate(false)
        .open(&path)
        .with_context(|| format!("opening {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("locking {}", path.display())),
    }
}

/// Processes first, all asked at once; then whatever else lives in the namespaces; then the rest.
fn remove_all(record: &Record) -> anyhow::Result<Removed> {
    let mut removed = Removed { processes: end_all(&record.processes), namespaces: 0 };
    for name in &record.namespaces {
        removed.processes += end_all(&inhabitants(name));
    }
    let mut failure = None;
    for name in record.namespaces.iter().filter(|name| namespace_path(name).exists()) {
        match Run::new("ip").args(["netns", "del", name]).finish() {
            Ok(()) => removed.namespaces += 1,
            Err(error) => failure = Some(error),
        }
    }
    for group in &record.groups {
        if let Err(error) = remove_group(group) {
            failure = Some(error);
        }
    }
    for file in &record.files {
        let _ = std::fs::remove_file(file);
    }
    let _ = std::fs::remove_dir_all(&record.directory);
    failure.map_or(Ok(removed), Err)
}

/// Removes a control group and those below it, which nobody is in any more; the kernel may need a moment to notice.
pub(crate) fn remove_group(folder: &Path) -> anyhow::Result<()> {
    let end = Instant::now() + GRACE;
    loop {
        remove_groups_below(folder);
        match std::fs::remove_dir(folder) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) if Instant::now() >= end => {
                return Err(error).with_context(|| format!("removing control group {}", folder.display()));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn remove_groups_below(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let folders =
        entries.filter_map(Result::ok).filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    for path in folders.map(|entry| entry.path()) {
        remove_groups_below(&path);
        // One that cannot go yet keeps its parent, and that is tried again.
        let _ = std::fs::remove_dir(path);
    }
}

fn end_all(processes: &[ProcessId]) -> usize {
    let running: Vec<_> = processes.iter().filter(|process| process.is_running()).collect();
    for process in &running {
        let _ = process.signal(nix::sys::signal::Signal::SIGTERM);
        // A stopped process would sleep through it.
        let _ = process.signal(nix::sys::signal::Signal::SIGCONT);
    }
    for process in &running {
        process.end(GRACE);
    }
    running.len()
}

fn namespace_path(name: &str) -> PathBuf {
    Path::new("/run/netns").join(name)
}

/// The processes in a namespace of ours: its name is random, so nobody else's are there, unless a person went in to
/// look around, and then it is their shell that keeps the namespace from going away.
fn inhabitants(name: &str) -> Vec<ProcessId> {
    let Ok(namespace) = std::fs::metadata(namespace_path(name)) else { return Vec::new() };
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let own = std::process::id().cast_signed();
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| *pid != own)
        .filter(|pid| {
            std::fs::metadata(format!("/proc/{pid}/ns/net"))
                .is_ok_and(|other| (other.dev(), other.ino()) == (namespace.dev(), namespace.ino()))
        })
        .filter_map(|pid| ProcessId::of(pid).ok())
        .collect()
}

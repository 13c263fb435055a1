//! The set of files in the state directory: which of them count, and which are obsolete.
//!
//! ```text
//!   globalnet-changes.7    what has changed since snapshot 7 was begun
//!   globalnet-sessions.7   everything, as it was while it was written
//!   globalnet-changes.8    snapshot 8 was begun …
//!                          … and is not whole yet: 7 and both files of changes count
//! ```
//!
//! A snapshot is taken while traffic goes on. Changes after its beginning are in the changes of its number, so that
//! both together are the newest state, whenever the process dies.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::super::key::KEY_BYTES;
use super::file::{FileError, FileReader, FileWriter, Frame};
use super::record::{Entry, SessionKey};

const SESSIONS: &str = "globalnet-sessions.";
const CHANGES: &str = "globalnet-changes.";
/// A snapshot that is being written.
const TEMPORARY: &str = "globalnet-sessions.new";
/// Largest file that is read, in bytes: the largest number of sessions, and room for changes.
const MAX_BYTES: u64 = 4 << 30;

/// The content of the files.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    /// The sessions that were alive, by key.
    pub(super) sessions: BTreeMap<SessionKey, Entry>,
    /// Time of the newest frame, in Unix ms.
    pub(super) known_ms: u64,
    /// Problems of files that were not used, by path.
    pub(super) problems: Vec<(PathBuf, String)>,
}

/// The files of one state directory.
#[derive(Debug, Clone)]
pub struct SessionFiles {
    dir: PathBuf,
    fingerprint: [u8; KEY_BYTES],
    most: usize,
}

/// An open file of changes.
pub(super) type Changes = FileWriter<File>;
/// A snapshot that is being written.
pub(super) type Snapshot = FileWriter<BufWriter<File>>;

impl SessionFiles {
    /// Returns the files of a directory that belong to this key. At most `most` sessions are read.
    pub fn new(dir: &Path, fingerprint: [u8; KEY_BYTES], most: usize) -> Self {
        Self { dir: dir.to_owned(), fingerprint, most }
    }

    /// Reads the newest whole snapshot and all changes after it.
    pub(super) fn load(&self) -> Loaded {
        let mut loaded = Loaded::default();
        let mut first = 0;
        for generation in self.generations(SESSIONS).into_iter().rev() {
            if self.read_snapshot(generation, &mut loaded) {
                first = generation;
                break;
            }
        }
        for generation in self.generations(CHANGES).into_iter().filter(|number| *number >= first) {
            let path = self.path(CHANGES, generation);
            let read = self.read(&path, generation, &mut loaded);
            note(&mut loaded, path, read.map(|_| ()));
        }
        loaded
    }

    /// Reads a snapshot; returns `true` if it is complete, and then replaces `loaded`.
    fn read_snapshot(&self, generation: u64, loaded: &mut Loaded) -> bool {
        let path = self.path(SESSIONS, generation);
        let mut found = Loaded::default();
        let read = self.read(&path, generation, &mut found);
        if matches!(read, Ok(true)) {
            loaded.sessions = found.sessions;
            loaded.known_ms = found.known_ms;
            return true;
        }
        let read = read.and_then(|_| Err("it is not whole".to_owned()));
        note(loaded, path, read);
        false
    }

    /// Reads a file. Returns `true` if its last frame is an end.
    fn read(&self, path: &Path, generation: u64, loaded: &mut Loaded) -> Result<bool, String> {
        let file = File::open(path).map_err(|error| error.to_string())?;
        let from = BufReader::with_capacity(1 << 20, file.take(MAX_BYTES));
        let mut reader =
            FileReader::new(from, &self.fingerprint).map_err(|error: FileError| error.to_string())?;
        if reader.generation != generation {
            return Err(format!("it says that it is number {}", reader.generation));
        }
        let mut is_whole = false;
        while let Some(frame) = reader.next() {
            is_whole = matches!(frame, Frame::End);
            if let Frame::Entries(entries) = frame {
                entries.into_iter().for_each(|entry| self.take(entry, loaded));
            }
        }
        loaded.known_ms = loaded.known_ms.max(reader.newest_ms);
        Ok(is_whole)
    }

    fn take(&self, entry: Entry, loaded: &mut Loaded) {
        let key = entry.key();
        if entry.is_gone() {
            loaded.sessions.remove(&key);
        } else if loaded.sessions.len() < self.most || loaded.sessions.contains_key(&key) {
            loaded.sessions.insert(key, entry);
        }
    }

    /// Returns a generation above those of all files.
    pub(super) fn next_generation(&self) -> u64 {
        let newest = self.generations(SESSIONS).into_iter().chain(self.generations(CHANGES)).max();
        newest.map_or(1, |newest| newest.saturating_add(1))
    }

    /// Creates the file of changes of a generation.
    pub(super) fn begin_changes(&self, generation: u64) -> io::Result<Changes> {
        FileWriter::new(create(&self.path(CHANGES, generation))?, &self.fingerprint, generation)
    }

    /// Creates the file of a snapshot.
    pub(super) fn begin_snapshot(&self, generation: u64) -> io::Result<Snapshot> {
        let file = BufWriter::with_capacity(1 << 18, create(&self.dir.join(TEMPORARY))?);
        FileWriter::new(file, &self.fingerprint, generation)
    }

    /// Publishes a complete snapshot, and removes older files. Returns its size in bytes.
    pub(super) fn publish(&self, snapshot: Snapshot, generation: u64, unix_ms: u64) -> io::Result<u64> {
        let (file, bytes) = snapshot.finish(unix_ms)?;
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        // On disk before the name says so: after a power cut there is the old one or the new one.
        file.sync_all()?;
        fs::rename(self.dir.join(TEMPORARY), self.path(SESSIONS, generation))?;
        for kind in [SESSIONS, CHANGES] {
            for older in self.generations(kind).into_iter().filter(|number| *number < generation) {
                fs::remove_file(self.path(kind, older))?;
            }
        }
        Ok(bytes)
    }

    /// Returns the generations of the files of a kind, ascending.
    fn generations(&self, kind: &str) -> Vec<u64> {
        let names = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let names = names.filter_map(|entry| entry.file_name().into_string().ok());
        let mut numbers: Vec<u64> = names.filter_map(|name| name.strip_prefix(kind)?.parse().ok()).collect();
        numbers.sort_unstable();
        numbers
    }

    fn path(&self, kind: &str, generation: u64) -> PathBuf {
        self.dir.join(format!("{kind}{generation}"))
    }
}

/// Records a problem of a file.
fn note(loaded: &mut Loaded, path: PathBuf, read: Result<(), String>) {
    if let Err(problem) = read {
        loaded.problems.push((path, problem));
    }
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// Returns the names of all such files in a directory.
pub(super) fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with(SESSIONS) || name.starts_with(CHANGES)).collect()
}

//! The file itself: private, replaced in one step, the one before it kept.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::{BrokerInfo, BrokerInfoError, LONGEST};

/// What the file is called, in the working directory.
pub const FILE_NAME: &str = "broker-info.subm";

/// What became of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// It was not there.
    New,
    /// It says the same already and was left alone.
    Unchanged,
    /// It said something else, and is called so from here on.
    Replaced(PathBuf),
}

/// Reads a file.
///
/// # Errors
/// [`BrokerInfoError`] with the path.
pub fn load(path: &Path) -> Result<BrokerInfo, BrokerInfoError> {
    let mut text = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LONGEST as u64 + 1).read_to_end(&mut text));
    read.map_err(|source| io_error("reading", path, source))?;
    BrokerInfo::parse(&text).map_err(|error| match error {
        BrokerInfoError::Corrupt { reason, .. } => {
            BrokerInfoError::Corrupt { path: Some(path.to_owned()), reason }
        }
        error @ BrokerInfoError::Io { .. } => error,
    })
}

/// Writes a file that nobody but its owner can read. One that is there and says something else is renamed first: its
/// key or token may still be needed. `now` is an RFC 3339 time, for the old one's name.
///
/// # Errors
/// [`BrokerInfoError::Io`] with the path.
pub fn save(info: &BrokerInfo, path: &Path, now: &str) -> Result<Written, BrokerInfoError> {
    if load(path).is_ok_and(|before| before == *info) {
        return Ok(Written::Unchanged);
    }
    let fresh = with_suffix(path, "new");
    write_private(&fresh, info.emit().as_bytes()).map_err(|source| io_error("writing", &fresh, source))?;
    let old = set_aside(path, now).map_err(|source| io_error("renaming", path, source))?;
    std::fs::rename(&fresh, path).map_err(|source| io_error("renaming", &fresh, source))?;
    Ok(old.map_or(Written::New, Written::Replaced))
}

fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // One left by a crash may have any mode, or be a link to somewhere.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Renames the file that is there, and says how it is called from here on.
fn set_aside(path: &Path, now: &str) -> io::Result<Option<PathBuf>> {
    if std::fs::symlink_metadata(path).is_err() {
        return Ok(None);
    }
    let stamp = now.replace(':', "_");
    let mut old = with_suffix(path, &stamp);
    let mut count = 1;
    while std::fs::symlink_metadata(&old).is_ok() {
        old = with_suffix(path, &format!("{stamp}.{count}"));
        count += 1;
    }
    std::fs::rename(path, &old)?;
    Ok(Some(old))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

fn io_error(doing: &'static str, path: &Path, source: io::Error) -> BrokerInfoError {
    BrokerInfoError::Io { doing, path: path.to_owned(), source }
}

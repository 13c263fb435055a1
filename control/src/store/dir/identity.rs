//! Telling a broker's directory from an empty mount point, or from another broker's.
//!
//! The root has a marker with a random ID, and whoever attaches with a memory file keeps that ID there. An unmounted
//! directory has no marker, and so is a store that is away instead of one that has lost all its objects.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rand_core::RngCore;
use rustix::fs::OFlags;

use super::errors::unavailable;
use super::{file, lock};
use crate::store::StoreError;

const MARKER: &str = ".store-id";

/// Longest ID that is read. Ours have 32 characters.
const MAX_ID_BYTES: u64 = 128;

/// Where the root's ID is kept.
#[derive(Debug, Clone)]
pub(super) struct Memory {
    pub(super) file: PathBuf,
    /// How long to wait for the lock under which the marker is made.
    pub(super) lock_timeout: Duration,
}

impl Memory {
    /// Checks that the (existing) root is the one that is remembered. The first time, its ID is remembered, and is
    /// made if it has none.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when it is another one, has lost its marker, or an ID cannot be read or written.
    pub(super) fn check(&self, root: &Path) -> Result<(), StoreError> {
        let found = read_marker(root)?;
        match read_id(&self.file).map_err(|source| unavailable("read", &self.file, source))? {
            Some(known) if found.as_ref() == Some(&known) => Ok(()),
            Some(_) => Err(self.not_ours(root)),
            None => {
                let id = found.map_or_else(|| self.mark(root), Ok)?;
                self.remember(&id).map_err(|source| unavailable("write", &self.file, source))
            }
        }
    }

    /// Makes the marker, unless another one was faster; gives its ID.
    fn mark(&self, root: &Path) -> Result<String, StoreError> {
        let _lock = lock::take(root, self.lock_timeout)?;
        if let Some(id) = read_marker(root)? {
            return Ok(id);
        }
        let mut bytes = [0u8; 16];
        rand_core::OsRng.fill_bytes(&mut bytes);
        let id = bytes.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        });
        let path = root.join(MARKER);
        file::replace(&path, format!("{id}\n").as_bytes())
            .map_err(|source| unavailable("write", &path, source))?;
        Ok(id)
    }

    fn remember(&self, id: &str) -> io::Result<()> {
        if let Some(dir) = self.file.parent() {
            fs::create_dir_all(dir)?;
        }
        file::replace(&self.file, format!("{id}\n").as_bytes())
    }

    fn not_ours(&self, root: &Path) -> StoreError {
        StoreError::Unavailable {
            operation: "use the store".to_owned(),
            source: io::Error::other(format!(
                "the broker directory {} is empty or another one than before: is it mounted? To join it all the \
                 same remove {}",
                root.display(),
                self.file.display()
            )),
        }
    }
}

fn read_marker(root: &Path) -> Result<Option<String>, StoreError> {
    let path = root.join(MARKER);
    read_id(&path).map_err(|source| unavailable("read", &path, source))
}

/// Reads an ID; `None` when there is no such file.
fn read_id(path: &Path) -> io::Result<Option<String>> {
    let flags = lock::flags(OFlags::NOFOLLOW | OFlags::NONBLOCK);
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    file.take(MAX_ID_BYTES + 1).read_to_string(&mut text)?;
    let id = text.trim();
    if id.is_empty() || text.len() as u64 > MAX_ID_BYTES {
        return Err(io::Error::other("does not hold a store's ID"));
    }
    Ok(Some(id.to_owned()))
}

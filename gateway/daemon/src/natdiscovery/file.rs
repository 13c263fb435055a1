//! The file of results in the state directory. It is a cache: without it all peers are discovered again.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

use trieste_control::admin::Severity;
use trieste_control::conditions::Conditions;
use trieste_control::natdiscovery::Memory;
use trieste_control::natdiscovery::memory::MAX_BYTES;

use crate::state;

const FILE: &str = "nat-discovery.json";
/// Where a file goes that cannot be read. One is kept: the newest.
const ASIDE: &str = "nat-discovery.json.bad";
/// Ours: a condition's name.
const NOT_WRITTEN: &str = "NatDiscoveryNotKept";

/// Reads the file. An invalid one is set aside with a warning.
pub(super) fn read(dir: &Path) -> Memory {
    let path = dir.join(FILE);
    let problem = match text(&path) {
        Ok(None) => return Memory::default(),
        Ok(Some(text)) => match Memory::parse(&text) {
            Ok(memory) => return memory,
            Err(error) => error.to_string(),
        },
        Err(error) => error.to_string(),
    };
    let aside = dir.join(ASIDE);
    match fs::rename(&path, &aside) {
        Ok(()) => {
            tracing::warn!(path = %path.display(), aside = %aside.display(), %problem, "invalid results of NAT discovery set aside; discovering all peers again")
        }
        Err(error) => {
            tracing::warn!(path = %path.display(), %problem, %error, "cannot set invalid results of NAT discovery aside; discovering all peers again");
        }
    }
    Memory::default()
}

/// Removes the file.
///
/// # Errors
/// A file cannot be removed; a missing one is no error.
pub(crate) fn remove_files(dir: &Path) -> io::Result<()> {
    state::remove(dir, &[FILE, ASIDE])
}

/// Reads the file; `None` if there is none.
fn text(path: &Path) -> io::Result<Option<String>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut text = String::new();
    let length = file.take(MAX_BYTES as u64 + 1).read_to_string(&mut text)?;
    if length > MAX_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("is larger than {MAX_BYTES} bytes")));
    }
    Ok(Some(text))
}

/// Writes the file whole or not at all; a condition says when that fails.
pub(super) fn write(dir: &Path, memory: &Memory, conditions: &Conditions) {
    match state::write(&dir.join(FILE), &memory.emit()) {
        Ok(()) => {
            conditions.clear(NOT_WRITTEN, "");
        }
        Err(error) => {
            let message = format!("{error}; after a restart every peer's address is found anew");
            conditions.set(NOT_WRITTEN, Severity::Warning, "", message);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const GOOD: &str = r#"{"version":1,"results":{"cable":{"fingerprint":"00","ip":"192.0.2.1","useNat":true,"how":"public"}}}"#;

    #[test]
    fn what_is_written_is_read_again_by_the_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let memory = Memory::parse(GOOD).unwrap();
        write(dir.path(), &memory, &Conditions::new());
        assert_eq!(read(dir.path()), memory);
        let mode = fs::metadata(dir.path().join(FILE)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
    }

    #[test]
    fn what_is_of_no_use_is_set_aside_and_nothing_is_no_problem() {
        let dir = tempfile::tempdir().unwrap();
        assert!(read(dir.path()).is_empty());
        let huge = "x".repeat(MAX_BYTES + 1);
        for content in [&b"{"[..], b"\xff\xfe", b"", huge.as_bytes()] {
            fs::write(dir.path().join(FILE), content).unwrap();
            assert!(read(dir.path()).is_empty());
            assert!(!dir.path().join(FILE).exists());
            assert_eq!(fs::read(dir.path().join(ASIDE)).unwrap(), content);
        }
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_a_condition_until_it_can() {
        let dir = tempfile::tempdir().unwrap();
        let (inner, conditions) = (dir.path().join("state"), Conditions::new());
        write(&inner, &Memory::default(), &conditions);
        let [condition] = conditions.list().try_into().unwrap();
        assert!(condition.message.contains("nat-discovery.json"), "{}", condition.message);
        fs::create_dir(&inner).unwrap();
        write(&inner, &Memory::default(), &conditions);
        assert_eq!(conditions.list(), []);
    }
}

//! Our programs without debug information, kept by content: the linker's `strip` does it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest as _, Sha256};

use crate::Error;

/// Returns where each program lies without debug information: in `kept`, under a name of its content's. What was there
/// of another content goes.
///
/// # Errors
/// A program that is not built, or a failure of `strip`.
pub fn all(
    binaries: &Path,
    names: &[&'static str],
    kept: &Path,
) -> Result<BTreeMap<&'static str, PathBuf>, Error> {
    std::fs::create_dir_all(kept).map_err(Error::at("make", kept))?;
    let mut stripped = BTreeMap::new();
    for name in names {
        let source = binaries.join(name);
        if !source.is_file() {
            return Err(Error::NotBuilt(source));
        }
        let target = kept.join(format!("{name}-{}", content(&source).map_err(Error::at("read", &source))?));
        if !target.is_file() {
            forget(kept, name).map_err(Error::at("tidy up", kept))?;
            strip(&source, &target)?;
        }
        stripped.insert(*name, target);
    }
    Ok(stripped)
}

/// Names of functions stay: a backtrace without them says nothing.
fn strip(source: &Path, target: &Path) -> Result<(), Error> {
    let failed = |problem: String| Error::Program { program: "strip", problem };
    let unfinished = target.with_extension("unfinished");
    let output = Command::new("strip")
        .args(["--strip-debug", "--enable-deterministic-archives", "-o"])
        .arg(&unfinished)
        .arg(source)
        .output()
        .map_err(|error| failed(format!("{error}; it comes with the linker (Debian package binutils)")))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    std::fs::rename(&unfinished, target).map_err(Error::at("write", target))
}

/// The first half of the content's digest: enough for a name.
fn content(path: &Path) -> io::Result<String> {
    let (mut file, mut digest, mut buffer) = (File::open(path)?, Sha256::new(), vec![0; 1 << 20]);
    loop {
        let got = file.read(&mut buffer)?;
        if got == 0 {
            return Ok(digest.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect());
        }
        digest.update(&buffer[..got]);
    }
}

/// Removes what is kept of a program. Names end in a dash and 32 digits, so that of `trieste` nothing of
/// `trieste-gateway` goes.
fn forget(kept: &Path, name: &str) -> io::Result<()> {
    for entry in std::fs::read_dir(kept)? {
        let entry = entry?;
        let file = entry.file_name();
        let rest = file.to_str().and_then(|file| file.strip_prefix(name)?.strip_prefix('-'));
        if rest
            .is_some_and(|rest| rest.len() >= 32 && rest[..32].bytes().all(|byte| byte.is_ascii_hexdigit()))
        {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_stripped_once_and_what_was_kept_of_another_content_goes() {
        let directory = tempfile::tempdir().unwrap();
        let kept = directory.path().join("stripped");
        std::fs::copy(std::env::current_exe().unwrap(), directory.path().join("tool")).unwrap();
        std::fs::create_dir(&kept).unwrap();
        let old = kept.join(format!("tool-{}", "0".repeat(32)));
        let neighbour = kept.join(format!("tool-box-{}", "0".repeat(32)));
        std::fs::write(&old, "").unwrap();
        std::fs::write(&neighbour, "").unwrap();

        let first = all(directory.path(), &["tool"], &kept).unwrap();
        let at = |path: &Path| path.metadata().unwrap().modified().unwrap();
        let made = at(&first["tool"]);
        let again = all(directory.path(), &["tool"], &kept).unwrap();

        assert_eq!((&first, made), (&again, at(&again["tool"])));
        let length = |path: &Path| path.metadata().unwrap().len();
        assert!(length(&first["tool"]) < length(&directory.path().join("tool")));
        assert!(Command::new(&first["tool"]).arg("--list").output().unwrap().status.success());
        assert!(!old.exists() && neighbour.exists());
    }

    #[test]
    fn a_program_that_is_not_built_is_named_with_what_to_do() {
        let directory = tempfile::tempdir().unwrap();
        let error =
            all(directory.path(), &["nothing"], &directory.path().join("kept")).unwrap_err().to_string();
        assert!(error.contains("nothing is not built") && error.contains("./dev image"), "{error}");
    }
}

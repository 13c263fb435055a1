//! Wall clocks that are off, for single programs. Their timers are not off, only the time of day.

use std::path::Path;

use anyhow::Context;

/// Returns the path of the library that has to be loaded before a program's own. Debian puts it below a directory that is
/// called as the machine is.
///
/// # Errors
/// If it is not installed.
pub fn library() -> anyhow::Result<String> {
    for directory in std::fs::read_dir("/usr/lib").context("/usr/lib")?.flatten() {
        let library = directory.path().join("faketime/libfaketimeMT.so.1");
        if library.is_file() {
            return Ok(library.to_string_lossy().into_owned());
        }
    }
    anyhow::bail!("libfaketime is not installed: ./dev deps does it (Debian package faketime)")
}

/// Writes a clock's file: it is so many seconds ahead, or behind.
///
/// # Errors
/// If it cannot be written.
pub fn write(file: &Path, seconds: i64) -> anyhow::Result<()> {
    crate::installation::put_whole(file, &format!("{seconds:+}s\n"))
}

/// Returns the words before those of a program that has the clock of this file, and sees within a second when it changes.
///
/// # Errors
/// If the library is not installed.
pub fn words(file: &Path) -> anyhow::Result<Vec<String>> {
    let variables = [
        ("LD_PRELOAD", library()?),
        ("FAKETIME_TIMESTAMP_FILE", file.to_string_lossy().into_owned()),
        ("FAKETIME_CACHE_DURATION", "1".to_owned()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ("NO_FAKE_STAT", "1".to_owned()),
    ];
    let variables = variables.into_iter().map(|(name, value)| format!("{name}={value}"));
    Ok(std::iter::once("env".to_owned()).chain(variables).collect())
}

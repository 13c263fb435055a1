//! Liveness of a program that works in passes, published in a file that its `--check`, the exec probe of its pod, reads.
//!
//! The file holds the time of the last good pass, on the clock that counts from the boot (so that it neither outlives a
//! reboot nor depends on the wall clock), and the problem, if there is one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tracing::warn;

/// Ours: greatest age of the last good pass. A program makes one every ten seconds at least.
pub const MAX_AGE: Duration = Duration::from_secs(30);
/// The kernel's clock since boot.
const UPTIME: &str = "/proc/uptime";

/// Content of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Liveness {
    /// Time of the last good pass, milliseconds since boot; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub good_pass_ms: Option<u64>,
    /// The problem; empty if there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub problem: String,
}

/// Why the liveness check fails.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// The file cannot be read: the program does not run, or cannot write it.
    #[error("cannot read {}: {source}; does {program} run on this node, and with the same --pass-file?", path.display())]
    Unread {
        /// The program.
        program: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// There was no good pass yet.
    #[error("no pass was made yet: {0}")]
    NotYet(String),
    /// Its last good pass is too long ago.
    #[error("the last good pass was {} seconds ago: {problem}", ago.as_secs())]
    TooOld {
        /// Time since then.
        ago: Duration,
        /// The problem since then.
        problem: String,
    },
}

/// Writes the file, and removes it when dropped.
#[derive(Debug)]
pub struct LivenessFile {
    path: PathBuf,
    liveness: Liveness,
    /// Why it could not be written the last time.
    obstacle: Option<String>,
}

impl LivenessFile {
    /// Returns a file without a good pass; an earlier process's content is replaced by the first write.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path, liveness: Liveness::default(), obstacle: None }
    }

    /// Records why there is no good pass; `None`: that there was one. A file that cannot be written is logged once for
    /// each reason.
    pub fn record(&mut self, problem: Option<&str>) {
        let written = match problem {
            None => self.record_success(),
            Some(problem) => self.record_failure(problem),
        };
        let obstacle = written.err().map(|error| format!("cannot write {}: {error}", self.path.display()));
        if obstacle != self.obstacle {
            if let Some(problem) = &obstacle {
                warn!(%problem, "--check will fail");
            }
            self.obstacle = obstacle;
        }
    }

    /// Records a good pass.
    ///
    /// # Errors
    /// The file cannot be written.
    fn record_success(&mut self) -> io::Result<()> {
        self.liveness = Liveness { good_pass_ms: Some(since_boot_ms()?), problem: String::new() };
        self.write()
    }

    /// Records why there is no good pass; the time of the last one stays.
    ///
    /// # Errors
    /// The file cannot be written.
    fn record_failure(&mut self, problem: &str) -> io::Result<()> {
        problem.clone_into(&mut self.liveness.problem);
        self.write()
    }

    /// Replaces the file atomically.
    fn write(&self) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        let fresh = self.path.with_extension("new");
        fs::write(&fresh, serde_json::to_vec(&self.liveness)?)?;
        fs::rename(&fresh, &self.path)
    }
}

impl Drop for LivenessFile {
    fn drop(&mut self) {
        // A file that cannot be removed fails the check by its age.
        let _ = fs::remove_file(&self.path);
    }
}

/// Checks that the program that writes this file works.
///
/// # Errors
///
/// [`CheckError`]: why it does not.
pub fn check(program: &'static str, path: &Path) -> Result<(), CheckError> {
    let unread = |source| CheckError::Unread { program, path: path.to_owned(), source };
    let text = fs::read(path).map_err(unread)?;
    let liveness = serde_json::from_slice(&text).map_err(|error| unread(error.into()))?;
    evaluate(liveness, since_boot_ms().map_err(unread)?)
}

fn evaluate(liveness: Liveness, now_ms: u64) -> Result<(), CheckError> {
    let Some(at) = liveness.good_pass_ms else { return Err(CheckError::NotYet(liveness.problem)) };
    // A time in the future was written before a reboot.
    let ago = Duration::from_millis(now_ms.checked_sub(at).unwrap_or(u64::MAX));
    if ago <= MAX_AGE {
        return Ok(());
    }
    let problem = if liveness.problem.is_empty() {
        "it has stopped, or hangs; see the log of the pod, and of its predecessor".to_owned()
    } else {
        liveness.problem
    };
    Err(CheckError::TooOld { ago, problem })
}

fn since_boot_ms() -> io::Result<u64> {
    let text = fs::read_to_string(UPTIME)?;
    let parse = |text: &str| -> Option<u64> {
        let (seconds, hundredths) = text.split_whitespace().next()?.split_once('.')?;
        Some(seconds.parse::<u64>().ok()? * 1000 + hundredths.parse::<u64>().ok()? * 10)
    };
    parse(&text)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("{UPTIME} says `{}`", text.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_works_passes_the_check_and_one_that_ended_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/routeagent.json");
        let mut file = LivenessFile::new(path.clone());
        file.record_failure("the store is away").unwrap();
        let error = check("trieste-routeagent", &path).unwrap_err().to_string();
        assert_eq!(error, "no pass was made yet: the store is away");
        file.record_success().unwrap();
        check("trieste-routeagent", &path).unwrap();
        file.record_failure("netlink: no").unwrap();
        check("trieste-routeagent", &path).unwrap();
        drop(file);
        let error = check("trieste-routeagent", &path).unwrap_err().to_string();
        assert!(error.contains("does trieste-routeagent run"), "{error}");
    }

    #[test]
    fn a_pass_is_good_for_thirty_seconds() {
        let liveness = |problem: &str| Liveness { good_pass_ms: Some(5_000), problem: problem.to_owned() };
        evaluate(liveness(""), 35_000).unwrap();
        let error = evaluate(liveness("netlink: no"), 35_001).unwrap_err().to_string();
        assert_eq!(error, "the last good pass was 30 seconds ago: netlink: no");
        assert!(evaluate(liveness(""), 40_000).unwrap_err().to_string().contains("hangs"));
        evaluate(liveness(""), 4_000).unwrap_err();
    }
}

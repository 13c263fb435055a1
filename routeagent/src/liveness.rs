//! Whether the route agent does its work, told through a file: what `--check`, an exec probe of its pod, reads.
//!
//! The file holds the time of the last good pass on the clock that counts from the boot, so that it neither survives a
//! reboot nor believes a clock that was set; and what is wrong, if anything is.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tracing::warn;

use crate::agent::Report;
use crate::condition::Condition;

/// Where the file is unless said otherwise.
pub const DEFAULT_FILE: &str = "/run/trieste/routeagent.json";
/// Ours: how old the last good pass may be. Passes are made every ten seconds at least.
pub const MAX_AGE: Duration = Duration::from_secs(30);
/// The kernel's clock since the boot.
const UPTIME: &str = "/proc/uptime";

/// What the file says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pulse {
    /// When a pass was good for the last time, milliseconds since the boot; absent if none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub good_pass_ms: Option<u64>,
    /// What is wrong; empty if nothing is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub problem: String,
}

/// Why a route agent does not count as working.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// There is no file: it does not run, or cannot write there.
    #[error("{}: {source}; does trieste-routeagent run on this node, and with the same --pass-file?", path.display())]
    Unread {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// It has not made a good pass yet.
    #[error("no pass was made yet: {0}")]
    NotYet(String),
    /// Its last good pass is too long ago.
    #[error("the last good pass was {} seconds ago: {problem}", ago.as_secs())]
    TooOld {
        /// How long.
        ago: Duration,
        /// What is wrong since.
        problem: String,
    },
}

/// Keeps the file.
#[derive(Debug)]
pub struct Heart {
    path: PathBuf,
    pulse: Pulse,
}

impl Heart {
    /// Begins anew: whatever an earlier process has left no longer counts.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path, pulse: Pulse::default() }
    }

    /// Notes a good pass.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn beat(&mut self) -> io::Result<()> {
        self.pulse = Pulse { good_pass_ms: Some(since_boot_ms()?), problem: String::new() };
        self.write()
    }

    /// Notes what stands in the way of a good pass.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn miss(&mut self, problem: &str) -> io::Result<()> {
        problem.clone_into(&mut self.pulse.problem);
        self.write()
    }

    /// Whole or not at all: a reader never sees half a file.
    fn write(&self) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        let fresh = self.path.with_extension("new");
        fs::write(&fresh, serde_json::to_vec(&self.pulse)?)?;
        fs::rename(&fresh, &self.path)
    }
}

impl Drop for Heart {
    fn drop(&mut self) {
        // What is not there needs no removal; what cannot be removed grows old.
        let _ = fs::remove_file(&self.path);
    }
}

/// Keeps the file up to date, for ever: `reports` says how passes go, `away` why there may be none.
pub async fn keep(
    path: PathBuf,
    mut reports: watch::Receiver<Report>,
    mut away: watch::Receiver<Option<String>>,
) {
    let mut heart = Heart::new(path);
    let mut said = None;
    loop {
        let report = reports.borrow_and_update().clone();
        let error = away.borrow_and_update().clone();
        let written = match (&report, error) {
            (Report { passes: 0, .. }, None) => heart.miss("the store has not been read yet"),
            (Report { passes: 0, .. }, Some(error)) => {
                heart.miss(&format!("the store cannot be read: {error}"))
            }
            (Report { is_good: true, .. }, _) => heart.beat(),
            (Report { is_good: false, conditions, .. }, _) => heart.miss(&worst(conditions)),
        };
        let problem = written.err().map(|error| format!("cannot write {}: {error}", heart.path.display()));
        if said != problem {
            if let Some(problem) = &problem {
                warn!("{problem}; --check will say that this route agent does not run");
            }
            said = problem;
        }
        tokio::select! {
            told = reports.changed() => if told.is_err() { return },
            told = away.changed() => if told.is_err() { return },
        }
    }
}

fn worst(conditions: &BTreeSet<Condition>) -> String {
    let worst = conditions.iter().max_by_key(|condition| condition.severity());
    worst.map_or_else(|| "the last pass failed".to_owned(), ToString::to_string)
}

/// Says whether the route agent that keeps this file works.
///
/// # Errors
///
/// [`CheckError`]: it does not.
pub fn check(path: &Path) -> Result<(), CheckError> {
    let unread = |source| CheckError::Unread { path: path.to_owned(), source };
    let text = fs::read(path).map_err(unread)?;
    let pulse = serde_json::from_slice(&text).map_err(|error| unread(error.into()))?;
    judge(pulse, since_boot_ms().map_err(unread)?)
}

fn judge(pulse: Pulse, now_ms: u64) -> Result<(), CheckError> {
    let Some(at) = pulse.good_pass_ms else { return Err(CheckError::NotYet(pulse.problem)) };
    // A time that is still to come was written before a reboot.
    let ago = Duration::from_millis(now_ms.checked_sub(at).unwrap_or(u64::MAX));
    if ago <= MAX_AGE {
        return Ok(());
    }
    let problem = if pulse.problem.is_empty() {
        "it has stopped, or hangs; see the log of the pod, and of its predecessor".to_owned()
    } else {
        pulse.problem
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
    fn a_route_agent_that_works_passes_the_check_and_one_that_ended_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/routeagent.json");
        let mut heart = Heart::new(path.clone());
        heart.miss("the store is away").unwrap();
        let error = check(&path).unwrap_err().to_string();
        assert_eq!(error, "no pass was made yet: the store is away");
        heart.beat().unwrap();
        check(&path).unwrap();
        heart.miss("netlink: no").unwrap();
        check(&path).unwrap();
        drop(heart);
        let error = check(&path).unwrap_err().to_string();
        assert!(error.contains("does trieste-routeagent run"), "{error}");
    }

    #[test]
    fn a_pass_is_good_for_thirty_seconds() {
        let pulse = |problem: &str| Pulse { good_pass_ms: Some(5_000), problem: problem.to_owned() };
        judge(pulse(""), 35_000).unwrap();
        let error = judge(pulse("netlink: no"), 35_001).unwrap_err().to_string();
        assert_eq!(error, "the last good pass was 30 seconds ago: netlink: no");
        assert!(judge(pulse(""), 40_000).unwrap_err().to_string().contains("hangs"));
        judge(pulse(""), 4_000).unwrap_err();
    }
}

//! A long-running program of the lab: its log in a file, ended when dropped.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use anyhow::Context;
use nix::sys::signal::Signal;

use crate::command::Run;
use crate::lab::Lab;
use crate::process::ProcessId;
use crate::wait::eventually;

/// How long a program may take to end by itself before it is killed.
const GRACE: Duration = Duration::from_secs(5);

/// How long a paused program may take until none of its threads runs.
const STILL: Duration = Duration::from_secs(10);

/// A running program.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    id: ProcessId,
    log: PathBuf,
    lab: Lab,
}

impl Daemon {
    /// Starts it with both outputs in the log `name`; a restarted program goes on in the same file.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(lab: &Lab, name: &str, run: &Run) -> anyhow::Result<Self> {
        crate::interrupt::check()?;
        let log = lab.log_path(name);
        let file = File::options().create(true).append(true).open(&log)?;
        let child = run
            .command(file.try_clone()?, file)?
            .spawn()
            .with_context(|| format!("starting {name}: {}", run.shown()))?;
        let id = ProcessId::of(child.id().cast_signed())?;
        lab.adopt_process(id)?;
        Ok(Self { child, id, log, lab: lab.clone() })
    }

    /// Its process.
    pub fn id(&self) -> ProcessId {
        self.id
    }

    /// Its log file.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// What it has written so far.
    pub fn log_text(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Fails if it has ended, with its last words.
    ///
    /// # Errors
    /// If it is not running.
    pub fn check(&self) -> anyhow::Result<()> {
        if self.id.is_running() {
            return Ok(());
        }
        let text = self.log_text();
        let last: Vec<_> = text.lines().rev().take(8).collect();
        let last: Vec<_> = last.into_iter().rev().collect();
        anyhow::bail!("{} ended by itself:\n{}", self.log.display(), last.join("\n"))
    }

    /// Waits until its log has this text.
    ///
    /// # Errors
    /// If it does not within `timeout`, or the program has ended.
    pub fn wait_log(&self, text: &str, timeout: Duration) -> anyhow::Result<()> {
        eventually(&format!("\"{text}\" in {}", self.log.display()), timeout, || {
            if self.log_text().contains(text) {
                return Ok(());
            }
            self.check()?;
            anyhow::bail!("it is not there")
        })
    }

    /// Stops it where it stands, as a debugger or a starved machine would; [`Daemon::resume`] undoes it. Returns when it
    /// stands still: on a busy machine some of its threads go on for a while after the signal.
    ///
    /// # Errors
    /// If the kernel refuses, or it does not stand still within ten seconds.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.id.signal(Signal::SIGSTOP)?;
        eventually("a paused program to stand still", STILL, || {
            anyhow::ensure!(self.id.stands_still(), "threads of {} go on", self.log.display());
            Ok(())
        })
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.id.signal(Signal::SIGCONT)
    }

    /// Ends it as a crash would: SIGKILL, and waits until it is gone.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Asks it to end (SIGTERM) and says whether it did so by itself with exit status 0.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn stop(self) -> anyhow::Result<bool> {
        self.stop_within(GRACE)
    }

    /// The same for a program that takes its time to end.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn stop_within(mut self, grace: Duration) -> anyhow::Result<bool> {
        self.id.signal(Signal::SIGTERM)?;
        let ended = self.id.wait_end(grace);
        if !ended {
            self.child.kill()?;
        }
        Ok(self.child.wait()?.success() && ended)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.lab.is_kept() {
            return;
        }
        if self.id.is_running() {
            let _ = self.resume();
            self.id.end(GRACE);
        }
        let _ = self.child.wait();
    }
}

//! A network namespace, and doing things inside it.

use std::fs::File;
use std::path::PathBuf;

use anyhow::Context;
use nix::sched::{CloneFlags, setns};

use crate::command::Run;

/// A named network namespace; the lab that made it removes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Names a namespace; makes nothing.
    pub(crate) fn named(name: impl Into<String>) -> Self {
        Self { name: name.into() }
    }

    /// The name that `ip netns` knows it by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A program to run inside.
    pub fn run(&self, program: &str) -> Run {
        Run::in_namespace(&self.name, program)
    }

    /// Runs `ip` commands, one per line without the word `ip`, in one process.
    ///
    /// # Errors
    /// If one of them fails: the error names the line.
    pub fn ip(&self, lines: &str) -> anyhow::Result<()> {
        batch(&["-n", &self.name], lines).with_context(|| format!("in namespace {}", self.name))
    }

    /// Loads an nftables script.
    ///
    /// # Errors
    /// If nft refuses it.
    pub fn nft(&self, script: &str) -> anyhow::Result<()> {
        self.run("nft").args(["-f", "-"]).input(script).stdout().map(drop)
    }

    /// Sets kernel parameters: pairs of a path below `/proc/sys/net` and a value.
    ///
    /// # Errors
    /// If the kernel has no such parameter or refuses the value.
    pub fn sysctl(&self, parameters: &[(&str, &str)]) -> anyhow::Result<()> {
        self.enter(|| {
            for (name, value) in parameters {
                let path = format!("/proc/sys/net/{name}");
                std::fs::write(&path, value).with_context(|| format!("writing {value} to {path}"))?;
            }
            Ok(())
        })
    }

    /// Does `work` on a thread inside the namespace. A socket made there stays there, whoever uses it later.
    ///
    /// # Errors
    /// Those of `work`, and if the namespace cannot be entered.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> anyhow::Result<T> + Send) -> anyhow::Result<T> {
        let path = PathBuf::from("/run/netns").join(&self.name);
        let namespace = File::open(&path).with_context(|| format!("opening {}", path.display()))?;
        let inside = move || {
            setns(&namespace, CloneFlags::CLONE_NEWNET)
                .with_context(|| format!("entering {}", path.display()))?;
            work()
        };
        std::thread::scope(|scope| match scope.spawn(inside).join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }
}

/// Runs `ip` commands in this process's own namespace.
///
/// # Errors
/// If one of them fails.
pub(crate) fn ip(lines: &str) -> anyhow::Result<()> {
    batch(&[], lines)
}

fn batch(options: &[&str], lines: &str) -> anyhow::Result<()> {
    Run::new("ip").args(options).args(["-batch", "-"]).input(lines).stdout().map(drop)
}

//! The settings of the cluster's ConfigMap, together with flags, environment and file.
//!
//! ```text
//!   flags ──▶ ConfigMap ──▶ environment ──▶ file ──▶ defaults      the earlier wins
//! ```
//!
//! A change is put together with all of these again, as a start does: what a start would refuse is refused, and what was in
//! force before stays.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use trieste_control::devices::{DEVICES, check_tun_name};
use trieste_control::settings::{self, Data, Program, Read, Refusal, Standing, Taken};

use crate::config::{CommandLine, Config, ConfigError, Cpus};
use crate::stores;
use crate::threads::cpus;

/// How long whatever a store has begun may take to end.
const END_TIMEOUT: Duration = Duration::from_millis(20);

/// The settings of this gateway.
pub(crate) struct LiveSettings<'a> {
    command_line: &'a CommandLine,
    standing: Standing,
    /// What the process was started with of what depends on the node.
    started: OnNode,
    /// What became of the newest change.
    pub(crate) taken: Taken,
}

impl<'a> LiveSettings<'a> {
    /// Returns those of a start, and the configuration with them, for one that was read without.
    ///
    /// # Errors
    /// What a start without settings is refused for.
    pub(crate) fn at_start(
        command_line: &'a CommandLine,
        without: &Config,
    ) -> anyhow::Result<(Self, Config)> {
        let read = read(without)?;
        let compose = |wanted: &Data| config(command_line, wanted, None);
        let (standing, taken, config) = Standing::at_start(Program::Gateway, &read, compose)
            .map_err(|refusal| anyhow::anyhow!("{}", refusal.problem))?;
        Ok((Self { command_line, standing, started: OnNode::of(&config), taken }, config))
    }

    /// Returns the values in force.
    pub(crate) fn in_force(&self) -> &Data {
        self.standing.in_force()
    }

    /// Takes what the ConfigMap says. Returns the configuration with it, if anything has changed that takes effect at once.
    pub(crate) fn take(&mut self, data: &Data) -> Option<Config> {
        let Self { command_line, started, .. } = self;
        let (taken, config) =
            self.standing.take(data, |wanted| config(command_line, wanted, Some(&*started)));
        self.taken = taken;
        config.filter(|_| self.taken.has_changed)
    }
}

/// Puts a configuration together that this node can carry out. A process goes on with what it was `started` with, whatever
/// has become of the node.
fn config(command_line: &CommandLine, settings: &Data, started: Option<&OnNode>) -> Result<Config, Refusal> {
    let config = command_line.with_settings(settings)?.load().and_then(|config| {
        // What is removed may have been made elsewhere.
        if !command_line.uninstall {
            check_node(&config, started)?;
        }
        Ok(config)
    });
    config.map_err(|error| match error {
        ConfigError::Missing { key, .. } | ConfigError::Invalid { key, .. } => {
            Refusal { key: Some(key.to_owned()), problem: error.to_string() }
        }
        ConfigError::File { .. } => Refusal { key: None, problem: error.to_string() },
    })
}

/// What one node can carry out and another not.
#[derive(Debug, Clone, PartialEq, Eq)]
struct OnNode {
    cpus: Option<Cpus>,
    tun_name: String,
}

impl OnNode {
    fn of(config: &Config) -> Self {
        Self { cpus: config.cpus.clone(), tun_name: config.tun_name.clone() }
    }
}

/// Checks what one node may have and another not, where it is not what the process was started with: a start would fail for it,
/// on each node where a ConfigMap's value is such.
fn check_node(config: &Config, started: Option<&OnNode>) -> Result<(), ConfigError> {
    let has_other_cpus = started.is_none_or(|started| started.cpus != config.cpus);
    // Where the CPUs cannot be read, a start gives that as its reason.
    if has_other_cpus && let Ok(allowed) = trieste_io::cpu::allowed() {
        cpus(config, &allowed)?;
    }
    if started.is_some_and(|started| started.tun_name == config.tun_name) {
        return Ok(());
    }
    check_tun_name(&config.tun_name, Path::new(DEVICES))
        .map_err(|problem| ConfigError::Invalid { key: "tun-name", problem })
}

/// Reads the ConfigMap, before the threads are started that depend on it.
fn read(config: &Config) -> anyhow::Result<Read> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting to read the settings")?;
    let read = runtime.block_on(async {
        let store = stores::local(config)?;
        Ok(settings::at_start(&store, &config.namespace, Program::Gateway, &config.state_dir).await)
    });
    runtime.shutdown_timeout(END_TIMEOUT);
    read
}

#[cfg(test)]
mod tests;

//! The settings of the cluster's ConfigMap, together with flags and environment: what can change while the agent runs, changes.
//!
//! ```text
//!   flags ──▶ ConfigMap ──▶ environment ──▶ defaults      the earlier wins
//! ```

use std::path::Path;
use std::sync::Arc;

use anyhow::bail;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::info;
use trieste_control::conditions::Conditions;
use trieste_control::devices::{DEVICES, check_tun_name};
use trieste_control::health::PingerConfig;
use trieste_control::logging;
use trieste_control::runner::ControllerRegistry;
use trieste_control::settings::{self, Data, Program, Refusal, Reporter, Seen, Standing, Taken};
use trieste_control::store::Store;

use crate::config::Options;

/// The settings of this agent.
#[derive(Debug)]
pub struct LiveSettings {
    /// Flags and environment.
    options: Arc<Options>,
    standing: Standing,
    /// The name of the gateway's device that the process was started with.
    tun_name: String,
    taken: Taken,
}

/// What the RouteAgent object's keeper goes by.
#[derive(Debug, Clone)]
pub struct WatchedSettings {
    /// How remote gateways are pinged; `None` if they are not. Sent anew with every change of the conditions too.
    pub pinger: watch::Receiver<Option<PingerConfig>>,
    /// What is wrong with the settings, and what waits.
    pub conditions: Conditions,
}

impl LiveSettings {
    /// Reads those of a start. Returns the options with them.
    ///
    /// # Errors
    /// What a start without settings is refused for.
    pub async fn at_start(options: &Options, store: &impl Store) -> anyhow::Result<(Self, Options)> {
        let read =
            settings::at_start(store, &options.namespace, Program::RouteAgent, &options.state_dir).await;
        let options = Arc::new(options.clone());
        let compose = |wanted: &Data| compose(&options, wanted, None);
        match Standing::at_start(Program::RouteAgent, &read, compose) {
            Ok((standing, taken, with)) => {
                let tun_name = with.tun_name.clone();
                Ok((Self { options, standing, tun_name, taken }, with))
            }
            Err(Refusal { problem, .. }) => bail!("{problem}"),
        }
    }

    /// Takes what the ConfigMap says. Returns the options with it, if anything has changed that takes effect at once.
    fn take(&mut self, data: &Data) -> Option<Options> {
        let options = Arc::clone(&self.options);
        let started = &self.tun_name;
        let (taken, with) = self.standing.take(data, |wanted| compose(&options, wanted, Some(started)));
        self.taken = taken;
        with.filter(|_| self.taken.has_changed)
    }

    /// Starts to follow the ConfigMap, for as long as the task runs.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn follow<S: Store>(
        mut self,
        store: S,
        options: &Options,
        controllers: &ControllerRegistry,
    ) -> (WatchedSettings, JoinHandle<()>) {
        let conditions = Conditions::new();
        let reporter = Reporter::new(conditions.clone(), Program::RouteAgent, &options.namespace);
        reporter.taken(&self.taken);
        let (sender, mut seen) = watch::channel(Seen::Nothing);
        let publish = move |seen: &Seen| drop(sender.send_replace(seen.clone()));
        let runner = settings::spawn(store, &options.namespace, publish);
        controllers.add(settings::NAME, runner.metrics.clone());
        let (pinger, watched) = watch::channel(options.pinger());
        let state_dir = options.state_dir.clone();
        let task = tokio::spawn(async move {
            // It follows for as long as this is kept.
            let _runner = runner;
            while seen.changed().await.is_ok() {
                let data = match seen.borrow_and_update().clone() {
                    Seen::Nothing => continue,
                    Seen::Unread(reason) => {
                        reporter.unread(&reason);
                        pinger.send_modify(|_| {});
                        continue;
                    }
                    Seen::Data(data) => data,
                };
                let changed = self.take(&data);
                reporter.taken(&self.taken);
                let directory = state_dir.clone();
                let remembered = self.standing.in_force().clone();
                // Nobody waits for a directory that is slow.
                drop(tokio::task::spawn_blocking(move || {
                    settings::remember(&directory, Program::RouteAgent, &remembered);
                }));
                let Some(options) = changed else {
                    pinger.send_modify(|_| {});
                    continue;
                };
                logging::change(options.log_level.as_deref(), options.log.filter());
                info!(
                    pinger = ?options.pinger(),
                    log = options.log_level.as_deref().unwrap_or_default(),
                    "settings take effect"
                );
                pinger.send_replace(options.pinger());
            }
        });
        (WatchedSettings { pinger: watched, conditions }, task)
    }
}

/// Puts options together that this node can carry out. A process goes on with the device that it was `started` with, whatever
/// else has the name meanwhile.
fn compose(options: &Options, settings: &Data, started: Option<&String>) -> Result<Options, Refusal> {
    let with = options.with_settings(settings)?;
    if started != Some(&with.tun_name) {
        check_tun_name(&with.tun_name, Path::new(DEVICES)).map_err(|problem| Refusal {
            key: Some("tun-name".to_owned()),
            problem: format!("--tun-name: {problem}"),
        })?;
    }
    Ok(with)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory as _;
    use trieste_control::settings::{ELSEWHERE, SETTINGS};

    use super::*;

    fn options(more: &[&str]) -> Options {
        let words = ["trieste-routeagent", "--cluster-id=a", "--cluster-cidrs=10.1.0.0/16", "--hostname=n"];
        let words = words.iter().chain(more).map(Into::into);
        Options::from_flags_and_environment(words, |_| None).unwrap()
    }

    fn data(entries: &[(&str, &str)]) -> Data {
        entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn every_setting_of_the_agent_can_be_set_in_the_configmap_or_stands_where_else() {
        let command = Options::command();
        let flags = command.get_arguments().filter_map(|argument| argument.get_long());
        let flags: BTreeSet<&str> = flags.filter(|flag| !["help", "version"].contains(flag)).collect();
        let of_agent = SETTINGS.iter().filter(|setting| setting.programs.contains(&Program::RouteAgent));
        let listed: BTreeSet<&str> = of_agent.map(|setting| setting.key).collect();
        assert!(listed.is_subset(&flags), "no such setting: {:?}", listed.difference(&flags));
        let elsewhere: BTreeSet<&str> = ELSEWHERE.iter().map(|(key, _)| *key).collect();
        let missing: Vec<&&str> =
            flags.difference(&listed).filter(|key| !elsewhere.contains(**key)).collect();
        assert!(missing.is_empty(), "neither a setting nor elsewhere: {missing:?}");
    }

    #[test]
    fn a_flag_goes_before_the_configmap_and_what_cannot_be_is_named() {
        let settings = data(&[("health-check-interval", "7"), ("close-grace", "9"), ("workers", "2")]);
        let with = options(&[]).with_settings(&settings).unwrap();
        assert_eq!((with.health_check_interval, with.close_grace), (7, 9));
        let with = options(&["--health-check-interval=3"]).with_settings(&settings).unwrap();
        assert_eq!((with.health_check_interval, with.close_grace), (3, 9));
        let compose = |wanted: &Data| compose(&options(&[]), wanted, None);
        let read = settings::Read::default();
        let (mut standing, ..) = Standing::at_start(Program::RouteAgent, &read, compose).unwrap();
        for (key, value) in [("metrics", "here"), ("tun-name", "a/b"), ("tun-name", "lo")] {
            let (taken, _) = standing.take(&data(&[(key, value), ("close-grace", "9")]), compose);
            let keys: Vec<&str> = taken.problems.iter().map(|problem| problem.key.as_str()).collect();
            assert_eq!(keys, [key], "{taken:?}");
            assert!(!standing.in_force().contains_key(key));
        }
    }
}

//! The settings of the cluster's ConfigMap: what can change while the gateway runs, changes.
//!
//! ```text
//!   ConfigMap ─▶ LiveSettings ─┬─▶ log, health check, workers (probes of paths, translation), IKE's times, weight
//!                              └─▶ conditions and events: what is refused, what waits for a restart
//! ```

use tokio::sync::watch;
use trieste_control::admin::Severity;
use trieste_control::health::PingerConfig;
use trieste_control::logging;
use trieste_control::runner::Handle;
use trieste_control::settings::{self, Program, REFUSED, Reporter, Seen, WAITING};

use super::Control;
use crate::config::Config;
use crate::engine::Engine;
use crate::live::LiveSettings;
use crate::worker::{Command, WorkerSettings};

/// Who follows the settings, and what came of it.
pub(crate) struct Settings<'a> {
    pub(crate) live: LiveSettings<'a>,
    pub(crate) seen: watch::Receiver<Seen>,
    pub(crate) reporter: Reporter,
    /// Follows the object for as long as this is kept.
    pub(crate) _runner: Handle,
}

impl Control<'_> {
    /// Takes what is known of the object.
    pub(super) fn take_settings(&mut self, engine: &Engine) {
        let seen = self.settings.seen.borrow_and_update().clone();
        let data = match seen {
            Seen::Nothing => return,
            Seen::Unread(reason) => return self.settings.reporter.unread(&reason),
            Seen::Data(data) => data,
        };
        let before = self.settings.live.taken.clone();
        let config = self.settings.live.take(&data);
        let taken = &self.settings.live.taken;
        self.settings.reporter.taken(taken);
        for problem in taken.problems.iter().filter(|problem| !before.problems.contains(problem)) {
            let message = format!("{}: {}", problem.key, problem.problem);
            self.recorder.record(Severity::Warning, REFUSED, message);
        }
        if taken.waiting != before.waiting && !taken.waiting.is_empty() {
            let keys: Vec<&str> = taken.waiting.iter().copied().collect();
            let message = format!("{} take effect at the next start", keys.join(", "));
            self.recorder.record(Severity::Info, WAITING, message);
        }
        let state_dir = self.config.state_dir.clone();
        let in_force = self.settings.live.in_force().clone();
        // Nobody waits for a directory that is slow.
        drop(tokio::task::spawn_blocking(move || {
            settings::remember(&state_dir, Program::Gateway, &in_force)
        }));
        if let Some(config) = config {
            self.use_settings(&config, engine);
        }
    }

    /// Goes by another configuration, in what can change.
    fn use_settings(&mut self, config: &Config, engine: &Engine) {
        logging::change(config.log.chosen.as_deref(), &config.log.default_filter());
        if let (Some(probes), Some(check)) = (&self.probes, config.health_check) {
            probes.set_pinger(PingerConfig::new(check.interval, check.max_loss));
        }
        let settings = WorkerSettings { health: config.health, nat: config.globalnet.nat() };
        for worker in engine.workers() {
            worker.command(Command::Settings(Box::new(settings)));
        }
        if let Some(ike) = engine.ike() {
            ike.take_times(config.ipsec.times());
        }
        self.state.found.weight = Some(config.weight);
        self.publish_endpoint();
        tracing::info!(
            health_check = ?config.health_check,
            path_probes = ?config.health,
            weight = config.weight,
            log = config.log.chosen.as_deref().unwrap_or_default(),
            "settings take effect"
        );
    }
}

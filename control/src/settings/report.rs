//! How a program reports what is wrong with its settings, and what waits.

use super::read::OBJECT;
use super::standing::{Problem, Taken};
use super::table::Program;
use crate::admin::Severity;
use crate::conditions::Conditions;

/// The condition of a value that cannot be.
pub const REFUSED: &str = "SettingRefused";
/// The condition of a key that is no setting.
pub const UNKNOWN: &str = "UnknownSetting";
/// The condition of settings that take effect at the next start.
pub const WAITING: &str = "RestartPending";
/// The condition of a ConfigMap that may not be read.
pub const UNREAD: &str = "SettingsNotRead";

/// Reports as conditions.
#[derive(Debug, Clone)]
pub struct Reporter {
    conditions: Conditions,
    program: Program,
    namespace: String,
}

impl Reporter {
    /// Returns a reporter of a program in this namespace.
    pub fn new(conditions: Conditions, program: Program, namespace: &str) -> Self {
        Self { conditions, program, namespace: namespace.to_owned() }
    }

    /// Reports what became of a change, and that the object can be read.
    pub fn taken(&self, taken: &Taken) {
        self.conditions.put(UNREAD, Severity::Info, "", None);
        let entries = |is_unknown: bool| -> Vec<(String, String)> {
            let problems = taken.problems.iter().filter(|problem| problem.is_unknown == is_unknown);
            problems.map(|problem| (problem.key.clone(), sentence(problem))).collect()
        };
        self.conditions.replace(REFUSED, Severity::Warning, &entries(false));
        self.conditions.replace(UNKNOWN, Severity::Warning, &entries(true));
        let keys: Vec<&str> = taken.waiting.iter().copied().collect();
        let waiting = (!keys.is_empty()).then(|| {
            format!(
                "{} of ConfigMap {OBJECT} take effect at the next start (kubectl -n {} rollout restart daemonset/{})",
                keys.join(", "),
                self.namespace,
                self.program.daemon_set()
            )
        });
        self.conditions.put(WAITING, Severity::Info, "", waiting);
    }

    /// Reports that the object cannot be read.
    pub fn unread(&self, reason: &str) {
        let message = format!("{reason}; what was read before stays, and counts at the next start too");
        self.conditions.put(UNREAD, Severity::Info, "", Some(message));
    }
}

fn sentence(problem: &Problem) -> String {
    let in_force = match &problem.stays {
        Some(value) => format!("`{value}` stays in force"),
        None => "it has no effect".to_owned(),
    };
    format!("{}: {}; {in_force} (ConfigMap {OBJECT})", problem.key, problem.problem)
}

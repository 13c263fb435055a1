//! What is looked at before anything is changed. Every check is a function of what was read; all of them run, so that
//! a cluster with three faults is told of three.

mod identity;
mod networks;
mod nodes;
mod requirements;
mod versions;

use trieste_control::steps::{Outcome, Steps};

pub use identity::{Membership, Registration, identity};
pub use networks::{Others, networks};
pub(crate) use nodes::VIRTUAL;
pub use nodes::{GatewayNodes, gateway_nodes, ports, virtual_nodes};
pub(crate) use requirements::POLICIES_SINCE;
pub use requirements::{
    Offer, active_gateways, cable, canonical, drivers, former_driver, globalnet, image, plugin, rights,
    version,
};
pub(crate) use versions::is_other_minor;
pub use versions::skew;

use crate::error::DeployError;

/// One thing that a check says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How it is meant.
    pub outcome: Outcome,
    /// What was found.
    pub text: String,
    /// What to do; empty if nothing.
    pub next: String,
}

impl Finding {
    /// As it should be.
    pub fn good(text: impl Into<String>) -> Self {
        Self { outcome: Outcome::Success, text: text.into(), next: String::new() }
    }

    /// Works, but somebody should look at it.
    pub fn suspect(text: impl Into<String>, next: impl Into<String>) -> Self {
        Self { outcome: Outcome::Warning, text: text.into(), next: next.into() }
    }

    /// Cannot work.
    pub fn bad(text: impl Into<String>, next: impl Into<String>) -> Self {
        Self { outcome: Outcome::Failure, text: text.into(), next: next.into() }
    }

    /// The same, as a doubt if the user wants to go on in spite of it.
    #[must_use]
    pub fn unless_ignored(self, is_ignored: bool) -> Self {
        if is_ignored && self.outcome == Outcome::Failure {
            return Self { outcome: Outcome::Warning, ..self };
        }
        self
    }

    /// What is found and what to do, in one text.
    pub fn line(&self) -> String {
        if self.next.is_empty() { self.text.clone() } else { format!("{}; {}", self.text, self.next) }
    }
}

/// Reports what the checks of one step have found, and ends the step.
///
/// # Errors
/// [`DeployError::Unmet`] with the failures, if there are any.
pub fn conclude(findings: &[Finding], steps: &mut dyn Steps) -> Result<(), DeployError> {
    for finding in findings {
        steps.remark(finding.outcome, &finding.line());
    }
    let is_failure = |finding: &&Finding| finding.outcome == Outcome::Failure;
    let failures: Vec<Finding> = findings.iter().filter(is_failure).cloned().collect();
    steps.end(if failures.is_empty() { Outcome::Success } else { Outcome::Failure });
    if failures.is_empty() { Ok(()) } else { Err(DeployError::Unmet(failures)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trieste_control::steps::Record;

    #[test]
    fn all_failures_are_reported_at_once() {
        let mut steps = Record::default();
        steps.begin("Checking");
        let findings = [Finding::good("a"), Finding::bad("b", "do c"), Finding::bad("d", "do e")];
        let error = conclude(&findings, &mut steps).unwrap_err();
        assert_eq!(error.to_string(), "nothing was changed: 2 of the checks before failed");
        assert_eq!(error.next(), "do c");
        assert_eq!(steps.steps[0].remarks.len(), 3);
        assert_eq!(steps.steps[0].outcome, Some(Outcome::Failure));
    }

    #[test]
    fn what_the_user_ignores_is_a_doubt() {
        assert_eq!(Finding::bad("b", "c").unless_ignored(true).outcome, Outcome::Warning);
        assert_eq!(Finding::good("b").unless_ignored(true).outcome, Outcome::Success);
    }
}

//! What is wrong at present, kept in one place for status, metrics and logs.
//!
//! A condition stands for as long as it is so: whoever finds something wrong sets it, and clears it when it is right
//! again. Setting what is set changes nothing, so that a loop may say it every time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;

use crate::admin::{Condition, Severity};

/// Most conditions that are kept. Ours: subjects come from objects that others write, and nobody reads more.
const MAX_CONDITIONS: usize = 256;

/// The present conditions, by name and subject. Cheap to clone; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Conditions {
    shared: Arc<Mutex<BTreeMap<(String, String), Condition>>>,
}

impl Conditions {
    /// No conditions.
    pub fn new() -> Self {
        Self::default()
    }

    /// Says that something is so. Logged when it is new or says something else than before.
    pub fn set(&self, name: &str, severity: Severity, subject: &str, message: impl Into<String>) {
        let message = message.into();
        let mut conditions = self.lock();
        let key = (name.to_owned(), subject.to_owned());
        if let Some(known) = conditions.get_mut(&key) {
            if known.message != message || known.severity != severity {
                known.message.clone_from(&message);
                known.severity = severity;
                log(name, severity, subject, &message);
            }
            return;
        }
        if conditions.len() >= MAX_CONDITIONS {
            return;
        }
        log(name, severity, subject, &message);
        let condition = Condition {
            name: name.to_owned(),
            severity,
            subject: subject.to_owned(),
            message,
            since: Timestamp::now(),
        };
        conditions.insert(key, condition);
    }

    /// Says that something is no longer so. Gives `true` if it was.
    pub fn clear(&self, name: &str, subject: &str) -> bool {
        let gone = self.lock().remove(&(name.to_owned(), subject.to_owned())).is_some();
        if gone {
            tracing::info!(condition = name, subject, "no longer so");
        }
        gone
    }

    /// Sets or clears, by whether there is a message.
    pub fn put(&self, name: &str, severity: Severity, subject: &str, message: Option<String>) {
        match message {
            Some(message) => self.set(name, severity, subject, message),
            None => drop(self.clear(name, subject)),
        }
    }

    /// Says what is so under one name, for all subjects: what is not in the list is no longer so.
    pub fn replace(&self, name: &str, severity: Severity, entries: &[(String, String)]) {
        let subjects: BTreeSet<&str> = entries.iter().map(|(subject, _)| subject.as_str()).collect();
        let gone: Vec<String> = self
            .lock()
            .keys()
            .filter(|(known, subject)| known == name && !subjects.contains(subject.as_str()))
            .map(|(_, subject)| subject.clone())
            .collect();
        for subject in gone {
            self.clear(name, &subject);
        }
        for (subject, message) in entries {
            self.set(name, severity, subject, message.as_str());
        }
    }

    /// All of them, by name and subject.
    pub fn list(&self) -> Vec<Condition> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<(String, String), Condition>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn log(name: &str, severity: Severity, subject: &str, message: &str) {
    match severity {
        Severity::Info => tracing::info!(condition = name, subject, "{message}"),
        Severity::Warning => tracing::warn!(condition = name, subject, "{message}"),
        Severity::Error => tracing::error!(condition = name, subject, "{message}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_keeps_its_age_while_it_lasts() {
        let conditions = Conditions::new();
        conditions.set("NoAddress", Severity::Warning, "Node a", "first");
        let since = conditions.list()[0].since;
        conditions.set("NoAddress", Severity::Error, "Node a", "second");
        let now = &conditions.list()[0];
        assert_eq!((now.since, now.message.as_str(), now.severity), (since, "second", Severity::Error));
        assert!(conditions.clear("NoAddress", "Node a"));
        assert!(!conditions.clear("NoAddress", "Node a"));
        assert!(conditions.list().is_empty());
    }

    #[test]
    fn replacing_a_name_leaves_other_names_alone() {
        let conditions = Conditions::new();
        conditions.set("Other", Severity::Info, "x", "stays");
        let entry = |subject: &str| (subject.to_owned(), "message".to_owned());
        conditions.replace("Refused", Severity::Warning, &[entry("b"), entry("c")]);
        conditions.replace("Refused", Severity::Warning, &[entry("c"), entry("d")]);
        let subjects: Vec<_> = conditions.list().into_iter().map(|c| (c.name, c.subject)).collect();
        let expected = [("Other", "x"), ("Refused", "c"), ("Refused", "d")];
        assert_eq!(subjects, expected.map(|(name, subject)| (name.to_owned(), subject.to_owned())));
    }

    #[test]
    fn there_is_a_bound() {
        let conditions = Conditions::new();
        for index in 0..10_000 {
            conditions.set("Many", Severity::Info, &index.to_string(), "m");
        }
        assert_eq!(conditions.list().len(), MAX_CONDITIONS);
    }
}

//! The present problems, kept in one place for status, metrics and logs.
//!
//! A condition stands for as long as it is so: the code that finds a problem sets it, and clears it when it is right
//! again. Setting what is set changes nothing, so that a loop may say it every time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;

use crate::admin::{Condition, Severity};

/// Most conditions of one name that are kept. Ours: subjects come from objects that others write, and nobody reads more.
const MAX_SUBJECTS: usize = 32;
/// The subject that stands for those that are not kept.
const OTHERS: &str = "others";

/// The present conditions, by name and subject. Cheap to clone; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Conditions {
    shared: Arc<Mutex<BTreeMap<(String, String), Condition>>>,
}

impl Conditions {
    /// Creates an empty set of conditions.
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
        // Bounded by name, so that a flood of one kind hides none of another.
        if conditions.keys().filter(|(known, _)| known == name).count() >= MAX_SUBJECTS {
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

    /// Says what is so under one name, for all subjects: what is not in the list is no longer so. Of a long list the
    /// first stand for the rest, which are counted.
    pub fn replace(&self, name: &str, severity: Severity, entries: &[(String, String)]) {
        let kept = if entries.len() > MAX_SUBJECTS { MAX_SUBJECTS - 1 } else { entries.len() };
        let (entries, others) = entries.split_at(kept);
        let subjects: BTreeSet<&str> = entries.iter().map(|(subject, _)| subject.as_str()).collect();
        let gone: Vec<String> = self
            .lock()
            .keys()
            .filter(|(known, subject)| known == name && !subjects.contains(subject.as_str()))
            .map(|(_, subject)| subject.clone())
            .collect();
        for subject in gone.iter().filter(|subject| *subject != OTHERS || others.is_empty()) {
            self.clear(name, subject);
        }
        for (subject, message) in entries {
            self.set(name, severity, subject, message.as_str());
        }
        if !others.is_empty() {
            self.set(name, severity, OTHERS, format!("and {} more", others.len()));
        }
    }

    /// Returns all conditions, by name and subject.
    pub fn list(&self) -> Vec<Condition> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<(String, String), Condition>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn log(name: &str, severity: Severity, subject: &str, message: &str) {
    match severity {
        Severity::Info => tracing::info!(condition = name, subject, reason = %message, "condition set"),
        Severity::Warning => tracing::warn!(condition = name, subject, reason = %message, "condition set"),
        Severity::Error => tracing::error!(condition = name, subject, reason = %message, "condition set"),
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
    fn a_flood_of_one_name_is_bounded_counted_and_hides_no_other() {
        let conditions = Conditions::new();
        let flood: Vec<_> = (0..10_000).map(|index| (format!("{index:05}"), "m".to_owned())).collect();
        conditions.replace("Many", Severity::Info, &flood);
        conditions.set("StoreAway", Severity::Warning, "", "gone");
        let list = conditions.list();
        assert_eq!(list.len(), MAX_SUBJECTS + 1);
        assert!(list.iter().any(|condition| condition.message == "and 9969 more"), "{list:?}");
        assert!(list.iter().any(|condition| condition.name == "StoreAway"));
        conditions.replace("Many", Severity::Info, &flood[..1]);
        assert_eq!(conditions.list().len(), 2);
    }
}

//! Rules for translation come and go; sessions of the process before are taken over with the first ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use trieste_nat::Record;
use trieste_packet::WorkerId;

use super::Engine;
use crate::tables::{Translation, owner_of};
use crate::worker::{Command, Restore};

impl Engine {
    /// Sets the sessions to restore as soon as there are rules.
    pub fn set_sessions(&mut self, records: Vec<Record>) {
        self.sessions = records;
    }

    /// Translates by other rules, or not at all. Sessions that the rules still allow go on. Rules that are only `remembered`
    /// may not allow all sessions that they should: those of now are asked as well.
    pub async fn set_translation(&mut self, translation: Option<Arc<Translation>>, remembered: bool) {
        if let Some(translation) = &translation {
            let records = if remembered { self.sessions.clone() } else { std::mem::take(&mut self.sessions) };
            // A gateway that is ready has received their present state.
            if !self.membership().is_ready() {
                self.restore(records, translation);
            }
            // Before there are tables with rules, no packet can begin a session in the place of one of these.
            self.settle().await;
        }
        self.local.translation = translation;
        self.publish();
    }

    /// Discards the sessions to restore that no rules have allowed so far.
    pub fn discard_unrestored(&mut self) {
        self.sessions = Vec::new();
    }

    /// Returns the rules of translation.
    #[must_use]
    pub fn translation(&self) -> Option<&Arc<Translation>> {
        self.local.translation.as_ref()
    }

    /// Hands each worker the sessions that are its own; there may be another number of workers than before.
    fn restore(&self, records: Vec<Record>, translation: &Translation) {
        let mut shares: BTreeMap<WorkerId, Vec<Record>> = BTreeMap::new();
        for record in records {
            shares.entry(owner_of(&translation.rules, &record)).or_default().push(record);
        }
        for (owner, records) in shares {
            let Some(worker) = self.workers.iter().find(|worker| worker.id == owner) else { continue };
            tracing::info!(worker = owner.0, sessions = records.len(), "sessions are restored");
            worker.command(Command::Restore(Restore { records, rules: Arc::clone(&translation.rules) }));
        }
    }
}

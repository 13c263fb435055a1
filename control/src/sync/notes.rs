//! What we wrote, so that its echo is recognised.

use std::collections::{BTreeMap, BTreeSet};

use super::name::Name;
use super::plan::Side;
use crate::api::Kind;

/// Ours: how many of our own versions a watch may lag behind. Beyond it an echo costs a lost race.
const MAX_LAG: usize = 64;

/// Our newest write of each object, as far as it matters.
#[derive(Debug, Default)]
pub(super) struct Notes {
    notes: BTreeMap<(Side, Name), Note>,
}

#[derive(Debug, Default)]
struct Note {
    /// The version of the source that was copied, and the version that the store made of it. A store that prunes
    /// unknown fields makes something else of it than was written, every time.
    written: Option<(String, String)>,
    /// Versions that our writes have replaced, oldest first: the watch has still to deliver some of them.
    superseded: Vec<String>,
    /// Whether a write is under way, and whether the watch had news of the object since it was started.
    is_in_flight: bool,
    has_news: bool,
}

impl Notes {
    /// A write is being started.
    pub(super) fn start(&mut self, side: Side, name: &Name) {
        let note = self.notes.entry((side, name.clone())).or_default();
        (note.is_in_flight, note.has_news) = (true, false);
    }

    /// A write that replaced version `old` has succeeded. Gives `true` if its result is the newest that is known.
    pub(super) fn finish(
        &mut self,
        side: Side,
        name: &Name,
        old: Option<String>,
        written: Option<(String, String)>,
    ) -> bool {
        let note = self.notes.entry((side, name.clone())).or_default();
        note.is_in_flight = false;
        note.written = written;
        if note.has_news {
            // The watch is past what we replaced.
            note.superseded.clear();
        } else {
            note.superseded.extend(old);
            if note.superseded.len() > MAX_LAG {
                note.superseded.remove(0);
            }
        }
        let is_newest = !note.has_news;
        self.tidy(side, name);
        is_newest
    }

    /// A write has failed.
    pub(super) fn abandon(&mut self, side: Side, name: &Name) {
        if let Some(note) = self.notes.get_mut(&(side, name.clone())) {
            note.is_in_flight = false;
            self.tidy(side, name);
        }
    }

    /// The watch has said something of the object; `is_news` if it was not known already.
    pub(super) fn hear(&mut self, side: Side, name: &Name, is_news: bool) {
        if let Some(note) = self.notes.get_mut(&(side, name.clone())) {
            note.has_news |= is_news;
            // Watches deliver in order: whatever we replaced is behind us.
            note.superseded.clear();
            self.tidy(side, name);
        }
    }

    /// Whether a version is one that our writes have replaced.
    pub(super) fn is_superseded(&self, side: Side, name: &Name, version: Option<&str>) -> bool {
        let Some(note) = self.notes.get(&(side, name.clone())) else { return false };
        version.is_some_and(|version| note.superseded.iter().any(|old| old == version))
    }

    /// Whether the store has made version `target` of our copy of version `source`.
    pub(super) fn is_written(
        &self,
        side: Side,
        name: &Name,
        source: Option<&str>,
        target: Option<&str>,
    ) -> bool {
        let note = self.notes.get(&(side, name.clone()));
        note.and_then(|note| note.written.as_ref())
            .is_some_and(|(from, to)| source == Some(from.as_str()) && target == Some(to.as_str()))
    }

    /// The object is gone.
    pub(super) fn forget(&mut self, side: Side, name: &Name) {
        if let Some(note) = self.notes.get_mut(&(side, name.clone())) {
            *note = Note { is_in_flight: note.is_in_flight, has_news: true, ..Note::default() };
            self.tidy(side, name);
        }
    }

    /// Forgets what a complete list does not have.
    pub(super) fn keep_listed(&mut self, side: Side, kind: Kind, listed: &BTreeSet<Name>) {
        let is_gone = |(of, name): &&(Side, Name)| *of == side && name.kind == kind && !listed.contains(name);
        let gone: Vec<Name> = self.notes.keys().filter(is_gone).map(|(_, name)| name.clone()).collect();
        gone.iter().for_each(|name| self.forget(side, name));
    }

    fn tidy(&mut self, side: Side, name: &Name) {
        let key = (side, name.clone());
        let is_void =
            |note: &Note| !note.is_in_flight && note.written.is_none() && note.superseded.is_empty();
        if self.notes.get(&key).is_some_and(is_void) {
            self.notes.remove(&key);
        }
    }
}

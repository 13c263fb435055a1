//! Which settings are in force in a program. Pure.

use std::collections::BTreeSet;

use super::read::{Data, not_here, shown};
use super::table::{Effect, Program, find};

/// Why a program does not take a set of values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The key at fault, if that is known.
    pub key: Option<String>,
    /// The problem, and valid values.
    pub problem: String,
}

/// A setting that has no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Its key.
    pub key: String,
    /// The value, and which ones there are; or why there is no such setting.
    pub problem: String,
    /// The value that stays in force, if one was set before.
    pub stays: Option<String>,
    /// Whether there is no such setting.
    pub is_unknown: bool,
}

/// What a start goes by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Read {
    /// The values that were in force before the start.
    pub before: Data,
    /// The entries of the ConfigMap; the same as before where it could not be read.
    pub data: Data,
}

/// What became of a change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taken {
    /// Whether values are in force now that were not before, or are no more, of settings that take effect at once.
    pub has_changed: bool,
    /// What has no effect.
    pub problems: Vec<Problem>,
    /// The settings that take effect at the next start.
    pub waiting: BTreeSet<&'static str>,
}

/// The settings of one program: those in force, and those that it was started with.
#[derive(Debug, Clone)]
pub struct Standing {
    program: Program,
    started: Data,
    in_force: Data,
}

impl Standing {
    /// Returns those of a program that starts with what was read, and in the place of values that cannot be with those that were in
    /// force before; and the configuration with them. `compose` is as in [`Self::take`].
    ///
    /// # Errors
    /// What a start without settings is refused for.
    pub fn at_start<C>(
        program: Program,
        read: &Read,
        mut compose: impl FnMut(&Data) -> Result<C, Refusal>,
    ) -> Result<(Self, Taken, C), Refusal> {
        let mut standing = Self { program, started: Data::new(), in_force: Data::new() };
        standing.take(&read.before, &mut compose);
        let (taken, config) = standing.take(&read.data, &mut compose);
        standing.started.clone_from(&standing.in_force);
        let config = config.map_or_else(|| compose(&standing.in_force), Ok)?;
        Ok((standing, Taken { waiting: BTreeSet::new(), ..taken }, config))
    }

    /// Takes what the ConfigMap says. A value that cannot be is not taken, and the one before it stays; `compose` puts values
    /// together with what is otherwise configured, or refuses them. Returns the configuration with the values in force too, unless
    /// even those before are refused.
    pub fn take<C>(
        &mut self,
        data: &Data,
        mut compose: impl FnMut(&Data) -> Result<C, Refusal>,
    ) -> (Taken, Option<C>) {
        let mut problems = Vec::new();
        let mut wanted = Data::new();
        for (key, value) in data {
            let checked = match find(key) {
                None => Err((not_here(key), true)),
                Some(setting) if !setting.programs.contains(&self.program) => continue,
                Some(setting) => setting.form.check(value).map_err(|problem| (problem, false)),
            };
            match checked {
                Ok(()) => drop(wanted.insert(key.clone(), value.clone())),
                Err((problem, is_unknown)) => self.keep(key, problem, is_unknown, &mut wanted, &mut problems),
            }
        }
        let config = self.settle(&mut wanted, &mut problems, &mut compose);
        let has_changed = has_other(&self.in_force, &wanted, Effect::Live);
        self.in_force = wanted;
        (Taken { has_changed, problems, waiting: self.waiting() }, config)
    }

    /// Returns the values in force, of what takes effect at the next start too.
    pub fn in_force(&self) -> &Data {
        &self.in_force
    }

    /// Goes back to what was in force until the program takes it.
    fn settle<C>(
        &self,
        wanted: &mut Data,
        problems: &mut Vec<Problem>,
        compose: &mut impl FnMut(&Data) -> Result<C, Refusal>,
    ) -> Option<C> {
        // Each round gives up one value at least.
        for _ in 0..=wanted.len() {
            let refusal = match compose(wanted) {
                Ok(config) => return Some(config),
                Err(refusal) => refusal,
            };
            let is_new = |key: &&String| wanted.get(*key) != self.in_force.get(*key);
            let named = refusal.key.as_ref().filter(|key| wanted.contains_key(*key)).filter(is_new);
            // Of several that may be at fault the one without which the rest can be.
            let is_alone = |key: &&String| compose(&self.without(wanted, key)).is_ok();
            let at_fault = named.or_else(|| wanted.keys().filter(is_new).find(is_alone));
            let Some(key) = at_fault.or_else(|| wanted.keys().find(is_new)).cloned() else { break };
            wanted.remove(&key);
            self.keep(&key, refusal.problem, false, wanted, problems);
        }
        let result = compose(wanted).map_err(|refusal| {
            // What was in force cannot be the reason: something else is.
            wanted.clone_from(&self.in_force);
            let key = refusal.key.unwrap_or_default();
            problems.push(Problem { key, problem: refusal.problem, stays: None, is_unknown: false });
        });
        result.ok()
    }

    /// Returns values with the one of a key that was in force before.
    fn without(&self, wanted: &Data, key: &String) -> Data {
        let mut others = wanted.clone();
        others.remove(key);
        others.extend(self.in_force.get(key).map(|value| (key.clone(), value.clone())));
        others
    }

    /// Keeps the value that was in force before.
    fn keep(
        &self,
        key: &str,
        problem: String,
        is_unknown: bool,
        wanted: &mut Data,
        problems: &mut Vec<Problem>,
    ) {
        let stays = self.in_force.get(key).cloned();
        wanted.extend(stays.iter().map(|value| (key.to_owned(), value.clone())));
        problems.push(Problem { key: shown(key), problem, stays, is_unknown });
    }

    fn waiting(&self) -> BTreeSet<&'static str> {
        let keys: BTreeSet<&String> = self.started.keys().chain(self.in_force.keys()).collect();
        let differs = |key: &&String| self.started.get(*key) != self.in_force.get(*key);
        let settings = keys.into_iter().filter(differs).filter_map(|key| find(key));
        settings.filter(|setting| setting.effect == Effect::Restart).map(|setting| setting.key).collect()
    }
}

/// Returns `true` if values of settings with this effect differ.
fn has_other(before: &Data, after: &Data, effect: Effect) -> bool {
    let of_effect = |data: &Data| -> Data {
        let is_meant = |key: &str| find(key).is_some_and(|setting| setting.effect == effect);
        data.iter()
            .filter(|(key, _)| is_meant(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    };
    of_effect(before) != of_effect(after)
}

//! The settings of a cluster's programs, as one ConfigMap says them: what can change while a program runs, changes then.
//!
//! ```text
//!   join, manifests, operator ─▶ ConfigMap trieste-settings ─▶ SettingsController ─▶ Standing ─┬─▶ what is in force
//!                                                              (on the runner)                 ├─▶ what is refused, and why
//!                                                                                              └─▶ what waits for a restart
//! ```
//!
//! [`SETTINGS`] is the one list of what there is: each with its values, the programs that read it, and whether it takes effect
//! at once. Who writes the ConfigMap checks values by it, and so does who reads it; what a value means together with others is
//! the program's to say ([`Standing::take`]).
//!
//! A flag goes before the ConfigMap, the ConfigMap before the environment: manifests set variables, and a setting that they
//! hide could not be changed.

mod controller;
mod form;
mod memory;
mod read;
mod report;
mod standing;
mod table;
#[cfg(test)]
mod tests;

pub use controller::{NAME, Seen, SettingsController, spawn};
pub use form::Form;
pub use memory::{at_start, remember, remove_file};
pub use read::{Data, OBJECT, data_of};
pub use report::{REFUSED, Reporter, UNKNOWN, UNREAD, WAITING};
pub use standing::{Problem, Read, Refusal, Standing, Taken};
pub use table::{ELSEWHERE, Effect, Program, SETTINGS, Setting, elsewhere, find};

/// Checks a value of a setting, whichever program reads it.
///
/// # Errors
/// Why there is no such setting, or which values it has, in a sentence.
pub fn check(key: &str, value: &str) -> Result<(), String> {
    match find(key) {
        Some(setting) => setting.form.check(value),
        None => Err(read::not_here(key)),
    }
}

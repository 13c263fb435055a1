//! Which network plugins something is for.

/// The network plugins that a driver serves, or a handler of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plugins {
    /// Those of these names.
    Named(&'static [&'static str]),
    /// All of them; of drivers, all that no other one serves.
    Others,
}

impl Plugins {
    /// Returns `true` if a plugin is among them.
    #[must_use]
    pub fn include(self, plugin: &str) -> bool {
        match self {
            Self::Named(names) => names.iter().any(|name| name.eq_ignore_ascii_case(plugin)),
            Self::Others => true,
        }
    }
}

//! The forms of values.

use std::fmt;

use serde_json::{Value, json};

use crate::logging;
use crate::parse::{Cidrs, parse_bool, words};

/// The longest value that is read, in bytes. Ours: the longest lists have a few hundred.
const LONGEST: usize = 4096;

/// The values that a setting has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `true` or `false`, in any of Go's forms.
    Bool,
    /// A number within these bounds, both of them included.
    Number {
        /// The least.
        least: u64,
        /// The most.
        most: u64,
        /// What is counted, for people.
        unit: &'static str,
    },
    /// One of these words.
    Word(&'static [&'static str]),
    /// Some of these words, separated by commas.
    Words(&'static [&'static str]),
    /// Networks, separated by commas.
    Cidrs,
    /// Texts, separated by commas, whose meaning is the program's.
    Texts,
    /// A text of up to so many bytes, whose meaning is the program's.
    Text(usize),
    /// A level of the log, or directives as `RUST_LOG` takes them.
    LogFilter,
}

impl Form {
    /// Checks a value.
    ///
    /// # Errors
    /// The value, and which ones there are, in a sentence.
    pub fn check(&self, value: &str) -> Result<(), String> {
        let shown: String = value.chars().take(64).collect();
        if value.len() > LONGEST {
            return Err(format!("`{shown}…` is longer than {LONGEST} bytes"));
        }
        let is_good = match self {
            // An empty variable is false; an empty setting is a mistake.
            Self::Bool => !value.is_empty() && parse_bool(value).is_ok(),
            Self::Number { least, most, .. } => {
                value.parse::<u64>().is_ok_and(|number| (*least..=*most).contains(&number))
            }
            Self::Word(all) => all.contains(&value),
            Self::Words(all) => words(value).all(|word| all.contains(&word)),
            Self::Cidrs => value.parse::<Cidrs>().is_ok(),
            Self::Texts => words(value).next().is_some(),
            Self::Text(longest) => !value.is_empty() && value.len() <= *longest,
            Self::LogFilter => logging::is_filter(value),
        };
        if is_good { Ok(()) } else { Err(format!("`{shown}` is not {self}")) }
    }

    /// Returns a checked value as the configuration file has it.
    pub fn json(&self, value: &str) -> Value {
        match self {
            Self::Bool => json!(parse_bool(value).unwrap_or_default()),
            Self::Number { .. } => json!(value.parse::<u64>().unwrap_or_default()),
            Self::Words(_) | Self::Cidrs | Self::Texts => json!(words(value).collect::<Vec<_>>()),
            Self::Word(_) | Self::Text(_) | Self::LogFilter => json!(value),
        }
    }
}

impl fmt::Display for Form {
    /// Writes what a value is, to follow `is not`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool => f.write_str("true or false"),
            Self::Number { least, most, unit: "" } => write!(f, "a number from {least} to {most}"),
            Self::Number { least, most, unit } => write!(f, "a number of {unit} from {least} to {most}"),
            Self::Word(all) => write!(f, "one of {}", all.join(", ")),
            Self::Words(all) => write!(f, "a list of {}, separated by commas", all.join(", ")),
            Self::Cidrs => f.write_str("a list of CIDRs such as 10.1.0.0/16, separated by commas"),
            Self::Texts => f.write_str("a list of words, separated by commas"),
            Self::Text(longest) => write!(f, "a text of 1 to {longest} bytes"),
            Self::LogFilter => f.write_str(
                "error, warn, info, debug, trace, or directives such as info,trieste_gateway=debug",
            ),
        }
    }
}

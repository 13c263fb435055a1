//! Errors of a configuration.

/// An error of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A key that must be there is not.
    #[error("{key} is missing: set it in the file, with --{key}, or with {variable}")]
    Missing {
        /// The key.
        key: &'static str,
        /// The environment variable that sets it.
        variable: &'static str,
    },
    /// A value does not fit.
    #[error("{key}: {problem}")]
    Invalid {
        /// The key.
        key: &'static str,
        /// The problem, and a valid value.
        problem: String,
    },
    /// The file could not be read or is not what it should be.
    #[error("configuration file {path}: {problem}")]
    File {
        /// The file.
        path: String,
        /// The problem.
        problem: String,
    },
}

/// Makes the error of a value that does not fit.
pub(super) fn invalid(key: &'static str, problem: impl Into<String>) -> ConfigError {
    ConfigError::Invalid { key, problem: problem.into() }
}

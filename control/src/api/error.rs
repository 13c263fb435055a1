//! The ways in which an object can be invalid.

use super::Kind;

/// An object does not have the shape or the values of its kind. Always the writer's fault, never the reader's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ApiError {
    /// A field is missing, has the wrong type, or a value that cannot be.
    #[error("field `{field}`: {reason}")]
    Field {
        /// Path from the object's root, such as `spec.subnets[1]`.
        field: String,
        /// The reason why it is invalid.
        reason: String,
    },
    /// The object is of another kind than the one asked for.
    #[error("expected kind {expected}, found {found}")]
    WrongKind {
        /// The kind asked for.
        expected: Kind,
        /// The object's kind.
        found: Kind,
    },
    /// The store has kept nothing of the object but who it is.
    #[error("{0}")]
    Withheld(String),
}

impl ApiError {
    /// Creates an error of a field. `field` is a path from the object's root. Both texts may hold what a peer wrote:
    /// control characters are escaped, and what is beyond a line of log is cut.
    pub fn field(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Field { field: printable(field.into()), reason: printable(reason.into()) }
    }

    /// Returns the path of the field at fault, if one is.
    pub fn field_path(&self) -> Option<&str> {
        match self {
            Self::Field { field, .. } => Some(field),
            Self::WrongKind { .. } | Self::Withheld(_) => None,
        }
    }

    /// Turns a deserialisation error into one that names the field, a missing field included.
    pub(crate) fn from_serde(error: &serde_path_to_error::Error<serde_json::Error>) -> Self {
        let path = error.path().to_string();
        let reason = error.inner().to_string();
        // serde reports a missing field at its parent; a reader wants the field itself.
        if let Some(name) = reason.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`')) {
            let field = if path == "." { name.to_owned() } else { format!("{path}.{name}") };
            return Self::field(field, "is missing");
        }
        Self::field(path, reason)
    }
}

/// Longest text in an error, in bytes.
const MAX_TEXT_LEN: usize = 300;

fn printable(text: String) -> String {
    if text.len() <= MAX_TEXT_LEN && !text.contains(char::is_control) {
        return text;
    }
    let mut shown = String::new();
    for c in text.chars() {
        if shown.len() >= MAX_TEXT_LEN {
            shown.push('…');
            break;
        }
        if c.is_control() { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_peer_wrote_cannot_fill_or_forge_a_log() {
        let error = ApiError::field(format!("spec.{}", "x".repeat(10_000)), "is `a\nERROR forged\u{1b}[2J`");
        assert!(error.field_path().unwrap().len() < 310);
        assert!(!error.to_string().contains(char::is_control), "{error}");
        assert!(error.to_string().contains("a\\nERROR forged"), "{error}");
    }
}

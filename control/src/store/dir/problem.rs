//! What is wrong with a file in the store.

use std::fmt;
use std::path::PathBuf;

/// A file that is not used, or not as it stands, and why.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileProblem {
    /// The file.
    pub path: PathBuf,
    /// The field at fault, as a path from the object's root; `None` when the file is no object at all.
    pub field: Option<String>,
    /// What is wrong.
    pub reason: String,
}

impl fmt::Display for FileProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.field {
            Some(field) => write!(f, "{}: field `{field}`: {}", self.path.display(), self.reason),
            None => write!(f, "{}: {}", self.path.display(), self.reason),
        }
    }
}

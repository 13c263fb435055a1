//! Errors of file operations.

use std::io;
use std::path::Path;

use crate::store::StoreError;
use crate::store::limits::MAX_OBJECTS;

/// Returns the error of an operation on a path that failed.
pub(super) fn unavailable(operation: &str, path: &Path, source: io::Error) -> StoreError {
    StoreError::Unavailable { operation: format!("{operation} {}", path.display()), source }
}

/// Returns why a directory is not read that has more of something than is taken in.
pub(super) fn too_many(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, format!("there are more than {MAX_OBJECTS} {what}"))
}

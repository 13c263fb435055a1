//! What a failed write of a further Endpoint means.

use crate::runner::{Failure, Write};
use crate::store::StoreError;

/// Returns what an error of a write calls for. A namespace that is not there is reported of what is to be made in it: it will
/// not be there soon.
pub(super) fn classify(write: &Write, error: &StoreError) -> Failure {
    match (write, error) {
        (Write::Create(_), StoreError::NotFound(_)) => Failure::Refused,
        _ => Failure::of(error),
    }
}

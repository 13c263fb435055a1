//! Bounds that every store has; docs/security.md lists them with those of each.

use super::decode::{MEMBER_OBJECT_BYTES, OBJECT_BYTES, too_large};
use super::quota::has_quota;
use super::size;
use crate::api::{ApiError, Object};

/// Most objects of one kind that are read from one store, and most files of a directory. Ours: twenty times the largest cluster
/// that we plan for.
pub(super) const MAX_OBJECTS: usize = 100_000;

/// Checks that an object takes no more memory than one of its kind may, so that a store gives it back whole.
///
/// # Errors
/// [`ApiError::Withheld`], with the field that takes most.
pub fn check_size(object: &Object) -> Result<(), ApiError> {
    let most = if has_quota(object.kind) { MEMBER_OBJECT_BYTES } else { OBJECT_BYTES };
    if size::of_object(object, most) <= most {
        return Ok(());
    }
    Err(ApiError::Withheld(too_large(size::heaviest(object, most), most)))
}

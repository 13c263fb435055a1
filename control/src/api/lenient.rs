//! Readings that Go's JSON allows and serde's default does not.

use serde::{Deserialize, Deserializer};

/// Reads `null` as the type's default: Go writes a nil slice or map as `null`.
pub(super) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

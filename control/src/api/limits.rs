//! How much an object may hold before we refuse to act on it. A broken peer can write through the broker whatever its
//! API server stores, 1.5 MB per object; all of these are far beyond what a cluster needs.

use std::collections::BTreeMap;

use super::ApiError;

/// Most CIDRs in one list: what an IPsec cable can negotiate, whose lists of traffic selectors have a count of one byte (RFC 7296
/// section 3.13).
pub const MAX_CIDRS: usize = 255;

/// Most addresses of one sort that a gateway may publish. Newer releases of upstream write two, one per family.
pub const MAX_ADDRESSES: usize = 8;

/// Most next hops of one route.
pub const MAX_NEXT_HOPS: usize = 64;

/// Most entries of `backend_config`.
pub const MAX_BACKEND_CONFIG: usize = 64;

/// Longest key of `backend_config`, in bytes.
pub const MAX_BACKEND_KEY_LEN: usize = 128;

/// Longest value of `backend_config`, in bytes.
pub const MAX_BACKEND_VALUE_LEN: usize = 4096;

/// Longest cable name, host name or driver name, in bytes: as long as a DNS name.
pub const MAX_TEXT_LEN: usize = 253;

/// Most ports of an imported service. Kubernetes allows as many in an EndpointSlice.
pub const MAX_SERVICE_PORTS: usize = 100;

/// Most addresses that an imported service has for the whole set: one per family.
pub const MAX_SERVICE_IPS: usize = 2;

/// Most clusters that export one service.
pub const MAX_EXPORTING_CLUSTERS: usize = 4096;

/// Checks the length of a list.
pub(super) fn check_list(field: &str, length: usize, most: usize) -> Result<(), ApiError> {
    if length > most {
        return Err(ApiError::field(field, format!("has {length} entries, must have at most {most}")));
    }
    Ok(())
}

/// Checks the length of a text, in bytes.
pub(super) fn check_text(field: &str, text: &str, most: usize) -> Result<(), ApiError> {
    if text.len() > most {
        return Err(ApiError::field(field, format!("has {} bytes, must have at most {most}", text.len())));
    }
    Ok(())
}

/// Checks the number and the lengths of a driver's settings.
pub(super) fn check_settings(field: &str, settings: &BTreeMap<String, String>) -> Result<(), ApiError> {
    check_list(field, settings.len(), MAX_BACKEND_CONFIG)?;
    settings.iter().try_for_each(|(key, value)| {
        let field = format!("{field}.{key}");
        if key.len() > MAX_BACKEND_KEY_LEN {
            let reason = format!("has a key of {} bytes, must have at most {MAX_BACKEND_KEY_LEN}", key.len());
            return Err(ApiError::field(field, reason));
        }
        check_text(&field, value, MAX_BACKEND_VALUE_LEN)
    })
}

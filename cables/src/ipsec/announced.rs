//! What an Endpoint with an IPsec cable has in its `backend_config`.

use crate::boundary::Site;

/// Key of `backend_config` by which Trieste gateways know each other.
pub const TRIESTE: &str = "trieste.ipsec";
/// Its value.
pub(super) const TRIESTE_VERSION: &str = "1";
/// Key of `backend_config` that says whether the gateway waits for others to begin (wireformat §4.2).
pub const PREFERRED_SERVER: &str = "preferred-server";

/// Returns `true` for an end that is a Trieste gateway.
pub(super) fn is_trieste(site: &Site) -> bool {
    site.backend_config.get(TRIESTE).is_some_and(|value| value == TRIESTE_VERSION)
}

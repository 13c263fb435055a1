//! The object with the networks of the own cluster, as it was seen last.

use trieste_control::api::Object;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Announcement {
    /// `None` if there is none, as far as is known.
    pub(super) object: Option<Object>,
    /// Whether it is still to be checked, or is not in force.
    pub(super) is_due: bool,
}

//! The definitions of our kinds.

use super::Manifest;
use super::names::{MANAGED_BY_LABEL, PART_OF_LABEL, TRIESTE, VERSION_LABEL};

/// The definitions of all kinds, as `trieste crds` prints them, with our labels.
pub fn definitions() -> Vec<Manifest> {
    let labels =
        [(PART_OF_LABEL, TRIESTE), (MANAGED_BY_LABEL, TRIESTE), (VERSION_LABEL, env!("CARGO_PKG_VERSION"))];
    let labelled = |definition| {
        let definition = Manifest::new(definition);
        labels.into_iter().fold(definition, |definition, (key, value)| definition.labelled(key, value))
    };
    trieste_control::api::crd::definitions().into_iter().map(labelled).collect()
}

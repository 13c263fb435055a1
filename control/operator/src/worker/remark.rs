//! What somebody should see to.

use trieste_control::steps::{Outcome, Record, Steps as _};

/// Adds warnings about what is wanted to the record of a pass.
pub(super) fn remark(warnings: &[String], steps: &mut Record) {
    if !warnings.is_empty() {
        steps.begin("Reading what is wanted");
    }
    warnings.iter().for_each(|text| steps.remark(Outcome::Warning, text));
}

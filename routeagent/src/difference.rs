//! Lists of objects that follow a newer version of themselves.

pub(crate) use trieste_reconcile::{Difference, differences, renew};

//! What a pass begins with, and what it is prepared with.

use std::collections::BTreeSet;

use ipnet::IpNet;

use super::reading::Reading;
use crate::driver::Memory;
use crate::grace::Grace;
use crate::notices::ListenerConfig;
use crate::plan::Plan;

/// How long networks stay closed that no longer have to be: those that nobody claims, and those of pods whose device is
/// gone. Of the latter the kernel's routes say nothing, since they could be of the former that became ours.
#[derive(Debug, Clone, Default)]
pub(super) struct Graces {
    pub(super) claims: Grace,
    pub(super) bridges: Grace,
}

/// Networks that stay closed without being desired.
#[derive(Debug, Clone, Default)]
pub(super) struct Lingering {
    pub(super) claims: BTreeSet<IpNet>,
    pub(super) bridges: BTreeSet<IpNet>,
}

/// What is known before a pass.
pub(super) struct Last {
    /// The network as the last pass left it.
    pub(super) left: Option<Reading>,
    /// Whether it is still like that.
    pub(super) is_unchanged: bool,
    /// What was desired.
    pub(super) memory: Option<Box<dyn Memory>>,
}

impl Last {
    /// Knows of nothing.
    pub(super) fn nothing() -> Self {
        Self { left: None, is_unchanged: false, memory: None }
    }
}

/// The results of preparing a pass.
pub(super) struct Prepared {
    pub(super) plan: Plan,
    pub(super) memory: Box<dyn Memory>,
    pub(super) reading: Reading,
    pub(super) listener: ListenerConfig,
    /// Whether the desired network may be another one than in the last pass.
    pub(super) is_new: bool,
    /// Whether the packet filter can be read, and so written.
    pub(super) has_filter: bool,
    /// Whether the kernel had the table of services; `None` if that could not be read.
    pub(super) had_services: Option<bool>,
    /// How much of what Submariner has left is to be removed; `None` if not all of it could be seen.
    pub(super) removed: Option<usize>,
}

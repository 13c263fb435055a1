//! Device settings below `/proc/sys/net`. The directory shows the network namespace of whoever opens it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::PortError;
use crate::hostnet::{Family, Sysctl};

const ROOT: &str = "/proc/sys";

/// Returns the values of those settings that exist.
pub(super) fn read(sysctls: &BTreeSet<Sysctl>) -> BTreeMap<Sysctl, u32> {
    let value = |sysctl: &Sysctl| std::fs::read_to_string(path(sysctl)).ok()?.trim().parse().ok();
    sysctls.iter().filter_map(|sysctl| Some((sysctl.clone(), value(sysctl)?))).collect()
}

/// Writes a setting.
pub(super) fn write(sysctl: &Sysctl, value: u32) -> Result<(), PortError> {
    std::fs::write(path(sysctl), value.to_string())
        .map_err(|source| PortError::Sysctl { path: sysctl.to_string(), source })
}

/// Says whether the kernel has a family at all.
pub(super) fn has_family(family: Family) -> bool {
    Path::new(ROOT).join("net").join(family.sysctl_name()).is_dir()
}

fn path(sysctl: &Sysctl) -> PathBuf {
    Path::new(ROOT).join(sysctl.to_string())
}

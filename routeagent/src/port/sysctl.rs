//! Device settings below `/proc/sys/net`. The directory shows the network namespace of the process that opens it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use trieste_control::privileges::{DEFAULT_PROC_SYS, PROC_SYS};

use super::PortError;
use crate::family::Family;
use crate::hostnet::Sysctl;

/// As often is a setting written that reads back differently: udev writes the settings of a new device as well.
const ATTEMPTS: u32 = 3;

/// The root of all settings.
pub(super) struct Sysctls {
    root: PathBuf,
}

impl Sysctls {
    /// Takes the root from the environment.
    pub(super) fn from_environment() -> Self {
        let root = std::env::var_os(PROC_SYS).filter(|root| !root.is_empty());
        Self { root: root.map_or_else(|| PathBuf::from(DEFAULT_PROC_SYS), PathBuf::from) }
    }

    /// Returns the values of those settings that exist.
    pub(super) fn read(&self, sysctls: &BTreeSet<Sysctl>) -> BTreeMap<Sysctl, u32> {
        sysctls.iter().filter_map(|sysctl| Some((sysctl.clone(), self.value(sysctl)?))).collect()
    }

    /// Writes a setting, and makes sure that it stays.
    pub(super) fn write(&self, sysctl: &Sysctl, value: u32) -> Result<(), PortError> {
        for _ in 0..ATTEMPTS {
            std::fs::write(self.path(sysctl), value.to_string())
                .map_err(|source| PortError::Sysctl { path: sysctl.to_string(), source })?;
            if self.value(sysctl) == Some(value) {
                return Ok(());
            }
        }
        Err(PortError::SysctlUndone { path: sysctl.to_string() })
    }

    /// Returns `true` if the kernel has a family at all.
    pub(super) fn has_family(&self, family: Family) -> bool {
        self.root.join("net").join(family.sysctl_name()).is_dir()
    }

    fn value(&self, sysctl: &Sysctl) -> Option<u32> {
        std::fs::read_to_string(self.path(sysctl)).ok()?.trim().parse().ok()
    }

    fn path(&self, sysctl: &Sysctl) -> PathBuf {
        self.root.join(sysctl.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_root_is_used_and_a_setting_without_device_is_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        let sysctls = Sysctls { root: directory.path().to_owned() };
        let setting = Sysctl::of(Family::V4, "eth0.7", "rp_filter");
        std::fs::create_dir_all(directory.path().join("net/ipv4/conf/eth0.7")).unwrap();

        sysctls.write(&setting, 2).unwrap();

        let missing = Sysctl::of(Family::V4, "eth1", "rp_filter");
        assert_eq!(sysctls.read(&[setting.clone(), missing].into()), [(setting, 2)].into());
        assert!(sysctls.has_family(Family::V4) && !sysctls.has_family(Family::V6));
    }
}

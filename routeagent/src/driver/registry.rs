//! All drivers, and which one serves a network plugin.

use super::Driver;
use super::calico::Calico;
use super::kubeproxy::KubeProxy;
use super::ovn::Ovn;

/// All drivers. The first one that serves a plugin is used; the last one serves every plugin.
pub static DRIVERS: [&dyn Driver; 3] = [&Ovn, &Calico, &KubeProxy];

/// Returns the driver for a network plugin, in any case of letters.
#[must_use]
pub fn serving(plugin: &str) -> &'static dyn Driver {
    let found = DRIVERS.into_iter().find(|driver| driver.plugins().include(plugin));
    found.unwrap_or(&KubeProxy)
}

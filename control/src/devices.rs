//! Names of network devices that upstream's programs and ours make on nodes. What those of VXLANs are is in `trieste_vxlan`.

use std::path::Path;

/// The gateway's own device, unless it is told another name.
pub const TUN: &str = "submariner";
/// The VXLAN device between a cluster's nodes.
pub const VX_DEVICE: &str = "vx-submariner";
/// The device of upstream's VXLAN cable; its Endpoints do not name it.
pub const UPSTREAM_VXLAN_CABLE: &str = "vxlan-tunnel";

/// Flags of a device's kind in `tun_flags` (`linux/if_tun.h`).
const IFF_TUN: u32 = 1;
const IFF_TAP: u32 = 2;

/// Where the kernel shows a network namespace's devices.
pub const DEVICES: &str = "/sys/class/net";

/// Checks that the gateway's device can have a name on this node. Of the default one, [`TUN`], nothing is asked: the gateway
/// takes it over from upstream's.
///
/// # Errors
/// A device of another kind has the name: whoever went on would send traffic for remote clusters through that.
pub fn check_tun_name(name: &str, devices: &Path) -> Result<(), String> {
    let device = devices.join(name);
    let is_tun = || {
        let text = std::fs::read_to_string(device.join("tun_flags")).unwrap_or_default();
        let flags = u32::from_str_radix(text.trim().trim_start_matches("0x"), 16);
        flags.is_ok_and(|flags| flags & IFF_TUN != 0 && flags & IFF_TAP == 0)
    };
    if name == TUN || !device.exists() || is_tun() {
        return Ok(());
    }
    Err(format!(
        "`{name}` is a device of this node that is no TUN device; choose a name that is free on every node"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_free_a_tun_devices_or_refused() {
        let dir = tempfile::tempdir().unwrap();
        for device in ["eth0", TUN, "tun9", "tap0"] {
            std::fs::create_dir(dir.path().join(device)).unwrap();
        }
        std::fs::write(dir.path().join("tun9/tun_flags"), "0x5901\n").unwrap();
        std::fs::write(dir.path().join("tap0/tun_flags"), "0x1002\n").unwrap();
        for name in ["free", TUN, "tun9"] {
            assert_eq!(check_tun_name(name, dir.path()), Ok(()));
        }
        for name in ["eth0", "tap0"] {
            let error = check_tun_name(name, dir.path()).unwrap_err();
            assert!(error.starts_with(&format!("`{name}` is a device of this node")), "{error}");
        }
        // As the kernel shows it.
        assert!(check_tun_name("lo", Path::new(DEVICES)).is_err());
    }
}

//! Kernel settings, read below `/proc/sys/net` or where the container has the host's.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Names the root of settings; as for gateway and route agent.
const ROOT_VARIABLE: &str = "TRIESTE_PROC_SYS";
/// Ours: most devices whose settings are read. A node has one for each pod.
const MAX_DEVICES: usize = 1024;

/// Settings of the whole node.
const WHOLE: [&str; 6] = [
    "ipv4/ip_forward",
    "ipv4/conf/all/rp_filter",
    "ipv4/conf/default/rp_filter",
    "ipv6/conf/all/forwarding",
    "netfilter/nf_conntrack_count",
    "netfilter/nf_conntrack_max",
];
/// Settings of a device.
const PER_DEVICE: [&str; 4] = [
    "ipv4/conf/{}/rp_filter",
    "ipv4/conf/{}/forwarding",
    "ipv4/conf/{}/accept_local",
    "ipv6/conf/{}/forwarding",
];

/// The settings' root: what the environment says, else `/proc/sys`.
pub(super) fn root() -> PathBuf {
    std::env::var_os(ROOT_VARIABLE).map_or_else(|| PathBuf::from("/proc/sys"), PathBuf::from)
}

/// Reads what is there; what is not is left out.
pub(super) fn read<'a>(root: &Path, devices: impl Iterator<Item = &'a str>) -> BTreeMap<String, String> {
    let per_device = devices
        .filter(|name| !name.contains('/') && *name != "..")
        .take(MAX_DEVICES)
        .flat_map(|name| PER_DEVICE.map(|pattern| pattern.replace("{}", name)));
    let paths = WHOLE.map(str::to_owned).into_iter().chain(per_device);
    paths.filter_map(|path| Some((path.clone(), value(&root.join("net").join(&path))?))).collect()
}

fn value(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().chars().take(64).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_are_there_are_read() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("net/ipv4/conf/vx-submariner");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("rp_filter"), "2\n").unwrap();
        let found = read(root.path(), ["vx-submariner", "../..", "gone"].into_iter());
        let expected = ("ipv4/conf/vx-submariner/rp_filter".to_owned(), "2".to_owned());
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [expected]);
    }
}

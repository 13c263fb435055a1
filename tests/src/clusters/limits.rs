//! What the machine has to have left for nodes of Kubernetes.

use std::fs;
use std::path::Path;

use anyhow::Context;

/// The kernel's limit of inotify instances of one user.
const LIMIT: &str = "fs.inotify.max_user_instances";
/// Measured: kubelet six, containerd two, kube-proxy one, its pods none.
const PER_NODE: usize = 9;
/// Measured: the controllers five, the API server three.
const PER_CLUSTER: usize = 8;

/// Says whether there are inotify instances left for some clusters with some nodes in all. Without them kubelets and
/// pods fail one by one with `too many open files`, which nobody reads as what it is.
///
/// # Errors
/// If there are not, with the setting to change.
pub(super) fn check_inotify(clusters: usize, nodes: usize) -> anyhow::Result<()> {
    let path = Path::new("/proc/sys").join(LIMIT.replace('.', "/"));
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let limit = text.trim().parse().with_context(|| format!("{}: {text:?}", path.display()))?;
    judge(limit, in_use(), clusters * PER_CLUSTER + nodes * PER_NODE)
}

fn judge(limit: usize, in_use: usize, needed: usize) -> anyhow::Result<()> {
    anyhow::ensure!(
        in_use + needed <= limit,
        "these clusters need {needed} inotify instances, and {in_use} of {limit} are in use: wait until other clusters \
         on this machine are gone, or run `sysctl -w {LIMIT}={}`",
        (in_use + needed).next_power_of_two().max(512)
    );
    Ok(())
}

/// Of all processes; those that end meanwhile do not count.
fn in_use() -> usize {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.map(|process| instances(&process.path().join("fd"))).sum()
}

fn instances(descriptors: &Path) -> usize {
    let is_one = |link: &Path| fs::read_link(link).is_ok_and(|to| to.as_os_str() == "anon_inode:inotify");
    fs::read_dir(descriptors).into_iter().flatten().flatten().filter(|fd| is_one(&fd.path())).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_room_for_another_set_is_told_the_setting() {
        judge(128, 52, 52).unwrap();
        let error = judge(128, 100, 52).unwrap_err().to_string();
        assert!(error.contains("100 of 128 are in use"), "{error}");
        assert!(error.ends_with("`sysctl -w fs.inotify.max_user_instances=512`"), "{error}");
    }

    #[test]
    fn instances_are_counted() {
        let own = Path::new("/proc/self/fd");
        let before = instances(own);
        let _one = rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::CLOEXEC).unwrap();
        assert!(instances(own) > before);
    }
}

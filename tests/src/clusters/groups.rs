//! Control groups: each node gets a child of this process's own group in every hierarchy, so that kubelets do not see one
//! another and what a node uses is still accounted to whoever runs the tests.

use std::path::{Path, PathBuf};

use anyhow::Context;

/// The groups of one node.
#[derive(Debug, Clone)]
pub(super) struct Groups {
    /// Hierarchies as /proc names them, such as `memory` or `name=systemd`.
    pub(super) hierarchies: Vec<String>,
    /// The node's folder in each, in the same order.
    pub(super) folders: Vec<PathBuf>,
}

impl Groups {
    /// Names the groups of a node; makes nothing.
    ///
    /// # Errors
    /// If this machine has no hierarchies of version 1: the node's script mounts only those.
    pub(super) fn named(name: &str) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string("/proc/self/cgroup").context("/proc/self/cgroup")?;
        let (hierarchies, parents): (Vec<_>, Vec<_>) =
            parse(&text).into_iter().filter(|(_, folder)| folder.is_dir()).unzip();
        anyhow::ensure!(
            !hierarchies.is_empty(),
            "real clusters need control groups of version 1 at /sys/fs/cgroup; this machine has none"
        );
        let folders = parents.into_iter().map(|parent| parent.join(name)).collect();
        Ok(Self { hierarchies, folders })
    }

    /// Makes them.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(super) fn make(&self) -> anyhow::Result<()> {
        for (hierarchy, folder) in self.hierarchies.iter().zip(&self.folders) {
            let shown = || format!("making control group {}", folder.display());
            std::fs::create_dir_all(folder).with_context(shown)?;
            if hierarchy.split(',').any(|controller| controller == "cpuset") {
                fill_cpuset(folder).with_context(shown)?;
            }
        }
        Ok(())
    }
}

/// A set without processors or memory takes no process.
fn fill_cpuset(folder: &Path) -> anyhow::Result<()> {
    let parent = folder.parent().context("a group has a parent")?;
    for file in ["cpuset.cpus", "cpuset.mems"] {
        std::fs::write(folder.join(file), std::fs::read(parent.join(file))?)?;
    }
    Ok(std::fs::write(folder.join("cgroup.clone_children"), "1")?)
}

/// The hierarchies of version 1 in `/proc/self/cgroup`, each with this process's folder.
fn parse(text: &str) -> Vec<(String, PathBuf)> {
    let hierarchy = |line: &str| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let folder = controllers.strip_prefix("name=").unwrap_or(controllers);
        let root = Path::new("/sys/fs/cgroup").join(folder);
        (!controllers.is_empty()).then(|| (controllers.to_owned(), root.join(path.trim_start_matches('/'))))
    };
    text.lines().filter_map(hierarchy).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_of_version_one_are_read_with_their_folders() {
        let text = "9:name=systemd:/\n4:memory:/a/b\n2:cpu,cpuacct:/c\n0::/d\n";

        let found = parse(text);

        let expected = [
            ("name=systemd", "/sys/fs/cgroup/systemd/"),
            ("memory", "/sys/fs/cgroup/memory/a/b"),
            ("cpu,cpuacct", "/sys/fs/cgroup/cpu,cpuacct/c"),
        ];
        assert_eq!(found, expected.map(|(name, path)| (name.to_owned(), PathBuf::from(path))));
    }
}

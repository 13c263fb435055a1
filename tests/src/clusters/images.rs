//! The images of all nodes, imported once.
//!
//! An import hashes an archive twice and writes it twice: seven seconds of a processor for ours, which every node would spend
//! while all of them start. One containerd does it for all; what it has written becomes each node's by hard links.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;

use super::cluster::READY;
use super::programs::Programs;
use crate::command::Run;
use crate::daemon::Daemon;
use crate::lab::Lab;
use crate::wait::eventually;

/// The file that a node waits for, see `node.sh`.
const GIVEN: &str = "given";

/// Makes hard links of all that containerd has (`$1`) where a node's containerd expects it (`$2`), but copies of its databases,
/// which are written in place.
const GIVE: &str = r#"set -e
mkdir -p "$2"
cp -al "$1/." "$2"
cd "$1"
find . -name '*.db' | while read -r file; do cp --remove-destination "$file" "$2/$file"; done"#;

/// What a containerd has after it has imported all images.
#[derive(Debug)]
pub(super) struct Images {
    root: PathBuf,
    /// The files that were imported.
    archives: Vec<PathBuf>,
}

impl Images {
    /// Imports all archives of a folder of the lab.
    ///
    /// # Errors
    /// If containerd does not start, or refuses one.
    pub(super) fn import(lab: &Lab, programs: &Programs, folder: &Path) -> anyhow::Result<Self> {
        let own = lab.directory().join("containerd");
        std::fs::create_dir(&own)?;
        let (root, socket, config) = (own.join("root"), own.join("socket"), own.join("config.toml"));
        // Without what serves kubelets.
        let settings = format!(
            "version = 3\nroot = {root:?}\nstate = {:?}\ngrpc.address = {socket:?}\n\
             disabled_plugins = [\"io.containerd.grpc.v1.cri\", \"io.containerd.cri.v1.images\", \
             \"io.containerd.cri.v1.runtime\"]\n",
            own.join("state")
        );
        std::fs::write(&config, settings)?;
        let run = Run::new(programs.bin.join("containerd")).arg("-c").arg(&config);
        let containerd = Daemon::start(lab, "containerd-images", &run)?;
        let ctr = || {
            Run::new(programs.bin.join("ctr")).arg("-a").arg(&socket).args(["-n", "k8s.io"]).timeout(READY)
        };
        eventually("containerd to answer", READY, || {
            containerd.check()?;
            ctr().arg("version").timeout(Duration::from_secs(10)).finish()
        })?;
        let mut archives = Vec::new();
        for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
            let archive = entry?.path();
            let import = ctr().args(["images", "import"]).arg(&archive);
            import.stdout().with_context(|| format!("importing {}", archive.display()))?;
            archives.push(archive);
        }
        containerd.stop()?;
        Ok(Self { root, archives })
    }

    /// Gives them to a node whose containerd has not started yet.
    ///
    /// # Errors
    /// If its folder cannot be written.
    pub(super) fn give(&self, node: &Path) -> anyhow::Result<()> {
        let var = node.join("var/lib");
        let give = Run::new("sh").args(["-c", GIVE, "give"]).arg(&self.root).arg(var.join("containerd"));
        give.timeout(READY).stdout().with_context(|| format!("giving images to {}", node.display()))?;
        let imported = var.join("imported");
        std::fs::create_dir_all(&imported)?;
        let names = self.archives.iter().filter_map(|archive| archive.file_name());
        for mark in names.chain([GIVEN.as_ref()]) {
            std::fs::write(imported.join(mark), "")?;
        }
        Ok(())
    }
}

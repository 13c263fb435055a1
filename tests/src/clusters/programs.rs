//! Where the programs and images of the clusters are.

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::kubernetes::apiserver_path;

/// The folder of `node.sh` and the manifests.
const MODULE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/kubernetes");

/// What `tests/peers/kubernetes/build.sh` has built.
#[derive(Debug, Clone)]
pub(super) struct Programs {
    /// The programs.
    pub(super) bin: PathBuf,
    /// Images that every node has.
    pub(super) images: PathBuf,
    /// The container runtime of this machine.
    pub(super) runtime: PathBuf,
}

impl Programs {
    /// Looks for all of them.
    ///
    /// # Errors
    /// If something is not there: the error says how to get it.
    pub(super) fn find() -> anyhow::Result<Self> {
        let bin = apiserver_path()?.parent().context("the API server lies in a folder")?.to_owned();
        let images = bin.parent().context("the programs lie in a folder")?.join("images");
        anyhow::ensure!(images.is_dir(), "{} is not there: run ./dev deps", images.display());
        let runtime = ["/usr/sbin/runc", "/usr/bin/runc", "/usr/local/sbin/runc", "/usr/local/bin/runc"]
            .into_iter()
            .map(PathBuf::from)
            .find(|path| path.is_file())
            .context("runc is missing (Debian package runc): run ./dev deps")?;
        Ok(Self { bin, images, runtime })
    }

    /// Every Kubernetes component; the first argument chooses.
    pub(super) fn kubernetes(&self) -> PathBuf {
        self.bin.join("trieste-kubernetes")
    }
}

/// What runs as the first process of a node.
pub(super) fn node_script() -> PathBuf {
    Path::new(MODULE).join("node.sh")
}

/// The manifest of the cluster's DNS, with two places to fill in.
pub(super) const DNS_MANIFEST: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/peers/kubernetes/coredns.yaml"));

//! Clusters that are a cluster set: our image on their nodes, a broker, every cluster joined, by the commands that the
//! documentation shows.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use ipnet::IpNet;

use super::{Cluster, ClusterShape, Clusters};
use crate::cables;
use crate::command::{Output, Run};
use crate::image;
use crate::lab::Lab;
use crate::pages;
use crate::programs;

/// How long a join may take on a machine that is busy.
const JOIN: Duration = Duration::from_secs(240);

/// The page that these commands are taken from.
const INSTALL: &str = "install.md";

/// The namespace of a member's objects.
pub const MEMBER: &str = "submariner-operator";

/// Clusters that have joined one broker, which is the first of them.
#[derive(Debug)]
pub struct ClusterSet {
    /// The clusters.
    pub clusters: Clusters,
    image: PathBuf,
    folder: PathBuf,
    trieste: PathBuf,
}

impl ClusterSet {
    /// Clusters with our image on every node, and nothing of ours running.
    ///
    /// # Errors
    /// If they do not come up, or the image cannot be built.
    pub fn bare(lab: &Lab, shapes: &[ClusterShape]) -> anyhow::Result<Self> {
        let trieste = programs::path("trieste")?;
        let clusters = Clusters::up(lab, shapes, || Ok(image::of_programs()?.path))?;
        let image = image::of_programs()?.path;
        let folder = lab.directory().join("set");
        std::fs::create_dir_all(&folder)?;
        Ok(Self { clusters, image, folder, trieste })
    }

    /// The same with a broker in the first cluster, and every cluster joined to it.
    ///
    /// # Errors
    /// If one of the commands fails: its output is in the error.
    pub fn joined(lab: &Lab, shapes: &[ClusterShape]) -> anyhow::Result<Self> {
        let set = Self::bare(lab, shapes)?;
        set.deploy_broker()?;
        for cluster in set.clusters.all() {
            set.join(cluster)?;
        }
        Ok(set)
    }

    /// Runs a command as a page of the documentation shows it, found there by its beginning, with further flags; returns what
    /// it said. The context is the cluster's, whichever the page names.
    ///
    /// # Errors
    /// If the page does not show it, or it failed.
    pub fn follow(
        &self,
        cluster: &Cluster,
        page: &str,
        begins: &str,
        flags: &[&str],
    ) -> anyhow::Result<String> {
        let mut words = pages::command(&format!("docs/operations/{page}"), begins)?;
        if let Some(at) = words.iter().position(|word| word == "--context") {
            cluster.name().clone_into(words.get_mut(at + 1).context("a context without a name")?);
        }
        said(&self.trieste(cluster).args(&words[1..]).args(flags).timeout(JOIN).output()?)
    }

    /// Makes the first cluster the broker of a set without service discovery; returns what the command said.
    ///
    /// # Errors
    /// If it failed.
    pub fn deploy_broker(&self) -> anyhow::Result<String> {
        self.follow(
            &self.clusters.all()[0],
            INSTALL,
            "trieste deploy-broker",
            &["--components", "connectivity"],
        )
    }

    /// The same with service discovery.
    ///
    /// # Errors
    /// If it failed.
    pub fn deploy_broker_with_services(&self) -> anyhow::Result<String> {
        self.follow(&self.clusters.all()[0], INSTALL, "trieste deploy-broker", &[])
    }

    /// The same with Globalnet.
    ///
    /// # Errors
    /// If it failed.
    pub fn deploy_globalnet_broker(&self) -> anyhow::Result<String> {
        self.follow(&self.clusters.all()[0], "globalnet.md", "trieste deploy-broker --globalnet", &[])
    }

    /// Joins a cluster; returns what the command said. Its networks are named, since nothing in such a cluster says more
    /// of them than the share of each node; nobody outside can be asked for a public address.
    ///
    /// # Errors
    /// If it failed.
    pub fn join(&self, cluster: &Cluster) -> anyhow::Result<String> {
        self.join_over(cluster, &cables::driver())
    }

    /// The same with the cable driver that is to be used.
    ///
    /// # Errors
    /// If it failed.
    pub fn join_over(&self, cluster: &Cluster, driver: &str) -> anyhow::Result<String> {
        let pods = list(cluster.pod_nets());
        self.join_with(cluster, &["--air-gapped", "--clustercidr", &pods, "--cable-driver", driver])
    }

    /// The same with flags.
    ///
    /// # Errors
    /// If it failed.
    pub fn join_with(&self, cluster: &Cluster, flags: &[&str]) -> anyhow::Result<String> {
        let driver = cables::driver();
        let is_said = flags.contains(&"--cable-driver");
        let cable = ["--cable-driver", &driver];
        let cable = if is_said { &[][..] } else { &cable[..] };
        self.follow(cluster, INSTALL, "trieste join broker-info.subm", &[flags, cable].concat())
    }

    /// Takes a cluster out of the set, the broker's last; returns what the command said.
    ///
    /// # Errors
    /// If it failed.
    pub fn uninstall(&self, cluster: &Cluster) -> anyhow::Result<String> {
        self.follow(cluster, INSTALL, "trieste uninstall", &["--yes"])
    }

    /// `trieste`, to be given arguments, as the administrator of a cluster; it runs in a folder of its own.
    pub fn trieste(&self, cluster: &Cluster) -> Run {
        cluster.command("env").args(["-C", &self.folder.to_string_lossy()]).arg(&self.trieste)
    }

    /// The path of `trieste`.
    pub fn program(&self) -> &Path {
        &self.trieste
    }

    /// Where `deploy-broker` has put the join file.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The image that the nodes have.
    pub fn image(&self) -> &Path {
        &self.image
    }
}

fn list(networks: &[IpNet]) -> String {
    networks.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// What a command printed, on both its streams, also in the error if it failed.
fn said(output: &Output) -> anyhow::Result<String> {
    let text = format!("{}{}", output.stdout, output.stderr);
    anyhow::ensure!(output.status.success(), "{}:\n{text}", output.status);
    Ok(text)
}

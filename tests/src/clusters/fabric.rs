//! All clusters of a lab, and the network between them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;

use super::certificates::{self, Identity};
use super::cluster::Cluster;
use super::images::Images;
use super::limits;
use super::node::Surroundings;
use super::plan::{ClusterPlan, ClusterShape};
use super::programs::Programs;
use crate::command::Run;
use crate::lab::Lab;
use crate::netns::Namespace;

/// Real clusters, up and ready; nodes are powered off when this is dropped, the rest goes with the lab.
#[derive(Debug)]
pub struct Clusters {
    fabric: Namespace,
    kubeconfig: PathBuf,
    clusters: Vec<Cluster>,
}

impl Clusters {
    /// Builds them, at most one set in a lab, and waits until nodes and DNS are ready: some fifteen seconds. Every node has the
    /// image that `image` makes meanwhile, an archive.
    ///
    /// # Errors
    /// If a shape is impossible, something is not built or installed (the error says how), or does not get ready.
    pub fn up(
        lab: &Lab,
        shapes: &[ClusterShape],
        image: impl FnOnce() -> anyhow::Result<PathBuf> + Send,
    ) -> anyhow::Result<Self> {
        let programs = Programs::find()?;
        let images = lab.directory().join("images");
        share_images(&programs.images, &images)?;
        let mut plans = Vec::new();
        for (number, shape) in (1_u8..).zip(shapes) {
            plans.push(ClusterPlan::new(number, shape)?);
        }
        limits::check_inotify(shapes.len(), shapes.iter().map(|shape| usize::from(shape.nodes)).sum())?;
        let fabric = lab.namespace("fabric")?;
        fabric.sysctl(&[("ipv4/ip_forward", "1"), ("ipv6/conf/all/forwarding", "1")])?;
        let mut surroundings = Vec::new();
        for plan in plans {
            fabric.ip(&plan.bridge_lines())?;
            let folder = lab.directory().join(&plan.shape.name);
            certificates::make(&programs, &plan, &folder)?;
            surroundings.push(Arc::new(Surroundings {
                lab: lab.clone(),
                fabric: fabric.clone(),
                programs: programs.clone(),
                plan,
                folder,
                images: images.clone(),
            }));
        }
        let kubeconfig = lab.directory().join("kubeconfig");
        write_kubeconfigs(&surroundings, &kubeconfig)?;
        let give_images = || {
            let image = image()?;
            put_file(&image, &images.join(image.file_name().context("an archive has a name")?))?;
            let imported = Images::import(lab, &programs, &images)?;
            let nodes = surroundings.iter().flat_map(|shared| shared.node_folders());
            in_parallel(&nodes.collect::<Vec<_>>(), |node| imported.give(node))
        };
        let clusters = std::thread::scope(|scope| {
            let given = scope.spawn(give_images);
            let clusters = in_parallel(&surroundings, Cluster::up);
            // Nodes without images do not get ready: that is the cause then.
            given.join().map_err(|_| anyhow::anyhow!("importing images panicked"))??;
            clusters
        })?;
        Ok(Self { fabric, kubeconfig, clusters })
    }

    /// The network between the nodes: routers and a bridge for each cluster ([`Cluster::bridge`]). It reaches every API
    /// server and every node, and no pods.
    pub fn fabric(&self) -> &Namespace {
        &self.fabric
    }

    /// A kubeconfig with a context for each cluster, called as the cluster is; the first one is current. Its addresses
    /// are reachable from the fabric and from all nodes.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A program to run in the fabric with that kubeconfig.
    pub fn command(&self, program: impl AsRef<Path>) -> Run {
        self.fabric.run(&program.as_ref().to_string_lossy()).env("KUBECONFIG", &self.kubeconfig)
    }

    /// All of them, in the order asked for.
    pub fn all(&self) -> &[Cluster] {
        &self.clusters
    }

    /// The cluster of this name.
    ///
    /// # Panics
    /// If there is none: the caller asked for it.
    pub fn cluster(&self, name: &str) -> &Cluster {
        let cluster = self.clusters.iter().find(|cluster| cluster.name() == name);
        cluster.expect("the caller named a cluster of its own")
    }

    /// Imports an image into all nodes that are on, and into the others when they start. `path` is an archive (OCI or
    /// Docker layout), or a folder with an OCI layout.
    ///
    /// # Errors
    /// If it cannot be read or imported.
    pub fn load_image(&self, path: &Path) -> anyhow::Result<()> {
        let clusters: Vec<_> = self.clusters.iter().collect();
        in_parallel(&clusters, |cluster| cluster.load_image(path)).map(drop)
    }
}

/// The images that every node has lie beside those that tests add.
fn share_images(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::create_dir(to)
        .with_context(|| format!("making {} (a lab has one set of clusters)", to.display()))?;
    for entry in std::fs::read_dir(from).with_context(|| format!("listing {}", from.display()))? {
        let entry = entry?;
        put_file(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

/// The same file, or a copy where they are on different file systems.
pub(super) fn put_file(from: &Path, to: &Path) -> anyhow::Result<()> {
    if std::fs::hard_link(from, to).is_err() {
        std::fs::copy(from, to).with_context(|| format!("copying {} to {}", from.display(), to.display()))?;
    }
    Ok(())
}

/// One with the first cluster as current context, and one for each cluster with that as current.
fn write_kubeconfigs(all: &[Arc<Surroundings>], path: &Path) -> anyhow::Result<()> {
    let with_first = |first: usize| {
        let mut order: Vec<_> = (0..all.len()).collect();
        order.rotate_left(first);
        let identities: anyhow::Result<Vec<_>> =
            order.iter().map(|&at| Identity::administrator(&all[at].plan, &all[at].folder)).collect();
        certificates::kubeconfig(&identities?)
    };
    std::fs::write(path, with_first(0)?)?;
    for (number, shared) in all.iter().enumerate() {
        std::fs::write(shared.folder.join("kubeconfig"), with_first(number)?)?;
    }
    Ok(())
}

/// Does the same for all at once; the first error counts.
pub(super) fn in_parallel<I: Sync, T: Send>(
    items: &[I],
    work: impl Fn(&I) -> anyhow::Result<T> + Sync,
) -> anyhow::Result<Vec<T>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = items.iter().map(|item| scope.spawn(|| work(item))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, anyhow::Result<T>>| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().map(join).collect()
    })
}

impl Drop for Clusters {
    /// All nodes at once: one by one they would take a second each.
    fn drop(&mut self) {
        if self.clusters.first().is_some_and(|cluster| cluster.lab().is_kept()) {
            return;
        }
        let nodes: Vec<_> =
            self.clusters.iter().flat_map(Cluster::nodes).filter(|node| node.is_on()).collect();
        // What does not go is reported as the lab goes.
        let _ = in_parallel(&nodes, |node| node.kill());
    }
}

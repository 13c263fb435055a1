//! The container image: one file that `ctr`, `podman`, `skopeo`, `kind` and `docker` take, built without a daemon,
//! without root and without network.
//!
//! ```text
//!   contents ──▶ Tree "system"  ─┐            ┌─▶ blobs/sha256/…  (layers, configuration, manifest)
//!   (programs,   Tree "trieste" ─┴─▶ layer ───┼─▶ index.json, oci-layout      OCI image layout
//!    libraries,                     (tar,     └─▶ manifest.json               the form of `docker save`
//!    licences)                       gzip)        ... all of it in one tar
//! ```
//!
//! * [`contents`] — what is in the image; programs of the build machine, with the packages that they come from.
//! * [`libraries`] — which shared libraries a program needs, read from the files themselves; nothing is executed.
//! * [`debian`] — whose a file is: licence and package record.
//! * [`tree`] — files, links and directories of a layer, sorted. [`layer`] — a tree as a tar file.
//! * [`oci`] — the documents; [`archive`] — all in one file.
//!
//! The same inputs give the same bytes: everything is sorted, every time is zero, every owner is root.

#![forbid(unsafe_code)]

pub mod archive;
pub mod contents;
pub mod debian;
mod error;
pub mod layer;
pub mod libraries;
mod notices;
pub mod oci;
pub mod reference;
pub mod strip;
pub mod tree;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use error::Error;
pub use layer::Compression;
pub use reference::Reference;

/// What to build.
#[derive(Debug, Clone)]
pub struct Options {
    /// Directory with our programs, such as `target/dist`.
    pub binaries: PathBuf,
    /// The file to write. What is kept for the next time lies beside it.
    pub output: PathBuf,
    /// Under which name the image is loaded.
    pub reference: Reference,
    /// Whether debug information is left out of our programs; names of functions stay, for backtraces.
    pub strip: bool,
    /// How layers are compressed.
    pub compression: Compression,
    /// The workspace whose crates' licences are put in; `None` leaves them out, for images that stay here.
    pub notices: Option<PathBuf>,
}

impl Options {
    /// A release: stripped, compressed, with all licences.
    pub fn release(workspace: &Path, output: &Path, reference: Reference) -> Self {
        Self {
            binaries: workspace.join("target/dist"),
            output: output.to_owned(),
            reference,
            strip: true,
            compression: Compression::Gzip,
            notices: Some(workspace.to_owned()),
        }
    }

    /// For tests: quick to build and to load; stripped, since debug information is most of a debug build.
    pub fn quick(binaries: &Path, output: &Path, reference: Reference) -> Self {
        Self {
            binaries: binaries.to_owned(),
            output: output.to_owned(),
            reference,
            strip: true,
            compression: Compression::None,
            notices: None,
        }
    }
}

/// An image that was built.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Built {
    /// The file.
    pub path: PathBuf,
    /// Its length in bytes.
    pub bytes: u64,
    /// The name under which it is loaded.
    pub reference: String,
    /// Digest of the manifest, `sha256:…`: what a registry knows the image by.
    pub digest: String,
    /// Digest of the configuration, `sha256:…`: what container runtimes call the image's ID.
    pub image_id: String,
    /// The layers, lowest first.
    pub layers: Vec<layer::Summary>,
}

impl Built {
    /// Bytes that are pulled.
    pub fn compressed(&self) -> u64 {
        self.layers.iter().map(|layer| layer.compressed).sum()
    }

    /// Bytes of all layers unpacked, as tar.
    pub fn uncompressed(&self) -> u64 {
        self.layers.iter().map(|layer| layer.uncompressed).sum()
    }
}

/// Builds an image. Several may build at once; those with one output directory wait for one another.
///
/// # Errors
/// What is missing on this machine and how to get it, or the file that could not be read or written.
pub fn build(options: &Options) -> Result<Built, Error> {
    let directory = options.output.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or_else(|| Path::new("."));
    std::fs::create_dir_all(directory).map_err(Error::at("make", directory))?;
    let _turn = turn(directory)?;
    let programs = if options.strip {
        strip::all(&options.binaries, &contents::PROGRAMS, &directory.join("stripped"))?
    } else {
        contents::PROGRAMS.iter().map(|name| (*name, options.binaries.join(name))).collect()
    };
    let (system, architecture) = contents::system(&programs)?;
    let trees = [("system", system), ("trieste", contents::trieste(&programs, options.notices.as_deref())?)];
    let mut layers = Vec::new();
    for (name, tree) in trees {
        layers.push(layer::write(name, &tree, options.compression, directory)?);
    }
    let documents = oci::Documents::new(architecture, &options.reference, &layers);
    let bytes = archive::write(&options.output, &documents, &layers)?;
    Ok(Built {
        path: options.output.clone(),
        bytes,
        reference: options.reference.to_string(),
        digest: documents.manifest.digest(),
        image_id: documents.config.digest(),
        layers: layers.into_iter().map(|layer| layer.summary).collect(),
    })
}

/// The right to write into a directory, until it is dropped.
fn turn(directory: &Path) -> Result<std::fs::File, Error> {
    let path = directory.join(".lock");
    let failed = Error::at("lock", &path);
    let open = std::fs::File::options().create(true).write(true).truncate(false).open(&path);
    match open.and_then(|file| file.lock().map(|()| file)) {
        Ok(file) => Ok(file),
        Err(error) => Err(failed(error)),
    }
}

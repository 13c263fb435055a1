//! Why an image cannot be built.

use std::io;
use std::path::{Path, PathBuf};

/// Why an image cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or directory refuses.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// One of our programs is not there.
    #[error("{} is not built: run ./dev image, or cargo build --workspace --bins and name its directory", .0.display())]
    NotBuilt(PathBuf),
    /// A program of the system is not there.
    #[error(
        "{name} is not on this machine (looked in {}): install the Debian package {package}, or run ./dev image, which \
         does",
        looked.join(", ")
    )]
    NoProgram {
        /// The program.
        name: String,
        /// The package that has it.
        package: &'static str,
        /// Where it was looked for.
        looked: Vec<String>,
    },
    /// A shared library is not there.
    #[error(
        "{} needs the library {library}, which is in none of the loader's directories ({looked}): reinstall the \
         package that it belongs to", .by.display()
    )]
    NoLibrary {
        /// The library's name.
        library: String,
        /// Who needs it.
        by: PathBuf,
        /// Where it was looked for.
        looked: String,
    },
    /// A file is not what it should be.
    #[error("{} is not usable: {problem}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A file belongs to no package, so that its licence is unknown.
    #[error(
        "{} belongs to no Debian package: its licence is not known. Images are built on Debian and its derivatives, \
         from packages", .0.display()
    )]
    NoOwner(PathBuf),
    /// Two things want to be in one place.
    #[error(
        "two different things would be at /{0} in the image; one of them has to go from packaging/src/contents.rs"
    )]
    Conflict(String),
    /// The reference makes no sense.
    #[error("{reference:?} is no name for an image: {problem}. A good one is localhost/trieste:0.1.0")]
    Reference {
        /// What was given.
        reference: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// Another program failed.
    #[error("{program} failed: {problem}")]
    Program {
        /// The program.
        program: &'static str,
        /// What it said.
        problem: String,
    },
}

impl Error {
    /// For `map_err`: a file that refuses.
    pub(crate) fn at(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { what, path, source }
    }
}

//! Our container image, of the programs under test.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::Context;
use trieste_packaging::{Built, Options, Reference, build};

use crate::command::Run;
use crate::programs;

/// The image of the programs under test, named as the manifests name it: `target/<profile>/image/trieste.tar`. It is
/// built when this process first asks for it, which takes seconds; programs are stripped only when they have changed.
///
/// # Errors
/// If a program is not built, or this machine lacks a package; the error says which.
pub fn of_programs() -> anyhow::Result<Built> {
    static BUILT: Mutex<Option<Built>> = Mutex::new(None);
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(built) = &*built {
        return Ok(built.clone());
    }
    let directory = directory()?;
    let options = Options::quick(
        &directory,
        &directory.join("image/trieste.tar"),
        Reference::local(env!("CARGO_PKG_VERSION")),
    );
    Ok(built.insert(build(&options).context("building the image")?).clone())
}

/// Unpacks its layers into a directory, as a runtime would: a root file system.
///
/// # Errors
/// If the file cannot be read or the directory not be written.
pub fn unpack(built: &Built, root: &Path) -> anyhow::Result<()> {
    for layer in &built.layers {
        let member = format!("blobs/{}", layer.digest.replacen(':', "/", 1));
        let script = "tar -xOf \"$1\" \"$2\" | tar -C \"$3\" -xpf -";
        let run = Run::new("sh").args(["-c", script, "unpack"]).arg(&built.path).arg(member).arg(root);
        run.stdout().with_context(|| format!("unpacking the layer {}", layer.name))?;
    }
    Ok(())
}

fn directory() -> anyhow::Result<PathBuf> {
    let program = programs::path("trieste-gateway")?;
    Ok(program.parent().context("a program lies in a directory")?.to_owned())
}

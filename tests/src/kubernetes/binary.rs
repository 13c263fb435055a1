//! Where the API server's program is.

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::command::Run;

/// The variable in which `./dev` says where it is.
const VARIABLE: &str = "TRIESTE_APISERVER";

/// The folder of its sources; its `build.sh` is the one place that knows where a build belongs.
const MODULE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/kubernetes");

/// Returns where another program is that is built beside it, such as `coredns`.
///
/// # Errors
/// If it is not.
pub fn built(name: &str) -> anyhow::Result<PathBuf> {
    let path = path()?.with_file_name(name);
    anyhow::ensure!(path.is_file(), "{} is not built: run ./dev deps", path.display());
    Ok(path)
}

/// The program, built.
///
/// # Errors
/// If it is not.
pub(crate) fn path() -> anyhow::Result<PathBuf> {
    let path = match std::env::var_os(VARIABLE) {
        Some(path) => PathBuf::from(path),
        None => {
            let script = Path::new(MODULE).join("build.sh");
            let shown = Run::new("sh").arg(script).arg("path").stdout();
            shown
                .context("asking where the API server is built (needs Go; ./dev deps says more)")?
                .trim()
                .into()
        }
    };
    anyhow::ensure!(
        path.is_file(),
        "the API server {} is not built: run ./dev deps (about 11 minutes of processor time, once)",
        path.display()
    );
    Ok(path)
}

//! Where the programs under test are.

use std::path::{Path, PathBuf};

use anyhow::Context;

/// Returns the path of one of our programs: in the folder that `TRIESTE_BIN` names, or beside this program
/// (`target/debug`, `target/dist`), or for a test, whose own program Cargo may keep elsewhere (`build.build-dir`), in the
/// checkout's `target/debug`.
///
/// # Errors
/// If it is not there.
pub fn path(name: &str) -> anyhow::Result<PathBuf> {
    let candidates = match std::env::var_os("TRIESTE_BIN") {
        Some(folder) => vec![PathBuf::from(folder)],
        None => {
            let own = std::env::current_exe().context("finding this program's own folder")?;
            let folder = own.parent().context("this program lies in no folder")?;
            let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/debug");
            // Cargo links a program to where people look for it. Tests lie where it compiles.
            if folder.ends_with("deps") {
                vec![target, folder.join("..")]
            } else {
                vec![folder.to_owned(), target]
            }
        }
    };
    let paths = candidates.iter().map(|folder| folder.join(name)).collect::<Vec<_>>();
    let found = paths.iter().find(|path| path.is_file()).with_context(|| {
        format!(
            "{} is not built: run `cargo build --workspace --bins` (or ./dev test, ./dev demo)",
            paths[0].display()
        )
    })?;
    Ok(found.canonicalize()?)
}

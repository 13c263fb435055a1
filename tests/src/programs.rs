//! Where the programs under test are.

use std::path::PathBuf;

use anyhow::Context;

/// Returns the path of one of our programs: in the directory that `TRIESTE_BIN` names, or else beside this program
/// (`target/debug`, `target/dist`; tests lie one folder deeper).
///
/// # Errors
/// If it is not there.
pub fn path(name: &str) -> anyhow::Result<PathBuf> {
    let directory = match std::env::var_os("TRIESTE_BIN") {
        Some(directory) => PathBuf::from(directory),
        None => {
            let own = std::env::current_exe().context("finding this program's own folder")?;
            let folder = own.parent().context("this program lies in no folder")?;
            if folder.ends_with("deps") { folder.join("..").canonicalize()? } else { folder.to_owned() }
        }
    };
    let path = directory.join(name);
    anyhow::ensure!(
        path.is_file(),
        "{} is not built: run `cargo build --workspace --bins` (or ./dev test, ./dev demo)",
        path.display()
    );
    Ok(path)
}

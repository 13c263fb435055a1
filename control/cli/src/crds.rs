//! `trieste crds`: the definitions that an API server needs before it takes our objects.

use std::path::PathBuf;

use anyhow::Context;

use super::output::Output;
use trieste_control::api::crd;

#[derive(Debug, clap::Args)]
pub(super) struct CrdsArgs {
    /// Write one file per kind into this directory instead of printing
    #[arg(long, value_name = "PATH")]
    directory: Option<PathBuf>,

    /// Those of group operator.tkestack.io instead, for the operator's --tkestack-objects
    #[arg(long)]
    tkestack: bool,
}

pub(super) fn run(args: &CrdsArgs, output: &mut Output) -> anyhow::Result<()> {
    for file in if args.tkestack { crd::tkestack_files() } else { crd::files() } {
        match &args.directory {
            Some(directory) => {
                let path = directory.join(&file.name);
                std::fs::write(&path, &file.text)
                    .with_context(|| format!("cannot write {}; does the directory exist?", path.display()))?;
            }
            None => output.write(file.text.as_bytes())?,
        }
    }
    Ok(())
}

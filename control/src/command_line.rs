//! How the programs that run in pods read their flags and environment, and answer where upstream's tool asks.

mod options;

use std::ffi::{OsStr, OsString};

use clap::error::ErrorKind;
use clap::{ArgMatches, Command};

use crate::version::upstream_component;

pub use options::{LogOptions, StoreOptions};

/// Reads flags and environment. Under one of upstream's names (`argv[0]`) the command calls itself as upstream's tool
/// expects. An empty variable says nothing, since manifests set variables that they have nothing for; those of the
/// arguments with the IDs in `empty_texts` do, where the empty text is a text.
///
/// # Errors
/// The error of clap; [`refuse`] prints it.
pub fn matches(
    command: Command,
    arguments: impl IntoIterator<Item = OsString>,
    variable: impl Fn(&OsStr) -> Option<OsString>,
    empty_texts: &[&str],
) -> Result<ArgMatches, clap::Error> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let component = arguments.first().and_then(|program| upstream_component(program));
    let command = match component {
        Some(component) => command.name(component),
        None => command,
    };
    without_empty(command, &variable, empty_texts).try_get_matches_from(arguments)
}

/// Keeps a command and its subcommands from reading variables that are empty.
fn without_empty(
    command: Command,
    variable: &impl Fn(&OsStr) -> Option<OsString>,
    empty_texts: &[&str],
) -> Command {
    let command = command.mut_args(|argument| {
        let is_empty = argument.get_env().and_then(variable).is_some_and(|value| value.is_empty());
        let is_unset = is_empty && !empty_texts.contains(&argument.get_id().as_str());
        if is_unset { argument.env(None::<&'static str>) } else { argument }
    });
    command.mut_subcommands(|command| without_empty(command, variable, empty_texts))
}

/// Prints what clap says and ends the process. Under one of upstream's names the version is printed on standard error
/// also, where upstream's tool looks.
pub fn refuse(error: &clap::Error) -> ! {
    let is_upstreams = std::env::args_os().next().is_some_and(|name| upstream_component(&name).is_some());
    if error.kind() == ErrorKind::DisplayVersion && is_upstreams {
        eprint!("{error}");
    }
    error.exit()
}

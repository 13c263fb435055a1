//! How the programs that run in pods read their flags and environment, and answer where upstream's tool asks.

mod options;

use std::ffi::{OsStr, OsString};
use std::fmt;

use clap::error::{ContextKind, ErrorKind};
use clap::{ArgMatches, Command};

use crate::settings::{Data, Refusal};
use crate::version::upstream_component;

pub use options::{LogOptions, StoreOptions};

/// The words of a command line, among which there may be secrets: kept to read them again with settings.
#[derive(Clone, Default)]
pub struct Arguments(pub Vec<OsString>);

impl fmt::Debug for Arguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Arguments({})", self.0.len())
    }
}

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
    matches_with(command, arguments, variable, empty_texts, &Data::new())
}

/// Reads flags, settings and environment, of which the earlier win: as [`matches()`] does, and takes for a flag that nobody has
/// given the setting of its name, if there is one. Settings that no flag has are left out.
///
/// # Errors
/// The error of clap, also for a setting; [`refusal`] names it.
pub fn matches_with(
    command: Command,
    arguments: impl IntoIterator<Item = OsString>,
    variable: impl Fn(&OsStr) -> Option<OsString>,
    empty_texts: &[&str],
    settings: &Data,
) -> Result<ArgMatches, clap::Error> {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    let flags = command.get_arguments().filter_map(|argument| argument.get_long());
    let given = flags.filter_map(|flag| Some(OsString::from(format!("--{flag}={}", settings.get(flag)?))));
    let given: Vec<OsString> = given.collect();
    let has_settings = !given.is_empty();
    // The later of two wins: what was given on the command line.
    let first = arguments.len().min(1);
    arguments.splice(first..first, given);
    let command = if has_settings { command.args_override_self(true) } else { command };
    let component = arguments.first().and_then(|program| upstream_component(program));
    let command = match component {
        Some(component) => command.name(component),
        None => command,
    };
    without_empty(command, &variable, empty_texts).try_get_matches_from(arguments)
}

/// Returns an error of [`matches_with`] as the refusal of a setting: the flag that it is about, without its dashes, and its first line.
pub fn refusal(error: &clap::Error) -> Refusal {
    let named = error.get(ContextKind::InvalidArg).map(ToString::to_string);
    let name = named.as_deref().and_then(|text| text.trim_start_matches('-').split([' ', '=', '[']).next());
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    Refusal { key: name.map(str::to_owned), problem: line.strip_prefix("error: ").unwrap_or(line).to_owned() }
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

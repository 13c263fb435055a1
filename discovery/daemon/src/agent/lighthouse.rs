//! The program in the place of Lighthouse's agent: its name, its arguments in Go's form, its environment, its rights.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use clap::{CommandFactory as _, FromArgMatches as _};
use trieste_control::command_line;
use trieste_control::store::Location;

use super::config::Options;
use super::run;
use crate::go_flags;

/// What Lighthouse's program calls itself, as its tool reads it.
const COMPONENT: &str = "submariner-lighthouse-agent";

/// The arguments of Lighthouse's program that say anything here.
#[derive(Debug, Default, PartialEq, Eq)]
struct Arguments {
    kubeconfig: Option<PathBuf>,
    is_version: bool,
}

/// Returns whether a program was started as Lighthouse's (`argv[0]`).
#[must_use]
pub fn is_name(program: &OsStr) -> bool {
    let name = Path::new(program).file_name().and_then(OsStr::to_str);
    matches!(name, Some("lighthouse-agent" | "lighthouse-agent.sh"))
}

/// Runs the agent with Lighthouse's arguments. Upstream's account may write no Lease, and upstream's agent is one: there is no
/// election.
#[must_use]
#[expect(clippy::print_stdout, reason = "the version is what was asked for")]
pub fn main_with(arguments: &[OsString]) -> ExitCode {
    println!("{COMPONENT} version: v{}", env!("CARGO_PKG_VERSION"));
    let options = Arguments::parse(arguments)
        .and_then(|arguments| if arguments.is_version { Ok(None) } else { options(&arguments).map(Some) });
    match options {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(options)) => run::main_with(&options),
        Err(error) => {
            eprintln!("{COMPONENT}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn options(arguments: &Arguments) -> anyhow::Result<Options> {
    let matches =
        command_line::matches(Options::command(), [COMPONENT.into()], |name| std::env::var_os(name), &[])?;
    let mut options = Options::from_arg_matches(&matches)?;
    options.leader_election = false;
    if let Some(path) = &arguments.kubeconfig {
        options.common.store.store = Some(Location::Kube { path: Some(path.clone()), context: None });
    }
    Ok(options)
}

impl Arguments {
    fn parse(arguments: &[OsString]) -> anyhow::Result<Self> {
        let mut parsed = Self::default();
        go_flags::parse(arguments, |flag, given| {
            match flag {
                "kubeconfig" => {
                    parsed.kubeconfig = Some(given.text()?.into()).filter(|path| path != Path::new(""))
                }
                "version" => parsed.is_version = given.is_on(),
                "alsologtostderr" | "logtostderr" => {}
                // How much is logged is said by the environment, too.
                "master" | "v" => drop(given.text()?),
                _ => bail!("cannot use flag -{flag}: -kubeconfig and -version are known"),
            }
            Ok(())
        })?;
        Ok(parsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_gos() {
        let parse =
            |arguments: &[&str]| Arguments::parse(&arguments.iter().map(OsString::from).collect::<Vec<_>>());
        let kubeconfig = Some("/k".into());
        let expected = Arguments { kubeconfig, is_version: false };
        assert_eq!(parse(&["-v=2", "-alsologtostderr", "--kubeconfig", "/k"]).unwrap(), expected);
        assert!(parse(&["-version"]).unwrap().is_version);
        assert!(parse(&["-kubeconfig"]).is_err() && parse(&["x"]).is_err() && parse(&["-x"]).is_err());
        assert!(
            is_name(OsStr::new("/usr/local/bin/lighthouse-agent.sh"))
                && !is_name(OsStr::new("trieste-discovery"))
        );
    }
}

//! The program in the place of Lighthouse's DNS server: its name, its arguments in Go's form, its environment and its
//! Corefile.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{CommandFactory as _, FromArgMatches as _};
use trieste_control::command_line;
use trieste_control::logging;
use trieste_control::store::Location;

use super::config::{Config, Options, addresses};
use super::corefile::Corefile;
use super::run;
use crate::go_flags;
use crate::options::distinct;

/// What Lighthouse's program calls itself, as its tool reads it.
const COMPONENT: &str = "submariner-lighthouse-coredns";
/// Longest Corefile that is read, in bytes.
const COREFILE_BYTES: u64 = 1 << 20;

/// The arguments of Lighthouse's program that say anything here.
#[derive(Debug, Default, PartialEq, Eq)]
struct Arguments {
    corefile: Option<PathBuf>,
    kubeconfig: Option<PathBuf>,
    port: Option<u16>,
    is_version: bool,
}

/// Returns whether a program was started as Lighthouse's (`argv[0]`).
#[must_use]
pub fn is_name(program: &OsStr) -> bool {
    Path::new(program).file_name() == Some(OsStr::new("lighthouse-coredns"))
}

/// Runs the server with Lighthouse's arguments.
#[must_use]
#[expect(clippy::print_stdout, reason = "the version is what was asked for")]
pub fn main_with(arguments: &[OsString]) -> ExitCode {
    println!("{COMPONENT} version: v{}", env!("CARGO_PKG_VERSION"));
    let result = Arguments::parse(arguments).and_then(|arguments| {
        if arguments.is_version {
            return Ok(ExitCode::SUCCESS);
        }
        let (options, config) = config(&arguments)?;
        logging::to_stderr(options.common.log.filter());
        run::run(&config).map(|()| ExitCode::SUCCESS)
    });
    result.unwrap_or_else(|error| {
        eprintln!("{COMPONENT}: {error:#}");
        ExitCode::FAILURE
    })
}

/// Reads environment and Corefile.
fn config(arguments: &Arguments) -> anyhow::Result<(Options, Config)> {
    let matches =
        command_line::matches(Options::command(), [COMPONENT.into()], |name| std::env::var_os(name), &[])?;
    let mut options = Options::from_arg_matches(&matches)?;
    if let Some(path) = &arguments.kubeconfig {
        options.common.store.store = Some(Location::Kube { path: Some(path.clone()), context: None });
    }
    options.port = arguments.port.unwrap_or(options.port);
    let path = arguments.corefile.as_deref().unwrap_or_else(|| Path::new("Corefile"));
    let name = path.display();
    let size = std::fs::metadata(path).with_context(|| format!("cannot read {name}"))?.len();
    if size > COREFILE_BYTES {
        bail!("cannot read {name}: it has more than {COREFILE_BYTES} bytes");
    }
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    let corefile = Corefile::parse(&text, |name| std::env::var(name).ok());
    let corefile = corefile.with_context(|| format!("cannot use {name}"))?;
    let config = with_corefile(&mut options, &corefile)?;
    Ok((options, config))
}

/// Settles what a Corefile says.
fn with_corefile(options: &mut Options, corefile: &Corefile) -> anyhow::Result<Config> {
    options.zones = corefile.zones.clone();
    options.ttl = corefile.ttl.unwrap_or(options.ttl);
    options.health = corefile.health;
    options.ready = corefile.ready;
    options.metrics = corefile.metrics;
    options.drain = corefile.lameduck.unwrap_or(0);
    let mut config = options.config()?;
    let listen = if corefile.bind.is_empty() { &options.listen.0 } else { &corefile.bind };
    let ports = corefile.ports.iter().map(|port| port.unwrap_or(options.port));
    config.listen = distinct(ports.flat_map(|port| addresses(listen, port)));
    Ok(config)
}

impl Arguments {
    fn parse(arguments: &[OsString]) -> anyhow::Result<Self> {
        let mut parsed = Self::default();
        go_flags::parse(arguments, |flag, given| {
            match flag {
                "conf" => parsed.corefile = Some(given.text()?.into()),
                "kubeconfig" => {
                    parsed.kubeconfig = Some(given.text()?.into()).filter(|path| path != Path::new(""))
                }
                "dns.port" | "p" => parsed.port = Some(given.text()?.parse().context("-dns.port")?),
                "subm-version" | "version" => parsed.is_version = given.is_on(),
                "quiet" | "plugins" => {}
                // Where the pid of one process among others was of use, and how much of the log went where.
                "pidfile" | "master" | "v" | "logtostderr" => drop(given.text()?),
                _ => bail!(
                    "cannot use flag -{flag}: -conf, -dns.port, -kubeconfig and -subm-version are known"
                ),
            }
            Ok(())
        })?;
        Ok(parsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> anyhow::Result<Arguments> {
        Arguments::parse(&arguments.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn arguments_are_gos() {
        let corefile = Some("/etc/coredns/Corefile".into());
        let expected = Arguments { corefile, ..Arguments::default() };
        for arguments in [&["-conf", "/etc/coredns/Corefile"][..], &["--conf=/etc/coredns/Corefile"]] {
            assert_eq!(parse(arguments).unwrap(), expected);
        }
        assert!(parse(&["-subm-version"]).unwrap().is_version);
        assert_eq!(parse(&["-dns.port=5353"]).unwrap().port, Some(5_353));
        assert!(parse(&["-conf"]).is_err());
        assert!(parse(&["-x"]).unwrap_err().to_string().contains("-x"));
        assert!(is_name(OsStr::new("/usr/bin/lighthouse-coredns")));
    }

    #[test]
    fn a_corefile_settles_zones_ports_and_pages() {
        let text = "clusterset.local:5300 {\n lighthouse {\n ttl 30\n }\n errors\n health {\n lameduck 7s\n }\n \
                    ready\n prometheus :9153\n}\nexample.org {\n lighthouse\n}\n";
        let corefile = Corefile::parse(text, |_| None).unwrap();
        let mut options = {
            let arguments = [COMPONENT, "--cluster-id=west", "--store=dir:/x"];
            Options::from_arg_matches(&Options::command().get_matches_from(arguments)).unwrap()
        };
        let config = with_corefile(&mut options, &corefile).unwrap();
        let listen: Vec<_> = config.listen.iter().map(ToString::to_string).collect();
        assert_eq!(listen, ["[::]:5300", "[::]:53"]);
        assert_eq!(options.zones, ["clusterset.local", "example.org"]);
        assert_eq!((options.ttl, options.drain), (30, 7));
        assert_eq!(config.http.len(), 3);
    }
}

//! The command `trieste`: what a gateway does, in tables that readers of upstream's tool know.
//!
//! ```text
//!   trieste deploy-broker clusters find one another here
//!   trieste join          a cluster becomes a member
//!   trieste upgrade       a member is brought to this version, its gateways one by one
//!   trieste uninstall     a cluster leaves, or is a broker no longer
//!   trieste recover-broker-info
//!                         what clusters join with, written anew
//!   trieste show brokers|connections|endpoints|gateways|routeagents|networks|versions|services|all
//!                         of the clusters of a kubeconfig, of a store, or of one gateway
//!   trieste status        one gateway in detail
//!   trieste drain         a gateway hands its flows over to the others
//!   trieste show globalnet
//!                         what one gateway translates, and how
//!   trieste export, unexport
//!                         whether other clusters may reach a service
//!   trieste trace         what becomes of a packet in a gateway, and why
//!   trieste capture       packets, as pcapng
//!   trieste diagnose      what is wrong, in a cluster or on the way between two pods
//!   trieste gather        logs, objects and the state of nodes, as files
//!   trieste crds          definitions for an API server, as YAML
//!   trieste manifests     everything that join and deploy-broker apply, as YAML
//! ```
//!
//! Answers go to standard output and nothing else does: remarks and errors go to standard error, and an error says
//! what to do next. The exit code is 0, or 1 for every kind of failure. A reader that goes away (`| head`) is no
//! failure.

#![forbid(unsafe_code)]

mod api;
mod capture;
mod cloud;
mod contexts;
mod crds;
mod deploy_broker;
mod deploying;
mod diagnose;
mod discovery;
mod drain;
mod exec;
mod export;
mod gateway;
mod gather;
mod installation;
mod join;
mod manifests;
mod node;
mod output;
mod pcapng;
mod pod_flags;
mod progress;
mod recover;
mod rows;
mod sections;
mod show;
mod socket;
mod source;
mod status;
mod store_errors;
mod table;
mod trace;
mod uninstall;
mod upgrade;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use output::{Output, is_reader_gone};

/// Looks at a Trieste gateway, or at a store of gateways.
#[derive(Debug, Parser)]
#[command(name = "trieste", version, propagate_version = true, arg_required_else_help = true)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a cluster the broker of a cluster set
    ///
    /// Writes broker-info.subm, with which clusters join. Run again it brings the broker up to date and changes nothing
    /// else: the key is kept.
    DeployBroker(Box<deploy_broker::DeployBrokerArgs>),
    /// Let a cloud pass what gateways need, and have gateways; or take that back
    Cloud(Box<cloud::CloudArgs>),
    /// Make a cluster a member of the set of a broker
    ///
    /// Everything is checked before anything is changed, and the command can be repeated at any time.
    Join(Box<join::JoinArgs>),
    /// Bring a member to this command's version, gateway by gateway
    ///
    /// Every choice of the join is kept, and no join file is needed. Each gateway is drained before its pod is replaced, and the next
    /// one is not touched before all is well: where there are two, no connection breaks. Going back is this command of the
    /// earlier version.
    Upgrade(Box<upgrade::UpgradeArgs>),
    /// Take a cluster out of its set, or a broker away
    ///
    /// Cleans the nodes, leaves the broker, and removes every object; a run that was interrupted is finished by the
    /// next one. A broker stays while clusters are registered with it.
    Uninstall(Box<uninstall::UninstallArgs>),
    /// Take a cluster off its set that was deleted without leaving it
    ///
    /// Run on the broker's cluster. Other members are asked whether it still answers, and are waited for until they have
    /// forgotten it.
    RemoveMember(Box<uninstall::RemoveMemberArgs>),
    /// Write broker-info.subm anew, of what the broker and a member have
    RecoverBrokerInfo(Box<recover::RecoverArgs>),
    /// Show what gateways publish (connections, endpoints, gateways, networks), services of the set, or all of it
    Show(show::ShowArgs),
    /// Show one gateway in detail: stores, election, conditions, cables, health, drops, events
    ///
    /// What is as it should be is left out; --verbose shows all of it.
    Status(status::StatusArgs),
    /// Have a gateway hand its flows over to the others of its cluster, before it is stopped
    ///
    /// `trieste show gateways` says how far it is: draining, then drained. It stays so until --undo, or until it is stopped in order:
    /// when it starts again it takes flows.
    Drain(Box<drain::DrainArgs>),
    /// Let other clusters reach something of this one
    Export(export::ExportArgs),
    /// Let other clusters not reach something any more
    Unexport(export::UnexportArgs),
    /// Say what becomes of a packet in a gateway, and why
    ///
    /// Prints what each stage decides: which cluster, which translation, which path. Where there is a session or a
    /// mapping, what it says; else what would happen to the first packet of such a flow. Nothing is sent or changed.
    Trace(Box<trace::TraceArgs>),
    /// Capture packets inside a gateway, as pcapng
    ///
    /// Points on the line: outer-rx, opened, inner-tx (inbound), inner-rx, sealed, outer-tx (outbound), drops (the
    /// reason is the packet's comment). Try: trieste capture -w - | tcpdump -n -r -
    Capture(capture::CaptureArgs),
    /// Find what is wrong: in a cluster, or on the way between two pods
    Diagnose(Box<diagnose::DiagnoseArgs>),
    /// What `trieste diagnose` runs on nodes, in pods of the route agent
    #[command(hide = true)]
    Node(node::NodeArgs),
    /// Gather logs, objects and the state of nodes into a directory, without secrets
    Gather(gather::GatherArgs),
    /// Print the definitions of Trieste's kinds, for kubectl apply -f -
    Crds(crds::CrdsArgs),
    /// Print the objects of a broker and of a member, for those who apply them with their own tools
    ///
    /// Without Secrets: the files say how to make those. What join applies comes from the same place.
    Manifests(Box<manifests::ManifestsArgs>),
    /// Print a completion script for a shell
    #[command(visible_alias = "completion")]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the version
    Version,
}

/// Runs the command with the process's arguments.
pub fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // Help and version come this way too, and are answers.
            let code = if error.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
            let _ = error.print();
            return code;
        }
    };
    match run(args.command) {
        Ok(code) => code,
        Err(error) if is_reader_gone(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::remark(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Each command is a module with a `clap::Args` and `run(args, output)`; asynchronous ones run in the runtime.
fn run(command: Command) -> anyhow::Result<ExitCode> {
    let mut output = Output::stdout();
    match command {
        Command::DeployBroker(args) => in_runtime(deploy_broker::run(&args, &mut output)),
        Command::Cloud(args) => in_runtime(cloud::run(&args, &mut output)),
        Command::Join(args) => in_runtime(join::run(&args, &mut output)),
        Command::Upgrade(args) => in_runtime(upgrade::run(&args, &mut output)),
        Command::Uninstall(args) => in_runtime(uninstall::run(&args, &mut output)),
        Command::RemoveMember(args) => in_runtime(uninstall::remove_member(&args, &mut output)),
        Command::RecoverBrokerInfo(args) => in_runtime(recover::run(&args, &output)),
        Command::Show(args) => in_runtime(show::run(&args, &mut output)),
        Command::Status(args) => in_runtime(status::run(&args, &mut output)).map(done),
        Command::Drain(args) => in_runtime(drain::run(&args)).map(done),
        Command::Export(args) => in_runtime(export::export(&args)).map(done),
        Command::Unexport(args) => in_runtime(export::unexport(&args)).map(done),
        Command::Trace(args) => in_runtime(trace::run(&args, &mut output)).map(done),
        Command::Capture(args) => in_runtime(capture::run(&args)).map(done),
        Command::Diagnose(args) => in_runtime(diagnose::run(&args, &mut output)),
        Command::Node(args) => node::run(args, &mut output).map(done),
        Command::Gather(args) => in_runtime(gather::run(&args, &mut output)),
        Command::Crds(args) => crds::run(&args, &mut output).map(done),
        Command::Manifests(args) => manifests::run(&args, &mut output).map(done),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Args::command(), "trieste", &mut script);
            output.write(&script).map(done)
        }
        Command::Version => {
            output.write(concat!("trieste version: ", env!("CARGO_PKG_VERSION"), "\n").as_bytes()).map(done)
        }
    }
}

/// The end of a command that fails by an error only.
const fn done(_: ()) -> ExitCode {
    ExitCode::SUCCESS
}

/// Runs a future to its end. One thread does: the command waits for one gateway.
fn in_runtime<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(work);
    // A write to a pipe that nobody reads must not keep the command from ending.
    runtime.shutdown_background();
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_make_sense() {
        Args::command().debug_assert();
    }

    /// Reads what pages tell people to type; what is missing, or stands for something, is theirs to fill in.
    #[test]
    fn every_command_in_the_documentation_has_flags_that_there_are() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut pages = vec![root.join("README.md")];
        let mut folders = vec![root.join("docs")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|end| end == "md") {
                    pages.push(path);
                }
            }
        }
        let (mut count, mut bad) = (0, Vec::new());
        for page in pages {
            let text = std::fs::read_to_string(&page).unwrap();
            for line in commands_in(&text) {
                count += 1;
                if let Err(error) = Args::try_parse_from(words_of(line)).map_err(|error| error.kind())
                    && is_wrong(error)
                {
                    bad.push(format!("{}: {line}: {error:?}", page.display()));
                }
            }
        }
        assert!(count > 100, "{count}");
        assert!(bad.is_empty(), "{bad:#?}");
    }

    fn is_wrong(kind: clap::error::ErrorKind) -> bool {
        use clap::error::ErrorKind;
        [
            ErrorKind::ArgumentConflict,
            ErrorKind::InvalidSubcommand,
            ErrorKind::TooManyValues,
            ErrorKind::UnknownArgument,
        ]
        .contains(&kind)
    }

    /// Lines of blocks that begin with the command, with a prompt or without, and what stands between backticks in a line.
    fn commands_in(page: &str) -> Vec<&str> {
        let mut is_block = false;
        let mut all = Vec::new();
        for line in page.lines() {
            if line.trim_start().starts_with("```") {
                is_block = !is_block;
            } else if is_block {
                all.push(line.trim_start().trim_start_matches("$ "));
            } else {
                all.extend(line.split('`').skip(1).step_by(2));
            }
        }
        // Neither what it prints nor what stands for all of its commands.
        let is_typed = |line: &&str| !line.contains("version:") && !line.contains("COMMAND");
        all.retain(|line| line.starts_with("trieste ") && is_typed(line));
        all
    }

    /// Splits a command into words, without remarks and what its output is for; of alternatives the first.
    fn words_of(line: &str) -> Vec<&str> {
        let command = line.split(" #").next().unwrap_or_default().split(" | ").next().unwrap_or_default();
        let words =
            command.split_whitespace().map(|word| word.trim_matches(['[', ']', '…', '\'', '"', '\\']));
        let words = words.map(|word| word.split('|').next().unwrap_or_default());
        words.filter(|word| !word.is_empty()).collect()
    }

    #[test]
    fn a_store_and_a_socket_exclude_each_other() {
        let words = ["trieste", "show", "all", "--store", "dir:/x", "--socket", "/y"];
        assert!(Args::try_parse_from(words).is_err());
    }
}

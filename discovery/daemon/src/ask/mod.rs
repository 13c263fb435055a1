//! Asks a DNS server one question, as a client would: what a diagnosis runs in a pod, and what people may.
//!
//! * [`message`] — queries and replies as bytes. * [`exchange`] — over UDP, and over TCP what does not fit.
//! * [`resolver`] — which server a pod asks.

pub mod exchange;
pub mod message;
pub mod resolver;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser};

pub use exchange::{AskError, Asked, ask};
pub use message::Question;
pub use resolver::ServerAddress;

/// The subcommand's name.
pub const NAME: &str = "ask";

/// Asks a DNS server for a name, and prints what it answers.
///
/// The name is asked for as it is, without a search list. Ends with 1 if there is no answer, and with 0 whatever the answer is.
#[derive(Debug, Clone, Parser)]
#[command(name = NAME, version = concat!("version: v", env!("CARGO_PKG_VERSION")))]
pub struct Options {
    /// The name, such as web.shop.svc.clusterset.local.
    pub name: String,

    /// The type: A, AAAA, SRV, PTR, …
    #[arg(default_value = "A")]
    pub rtype: String,

    /// The server's address, with a port or without [default: the first one of /etc/resolv.conf].
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    pub server: Option<ServerAddress>,

    /// Print a JSON document.
    #[arg(long)]
    pub json: bool,
}

impl Options {
    /// Returns the subcommand.
    #[must_use]
    pub fn subcommand() -> clap::Command {
        Self::command()
    }
}

/// Runs the program.
#[must_use]
pub fn main_with(options: &Options) -> ExitCode {
    let printed = run(options).and_then(|text| Ok(writeln!(std::io::stdout(), "{text}")?));
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("trieste-discovery ask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> anyhow::Result<String> {
    let question = Question::new(&options.name, &options.rtype)?;
    let server = match options.server {
        Some(server) => server,
        None => resolver::of_system()?,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let asked = runtime.block_on(ask(&question, server))?;
    Ok(if options.json { serde_json::to_string(&asked)? } else { asked.to_string() })
}

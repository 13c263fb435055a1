//! `trieste node`: what `trieste diagnose` runs inside the pods of the route agent. Speaks JSON on standard output.

use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use clap::{Subcommand, ValueEnum};
use serde::Serialize;
use trieste_diagnose::node::token::Run;
use trieste_diagnose::node::{self, ListenRequest, ReportRequest, SendRequest, Transport, WatchRequest};

use super::output::Output;

#[derive(Debug, clap::Args)]
pub(super) struct NodeArgs {
    #[command(subcommand)]
    command: NodeCommand,
}

#[derive(Debug, Subcommand)]
enum NodeCommand {
    /// Say what is on this node: links, routes, rules, neighbours, filters, settings, the gateway's status
    Report {
        /// The gateway's admin socket
        #[arg(long, value_name = "PATH", env = "TRIESTE_ADMIN_SOCKET")]
        socket: Option<PathBuf>,
    },
    /// See probes go by on every device; needs NET_RAW
    Watch {
        /// The run whose probes are meant: twelve hexadecimal digits
        #[arg(long)]
        token: Run,
        /// For how long
        #[arg(long, default_value_t = 10)]
        seconds: u32,
        /// UDP ports whose datagrams are counted
        #[arg(long, value_delimiter = ',', default_value = "4500,4490,4800")]
        ports: Vec<u16>,
        /// End as soon as standard input does: whoever asked has gone
        #[arg(long)]
        attended: bool,
    },
    /// Send probes and say what came back; needs NET_RAW, but for --plain
    Send(SendArgs),
    /// Ask an HTTP server for the head of a page
    Head(HeadArgs),
    /// Hear probes on a UDP port, as an application does
    Listen {
        /// The run whose probes are meant
        #[arg(long)]
        token: Run,
        /// The port
        #[arg(long)]
        udp: u16,
        /// For how long
        #[arg(long, default_value_t = 10)]
        seconds: u32,
    },
}

#[derive(Debug, clap::Args)]
struct HeadArgs {
    /// The server: ADDRESS:PORT
    #[arg(long)]
    to: std::net::SocketAddr,
    /// The page
    #[arg(long, default_value = "/")]
    path: String,
}

#[derive(Debug, clap::Args)]
struct SendArgs {
    /// The run that the probe belongs to: twelve hexadecimal digits
    #[arg(long)]
    token: Run,
    /// Which probe of the run it is
    #[arg(long, default_value_t = 0)]
    probe: u16,
    /// Where to
    #[arg(long)]
    to: IpAddr,
    /// In whose name; it need not be an address of this node
    #[arg(long)]
    source: Option<IpAddr>,
    /// How it travels
    #[arg(long, value_enum, default_value_t)]
    protocol: Protocol,
    /// The port that it goes to
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Lengths of IP packets in bytes; one packet for each
    #[arg(long, value_delimiter = ',')]
    sizes: Vec<u16>,
    /// How long to wait for answers, in milliseconds
    #[arg(long, default_value_t = 1000)]
    wait: u32,
    /// Do without NET_RAW, as an application would
    #[arg(long)]
    plain: bool,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Protocol {
    /// ICMP echo
    #[default]
    Icmp,
    /// A datagram
    Udp,
    /// A connection
    Tcp,
}

impl From<SendArgs> for SendRequest {
    fn from(args: SendArgs) -> Self {
        let SendArgs { token, probe, to, source, protocol, port, sizes, wait, plain } = args;
        let transport = match protocol {
            Protocol::Icmp => Transport::Icmp,
            Protocol::Udp => Transport::Udp,
            Protocol::Tcp => Transport::Tcp,
        };
        Self { run: token, probe, destination: to, source, transport, port, sizes, wait_ms: wait, plain }
    }
}

pub(super) fn run(args: NodeArgs, output: &mut Output) -> anyhow::Result<()> {
    match args.command {
        NodeCommand::Report { socket } => line(&node::report(&ReportRequest { socket }), output),
        NodeCommand::Head(args) => line(&node::head(args.to, &args.path), output),
        NodeCommand::Send(args) => line(&node::send(&args.into())?, output),
        NodeCommand::Listen { token, udp, seconds } => {
            line(&node::listen(&ListenRequest { run: token, port: udp, seconds })?, output)
        }
        NodeCommand::Watch { token, seconds, ports, attended } => {
            let is_over = Arc::new(AtomicBool::new(false));
            if attended {
                let is_over = Arc::clone(&is_over);
                std::thread::spawn(move || {
                    // An error is an end too.
                    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
                    is_over.store(true, Ordering::Relaxed);
                });
            }
            let request = WatchRequest { run: token, seconds, ports };
            let mut stdout = std::io::stdout().lock();
            let mut tell = |line: &node::WatchLine| {
                let mut text = serde_json::to_vec(line).map_err(std::io::Error::other)?;
                text.push(b'\n');
                stdout.write_all(&text)?;
                stdout.flush()
            };
            Ok(node::watch(&request, &|| is_over.load(Ordering::Relaxed), &mut tell)?)
        }
    }
}

/// A document on a line of its own.
fn line(document: &impl Serialize, output: &mut Output) -> anyhow::Result<()> {
    let mut text = serde_json::to_vec(document).context("the answer is no JSON")?;
    text.push(b'\n');
    output.write(&text)
}

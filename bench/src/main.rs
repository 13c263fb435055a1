//! Measures stages, cables and whole gateways.
//!
//! | command | measures | needs |
//! |---|---|---|
//! | `stages` | ns per packet of each stage and of the whole line in memory; what happens per packet besides; what watching paths costs | valgrind for the counts |
//! | `cables` | sealing and opening against bare boringtun and bare ring, in the same loop | nothing |
//! | `clusters` | pods on gateways and workers of two real clusters, and what each hop costs | root, iperf3, the components of `./dev deps` |
//! | `discovery` | what exported services of very many clusters cost the agent and the DNS server of one | root, the components of `./dev deps` |
//! | `dns` | queries per second of processor time and the slowest answers, against CoreDNS and Knot's server | root, dnsperf, knotd, the components of `./dev deps` |
//! | `failover` | what the loss of one of several active gateways costs, flow by flow | root, iperf3, wireguard-go |
//! | `lab` | whole gateways in network namespaces, ours and others' | root, iperf3, the peers' programs |
//! | `services` | what one change of a cluster's services costs route agents and gateways, by how many there are | nothing |
//! | `scale` | what a set of very many clusters costs the two that talk | root, iperf3 |

#![forbid(unsafe_code)]

mod cables;
mod census;
mod clusters;
mod discovery;
mod dns;
mod esp;
mod failover;
mod flood;
mod globalnet;
mod lab;
mod machine;
mod measure;
mod pair;
mod paths;
mod plain;
mod plain_gateway;
mod report;
mod scale;
mod services;
mod sink;
mod stages;
mod stat;
mod traffic;
mod usage;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measures stages, cables and whole gateways.
#[derive(Debug, Parser)]
#[command(name = "trieste-bench", version, max_term_width = 110)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Nanoseconds per packet of each stage and of the whole line in memory, and what happens per packet besides.
    Stages(stages::Options),
    /// Sealing and opening against bare boringtun and bare ring.
    Cables(cables::Options),
    /// Service discovery in a set with very many exports: how long changes take, and what it costs (needs root).
    Discovery(discovery::Options),
    /// The DNS server of service discovery against CoreDNS and Knot's on the same records (needs root).
    Dns(dns::Options),
    /// Whole gateways in network namespaces against other people's (needs root).
    Lab(lab::Options),
    /// Pods on gateways and on workers of two real clusters: what each hop costs (needs root).
    Clusters(clusters::Options),
    /// Gateways that are killed, stopped, cut off and drained under traffic: what that costs, flow by flow (needs root).
    Failover(failover::Options),
    /// A set of very many clusters: how long until all is routed, what it costs at rest and for traffic (needs root).
    Scale(scale::Options),
    /// What one change of a cluster's services costs route agents and gateways, in memory.
    Services(services::Options),
    /// A fixed piece of work, to be run under an instrument that counts.
    #[command(hide = true)]
    CensusWorkload(census::Workload),
    /// Members of a set that answer, for `scale`.
    #[command(hide = true)]
    AnsweringMembers(scale::AnsweringOptions),
    /// The gateway, with the cable without cryptography registered.
    #[command(hide = true)]
    PlainGateway(Box<trieste_gateway::config::CommandLine>),
}

fn main() -> ExitCode {
    let result = match CommandLine::parse().command {
        Command::Stages(options) => stages::run(&options),
        Command::Cables(options) => cables::run(&options),
        Command::Discovery(options) => discovery::run(&options),
        Command::Dns(options) => dns::run(&options),
        Command::Lab(options) => lab::run(&options),
        Command::Clusters(options) => clusters::run(&options),
        Command::Failover(options) => failover::run(&options),
        Command::Scale(options) => scale::run(&options),
        Command::Services(options) => services::run(&options),
        Command::CensusWorkload(workload) => census::work(&workload),
        Command::AnsweringMembers(options) => scale::answer(&options),
        Command::PlainGateway(command_line) => return plain_gateway::run(&command_line),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("trieste-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

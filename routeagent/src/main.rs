//! `trieste-routeagent`: flags, logging, signals. Everything else is in the library.

#![forbid(unsafe_code)]

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing::info;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;
use trieste_control::store::AnyStore;
use trieste_routeagent::config::Options;
use trieste_routeagent::driver::KubeProxy;
use trieste_routeagent::pace::Outcome;
use trieste_routeagent::port::Kernel;
use trieste_routeagent::reconcile::{Pass, Reconciler};
use trieste_routeagent::state::Node;
use trieste_routeagent::{agent, source};

fn main() -> ExitCode {
    let options = Options::parse();
    log_to_stderr();
    match run(&options) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("trieste-routeagent: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs on one thread: the work is small, and a network namespace belongs to a thread.
#[tokio::main(flavor = "current_thread")]
async fn run(options: &Options) -> anyhow::Result<ExitCode> {
    if options.uninstall {
        return uninstall(options.dry_run).await;
    }
    let node = options.node()?;
    let store = AnyStore::attach(&options.store());
    let mut reconciler =
        Reconciler::new(Kernel::open()?, KubeProxy, node.clone()).with_grace(options.close_grace());
    if options.dry_run {
        let view = source::read(&store, &options.namespace).await.context("reading the store")?;
        print_plan(&reconciler.dry_run(&view).await.context("reading the node's network")?);
        return Ok(ExitCode::SUCCESS);
    }
    if options.once {
        let view = source::read(&store, &options.namespace).await.context("reading the store")?;
        let pass = reconciler.pass(&view).await.context("reading the node's network")?;
        return Ok(finish(&mut reconciler, pass));
    }
    info!(cluster = node.cluster, node = node.hostname, store = %options.store(), "route agent started");
    let (sender, views) = watch::channel(None);
    let namespace = options.namespace.clone();
    let reader = tokio::spawn(async move { source::follow(&store, &namespace, sender).await });
    tokio::select! {
        () = agent::run(&mut reconciler, views, stop_signal()?) => {}
        // Never ends by itself. Going on would mean to hold on to a state that grows old.
        ended = reader => bail!("the reader of the store ended: {ended:?}"),
    }
    info!("route agent stopped; routes, rules and filter stay in place (--uninstall removes them)");
    Ok(ExitCode::SUCCESS)
}

async fn uninstall(dry_run: bool) -> anyhow::Result<ExitCode> {
    // Who the node is does not matter for what is removed.
    let nobody = Node::default();
    let mut reconciler = Reconciler::new(Kernel::open()?, KubeProxy, nobody);
    if dry_run {
        print_plan(&reconciler.removal().await.context("reading the node's network")?);
        return Ok(ExitCode::SUCCESS);
    }
    let pass = reconciler.uninstall().await.context("reading the node's network")?;
    Ok(finish(&mut reconciler, pass))
}

/// Reports a single pass.
fn finish(reconciler: &mut Reconciler<Kernel, KubeProxy>, pass: Pass) -> ExitCode {
    info!(changes = pass.changes.len(), "done");
    reconciler.report(pass.conditions);
    if pass.outcome == Outcome::Failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

#[expect(clippy::print_stdout, reason = "the plan is what was asked for")]
fn print_plan(plan: &trieste_routeagent::plan::Plan) {
    for change in &plan.changes {
        println!("{change}");
    }
    if plan.changes.is_empty() {
        println!("nothing to change");
    }
    for condition in &plan.conditions {
        println!("note: {condition}");
    }
}

/// Resolves at the first SIGTERM or SIGINT.
fn stop_signal() -> anyhow::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate()).context("watching for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("watching for SIGINT")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Logs at `info`, or as `RUST_LOG` says.
fn log_to_stderr() {
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into()).from_env_lossy();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}

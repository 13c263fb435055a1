//! `trieste-routeagent`: flags, logging, signals. Everything else is in the library.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use anyhow::{Context, bail};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::info;
use trieste_control::command_line;
use trieste_control::controller_pages;
use trieste_control::liveness::check;
use trieste_control::logging;
use trieste_control::privileges::{Capability, Needs};
use trieste_control::requirements::{Deliverer, is_cilium, promise};
use trieste_control::runner::{ControllerRegistry, Handle};
use trieste_control::settings::{Program, remove_file};
use trieste_control::signals;
use trieste_control::store::{AnyStore, Location};
use trieste_routeagent::agent::{self, Report};
use trieste_routeagent::clusterset::follow::Origin;
use trieste_routeagent::condition::Condition;
use trieste_routeagent::config::Options;
use trieste_routeagent::constants::MARK;
use trieste_routeagent::driver::registry::serving;
use trieste_routeagent::live::{LiveSettings, WatchedSettings};
use trieste_routeagent::notices::{self, ListenerConfig, Live};
use trieste_routeagent::port::netlink::Kernel;
use trieste_routeagent::publish::{Inputs, Publisher, withdraw};
use trieste_routeagent::reconcile::{Pass, Reconciler};
use trieste_routeagent::schedule::Outcome;
use trieste_routeagent::source::{self, Channels, Reader};
use trieste_routeagent::state::Node;
use trieste_routeagent::{keep, liveness, names, status, taint, wait, zone};

fn main() -> ExitCode {
    let options = Options::from_flags_and_environment(std::env::args_os(), |name| std::env::var_os(name));
    let options = match options {
        Ok(options) => options,
        Err(error) => command_line::refuse(&error),
    };
    logging::to_stderr(options.log.filter());
    logging::change(options.log_level.as_deref(), options.log.filter());
    match privileges(&options).and_then(|()| run(&options)) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("trieste-routeagent: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Checks for the rights that are needed, and drops all others, before the first thread starts.
fn privileges(options: &Options) -> anyhow::Result<()> {
    let needs = Needs::default()
        .vital(
            Capability::NET_ADMIN,
            "program links, routes, rules and filters: no pod reaches another cluster",
        )
        .wanted(Capability::NET_RAW, "ping remote gateways: the health of connections is not known")
        .store(&options.store())
        .files([options.pass_file.clone()]);
    // Commands that only read files need no rights, and --uninstall removes whatever it can without them.
    if !(options.check || options.wait_for_node || options.uninstall) {
        needs.check()?;
    }
    needs.limit();
    Ok(())
}

/// Runs on one thread: the work is small, and a network namespace belongs to a thread.
#[tokio::main(flavor = "current_thread")]
async fn run(options: &Options) -> anyhow::Result<ExitCode> {
    if options.check {
        check("trieste-routeagent", &options.pass_file)?;
        return Ok(ExitCode::SUCCESS);
    }
    if options.uninstall {
        return uninstall(options).await;
    }
    if options.wait_for_node {
        return wait_for_node(options).await;
    }
    let node = options.node()?;
    if !options.dry_run {
        restore_closed(options, Kernel::open()?).await;
    }
    let store = AnyStore::attach_marked(&options.store(), MARK);
    let (live, options) = LiveSettings::at_start(options, &store).await?;
    let options = &options;
    logging::change(options.log_level.as_deref(), options.log.filter());
    // The settings may name another device.
    let node = Node { hostname: node.hostname, ..options.node()? };
    let reader = reader_of(options, &node);
    let names = names::follow(options.servers(), &options.state_dir, !options.dry_run).await;
    let mut reconciler = Reconciler::new(Kernel::open()?, serving(&node.plugin), node.clone())
        .with_grace(options.close_grace())
        .with_memory(&options.state_dir)
        .with_names(names);
    if options.dry_run {
        let view = source::read(&store, &reader).await.context("reading the store")?;
        print_plan(&reconciler.dry_run(&view).await.context("reading the node's network")?);
        return Ok(ExitCode::SUCCESS);
    }
    if options.once {
        let view = source::read(&store, &reader).await.context("reading the store")?;
        settle_privileges(options)?;
        report_driver(&node);
        reconciler.start_handlers()?;
        let pass = reconciler.pass(&view).await.context("reading the node's network");
        reconciler.stop_handlers();
        return Ok(finish(&mut reconciler, pass?));
    }
    settle_privileges(options)?;
    info!(
        version = status::VERSION, cluster = node.cluster, node = node.hostname, store = %options.store(),
        "route agent started"
    );
    report_driver(&node);
    serve(options, live, (node, store, reader), reconciler).await?;
    info!("route agent stopped; routes, rules and filter stay in place (--uninstall removes them)");
    Ok(ExitCode::SUCCESS)
}

/// Returns what is read of the store, and for whom.
fn reader_of(options: &Options, node: &Node) -> Reader {
    Reader {
        namespace: options.namespace.clone(),
        cluster: node.cluster.clone(),
        hostname: node.hostname.clone(),
        node_name: options.node_name.clone(),
        clusterset: Origin {
            cluster: node.cluster.clone(),
            namespace: options.namespace.clone(),
            range: node.clusterset_range.clone(),
        },
        has_cilium: is_cilium(&node.plugin),
        delivers_services: promise(&node.plugin).services == Deliverer::Gateway,
    }
}

/// Fails if vital rights are missing, warns of others, and drops those that are not needed, also for child processes.
fn settle_privileges(options: &Options) -> anyhow::Result<()> {
    let needs = Needs::default()
        .vital(Capability::NET_ADMIN, "change routes, rules, devices and packet filters")
        .wanted(Capability::NET_RAW, "ping remote gateways, or use iptables where that is the older one")
        .store(&options.store())
        .files([options.pass_file.clone()]);
    needs.check()?;
    needs.limit();
    Ok(())
}

/// Logs which driver serves the network plugin, and what it does. A name that no driver has is served as kube-proxy's.
fn report_driver(node: &Node) {
    let (driver, promise) = (serving(&node.plugin), promise(&node.plugin));
    info!(
        plugin = node.plugin, driver = driver.name(), device_to_gateway = driver.device_to_gateway(),
        delivers_to_pods = %promise.delivery, translates_services = %promise.services,
        has_several_gateways = promise.has_several_gateways, needs_synchronizer = promise.needs_synchronizer,
        has_synchronizer = node.has_synchronizer, "network plugin is served"
    );
}

/// Runs until a signal asks to stop.
async fn serve(
    options: &Options,
    live: LiveSettings,
    (node, store, reader): (Node, AnyStore, Reader),
    reconciler: Reconciler<Kernel>,
) -> anyhow::Result<()> {
    let (views, remotes, store_error) =
        (watch::channel(None), watch::channel(Vec::new()), watch::channel(None));
    let (reports, reported) = watch::channel(Report::default());
    let (stopping, mut stopped) = watch::channel(());
    let (listener, notices) = (watch::channel(ListenerConfig::default()), watch::channel(Live::default()));
    let mut reconciler = reconciler.with_notices(notices.1, listener.0);
    if node.notice_port != 0 {
        notices::spawn(node.notice_port, listener.1, notices.0)
            .context("starting to listen to gateways' notices")?;
    }
    if options.node_taint {
        let name = options.node_name.clone();
        let name = name.context("the name of this node is missing: TRIESTE_NODE_TAINT needs NODE_NAME")?;
        let (store, views, reports) = (store.clone(), views.1.clone(), reported.clone());
        tokio::spawn(async move { taint::keep_removed(&store, &name, views, reports).await });
    }
    let inputs = Inputs { views: views.1.clone(), remotes: remotes.1, reports: reported.clone() };
    let has_worker = options.spiderpool || promise(&node.plugin).needs_synchronizer;
    let zones = has_worker.then(|| reconciler.zones());
    let routes = zones.map(|zones| zone::controller::spawn(store.clone(), &options.namespace, zones));
    let state = (reported.clone(), store_error.1.clone());
    let (settings, settings_task) = follow_settings(options, live, store.clone(), routes.as_ref(), state)?;
    let publisher = options.node_name.as_ref().map(|name| {
        let publisher = Publisher::new(store.clone(), &options.namespace, name, node, options.pinger())
            .with_settings(settings);
        let stop = async move { drop(stopped.changed().await) };
        tokio::spawn(publisher.run(inputs, stop))
    });
    if publisher.is_none() {
        info!("no RouteAgent object is kept and no gateway pinged: the node's name is missing (NODE_NAME)");
    }
    let liveness_file =
        tokio::spawn(liveness::maintain(options.pass_file.clone(), reported.clone(), store_error.1));
    let channels =
        Channels { views: views.0, remotes: remotes.0, store_error: store_error.0, reports: reported };
    let follower = tokio::spawn(async move { source::follow(&store, &reader, channels).await });
    let stop = signals::stop().context("watching for SIGTERM and SIGINT")?;
    let started = reconciler.start_handlers();
    if started.is_ok() {
        let passes = agent::run(&mut reconciler, views.1, &reports, stop);
        let ended = while_reading(passes, follower).await;
        reconciler.stop_handlers();
        ended?;
    }
    drop(stopping);
    settings_task.abort();
    // With its file.
    liveness_file.abort();
    drop(liveness_file.await);
    if let Some(publisher) = publisher {
        publisher.await.context("ending the RouteAgent object's keeper")?;
    }
    Ok(started?)
}

/// Starts to follow the settings, and to answer for this controller and the others.
fn follow_settings(
    options: &Options,
    live: LiveSettings,
    store: AnyStore,
    routes: Option<&Handle>,
    (reports, store_error): (watch::Receiver<Report>, watch::Receiver<Option<String>>),
) -> anyhow::Result<(WatchedSettings, JoinHandle<()>)> {
    let controllers = ControllerRegistry::default();
    let watched = live.follow(store, options, &controllers);
    serve_pages(options, (controllers, routes), reports, store_error)?;
    Ok(watched)
}

/// Answers what kubelets and Prometheus ask, where that is wanted.
fn serve_pages(
    options: &Options,
    (controllers, routes): (ControllerRegistry, Option<&Handle>),
    reports: watch::Receiver<Report>,
    store_error: watch::Receiver<Option<String>>,
) -> anyhow::Result<()> {
    if let Some(routes) = routes {
        controllers.add(zone::controller::NAME, routes.metrics.clone());
    }
    let obstacle = move || liveness::problem(&reports.borrow(), store_error.borrow().as_deref());
    controller_pages::spawn(options.metrics, env!("CARGO_PKG_VERSION"), controllers, obstacle)
        .context("serving metrics; see --metrics (TRIESTE_ROUTEAGENT_METRICS)")
}

/// Waits until passes end. The reader of the store never ends by itself: going on without it would mean to hold on to a state that
/// grows old.
async fn while_reading(passes: impl Future<Output = ()>, reader: JoinHandle<()>) -> anyhow::Result<()> {
    tokio::select! {
        () = passes => Ok(()),
        ended = reader => bail!("the reader of the store ended: {ended:?}"),
    }
}

/// Restores the fail-closed state of the last boot.
async fn restore_closed(options: &Options, kernel: Kernel) {
    let own = [&options.cluster_cidrs.0[..], &options.service_cidrs.0[..]].concat();
    let cluster = options.cluster_id.as_deref().filter(|id| !id.is_empty());
    keep::restore_closed(&kernel, &options.state_dir, cluster, &own).await;
}

async fn wait_for_node(options: &Options) -> anyhow::Result<ExitCode> {
    let name = options.node_name.as_ref().context(
        "the name of this node is missing: pass --node-name or set NODE_NAME (SUBMARINER_WAITFORNODE waits for it)",
    )?;
    if let Location::Dir(_) = options.store() {
        bail!("there are no Node objects in {}, so that none can be waited for", options.store());
    }
    // Pods of this node may be running already.
    restore_closed(options, Kernel::open()?).await;
    let store = AnyStore::attach_marked(&options.store(), MARK);
    tokio::select! {
        () = wait::node_ready(&store, name) => Ok(ExitCode::SUCCESS),
        () = signals::stop().context("watching for SIGTERM and SIGINT")? => bail!("stopped while waiting for Node {name}"),
    }
}

async fn uninstall(options: &Options) -> anyhow::Result<ExitCode> {
    // Removal does not depend on the node's identity, but a handler of events is for some plugins alone.
    let nobody = Node { plugin: options.network_plugin.to_lowercase(), ..Node::default() };
    let mut reconciler = Reconciler::new(Kernel::open()?, serving(&nobody.plugin), nobody);
    if options.dry_run {
        print_plan(&reconciler.removal().await.context("reading the node's network")?);
        return Ok(ExitCode::SUCCESS);
    }
    settle_privileges(options)?;
    let pass = reconciler.uninstall().await.context("reading the node's network")?;
    if pass.outcome != Outcome::Failed {
        let directory = &options.state_dir;
        remove_file(directory, Program::RouteAgent).context("removing the remembered settings")?;
        keep::remove_files(directory)
            .with_context(|| format!("forgetting what was closed, in {}", directory.display()))?;
    }
    let code = finish(&mut reconciler, pass);
    if let Some(name) = &options.node_name {
        let store = AnyStore::attach_marked(&options.store(), MARK);
        let was_there = withdraw(&store, &options.namespace, name).await.with_context(|| {
            format!("this node's network is clean; removing its object, `kubectl delete routeagent {name}`")
        })?;
        info!(object = name, was_there, "RouteAgent removed");
    }
    Ok(code)
}

/// Reports a single pass.
fn finish(reconciler: &mut Reconciler<Kernel>, pass: Pass) -> ExitCode {
    info!(changes = pass.changes.len(), "done");
    // There is no later pass in which it would come again.
    let is_refused = pass.conditions.iter().any(|one| matches!(one, Condition::EventRefused { .. }));
    reconciler.report(pass.conditions);
    if is_refused || pass.outcome == Outcome::Failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
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

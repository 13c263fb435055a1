//! One cluster of a mesh: a gateway on every gateway node, a route agent on every node.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;
use trieste_control::admin::GatewayStatus;

use crate::clock;
use crate::cluster::Settings;
use crate::command::Run;
use crate::daemon::Daemon;
use crate::installation::{self, Installation};
use crate::lab::Lab;
use crate::topology::{ClusterPlan, NodePlan};
use crate::wait::eventually;

/// A cluster whose gateways and route agents run.
#[derive(Debug)]
pub struct Side {
    plan: ClusterPlan,
    lab: Lab,
    directory: PathBuf,
    places: Vec<Place>,
}

/// A node and what runs on it.
#[derive(Debug)]
struct Place {
    own: Installation,
    gateway: Option<Daemon>,
    agent: Option<Daemon>,
}

impl Side {
    /// Writes all configurations and starts every route agent and gateway.
    pub(crate) fn start(lab: &Lab, plan: &ClusterPlan, settings: &Settings) -> anyhow::Result<Self> {
        let directory = lab.directory().join(&plan.id);
        let store = directory.join("store");
        std::fs::create_dir_all(&store)?;
        if let Some(broker) = &settings.broker {
            std::fs::create_dir_all(broker)?;
        }
        installation::put_nodes(&store, plan)?;
        let mut places = Vec::new();
        for node in &plan.nodes {
            let directory = directory.join(&node.name);
            let state = directory.join("state");
            std::fs::create_dir_all(&state)?;
            let (plan, node, store, wrap) =
                (plan.clone(), node.clone(), store.clone(), settings.wrap.clone());
            let api = settings.api.get(&plan.id).cloned();
            let own = Installation {
                plan,
                node,
                store,
                state,
                directory,
                wrap,
                api,
                names_node: settings.names_nodes,
            };
            own.configure(settings)?;
            if let Some((_, seconds)) = settings.clocks.iter().find(|(name, _)| *name == own.node.name) {
                clock::write(&own.clock(), *seconds)?;
            }
            places.push(Place { own, gateway: None, agent: None });
        }
        let mut side = Self { plan: plan.clone(), lab: lab.clone(), directory, places };
        for node in 0..side.places.len() {
            side.start_agent(node)?;
        }
        for gateway in 0..side.plan.gateways().len() {
            side.start_gateway(gateway)?;
        }
        Ok(side)
    }

    /// Its addresses and names.
    pub fn plan(&self) -> &ClusterPlan {
        &self.plan
    }

    /// The directory of its objects.
    pub fn store(&self) -> PathBuf {
        self.directory.join("store")
    }

    /// The node of a gateway, from 0.
    ///
    /// # Panics
    /// If there is none.
    pub fn gateway_node(&self, gateway: usize) -> &NodePlan {
        &self.plan.gateways()[gateway]
    }

    /// Starts a gateway, for the first time or again.
    ///
    /// # Errors
    /// If it cannot start.
    pub fn start_gateway(&mut self, gateway: usize) -> anyhow::Result<()> {
        let place = self.places.get_mut(gateway).context("there is no such node")?;
        let run = place.own.gateway_run()?;
        place.gateway = Some(Daemon::start(&self.lab, &format!("{}-gateway", place.own.node.name), &run)?);
        Ok(())
    }

    pub(super) fn configure(&self, gateway: usize, settings: &Settings) -> anyhow::Result<()> {
        self.places.get(gateway).context("there is no such node")?.own.configure(settings)
    }

    /// Sets the clock of a node, from 0, that was off from the beginning: so many seconds ahead or behind. What runs there
    /// sees it within a second.
    ///
    /// # Errors
    /// If its clock never was off.
    pub fn set_clock(&self, node: usize, seconds: i64) -> anyhow::Result<()> {
        let clock = self.places.get(node).context("there is no such node")?.own.clock();
        anyhow::ensure!(clock.exists(), "the programs of node {node} have the machine's clock");
        clock::write(&clock, seconds)
    }

    /// Starts the route agent of a node, from 0, for the first time or again.
    ///
    /// # Errors
    /// If it cannot start.
    pub fn start_agent(&mut self, node: usize) -> anyhow::Result<()> {
        let place = self.places.get_mut(node).context("there is no such node")?;
        let state = place.own.directory.join("agent");
        std::fs::create_dir_all(&state)?;
        let run = place.own.route_agent_run()?.arg("--pass-file").arg(state.join("pass.json"));
        let run = run.env("TRIESTE_STATE_DIR", &state);
        place.agent = Some(Daemon::start(&self.lab, &format!("{}-routeagent", place.own.node.name), &run)?);
        Ok(())
    }

    /// A gateway's process.
    ///
    /// # Errors
    /// If it does not run.
    pub fn gateway(&self, gateway: usize) -> anyhow::Result<&Daemon> {
        let place = self.places.get(gateway).context("there is no such node")?;
        place.gateway.as_ref().with_context(|| format!("{} has no gateway that runs", place.own.node.name))
    }

    /// A route agent's process.
    ///
    /// # Errors
    /// If it does not run.
    pub fn agent(&self, node: usize) -> anyhow::Result<&Daemon> {
        let place = self.places.get(node).context("there is no such node")?;
        place.agent.as_ref().with_context(|| format!("{} has no route agent that runs", place.own.node.name))
    }

    /// Ends a gateway as a crash would.
    ///
    /// # Errors
    /// If it does not run.
    pub fn kill_gateway(&mut self, gateway: usize) -> anyhow::Result<()> {
        self.take_gateway(gateway)?.kill()
    }

    /// Ends a gateway as an operator would, and fails unless it ends by itself and without complaint.
    ///
    /// # Errors
    /// If it does not.
    pub fn stop_gateway(&mut self, gateway: usize, grace: Duration) -> anyhow::Result<()> {
        let name = self.gateway_node(gateway).name.clone();
        let daemon = self.take_gateway(gateway)?;
        let ended = daemon.stop_within(grace)?;
        anyhow::ensure!(ended, "{name}'s gateway did not end by itself within {grace:?} with exit status 0");
        Ok(())
    }

    /// Forgets everything about a gateway that does not run: the next one on its node is new.
    ///
    /// # Errors
    /// If it runs, or files cannot be removed.
    pub fn forget_gateway(&self, gateway: usize) -> anyhow::Result<()> {
        let place = self.places.get(gateway).context("there is no such node")?;
        anyhow::ensure!(place.gateway.is_none(), "the gateway runs");
        std::fs::remove_dir_all(&place.own.state)?;
        std::fs::create_dir_all(&place.own.state).context("making the state directory")
    }

    /// Ends everything and takes the cluster out of its set.
    pub(super) fn uninstall(mut self, grace: Duration) -> anyhow::Result<()> {
        for gateway in 0..self.plan.gateways().len() {
            self.stop_gateway(gateway, grace)?;
        }
        for place in self.places.iter_mut().rev() {
            drop(place.agent.take());
            if self.plan.gateways().iter().any(|node| node.name == place.own.node.name) {
                place.own.gateway_run()?.arg("--uninstall").stdout()?;
            }
            place.own.route_agent_run()?.arg("--uninstall").stdout()?;
        }
        std::fs::remove_dir_all(&self.directory).context("forgetting a cluster")
    }

    fn take_gateway(&mut self, gateway: usize) -> anyhow::Result<Daemon> {
        let place = self.places.get_mut(gateway).context("there is no such node")?;
        place.gateway.take().context("the gateway does not run")
    }

    /// A run of the command `trieste` against a gateway.
    ///
    /// # Errors
    /// If it is not built.
    pub fn trieste(&self, gateway: usize, words: &[&str]) -> anyhow::Result<Run> {
        self.places.get(gateway).context("there is no such node")?.own.trieste(words)
    }

    /// A gateway's admin socket.
    ///
    /// # Errors
    /// If there is no such node.
    pub fn socket(&self, gateway: usize) -> anyhow::Result<PathBuf> {
        Ok(self.places.get(gateway).context("there is no such node")?.own.socket())
    }

    /// Drains a gateway, or takes that back.
    ///
    /// # Errors
    /// What the command says.
    pub fn drain(&self, gateway: usize, undo: bool) -> anyhow::Result<()> {
        let node = &self.gateway_node(gateway).name;
        let run = Run::new(crate::programs::path("trieste")?).args(["drain", node]);
        let store = format!("dir:{}", self.store().display());
        let run = run.args(["--store", &store, "--namespace", crate::cluster::NAMESPACE]);
        let run = if undo { run.arg("--undo") } else { run };
        run.stdout().map(drop)
    }

    /// Asks a gateway for its status.
    ///
    /// # Errors
    /// If it does not answer, or in a way that is not understood.
    pub fn status(&self, gateway: usize) -> anyhow::Result<GatewayStatus> {
        self.gateway(gateway)?.check()?;
        self.places[gateway].own.status()
    }

    /// Waits until every connection of a gateway is reported as connected and there are at least `count`.
    ///
    /// # Errors
    /// If that does not happen within `timeout`; the error shows how far it got.
    pub fn wait_connected(&self, gateway: usize, count: usize, timeout: Duration) -> anyhow::Result<()> {
        let daemon = self.gateway(gateway)?;
        self.places[gateway].own.wait_connected(count, timeout, || daemon.check()).map(drop)
    }

    /// How often paths of a gateway have changed their state since they are there.
    ///
    /// # Errors
    /// If it does not say.
    pub fn path_changes(&self, gateway: usize) -> anyhow::Result<u64> {
        let status = self.document(gateway)?;
        let paths = status["connections"].as_array().into_iter().flatten().map(|cable| &cable["path"]);
        Ok(paths.filter_map(|path| path["transitions"].as_u64()).sum())
    }

    /// For how many milliseconds the gateway on the node `far` may be silent at present until this one misses it.
    ///
    /// # Errors
    /// If it does not say.
    pub fn timeouts(&self, gateway: usize, far: &str) -> anyhow::Result<Vec<f64>> {
        let status = self.document(gateway)?;
        let cables = status["connections"].as_array().into_iter().flatten();
        let paths = cables.filter(|cable| cable["endpoint"]["hostname"] == far).map(|cable| &cable["path"]);
        Ok(paths.filter_map(|path| path["timeout_ms"].as_f64()).collect())
    }

    /// Waits until a gateway has cables to at least `count` gateways of other clusters, packets go through all of them, and
    /// those of which more is known are used, also those to siblings.
    ///
    /// # Errors
    /// If that does not happen within `timeout`; the error shows how far it got.
    pub fn wait_paths(&self, gateway: usize, count: usize, timeout: Duration) -> anyhow::Result<()> {
        let is_used = |cable: &Value| cable["path"]["state"].as_str().is_none_or(|state| state == "up");
        let is_good = |cable: &Value| cable["lane"]["last_handshake_age_s"].is_number() && is_used(cable);
        let told = |cable: &Value| format!("{} {}", cable["endpoint"]["hostname"], cable["path"]["state"]);
        let name = &self.gateway_node(gateway).name;
        eventually(&format!("paths of {name}"), timeout, || {
            let status = self.document(gateway)?;
            let own = &status["cluster"];
            let cables = status["connections"].as_array().context("a status has connections")?;
            let others = cables.iter().filter(|cable| cable["endpoint"]["cluster_id"] != *own).count();
            // Nodes go by what siblings say of each other: a flow that is noted before that has settled moves later.
            let siblings = status["siblings"].as_array().into_iter().flatten();
            anyhow::ensure!(
                others >= count && cables.iter().all(is_good) && siblings.clone().all(is_used),
                "{others} of {count}: {:?}; refused: {}",
                cables.iter().chain(siblings).map(told).collect::<Vec<_>>(),
                status["refused"]
            );
            Ok(())
        })
    }

    /// A gateway's status document.
    fn document(&self, gateway: usize) -> anyhow::Result<Value> {
        self.gateway(gateway)?.check()?;
        let text = installation::get(&self.socket(gateway)?, trieste_control::admin::STATUS_PATH)?;
        serde_json::from_str(&text).context("the status document")
    }
}

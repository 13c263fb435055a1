//! The control loop itself.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use trieste_control::admin::{BrokerLink, BrokerStatus, Severity};
use trieste_control::api::{Endpoint, Object, Resource as _};
use trieste_control::store::StoreEvent;

use super::Control;
use super::inputs::{Input, Inputs, reached};
use crate::engine::Engine;

/// How often what the status document says is taken, in a set that is not very large.
const STATUS_INTERVAL: Duration = Duration::from_millis(500);
/// How long it goes on when there is a successor, whose Endpoint reaches peers through the broker.
const FAREWELL: Duration = Duration::from_millis(250);

impl Control<'_> {
    /// Runs until `leaving` completes; then gives the lead away, and goes on until a successor is there or the time is
    /// up.
    ///
    /// # Errors
    /// A part of the gateway that should run for ever has ended, or the gateway has to start again.
    pub(crate) async fn run(
        &mut self,
        engine: &mut Engine,
        leaving: impl Future<Output = ()>,
    ) -> anyhow::Result<()> {
        let mut leaving = pin!(leaving);
        let mut end: Option<Instant> = None;
        let mut inputs = Inputs::of(self);
        self.start(engine).await;
        loop {
            tokio::select! {
                input = inputs.next() => self.handle(input?, &mut inputs, engine).await,
                () = &mut leaving, if end.is_none() => match self.step_down(engine).await {
                    Some(until) => end = Some(until),
                    None => return Ok(()),
                },
                () = reached(end) => return Ok(()),
            }
            if let Some(reason) = self.state.restart.take() {
                anyhow::bail!("{reason}");
            }
            if end.is_some() && self.members().siblings.is_empty() && self.has_successor() {
                let soon = Instant::now() + FAREWELL;
                end = end.map(|end| end.min(soon));
            }
        }
    }

    /// Handles one input.
    async fn handle(&mut self, input: Input, inputs: &mut Inputs, engine: &mut Engine) {
        match input {
            Input::Endpoint(event) => {
                let mut has_changed = self.take(&event);
                // A burst is one change.
                while let Some(event) = inputs.another_endpoint() {
                    has_changed |= self.take(&event);
                }
                if has_changed {
                    inputs.converging.ask(Instant::now());
                }
            }
            Input::Selections => inputs.converging.ask(Instant::now()),
            Input::Converge => {
                let began = Instant::now();
                self.converge(engine).await;
                inputs.converging.done(began, Instant::now());
            }
            Input::Node(event) => self.take_node(event),
            Input::Gateway(event) => self.take_gateway(event, engine),
            Input::Networks(event) => self.check_networks(Some(event), inputs, engine).await,
            Input::Settings => self.take_settings(engine),
            Input::Members => {
                self.publish_endpoint();
                self.take_others(engine);
                inputs.converging.ask(Instant::now());
            }
            Input::Leadership => {
                if inputs.has_other_term() {
                    self.follow_public_ip();
                    self.converge(engine).await;
                }
            }
            Input::PublicIp => self.take_public_ip(),
            Input::Report => {
                let began = Instant::now();
                self.follow_public_ip();
                self.hand_over(engine).await;
                self.refresh(engine).await;
                inputs.reporting.done(began, Instant::now());
                inputs.reporting.ask(Instant::now() + STATUS_INTERVAL);
            }
            Input::Globalnet => inputs.translating.ask(Instant::now()),
            Input::Translate => {
                let began = Instant::now();
                self.take_globalnet(engine).await;
                inputs.translating.done(began, Instant::now());
            }
            Input::Addresses => {
                self.refresh_addresses(engine).await;
                self.translate(engine).await;
                self.report_files().await;
                self.check_networks(None, inputs, engine).await;
            }
            Input::Rekey => engine.rekey_all(),
        }
    }

    /// Takes an event of the object with the networks, or looks whether it can be in force by now.
    async fn check_networks(&mut self, event: Option<StoreEvent>, inputs: &mut Inputs, engine: &mut Engine) {
        let has_changed = match event {
            Some(event) => self.take_networks(event, engine).await,
            None => self.renew_networks(engine).await,
        };
        if has_changed {
            inputs.converging.ask(Instant::now());
        }
    }

    /// Carries on from what is remembered, before any store has answered.
    async fn start(&mut self, engine: &mut Engine) {
        let remembered = self.state.remembered.take().unwrap_or_default();
        self.begin(engine, Instant::now());
        engine.set_active(remembered.was_active, Instant::now()).await;
        self.state.link = link(BrokerLink::Connecting, None);
        self.take_public_ip();
        if let Some(name) = &self.config.node_name {
            self.follow_label(&format!("Node {name}"), self.state.found.settings.is_gateway);
        }
        self.remember_globalnet(engine, remembered.globalnet).await;
        let endpoints = read_endpoints(&remembered.endpoints);
        self.state.begun_with.clone_from(&endpoints);
        if !endpoints.is_empty() || !self.members().remote.is_empty() {
            engine.set_resumes(true);
            self.connect(engine, &endpoints, Instant::now()).await;
            engine.set_resumes(false);
            self.watch_health(engine);
            tracing::info!(
                endpoints = endpoints.len(),
                active = remembered.was_active,
                "started from the remembered state"
            );
        }
        self.refresh_addresses(engine).await;
    }

    /// Takes an event of the Endpoints in. Gives whether there is something to do about it.
    fn take(&mut self, event: &StoreEvent) -> bool {
        let newest = match event {
            StoreEvent::Unavailable(error) => link(BrokerLink::Away, Some(error.to_string())),
            StoreEvent::Listed(_) | StoreEvent::Applied(_) | StoreEvent::Deleted(_) | _ => {
                link(BrokerLink::Synced, None)
            }
        };
        let known = &mut self.state.link;
        if known.state == newest.state {
            known.error = newest.error;
        } else {
            match (known.state, &newest.error) {
                (_, Some(error)) => self.recorder.record(Severity::Warning, "StoreAway", error),
                (BrokerLink::Away, None) => {
                    self.recorder.record(
                        Severity::Info,
                        "StoreBack",
                        "this cluster's own store answers again",
                    );
                }
                _ => {}
            }
            *known = newest;
        }
        let message = self.state.link.error.as_ref().map(|error| {
            format!("this cluster's own store is away: {error}; cables stay up with what is known")
        });
        self.conditions.put("StoreAway", Severity::Warning, "", message);
        self.state.mirror.apply(event)
    }
}

fn link(state: BrokerLink, error: Option<String>) -> BrokerStatus {
    BrokerStatus { state, since: Some(Timestamp::now()), error, next_try: None }
}

fn read_endpoints(objects: &[Arc<Object>]) -> Vec<Arc<Endpoint>> {
    objects.iter().filter_map(|object| Endpoint::from_object(object).ok()).map(Arc::new).collect()
}

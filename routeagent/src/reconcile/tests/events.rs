//! What the driver's handler of events is called for by passes.

use std::sync::{Arc, Mutex};

use super::*;
use crate::driver::{Desired, Plugins};
use crate::events::{Handled, Handler, Taken};
use crate::state::ClusterState;

/// A driver for a plugin with an imperative interface, and what its handler is called for.
#[derive(Debug, Default)]
struct Imperative(Arc<Mutex<Calls>>);

#[derive(Debug, Default)]
struct Calls {
    calls: Vec<String>,
    is_refusing: bool,
}

impl Driver for Imperative {
    fn name(&self) -> &'static str {
        "imperative"
    }

    fn plugins(&self) -> Plugins {
        Plugins::Named(&["generic"])
    }

    fn device_to_gateway(&self) -> &'static str {
        KubeProxy.device_to_gateway()
    }

    fn desired(&self, state: &ClusterState) -> Desired {
        KubeProxy.desired(state)
    }

    fn remember(&self, state: ClusterState, desired: Desired) -> Box<dyn Memory> {
        KubeProxy.remember(state, desired)
    }

    fn handler(&self) -> Option<Box<dyn Handler>> {
        Some(Box::new(Self(self.0.clone())))
    }
}

impl Imperative {
    fn call(&self, text: &str) -> Handled {
        let mut calls = self.0.lock().unwrap();
        calls.calls.push(text.to_owned());
        if calls.is_refusing { Err("not now".into()) } else { Ok(()) }
    }
}

impl Handler for Imperative {
    fn name(&self) -> &'static str {
        "imperative"
    }

    fn plugins(&self) -> Plugins {
        Plugins::Others
    }

    fn init(&mut self) -> Handled {
        self.call("init")
    }

    fn stop(&mut self) -> Handled {
        self.call("stop")
    }

    fn uninstall(&mut self) -> Handled {
        self.call("uninstall")
    }

    fn transition_to_gateway(&mut self, _: &Taken) -> Handled {
        self.call("to gateway")
    }

    fn remote_endpoint_created(&mut self, endpoint: &Endpoint, _: &Taken) -> Handled {
        self.call(&format!("created {}", endpoint.name))
    }

    fn remote_endpoint_removed(&mut self, endpoint: &Endpoint, _: &Taken) -> Handled {
        self.call(&format!("removed {}", endpoint.name))
    }
}

fn imperative() -> (Reconciler<Fake>, Arc<Mutex<Calls>>) {
    let driver = Imperative::default();
    let calls = driver.0.clone();
    let Reconciler { host, node, .. } = reconciler(Fake::new());
    (Reconciler::new(host, Box::leak(Box::new(driver)), node), calls)
}

fn taken(calls: &Mutex<Calls>) -> Vec<String> {
    std::mem::take(&mut calls.lock().unwrap().calls)
}

#[tokio::test]
async fn plugin_events_come_with_passes_of_either_kind() {
    let (mut reconciler, calls) = imperative();
    reconciler.start_handlers().unwrap();
    reconciler.pass(&view()).await.unwrap();
    assert_eq!(taken(&calls), ["init", "to gateway", "created b-cable"]);
    reconciler.pass(&view()).await.unwrap();
    assert_eq!(taken(&calls), [""; 0]);

    let mut only_own = view();
    let other = only_own.endpoints.remove(1);
    reconciler.follow(&only_own).await.unwrap();
    assert_eq!(taken(&calls), ["removed b-cable"]);
    only_own.endpoints.push(Endpoint { name: "b-other".into(), ..other });
    reconciler.follow(&only_own).await.unwrap();
    assert_eq!(taken(&calls), ["created b-other"]);
    reconciler.dry_run(&view()).await.unwrap();
    assert_eq!(taken(&calls), [""; 0], "nothing is done in a dry run");
    reconciler.stop_handlers();
    assert_eq!(taken(&calls), ["stop"]);
}

#[tokio::test]
async fn plugin_events_that_are_refused_are_a_condition_and_neither_fail_the_pass_nor_open_the_node() {
    let (mut reconciler, calls) = imperative();
    calls.lock().unwrap().is_refusing = true;
    assert!(reconciler.start_handlers().is_err());
    let pass = reconciler.pass(&view()).await.unwrap();
    let refused = Condition::EventRefused {
        handler: "imperative",
        event: "TransitionToGateway".into(),
        error: "not now".into(),
        is_dropped: false,
    };
    assert!(pass.conditions.contains(&refused), "{:?}", pass.conditions);
    assert_eq!((pass.outcome, pass.is_closed), (Outcome::Changed, true));

    calls.lock().unwrap().is_refusing = false;
    let pass = reconciler.pass(&view()).await.unwrap();
    assert!(!pass.conditions.contains(&refused));
    assert_eq!(pass.outcome, Outcome::Settled);
    assert_eq!(taken(&calls), ["init", "to gateway", "to gateway", "created b-cable"]);
}

#[tokio::test]
async fn plugin_events_uninstalling_stops_the_handler_and_has_it_remove_its_own() {
    let (mut reconciler, calls) = imperative();
    assert_eq!(reconciler.uninstall().await.unwrap().outcome, Outcome::Changed);
    assert_eq!(taken(&calls), ["stop", "uninstall"]);
    calls.lock().unwrap().is_refusing = true;
    let pass = reconciler.uninstall().await.unwrap();
    assert_eq!((pass.outcome, pass.conditions.len()), (Outcome::Failed, 2), "{:?}", pass.conditions);
}

#[test]
fn plugin_events_no_driver_of_ours_has_a_handler() {
    assert!(crate::driver::registry::DRIVERS.iter().all(|driver| driver.handler().is_none()));
    assert!(reconciler(Fake::new()).events.is_empty());
}

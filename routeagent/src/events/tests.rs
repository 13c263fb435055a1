//! Upstream's rules, each by a handler that records what it is called for.

mod failures;
mod model;
mod recorder;
mod rules;
mod sequences;

use super::*;
use crate::driver::Plugins;
use crate::state::{ClusterNode, ClusterState, Endpoint, Node};
use recorder::{Recorder, Script};

/// The state of a node of cluster `a` with these Endpoints, written as cluster, host and creation time: `b-gw1@5`.
fn state(hostname: &str, endpoints: &[&str]) -> ClusterState {
    let node = Node { cluster: "a".into(), hostname: hostname.into(), ..Node::default() };
    ClusterState {
        node,
        endpoints: endpoints.iter().map(|text| endpoint(text)).collect(),
        ..ClusterState::default()
    }
}

fn endpoint(text: &str) -> Endpoint {
    let (name, created) = text.split_once('@').unwrap_or((text, "0"));
    let (cluster, _) = name.split_once('-').unwrap();
    let created = created.parse().unwrap();
    Endpoint { created, ..Endpoint::new(name, cluster, name) }
}

fn node(name: &str) -> ClusterNode {
    ClusterNode { name: name.into(), hostname: name.into(), ..ClusterNode::default() }
}

/// Returns a dispatcher with one handler that wants nodes, and what it records.
fn one() -> (Dispatcher, Script) {
    let script = Script::default();
    let mut dispatcher = Dispatcher::new("generic");
    assert!(dispatcher.register(Box::new(Recorder::new("one", &script))));
    (dispatcher, script)
}

/// Follows states of a node in turn; returns what each brings.
fn followed(hostname: &str, states: &[&[&str]]) -> Vec<Vec<String>> {
    let (mut dispatcher, script) = one();
    let mut follow = |endpoints: &&[&str]| {
        assert_eq!(dispatcher.follow(&state(hostname, endpoints)), Outcome::default());
        script.take()
    };
    states.iter().map(&mut follow).collect()
}

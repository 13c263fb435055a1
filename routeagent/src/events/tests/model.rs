//! A handler that makes its own picture from events alone, and fails as it is told, before it has done its work or after.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use ipnet::IpNet;

use super::super::{Handled, Handler, MAX_ATTEMPTS, Taken};
use super::{ClusterNode, ClusterState, Endpoint, Plugins};

/// What somebody has who was told of everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Picture {
    nodes: BTreeMap<String, ClusterNode>,
    pods: BTreeSet<IpNet>,
    services: BTreeSet<IpNet>,
    locals: BTreeMap<String, Endpoint>,
    remotes: BTreeMap<String, Endpoint>,
    is_gateway: bool,
}

impl Picture {
    /// Returns the picture of a state, found the simple way.
    pub(super) fn of(state: &ClusterState) -> Self {
        let mut picture = Self {
            nodes: state.nodes.iter().map(|node| (node.name.clone(), node.clone())).collect(),
            pods: state.node.pod_networks.iter().copied().collect(),
            services: state.node.service_networks.iter().copied().collect(),
            is_gateway: state.own_endpoint().is_some(),
            ..Self::default()
        };
        for gateway in state.gateways() {
            picture.locals.insert(gateway.cable_name.clone(), gateway.clone());
        }
        let mut remote: Vec<&Endpoint> = state.remote_endpoints().collect();
        remote.sort_by_key(|endpoint| (endpoint.created, &endpoint.name));
        for endpoint in remote {
            picture.remotes.insert(endpoint.cluster.clone(), endpoint.clone());
        }
        picture
    }
}

/// How a call goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Luck {
    Succeeds,
    FailsBefore,
    FailsAfter,
}

/// The picture, how the next calls go, failures of each thing in a row, and the number of calls.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub(super) picture: Picture,
    pub(super) luck: Vec<Luck>,
    pub(super) calls: usize,
    pub(super) failures: BTreeMap<String, u32>,
}

pub(super) struct Model(pub(super) Arc<Mutex<Work>>);

impl Model {
    fn work(&self, thing: String, step: impl FnOnce(&mut Picture)) -> Handled {
        let work = &mut *self.0.lock().unwrap();
        work.calls += 1;
        let failures = work.failures.entry(thing).or_default();
        let luck = work.luck.pop().filter(|_| *failures + 1 < MAX_ATTEMPTS).unwrap_or(Luck::Succeeds);
        if luck != Luck::FailsBefore {
            step(&mut work.picture);
        }
        if luck == Luck::Succeeds {
            *failures = 0;
            return Ok(());
        }
        *failures += 1;
        Err("out of luck".into())
    }
}

impl Handler for Model {
    fn name(&self) -> &'static str {
        "model"
    }

    fn plugins(&self) -> Plugins {
        Plugins::Others
    }

    fn wants_nodes(&self) -> bool {
        true
    }

    fn transition_to_gateway(&mut self, taken: &Taken) -> Handled {
        assert!(taken.is_on_gateway());
        self.work("role".into(), |picture| picture.is_gateway = true)
    }

    fn transition_to_non_gateway(&mut self, taken: &Taken) -> Handled {
        assert!(!taken.is_on_gateway());
        self.work("role".into(), |picture| picture.is_gateway = false)
    }

    fn local_endpoint_created(&mut self, endpoint: &Endpoint, taken: &Taken) -> Handled {
        assert!(taken.local_endpoints().any(|there| there == endpoint));
        let key = endpoint.cable_name.clone();
        self.work(format!("local {key}"), |picture| {
            picture.locals.insert(key, endpoint.clone());
        })
    }

    fn local_endpoint_updated(&mut self, endpoint: &Endpoint, taken: &Taken) -> Handled {
        self.local_endpoint_created(endpoint, taken)
    }

    fn local_endpoint_removed(&mut self, endpoint: &Endpoint, taken: &Taken) -> Handled {
        assert!(taken.local_endpoints().all(|there| there.cable_name != endpoint.cable_name));
        self.work(format!("local {}", endpoint.cable_name), |picture| {
            picture.locals.remove(&endpoint.cable_name);
        })
    }

    fn remote_endpoint_created(&mut self, endpoint: &Endpoint, taken: &Taken) -> Handled {
        assert_eq!(taken.remote_endpoint(&endpoint.cluster), Some(endpoint));
        self.work(format!("remote {}", endpoint.cluster), |picture| {
            picture.remotes.insert(endpoint.cluster.clone(), endpoint.clone());
        })
    }

    fn remote_endpoint_updated(&mut self, endpoint: &Endpoint, taken: &Taken) -> Handled {
        self.remote_endpoint_created(endpoint, taken)
    }

    fn remote_endpoint_removed(&mut self, endpoint: &Endpoint, taken: &Taken) -> Handled {
        assert_eq!(taken.remote_endpoint(&endpoint.cluster), None);
        self.work(format!("remote {}", endpoint.cluster), |picture| {
            picture.remotes.remove(&endpoint.cluster);
        })
    }

    fn node_created(&mut self, node: &ClusterNode, taken: &Taken) -> Handled {
        assert!(taken.nodes().any(|there| there == node));
        self.work(format!("node {}", node.name), |picture| {
            picture.nodes.insert(node.name.clone(), node.clone());
        })
    }

    fn node_updated(&mut self, node: &ClusterNode, taken: &Taken) -> Handled {
        self.node_created(node, taken)
    }

    fn node_removed(&mut self, node: &ClusterNode, taken: &Taken) -> Handled {
        assert!(taken.nodes().all(|there| there.name != node.name));
        self.work(format!("node {}", node.name), |picture| {
            picture.nodes.remove(&node.name);
        })
    }

    fn pod_networks_updated(&mut self, networks: &BTreeSet<IpNet>, taken: &Taken) -> Handled {
        assert_eq!(taken.pod_networks(), networks);
        self.work("pods".into(), |picture| picture.pods.clone_from(networks))
    }

    fn service_networks_updated(&mut self, networks: &BTreeSet<IpNet>, taken: &Taken) -> Handled {
        assert_eq!(taken.service_networks(), networks);
        self.work("services".into(), |picture| picture.services.clone_from(networks))
    }
}

//! From the services of this cluster to the snapshot that the workers deliver by.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use trieste_control::services::{self, Protocol};
use trieste_pipeline::services::{Backends, Frontend, ServiceNode, ServicesBuilder};
use trieste_vxlan::{Mac, VX_PORT};

/// Returns the builder of snapshots without services: `nodes` take packets for them at these addresses, `own` is this
/// gateway's.
#[must_use]
pub fn delivery(networks: &[IpNet], own: IpAddr, nodes: &BTreeMap<String, IpAddr>) -> ServicesBuilder {
    let node = |address: IpAddr| ServiceNode { address, mac: Mac::of_node(address) };
    ServicesBuilder::new(networks, node(own), nodes.values().map(|address| node(*address)), VX_PORT)
}

/// Returns an address and port as the pipeline has it.
#[must_use]
pub fn frontend(at: &services::Frontend) -> Frontend {
    Frontend { address: at.address, protocol: at.protocol.number(), port: at.port }
}

/// Returns which of these nodes stand behind the service at an address and port. UDP has no connections that would stay with a
/// back end that no longer serves.
#[must_use]
pub fn backends(
    at: &services::Frontend,
    service: &services::Service,
    nodes: &BTreeMap<String, IpAddr>,
) -> Backends {
    let mut backends = Backends { keeps_clients: service.keeps_clients, ..Backends::default() };
    for backend in &service.backends {
        let Some(&address) = backend.node.as_deref().and_then(|node| nodes.get(node)) else { continue };
        if backend.is_used {
            *backends.used.entry(address).or_default() += 1;
        } else if backend.is_serving || at.protocol != Protocol::Udp {
            backends.others.insert(address);
        }
    }
    backends.others.retain(|address| !backends.used.contains_key(address));
    backends
}

#[cfg(test)]
mod tests {
    use trieste_control::services::{Backend, Protocol, Service};
    use trieste_packet::FlowKey;

    use super::*;

    #[test]
    fn back_ends_become_nodes_and_those_of_nodes_that_take_nothing_are_left_out() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let backend = |address: &str, node: Option<&str>, is_used| Backend {
            address: ip(address),
            port: 8080,
            node: node.map(Into::into),
            is_used,
            is_serving: is_used,
        };
        let service = Service {
            keeps_clients: false,
            backends: vec![
                backend("10.1.3.10", Some("w1"), true),
                backend("10.1.4.10", Some("upstreams"), true),
                backend("10.1.5.10", Some("gw1"), false),
                backend("203.0.113.7", None, true),
            ],
        };
        let at = services::Frontend { address: ip("10.96.0.10"), protocol: Protocol::Tcp, port: 80 };
        let nodes =
            BTreeMap::from([("gw1".to_owned(), ip("172.31.9.1")), ("w1".to_owned(), ip("172.31.9.3"))]);
        let mut builder = delivery(&["10.96.0.0/16".parse().unwrap()], ip("172.31.9.1"), &nodes);
        builder.set(frontend(&at), &backends(&at, &service, &nodes));
        let snapshot = builder.build(1);
        for port in 1..50 {
            let flow = FlowKey::new(ip("10.2.0.1"), ip("10.96.0.10"), 6, port, 80);
            assert_eq!(snapshot.node_of(&flow), Some(ip("172.31.9.3")));
        }
        assert_eq!((snapshot.len(), builder.left_out()), (1, 0));
        let by = |protocol| backends(&services::Frontend { protocol, ..at }, &service, &nodes).others.len();
        assert_eq!((by(Protocol::Tcp), by(Protocol::Udp)), (1, 0));
        builder.remove(frontend(&at));
        assert!(builder.build(2).is_empty());
    }
}

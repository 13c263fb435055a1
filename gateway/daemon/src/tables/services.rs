//! From the services of this cluster to the snapshot that the workers deliver by.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use trieste_control::devices::{VX_PORT, vx_mac};
use trieste_control::services::{self, Catalogue};
use trieste_pipeline::services::{Backends, Frontend, ServiceNode, Services, ServicesBuilder};

/// Builds the snapshot: `nodes` take packets for services at these addresses, `own` is this gateway's.
#[must_use]
pub fn deliver(
    generation: u64,
    networks: &[IpNet],
    own: IpAddr,
    nodes: &BTreeMap<String, IpAddr>,
    services: impl IntoIterator<Item = (Frontend, Backends)>,
    before: &Services,
) -> Services {
    let node = |address: IpAddr| ServiceNode { address, mac: vx_mac(address) };
    let others = nodes.values().map(|address| node(*address));
    let mut builder = ServicesBuilder::new(generation, networks, node(own), others, VX_PORT, Some(before));
    for (frontend, backends) in services {
        builder.service(frontend, &backends);
    }
    builder.build()
}

/// Returns which of these nodes stand behind each address and port of a catalogue.
pub fn by_node<'a>(
    catalogue: &'a Catalogue,
    nodes: &'a BTreeMap<String, IpAddr>,
) -> impl Iterator<Item = (Frontend, Backends)> + 'a {
    catalogue.services.iter().map(|(at, service)| {
        let at = Frontend { address: at.address, protocol: at.protocol.number(), port: at.port };
        (at, backends(service, nodes))
    })
}

fn backends(service: &services::Service, nodes: &BTreeMap<String, IpAddr>) -> Backends {
    let mut backends = Backends { keeps_clients: service.keeps_clients, ..Backends::default() };
    for backend in &service.backends {
        let Some(&address) = backend.node.as_deref().and_then(|node| nodes.get(node)) else { continue };
        if backend.is_used {
            *backends.used.entry(address).or_default() += 1;
        } else {
            backends.others.insert(address);
        }
    }
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
        let frontend = services::Frontend { address: ip("10.96.0.10"), protocol: Protocol::Tcp, port: 80 };
        let catalogue = Catalogue { services: BTreeMap::from([(frontend, service)]), is_cut: false };
        let nodes =
            BTreeMap::from([("gw1".to_owned(), ip("172.31.9.1")), ("w1".to_owned(), ip("172.31.9.3"))]);
        let networks = ["10.96.0.0/16".parse().unwrap()];
        let before = Services::default();
        let own = ip("172.31.9.1");
        let snapshot = deliver(1, &networks, own, &nodes, by_node(&catalogue, &nodes), &before);
        for port in 1..50 {
            let flow = FlowKey::new(ip("10.2.0.1"), ip("10.96.0.10"), 6, port, 80);
            assert_eq!(snapshot.node_of(&flow), Some(ip("172.31.9.3")));
        }
        assert_eq!((snapshot.len(), snapshot.left_out()), (1, 0));
        assert!(deliver(2, &networks, own, &nodes, [], &snapshot).is_empty());
    }
}

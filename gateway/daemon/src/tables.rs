//! Where API objects become data-plane tables; the one file where they do.
//!
//! Which remote Endpoints are connected to, and in which order clusters come first where their subnets overlap, is a
//! function of the objects alone, so that every gateway of a cluster decides alike.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use jiff::Timestamp;
use trieste_cables::CableKind;
use trieste_control::admin::RefusedCluster;
use trieste_control::api::{Endpoint, EndpointFacts, EndpointSpec};
use trieste_packet::{CableId, LaneId};
use trieste_pipeline::{LaneInfo, Tables, TablesBuilder};

/// Upstream's cable port, for Endpoints that do not name theirs.
const DEFAULT_PORT: u16 = 4500;

/// What this gateway is.
#[derive(Debug, Clone)]
pub struct Local {
    /// Our cluster's ID.
    pub cluster_id: String,
    /// The subnets that we publish.
    pub subnets: Vec<IpNet>,
    /// Our addresses inside them, for ICMP errors: at most one of each family.
    pub icmp_sources: Vec<IpAddr>,
    /// Largest inner packet of a path, in bytes.
    pub path_mtu: u16,
}

/// A remote Endpoint that is connected to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The object's name.
    pub name: String,
    /// The object's spec.
    pub spec: EndpointSpec,
    /// The spec's values, checked.
    pub facts: EndpointFacts,
    /// Who it is on the wire.
    pub identity: [u8; 32],
    /// Where it is.
    pub address: SocketAddr,
    /// Whether that is its public address because of NAT.
    pub using_nat: bool,
    /// When the object was made.
    pub created: Option<Timestamp>,
}

/// Remote Endpoints, sorted into those to connect to and those not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Admitted {
    /// To connect to: oldest cluster first, and within a cluster the newest Endpoint first.
    pub peers: Vec<Peer>,
    /// Not, and why.
    pub refused: Vec<RefusedCluster>,
}

/// Reads the remote Endpoints among `endpoints`.
#[must_use]
pub fn admit(endpoints: &[Endpoint], local: &Local, kind: &dyn CableKind) -> Admitted {
    let mut admitted = Admitted::default();
    for endpoint in endpoints.iter().filter(|endpoint| endpoint.spec.cluster_id != local.cluster_id) {
        match read(endpoint, kind) {
            Ok(peer) => admitted.peers.push(peer),
            Err(reason) => admitted.refused.push(RefusedCluster {
                cluster: endpoint.spec.cluster_id.clone(),
                endpoint: Some(endpoint.metadata.name.clone()),
                reason,
            }),
        }
    }
    order(&mut admitted.peers);
    refuse_doubles(&mut admitted);
    admitted
}

fn read(endpoint: &Endpoint, kind: &dyn CableKind) -> Result<Peer, String> {
    let spec = &endpoint.spec;
    let facts = spec.parse().map_err(|error| error.to_string())?;
    if facts.backend != kind.name() {
        return Err(format!("its cable driver is {:?}, ours is {:?}", facts.backend, kind.name()));
    }
    if facts.subnets.is_empty() {
        return Err("it publishes no subnets".to_owned());
    }
    let identity = kind.identity(&spec.backend_config).map_err(|error| error.to_string())?;
    let (ip, using_nat) = match facts.public_ip {
        Some(public) if spec.nat_enabled => (public, true),
        _ => (facts.private_ip, false),
    };
    Ok(Peer {
        name: endpoint.metadata.name.clone(),
        spec: spec.clone(),
        identity,
        address: SocketAddr::new(ip, facts.udp_port.unwrap_or(DEFAULT_PORT)),
        using_nat,
        created: endpoint.metadata.creation_timestamp,
        facts,
    })
}

/// Oldest cluster first, by its oldest Endpoint; within a cluster the newest Endpoint first. Names break ties.
fn order(peers: &mut [Peer]) {
    let age = |cluster: &str, peers: &[Peer]| {
        peers.iter().filter(|peer| peer.facts.cluster_id == cluster).map(|peer| peer.created).min().flatten()
    };
    let ages: Vec<_> = peers.iter().map(|peer| age(&peer.facts.cluster_id, peers)).collect();
    let mut order: Vec<usize> = (0..peers.len()).collect();
    order.sort_by(|&a, &b| {
        let (left, right) = (&peers[a], &peers[b]);
        ages[a]
            .cmp(&ages[b])
            .then_with(|| left.facts.cluster_id.cmp(&right.facts.cluster_id))
            .then_with(|| right.created.cmp(&left.created))
            .then_with(|| left.name.cmp(&right.name))
    });
    let sorted: Vec<_> = order.into_iter().map(|index| peers[index].clone()).collect();
    peers.clone_from_slice(&sorted);
}

/// Two Endpoints with one key cannot be told apart on the wire: the first stays.
fn refuse_doubles(admitted: &mut Admitted) {
    let mut seen: Vec<([u8; 32], String)> = Vec::new();
    let refused = &mut admitted.refused;
    admitted.peers.retain(|peer| {
        if let Some((_, other)) = seen.iter().find(|(identity, _)| *identity == peer.identity) {
            refused.push(RefusedCluster {
                cluster: peer.facts.cluster_id.clone(),
                endpoint: Some(peer.name.clone()),
                reason: format!("it has the same key as Endpoint {other}"),
            });
            return false;
        }
        seen.push((peer.identity, peer.name.clone()));
        true
    });
}

/// A cable that exists, for the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lane {
    /// Its lane.
    pub lane: LaneId,
    /// Its counters.
    pub cable: CableId,
}

/// Builds the tables for peers and their lanes, in the order of [`admit`]. Clusters whose subnets overlap ours or an
/// older cluster's are left out and named. Of a cluster's Endpoints the newest carries its traffic; the others'
/// lanes only open.
#[must_use]
pub fn build(epoch: u64, local: &Local, peers: &[(Peer, Lane)]) -> (Tables, Vec<RefusedCluster>) {
    let mut builder = TablesBuilder::new(epoch, &local.subnets, &local.icmp_sources);
    let mut refused = Vec::new();
    let mut index = 0;
    while index < peers.len() {
        let cluster_id = &peers[index].0.facts.cluster_id;
        let count =
            peers[index..].iter().take_while(|(peer, _)| peer.facts.cluster_id == *cluster_id).count();
        let group = &peers[index..index + count];
        index += count;
        let (newest, lane) = (&group[0].0, group[0].1);
        let result = builder.cluster(cluster_id, &newest.facts.subnets).and_then(|cluster| {
            builder.path(cluster, lane.lane, lane.cable, local.path_mtu)?;
            Ok(cluster)
        });
        match result {
            Ok(cluster) => {
                for (peer, lane) in group {
                    builder.identity(peer.identity, lane.lane);
                }
                for (_, lane) in &group[1..] {
                    builder.lane(lane.lane, LaneInfo { cluster, mtu_bytes: local.path_mtu });
                }
            }
            Err(error) => {
                let cluster = cluster_id.clone();
                refused.push(RefusedCluster { cluster, endpoint: None, reason: error.to_string() });
            }
        }
    }
    (builder.build(), refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;
    use trieste_cables::keys;
    use trieste_cables::wireguard::WireguardKind;

    fn kind() -> WireguardKind {
        WireguardKind::new(WireguardKind::generate_private_key(), "psk", "submariner", Instant::now())
    }

    fn endpoint(cluster: &str, host: u8, subnet: &str, created: &str) -> Endpoint {
        let spec = EndpointSpec {
            cluster_id: cluster.to_owned(),
            cable_name: format!("submariner-cable-{cluster}-192-0-2-{host}"),
            hostname: format!("{cluster}-gw"),
            subnets: vec![subnet.to_owned()],
            private_ip: format!("192.0.2.{host}"),
            public_ip: format!("198.51.100.{host}"),
            backend: "wireguard".to_owned(),
            backend_config: [("publicKey".to_owned(), keys::emit(&[host; 32]))].into(),
            ..EndpointSpec::default()
        };
        let mut endpoint = Endpoint::new("ns", spec).unwrap();
        endpoint.metadata.creation_timestamp = Some(created.parse().unwrap());
        endpoint
    }

    fn local() -> Local {
        Local {
            cluster_id: "a".to_owned(),
            subnets: vec!["10.1.0.0/16".parse().unwrap()],
            icmp_sources: vec![],
            path_mtu: 1420,
        }
    }

    fn lanes(peers: &[Peer]) -> Vec<(Peer, Lane)> {
        let lane =
            |index: u32| Lane { lane: LaneId(index << 8), cable: CableId(u16::try_from(index).unwrap()) };
        peers.iter().cloned().zip((1..).map(lane)).collect()
    }

    #[test]
    fn the_older_cluster_keeps_an_overlapping_subnet() {
        let endpoints = [
            endpoint("c", 3, "10.2.0.0/16", "2026-01-02T00:00:00Z"),
            endpoint("b", 2, "10.2.128.0/17", "2026-01-01T00:00:00Z"),
            endpoint("a", 1, "10.1.0.0/16", "2026-01-01T00:00:00Z"),
        ];
        let admitted = admit(&endpoints, &local(), &kind());
        let (tables, refused) = build(1, &local(), &lanes(&admitted.peers));
        assert_eq!(tables.clusters().len(), 1);
        assert_eq!(tables.clusters()[0].name, "b");
        assert_eq!(refused[0].cluster, "c");
        assert!(refused[0].reason.contains("10.2.128.0/17"), "{}", refused[0].reason);
    }

    #[test]
    fn the_newest_endpoint_of_a_cluster_carries_it() {
        let endpoints = [
            endpoint("b", 2, "10.2.0.0/16", "2026-01-01T00:00:00Z"),
            endpoint("b", 3, "10.2.0.0/16", "2026-01-03T00:00:00Z"),
        ];
        let admitted = admit(&endpoints, &local(), &kind());
        assert_eq!(admitted.peers[0].address, "192.0.2.3:4500".parse().unwrap());
        let (tables, refused) = build(1, &local(), &lanes(&admitted.peers));
        assert!(refused.is_empty());
        assert_eq!(tables.paths().len(), 1);
        assert_eq!(tables.paths()[0].lane, LaneId(1 << 8));
        assert!(tables.lane(LaneId(2 << 8)).is_some());
    }

    #[test]
    fn endpoints_that_cannot_be_connected_to_are_named_with_the_reason() {
        let mut other = endpoint("b", 2, "10.2.0.0/16", "2026-01-01T00:00:00Z");
        other.spec.backend = "libreswan".to_owned();
        let mut keyless = endpoint("c", 3, "10.3.0.0/16", "2026-01-01T00:00:00Z");
        keyless.spec.backend_config.clear();
        let mut crooked = endpoint("d", 4, "10.4.0.0/16", "2026-01-01T00:00:00Z");
        crooked.spec.subnets = vec!["10.4.0.0/99".to_owned()];
        let same = endpoint("e", 5, "10.5.0.0/16", "2026-01-01T00:00:00Z");
        let mut double = endpoint("f", 6, "10.6.0.0/16", "2026-01-02T00:00:00Z");
        double.spec.backend_config = same.spec.backend_config.clone();
        let admitted = admit(&[other, keyless, crooked, same, double], &local(), &kind());
        assert_eq!(admitted.peers.len(), 1);
        let reasons: Vec<_> = admitted.refused.iter().map(|refused| refused.reason.as_str()).collect();
        for expected in ["libreswan", "publicKey", "10.4.0.0/99", "same key"] {
            assert!(reasons.iter().any(|reason| reason.contains(expected)), "{expected} in {reasons:?}");
        }
    }

    #[test]
    fn nat_chooses_the_public_address() {
        let mut endpoint = endpoint("b", 2, "10.2.0.0/16", "2026-01-01T00:00:00Z");
        endpoint.spec.nat_enabled = true;
        let admitted = admit(&[endpoint], &local(), &kind());
        assert_eq!(admitted.peers[0].address, "198.51.100.2:4500".parse().unwrap());
        assert!(admitted.peers[0].using_nat);
    }
}

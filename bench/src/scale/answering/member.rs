//! One member: a packet path and its cables, without devices, sockets and a clock.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use arc_swap::ArcSwap;
use rand_core::OsRng;
use trieste_cables::ipsec::ike::{EngineConfig, IkeEvent};
use trieste_cables::ipsec::{IpsecKind, KindSettings, SlowHalf};
use trieste_cables::vxlan::VxlanKind;
use trieste_cables::wireguard::WireguardKind;
use trieste_cables::{CableKind, LaneConfig};
use trieste_control::api::{Endpoint, EndpointSpec};
use trieste_control::claims::Allowed;
use trieste_control::members::Target;
use trieste_gateway::tables::{self, Before, Lane, Local, Peer, Reader, Row, Rows};
use trieste_packet::wire::Inner;
use trieste_packet::{Batch, CableId, GatewayKey, LaneId, Outer, Packet, PoolConfig, WorkerId, icmp};
use trieste_pipeline::{Board, Config, Fleet, LaneCommand, NatConfig, Pipeline, health};
use trieste_tests::cluster::PSK;

use super::{NETWORK, PORT};
use crate::scale::members::{NETWORKS, base, network_of};

/// The largest packet that a cable takes; the underlay's is 80 more.
const MTU_BYTES: u16 = 1420;
/// Buffers of one member: it sends little and forwards nothing.
const POOL: PoolConfig = PoolConfig { slots: 64, slot_bytes: 4096 };
/// The TUN device that there is not.
const DEVICE: &str = "submariner";

/// A datagram to send, and to whom.
pub(super) type Datagram = (SocketAddr, Vec<u8>);

/// One member with a cable to each of its peers.
pub(super) struct Member {
    /// Where it is.
    pub(super) address: SocketAddrV4,
    line: Pipeline,
    kind: Arc<dyn CableKind>,
    slow: Option<SlowHalf>,
}

/// Returns a member's Endpoint with so many of its networks.
///
/// # Errors
/// If there is no such driver.
pub(in super::super) fn spec(member: u32, networks: u32, driver: &str) -> anyhow::Result<EndpointSpec> {
    let (kind, _slow) = kind(member, driver, Instant::now())?;
    let mut spec = base(member, networks, driver, address(member))?;
    spec.backend_config = kind.backend_config();
    spec.backend_config.insert("udp-port".to_owned(), PORT.to_string());
    spec.health_check_ip = probed(member).to_string();
    spec.set_supports_paths(true);
    Ok(spec)
}

fn address(member: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(NETWORK) + 1 + member)
}

/// Returns its address inside its first network, which peers ping.
fn probed(member: u32) -> IpAddr {
    let first = network_of(member, 0);
    first.hosts().next().unwrap_or_else(|| first.addr())
}

/// Makes a member's driver, with a key that its number gives.
fn kind(member: u32, driver: &str, now: Instant) -> anyhow::Result<(Arc<dyn CableKind>, Option<SlowHalf>)> {
    let mut key = [9_u8; 32];
    key[..4].copy_from_slice(&member.to_be_bytes());
    Ok(match driver {
        "wireguard" => (Arc::new(WireguardKind::new(key.into(), PSK, DEVICE, now)), None),
        "vxlan" => (Arc::new(VxlanKind::new(DEVICE, now)), None),
        "libreswan" => {
            let settings = KindSettings {
                interface: DEVICE.to_owned(),
                // There is no raw socket for ESP without UDP.
                forces_encapsulation: true,
                preferred_server: None,
                private_key: key.into(),
            };
            let engine = EngineConfig { psk: PSK.as_bytes().to_vec().into(), ..EngineConfig::default() };
            let (kind, slow) = IpsecKind::new(settings, engine, Box::new(OsRng), now);
            (Arc::new(kind), Some(slow))
        }
        other => anyhow::bail!("members with the cable driver {other} cannot answer"),
    })
}

impl Member {
    /// Makes a member that knows these Endpoints and no others.
    ///
    /// # Errors
    /// If one of them cannot be connected to.
    pub(super) fn new(number: u32, driver: &str, peers: &[Endpoint], now: Instant) -> anyhow::Result<Self> {
        let (kind, slow) = kind(number, driver, now)?;
        let local = local(number, driver)?;
        let target = |endpoint: &Endpoint| Target {
            endpoint: Arc::new(endpoint.clone()),
            is_for_all: true,
            since: None,
        };
        let targets: Vec<Target> = peers.iter().map(target).collect();
        let admitted = Reader::default().read(&targets, &[], &local, &*kind);
        anyhow::ensure!(admitted.refused.is_empty(), "member {number} refuses {:?}", admitted.refused);
        let rows: Vec<Row> = (1..)
            .zip(admitted.peers)
            .map(|(cable, peer)| {
                let lane = Lane { lane: LaneId(u32::from(cable) << 8), cable: CableId(cable) };
                Row { peer, lane: Some(lane) }
            })
            .collect();
        let rows = Rows { remote: rows, ..Rows::default() };
        let (built, refused) = tables::build(1, &local, &rows);
        anyhow::ensure!(refused.is_empty(), "member {number} refuses {refused:?}");
        let config = Config {
            worker: WorkerId(0),
            workers: 1,
            pool: POOL,
            seed: u64::from(number),
            nat: NatConfig::default(),
            health: health::Config::default(),
            board: Board::new(),
            fleet: Fleet::new(GatewayKey::of(&local.site.cable_name), 1, now),
        };
        let tables = Arc::new(ArcSwap::from_pointee(built));
        let line = Pipeline::new(config, tables, kind.gate(), now);
        let mut member = Self { address: SocketAddrV4::new(address(number), PORT), line, kind, slow };
        for row in rows.remote {
            member.connect(&row, &local, now)?;
        }
        Ok(member)
    }

    fn connect(&mut self, row: &Row, local: &Local, now: Instant) -> anyhow::Result<()> {
        let (peer, Some(Lane { lane, cable })): (&Peer, _) = (&row.peer, row.lane) else { return Ok(()) };
        let config = LaneConfig {
            lane,
            cable,
            peer: Some(peer.address(tables::fallback_choice(&peer.facts, &peer.spec))),
            local: peer.near(&local.site),
            remote: peer.site(),
            uses_nat: false,
            resumes: false,
        };
        let tunnel = self.kind.connect(&config, now)?;
        let watch = peer.spec.supports_paths().then(|| peer.watch(local, &Before::default())).flatten();
        self.line.command(LaneCommand::Add { lane, cable, tunnel, watch }, now);
        Ok(())
    }

    /// Takes a datagram from the wire.
    pub(super) fn handle_datagram(&mut self, datagram: &[u8], from: SocketAddr, now: Instant) {
        // Without a buffer it is lost, as on any wire.
        let Some(buffer) = self.line.pool.alloc_copy(datagram) else { return };
        let local = Some(IpAddr::V4(*self.address.ip()));
        let mut packet = Packet::new(buffer);
        packet.outer = Outer { peer: from, local, ..Outer::NONE };
        let mut batch = Batch::with_limit(1);
        if batch.push(packet).is_ok() {
            self.line.inbound(&mut batch, now);
        }
        self.settle(now);
    }

    /// Does what is due.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.line.poll_timeout().is_some_and(|due| due <= now)
            || self.line.poll_probes().is_some_and(|due| due <= now)
        {
            self.line.handle_timeout(now);
        }
        self.settle(now);
    }

    /// Returns when [`Self::handle_timeout`] wants to be called next.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let slow = self.slow.as_ref().and_then(|slow| slow.engine.poll_timeout());
        [self.line.poll_timeout(), self.line.poll_probes(), slow].into_iter().flatten().min()
    }

    /// Appends what is to be sent.
    pub(super) fn poll_transmits(&mut self, datagrams: &mut Vec<Datagram>) {
        let packets: Vec<Packet> = self.line.to_wire.drain().collect();
        for packet in packets {
            for index in 0..usize::from(packet.layout.count) {
                let (start, end) = packet.segment_range(index);
                datagrams.push((packet.outer.peer, packet.bytes()[start..end].to_vec()));
            }
            self.line.pool.recycle(packet.buf);
        }
    }

    /// Lets the slow half have its turn, and the host behind the device that there is not answer.
    fn settle(&mut self, now: Instant) {
        self.negotiate(now);
        self.answer(now);
        while self.line.poll_event().is_some() {}
    }

    fn negotiate(&mut self, now: Instant) {
        let Some(slow) = &mut self.slow else { return };
        while let Ok(input) = slow
            .orders
            .try_recv()
            .or_else(|_| slow.messages.try_recv())
            .or_else(|_| slow.strangers.try_recv())
        {
            slow.engine.handle_input(input, now);
        }
        if slow.engine.poll_timeout().is_some_and(|due| due <= now) {
            slow.engine.handle_timeout(now);
        }
        while let Some(event) = slow.engine.poll_event() {
            if let IkeEvent::Poke(lane) = event {
                self.line.command(LaneCommand::Look { lane }, now);
            }
        }
        while let Some(transmit) = slow.engine.poll_transmit() {
            self.line.transmit(&transmit);
        }
    }

    /// Answers pings, as the host's kernel would; nobody is there for anything else.
    fn answer(&mut self, now: Instant) {
        let packets: Vec<Packet> = self.line.to_tun.drain().collect();
        for mut packet in packets {
            let is_answered = Inner::parse(packet.bytes())
                .is_ok_and(|inner| icmp::echo_reply(packet.buf.bytes_mut(), &inner));
            let reply = is_answered.then(|| self.line.pool.alloc_copy(packet.bytes())).flatten();
            self.line.pool.recycle(packet.buf);
            let mut batch = Batch::with_limit(1);
            if let Some(reply) = reply
                && batch.push(Packet::new(reply)).is_ok()
            {
                self.line.outbound(&mut batch, now);
            }
        }
    }
}

/// Returns what a member is to its own tables.
fn local(number: u32, driver: &str) -> anyhow::Result<Local> {
    let spec = spec(number, NETWORKS, driver)?;
    let facts = spec.parse().context("an Endpoint of ours can be read")?;
    let site = tables::site(&facts, &spec, driver);
    Ok(Local {
        cluster_id: spec.cluster_id,
        site,
        icmp_sources: vec![probed(number)],
        path_mtu: MTU_BYTES,
        translation: None,
        allowed: Allowed::default(),
        node_addresses: BTreeSet::new(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ipnet::IpNet;

    use trieste_tests::broker;

    use super::*;

    /// Lets two members that know each other talk for some seconds; returns how many packets each has opened.
    fn talk(driver: &str) -> Vec<u64> {
        let endpoint = |number| -> Endpoint {
            serde_json::from_value(broker::endpoint(&spec(number, NETWORKS, driver).unwrap())).unwrap()
        };
        let mut now = Instant::now();
        let mut members: Vec<Member> = [(0, 1), (1, 0)]
            .map(|(own, other)| Member::new(own, driver, &[endpoint(other)], now).unwrap())
            .into();
        // No clock but ours: WireGuard's greeting goes out within its first seconds all the same.
        for _ in 0..500 {
            now += Duration::from_millis(10);
            for member in &mut members {
                member.handle_timeout(now);
            }
            for from in 0..members.len() {
                let mut datagrams = Vec::new();
                members[from].poll_transmits(&mut datagrams);
                let source = SocketAddr::V4(members[from].address);
                for (to, datagram) in datagrams {
                    let to = members.iter_mut().find(|member| SocketAddr::V4(member.address) == to);
                    to.unwrap().handle_datagram(&datagram, source, now);
                }
            }
        }
        members
            .iter()
            .map(|member| member.line.reports(now).map(|report| report.stats.rx_packets).sum())
            .collect()
    }

    #[test]
    fn members_answer_each_other_by_every_cable() {
        for driver in ["wireguard", "libreswan", "vxlan"] {
            let opened = talk(driver);
            assert!(opened.iter().all(|count| *count > 0), "{driver}: {opened:?}");
        }
    }

    #[test]
    fn a_driver_that_there_is_not_is_refused() {
        let error = spec(0, 1, "plain").unwrap_err().to_string();
        assert!(error.contains("plain"), "{error}");
    }

    #[test]
    fn networks_and_addresses_of_members_differ() {
        let [one, other] = [0, 899].map(|number| spec(number, NETWORKS, "vxlan").unwrap());
        assert_eq!((one.private_ip.as_str(), other.private_ip.as_str()), ("198.19.0.1", "198.19.3.132"));
        let nets: Vec<IpNet> = one.subnets.iter().map(|net| net.parse().unwrap()).collect();
        assert!(nets[0].contains(&one.health_check_ip.parse::<IpAddr>().unwrap()));
    }
}

//! ESP packets that come before the keys that open them.
#![expect(clippy::disallowed_methods, reason = "a clock has to start somewhere")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use trieste_cables::ipsec::link::link;
use trieste_cables::ipsec::{
    ChildMeter, ChildSa, EspCable, EspCableConfig, EspKeys, EspPath, EspSuite, LaneOrder, Limits, Outbound,
    Selector, Selectors, Spi,
};
use trieste_cables::{Admission, Gate, Jobs, Lane as _, Message};
use trieste_packet::{Batch, CableId, DropReason, Drops, LaneId, Outer, Packet, Pool, PoolConfig, WorkerId};
use trieste_pipeline::{LaneCommand, Pipeline, TablesBuilder};

use crate::support::{MTU, POD_A, POD_B, pipeline_config, udp4};

const LANE: LaneId = LaneId(0x100);
const PEER: &str = "192.0.2.2:4500";

/// All that comes is ESP.
struct EspGate;

impl Gate for EspGate {
    fn classify(&mut self, datagram: &[u8], _from: &Outer) -> Message {
        datagram.first_chunk().map_or(Message::Unknown, |spi| Message::Data(Spi::from_bytes(*spi).lane()))
    }

    fn admit(&mut self, _datagram: &[u8], _from: &Outer, _now: Instant) -> Admission {
        Admission::Refuse(DropReason::UnknownDatagram)
    }

    fn handle_timeout(&mut self, _now: Instant) {}
}

fn child(is_mirrored: bool, now: Instant) -> ChildSa {
    let side = |net: &str| vec![Selector::subnet(net.parse().unwrap())];
    let (local, remote) =
        if is_mirrored { ("10.2.0.0/16", "10.1.0.0/16") } else { ("10.1.0.0/16", "10.2.0.0/16") };
    let keys =
        |seed: u8| EspKeys { key: vec![seed; EspSuite::Aes128Gcm16.key_bytes()].into(), salt: [seed; 4] };
    let seeds = if is_mirrored { [1, 2] } else { [2, 1] };
    ChildSa {
        inbound: Spi::new(LANE, 7),
        outbound: Spi::new(LANE, 7),
        suite: EspSuite::Aes128Gcm16,
        has_esn: true,
        inbound_keys: keys(seeds[0]),
        outbound_keys: keys(seeds[1]),
        selectors: Selectors { local: side(local), remote: side(remote) },
        activation: Outbound::Now,
        limits: Limits::until(now + Duration::from_secs(3600)),
        meter: ChildMeter::new(now),
    }
}

/// What the peer has sealed.
fn sealed(packets: &[Vec<u8>], now: Instant) -> Vec<Vec<u8>> {
    let (slow_half, port, _events) = link(LANE);
    let outer = Outer { peer: "192.0.2.1:4500".parse().unwrap(), ..Outer::NONE };
    slow_half.send(LaneOrder::Path(EspPath { outer, may_move: false }));
    slow_half.send(LaneOrder::Add(Box::new(child(true, now))));
    let mut cable = EspCable::new(EspCableConfig { lane: LANE, cable: CableId(1), port }, now);
    let mut pool = Pool::new(PoolConfig::default());
    let mut messages = Vec::new();
    for bytes in packets {
        let (mut input, mut output) = (vec![Packet::new(pool.alloc_copy(bytes).unwrap())], Batch::new());
        let (mut drops, mut consumed) = (Drops::default(), 0);
        let mut jobs = Jobs {
            input: &mut input,
            output: &mut output,
            pool: &mut pool,
            drops: &mut drops,
            consumed: &mut consumed,
        };
        cable.seal(&mut jobs, now);
        for packet in output.drain() {
            messages.push(packet.bytes().to_vec());
            pool.recycle(packet.buf);
        }
    }
    messages
}

#[test]
fn packets_that_wait_for_their_keys_are_delivered_when_the_slow_half_says_so() {
    let now = Instant::now();
    let (mut builder, nets) =
        (TablesBuilder::new(1, &["10.1.0.0/16".parse().unwrap()], &[]), ["10.2.0.0/16".parse().unwrap()]);
    let cluster = builder.cluster("other", &nets).unwrap();
    builder.path(cluster, LANE, CableId(1), MTU).unwrap();
    let tables = Arc::new(ArcSwap::from_pointee(builder.build()));
    let mut line = Pipeline::new(pipeline_config(WorkerId(0)), tables, Box::new(EspGate), now);
    let (slow_half, port, _events) = link(LANE);
    let tunnel = Box::new(EspCable::new(EspCableConfig { lane: LANE, cable: CableId(1), port }, now));
    line.command(LaneCommand::Add { lane: LANE, cable: CableId(1), tunnel, watch: None }, now);
    let outer = Outer { peer: PEER.parse().unwrap(), ..Outer::NONE };
    slow_half.send(LaneOrder::Path(EspPath { outer, may_move: false }));
    slow_half.send(LaneOrder::Expect(Spi::new(LANE, 7)));
    let packets: Vec<Vec<u8>> = (0..4).map(|number| udp4(POD_B, POD_A, 60 + number)).collect();

    let mut batch = Batch::new();
    for message in sealed(&packets, now) {
        let packet = Packet { outer, ..Packet::new(line.pool.alloc_copy(&message).unwrap()) };
        batch.push(packet).unwrap();
    }
    line.inbound(&mut batch, now);
    assert!(line.to_tun.is_empty());
    let counters = line.snapshot(now);
    assert_eq!((counters.held, counters.dropped), (4, 0));
    assert!(counters.conservation().holds());

    slow_half.send(LaneOrder::Add(Box::new(child(false, now))));
    line.command(LaneCommand::Look { lane: LANE }, now);

    let delivered: Vec<Vec<u8>> =
        line.to_tun.as_slice().iter().map(|packet| packet.bytes().to_vec()).collect();
    assert_eq!(delivered, packets);
    let counters = line.snapshot(now);
    assert_eq!((counters.held, counters.dropped), (4, 0), "on their way to the TUN device");
    assert!(counters.conservation().holds());
}

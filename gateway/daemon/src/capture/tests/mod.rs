mod line;
mod read;
mod secrets;
mod tools;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use etherparse::PacketBuilder;
use futures::StreamExt;
use trieste_control::admin::CaptureRequest;
use trieste_packet::{Outer, Packet, Pool, PoolConfig, Witness};
use trieste_pipeline::{Point, Tap};

use read::Capture;

use super::*;

/// A hub with one capture, and the taps of one worker.
struct Bench {
    hub: Arc<CaptureHub>,
    stream: CaptureStream,
    tap: Option<Box<dyn Tap>>,
    witness: Option<Box<dyn Witness>>,
    pool: Pool,
}

impl Bench {
    fn new(request: &CaptureRequest) -> Self {
        let hub = hub();
        let stream = hub.start(request).unwrap();
        let (tap, witness) = hub.attach(1);
        Self { hub, stream, tap, witness, pool: Pool::new(PoolConfig { slots: 4, ..PoolConfig::default() }) }
    }

    /// A bench that captures at `points`.
    fn at(points: &str) -> Self {
        Self::new(&CaptureRequest { point: Some(points.to_owned()), ..CaptureRequest::default() })
    }

    fn packet(&mut self, bytes: &[u8]) -> Packet {
        Packet::new(self.pool.alloc_copy(bytes).unwrap())
    }

    fn show(&mut self, point: Point, packet: &Packet) {
        let outer = matches!(point, Point::OuterRx | Point::OuterTx).then_some(&packet.outer);
        if let Some(tap) = self.tap.as_mut() {
            tap.see(point, packet, outer, Instant::now());
        }
    }

    fn show_bytes(&mut self, point: Point, bytes: &[u8]) {
        let packet = self.packet(bytes);
        self.show(point, &packet);
        self.pool.recycle(packet.buf);
    }

    fn show_datagram(&mut self, point: Point, peer: &str, payload: &[u8]) {
        let mut packet = self.packet(payload);
        packet.outer = Outer { peer: peer.parse().unwrap(), local: None, tos: 0 };
        self.show(point, &packet);
        self.pool.recycle(packet.buf);
    }

    /// Ends the capture and returns all of it.
    async fn bytes(self) -> Vec<u8> {
        self.hub.stop();
        let pieces: Vec<_> = self.stream.map(|piece| piece.unwrap()).collect().await;
        pieces.concat()
    }

    async fn finish(self) -> Capture {
        Capture::read(&self.bytes().await)
    }
}

fn hub() -> Arc<CaptureHub> {
    Arc::new(CaptureHub::new("192.0.2.1".parse::<IpAddr>().unwrap(), 4500))
}

fn tcp(source: [u8; 4], destination: [u8; 4], port: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    PacketBuilder::ipv4(source, destination, 64)
        .tcp(40_000, port, 1000, 4000)
        .psh()
        .ack(1)
        .write(&mut bytes, payload)
        .unwrap();
    bytes
}

fn udp6(port: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    PacketBuilder::ipv6([0xfd; 16], [0xfc; 16], 64).udp(40_000, port).write(&mut bytes, payload).unwrap();
    bytes
}

#[tokio::test]
async fn without_a_capture_there_is_nothing_to_attach() {
    let hub = hub();
    assert_eq!(hub.generation(), 0);
    let (tap, witness) = hub.attach(0);
    assert!(tap.is_none() && witness.is_none());
}

#[tokio::test]
async fn taps_come_and_go_with_the_stream() {
    let hub = hub();
    let request = |point: &str| CaptureRequest { point: Some(point.to_owned()), ..CaptureRequest::default() };
    let drops = hub.start(&request("drops")).unwrap();
    let first = hub.generation();
    assert_ne!(first, 0);
    assert!(matches!(hub.attach(0), (None, Some(_))));
    let line = hub.start(&request("opened")).unwrap();
    assert_ne!(hub.generation(), first);
    assert!(matches!(hub.attach(0), (Some(_), Some(_))));
    assert_eq!(hub.counters().running, 2);
    drop(drops);
    assert!(matches!(hub.attach(0), (Some(_), None)));
    let before = hub.generation();
    drop(line);
    assert_ne!(hub.generation(), before);
    assert!(matches!(hub.attach(0), (None, None)));
    assert_eq!(hub.counters(), CaptureCounters::default());
}

#[tokio::test]
async fn captures_are_limited_and_end_with_the_gateway() {
    let hub = hub();
    let request = CaptureRequest::default();
    let streams: Vec<_> = (0..hub::MAX_CAPTURES).map(|_| hub.start(&request).unwrap()).collect();
    assert_eq!(hub.start(&request).unwrap_err(), CaptureError::TooMany);
    drop(streams);
    let stream = hub.start(&request).unwrap();
    hub.stop();
    assert_eq!(hub.start(&request).unwrap_err(), CaptureError::Stopping);
    let pieces: Vec<_> = stream.collect().await;
    assert!(!pieces.is_empty(), "a stopped capture is a whole file");
}

#[tokio::test]
async fn an_unknown_point_is_refused_and_sealed_is_outer_tx() {
    let request = |point: &str| CaptureRequest { point: Some(point.to_owned()), ..CaptureRequest::default() };
    assert!(matches!(hub().start(&request("nowhere")), Err(CaptureError::Point(_))));
    assert!(matches!(hub().start(&request("")), Err(CaptureError::Point(_))));
    let capture = Bench::at("sealed,outer-tx").finish().await;
    assert_eq!(capture.interfaces, [("outer-tx".to_owned(), 101, hub::DEFAULT_SNAP_BYTES)]);
}

#[tokio::test]
async fn the_header_comes_at_once_and_packets_while_the_capture_runs() {
    let mut bench = Bench::at("inner-rx");
    let header = bench.stream.next().await.unwrap().unwrap();
    assert_eq!(Capture::read(&header).interfaces.len(), 1);
    bench.show_bytes(Point::InnerRx, &udp6(53, b"x"));
    let piece = bench.stream.next().await.unwrap().unwrap();
    let capture = Capture::read(&[header, piece].concat());
    assert_eq!(capture.at("inner-rx"), [udp6(53, b"x")]);
}

#[tokio::test]
async fn what_does_not_fit_the_queue_is_counted_and_told() {
    let mut bench = Bench::at("inner-rx,opened");
    let packet = udp6(53, b"x");
    for _ in 0..queue::QUEUE_PACKETS + 10 {
        bench.show_bytes(Point::InnerRx, &packet);
    }
    assert_eq!(bench.hub.counters().lost, 10);
    let _header = bench.stream.next().await;
    let mut text = _header.unwrap().unwrap().to_vec();
    // The queue has room again; the next packet tells what was lost before it.
    text.extend(bench.stream.next().await.unwrap().unwrap());
    bench.show_bytes(Point::InnerRx, &packet);
    let hub = Arc::clone(&bench.hub);
    text.extend(bench.bytes().await);
    let capture = Capture::read(&text);
    assert_eq!(capture.frames.len(), queue::QUEUE_PACKETS + 1);
    assert_eq!(capture.frames.last().unwrap().lost, 10);
    assert!(capture.frames[..queue::QUEUE_PACKETS].iter().all(|frame| frame.lost == 0));
    let received = queue::QUEUE_PACKETS as u64 + 11;
    assert_eq!(
        capture.statistics,
        [
            ("opened".to_owned(), 0, 0, String::new()),
            (
                "inner-rx".to_owned(),
                received,
                10,
                "10 packets are missing: the reader was too slow".to_owned()
            ),
        ]
    );
    assert_eq!(hub.counters(), CaptureCounters { running: 0, lost: 10 });
}

#[tokio::test]
async fn big_packets_fill_the_queue_by_bytes() {
    let mut bench = Bench::at("drops");
    let packet = tcp([10, 1, 0, 1], [10, 2, 0, 2], 80, &vec![7; 60_000]);
    let fit = queue::QUEUE_BYTES / packet.len();
    for _ in 0..fit + 5 {
        let witness = bench.witness.as_mut().unwrap();
        witness.dropped(trieste_packet::CableId(0), trieste_packet::DropReason::NoRoute, &packet);
    }
    assert_eq!(bench.hub.counters().lost, 5);
    assert_eq!(bench.finish().await.frames.len(), fit);
}

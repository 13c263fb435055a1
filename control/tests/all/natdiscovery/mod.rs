//! NAT discovery seen from outside: bytes, verdicts, the machine, and machines behind NAT.

mod machine;
mod memory;
mod responses;
mod simulation;
mod verdicts;
mod wire;

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use trieste_control::natdiscovery::message::{
    self, Body, EndpointDetails, IpPortPair, Request, Response, ResponseType,
};
use trieste_control::natdiscovery::{How, Local, Machine, Memory, Outcome, Remote, Selection, Transmit};

const PORT: u16 = 4490;
const OWN_IP: &str = "172.31.1.11";
const PRIVATE: &str = "172.31.2.11";
const PUBLIC: &str = "198.51.100.2";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn at(address: &str) -> SocketAddr {
    SocketAddr::new(ip(address), PORT)
}

fn cable(cluster: &str) -> String {
    format!("submariner-cable-{cluster}")
}

fn local() -> Local {
    Local {
        cluster_id: "a".to_owned(),
        cable_name: cable("a"),
        private_ips: vec![ip(OWN_IP), ip("fd00::a")],
        port: PORT,
    }
}

fn remote() -> Remote {
    Remote {
        cluster_id: "b".to_owned(),
        cable_name: cable("b"),
        private_ip: Some(ip(PRIVATE)),
        public_ip: Some(ip(PUBLIC)),
        port: Some(PORT),
        nat_enabled: false,
        uses_load_balancer: false,
    }
}

fn details(cluster: &str) -> EndpointDetails {
    EndpointDetails { cluster_id: cluster.to_owned(), endpoint_id: cable(cluster) }
}

fn pair(address: &str, port: i32) -> IpPortPair {
    IpPortPair { ip: address.to_owned(), port }
}

/// A request from `b` to us, as it leaves b.
fn request() -> Request {
    Request {
        request_number: 7,
        sender: Some(details("b")),
        receiver: Some(details("a")),
        using_src: Some(pair(PRIVATE, PORT.into())),
        using_dst: Some(pair(OWN_IP, PORT.into())),
    }
}

/// A machine of `a`, and a clock.
struct Bench {
    machine: Machine,
    start: Instant,
    now: Instant,
    /// The newest request to the private address.
    newest: Option<Request>,
}

impl Bench {
    fn new() -> Self {
        Self::with(local(), Memory::default())
    }

    fn with(local: Local, memory: Memory) -> Self {
        let start = Instant::now();
        Self { machine: Machine::new(local, [7; 32], memory), start, now: start, newest: None }
    }

    fn add(&mut self, remote: Remote) {
        self.machine.add(remote, self.now).unwrap();
    }

    /// Everything that is to be sent now. The kernel's source is always the own address.
    fn sent(&mut self) -> Vec<Transmit> {
        self.machine.handle_timeout(self.now);
        let sent: Vec<_> = std::iter::from_fn(|| self.machine.poll_transmit(|_| Some(ip(OWN_IP)))).collect();
        for transmit in &sent {
            match message::parse(&transmit.payload) {
                Ok(Body::Request(request)) if transmit.to.ip() == ip(PRIVATE) => self.newest = Some(request),
                _ => {}
            }
        }
        sent
    }

    /// Requests among what is to be sent now, with their targets.
    fn asked(&mut self) -> Vec<(SocketAddr, Request)> {
        let requests = self.sent().into_iter().map(|transmit| match message::parse(&transmit.payload) {
            Ok(Body::Request(request)) => (transmit.to, request),
            other => panic!("no request: {other:?}"),
        });
        requests.collect()
    }

    fn targets(&mut self) -> Vec<SocketAddr> {
        self.asked().into_iter().map(|(to, _)| to).collect()
    }

    /// What was selected since the last call.
    fn selected(&mut self) -> Vec<Selection> {
        self.machine.handle_timeout(self.now);
        std::iter::from_fn(|| self.machine.poll_event()).map(|event| event.selection).collect()
    }

    fn advance(&mut self, by: Duration) {
        self.now += by;
    }

    /// Moves to `seconds` after the start, doing everything that falls due on the way at its time; returns how many
    /// requests were sent.
    fn run_until(&mut self, seconds: u64) -> usize {
        let end = self.start + Duration::from_secs(seconds);
        let mut sent = 0;
        while let Some(next) = self.machine.poll_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(next);
            sent += self.sent().len();
        }
        self.now = end;
        sent
    }

    fn respond(&mut self, response: Response, from: &str) -> Outcome {
        let payload = message::emit(Body::Response(response));
        self.machine.handle_datagram(&payload, at(from), None, self.now)
    }

    fn status(&self) -> (String, String) {
        let status = self.machine.status(&cable("b"), self.now).unwrap();
        (status.state, status.message)
    }
}

/// b's response to a request of ours.
fn response_to(request: &Request, verdict: ResponseType) -> Response {
    Response {
        request_number: request.request_number,
        response: verdict.into(),
        sender: Some(details("b")),
        receiver: Some(details("a")),
        received_src: Some(pair(OWN_IP, PORT.into())),
        ..Response::default()
    }
}

fn selection(address: &str, use_nat: bool, how: How) -> Selection {
    Selection { ip: ip(address), use_nat, how }
}

//! AF_XDP in copy mode on veth, generic and native, against the real kernel: two namespaces joined by a cable. Needs root.

mod conformance;
mod faults;
mod frames;
mod policies;
mod queues;
mod raw;
mod returns;
mod speed;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use std::{io, thread};

use rustix::net::{AddressFamily, SocketType, socket};
use trieste_io::xdp::{XdpConfig, XdpIo, XdpMode};
use trieste_io::{Capabilities, Error, PacketIo, UdpConfig, UdpIo};
use trieste_packet::{Batch, Drops, LayoutKind, Outer, Packet, Pool};

use crate::skip::skip;
use crate::support::{Namespace, PATIENCE, Side};

/// Our ends' addresses, by family.
const NEAR: [&str; 2] = ["10.79.0.1", "fd79::1"];
const FAR: [&str; 2] = ["10.79.0.2", "fd79::2"];
const PORT: u16 = 4500;

/// Two namespaces and the cable between them: `va` in the near one, `vb` in the far one.
struct Cable {
    near: Namespace,
    far: Namespace,
}

impl Cable {
    fn new() -> Option<Self> {
        Self::with_queues(1)
    }

    fn with_queues(queues: u32) -> Option<Self> {
        if let Err(error) = socket(AddressFamily::XDP, SocketType::RAW, None)
            && error == rustix::io::Errno::AFNOSUPPORT
        {
            skip("this kernel has no AF_XDP (CONFIG_XDP_SOCKETS)");
            return None;
        }
        let cable = Self { near: Namespace::new()?, far: Namespace::new()? };
        cable.join(queues);
        Some(cable)
    }

    /// Makes the cable's two ends.
    fn join(&self, queues: u32) {
        let Self { near, far } = self;
        let thread = far.run(rustix::thread::gettid).as_raw_nonzero();
        let queues = format!("numtxqueues {queues} numrxqueues {queues}");
        near.ip(&format!("link add va {queues} type veth peer name vb {queues} netns {thread}"));
        for (end, device, addresses) in [(near, "va", NEAR), (far, "vb", FAR)] {
            end.ip(&format!("link set {device} up"));
            end.ip(&format!("addr add {}/24 dev {device}", addresses[0]));
            end.ip(&format!("addr add {}/64 dev {device} nodad", addresses[1]));
        }
        // The kernel makes addresses and routes usable a little after the command has returned.
        wait_until(|| near.ip("-6 route get fd79::2").contains("dev va"));
        wait_until(|| far.ip("-6 route get fd79::1").contains("dev vb"));
        wait_until(|| near.ip("link show va").contains("state UP"));
    }

    /// Opens one end: sockets, or AF_XDP in front of them.
    fn open(&self, is_near: bool, mode: Option<XdpMode>) -> Wire {
        self.open_with(is_near, mode, |config| config).unwrap()
    }

    fn open_with(
        &self,
        is_near: bool,
        mode: Option<XdpMode>,
        change: impl FnOnce(XdpConfig) -> XdpConfig + Send + 'static,
    ) -> Result<Wire, Error> {
        let (end, device) = if is_near { (&self.near, "va") } else { (&self.far, "vb") };
        end.run(move || {
            let deadline = Instant::now() + PATIENCE;
            let sockets = loop {
                match UdpIo::open(&UdpConfig::new(PORT)) {
                    // A command that another test starts has, until it is executed, what this process had open.
                    Err(Error::PortInUse(_)) if Instant::now() < deadline => {
                        thread::sleep(Duration::from_millis(1));
                    }
                    result => break result?,
                }
            };
            let Some(mode) = mode else { return Ok(Wire::Sockets(sockets)) };
            let config = change(XdpConfig { mode, ..XdpConfig::new(device) });
            let mut sockets = vec![sockets];
            Ok(Wire::Xdp(XdpIo::open_group(&config, &mut sockets)?.remove(0)))
        })
    }
}

/// Either implementation of an outer side.
#[expect(clippy::large_enum_variant, reason = "a few in a test")]
enum Wire {
    Sockets(UdpIo),
    Xdp(XdpIo),
}

impl Wire {
    fn xdp(&self) -> &XdpIo {
        match self {
            Self::Xdp(io) => io,
            Self::Sockets(_) => panic!("these are sockets"),
        }
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Self::Sockets(io) => io.fds().collect(),
            Self::Xdp(io) => io.fds().collect(),
        }
    }

    fn is_blocked(&self) -> bool {
        match self {
            Self::Sockets(io) => io.blocked().is_some(),
            Self::Xdp(io) => io.blocked().is_some(),
        }
    }
}

impl PacketIo for Wire {
    fn recv(&mut self, pool: &mut Pool, batch: &mut Batch, drops: &mut Drops) -> io::Result<usize> {
        match self {
            Self::Sockets(io) => io.recv(pool, batch, drops),
            Self::Xdp(io) => io.recv(pool, batch, drops),
        }
    }

    fn send(&mut self, batch: &mut Batch, pool: &mut Pool, drops: &mut Drops) -> io::Result<usize> {
        match self {
            Self::Sockets(io) => io.send(batch, pool, drops),
            Self::Xdp(io) => io.send(batch, pool, drops),
        }
    }

    fn capabilities(&self) -> Capabilities {
        match self {
            Self::Sockets(io) => io.capabilities(),
            Self::Xdp(io) => io.capabilities(),
        }
    }
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "it never came about");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Receives for as long as something comes, and a little longer; packets count by datagrams.
fn drain(side: &mut Side, wire: &mut Wire, wanted: usize) -> Vec<Packet> {
    drain_for(side, wire, wanted, Duration::from_millis(40))
}

/// The same, until nothing has come for so long: on a busy machine what was sent may be on its way for a while.
fn drain_for(side: &mut Side, wire: &mut Wire, wanted: usize, silence: Duration) -> Vec<Packet> {
    let (mut packets, mut seen) = (Vec::new(), 0);
    let deadline = Instant::now() + PATIENCE;
    let mut quiet = Instant::now();
    while quiet.elapsed() < if seen < wanted { PATIENCE } else { silence } {
        assert!(Instant::now() < deadline, "{seen} of {wanted} datagrams came");
        let count = wire.recv(&mut side.pool, &mut side.batch, &mut side.drops).unwrap();
        packets.extend(side.batch.drain());
        seen += count;
        if count > 0 {
            quiet = Instant::now();
        } else {
            thread::sleep(Duration::from_micros(200));
        }
    }
    packets
}

/// The datagrams of packets and trains, with where they came from.
fn datagrams(packets: &[Packet]) -> Vec<(Outer, Vec<u8>)> {
    let mut all = Vec::new();
    for packet in packets {
        let stride = match packet.layout.kind {
            LayoutKind::Datagrams => usize::from(packet.layout.stride_bytes),
            LayoutKind::Single | LayoutKind::Tcp | LayoutKind::Udp | LayoutKind::Packets => {
                packet.buf.len().max(1)
            }
        };
        if packet.buf.is_empty() {
            all.push((packet.outer, Vec::new()));
        }
        all.extend(packet.bytes().chunks(stride).map(|one| (packet.outer, one.to_vec())));
    }
    all
}

fn to(host: &str) -> Outer {
    let host: IpAddr = host.parse().unwrap();
    Outer { peer: SocketAddr::new(host, PORT), ..Outer::NONE }
}

/// Sends single datagrams until one of them leaves in a frame.
fn warm_up(side: &mut Side, wire: &mut Wire, hosts: [&str; 2]) {
    for host in hosts {
        let before = wire.xdp().counters().sent;
        wait_until(|| {
            side.push(b"hello").outer = to(host);
            side.send(wire);
            wire.xdp().counters().sent > before
        });
    }
}

//! A capture of all devices: `AF_PACKET`, from the IP header on. Opened by somebody with `NET_RAW`, reads only.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::sys::socket::{LinkAddr, recvfrom};
use socket2::{Domain, Protocol, Socket, Type};

use super::filter::{SNAP_BYTES, filter};
use super::{Direction, NodeError};

/// From the kernel's `linux/if_ether.h`: every protocol.
const ETH_P_ALL: u16 = 3;
/// From the kernel's `linux/if_packet.h`: a packet that leaves.
const PACKET_OUTGOING: u8 = 4;
/// Ours: what is buffered for us at most; a flood is lost beyond it, and nobody waits for us.
const BUFFER_BYTES: usize = 4 << 20;
/// Ours: most device names that are remembered.
const MAX_DEVICES: usize = 4096;

/// Nothing came in time; or a device went down, which it says once while the others go on.
const PASSING: [ErrorKind; 4] =
    [ErrorKind::WouldBlock, ErrorKind::Interrupted, ErrorKind::TimedOut, ErrorKind::NetworkDown];

/// A capture that runs.
pub(super) struct Capture {
    socket: Socket,
    devices: BTreeMap<u32, String>,
    buffer: Vec<u8>,
}

/// A packet, from its IP header on, cut off at the end.
pub(super) struct Captured<'a> {
    /// The device's name.
    pub(super) device: &'a str,
    /// Whether it comes or goes.
    pub(super) way: Direction,
    /// The packet.
    pub(super) bytes: &'a [u8],
}

impl Capture {
    /// Starts to capture: ICMP, and UDP of these ports.
    pub(super) fn open(ports: &[u16]) -> Result<Self, NodeError> {
        let protocol = Protocol::from(i32::from(ETH_P_ALL.to_be()));
        let socket = Socket::new(Domain::PACKET, Type::DGRAM.cloexec(), Some(protocol))
            .map_err(NodeError::socket("capture packets"))?;
        socket.attach_filter(&filter(ports)).map_err(NodeError::socket("filter captured packets"))?;
        // Less than what is asked for does as well.
        let _ = socket.set_recv_buffer_size(BUFFER_BYTES);
        Ok(Self { socket, devices: BTreeMap::new(), buffer: vec![0; SNAP_BYTES] })
    }

    /// The next packet, or `None` when the time is over. Packets of the loopback device are left out.
    pub(super) fn next(&mut self, within: Duration) -> Result<Option<Captured<'_>>, NodeError> {
        self.socket
            .set_read_timeout(Some(within.max(Duration::from_millis(1))))
            .map_err(NodeError::socket("wait for packets"))?;
        let (length, from) = match recvfrom::<LinkAddr>(self.socket.as_raw_fd(), &mut self.buffer) {
            Ok((length, Some(from))) => (length, from),
            Ok((_, None)) => return Ok(None),
            Err(errno) => {
                let source = std::io::Error::from(errno);
                if PASSING.contains(&source.kind()) {
                    return Ok(None);
                }
                return Err(NodeError::Socket { what: "read captured packets", source });
            }
        };
        let index = u32::try_from(from.ifindex()).unwrap_or(0);
        let way = if from.pkttype() == PACKET_OUTGOING { Direction::Out } else { Direction::In };
        if self.devices.len() >= MAX_DEVICES {
            self.devices.clear();
        }
        let socket = &self.socket;
        let device = self.devices.entry(index).or_insert_with(|| {
            rustix::net::netdevice::index_to_name(socket, index).unwrap_or_else(|_| format!("#{index}"))
        });
        if device == "lo" {
            return Ok(None);
        }
        Ok(Some(Captured { device, way, bytes: &self.buffer[..length.min(SNAP_BYTES)] }))
    }
}

//! Packets in and out of the kernel: TUN and UDP with segmentation offload.
//!
//! ```text
//!            recv: one read per train            send: one writev per train
//!  TUN  ───── virtio_net_hdr + super-packet ─────▶ Batch of Packet ◀─────  strided or contiguous trains
//!  UDP  ───── recvmmsg, UDP_GRO ─────────────────▶ Batch of Packet ◀─────  sendmmsg, UDP_SEGMENT
//! ```
//!
//! Everything implements [`PacketIo`], which never blocks. A worker waits with [`poll::Poller`]. What the kernel
//! offers is probed when a device or socket is opened; what it does not offer is done here in software and is said
//! as a [`Fallback`]. No policy lives here: which packet goes where has been decided before.

mod capabilities;
pub mod cpu;
mod error;
pub mod heap;
pub mod inherited;
pub mod link;
pub mod memory;
pub mod poll;
mod rings;
mod sys;
pub mod tun;
pub mod udp;
#[cfg(feature = "af-xdp")]
pub mod xdp;

use std::io;
use std::time::Duration;

use trieste_packet::{Batch, Drops, Pool};

pub use capabilities::{Capabilities, Fallback, Offloads};
pub use error::Error;
pub use memory::MemoryDevice;
pub use rings::{RingState, StepCause, StepDown, XdpCounters, XdpMode};
pub use tun::{Tun, TunConfig, TunQueue};
pub use udp::{UdpConfig, UdpIo};

/// Bytes after which one `recv` stops collecting: three full trains. More would be out of the cache again before
/// they are sealed; fewer would read the clock and the tables too often.
pub const RECV_BYTES: usize = 192 * 1024;

/// A packet device that never blocks.
pub trait PacketIo {
    /// Appends what has arrived to `batch`, until it is full, [`RECV_BYTES`] have come, or there is no more.
    ///
    /// Returns the number of packets that came in, trains counted by their segments. Those among them that cannot be
    /// used are not in the batch but counted in `drops`. 0 means that nothing is there now, or that `pool` has no
    /// buffer left: then what has arrived stays in the kernel, and asking again makes sense only after buffers came back.
    ///
    /// # Errors
    /// When the device itself is gone or broken. What is wrong with single packets is not an error.
    fn recv(&mut self, pool: &mut Pool, batch: &mut Batch, drops: &mut Drops) -> io::Result<usize>;

    /// Sends from the front of `batch`, in order, and gives the buffers back to `pool`.
    ///
    /// Returns the number of packets sent, trains counted by their segments. A packet that the kernel refuses leaves the
    /// batch and is counted in `drops` under its cable. When the device's queue is full the rest stays in the batch;
    /// of a train whose first segments are gone, only the rest does.
    ///
    /// # Errors
    /// When the device itself is gone or broken; the packets that are left stay in the batch.
    fn send(&mut self, batch: &mut Batch, pool: &mut Pool, drops: &mut Drops) -> io::Result<usize>;

    /// What the device can do, as probed; the answer may shrink while it runs.
    fn capabilities(&self) -> Capabilities;

    /// What the device was asked for and cannot do, in the order of discovery. Grows when the kernel refuses at run
    /// time what it promised at the start; such a change is also logged once, here.
    fn fallbacks(&self) -> &[Fallback] {
        &[]
    }

    /// Returns the state of its AF_XDP rings, by a few system calls; `None` for devices without any.
    fn rings(&self) -> Option<RingState> {
        None
    }

    /// Returns after how long to ask again (`recv` or `send`, with anything or nothing) although no descriptor reports room:
    /// the device has taken over what it has not sent yet, or holds all of its frames. `None` when there is nothing such.
    fn retry_after(&self) -> Option<Duration> {
        None
    }
}

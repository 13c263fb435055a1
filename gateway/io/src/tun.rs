//! The TUN device: where inner packets come from the host's stack and go back to it.
//!
//! With `IFF_VNET_HDR` every read and write carries a `virtio_net_hdr` that says how a super-packet is cut and
//! whether its checksum is finished, so that 64 KiB cross the boundary in one call:
//!
//! ```text
//!   | virtio_net_hdr | IP | TCP | payload of many segments … |
//!     in the headroom  ▲ start of the packet
//! ```
//!
//! The device is persistent: it outlives the process, and with it its routes, so that traffic for other clusters
//! does not leave in clear while we are away. [`remove`] ends it.

mod device;
mod queue;
mod vnet;
mod write;

use std::path::Path;

use crate::{Error, Fallback, Offloads, link};

pub use device::remove;
pub use queue::TunQueue;

/// Most queues of one device (the kernel's `MAX_TAP_QUEUES`).
pub const MAX_QUEUES: usize = 256;

/// How a TUN device should be.
#[derive(Debug, Clone)]
pub struct TunConfig {
    /// Name of the interface, at most 15 bytes.
    pub name: String,
    /// Number of queues, one per worker.
    pub queues: usize,
    /// MTU in bytes; `None` leaves it as it is.
    pub mtu_bytes: Option<usize>,
    /// Length of the transmit queue (packets on their way to us), in trains.
    pub tx_queue_length: u32,
    /// What may be left to the kernel. Less than [`Offloads::TUN`] is for tests and for kernels with bugs.
    pub offloads: Offloads,
    /// Whether the device stays when the process ends.
    pub is_persistent: bool,
}

impl TunConfig {
    /// A persistent device `name` with one queue and everything that the kernel offers.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            queues: 1,
            mtu_bytes: None,
            // Twice the kernel's default: bursts while a worker is busy with the other direction.
            tx_queue_length: 1000,
            offloads: Offloads::TUN,
            is_persistent: true,
        }
    }
}

/// A TUN device with its queues. It has no addresses, and is down until [`Tun::set_up`].
#[derive(Debug)]
pub struct Tun {
    name: String,
    queues: Vec<TunQueue>,
    fallbacks: Vec<Fallback>,
}

impl Tun {
    /// Creates the device, or takes over the persistent one of that name, in the calling thread's network namespace.
    ///
    /// # Errors
    /// When there is no TUN driver, the name belongs to something else, somebody holds the device, or we may not.
    pub fn open(config: &TunConfig) -> Result<Self, Error> {
        if config.queues == 0 || config.queues > MAX_QUEUES {
            return Err(Error::Count { what: "TUN queues", count: config.queues, most: MAX_QUEUES });
        }
        let mut fallbacks = Vec::new();
        let (file, mode) = device::open(config, &mut fallbacks)?;
        link::set_tx_queue_length(&config.name, config.tx_queue_length)?;
        if let Some(mtu_bytes) = config.mtu_bytes {
            link::set_mtu(&config.name, mtu_bytes)?;
        }
        let mtu_bytes = link::mtu(&config.name)?;
        let mut queues = Vec::with_capacity(config.queues);
        queues.push(TunQueue::new(file, mode, mtu_bytes, fallbacks.clone()));
        for _ in 1..config.queues {
            let file = device::attach(&config.name, mode.has_header)?;
            queues.push(TunQueue::new(file, mode, mtu_bytes, fallbacks.clone()));
        }
        // Last, so that a failure on the way leaves nothing behind that was not there before.
        device::set_persistent(queues[0].file(), &config.name, config.is_persistent)?;
        Ok(Self { name: config.name.clone(), queues, fallbacks })
    }

    /// The interface's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the kernel does in our place.
    #[must_use]
    pub fn offloads(&self) -> Offloads {
        self.queues.first().map_or(Offloads::NONE, TunQueue::offloads)
    }

    /// What was wanted and is not there; the same for all queues.
    #[must_use]
    pub fn fallbacks(&self) -> &[Fallback] {
        &self.fallbacks
    }

    /// Brings the interface up or down.
    ///
    /// # Errors
    /// When the interface has been removed meanwhile, or we may not.
    pub fn set_up(&self, is_up: bool) -> Result<(), Error> {
        link::set_up(&self.name, is_up)
    }

    /// Sets `net/ipv[46]/conf/<name>/<key>` below `root`.
    ///
    /// # Errors
    /// As [`link::set_sysctl`].
    pub fn set_sysctl(&self, root: &Path, family: link::Family, key: &str, value: &str) -> Result<(), Error> {
        link::set_sysctl(root, &self.name, family, key, value)
    }

    /// The queues, for the workers. When the last is closed the interface loses its carrier.
    #[must_use]
    pub fn into_queues(self) -> Vec<TunQueue> {
        self.queues
    }
}

//! What AF_XDP does and has counted: also for programs that are built without it, where nobody has any.

use std::fmt;
use std::sync::Arc;

/// Where frames leave the kernel, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum XdpMode {
    /// The driver writes into our frames.
    ZeroCopy,
    /// In the driver; the kernel copies.
    Native,
    /// In the stack, on socket buffers; the kernel copies.
    Generic,
}

impl XdpMode {
    /// All modes, best first.
    pub const ALL: [Self; 3] = [Self::ZeroCopy, Self::Native, Self::Generic];

    /// Returns the mode's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ZeroCopy => "zero-copy",
            Self::Native => "native",
            Self::Generic => "generic",
        }
    }
}

impl fmt::Display for XdpMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a mode could not be had, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepCause {
    /// The driver or the kernel has no such mode.
    NotSupported,
    /// A capability is missing.
    NotPermitted,
    /// Another program is attached to the interface.
    ForeignProgram,
    /// There is no such Ethernet interface.
    NoInterface,
    /// The frames are more memory than may be locked, or than there is.
    Memory,
    /// Somebody else has the queue.
    Busy,
    /// It would work, and costs more than it saves.
    NotWanted,
    /// The kernel refused for another reason.
    Failed,
}

impl StepCause {
    /// Returns the cause's name: the label of metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotSupported => "not_supported",
            Self::NotPermitted => "not_permitted",
            Self::ForeignProgram => "foreign_program",
            Self::NoInterface => "no_interface",
            Self::Memory => "memory",
            Self::Busy => "busy",
            Self::NotWanted => "not_wanted",
            Self::Failed => "failed",
        }
    }
}

/// A mode that was wanted and could not be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepDown {
    /// The mode.
    pub mode: XdpMode,
    /// Why, in one word.
    pub cause: StepCause,
    /// Why, for people.
    pub reason: String,
}

/// What a worker's AF_XDP sockets are like at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RingState {
    /// The interface.
    pub interface: Arc<str>,
    /// The mode; `None` while the interface is gone and everything goes through the sockets.
    pub mode: Option<XdpMode>,
    /// The better modes, best first, and why they could not be had.
    pub steps: Arc<[StepDown]>,
    /// Whether IPsec policies of the host are about what arrives for us, so that all of it goes through the sockets.
    pub is_aside: bool,
    /// What was counted since the start.
    pub counters: XdpCounters,
}

/// What one worker's AF_XDP sockets have counted. A datagram is a segment of a train or a single one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct XdpCounters {
    /// Frames that came by the rings.
    pub received: u64,
    /// Datagrams handed on in the frame that they came in.
    pub received_in_place: u64,
    /// Datagrams copied into a train.
    pub received_copied: u64,
    /// Datagrams whose checksum the sender's kernel had left to a device.
    pub partial_checksums: u64,
    /// Datagrams that left by the rings.
    pub sent: u64,
    /// Those of them that left from the buffer they were in.
    pub sent_in_place: u64,
    /// Those of them that were copied into a frame.
    pub sent_copied: u64,
    /// Datagrams that left by the sockets: there was no route, or no neighbour yet.
    pub unresolved: u64,
    /// Datagrams that left by the sockets: larger than the path or a frame.
    pub oversized: u64,
    /// Datagrams that left by the sockets: they are no such as frames are made for.
    pub unfit: u64,
    /// Datagrams that left by the sockets: the worker has no queue, or the interface has just come back.
    pub no_ring: u64,
    /// Datagrams that left by the sockets: an IPsec policy of the host is about them.
    pub policies: u64,
    /// System calls that made the kernel send or take frames.
    pub wakeups: u64,
    /// Descriptors from the kernel that name no frame of its.
    pub strange_frames: u64,
    /// Dropped by the kernel: no frame in the fill ring, the receive ring full, or the frame unfit.
    pub kernel_drops: u64,
    /// Not sent by the kernel: wrong descriptors.
    pub kernel_refusals: u64,
    /// Times that the rings were opened anew, on an interface that had gone and come back.
    pub reopened: u64,
}

//! How a group's AF_XDP sockets should be, and what they count.

use std::fmt;

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

impl fmt::Display for XdpMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ZeroCopy => "zero-copy",
            Self::Native => "native",
            Self::Generic => "generic",
        })
    }
}

/// What is wanted.
#[derive(Debug, Clone)]
pub struct XdpConfig {
    /// The interface, an Ethernet one.
    pub interface: String,
    /// The best mode to try; those behind it follow, down to `least`.
    pub mode: XdpMode,
    /// The last mode that is worth while.
    pub least: XdpMode,
    /// Further UDP ports of ours; that of the sockets is among them without being named.
    pub ports: Vec<u16>,
    /// Whether ESP without UDP is ours.
    pub esp: bool,
    /// Whether UDP over IPv6 may come without a checksum, as VXLAN does.
    pub zero_checksum6: bool,
    /// Mark that routes are looked up with: that of the sockets.
    pub mark: Option<u32>,
    /// Whether outer packets have DF set.
    pub dont_fragment: bool,
    /// Whether frames of one peer that follow one another are copied together.
    pub trains: bool,
    /// Frames in each ring; a power of two.
    pub ring_frames: u32,
}

impl XdpConfig {
    /// Asks for everything that `interface` and the kernel offer.
    #[must_use]
    pub fn new(interface: &str) -> Self {
        Self {
            interface: interface.to_owned(),
            mode: XdpMode::ZeroCopy,
            least: XdpMode::Generic,
            ports: Vec::new(),
            esp: false,
            zero_checksum6: false,
            mark: None,
            dont_fragment: false,
            trains: true,
            // A millisecond at two million packets a second.
            ring_frames: 2048,
        }
    }
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
    /// System calls that made the kernel send or take frames.
    pub wakeups: u64,
    /// Descriptors from the kernel that name no frame of its.
    pub strange_frames: u64,
    /// Dropped by the kernel: no frame in the fill ring, the receive ring full, or the frame unfit.
    pub kernel_drops: u64,
    /// Not sent by the kernel: wrong descriptors.
    pub kernel_refusals: u64,
}

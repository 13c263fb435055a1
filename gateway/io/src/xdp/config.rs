//! How a group's AF_XDP sockets should be.

use crate::rings::XdpMode;

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

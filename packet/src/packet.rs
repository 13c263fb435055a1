//! The packet: bytes, how they are cut, and what has been decided about them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::pool::PacketBuf;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident($inner:ty);)+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        pub struct $name(pub $inner);
    )+};
}

ids! {
    /// One way to a peer, as an index into the tables.
    PathId(u16);
    /// One cable, as an index into the tables and the counters. 0 stands for "no cable".
    CableId(u16);
    /// One lane (an SA pair or session) of a cable; never reused while the process lives.
    LaneId(u32);
    /// One worker thread.
    WorkerId(u16);
    /// A remote cluster, as an index into the tables.
    ClusterId(u16);
    /// Another gateway of our own cluster, as an index into the tables.
    SiblingId(u16);
}

/// How the bytes of a packet's buffer are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayoutKind {
    /// One IP packet or one datagram.
    Single,
    /// A TCP train: one IP and TCP header, then payload segments. Each segment becomes a packet of its own.
    Tcp,
    /// A UDP train: one IP and UDP header, then payload segments.
    Udp,
    /// Datagrams of one peer, each `stride_bytes` long but the last, which may be shorter. No common header.
    Datagrams,
    /// IP packets, one every `stride_bytes`, each as long as its own header says; those whose bit in
    /// [`Layout::present`] is unset are holes.
    Packets,
}

/// Kind and sizes of a packet's segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// What the segments are.
    pub kind: LayoutKind,
    /// Bytes of the common header (IP and transport) in front of the first segment; 0 without one.
    pub header_bytes: u16,
    /// Payload bytes of every segment but the last, which may be shorter. 0 for `Single`.
    pub segment_bytes: u16,
    /// Bytes from the start of one segment to that of the next; at least `segment_bytes`.
    pub stride_bytes: u16,
    /// Number of segments, holes included; 1 for `Single`.
    pub count: u16,
    /// For `Packets`: bit *i* says that segment *i* is there. At most 64 segments.
    pub present: u64,
}

impl Layout {
    /// One packet or datagram.
    pub const SINGLE: Self = Self {
        kind: LayoutKind::Single,
        header_bytes: 0,
        segment_bytes: 0,
        stride_bytes: 0,
        count: 1,
        present: 1,
    };

    /// A TCP or UDP train whose segments follow one another without gaps.
    #[must_use]
    pub fn train(kind: LayoutKind, header_bytes: u16, segment_bytes: u16, count: u16) -> Self {
        Self { kind, header_bytes, segment_bytes, stride_bytes: segment_bytes, count, present: 0 }
    }

    /// Datagrams of `stride_bytes` each, the last possibly shorter.
    #[must_use]
    pub fn datagrams(stride_bytes: u16, count: u16) -> Self {
        Self {
            kind: LayoutKind::Datagrams,
            header_bytes: 0,
            segment_bytes: stride_bytes,
            stride_bytes,
            count,
            present: 0,
        }
    }

    /// Whether the packet stands for more than one packet on the wire, or needs cutting before it is one.
    #[must_use]
    pub fn is_train(&self) -> bool {
        self.kind != LayoutKind::Single
    }
}

/// What is known of the transport checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Checksum {
    /// The field holds what the sender put there; nobody has looked.
    #[default]
    Unchecked,
    /// The field holds the right value, somebody has looked.
    Verified,
    /// The field holds the pseudo-header's sum only; whoever sends the packet has to finish it
    /// (`VIRTIO_NET_HDR_F_NEEDS_CSUM`). Offsets in bytes from the start of the IP header; `field` is absolute.
    Partial {
        /// Where the transport header starts.
        start: u16,
        /// Where the checksum field is.
        field: u16,
    },
}

/// The outer side of a datagram: who sent it or will get it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outer {
    /// The far end: source of what was received, destination of what is sent. Port 0 stands for raw ESP (IP protocol
    /// 50), which has no ports.
    pub peer: SocketAddr,
    /// Our address: the one the peer sent to, or the one to answer from. `None` leaves it to the kernel.
    pub local: Option<IpAddr>,
    /// TOS or traffic class byte of the outer header: DSCP and ECN.
    pub tos: u8,
}

impl Outer {
    /// No outer header.
    pub const NONE: Self =
        Self { peer: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0), local: None, tos: 0 };
}

/// What the pipeline decided for a packet's flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Decision {
    /// The way to the peer.
    pub path: PathId,
    /// The lane that seals it, or that it was opened by.
    pub lane: LaneId,
    /// The cable it belongs to, for counters.
    pub cable: CableId,
    /// The worker that owns it.
    pub owner: WorkerId,
    /// Largest inner IP packet that the path takes, in bytes.
    pub mtu_bytes: u16,
}

/// A packet or a train of packets.
#[derive(Debug)]
pub struct Packet {
    /// The bytes: an IP packet (or train) inside, a UDP payload outside.
    pub buf: PacketBuf,
    /// How the bytes are cut.
    pub layout: Layout,
    /// What is known of the transport checksum.
    pub checksum: Checksum,
    /// The outer header, for datagrams.
    pub outer: Outer,
    /// What has been decided.
    pub decision: Decision,
    /// Whether the outer packet must not be fragmented, whatever the socket does else: for probes of a path's size.
    pub is_whole: bool,
}

impl Packet {
    /// A single packet or datagram that nothing is known of.
    #[must_use]
    pub fn new(buf: PacketBuf) -> Self {
        Self {
            buf,
            layout: Layout::SINGLE,
            checksum: Checksum::Unchecked,
            outer: Outer::NONE,
            decision: Decision::default(),
            is_whole: false,
        }
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.buf.bytes()
    }

    /// Number of packets that this stands for on the wire; what counters count.
    #[must_use]
    pub fn segments(&self) -> u64 {
        match self.layout.kind {
            LayoutKind::Packets => u64::from(self.layout.present.count_ones()),
            LayoutKind::Single | LayoutKind::Tcp | LayoutKind::Udp | LayoutKind::Datagrams => {
                u64::from(self.layout.count)
            }
        }
    }

    /// Start and end of segment `index`'s payload in the buffer's bytes (for `Packets`, of its whole slot).
    #[must_use]
    pub fn segment_range(&self, index: usize) -> (usize, usize) {
        let layout = &self.layout;
        if layout.kind == LayoutKind::Single {
            return (0, self.buf.len());
        }
        let start = usize::from(layout.header_bytes) + index * usize::from(layout.stride_bytes);
        let end = start + usize::from(layout.segment_bytes);
        (start, end.min(self.buf.len()))
    }

    /// Bytes of the largest IP packet that this becomes on the wire: header plus one segment.
    #[must_use]
    pub fn largest_packet_bytes(&self) -> usize {
        match self.layout.kind {
            LayoutKind::Tcp | LayoutKind::Udp => {
                let (start, end) = self.segment_range(0);
                usize::from(self.layout.header_bytes) + (end - start)
            }
            LayoutKind::Single => self.buf.len(),
            LayoutKind::Datagrams | LayoutKind::Packets => {
                usize::from(self.layout.stride_bytes).min(self.buf.len())
            }
        }
    }
}

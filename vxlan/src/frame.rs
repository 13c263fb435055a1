//! VXLAN frames: the VXLAN header, an Ethernet header, and what stands behind it. For any VNI.
//!
//! ```text
//!  UDP payload:  flags(1) reserved(3) VNI(3) reserved(1) │ destination(6) source(6) type(2) │ IPv4, IPv6, ARP
//!                └─────────── RFC 7348 ────────────────┘   └──────── Ethernet II ────────┘
//!                └───────────────────── Head: 22 bytes ──────────────────────────────────┘
//! ```

use std::net::Ipv4Addr;

use crate::mac::Mac;

/// Bytes of the VXLAN header.
const VXLAN_BYTES: usize = 8;
/// Bytes of an Ethernet header without a VLAN tag.
const ETHERNET_BYTES: usize = 14;
/// Bytes in front of the inner packet, inside the UDP payload.
pub const HEAD_BYTES: usize = VXLAN_BYTES + ETHERNET_BYTES;
/// Bytes of an ARP packet for IPv4 over Ethernet.
pub const ARP_BYTES: usize = 28;

/// The I flag: the VNI is valid.
const FLAG_VNI: u8 = 0x08;
/// Ethernet types.
const TYPE_IPV4: u16 = 0x0800;
const TYPE_ARP: u16 = 0x0806;
const TYPE_IPV6: u16 = 0x86dd;
/// What an ARP packet for IPv4 over Ethernet begins with (RFC 826): hardware 1, protocol 0x0800, lengths 6 and 4.
const ARP_HEAD: [u8; 6] = [0, 1, 8, 0, 6, 4];

/// Names one overlay network: 24 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Vni(u32);

impl Vni {
    /// Between gateways of clusters: upstream's device `vxlan-tunnel`.
    pub const GATEWAYS: Self = Self(1000);
    /// Between the nodes of a cluster and its gateways: upstream's device `vx-submariner`.
    pub const NODES: Self = Self(100);

    /// Returns the number.
    #[inline]
    #[must_use]
    pub const fn value(self) -> u32 {
        self.0
    }
}

/// What an Ethernet frame carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// An IPv4 packet.
    Ipv4,
    /// An IPv6 packet.
    Ipv6,
    /// An ARP packet.
    Arp,
    /// Anything else, VLAN tags among it.
    Other(u16),
}

impl Protocol {
    /// Returns the Ethernet type.
    #[inline]
    #[must_use]
    pub const fn number(self) -> u16 {
        match self {
            Self::Ipv4 => TYPE_IPV4,
            Self::Ipv6 => TYPE_IPV6,
            Self::Arp => TYPE_ARP,
            Self::Other(number) => number,
        }
    }
}

impl From<u16> for Protocol {
    #[inline]
    fn from(number: u16) -> Self {
        match number {
            TYPE_IPV4 => Self::Ipv4,
            TYPE_IPV6 => Self::Ipv6,
            TYPE_ARP => Self::Arp,
            other => Self::Other(other),
        }
    }
}

/// Everything in front of the inner packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The overlay network.
    pub vni: Vni,
    /// Whom the frame is for.
    pub destination: Mac,
    /// Whom it is from.
    pub source: Mac,
    /// What it carries.
    pub protocol: Protocol,
}

impl Head {
    /// Splits a datagram into head and inner packet, which may be empty and may have padding behind it. `None` for what is
    /// too short or has no VNI.
    #[inline]
    #[must_use]
    pub fn parse(datagram: &[u8]) -> Option<(Self, &[u8])> {
        let (head, packet) = datagram.split_first_chunk::<HEAD_BYTES>()?;
        //= https://www.rfc-editor.org/rfc/rfc7348#section-5
        //# the I flag MUST be set to 1 for a valid VXLAN Network ID (VNI).
        if head[0] & FLAG_VNI == 0 {
            return None;
        }
        //= https://www.rfc-editor.org/rfc/rfc7348#section-5
        //# The other 7 bits (designated "R") are reserved fields and MUST be set to zero on transmission and ignored on
        //# receipt.
        let vni = Vni(u32::from_be_bytes([head[4], head[5], head[6], head[7]]) >> 8);
        let (destination, source) = (mac_at(head, VXLAN_BYTES), mac_at(head, VXLAN_BYTES + 6));
        let protocol = u16::from_be_bytes([head[20], head[21]]).into();
        Some((Self { vni, destination, source, protocol }, packet))
    }

    /// Returns the bytes.
    #[inline]
    #[must_use]
    pub fn emit(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        //= https://www.rfc-editor.org/rfc/rfc7348#section-5
        //# Reserved fields (24 bits and 8 bits): MUST be set to zero on transmission and ignored on receipt.
        bytes[0] = FLAG_VNI;
        bytes[4..8].copy_from_slice(&(self.vni.0 << 8).to_be_bytes());
        bytes[8..14].copy_from_slice(&self.destination.0);
        bytes[14..20].copy_from_slice(&self.source.0);
        bytes[20..22].copy_from_slice(&self.protocol.number().to_be_bytes());
        bytes
    }
}

/// What an ARP packet carries. "Announced" is what sender and target address being equal means (RFC 5227).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arp {
    /// Whether it asks (operation 1); otherwise it answers (operation 2).
    pub is_request: bool,
    /// Whose station this is.
    pub sender: Ipv4Addr,
    /// The sender's station.
    pub sender_mac: Mac,
    /// Who is asked for or answered.
    pub target: Ipv4Addr,
    /// Its station; nothing in a request.
    pub target_mac: Mac,
}

impl Arp {
    /// Asks for the station of `target`.
    #[must_use]
    pub const fn request(sender: Ipv4Addr, sender_mac: Mac, target: Ipv4Addr) -> Self {
        Self { is_request: true, sender, sender_mac, target, target_mac: Mac::ZERO }
    }

    /// Announces unasked whose station this is.
    #[must_use]
    pub const fn announcement(sender: Ipv4Addr, sender_mac: Mac) -> Self {
        Self::request(sender, sender_mac, sender)
    }

    /// Returns the answer to this request: `mac` is the station that was asked for.
    #[must_use]
    pub const fn reply(&self, mac: Mac) -> Self {
        Self {
            is_request: false,
            sender: self.target,
            sender_mac: mac,
            target: self.sender,
            target_mac: self.sender_mac,
        }
    }

    /// Reads an ARP packet for IPv4 over Ethernet that is a request or a reply. Padding behind it is allowed.
    #[must_use]
    pub fn parse(packet: &[u8]) -> Option<Self> {
        let packet = packet.first_chunk::<ARP_BYTES>()?;
        let is_request = match u16::from_be_bytes([packet[6], packet[7]]) {
            1 => true,
            2 => false,
            _ => return None,
        };
        packet.starts_with(&ARP_HEAD).then(|| Self {
            is_request,
            sender_mac: mac_at(packet, 8),
            sender: Ipv4Addr::new(packet[14], packet[15], packet[16], packet[17]),
            target_mac: mac_at(packet, 18),
            target: Ipv4Addr::new(packet[24], packet[25], packet[26], packet[27]),
        })
    }

    /// Returns the bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; ARP_BYTES] {
        let mut bytes = [0; ARP_BYTES];
        bytes[..6].copy_from_slice(&ARP_HEAD);
        bytes[7] = if self.is_request { 1 } else { 2 };
        bytes[8..14].copy_from_slice(&self.sender_mac.0);
        bytes[14..18].copy_from_slice(&self.sender.octets());
        bytes[18..24].copy_from_slice(&self.target_mac.0);
        bytes[24..28].copy_from_slice(&self.target.octets());
        bytes
    }

    /// Returns the datagram that carries this to `destination`.
    #[must_use]
    pub fn datagram(&self, vni: Vni, destination: Mac) -> Vec<u8> {
        let head = Head { vni, destination, source: self.sender_mac, protocol: Protocol::Arp };
        [&head.emit()[..], &self.emit()[..]].concat()
    }
}

/// Reads the address at `at`, of which the caller has checked that it is there.
#[inline]
fn mac_at(bytes: &[u8], at: usize) -> Mac {
    let mut mac = [0; 6];
    mac.copy_from_slice(&bytes[at..at + 6]);
    Mac(mac)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Ipv4Addr = Ipv4Addr::new(241, 30, 1, 10);
    const THEIRS: Ipv4Addr = Ipv4Addr::new(241, 31, 2, 10);
    const PEER: Mac = Mac([0x52, 0xb7, 0x07, 0xa9, 0x18, 0x4e]);

    /// A request as the kernel's device sends it, byte by byte.
    const REQUEST: [u8; HEAD_BYTES + ARP_BYTES] = [
        0x08, 0, 0, 0, 0x00, 0x03, 0xe8, 0, // VNI 1000
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x52, 0xb7, 0x07, 0xa9, 0x18, 0x4e, 0x08, 0x06, //
        0, 1, 8, 0, 6, 4, 0, 1, //
        0x52, 0xb7, 0x07, 0xa9, 0x18, 0x4e, 241, 31, 2, 10, //
        0, 0, 0, 0, 0, 0, 241, 30, 1, 10,
    ];

    #[test]
    fn a_request_is_read_and_written_byte_for_byte() {
        let (head, packet) = Head::parse(&REQUEST).unwrap();
        assert_eq!((head.vni, head.destination, head.source), (Vni::GATEWAYS, Mac::BROADCAST, PEER));
        assert_eq!(head.protocol, Protocol::Arp);
        let arp = Arp::parse(packet).unwrap();
        assert_eq!(arp, Arp::request(THEIRS, PEER, OURS));
        assert_eq!(arp.datagram(Vni::GATEWAYS, Mac::BROADCAST), REQUEST);
    }

    #[test]
    fn an_answer_names_who_was_asked_for() {
        let mac = Mac::of_vtep(OURS);
        let reply = Arp::request(THEIRS, PEER, OURS).reply(mac);
        assert_eq!(
            (reply.sender, reply.sender_mac, reply.target, reply.target_mac),
            (OURS, mac, THEIRS, PEER)
        );
        assert_eq!(Arp::parse(&reply.emit()), Some(reply));
        assert_eq!(reply.emit()[7], 2);
    }

    #[test]
    fn reserved_bits_are_ignored_and_a_missing_vni_is_not() {
        let mut datagram = REQUEST;
        datagram[0] = 0xff;
        datagram[1..4].fill(0xff);
        datagram[7] = 0xff;
        assert_eq!(Head::parse(&datagram).unwrap().0.vni, Vni::GATEWAYS);
        datagram[0] = 0xf7;
        assert_eq!(Head::parse(&datagram), None);
    }

    #[test]
    fn what_is_cut_short_or_of_another_kind_is_not_read() {
        for bytes in 0..HEAD_BYTES {
            assert_eq!(Head::parse(&REQUEST[..bytes]), None);
        }
        let arp = &REQUEST[HEAD_BYTES..];
        for bytes in 0..ARP_BYTES {
            assert_eq!(Arp::parse(&arp[..bytes]), None);
        }
        for at in 0..8 {
            let mut wrong: [u8; ARP_BYTES] = arp.try_into().unwrap();
            wrong[at] ^= 0x40;
            assert_eq!(Arp::parse(&wrong), None, "byte {at}");
        }
    }
}

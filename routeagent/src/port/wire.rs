//! Netlink by hand, for what the netlink crates do not support: a request, and its answers.
//!
//! The socket waits: the kernel answers before a request returns.

use std::io::{Error, ErrorKind};
use std::net::IpAddr;

use netlink_sys::{Socket, SocketAddr};

// --- from the kernel's headers: netlink.h, socket.h ---------------------------------------------------------------

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
pub(super) const NLM_F_ACK: u16 = 4;
pub(super) const NLM_F_REPLACE: u16 = 0x100;
pub(super) const NLM_F_DUMP: u16 = 0x300;
pub(super) const NLM_F_CREATE: u16 = 0x400;
pub(super) const AF_INET: u8 = 2;
pub(super) const AF_INET6: u8 = 10;
pub(super) const NLA_F_NESTED: u16 = 1 << 15;
/// The bits of an attribute's type that say how its value is made up.
const NLA_FLAGS: u16 = 0xc000;
/// Bytes of netfilter's own header (`nfgenmsg`) before the attributes.
pub(super) const NETFILTER_HEADER_LEN: usize = 4;
/// Bytes of a message's header.
const HEADER_LEN: usize = 16;

/// A socket for requests.
pub(super) struct Requests {
    socket: Socket,
}

impl Requests {
    /// Opens a socket of a netlink protocol.
    pub(super) fn open(protocol: isize) -> Result<Self, Error> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { socket })
    }

    /// Sends a request and reads its answers to the end: what `read` makes of each one's body.
    pub(super) fn exchange<T>(
        &self,
        message: Message,
        mut read: impl FnMut(&[u8]) -> Option<T>,
    ) -> Result<Vec<T>, Error> {
        self.socket.send(&message.finish(), 0)?;
        let mut found = Vec::new();
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            let mut rest = datagram.as_slice();
            while let Some((kind, body, next)) = split(rest) {
                match kind {
                    NLMSG_DONE => return Ok(found),
                    NLMSG_ERROR => {
                        return match body.first_chunk().map(|code| i32::from_ne_bytes(*code)) {
                            Some(0) => Ok(found),
                            Some(code) => Err(Error::from_raw_os_error(code.saturating_neg())),
                            None => Err(ErrorKind::InvalidData.into()),
                        };
                    }
                    _ => found.extend(read(body)),
                }
                rest = next;
            }
        }
    }

    /// Sends a request without answers but the acknowledgement.
    pub(super) fn send(&self, message: Message) -> Result<(), Error> {
        self.exchange(message, |_| None::<()>).map(drop)
    }
}

/// A request under way.
pub(super) struct Message(Vec<u8>);

impl Message {
    /// Begins a request of a type, with what comes before its attributes.
    pub(super) fn new(kind: u16, flags: u16, fixed: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER_LEN];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(NLM_F_REQUEST | flags).to_ne_bytes());
        bytes.extend(fixed);
        Self(bytes)
    }

    /// Appends an attribute.
    pub(super) fn with(mut self, kind: u16, value: &[u8]) -> Self {
        attribute(&mut self.0, kind, value);
        self
    }

    /// Returns the bytes to send.
    pub(super) fn finish(mut self) -> Vec<u8> {
        let length = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0
    }
}

/// Appends an attribute to a value that is made of such.
pub(super) fn attribute(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// Returns the value of the first attribute of a type.
pub(super) fn find(attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    let mut rest = attributes;
    while let Some((kind, value, next)) = split_attribute(rest) {
        if kind == wanted {
            return Some(value);
        }
        rest = next;
    }
    None
}

/// Returns an attribute's text, without the terminator.
pub(super) fn text(attributes: &[u8], wanted: u16) -> Option<&str> {
    let value = find(attributes, wanted)?;
    std::str::from_utf8(value.strip_suffix(&[0]).unwrap_or(value)).ok()
}

/// Reads an attribute's value as an address.
pub(super) fn address(value: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(value).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(value).map(IpAddr::from)).ok()
}

/// Splits off a message: its type, its body, and what comes after.
pub(super) fn split(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = usize::try_from(u32::from_ne_bytes(*bytes.first_chunk()?)).ok()?;
    let kind = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
    let body = bytes.get(HEADER_LEN..length)?;
    Some((kind, body, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

/// Splits off an attribute: its type, its value, and what comes after.
pub(super) fn split_attribute(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = usize::from(u16::from_ne_bytes(*bytes.first_chunk()?));
    let kind = u16::from_ne_bytes(*bytes.get(2..)?.first_chunk()?);
    let value = bytes.get(4..length)?;
    Some((kind & !NLA_FLAGS, value, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

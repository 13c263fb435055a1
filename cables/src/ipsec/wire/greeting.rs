//! First requests of strangers, looked at without keeping anything (RFC 7296 section 2.6).

use super::message::{Chain, Item};
use super::{Exchange, Header, NotifyKind, PayloadKind};

/// What is needed of an `IKE_SA_INIT` request to ask for a cookie and to check one. Points into the datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Greeting<'a> {
    /// The initiator's SPI; not 0.
    pub spi_i: u64,
    /// The cookie, if there is one. It belongs at the beginning, but is looked for everywhere: none is to be overlooked.
    pub cookie: Option<&'a [u8]>,
    /// The nonce.
    pub nonce: &'a [u8],
}

impl<'a> Greeting<'a> {
    /// Looks at a whole datagram (without non-ESP marker). None if it is no request that could be answered: another
    /// exchange, a response, a message ID or SPI that cannot be, a broken chain of payloads, no nonce.
    #[must_use]
    pub fn parse(datagram: &'a [u8]) -> Option<Self> {
        let (header, first, body) = Header::parse(datagram).ok()?;
        let Header { spi_i, spi_r, exchange, is_initiator, is_response, message_id } = header;
        let is_first = exchange == Exchange::IkeSaInit && is_initiator && !is_response;
        if !is_first || spi_i == 0 || spi_r != 0 || message_id != 0 {
            return None;
        }
        let (mut cookie, mut nonce) = (None, None);
        for item in Chain::new(first, body) {
            let Item { kind, body, .. } = item.ok()?;
            if kind == PayloadKind::Notify {
                cookie = cookie.or_else(|| cookie_of(body));
            }
            if kind == PayloadKind::Nonce {
                nonce = Some(body);
            }
        }
        Some(Self { spi_i, cookie, nonce: nonce? })
    }
}

fn cookie_of(notify: &[u8]) -> Option<&[u8]> {
    let (&[_protocol, spi_bytes, high, low], rest) = notify.split_first_chunk()?;
    let is_cookie = u16::from_be_bytes([high, low]) == NotifyKind::Cookie.code();
    let data = rest.get(usize::from(spi_bytes)..)?;
    is_cookie.then_some(data)
}

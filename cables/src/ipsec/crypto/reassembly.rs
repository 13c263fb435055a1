//! Putting fragments of messages together (RFC 7383 section 2.6).

use zeroize::Zeroizing;

use super::Opened;
use crate::ipsec::wire::PayloadKind;

/// Most fragments of a message. Ours: 64 of the smallest datagrams that IPv4 must carry are more than any message needs.
const MAX_FRAGMENTS: u16 = 64;
/// Most bytes of a message. Ours.
const MAX_BYTES: usize = 64 * 1024;

/// A message that was put together.
#[derive(Clone, PartialEq, Eq)]
pub struct Whole {
    /// The type of the first payload.
    pub first: PayloadKind,
    /// The payloads, for [`crate::ipsec::wire::parse_payloads`].
    pub body: Zeroizing<Vec<u8>>,
}

impl std::fmt::Debug for Whole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Whole({}, {} bytes)", self.first, self.body.len())
    }
}

/// The pieces of one request and of one response of the peer. Only authentic pieces come here, so that nobody else can
/// push out what is being put together.
#[derive(Debug, Default)]
pub struct Reassembly {
    request: Pieces,
    response: Pieces,
}

#[derive(Default)]
struct Pieces {
    message_id: u32,
    total: u16,
    first: Option<PayloadKind>,
    /// By number, less one.
    found: Vec<Option<Zeroizing<Vec<u8>>>>,
    bytes: usize,
}

impl std::fmt::Debug for Pieces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let count = self.found.iter().flatten().count();
        write!(f, "message {}: {count} of {}", self.message_id, self.total)
    }
}

impl Reassembly {
    /// Takes a piece; returns the message with the last one. What is whole already is returned as it is. A piece of
    /// another message, or of the same one cut into more pieces, begins anew.
    ///
    /// A retransmitted request is answered again on its first piece alone (section 2.6.1), which is for the caller to do.
    pub fn add(&mut self, opened: Opened) -> Option<Whole> {
        let Some(fragment) = opened.fragment else {
            return Some(Whole { first: opened.first, body: opened.body });
        };
        let pieces = if opened.header.is_response { &mut self.response } else { &mut self.request };
        let (message_id, total) = (opened.header.message_id, fragment.total);
        let is_same = pieces.message_id == message_id && pieces.total > 0;
        if total > MAX_FRAGMENTS || is_same && total < pieces.total {
            return None;
        }
        if !is_same || total > pieces.total {
            *pieces = Pieces { message_id, total, ..Pieces::default() };
            pieces.found.resize(usize::from(total), None);
        }
        pieces.add(fragment.number, opened.first, opened.body)
    }
}

impl Pieces {
    fn add(&mut self, number: u16, first: PayloadKind, body: Zeroizing<Vec<u8>>) -> Option<Whole> {
        let place = self.found.get_mut(usize::from(number).checked_sub(1)?)?;
        if place.is_some() || self.bytes + body.len() > MAX_BYTES {
            return None;
        }
        self.bytes += body.len();
        *place = Some(body);
        if number == 1 {
            self.first = Some(first);
        }
        if self.found.iter().any(Option::is_none) {
            return None;
        }
        let done = std::mem::take(self);
        let mut body = Zeroizing::new(Vec::with_capacity(done.bytes));
        done.found.iter().flatten().for_each(|piece| body.extend_from_slice(piece));
        Some(Whole { first: done.first?, body })
    }
}

//! Whole messages in clear, and chains of payloads.

use super::bytes::{Reader, patch_length};
use super::{HEADER_BYTES, Header, Payload, PayloadKind, WireError};

/// Most payloads of a message, skipped ones included. Ours; other programs send up to 20.
const MAX_PAYLOADS: usize = 64;
const FLAG_CRITICAL: u8 = 0x80;
/// Bytes of the header that every payload has.
pub(super) const GENERIC_BYTES: usize = 4;

/// A message in clear, or one that was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its header.
    pub header: Header,
    /// Its payloads, in order.
    pub payloads: Vec<Payload>,
}

/// Reads a whole message in clear (without non-ESP marker).
///
/// # Errors
/// [`WireError`] when it is malformed, holds an unknown critical payload, or is encrypted.
pub fn parse(datagram: &[u8]) -> Result<Message, WireError> {
    let (header, first, body) = Header::parse(datagram)?;
    Ok(Message { header, payloads: parse_payloads(first, body)? })
}

/// Reads a chain of payloads that begins with one of type `first`.
///
/// # Errors
/// As [`parse`].
pub fn parse_payloads(first: PayloadKind, body: &[u8]) -> Result<Vec<Payload>, WireError> {
    let mut payloads = Vec::new();
    for item in Chain::new(first, body) {
        let Item { kind, is_critical, body, .. } = item?;
        payloads.extend(Payload::parse(kind, is_critical, body)?);
    }
    Ok(payloads)
}

/// A message in clear.
#[must_use]
pub fn emit(header: &Header, payloads: &[Payload]) -> Vec<u8> {
    let body = emit_payloads(payloads);
    let mut out = Vec::with_capacity(HEADER_BYTES + body.len());
    header.emit(first_kind(payloads), HEADER_BYTES + body.len(), &mut out);
    out.extend_from_slice(&body);
    out
}

/// A chain of payloads, each at most 65,531 bytes.
#[must_use]
pub fn emit_payloads(payloads: &[Payload]) -> Vec<u8> {
    let mut out = Vec::new();
    for (index, payload) in payloads.iter().enumerate() {
        let start = out.len();
        let next = payloads.get(index + 1).map_or(PayloadKind::None, Payload::kind);
        let critical = if payload.is_critical() { FLAG_CRITICAL } else { 0 };
        out.extend_from_slice(&[next.code(), critical, 0, 0]);
        payload.emit(&mut out);
        patch_length(&mut out, start, start + 2);
    }
    out
}

/// The type of the first payload of a chain.
pub(in super::super) fn first_kind(payloads: &[Payload]) -> PayloadKind {
    payloads.first().map_or(PayloadKind::None, Payload::kind)
}

/// One payload of a chain, its body not read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item<'a> {
    pub(super) kind: PayloadKind,
    pub(super) is_critical: bool,
    /// The type of the payload behind it; of an encrypted one, of the first inside.
    pub(super) next: PayloadKind,
    pub(super) body: &'a [u8],
}

/// Walks a chain, up to an error or its end. An encrypted payload ends it, and must be the last.
#[derive(Debug)]
pub(super) struct Chain<'a> {
    reader: Reader<'a>,
    next: PayloadKind,
    count: usize,
}

impl<'a> Chain<'a> {
    pub(super) fn new(first: PayloadKind, body: &'a [u8]) -> Self {
        Self { reader: Reader::new(body, "a payload"), next: first, count: 0 }
    }

    fn step(&mut self) -> Result<Item<'a>, WireError> {
        if self.count == MAX_PAYLOADS {
            return Err(WireError::TooMany("payloads"));
        }
        self.count += 1;
        let [next, flags, high, low] = self.reader.array()?;
        let body = self.reader.body(u16::from_be_bytes([high, low]), GENERIC_BYTES)?;
        let next = PayloadKind::from_code(next);
        Ok(Item { kind: self.next, is_critical: flags & FLAG_CRITICAL != 0, next, body })
    }

    fn is_over(&self) -> bool {
        self.next == PayloadKind::None
    }
}

impl<'a> Iterator for Chain<'a> {
    type Item = Result<Item<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over() {
            if self.reader.is_empty() {
                return None;
            }
            self.reader = Reader::new(&[], "a payload");
            return Some(Err(WireError::Length("the message")));
        }
        let item = self.step();
        self.next = match &item {
            Ok(Item { kind: PayloadKind::Encrypted | PayloadKind::EncryptedFragment, .. }) | Err(_) => {
                PayloadKind::None
            }
            Ok(item) => item.next,
        };
        if item.is_err() {
            self.reader = Reader::new(&[], "a payload");
        }
        Some(item)
    }
}

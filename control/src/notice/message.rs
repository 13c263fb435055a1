//! The datagrams. Numbers are big-endian; every datagram has exactly the length that follows from its fields.
//!
//! ```text
//!   every datagram:  "TRSN" (4)  version 1 (1)  type (1)
//!   1 notice:        state (1)  health (1)  gateway (8)  boot (8)  sequence (8)  count (1)
//!                    count × [ sibling (8)  state (1) ], by sibling, rising    signature (64)
//!   2 hello:         cookie (16), zero if there is none
//!   3 challenge:     cookie (16)
//! ```
//!
//! A challenge is as long as the hello that it answers: nobody is helped to flood a third.

use std::collections::BTreeMap;

use super::GatewayKey;
use super::key::{PublicKey, SIGNATURE_LEN, SigningKey};

/// Ours: most siblings of a notice. A cluster has at most eight gateways; twice as many are read.
pub const MAX_SIBLINGS: usize = 15;
/// Longest datagram, in bytes.
pub const MAX_DATAGRAM: usize = HEADER_LEN + NOTICE_LEN + MAX_SIBLINGS * SIBLING_LEN + SIGNATURE_LEN;
/// Bytes of a cookie.
pub const COOKIE_LEN: usize = 16;

const MAGIC: [u8; 4] = *b"TRSN";
const VERSION: u8 = 1;
const HEADER_LEN: usize = MAGIC.len() + 2;
/// A notice up to its siblings.
const NOTICE_LEN: usize = 1 + 1 + 8 + 8 + 8 + 1;
const SIBLING_LEN: usize = 8 + 1;

const TYPE_NOTICE: u8 = 1;
const TYPE_HELLO: u8 = 2;
const TYPE_CHALLENGE: u8 = 3;

/// Proves that the sender has received at its address.
pub type Cookie = [u8; COOKIE_LEN];

/// How a gateway is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum State {
    /// It takes packets.
    Up = 1,
    /// It takes them, and would rather have no new ones: it is about to stop, or has just started.
    Draining = 2,
    /// It takes none.
    Down = 3,
}

impl State {
    /// Returns the name in messages and status documents.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Draining => "draining",
            Self::Down => "down",
        }
    }

    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Up, Self::Draining, Self::Down].into_iter().find(|state| *state as u8 == byte)
    }
}

/// A gateway's report of itself and its siblings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// The sender.
    pub gateway: GatewayKey,
    /// Which run of its process: a later run has a greater number.
    pub boot: u64,
    /// Which notice of that run: a later one has a greater number.
    pub sequence: u64,
    /// How it is itself; down where it has no path to anybody.
    pub state: State,
    /// How many of its watched paths are up, in 255ths; 255 where there is none.
    pub health: u8,
    /// How it finds its siblings; at most [`MAX_SIBLINGS`].
    pub siblings: BTreeMap<GatewayKey, State>,
}

impl Notice {
    /// Writes it down, signed. Siblings beyond [`MAX_SIBLINGS`] are left out.
    #[must_use]
    pub fn emit(&self, key: &SigningKey) -> Vec<u8> {
        let mut bytes = header(TYPE_NOTICE);
        bytes.extend([self.state as u8, self.health]);
        for number in [self.gateway.0, self.boot, self.sequence] {
            bytes.extend(number.to_be_bytes());
        }
        let count = self.siblings.len().min(MAX_SIBLINGS);
        bytes.push(u8::try_from(count).unwrap_or(u8::MAX));
        for (sibling, state) in self.siblings.iter().take(count) {
            bytes.extend(sibling.0.to_be_bytes());
            bytes.push(*state as u8);
        }
        let signature = key.sign(&bytes);
        bytes.extend(signature);
        bytes
    }
}

/// A notice as it came: readable, not yet to be believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed<'a> {
    /// The content.
    pub notice: Notice,
    message: &'a [u8],
    signature: &'a [u8],
}

impl Signed<'_> {
    /// Returns `true` if it was signed with that key.
    #[must_use]
    pub fn is_by(&self, key: &PublicKey) -> bool {
        key.has_signed(self.message, self.signature)
    }
}

/// A datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Datagram<'a> {
    /// A gateway's word.
    Notice(Signed<'a>),
    /// A route agent wants to be told; `None` if it has no cookie yet.
    Hello(Option<Cookie>),
    /// Say hello again, with this cookie.
    Challenge(Cookie),
}

/// Reads a datagram; `None` if it is none of ours.
#[must_use]
pub fn parse(datagram: &[u8]) -> Option<Datagram<'_>> {
    let (header, body) = datagram.split_at_checked(HEADER_LEN)?;
    let [magic @ .., VERSION, kind] = header else { return None };
    if *magic != MAGIC {
        return None;
    }
    match *kind {
        TYPE_NOTICE => notice(datagram, body).map(Datagram::Notice),
        TYPE_HELLO => {
            let cookie = Cookie::try_from(body).ok()?;
            Some(Datagram::Hello((cookie != Cookie::default()).then_some(cookie)))
        }
        TYPE_CHALLENGE => body.try_into().ok().map(Datagram::Challenge),
        _ => None,
    }
}

/// Writes a hello.
#[must_use]
pub fn hello(cookie: Option<Cookie>) -> Vec<u8> {
    [header(TYPE_HELLO), cookie.unwrap_or_default().to_vec()].concat()
}

/// Writes a challenge.
#[must_use]
pub fn challenge(cookie: Cookie) -> Vec<u8> {
    [header(TYPE_CHALLENGE), cookie.to_vec()].concat()
}

fn header(kind: u8) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(MAX_DATAGRAM);
    bytes.extend(MAGIC);
    bytes.extend([VERSION, kind]);
    bytes
}

fn notice<'a>(datagram: &'a [u8], body: &'a [u8]) -> Option<Signed<'a>> {
    let (fixed, rest) = body.split_at_checked(NOTICE_LEN)?;
    let [state, health, numbers @ .., count] = fixed else { return None };
    let count = usize::from(*count);
    if count > MAX_SIBLINGS || rest.len() != count * SIBLING_LEN + SIGNATURE_LEN {
        return None;
    }
    let (entries, signature) = rest.split_at_checked(count * SIBLING_LEN)?;
    let mut numbers = numbers.chunks_exact(8).filter_map(number);
    let gateway = GatewayKey(numbers.next()?);
    let mut siblings = BTreeMap::new();
    for entry in entries.chunks_exact(SIBLING_LEN) {
        let (key, state) = entry.split_at_checked(8)?;
        let (key, state) = (GatewayKey(number(key)?), State::from_byte(*state.first()?)?);
        // One way to write each notice: rising, and nobody is its own sibling.
        if key == gateway || siblings.last_key_value().is_some_and(|(last, _)| *last >= key) {
            return None;
        }
        siblings.insert(key, state);
    }
    let (boot, sequence) = (numbers.next()?, numbers.next()?);
    let state = State::from_byte(*state)?;
    let notice = Notice { gateway, boot, sequence, state, health: *health, siblings };
    let message = datagram.get(..datagram.len() - SIGNATURE_LEN)?;
    Some(Signed { notice, message, signature })
}

fn number(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_be_bytes)
}

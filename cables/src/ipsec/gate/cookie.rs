//! Cookies: proof that a sender gets what is sent to its address, without remembering anything (RFC 7296 section 2.6).

use std::net::IpAddr;
use std::time::{Duration, Instant};

use ring::hmac;

use crate::ipsec::wire::{self, Exchange, Greeting, Header, NotifyKind, Payload};

/// How long a cookie's key is the newest. It is good for as long again, so that whoever got a cookie has time to use it.
const KEY_TIME: Duration = Duration::from_secs(60);
/// Bytes of a cookie: which key made it, and the MAC.
const COOKIE_BYTES: usize = 1 + 32;

/// Makes and checks cookies. All gates of a gateway that are made of one secret and start make the same ones.
pub(super) struct Cookies {
    secret: hmac::Key,
    started: Instant,
    /// The newest key that was needed and the one before, with their numbers.
    keys: [(u64, hmac::Key); 2],
}

impl Cookies {
    pub(super) fn new(secret: &[u8; 32], started: Instant) -> Self {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let keys = [(1, key(&secret, 1)), (0, key(&secret, 0))];
        Self { secret, started, keys }
    }

    /// The answer to `greeting` that asks for a cookie, marker included.
    ///
    //= https://www.rfc-editor.org/rfc/rfc7296#section-2.6
    //# Cookie = <VersionIDofSecret> | Hash(Ni | IPi | SPIi | <secret>)
    pub(super) fn ask(&mut self, greeting: &Greeting<'_>, source: IpAddr, now: Instant) -> Vec<u8> {
        let number = self.number(now);
        let mac = mac(self.key(number), number, greeting, source);
        let mut cookie = Vec::with_capacity(COOKIE_BYTES);
        cookie.push(version(number));
        cookie.extend_from_slice(mac.as_ref());
        let header = Header {
            spi_i: greeting.spi_i,
            spi_r: 0,
            exchange: Exchange::IkeSaInit,
            is_initiator: false,
            is_response: true,
            message_id: 0,
        };
        let message = wire::emit(&header, &[Payload::notify(NotifyKind::Cookie, cookie)]);
        [&super::MARKER, message.as_slice()].concat()
    }

    /// Whether the cookie in `greeting` is one that was made for it and that is still good.
    pub(super) fn is_right(&mut self, greeting: &Greeting<'_>, source: IpAddr, now: Instant) -> bool {
        let Some((found, tag)) = greeting.cookie.and_then(<[u8]>::split_first) else { return false };
        let newest = self.number(now);
        let numbers = [newest, newest.saturating_sub(1)];
        let Some(number) = numbers.into_iter().find(|number| version(*number) == *found) else {
            return false;
        };
        hmac::verify(self.key(number), &data(number, greeting, source), tag).is_ok()
    }

    /// Of the key that is the newest at `now`; counted from 1, so that there is one before it.
    fn number(&self, now: Instant) -> u64 {
        1 + now.saturating_duration_since(self.started).as_secs() / KEY_TIME.as_secs()
    }

    fn key(&mut self, number: u64) -> &hmac::Key {
        if !self.keys.iter().any(|(known, _)| *known == number) {
            self.keys.swap(0, 1);
            self.keys[0] = (number, key(&self.secret, number));
        }
        let at = usize::from(self.keys[0].0 != number);
        &self.keys[at].1
    }
}

fn key(secret: &hmac::Key, number: u64) -> hmac::Key {
    let derived = hmac::sign(secret, &number.to_be_bytes());
    hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref())
}

fn version(number: u64) -> u8 {
    number.to_le_bytes()[0]
}

fn mac(key: &hmac::Key, number: u64, greeting: &Greeting<'_>, source: IpAddr) -> hmac::Tag {
    hmac::sign(key, &data(number, greeting, source))
}

/// What the MAC covers. The nonce is last: it alone has no fixed length.
fn data(number: u64, greeting: &Greeting<'_>, source: IpAddr) -> Vec<u8> {
    let address = match source.to_canonical() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    [&number.to_be_bytes(), address.as_slice(), &greeting.spi_i.to_be_bytes(), greeting.nonce].concat()
}

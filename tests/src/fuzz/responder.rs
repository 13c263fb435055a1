//! The whole slow half of the IPsec cable, told what strangers and peers send it.
//!
//! `stranger_target` has no keys: no IKE SA, no child SA comes of it, however requests, answers and time come. `peer_target` has
//! them: it does a handshake as a gateway of the cluster set does, and then sends what it likes, properly sealed. Neither
//! makes the engine panic, remember without bound, or carry packets of subnets that are not the peer's.

mod setting;

use std::time::Duration;

use trieste_cables::ipsec::wire::{HEADER_BYTES, Header, PayloadKind};

use self::setting::Setting;
use super::Reader;

/// Where a message says how long it is.
const LENGTH_AT: usize = 24;
/// The unit of time in the inputs.
const TIME_STEP: Duration = Duration::from_millis(50);
/// What the engine may answer to one message, at most: a response, and requests of its own that were waiting.
const MAX_ANSWERS: usize = 64;
/// How often the engine tries a peer that does not answer, and by how many datagrams (docs/adr/0027): what it may send
/// beyond that while time passes.
const ATTEMPT: (Duration, usize) = (Duration::from_secs(20), 4);

/// Returns how many datagrams the engine may send while this time passes.
fn most_in(time: Duration) -> usize {
    let attempts = time.as_millis().div_ceil(ATTEMPT.0.as_millis());
    MAX_ANSWERS + ATTEMPT.1 * usize::try_from(attempts).expect("inputs are of hours")
}

/// Bytes of a stranger.
pub(super) fn stranger_target(data: &[u8]) {
    let mut setting = Setting::new();
    let mut reader = Reader::new(data);
    let mut sent = setting.transmits();
    while !reader.is_empty() {
        let kind = reader.byte();
        let mut time = Duration::ZERO;
        if kind & 0x0f == 0x0f {
            time = TIME_STEP * u32::from(reader.u16());
            setting.pass(time);
        } else {
            let count = usize::from(reader.u16() % 2048);
            let mut datagram = reader.take(count).to_vec();
            let newest = sent.iter().rev().find_map(|message| Header::parse(message).ok());
            aim(kind, &mut datagram, newest.map(|(header, ..)| header));
            setting.receive(datagram);
        }
        let answers = setting.transmits();
        assert!(answers.len() <= most_in(time), "{} datagrams for one, or in {time:?}", answers.len());
        sent.extend(answers);
        sent.drain(..sent.len().saturating_sub(8));
    }
    setting.take_orders();
    assert_eq!((setting.ups, setting.children), (0, 0), "no stranger makes an SA");
    assert!(setting.half_open() <= 1000);
}

/// Makes a message reach further than chance would: right length, right SPIs, as an answer or request of the one that the
/// engine sent last.
fn aim(kind: u8, datagram: &mut [u8], newest: Option<Header>) {
    let length = u32::try_from(datagram.len()).unwrap_or(u32::MAX).to_be_bytes();
    if let (Some(field), 1..) = (datagram.get_mut(LENGTH_AT..HEADER_BYTES), kind & 0x10) {
        field.copy_from_slice(&length);
    }
    let (Some(fields), Some(header)) = (datagram.get_mut(..LENGTH_AT), newest) else { return };
    if kind & 0x20 != 0 {
        fields[..8].copy_from_slice(&header.spi_i.to_be_bytes());
    }
    if kind & 0x40 != 0 {
        fields[8..16].copy_from_slice(&header.spi_r.to_be_bytes());
    }
    if kind & 0x80 != 0 {
        fields[20..24].copy_from_slice(&header.message_id.to_be_bytes());
    }
}

/// Payloads of a peer.
pub(super) fn peer_target(data: &[u8]) {
    let mut setting = Setting::new();
    let mut peer = setting.handshake();
    let mut reader = Reader::new(data);
    while !reader.is_empty() && !peer.is_gone {
        let kind = reader.byte();
        let mut time = Duration::ZERO;
        if kind & 0x0f == 0x0f {
            time = TIME_STEP * u32::from(reader.u16());
            if kind & 0x10 == 0 { setting.pass(time) } else { peer.live(&mut setting, time) }
        } else {
            let (exchange, first) = (34 + (kind & 3), PayloadKind::from_code(reader.byte()));
            let count = usize::from(reader.u16() % 4096);
            let datagrams =
                peer.seal(exchange, kind & 0x40 != 0, kind & 0x80 != 0, first, reader.take(count));
            datagrams.into_iter().for_each(|datagram| setting.receive(datagram));
        }
        let answers = setting.transmits();
        assert!(answers.len() <= most_in(time), "{} datagrams for one, or in {time:?}", answers.len());
        answers.iter().for_each(|answer| peer.read(answer));
    }
    setting.take_orders();
}

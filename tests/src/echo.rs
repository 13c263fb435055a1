//! Echo requests that are waited for: `ping` ends two round trips after it has sent the last request, and what a busy machine
//! answers later than that counts as lost there.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto};
use trieste_packet::checksum::Sum;

use crate::interrupt;
use crate::netns::Namespace;

/// Between two requests.
const INTERVAL: Duration = Duration::from_millis(100);
/// How long one look at the socket takes at most.
const LOOK: Duration = Duration::from_millis(10);
/// Bytes of the header: type, code, checksum, identifier, number.
const HEADER: usize = 8;

/// What has become of some requests.
#[derive(Debug, Default)]
pub struct Echoes {
    /// Numbers of those that were answered with the bytes that they had.
    pub answered: BTreeSet<u16>,
    /// How many packets came back that were longer than some link's MTU.
    pub too_long: usize,
    /// Round trips, in the order of the answers.
    pub round_trips: Vec<Duration>,
    /// What the node said to sending, if it refused.
    pub refused: Vec<String>,
}

/// Sends so many requests with this many bytes of payload, and waits until all are answered, no longer than `patience` after the
/// last one.
///
/// # Errors
/// If there is no socket for it: that needs root.
pub fn send(
    from: &Namespace,
    to: IpAddr,
    bytes: usize,
    count: u16,
    patience: Duration,
) -> anyhow::Result<Echoes> {
    let socket = from.enter(|| Ok(open(to)?))?;
    let payload = crate::traffic::pattern(bytes);
    let identifier = identifier();
    let (mut echoes, start) = (Echoes::default(), Instant::now());
    let mut sent: Vec<Instant> = Vec::new();
    let mut buffer = vec![0; 1 << 17];
    loop {
        interrupt::check()?;
        let is_due = start.elapsed() >= INTERVAL * u32::try_from(sent.len())?;
        if sent.len() < usize::from(count) && is_due {
            let request = request(to, identifier, u16::try_from(sent.len())?, &payload);
            sent.push(Instant::now());
            let to = SocketAddr::new(to, 0);
            if let Err(error) = rustix::net::sendto(&socket, &request, SendFlags::empty(), &to) {
                echoes.refused.push(error.to_string());
            }
        }
        if let Ok((length, _)) = rustix::net::recv(&socket, &mut buffer[..], RecvFlags::empty()) {
            match read(to, identifier, &payload, &buffer[..length]) {
                Some(Reply::Answer(number)) if echoes.answered.insert(number) => {
                    echoes.round_trips.extend(sent.get(usize::from(number)).map(Instant::elapsed));
                }
                Some(Reply::TooLong) => echoes.too_long += 1,
                Some(Reply::Answer(_)) | None => {}
            }
        }
        let is_over = sent.last().is_some_and(|last| last.elapsed() > patience);
        if sent.len() == usize::from(count) && (echoes.answered.len() == sent.len() || is_over) {
            return Ok(echoes);
        }
    }
}

fn open(to: IpAddr) -> rustix::io::Result<OwnedFd> {
    let (family, protocol) = match to {
        IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP),
        IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6),
    };
    let socket = rustix::net::socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, Some(protocol))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(LOOK))?;
    Ok(socket)
}

/// One that no other call on this machine has at the same time, as good as that goes.
fn identifier() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let [low, high, ..] = std::process::id().to_le_bytes();
    u16::from_le_bytes([low, high]).wrapping_mul(251).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed))
}

/// An echo request (RFC 792, RFC 4443 section 4.1). The kernel sets the checksum of one of IPv6.
fn request(to: IpAddr, identifier: u16, number: u16, payload: &[u8]) -> Vec<u8> {
    let kind = if to.is_ipv4() { 8 } else { 128 };
    let header = [&[kind, 0, 0, 0][..], &identifier.to_be_bytes(), &number.to_be_bytes()].concat();
    let mut message = [&header[..], payload].concat();
    if to.is_ipv4() {
        let sum = Sum::ZERO.bytes(&message).checksum();
        message[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    message
}

#[derive(Debug, PartialEq, Eq)]
enum Reply {
    Answer(u16),
    TooLong,
}

/// Reads what a raw socket has received: with IPv4 from the IP header on. `None` if it is not about our requests.
fn read(to: IpAddr, identifier: u16, payload: &[u8], datagram: &[u8]) -> Option<Reply> {
    let message = match to {
        IpAddr::V4(_) => datagram.get(usize::from(datagram.first()? & 15) * 4..)?,
        IpAddr::V6(_) => datagram,
    };
    let (header, rest) = message.split_at_checked(HEADER)?;
    let is_ours = || header[4..6] == identifier.to_be_bytes() && rest == payload;
    match (to, header[0], header[1]) {
        (IpAddr::V4(_), 0, 0) | (IpAddr::V6(_), 129, 0) if is_ours() => {
            Some(Reply::Answer(u16::from_be_bytes([header[6], header[7]])))
        }
        // The packet that did not fit begins with its IP header.
        (IpAddr::V4(to), 3, 4) if rest.get(16..20)? == to.octets() => Some(Reply::TooLong),
        (IpAddr::V6(to), 2, 0) if rest.get(24..40)? == to.octets() => Some(Reply::TooLong),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_and_what_was_too_long_are_told_from_what_is_not_ours() {
        let (v4, v6): (IpAddr, IpAddr) = ("10.2.0.5".parse().unwrap(), "fd00:2::5".parse().unwrap());
        let ip = [&[0x45; 1][..], &[0; 15], &[10, 2, 0, 5]].concat();
        let mut answer = request(v4, 7, 3, b"abc");
        assert_eq!(Sum::ZERO.bytes(&answer).checksum(), 0);
        let received = |message: &[u8]| [&ip[..], message].concat();
        assert_eq!(read(v4, 7, b"abc", &received(&answer)), None, "a request");
        answer[0] = 0;
        assert_eq!(read(v4, 7, b"abc", &received(&answer)), Some(Reply::Answer(3)));
        assert_eq!(read(v4, 8, b"abc", &received(&answer)), None, "another's");
        assert_eq!(read(v4, 7, b"abd", &received(&answer)), None, "changed");
        let too_long = [&[3, 4, 0, 0, 0, 0, 5, 0][..], &ip].concat();
        assert_eq!(read(v4, 7, b"abc", &received(&too_long)), Some(Reply::TooLong));
        assert_eq!(read("10.2.0.6".parse().unwrap(), 7, b"abc", &received(&too_long)), None);

        let mut answer = request(v6, 7, 3, b"abc");
        answer[0] = 129;
        assert_eq!(read(v6, 7, b"abc", &answer), Some(Reply::Answer(3)));
        let IpAddr::V6(address) = v6 else { unreachable!() };
        let too_long = [&[2, 0, 0, 0, 0, 0, 5, 0][..], &[0; 24], &address.octets()].concat();
        assert_eq!(read(v6, 7, b"abc", &too_long), Some(Reply::TooLong));
        for cut in 0..too_long.len() {
            assert_eq!(read(v6, 7, b"abc", &too_long[..cut]), None);
        }
    }
}

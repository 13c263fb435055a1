//! Raw ESP: IP protocol 50 with no UDP around it (RFC 4303), to and from peers that are behind no NAT.
//!
//! Such a packet has no ports: port 0 of [`trieste_packet::Outer::peer`] stands for it, and its bytes begin with the
//! SPI. Every raw socket of the machine sees every ESP packet, so a group of workers has one per family: worker 0 reads it and hands over by
//! SPI, all of them send with it. The kernel offers neither GSO nor GRO here.

use std::net::IpAddr;
use std::os::fd::{AsFd as _, BorrowedFd};

use trieste_packet::PacketBuf;

use super::socket::{Socket, bind_addresses};
use super::steering::Key;
use super::{FAMILIES, UdpConfig, UdpIo, steer};
use crate::link::Family;
use crate::{Error, Fallback};

/// Names of the raw sockets as features, by family.
const FEATURES: [&str; FAMILIES] = ["raw-esp4", "raw-esp6"];

impl UdpIo {
    /// Makes a group carry ESP: datagrams are steered by SPI, and raw sockets are opened for what comes and goes
    /// without UDP. Of `config`, addresses, mark, buffers and fragments count. What cannot be had is a fallback,
    /// without which everything still works for peers that take ESP in UDP.
    pub fn carry_esp(group: &mut [Self], config: &UdpConfig) {
        if group.len() > 1 {
            steer(group, Key::Spi);
        }
        let mut fallbacks = Vec::new();
        for (family, address) in bind_addresses(config).into_iter().enumerate() {
            let Some(address) = address else { continue };
            if let Err(error) = open(group, family, address, config, &mut fallbacks) {
                fallbacks.push(Fallback::new(FEATURES[family], reason(&error)));
            }
        }
        for io in group {
            for fallback in &fallbacks {
                if !io.fallbacks.contains(fallback) {
                    io.fallbacks.push(fallback.clone());
                }
            }
        }
    }

    /// The sockets that other workers read and this one only sends with.
    pub fn send_only_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let sockets = if self.reads_esp { &[] } else { &self.sockets[FAMILIES..] };
        sockets.iter().flatten().map(|socket| socket.as_fd())
    }
}

fn open(
    group: &mut [UdpIo],
    family: usize,
    address: IpAddr,
    config: &UdpConfig,
    fallbacks: &mut Vec<Fallback>,
) -> Result<(), Error> {
    let socket = Socket::open_esp(address, config, fallbacks)?;
    for (worker, io) in group.iter_mut().enumerate() {
        let other = socket.try_clone().map_err(|error| Error::kernel("share a raw socket for ESP", error))?;
        io.sockets[FAMILIES + family] = Some(other);
        io.reads_esp = worker == 0;
    }
    Ok(())
}

fn reason(error: &Error) -> String {
    let cause = if matches!(error, Error::NotPermitted { .. }) {
        "raw sockets need the capability NET_RAW".to_owned()
    } else {
        error.to_string()
    };
    format!("{cause}; peers are reached with ESP in UDP only")
}

/// Takes the IP header off what an IPv4 raw socket has received; over IPv6 there is none. `false` when it is not as it
/// should be.
pub(super) fn strip(family: Family, buf: &mut PacketBuf) -> bool {
    if family == Family::Ipv6 {
        return true;
    }
    let Some(&first) = buf.bytes().first() else { return false };
    let header_bytes = usize::from(first & 0xf) * 4;
    let is_whole = first >> 4 == 4 && header_bytes >= 20 && header_bytes <= buf.len();
    if is_whole {
        buf.advance(header_bytes);
    }
    is_whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use trieste_packet::{Pool, PoolConfig};

    #[test]
    fn the_ip_header_goes_with_its_options() {
        let mut pool = Pool::new(PoolConfig { slots: 1, slot_bytes: 512 });
        let cases: [(u8, usize, Option<usize>); 6] = [
            (0x45, 30, Some(10)),
            (0x46, 30, Some(6)),
            (0x45, 20, Some(0)),
            (0x44, 30, None),
            (0x4f, 30, None),
            (0x65, 30, None),
        ];
        for (first, len, left) in cases {
            let mut bytes = vec![7; len];
            bytes[0] = first;
            let mut buf = pool.alloc_copy(&bytes).unwrap();
            let is_whole = strip(Family::Ipv4, &mut buf);
            assert_eq!(is_whole.then_some(buf.len()), left, "{first:#x}");
            assert!(strip(Family::Ipv6, &mut buf));
            pool.recycle(buf);
        }
        let mut empty = pool.alloc_copy(&[]).unwrap();
        assert!(!strip(Family::Ipv4, &mut empty));
    }
}

//! Traffic selectors (RFC 7296 section 3.13).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::WireError;
use super::bytes::{Reader, clamp8};
use crate::ipsec::Selector;

/// Most selectors of a payload: their number has eight bits.
pub const MAX_SELECTORS: usize = 255;
const IPV4_RANGE: u8 = 7;
const IPV6_RANGE: u8 = 8;

/// The selectors of a TS payload, without those that say nothing we could obey: other types, empty ranges, and the
/// "opaque" ports of packets that have none.
pub(super) fn parse(body: &[u8]) -> Result<Vec<Selector>, WireError> {
    let mut reader = Reader::new(body, "a traffic selector payload");
    let [count, _, _, _] = reader.array()?;
    let mut selectors = Vec::new();
    for _ in 0..count {
        let (kind, protocol, length) = (reader.u8()?, reader.u8()?, reader.u16()?);
        let rest = Reader::new(reader.body(length, 4)?, "a traffic selector");
        let found = match kind {
            IPV4_RANGE => range(rest, protocol, |reader| Ok(Ipv4Addr::from(reader.array::<4>()?).into()))?,
            IPV6_RANGE => range(rest, protocol, |reader| Ok(Ipv6Addr::from(reader.array::<16>()?).into()))?,
            _ => None,
        };
        selectors.extend(found);
    }
    reader.end()?;
    Ok(selectors)
}

fn range(
    mut reader: Reader<'_>,
    protocol: u8,
    address: impl Fn(&mut Reader<'_>) -> Result<IpAddr, WireError>,
) -> Result<Option<Selector>, WireError> {
    let (first_port, last_port) = (reader.u16()?, reader.u16()?);
    let (first, last) = (address(&mut reader)?, address(&mut reader)?);
    reader.end()?;
    let selector = Selector { first, last, protocol, first_port, last_port };
    Ok((first <= last && first_port <= last_port).then_some(selector))
}

/// Of more than [`MAX_SELECTORS`], the first ones.
pub(super) fn emit(selectors: &[Selector], out: &mut Vec<u8>) {
    let selectors = selectors.get(..MAX_SELECTORS).unwrap_or(selectors);
    out.extend_from_slice(&[clamp8(selectors.len()), 0, 0, 0]);
    for selector in selectors {
        let (kind, length): (u8, u16) =
            if selector.first.is_ipv4() { (IPV4_RANGE, 16) } else { (IPV6_RANGE, 40) };
        out.extend_from_slice(&[kind, selector.protocol]);
        for field in [length, selector.first_port, selector.last_port] {
            out.extend_from_slice(&field.to_be_bytes());
        }
        for address in [selector.first, selector.last] {
            match address {
                IpAddr::V4(address) => out.extend_from_slice(&address.octets()),
                IpAddr::V6(address) => out.extend_from_slice(&address.octets()),
            }
        }
    }
}

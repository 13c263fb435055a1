//! Cutting an IPv4 packet without DF into fragments (RFC 791 section 3.2).

use crate::DropReason;
use crate::checksum;
use crate::pool::{PacketBuf, Pool};
use crate::wire::{IPV4_HEADER_BYTES, Inner, be16, put16, version};

/// Cuts the IPv4 packet at the start of `packet` into fragments of at most `mtu_bytes` each and hands them to
/// `emit` in order. Returns how many there are.
///
/// # Errors
/// [`DropReason::CannotFragment`] when the packet is not IPv4, has DF set, or the MTU leaves no room;
/// [`DropReason::NoBuffer`] when buffers ran out, with some fragments emitted already.
pub fn fragment_v4(
    packet: &[u8],
    mtu_bytes: u16,
    pool: &mut Pool,
    mut emit: impl FnMut(PacketBuf),
) -> Result<u64, DropReason> {
    let inner = Inner::parse(packet)?;
    if version(packet) != 4 || inner.dont_fragment {
        return Err(DropReason::CannotFragment);
    }
    let packet = &packet[..usize::from(inner.total_bytes)];
    let header_bytes = usize::from(packet[0] & 0x0f) * 4;
    let (header, payload) = packet.split_at(header_bytes);
    let field = be16(packet, 6);
    let mut later = [0u8; 60];
    let later_bytes = copied_header(header, &mut later);
    let mut offset = 0;
    let mut count = 0;
    while offset < payload.len() {
        let header = if offset == 0 { header } else { &later[..later_bytes] };
        let room = usize::from(mtu_bytes).saturating_sub(header.len());
        let is_last = payload.len() - offset <= room;
        // All but the last carry a multiple of eight bytes.
        let bytes = if is_last { payload.len() - offset } else { room & !7 };
        if bytes == 0 {
            return Err(DropReason::CannotFragment);
        }
        let mut buf = pool.alloc_copy(header).ok_or(DropReason::NoBuffer)?;
        if buf.tailroom() < bytes {
            return Err(DropReason::NoBuffer);
        }
        buf.extend(bytes).copy_from_slice(&payload[offset..offset + bytes]);
        let units = u16::try_from(offset / 8).map_err(|_| DropReason::CannotFragment)?;
        let position = (field & 0x1fff) + units;
        if position > 0x1fff {
            return Err(DropReason::CannotFragment);
        }
        let more = if is_last { field & 0x2000 } else { 0x2000 };
        let total = u16::try_from(buf.len()).map_err(|_| DropReason::CannotFragment)?;
        let out = buf.bytes_mut();
        put16(out, 2, total);
        put16(out, 6, more | position);
        checksum::fill_ipv4_header(out);
        emit(buf);
        offset += bytes;
        count += 1;
    }
    Ok(count)
}

/// Writes the header of the second and later fragments: only options with the copied bit. Returns its length.
fn copied_header(header: &[u8], out: &mut [u8; 60]) -> usize {
    out[..IPV4_HEADER_BYTES].copy_from_slice(&header[..IPV4_HEADER_BYTES]);
    let mut len = IPV4_HEADER_BYTES;
    let mut at = IPV4_HEADER_BYTES;
    while at < header.len() {
        let kind = header[at];
        let bytes = match kind {
            0 => break,
            1 => 1,
            _ => header.get(at + 1).map_or(0, |len| usize::from(*len)),
        };
        if bytes == 0 || (kind > 1 && bytes < 2) || at + bytes > header.len() {
            break;
        }
        if kind & 0x80 != 0 {
            out[len..len + bytes].copy_from_slice(&header[at..at + bytes]);
            len += bytes;
        }
        at += bytes;
    }
    let padded = len.next_multiple_of(4);
    out[len..padded].fill(0);
    out[0] = 0x40 | u8::try_from(padded / 4).unwrap_or(15);
    padded
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::Sum;
    use crate::pool::PoolConfig;
    use proptest::prelude::*;

    fn packet(payload: &[u8], options: &[u8], field: u16) -> Vec<u8> {
        let header = 20 + options.len();
        let mut bytes = vec![0u8; 20];
        bytes[0] = 0x40 | u8::try_from(header / 4).unwrap();
        put16(&mut bytes, 2, u16::try_from(header + payload.len()).unwrap());
        put16(&mut bytes, 4, 77);
        put16(&mut bytes, 6, field);
        bytes[8] = 64;
        bytes[9] = 253;
        bytes[12..20].copy_from_slice(&[10, 1, 0, 1, 10, 2, 0, 1]);
        bytes.extend(options);
        bytes.extend(payload);
        bytes
    }

    proptest! {
        #[test]
        fn fragments_put_together_are_the_packet(
            payload in proptest::collection::vec(any::<u8>(), 1..4000),
            mtu in 68u16..1600,
            with_options: bool,
        ) {
            let mut pool = Pool::new(PoolConfig { slots: 200, slot_bytes: 4096 });
            // One option that is copied (source route, 0x83) and one that is not (timestamp, 0x44).
            let options: &[u8] = if with_options { &[0x83, 3, 4, 0x44, 4, 5, 0, 0] } else { &[] };
            let whole = packet(&payload, options, 0);
            let mut fragments = Vec::new();
            let count = fragment_v4(&whole, mtu, &mut pool, |buf| fragments.push(buf.bytes().to_vec())).unwrap();
            prop_assert_eq!(usize::try_from(count).unwrap(), fragments.len());
            let mut joined: Vec<u8> = Vec::new();
            for (index, fragment) in fragments.iter().enumerate() {
                let header = usize::from(fragment[0] & 15) * 4;
                prop_assert!(fragment.len() <= usize::from(mtu));
                prop_assert_eq!(Sum::ZERO.bytes(&fragment[..header]).folded(), 0xffff);
                prop_assert_eq!(usize::from(be16(fragment, 6) & 0x1fff) * 8, joined.len());
                prop_assert_eq!(be16(fragment, 6) & 0x2000 != 0, index + 1 < fragments.len());
                let later = if with_options { 24 } else { 20 };
                prop_assert!(index == 0 || header == later);
                joined.extend(&fragment[header..]);
            }
            prop_assert_eq!(joined, payload);
        }
    }

    #[test]
    fn packets_with_df_are_refused() {
        let mut pool = Pool::new(PoolConfig { slots: 4, slot_bytes: 4096 });
        let whole = packet(&[1; 2000], &[], 0x4000);
        assert_eq!(fragment_v4(&whole, 1400, &mut pool, drop), Err(DropReason::CannotFragment));
    }
}

//! Writing one packet or train to the device.
//!
//! A train goes out whole, its segments gathered from where they lie; what the device does not take whole is cut
//! here, with finished checksums.

use std::fs::File;
use std::io::{self, IoSlice, Write as _};

use trieste_packet::segment::Segmenter;
use trieste_packet::wire::version;
use trieste_packet::{Checksum, DropReason, Drops, LayoutKind, Packet, checksum};

use super::device::Mode;
use super::vnet::{self, Header};
use crate::Offloads;

/// Largest super-packet that crosses the device, in bytes: the length field of IPv4.
pub(super) const MAX_TRAIN_BYTES: usize = 65_535;
/// Most segments of a train that is written whole: what the kernel takes of UDP, and what is gathered here.
/// Trains of TCP without gaps may have more.
pub(super) const MAX_SEGMENTS: u16 = 64;

/// What became of a packet.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It is written; so many segments got through. Those that did not are counted as drops.
    Written(usize),
    /// Nothing of it is written, nor ever will be.
    Refused(DropReason),
    /// Nothing of it is written now.
    Full,
    /// The device is gone.
    Broken(io::Error),
}

/// Writes one packet or train.
pub(super) fn write(file: &File, mode: Mode, packet: &mut Packet, drops: &mut Drops) -> Outcome {
    match packet.layout.kind {
        LayoutKind::Single => write_single(file, mode, packet),
        LayoutKind::Tcp | LayoutKind::Udp => {
            if takes_whole(mode.offloads, packet)
                && let Some(outcome) = write_whole(file, packet)
            {
                return outcome;
            }
            write_cut(file, mode, packet, drops)
        }
        LayoutKind::Packets => write_cut(file, mode, packet, drops),
        LayoutKind::Datagrams => Outcome::Refused(DropReason::TunWrite),
    }
}

fn takes_whole(offloads: Offloads, packet: &Packet) -> bool {
    let layout = &packet.layout;
    let needed = match (layout.kind, version(packet.bytes())) {
        (LayoutKind::Tcp, 4) => Offloads::TSO4,
        (LayoutKind::Tcp, 6) => Offloads::TSO6,
        (LayoutKind::Udp, 4) => Offloads::USO4,
        (LayoutKind::Udp, 6) => Offloads::USO6,
        _ => return false,
    };
    let is_contiguous = layout.stride_bytes == layout.segment_bytes;
    let is_short = layout.count <= MAX_SEGMENTS || (is_contiguous && layout.kind == LayoutKind::Tcp);
    offloads.contains(needed) && is_short
}

fn write_single(file: &File, mode: Mode, packet: &mut Packet) -> Outcome {
    if let Checksum::Partial { start, field } = packet.checksum
        && !mode.offloads.contains(Offloads::CHECKSUM)
    {
        if !checksum::finish_partial(packet.buf.bytes_mut(), usize::from(start), usize::from(field)) {
            return Outcome::Refused(DropReason::MalformedHeader);
        }
        packet.checksum = Checksum::Verified;
    }
    match write_bytes(file, mode, Header::single(packet.checksum), packet.bytes()) {
        Ok(()) => Outcome::Written(1),
        Err(error) => outcome_of(error),
    }
}

/// Writes a train whole. `None` when the device does not take it so, and it has to be cut.
fn write_whole(file: &File, packet: &mut Packet) -> Option<Outcome> {
    let layout = packet.layout;
    let count = usize::from(layout.count);
    let last = count.checked_sub(1)?;
    let (last_start, last_end) = packet.segment_range(last);
    let last_bytes = last_end.checked_sub(last_start).filter(|&bytes| bytes > 0)?;
    let total_bytes =
        usize::from(layout.header_bytes) + last * usize::from(layout.segment_bytes) + last_bytes;
    if total_bytes > MAX_TRAIN_BYTES {
        return None;
    }
    if !matches!(packet.checksum, Checksum::Partial { .. }) {
        packet.checksum = vnet::prepare_train(packet.buf.bytes_mut(), layout, total_bytes)?;
    }
    let bytes = packet.bytes();
    let header = Header::of_train(layout, packet.checksum, bytes).emit();
    let result = if layout.stride_bytes == layout.segment_bytes {
        write_vectored(file, &[IoSlice::new(&header), IoSlice::new(&bytes[..last_end])])
    } else {
        let mut slices = [IoSlice::new(&[]); 1 + MAX_SEGMENTS as usize];
        slices[0] = IoSlice::new(&header);
        for (index, slice) in slices[1..=count].iter_mut().enumerate() {
            let (start, end) = packet.segment_range(index);
            *slice = IoSlice::new(&bytes[if index == 0 { 0 } else { start }..end]);
        }
        write_vectored(file, &slices[..=count])
    };
    match result {
        Ok(()) => Some(Outcome::Written(count)),
        // The kernel looked at it and did not like it as a train (an older kernel, a shorter limit).
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => None,
        Err(error) => Some(outcome_of(error)),
    }
}

/// Cuts a train, finishes the checksums, and writes each packet on its own.
fn write_cut(file: &File, mode: Mode, packet: &mut Packet, drops: &mut Drops) -> Outcome {
    let total = packet.segments();
    let cable = packet.decision.cable;
    let mut segmenter = match Segmenter::new(packet) {
        Ok(segmenter) => segmenter,
        Err(reason) => return Outcome::Refused(reason),
    };
    let (mut written, mut lost) = (0, 0);
    // What is left when the loop ends early: the train has been taken apart and cannot go back into the batch.
    let mut rest = DropReason::MalformedHeader;
    while let Some(segment) = segmenter.next_segment() {
        let Err(error) = write_bytes(file, mode, Header::single(Checksum::Verified), segment) else {
            written += 1;
            continue;
        };
        match outcome_of(error) {
            Outcome::Refused(reason) => {
                drops.lose(cable, reason, segment);
                lost += 1;
            }
            Outcome::Full => {
                rest = DropReason::TunFull;
                break;
            }
            Outcome::Broken(_) | Outcome::Written(_) => {
                rest = DropReason::TunWrite;
                break;
            }
        }
    }
    drops.count(cable, rest, total.saturating_sub(written + lost));
    Outcome::Written(usize::try_from(written).expect("at most 2^16 segments"))
}

/// Writes one whole packet.
fn write_bytes(file: &File, mode: Mode, header: Header, bytes: &[u8]) -> io::Result<()> {
    if mode.has_header {
        write_vectored(file, &[IoSlice::new(&header.emit()), IoSlice::new(bytes)])
    } else {
        write_vectored(file, &[IoSlice::new(bytes)])
    }
}

/// The device takes a packet whole or not at all.
fn write_vectored(mut file: &File, slices: &[IoSlice<'_>]) -> io::Result<()> {
    loop {
        match file.write_vectored(slices) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn outcome_of(error: io::Error) -> Outcome {
    match error.raw_os_error() {
        Some(libc::EAGAIN) => Outcome::Full,
        Some(libc::EBADF | libc::EBADFD | libc::ENODEV | libc::ENXIO) => Outcome::Broken(error),
        Some(libc::ENOBUFS | libc::ENOMEM) => Outcome::Refused(DropReason::TunFull),
        _ => Outcome::Refused(DropReason::TunWrite),
    }
}

//! One queue of a TUN device.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use trieste_packet::{Batch, CableId, Checksum, DropReason, Drops, Layout, Packet, PacketBuf, Pool};

use super::device::{self, Mode};
use super::vnet::{HEADER_BYTES, Header};
use super::write::{self, MAX_SEGMENTS, MAX_TRAIN_BYTES, Outcome};
use crate::{Capabilities, Error, Fallback, Offloads, PacketIo, RECV_BYTES, link};

/// One queue of a TUN device: one worker's side of it. What is received came from the host's stack (outbound); what
/// is sent goes there.
#[derive(Debug)]
pub struct TunQueue {
    file: File,
    mode: Mode,
    mtu_bytes: usize,
    fallbacks: Vec<Fallback>,
}

/// What a read packet is, or why it is none.
type Kind = Result<(Layout, Checksum), DropReason>;

impl TunQueue {
    pub(super) fn new(file: File, mode: Mode, mtu_bytes: usize, fallbacks: Vec<Fallback>) -> Self {
        Self { file, mode, mtu_bytes, fallbacks }
    }

    /// Takes over a queue that somebody else opened (the process before us, or a supervisor), and negotiates offloads
    /// anew, up to `offloads`. Must be called in the device's network namespace.
    ///
    /// # Errors
    /// When `fd` is no queue of a TUN device without packet information, or the kernel refuses the settings.
    pub fn adopt(fd: OwnedFd, offloads: Offloads) -> Result<Self, Error> {
        let (name, has_header) = device::identify(&fd)?;
        rustix::io::ioctl_fionbio(&fd, true)
            .map_err(|error| Error::kernel("make the TUN queue non-blocking", error.into()))?;
        let file = File::from(fd);
        let mut fallbacks = Vec::new();
        let offloads = if has_header {
            let wanted = device::wanted(offloads, &mut fallbacks);
            device::negotiate(&file, wanted, &mut fallbacks)?
        } else {
            fallbacks.extend(Fallback::each(Offloads::TUN, "the inherited device has no virtio header"));
            Offloads::NONE
        };
        Ok(Self::new(file, Mode { has_header, offloads }, link::mtu(&name)?, fallbacks))
    }

    /// Another handle to the same queue, for whoever restarts the worker.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn try_clone(&self) -> io::Result<Self> {
        let file = self.file.try_clone()?;
        Ok(Self::new(file, self.mode, self.mtu_bytes, self.fallbacks.clone()))
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// What the kernel does in our place.
    #[must_use]
    pub fn offloads(&self) -> Offloads {
        self.mode.offloads
    }

    /// Reads one packet or train to where `buf` starts, its device header into the headroom. `None`: nothing there.
    fn read(&self, buf: &mut PacketBuf) -> io::Result<Option<Kind>> {
        let header_bytes = if self.mode.has_header { HEADER_BYTES } else { 0 };
        buf.prepend(header_bytes);
        buf.extend(buf.tailroom());
        let bytes = match (&self.file).read(buf.bytes_mut()) {
            Ok(0) => return Ok(None),
            Ok(bytes) => bytes,
            Err(error) if is_nothing_there(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        buf.truncate(bytes);
        if !self.mode.has_header {
            return Ok(Some(Ok((Layout::SINGLE, Checksum::Unchecked))));
        }
        let Some(header) = buf.bytes().first_chunk::<HEADER_BYTES>().copied() else {
            return Ok(Some(Err(DropReason::MalformedHeader)));
        };
        buf.advance(HEADER_BYTES);
        Ok(Some(Header::parse(header).translate(buf.bytes())))
    }
}

fn is_nothing_there(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

impl PacketIo for TunQueue {
    fn recv(&mut self, pool: &mut Pool, batch: &mut Batch, drops: &mut Drops) -> io::Result<usize> {
        let (mut received, mut bytes) = (0, 0);
        while !batch.is_full() && bytes < RECV_BYTES {
            let Some(mut buf) = pool.alloc() else { break };
            match self.read(&mut buf) {
                Ok(Some(Ok((layout, checksum)))) => {
                    bytes += buf.len();
                    received += usize::from(layout.count);
                    let packet = Packet { layout, checksum, ..Packet::new(buf) };
                    batch.push(packet).expect("the batch was not full");
                }
                Ok(Some(Err(reason))) => {
                    received += 1;
                    drops.lose(CableId::default(), reason, buf.bytes());
                    pool.recycle(buf);
                }
                Ok(None) => {
                    pool.recycle(buf);
                    break;
                }
                Err(error) => {
                    pool.recycle(buf);
                    // What has come is handed over first; the error will be there again.
                    return if received > 0 { Ok(received) } else { Err(error) };
                }
            }
        }
        Ok(received)
    }

    fn send(&mut self, batch: &mut Batch, pool: &mut Pool, drops: &mut Drops) -> io::Result<usize> {
        let (mut sent, mut done) = (0, 0);
        let mut broken = None;
        while let Some(packet) = batch.as_mut_slice().get_mut(done) {
            match write::write(&self.file, self.mode, packet, drops) {
                Outcome::Written(segments) => {
                    sent += segments;
                    done += 1;
                }
                Outcome::Refused(reason) => {
                    recycle_front(batch, done, pool);
                    done = 0;
                    let packet = batch.drain_front(1).next().expect("the packet that was refused");
                    drops.discard(packet, reason, pool);
                }
                Outcome::Full => break,
                Outcome::Broken(error) => {
                    broken = Some(error);
                    break;
                }
            }
        }
        recycle_front(batch, done, pool);
        match broken {
            Some(error) if sent == 0 => Err(error),
            _ => Ok(sent),
        }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            mtu_bytes: self.mtu_bytes,
            headroom: 0,
            offloads: self.mode.offloads,
            max_segments: MAX_SEGMENTS,
            max_train_bytes: MAX_TRAIN_BYTES,
        }
    }

    fn fallbacks(&self) -> &[Fallback] {
        &self.fallbacks
    }
}

fn recycle_front(batch: &mut Batch, count: usize, pool: &mut Pool) {
    for packet in batch.drain_front(count) {
        pool.recycle(packet.buf);
    }
}

impl AsFd for TunQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

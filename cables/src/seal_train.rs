//! Collecting sealed messages into trains of datagrams.

use trieste_packet::{CableId, DropReason, Layout, LayoutKind, Outer, Packet};

use crate::boundary::Jobs;

/// Most messages in one train: what `UDP_SEGMENT` takes on every kernel that knows it.
pub const MAX_SEGMENTS: u16 = 64;
/// Most bytes in one train: the largest UDP payload over IPv4.
pub const MAX_TRAIN_BYTES: usize = 65_507;

/// Builds trains of equal datagrams to one peer: all of the same length but the last, which may be shorter.
#[derive(Debug)]
pub struct SealTrain {
    open: Option<Packet>,
    is_closed: bool,
    outer: Outer,
    cable: CableId,
}

impl SealTrain {
    /// An empty train to `outer.peer`.
    #[must_use]
    pub fn new(outer: Outer, cable: CableId) -> Self {
        Self { open: None, is_closed: false, outer, cable }
    }

    /// Lets the following messages carry another TOS byte; ends the open train if it differs.
    pub fn set_tos(&mut self, tos: u8, jobs: &mut Jobs<'_>) {
        if tos != self.outer.tos {
            self.flush(jobs);
            self.outer.tos = tos;
        }
    }

    /// Makes room for a message of `bytes` and lets `write` fill it; `write` says whether it did.
    /// Returns `false`, with the packet counted, when there is no buffer or `write` failed.
    pub fn append(
        &mut self,
        bytes: usize,
        jobs: &mut Jobs<'_>,
        write: impl FnOnce(&mut [u8]) -> bool,
    ) -> bool {
        if !self.accepts(bytes) {
            self.flush(jobs);
        }
        if self.open.is_none() && !self.start(bytes, jobs) {
            jobs.drops.count(self.cable, DropReason::NoBuffer, 1);
            return false;
        }
        let Some(packet) = self.open.as_mut() else { return false };
        let before = packet.buf.len();
        if !write(packet.buf.extend(bytes)) {
            packet.buf.truncate(before);
            jobs.drops.count(self.cable, DropReason::SealFailed, 1);
            return false;
        }
        packet.layout.count += 1;
        self.is_closed = bytes < usize::from(packet.layout.stride_bytes);
        true
    }

    /// Whether the open train takes a message of `bytes`.
    #[must_use]
    pub fn accepts(&self, bytes: usize) -> bool {
        self.open.as_ref().is_some_and(|packet| {
            !self.is_closed
                && bytes <= usize::from(packet.layout.stride_bytes)
                && packet.layout.count < MAX_SEGMENTS
                && packet.buf.len() + bytes <= MAX_TRAIN_BYTES
                && bytes <= packet.buf.tailroom()
        })
    }

    fn start(&mut self, bytes: usize, jobs: &mut Jobs<'_>) -> bool {
        let Ok(stride) = u16::try_from(bytes) else { return false };
        let Some(buf) = jobs.pool.alloc_output() else { return false };
        if bytes > buf.tailroom() {
            jobs.pool.recycle(buf);
            return false;
        }
        let mut packet = Packet::new(buf);
        packet.layout = Layout::datagrams(stride, 0);
        packet.outer = self.outer;
        packet.decision.cable = self.cable;
        self.is_closed = false;
        self.open = Some(packet);
        true
    }

    /// Ends the open train and hands it to the output.
    pub fn flush(&mut self, jobs: &mut Jobs<'_>) {
        let Some(mut packet) = self.open.take() else { return };
        match packet.layout.count {
            0 => {
                jobs.pool.recycle(packet.buf);
                return;
            }
            1 => packet.layout = Layout::SINGLE,
            _ => packet.layout.kind = LayoutKind::Datagrams,
        }
        jobs.emit(packet, self.cable);
    }
}

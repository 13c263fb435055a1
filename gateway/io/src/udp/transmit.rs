//! Sending many datagrams, or trains of them, in one call.
#![expect(unsafe_code, reason = "sendmmsg; the invariant on `Transmitter` says what its pointers point to")]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use trieste_packet::{LayoutKind, Packet};

use super::message::{Control, Name};

/// Most messages handed over by one call.
pub(super) const MESSAGES: usize = 64;
/// Most segments of one message: what every kernel takes that knows `UDP_SEGMENT`.
pub(super) const MAX_SEGMENTS: u16 = 64;
/// Most bytes of one message: the largest payload over IPv4.
pub(super) const MAX_BYTES: usize = 65_507;

/// One message: a datagram or a train, being all or the front of what is left of a packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    pub(super) bytes: usize,
    pub(super) segments: u16,
}

/// The arrays that `sendmmsg` works on, allocated once.
///
/// Invariant: message header *i* points to `names[i]`, `controls[i]` and `vectors[i]`, which live on the heap, at
/// addresses that do not change while the value lives. A vector's base is valid only from where `send` sets it until
/// the system call returns, and is read by nobody but the kernel in that call.
pub(super) struct Transmitter {
    headers: Box<[libc::mmsghdr]>,
    vectors: Box<[libc::iovec]>,
    names: Box<[Name]>,
    controls: Box<[Control]>,
    pieces: Vec<Piece>,
}

// SAFETY: the pointers lead to memory that the value owns (see the invariant), so they may move along with it.
unsafe impl Send for Transmitter {}

impl Transmitter {
    pub(super) fn new() -> Self {
        // SAFETY: all fields are integers and pointers, for which zero is a value.
        let empty: libc::mmsghdr = unsafe { std::mem::zeroed() };
        let mut this = Self {
            headers: vec![empty; MESSAGES].into_boxed_slice(),
            vectors: vec![libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; MESSAGES]
                .into_boxed_slice(),
            names: vec![Name::EMPTY; MESSAGES].into_boxed_slice(),
            controls: vec![Control::EMPTY; MESSAGES].into_boxed_slice(),
            pieces: Vec::with_capacity(MESSAGES),
        };
        let parts = this.vectors.iter_mut().zip(&mut this.names).zip(&mut this.controls);
        for (header, ((vector, name), control)) in this.headers.iter_mut().zip(parts) {
            header.msg_hdr.msg_name = std::ptr::from_mut(name).cast();
            header.msg_hdr.msg_iov = std::ptr::from_mut(vector);
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = std::ptr::from_mut(control).cast();
        }
        this
    }

    /// Sends from the front of `packets`, all to one family, the first with trains of at most `first_segments`, the
    /// others of at most `segments`. Returns how many of [`Self::pieces`] the kernel took; at least one.
    ///
    /// # Errors
    /// The kernel's answer about the first piece.
    pub(super) fn send<'a>(
        &mut self,
        fd: impl AsFd,
        packets: impl Iterator<Item = &'a Packet>,
        first_segments: u16,
        segments: u16,
    ) -> io::Result<usize> {
        self.pieces.clear();
        let mut limit = first_segments;
        for packet in packets {
            if !self.plan(packet, limit) {
                break;
            }
            limit = segments;
        }
        let count = u32::try_from(self.pieces.len()).expect("at most MESSAGES");
        // SAFETY: the first `count` headers are complete: names and control data by the invariant, vectors by `plan`,
        // from packets that are borrowed for the duration of this function.
        let sent = unsafe {
            libc::sendmmsg(
                fd.as_fd().as_raw_fd(),
                self.headers.as_mut_ptr(),
                count,
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            )
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    /// What the last call was asked to send, in order.
    pub(super) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Makes messages for one packet. `false` when it did not fit any more.
    fn plan(&mut self, packet: &Packet, segments: u16) -> bool {
        let mut rest = packet.bytes();
        let stride = match packet.layout.kind {
            LayoutKind::Datagrams => usize::from(packet.layout.stride_bytes).max(1),
            LayoutKind::Single | LayoutKind::Tcp | LayoutKind::Udp | LayoutKind::Packets => rest.len().max(1),
        };
        let most = stride * usize::from(segments).min(MAX_BYTES / stride).max(1);
        loop {
            if self.pieces.len() == MESSAGES {
                return false;
            }
            let bytes = rest.len().min(most);
            let count = bytes.div_ceil(stride).max(1);
            self.put(packet, &rest[..bytes], (count > 1).then_some(packet.layout.stride_bytes));
            self.pieces.push(Piece { bytes, segments: u16::try_from(count).expect("at most MAX_SEGMENTS") });
            rest = &rest[bytes..];
            if rest.is_empty() {
                return true;
            }
        }
    }

    fn put(&mut self, packet: &Packet, payload: &[u8], segment_bytes: Option<u16>) {
        let index = self.pieces.len();
        let header = &mut self.headers[index].msg_hdr;
        let name_bytes = self.names[index].set(packet.outer.peer);
        header.msg_namelen = libc::socklen_t::try_from(name_bytes).expect("a small constant");
        header.msg_controllen = self.controls[index].set(&packet.outer, segment_bytes);
        // The kernel only reads what a sent message points to.
        self.vectors[index] =
            libc::iovec { iov_base: payload.as_ptr().cast_mut().cast(), iov_len: payload.len() };
    }
}

impl std::fmt::Debug for Transmitter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transmitter").field("messages", &self.headers.len()).finish_non_exhaustive()
    }
}

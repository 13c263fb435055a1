//! Receiving many datagrams, trains of them, or raw ESP packets in one call.
#![expect(unsafe_code, reason = "recvmmsg; the invariant on `Receiver` says what its pointers point to")]

use std::io;
use std::os::fd::AsRawFd;

use trieste_packet::{Checksum, DropReason, Layout, Outer, Packet, PacketBuf, Pool};

use super::message::{CONTROL_BYTES, Control, NAME_BYTES, Name};
use super::raw;
use super::socket::Socket;

/// Most messages (datagrams, or trains of up to 64) taken by one call.
pub(super) const MESSAGES: usize = 16;

/// The arrays that `recvmmsg` works on, allocated once.
///
/// Invariant: message header *i* points to `names[i]`, `controls[i]` and `vectors[i]`, which live on the heap, at
/// addresses that do not change while the value lives. A vector's base is valid only from where `recv` sets it until
/// the system call returns, and is read by nobody but the kernel in that call.
pub(super) struct Receiver {
    headers: Box<[libc::mmsghdr]>,
    vectors: Box<[libc::iovec]>,
    names: Box<[Name]>,
    controls: Box<[Control]>,
    buffers: Vec<PacketBuf>,
}

// SAFETY: the pointers lead to memory that the value owns (see the invariant), so they may move along with it.
unsafe impl Send for Receiver {}

/// What a received message is.
#[derive(Debug)]
pub(super) enum Message {
    /// A datagram or a train.
    Packet(Packet),
    /// It was longer than the buffer, or came without its IP header or a possible sender; what is left of it, and which.
    Unusable(PacketBuf, DropReason),
}

impl Receiver {
    pub(super) fn new() -> Self {
        // SAFETY: all fields are integers and pointers, for which zero is a value.
        let empty: libc::mmsghdr = unsafe { std::mem::zeroed() };
        let mut this = Self {
            headers: vec![empty; MESSAGES].into_boxed_slice(),
            vectors: vec![libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; MESSAGES]
                .into_boxed_slice(),
            names: vec![Name::EMPTY; MESSAGES].into_boxed_slice(),
            controls: vec![Control::EMPTY; MESSAGES].into_boxed_slice(),
            buffers: Vec::with_capacity(MESSAGES),
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

    /// Receives up to `most` messages into buffers of `pool` and hands them to `take`, in order. Returns how many
    /// there were, and with how many buffers the call was made: with fewer messages than buffers there are no more.
    pub(super) fn recv(
        &mut self,
        socket: &Socket,
        most: usize,
        pool: &mut Pool,
        mut take: impl FnMut(Message, &mut Pool),
    ) -> io::Result<(usize, usize)> {
        let asked = self.prepare(most, pool);
        if asked == 0 {
            return Ok((0, 0));
        }
        let count = u32::try_from(asked).expect("at most MESSAGES");
        // SAFETY: the first `asked` headers are complete: names and control data by the invariant, vectors by
        // `prepare`, whose buffers are in `self.buffers` and are touched by nobody else during the call.
        let received = unsafe {
            libc::recvmmsg(
                socket.fd.as_raw_fd(),
                self.headers.as_mut_ptr(),
                count,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        let received = usize::try_from(received).map_err(|_| io::Error::last_os_error());
        let taken = *received.as_ref().unwrap_or(&0);
        for (index, mut buf) in self.buffers.drain(..).enumerate() {
            if index >= taken {
                pool.recycle(buf);
                continue;
            }
            let header = &self.headers[index];
            buf.truncate(usize::try_from(header.msg_len).unwrap_or(usize::MAX));
            let is_whole = !socket.is_esp || raw::strip(socket.family, &mut buf);
            take(interpret(header, &self.names[index], &self.controls[index], buf, is_whole), pool);
        }
        Ok((received?, asked))
    }

    /// Puts a buffer under each of the first `most` messages, as far as there are any.
    fn prepare(&mut self, most: usize, pool: &mut Pool) -> usize {
        for index in 0..most.min(MESSAGES) {
            let Some(mut buf) = pool.alloc() else { break };
            buf.extend(buf.tailroom());
            let bytes = buf.bytes_mut();
            self.vectors[index] = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
            let header = &mut self.headers[index].msg_hdr;
            header.msg_namelen = libc::socklen_t::try_from(NAME_BYTES).expect("a small constant");
            header.msg_controllen = CONTROL_BYTES;
            header.msg_flags = 0;
            self.buffers.push(buf);
        }
        self.buffers.len()
    }
}

fn interpret(
    header: &libc::mmsghdr,
    name: &Name,
    control: &Control,
    buf: PacketBuf,
    is_whole: bool,
) -> Message {
    let header = &header.msg_hdr;
    let name_bytes = usize::try_from(header.msg_namelen).unwrap_or(0);
    if header.msg_flags & libc::MSG_TRUNC != 0 {
        return Message::Unusable(buf, DropReason::NoBuffer);
    }
    let Some(peer) = name.address(name_bytes).filter(|_| is_whole) else {
        return Message::Unusable(buf, DropReason::MalformedHeader);
    };
    let said = control.read(header.msg_controllen);
    let layout = match said.segment_bytes {
        Some(stride) if buf.len() > usize::from(stride) => {
            let count = buf.len().div_ceil(usize::from(stride));
            Layout::datagrams(stride, u16::try_from(count).expect("at most 65535 bytes"))
        }
        _ => Layout::SINGLE,
    };
    let outer = Outer { peer, local: said.local, tos: said.tos };
    Message::Packet(Packet { layout, outer, checksum: Checksum::Unchecked, ..Packet::new(buf) })
}

impl std::fmt::Debug for Receiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiver").field("messages", &self.headers.len()).finish_non_exhaustive()
    }
}

//! One AF_XDP socket: its options, its rings, and its place on a queue.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::Duration;

use rustix::net::sockopt;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};

use super::frames::Frames;
use super::ring::{Address, Consumer, Descriptor, Producer};
use crate::sys::set_option;

/// Most frames that one system call sends in copy mode (`XDP_MAX_TX_SKB_BUDGET`, Linux 6.17): 32 without it.
const MAX_TX_SKB_BUDGET: i32 = 9;
const TX_BUDGET: u32 = 128;
/// Bytes of socket buffers on their way, in copy mode.
const SEND_BYTES: i32 = 4 << 20;

/// How long a queue, or memory, may be taken by a socket that has been closed: the kernel frees it later.
const WAITS_MS: [u64; 8] = [10, 20, 40, 80, 160, 320, 640, 1000];

/// Whether the kernel copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Copying {
    /// It must not.
    Never,
    /// It does.
    Always,
}

/// Whose frames a socket uses.
#[derive(Debug, Clone, Copy)]
pub(super) enum Registration<'a> {
    /// It registers them.
    First(Copying),
    /// Those that this socket has registered, and its mode.
    Shared(BorrowedFd<'a>),
}

/// A socket that is bound to a queue, with its rings.
#[derive(Debug)]
pub(super) struct QueueSocket {
    // The rings go before the socket, and the socket before the frames, which are the owner's.
    pub(super) fill: Producer<Address>,
    pub(super) completion: Consumer<Address>,
    pub(super) receive: Consumer<Descriptor>,
    pub(super) transmit: Producer<Descriptor>,
    pub(super) fd: OwnedFd,
    pub(super) queue: u32,
    /// Whether one system call sends more than 32 frames.
    pub(super) has_budget: bool,
}

impl QueueSocket {
    /// Opens a socket for `frames` with rings of `size` entries and binds it to a queue of an interface.
    pub(super) fn open(
        frames: &Frames,
        size: u32,
        interface: u32,
        queue: u32,
        registration: Registration<'_>,
    ) -> io::Result<Self> {
        let fd = socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        if let Registration::First(_) = registration {
            let (addr, len, chunk_size) = frames.memory();
            let flags = XdpUmemRegFlags::empty();
            let region = XdpUmemReg { addr, len, chunk_size, headroom: 0, flags, tx_metadata_len: 0 };
            sockopt::set_xdp_umem_reg(&fd, region).map_err(explain_registration)?;
        }
        sockopt::set_xdp_umem_fill_ring_size(&fd, size)?;
        sockopt::set_xdp_umem_completion_ring_size(&fd, size)?;
        sockopt::set_xdp_rx_ring_size(&fd, size)?;
        sockopt::set_xdp_tx_ring_size(&fd, size)?;
        let at = sockopt::xdp_mmap_offsets(&fd)?;
        let page = |offset: i64| offset.unsigned_abs();
        let fill = Producer::map(&fd, size, at.fr, libc::XDP_UMEM_PGOFF_FILL_RING)?;
        let completion = Consumer::map(&fd, size, at.cr, libc::XDP_UMEM_PGOFF_COMPLETION_RING)?;
        let receive = Consumer::map(&fd, size, at.rx, page(libc::XDP_PGOFF_RX_RING))?;
        let transmit = Producer::map(&fd, size, at.tx, page(libc::XDP_PGOFF_TX_RING))?;
        bind_patiently(&fd, interface, queue, registration)?;
        // Without it everything works, with more system calls.
        let budget = i32::try_from(TX_BUDGET.min(size)).unwrap_or(0);
        let has_budget = set_option(&fd, libc::SOL_XDP, MAX_TX_SKB_BUDGET, budget).is_ok();
        if set_option(&fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, SEND_BYTES).is_err() {
            let _ = set_option(&fd, libc::SOL_SOCKET, libc::SO_SNDBUF, SEND_BYTES);
        }
        Ok(Self { fill, completion, receive, transmit, fd, queue, has_budget })
    }

    /// Makes the kernel take frames from the fill ring.
    pub(super) fn wake_to_receive(&self) {
        // It returns nothing and may find nothing to do.
        let _ = recv(&self.fd, &mut [0u8; 0][..], RecvFlags::DONTWAIT);
    }

    /// Returns what the kernel has dropped and refused.
    pub(super) fn statistics(&self) -> (u64, u64) {
        let Ok(seen) = sockopt::xdp_statistics(&self.fd) else { return (0, 0) };
        // A frame for which the fill ring had none is among those dropped.
        let drops = [Some(seen.rx_dropped), seen.rx_ring_full];
        let refusals = seen.rx_invalid_descs + seen.tx_invalid_descs;
        (drops.into_iter().flatten().sum(), refusals)
    }
}

impl AsFd for QueueSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Makes the kernel send what is in a socket's transmit ring.
pub(super) fn wake_to_send(fd: &OwnedFd) -> io::Result<()> {
    Ok(send(fd, &[], SendFlags::DONTWAIT).map(drop)?)
}

/// Gives an answer of the kernel's its cause.
fn explain_registration(error: rustix::io::Errno) -> io::Error {
    let error = io::Error::from(error);
    if error.raw_os_error() != Some(libc::ENOBUFS) {
        return error;
    }
    io::Error::new(
        io::ErrorKind::OutOfMemory,
        "the frames are more memory than may be locked; needs CAP_IPC_LOCK, or a higher limit (memlock)",
    )
}

/// Binds a socket, and waits a little where the queue is taken.
fn bind_patiently(
    fd: &OwnedFd,
    interface: u32,
    queue: u32,
    registration: Registration<'_>,
) -> io::Result<()> {
    let attempt = || match registration {
        Registration::First(copying) => {
            let mode = match copying {
                Copying::Never => SocketAddrXdpFlags::XDP_ZEROCOPY,
                Copying::Always => SocketAddrXdpFlags::XDP_COPY,
            };
            let flags = mode | SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
            Ok(bind(fd, &SocketAddrXdp::new(flags, interface, queue))?)
        }
        Registration::Shared(shared_umem_fd) => {
            let addr = SocketAddrXdp::new(SocketAddrXdpFlags::XDP_SHARED_UMEM, interface, queue);
            Ok(bind(fd, &SocketAddrXdpWithSharedUmem { addr, shared_umem_fd })?)
        }
    };
    retry_while(|error| error.raw_os_error() == Some(libc::EBUSY), attempt)
}

/// Repeats an attempt, a few times and ever later, while it fails for what the kernel frees by itself.
pub(super) fn retry_while<T>(
    is_passing: impl Fn(&io::Error) -> bool,
    attempt: impl Fn() -> io::Result<T>,
) -> io::Result<T> {
    let mut waits = WAITS_MS.into_iter().map(Duration::from_millis);
    loop {
        match (attempt(), waits.next()) {
            (Err(error), Some(wait)) if is_passing(&error) => thread::sleep(wait),
            (result, _) => return result,
        }
    }
}

//! Memory that the kernel and we share: frames, and rings.
#![expect(unsafe_code, reason = "mmap; a mapping is owned by one value, and unmapped when that goes")]

use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use trieste_packet::pool::Memory;

/// A mapping that is unmapped when it goes.
///
/// Invariant: `base` is the start of a mapping of `bytes` bytes, readable and writable, that only this value unmaps.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    /// Maps fresh memory for frames: zeroed, at the start of a page.
    pub(super) fn anonymous(bytes: usize) -> io::Result<Self> {
        // SAFETY: the kernel chooses where, so that no other mapping is touched.
        let base = unsafe {
            mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        }?;
        Self::new(base.cast(), bytes)
    }

    /// Maps one of a socket's rings.
    pub(super) fn ring(socket: impl AsFd, bytes: usize, offset: u64) -> io::Result<Self> {
        // SAFETY: as above; what is mapped belongs to the kernel, and stays as long as it is mapped.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
                socket,
                offset,
            )
        }?;
        Self::new(base.cast(), bytes)
    }

    fn new(base: *mut u8, bytes: usize) -> io::Result<Self> {
        let base = NonNull::new(base).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(Self { base, bytes })
    }

    /// Returns where the mapping starts.
    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: by the invariant nobody else unmaps it, and whoever reaches into it holds this value. A failure leaves
        // the mapping behind, which nobody uses any more.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

// SAFETY: memory has no thread affinity; access goes through `Region` and `Ring`, which say who may.
unsafe impl Send for Mapping {}
// SAFETY: a shared `Mapping` gives out its address only.
unsafe impl Sync for Mapping {}

// SAFETY: the address is the same until the value is dropped. The kernel writes to frames that it was given by the fill
// ring and reads those in the transmit ring; their buffers are held, and not touched, by the socket's owner meanwhile.
unsafe impl Memory for Mapping {
    fn as_ptr(&self) -> NonNull<u8> {
        self.base
    }
    fn len(&self) -> usize {
        self.bytes
    }
}

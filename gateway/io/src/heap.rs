//! How the C library's allocator keeps memory that is free.
#![expect(unsafe_code, reason = "mallopt; it is passed numbers")]

/// Sets how many heaps threads may have between them, and from how many bytes on an allocation is given back to the kernel as
/// soon as it is freed. Gives whether both hold: not every C library has such settings. Call it before the first thread starts.
///
/// By default glibc has up to eight heaps per core, none of which returns what another thread's heap could use, and keeps
/// ever larger allocations once one has been freed (mallopt(3), `M_ARENA_MAX`, `M_MMAP_THRESHOLD`).
pub fn bound(heaps: u16, large_from: u32) -> bool {
    #[cfg(target_env = "gnu")]
    {
        let large_from = i32::try_from(large_from).unwrap_or(i32::MAX);
        // SAFETY: mallopt takes two integers and changes settings of the allocator under its own lock.
        let set = |parameter, value| unsafe { libc::mallopt(parameter, value) } == 1;
        set(libc::M_ARENA_MAX, i32::from(heaps)) && set(libc::M_MMAP_THRESHOLD, large_from)
    }
    #[cfg(not(target_env = "gnu"))]
    {
        let _ = (heaps, large_from);
        false
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_c_library_takes_the_settings() {
        assert!(super::bound(2, 128 << 10) || cfg!(not(target_env = "gnu")));
    }
}

//! How the C library's allocator keeps memory that is free, and when it gives that back.
#![expect(unsafe_code, reason = "mallopt, mallinfo2 and malloc_trim; they are passed numbers")]

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

/// Bytes of the heaps, without large allocations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Allocated.
    pub used: usize,
    /// Free, whether the kernel has it back or not.
    pub free: usize,
}

/// Returns what the heaps hold; `None` where the C library does not say.
#[must_use]
pub fn usage() -> Option<Usage> {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: mallinfo2 takes nothing, and reads the allocator's own state under its locks.
        let info = unsafe { libc::mallinfo2() };
        Some(Usage { used: info.uordblks, free: info.fordblks })
    }
    #[cfg(not(target_env = "gnu"))]
    None
}

/// Gives whole free pages of all heaps back to the kernel. Takes milliseconds, during which no other thread allocates or frees.
pub fn trim() {
    // SAFETY: malloc_trim takes an integer, and changes the allocator's own state under its locks.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Ours: the least that is worth to be given back.
const LEAST: usize = 2 << 20;
/// Or this part of what is used: what comes and goes with each status document is kept.
const LEAST_SHARE: usize = 4;

/// Decides when free memory is given back: once it has grown, and stays so from one look to the next. Pure.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shrinking {
    /// The least that was free since the last time.
    least_free: Option<usize>,
    has_grown: bool,
}

impl Shrinking {
    /// Takes a look; returns `true` if memory is to be given back now, and is not asked again before [`Self::trimmed`].
    pub fn is_due(&mut self, usage: Usage) -> bool {
        let least =
            *self.least_free.insert(self.least_free.map_or(usage.free, |least| least.min(usage.free)));
        let has_grown = usage.free - least >= LEAST.max(usage.used / LEAST_SHARE);
        std::mem::replace(&mut self.has_grown, has_grown) && has_grown
    }

    /// Notes what is left in the heaps after it was given back.
    pub fn trimmed(&mut self, usage: Usage) {
        *self = Self { least_free: Some(usage.free), has_grown: false };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_c_library_takes_the_settings() {
        assert!(bound(2, 128 << 10) || cfg!(not(target_env = "gnu")));
    }

    #[test]
    fn free_memory_that_stays_is_given_back_once() {
        let mut shrinking = Shrinking::default();
        let mut look =
            |used: usize, free: usize| shrinking.is_due(Usage { used: used << 20, free: free << 20 });
        assert_eq!(
            [look(20, 2), look(110, 9), look(108, 20)],
            [false; 3],
            "a status document comes and goes"
        );
        assert_eq!([look(110, 9), look(40, 80), look(40, 81)], [false, false, true]);
        shrinking.trimmed(Usage { used: 40 << 20, free: 78 << 20 });
        let later = Usage { used: 38 << 20, free: 80 << 20 };
        assert_eq!([shrinking.is_due(later), shrinking.is_due(later)], [false; 2], "nothing more is free");
    }

    #[test]
    fn pages_between_those_in_use_are_given_back() {
        let mut blocks: Vec<Vec<u8>> = (0..20_000).map(|_| vec![1; 4000]).collect();
        let mut index = 0;
        blocks.retain(|_| {
            index += 1;
            index % 50 == 0
        });
        let Some(before) = usage() else { return };
        let resident = || {
            let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
            statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
        };
        assert!(before.free > 40 << 20, "{before:?}");
        let held = resident();
        trim();
        assert!(held - resident().min(held) > 30 << 20, "{held} to {}", resident());
        drop(blocks);
    }
}

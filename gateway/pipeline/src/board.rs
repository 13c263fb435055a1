//! What is known of every path, shared by all workers and the control plane.
//!
//! The worker that owns a path's lane writes; everybody reads, without a lock. What steering looks at (state, MTU) has
//! a *generation* that grows with every change, so that a flow's decision can be remembered until something happens.
//!
//! ```text
//!   owner's health machine ─▶ Board ─┬▶ steering, MTU of all workers
//!                                    ├▶ notices to route agents
//!                                    └▶ status
//! ```

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use trieste_packet::CableId;

/// Paths of one piece of the board: pieces are made when the first of their paths is watched.
const PIECE: usize = 256;
/// Pieces: together they have room for every [`CableId`].
const PIECES: usize = 256;

/// What is known of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PathState {
    /// Nobody probes it: its far end does not know how. It is trusted as far as the tunnel is.
    #[default]
    Unwatched,
    /// Both ends hear each other.
    Up,
    /// One end does not hear the other, or neither does.
    Down,
    /// It works, but its far end is about to stop, or has just started: flows leave it.
    Draining,
    /// It works again after having been down, and has to go on doing so for a while before it is used.
    Held,
}

impl PathState {
    /// Every state, in the order of their numbers.
    pub const ALL: [Self; 5] = [Self::Unwatched, Self::Up, Self::Down, Self::Draining, Self::Held];

    /// Whether steering chooses the path.
    #[must_use]
    pub fn is_usable(self) -> bool {
        matches!(self, Self::Unwatched | Self::Up)
    }

    /// Whether packets get through, wanted there or not.
    #[must_use]
    pub fn is_passable(self) -> bool {
        self != Self::Down
    }

    /// The state as a word for people and a metric label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unwatched => "unwatched",
            Self::Up => "up",
            Self::Down => "down",
            Self::Draining => "draining",
            Self::Held => "held",
        }
    }
}

/// One path.
#[derive(Default)]
struct Entry {
    /// Bits 0 to 7 its state, 8 to 23 the MTU (0: unknown), 32 to 63 the round trip in microseconds (0: unknown).
    now: AtomicU64,
    /// When it went down last, in milliseconds since the first path did, from 1; 0 if it never was anything else.
    fell_ms: AtomicU64,
}

const STATE: u64 = 0xff;
const MTU_SHIFT: u32 = 8;
const MTU: u64 = 0xffff << MTU_SHIFT;
const RTT_SHIFT: u32 = 32;
const RTT: u64 = 0xffff_ffff << RTT_SHIFT;

/// The state of all paths of one gateway.
pub struct Board {
    pieces: [OnceLock<Box<[Entry; PIECE]>>; PIECES],
    generation: AtomicU64,
    uses: AtomicU64,
    is_shut: AtomicBool,
    /// When the first path went down.
    first_fall: OnceLock<Instant>,
}

impl std::fmt::Debug for Board {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Board").field("generation", &self.generation()).finish_non_exhaustive()
    }
}

impl Board {
    /// A board on which nobody has written: all paths are [`PathState::Unwatched`].
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            pieces: [const { OnceLock::new() }; PIECES],
            generation: AtomicU64::new(0),
            uses: AtomicU64::new(0),
            is_shut: AtomicBool::new(false),
            first_fall: OnceLock::new(),
        })
    }

    /// Says that nothing goes to this node: what keeps its answers from leaving in clear is not there yet.
    pub fn shut(&self, is_shut: bool) {
        self.is_shut.store(is_shut, Ordering::Relaxed);
    }

    /// Whether nothing goes to this node.
    #[must_use]
    pub fn is_shut(&self) -> bool {
        self.is_shut.load(Ordering::Relaxed)
    }

    /// Grows whenever the state or the MTU of any path changes.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Grows all the time while any path carries packets; probing of siblings follows it.
    #[must_use]
    pub fn uses(&self) -> u64 {
        self.uses.load(Ordering::Relaxed)
    }

    /// Says that a path carries packets. For the worker that owns its lane.
    pub fn note_use(&self) {
        self.uses.fetch_add(1, Ordering::Relaxed);
    }

    /// The state of a path.
    #[must_use]
    pub fn state(&self, cable: CableId) -> PathState {
        let number = self.read(cable) & STATE;
        PathState::ALL.into_iter().find(|state| *state as u64 == number).unwrap_or_default()
    }

    /// Largest inner IP packet that gets through, in bytes, where that has been found out.
    #[must_use]
    pub fn mtu(&self, cable: CableId) -> Option<u16> {
        u16::try_from((self.read(cable) & MTU) >> MTU_SHIFT).ok().filter(|&mtu| mtu > 0)
    }

    /// The path's round trip, smoothed, where it has been measured.
    #[must_use]
    pub fn rtt(&self, cable: CableId) -> Option<Duration> {
        let micros = self.read(cable) >> RTT_SHIFT;
        (micros > 0).then(|| Duration::from_micros(micros))
    }

    /// When a path went down last, as a time that can be compared with other paths'; `None` if it was never anything else.
    pub(crate) fn fell(&self, cable: CableId) -> Option<Duration> {
        let millis = self.entry(cable)?.fell_ms.load(Ordering::Acquire);
        (millis > 0).then(|| Duration::from_millis(millis))
    }

    /// Says that a path is down from now on if it was not before. For the worker that owns its lane.
    pub(crate) fn set_down(&self, cable: CableId, now: Instant) {
        // What nobody has written on has not been up.
        let was_up =
            self.read(cable) & STATE != PathState::Unwatched as u64 && self.state(cable) != PathState::Down;
        if was_up && let Some(entry) = self.entry(cable) {
            let since = now.saturating_duration_since(*self.first_fall.get_or_init(|| now));
            let millis = u64::try_from(since.as_millis()).unwrap_or(u64::MAX - 1);
            // Before the state, whose change has everybody look.
            entry.fell_ms.store(millis + 1, Ordering::Release);
        }
        self.set_state(cable, PathState::Down);
    }

    /// Says what a path's state is. For the worker that owns its lane.
    pub fn set_state(&self, cable: CableId, state: PathState) {
        self.write(cable, STATE, state as u64);
    }

    /// Says how large packets may be; `None` when that is not known any more. For the worker that owns its lane.
    pub fn set_mtu(&self, cable: CableId, mtu_bytes: Option<u16>) {
        self.write(cable, MTU, u64::from(mtu_bytes.unwrap_or(0)) << MTU_SHIFT);
    }

    /// Says how long the round trip is; no reason for anybody to decide anew. For the worker that owns its lane.
    pub fn set_rtt(&self, cable: CableId, rtt: Duration) {
        let micros = u32::try_from(rtt.as_micros()).unwrap_or(u32::MAX).max(1);
        self.write(cable, RTT, u64::from(micros) << RTT_SHIFT);
    }

    /// Forgets a path, before its number is given to another one. For the worker that owns its lane.
    pub fn reset(&self, cable: CableId) {
        if let Some(entry) = self.entry(cable) {
            entry.fell_ms.store(0, Ordering::Release);
        }
        if self.read(cable) != 0 {
            self.write(cable, u64::MAX, 0);
        }
    }

    fn read(&self, cable: CableId) -> u64 {
        self.entry(cable).map_or(0, |entry| entry.now.load(Ordering::Acquire))
    }

    fn entry(&self, cable: CableId) -> Option<&Entry> {
        let index = usize::from(cable.0);
        self.pieces[index / PIECE].get().map(|piece| &piece[index % PIECE])
    }

    /// Replaces the bits of `mask`. A path has one writer, so nothing comes between reading and writing.
    fn write(&self, cable: CableId, mask: u64, bits: u64) {
        let index = usize::from(cable.0);
        let piece =
            self.pieces[index / PIECE].get_or_init(|| Box::new(std::array::from_fn(|_| Entry::default())));
        let entry = &piece[index % PIECE].now;
        let before = entry.load(Ordering::Relaxed);
        let after = (before & !mask) | bits;
        if after == before {
            return;
        }
        entry.store(after, Ordering::Release);
        // After the entry: who sees the new number sees the change as well.
        if (before ^ after) & (STATE | MTU) != 0 {
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_nobody_has_written_of_is_unwatched() {
        let board = Board::new();
        let cable = CableId(u16::MAX);
        assert_eq!(
            (board.state(cable), board.mtu(cable), board.rtt(cable)),
            (PathState::Unwatched, None, None)
        );
        board.reset(cable);
        assert_eq!(board.generation(), 0);
        assert!(PathState::Unwatched.is_usable() && PathState::Up.is_usable());
        assert!(!PathState::Held.is_usable() && PathState::Held.is_passable());
        assert!(!PathState::Down.is_passable());
    }

    #[test]
    fn values_of_one_path_touch_neither_each_other_nor_another_path() {
        let board = Board::new();
        let (a, b) = (CableId(0), CableId(256));
        for state in PathState::ALL {
            board.set_state(a, state);
            assert_eq!(board.state(a), state);
        }
        board.set_mtu(a, Some(u16::MAX));
        board.set_rtt(a, Duration::from_secs(3));
        assert_eq!(board.state(a), PathState::Held);
        assert_eq!((board.mtu(a), board.rtt(a)), (Some(u16::MAX), Some(Duration::from_secs(3))));
        assert_eq!((board.state(b), board.mtu(b), board.rtt(b)), (PathState::Unwatched, None, None));
        board.reset(a);
        assert_eq!((board.state(a), board.mtu(a), board.rtt(a)), (PathState::Unwatched, None, None));
    }

    #[test]
    fn the_generation_grows_with_what_steering_looks_at_and_with_nothing_else() {
        let board = Board::new();
        let cable = CableId(3);
        let mut last = board.generation();
        let mut grows = |change: &dyn Fn()| {
            change();
            let before = std::mem::replace(&mut last, board.generation());
            last > before
        };
        assert!(grows(&|| board.set_state(cable, PathState::Up)));
        assert!(!grows(&|| board.set_state(cable, PathState::Up)));
        assert!(grows(&|| board.set_mtu(cable, Some(1400))));
        assert!(!grows(&|| board.set_rtt(cable, Duration::ZERO)));
        assert!(grows(&|| board.set_mtu(cable, None)));
        assert!(grows(&|| board.reset(cable)));
        assert!(!grows(&|| board.reset(cable)));
    }
}

//! Fetching ahead.

use trieste_packet::Packet;

/// Bytes of the next packet that are fetched ahead: one packet of the usual MTU.
const PREFETCH_BYTES: usize = 1536;

/// Has the next packet's bytes fetched while this one is sealed or opened, which takes longer. What follows in a
/// long train is fetched by the CPU's own foresight.
pub(crate) fn prefetch_next(rest: &[Packet]) {
    if let Some(next) = rest.first() {
        next.buf.prefetch(PREFETCH_BYTES);
    }
}

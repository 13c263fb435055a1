//! Captures: packets at points of the line, as pcapng. No capture, no cost: a worker compares one number per loop.
//!
//! ```text
//!  worker ── WorkerTap ─┐                                  ┌─▶ CaptureStream ─▶ HTTP body ─▶ tcpdump -r -
//!  worker ── WorkerTap ─┼─▶ bounded queue (one a capture) ─┘      (pcapng)
//!  worker ── Witness ───┘        full: counted, never waited for
//! ```
//!
//! * [`hub`] — which captures run; hands taps to workers and streams to readers.
//! * [`filter`] — which packets a capture wants; asked before anything is copied.
//! * [`tap`] — what a worker does with a packet that is wanted: cut trains, finish checksums, copy.
//! * [`outer`] — outer headers, rebuilt around datagrams.
//! * [`stream`] — the reader's side. [`pcapng`] — the file format.
//! * [`secrets`] — keys, for captures that are to be read.
//!
//! A worker drives it like this, once per turn of its loop:
//!
//! ```ignore
//! let generation = hub.generation();
//! if generation != seen {
//!     seen = generation;
//!     let (tap, witness) = hub.attach(worker);
//!     pipeline.set_tap(tap);
//!     pipeline.drops.set_witness(witness);
//! }
//! ```

pub mod filter;
pub mod hub;
pub mod outer;
pub mod pcapng;
pub mod secrets;
pub mod stream;
pub mod tap;

mod queue;

pub use hub::{CaptureCounters, CaptureError, CaptureHub};
pub use stream::CaptureStream;

#[cfg(test)]
mod tests;

//! The primitives of inboxes. The model check (`model.rs`) replaces them by loom's.

pub(super) use crossbeam::queue::ArrayQueue;
pub(super) use trieste_io::poll::Waker;

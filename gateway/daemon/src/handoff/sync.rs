//! What inboxes are made of. The model check (`model.rs`) puts loom's in the place of these.

pub(super) use crossbeam::queue::ArrayQueue;
pub(super) use trieste_io::poll::Waker;

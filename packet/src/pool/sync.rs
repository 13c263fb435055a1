//! What slots are counted with. The model check (`model.rs`) puts loom's in the place of these.

pub(super) use std::sync::atomic::{AtomicU32, Ordering, fence};

pub(super) use crossbeam::queue::ArrayQueue;

//! Notifications of the kernel about changes.

/// A notification of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// Something changed.
    Changed,
    /// Somebody removed the packet filter.
    FilterGone,
    /// The socket is closed, as it is after an overrun, and nothing will come any more: subscribe again, and take it for a
    /// change.
    Closed,
}

//! How a gateway ends.

/// For how long a gateway stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shutdown {
    /// It is started again some time, and finds its shares of the outside ports.
    Restart,
    /// Its node is no gateway's any more. Its shares are given to others.
    Removal,
}

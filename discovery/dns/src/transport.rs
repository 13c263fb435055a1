//! How a query came.

/// How a query came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// A datagram: the answer is as long as the client reads and 1,232 bytes at most.
    Udp,
    /// A message of a stream: the answer has at most 65,535 bytes.
    Tcp,
}

//! The two stores.

/// One of the two stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// Our cluster's.
    Local,
    /// The broker's.
    Broker,
}

impl Side {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Local, Self::Broker];

    /// Returns the number of the side's store. Ours goes to the broker first: whether it has taken it is what an emptied
    /// broker is judged by.
    pub(super) const fn store(self) -> usize {
        match self {
            Self::Broker => 0,
            Self::Local => 1,
        }
    }
}

//! Families of addresses, and what there is of each.

use std::net::IpAddr;
use std::ops::{Index, IndexMut};

/// A family of addresses. IPv4 comes first: upstream's members read the first address of an import alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    /// Both, in order.
    pub(crate) const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// Returns the family of an address.
    pub(crate) const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// Returns its name as Services say it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }
}

/// One of each family.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PerFamily<T> {
    v4: T,
    v6: T,
}

impl<T> PerFamily<T> {
    /// Creates both by a function.
    pub(crate) fn new(mut of: impl FnMut(Family) -> T) -> Self {
        Self { v4: of(Family::V4), v6: of(Family::V6) }
    }

    /// Returns both with their families, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Family, &T)> {
        Family::ALL.into_iter().map(|family| (family, &self[family]))
    }
}

impl<T> Index<Family> for PerFamily<T> {
    type Output = T;

    fn index(&self, family: Family) -> &T {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }
}

impl<T> IndexMut<Family> for PerFamily<T> {
    fn index_mut(&mut self, family: Family) -> &mut T {
        match family {
            Family::V4 => &mut self.v4,
            Family::V6 => &mut self.v6,
        }
    }
}

//! The kernel behind a trait: everything that reads or writes the node's network.
//!
//! [`netlink::Kernel`] talks rtnetlink, `/proc/sys` and `nft`; tests put a model in its place. Nothing here decides anything.

mod ipset;
mod iptables;
pub mod netlink;
mod nft;
pub mod notice;
mod submariner;
mod sysctl;
pub mod watch;
mod wire;
mod xfrm;

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::change::Change;
use crate::condition::Condition;
use crate::hostnet::Sysctl;
use crate::observed::Observed;
use crate::takeover::Takeover;

/// A failure of the kernel's interfaces.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// The netlink socket could not be opened or watched.
    #[error("cannot open a netlink socket: {0}")]
    Socket(#[source] std::io::Error),
    /// The kernel refused a request.
    #[error("{hint}{source}", hint = hint(.source))]
    Refused {
        /// The errno.
        #[source]
        source: std::io::Error,
    },
    /// The netlink connection broke or answered nonsense.
    #[error("netlink: {0}")]
    Netlink(String),
    /// The device a route leads to is gone; the next pass sees that.
    #[error("device {0} has disappeared")]
    NoDevice(String),
    /// Another rule comes before the one that is to be removed, and would be removed instead.
    #[error("another rule of the same priority and table comes before {0}; remove it by hand")]
    RuleInFront(String),
    /// A file below `/proc/sys` could not be written.
    #[error("cannot write /proc/sys/{path}: {source}")]
    Sysctl {
        /// The path.
        path: String,
        /// The errno.
        #[source]
        source: std::io::Error,
    },
    /// A file below `/proc/sys` was written, but has another value.
    #[error("/proc/sys/{path} was written, but something else writes it too")]
    SysctlUndone {
        /// The path.
        path: String,
    },
    /// The `nft` command does not exist.
    #[error("the nft command is missing; install the package nftables")]
    NoNft,
    /// The `nft` command could not be run.
    #[error("cannot run nft: {0}")]
    NftStart(#[source] std::io::Error),
    /// The `nft` command failed.
    #[error("nft: {0}")]
    Nft(String),
    /// An `iptables` command does not exist.
    #[error("the {0} command is missing; install the package iptables")]
    NoIptables(&'static str),
    /// An `iptables` command failed.
    #[error("{command}: {error}")]
    Iptables {
        /// The command.
        command: &'static str,
        /// The first line of its complaint.
        error: String,
    },
}

impl PortError {
    /// Returns the condition of a node of which `what` could not be read.
    #[must_use]
    pub fn unread(&self, what: &'static str) -> Condition {
        if let Self::NoNft = self {
            Condition::NoNft
        } else if let Self::NoIptables(command) = self {
            Condition::NoIptables { command }
        } else {
            Condition::CannotRead { what, error: self.to_string() }
        }
    }
}

/// Explains an errno of rtnetlink, where that is not obvious.
fn hint(error: &std::io::Error) -> &'static str {
    if error.kind() == std::io::ErrorKind::PermissionDenied {
        "needs CAP_NET_ADMIN: "
    } else if error.kind() == std::io::ErrorKind::AlreadyExists {
        "something of the same key appeared meanwhile: "
    } else {
        ""
    }
}

/// What a pass reads beyond the usual.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    /// Device settings.
    pub sysctls: BTreeSet<Sysctl>,
    /// Addresses whose routes are looked up.
    pub lookup_addresses: BTreeSet<IpAddr>,
    /// What Submariner's programs have left, as far as it is to be removed.
    pub takeover: Takeover,
}

/// A node's network, readable and writable.
pub trait Host {
    /// Reads everything a plan needs, and what is asked for.
    ///
    /// # Errors
    ///
    /// Netlink could not be read at all. A missing `nft` or setting is no error, but part of the result.
    fn observe(&self, query: &Query) -> impl Future<Output = Result<Observed, PortError>>;

    /// Applies one change.
    ///
    /// # Errors
    ///
    /// The kernel refused, or the tool for it is missing. Nothing is half done then.
    fn apply(&self, change: &Change) -> impl Future<Output = Result<(), PortError>>;

    /// Applies changes in their order, each whatever became of those before, and returns what became of each. The host may
    /// begin one before the last is done, where it keeps the order.
    fn apply_all(&self, changes: &[&Change]) -> impl Future<Output = Vec<Result<(), PortError>>> {
        async move {
            let mut outcomes = Vec::with_capacity(changes.len());
            for change in changes {
                outcomes.push(self.apply(change).await);
            }
            outcomes
        }
    }
}

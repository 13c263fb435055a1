//! What can go wrong when devices and sockets are opened.

use std::io;
use std::net::SocketAddr;

#[cfg(feature = "af-xdp")]
use crate::rings::{StepCause, StepDown};

/// A device or socket could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration names an interface as no interface can be named.
    #[error(
        "{0:?} is no interface name: 1 to 15 bytes without '/', '%', ':' or white space, and not '.' or '..'"
    )]
    InterfaceName(String),
    /// The configuration asks for a number of queues or sockets that cannot be.
    #[error("{what} must be between 1 and {most}, not {count}")]
    Count {
        /// What is counted.
        what: &'static str,
        /// What was asked for.
        count: usize,
        /// The limit.
        most: usize,
    },
    /// The kernel has no TUN driver, or we cannot see it.
    #[error("/dev/net/tun: {0}; load the module (`modprobe tun`), or give the container that device")]
    NoTunDriver(#[source] io::Error),
    /// An interface of that name exists and is none that we can use.
    #[error(
        "interface {name} exists and is no multi-queue TUN device; remove it (`ip link del {name}`) or choose another name"
    )]
    NotOurKind {
        /// The interface.
        name: String,
    },
    /// Somebody else holds the device.
    #[error("interface {name} is in use by another process")]
    DeviceBusy {
        /// The interface.
        name: String,
    },
    /// Somebody else is bound to the port.
    #[error("UDP port {} on {} is in use by another process; `ss -ulpn` shows which", .0.port(), .0.ip())]
    PortInUse(SocketAddr),
    /// We may not do that.
    #[error("{what}: not permitted; run as root or with CAP_NET_ADMIN")]
    NotPermitted {
        /// What we tried.
        what: String,
    },
    /// An inherited descriptor is not what it should be.
    #[error("inherited descriptor: {0}")]
    Inherited(&'static str),
    /// Another XDP program is on the interface, and stays there.
    #[cfg(feature = "af-xdp")]
    #[error(
        "cannot attach the XDP program to {name}: another program is attached; `ip link show {name}` has its number"
    )]
    ForeignProgram {
        /// The interface.
        name: String,
    },
    /// The interface cannot be used with AF_XDP.
    #[cfg(feature = "af-xdp")]
    #[error("cannot use AF_XDP on {name}: {reason}")]
    NoXdp {
        /// The interface.
        name: String,
        /// What is missing.
        reason: String,
        /// The modes that were tried, best first, and why none of them could be had.
        steps: Vec<StepDown>,
    },
    /// The kernel refused for another reason.
    #[error("{what}: {source}")]
    Kernel {
        /// What we tried.
        what: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn kernel(what: impl Into<String>, source: io::Error) -> Self {
        let what = what.into();
        if source.kind() == io::ErrorKind::PermissionDenied {
            return Self::NotPermitted { what };
        }
        Self::Kernel { what, source }
    }

    /// Returns in one word why AF_XDP could not be had.
    #[cfg(feature = "af-xdp")]
    #[must_use]
    pub fn step_cause(&self) -> StepCause {
        let code = match self {
            Self::NotPermitted { .. } => return StepCause::NotPermitted,
            Self::ForeignProgram { .. } => return StepCause::ForeignProgram,
            Self::NoXdp { steps, .. } => {
                return steps.last().map_or(StepCause::NoInterface, |step| step.cause);
            }
            Self::Kernel { source, .. } => (source.raw_os_error(), source.kind()),
            Self::InterfaceName(_)
            | Self::Count { .. }
            | Self::NoTunDriver(_)
            | Self::NotOurKind { .. }
            | Self::DeviceBusy { .. }
            | Self::PortInUse(_)
            | Self::Inherited(_) => return StepCause::Failed,
        };
        match code {
            (Some(libc::EOPNOTSUPP | libc::EPROTONOSUPPORT | libc::EAFNOSUPPORT | libc::EINVAL), _)
            | (_, io::ErrorKind::Unsupported) => StepCause::NotSupported,
            (Some(libc::ENOBUFS | libc::ENOMEM), _) | (_, io::ErrorKind::OutOfMemory) => StepCause::Memory,
            (Some(libc::EBUSY), _) => StepCause::Busy,
            (Some(libc::ENODEV), _) => StepCause::NoInterface,
            _ => StepCause::Failed,
        }
    }
}

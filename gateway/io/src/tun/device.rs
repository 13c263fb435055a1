//! Creating, taking over and removing the device.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;

use libc::{c_int, c_uint, c_ulong};

use super::TunConfig;
use super::vnet::HEADER_BYTES;
use crate::sys::{
    InterfaceCall, InterfaceRequest, TunNumber, interface_call, tun_set_header_bytes, tun_set_number,
};
use crate::{Error, Fallback, Offloads, link};

const PATH: &str = "/dev/net/tun";
const BASE_FLAGS: c_int = libc::IFF_TUN | libc::IFF_NO_PI;
const USO: Offloads = Offloads::USO4.with(Offloads::USO6);

/// What a queue's reads and writes look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mode {
    /// Whether every packet has a virtio header in front.
    pub(super) has_header: bool,
    /// What the kernel does in our place.
    pub(super) offloads: Offloads,
}

/// Opens the first queue, with as much offload as is wanted and there.
pub(super) fn open(config: &TunConfig, fallbacks: &mut Vec<Fallback>) -> Result<(File, Mode), Error> {
    let wanted = wanted(config.offloads, fallbacks);
    if wanted.contains(Offloads::CHECKSUM) {
        match attach(&config.name, true) {
            Ok(file) => {
                let mode = Mode { has_header: true, offloads: negotiate(&file, wanted, fallbacks)? };
                return Ok((file, mode));
            }
            Err(Error::Kernel { source, .. }) if is_unsupported(&source) => {
                let reason = format!("the kernel refused IFF_VNET_HDR ({source})");
                fallbacks.extend(Fallback::each(wanted, &reason));
            }
            Err(error) => return Err(error),
        }
    }
    let file = attach(&config.name, false)?;
    Ok((file, Mode { has_header: false, offloads: Offloads::NONE }))
}

/// What is wanted, made consistent: no segmentation without checksums, UDP for both families or none.
pub(super) fn wanted(configured: Offloads, fallbacks: &mut Vec<Fallback>) -> Offloads {
    let mut wanted = configured.common(Offloads::TUN);
    fallbacks.extend(Fallback::each(Offloads::TUN.without(wanted), "switched off by configuration"));
    if !wanted.contains(USO) {
        fallbacks.extend(Fallback::each(wanted.common(USO), "the kernel switches both families together"));
        wanted = wanted.without(USO);
    }
    if !wanted.contains(Offloads::CHECKSUM) {
        fallbacks.extend(Fallback::each(wanted, "needs checksum offload"));
        return Offloads::NONE;
    }
    wanted
}

/// Tells the kernel what it may hand us, with less and less of it until it agrees.
pub(super) fn negotiate(
    file: &File,
    wanted: Offloads,
    fallbacks: &mut Vec<Fallback>,
) -> Result<Offloads, Error> {
    tun_set_header_bytes(file, c_int::try_from(HEADER_BYTES).expect("a small constant"))
        .map_err(|error| Error::kernel("set the size of the TUN header", error))?;
    let mut previous = None;
    for step in [wanted, wanted.without(USO), wanted.common(Offloads::CHECKSUM)] {
        if previous == Some(step) {
            continue;
        }
        previous = Some(step);
        match tun_set_number(file, TunNumber::Offload, flags(step)) {
            Ok(()) => {
                let reason = "the kernel refused it (UDP segmentation needs Linux 6.2)";
                fallbacks.extend(Fallback::each(wanted.without(step), reason));
                return Ok(step);
            }
            Err(error) if is_unsupported(&error) => {}
            Err(error) => return Err(Error::kernel("set TUN offloads", error)),
        }
    }
    fallbacks.extend(Fallback::each(wanted, "the kernel refused TUNSETOFFLOAD"));
    Ok(Offloads::NONE)
}

fn flags(offloads: Offloads) -> c_ulong {
    let has = |offload, flag: c_uint| if offloads.contains(offload) { flag } else { 0 };
    let tso = has(Offloads::TSO4, libc::TUN_F_TSO4) | has(Offloads::TSO6, libc::TUN_F_TSO6);
    // Trains with CWR set are cut as the kernel would: the flag stays with the first segment.
    let ecn = if tso == 0 { 0 } else { libc::TUN_F_TSO_ECN };
    let uso = has(Offloads::USO4, libc::TUN_F_USO4) | has(Offloads::USO6, libc::TUN_F_USO6);
    c_ulong::from(has(Offloads::CHECKSUM, libc::TUN_F_CSUM) | tso | ecn | uso)
}

/// Opens one queue of the device `name`, which is created if it does not exist.
pub(super) fn attach(name: &str, has_header: bool) -> Result<File, Error> {
    let mut request = InterfaceRequest::new(name)?.with_flags(interface_flags(has_header, true));
    let file = open_driver()?;
    match interface_call(&file, InterfaceCall::TunSetIff, &mut request) {
        Ok(()) => Ok(file),
        Err(error) => Err(explain(name, error)),
    }
}

fn explain(name: &str, error: io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::EBUSY) => Error::DeviceBusy { name: name.to_owned() },
        Some(libc::EINVAL) if link::exists(name).unwrap_or(false) => {
            Error::NotOurKind { name: name.to_owned() }
        }
        _ => Error::kernel(format!("create or open TUN device {name}"), error),
    }
}

fn open_driver() -> Result<File, Error> {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(PATH).map_err(|error| {
        if error.kind() == io::ErrorKind::PermissionDenied {
            return Error::NotPermitted { what: format!("open {PATH}") };
        }
        Error::NoTunDriver(error)
    })
}

fn interface_flags(has_header: bool, is_multi_queue: bool) -> u16 {
    let mut flags = BASE_FLAGS;
    if has_header {
        flags |= libc::IFF_VNET_HDR;
    }
    if is_multi_queue {
        flags |= libc::IFF_MULTI_QUEUE;
    }
    u16::try_from(flags).expect("the flags of TUNSETIFF have 16 bits")
}

/// Says whether the device stays when its last queue is closed.
pub(super) fn set_persistent(file: &File, name: &str, is_persistent: bool) -> Result<(), Error> {
    tun_set_number(file, TunNumber::Persist, is_persistent.into())
        .map_err(|error| Error::kernel(format!("TUN device {name}: change persistence"), error))
}

/// What an inherited queue is: its interface's name, and whether packets have a header in front.
pub(super) fn identify(fd: &OwnedFd) -> Result<(String, bool), Error> {
    let mut request = InterfaceRequest::empty();
    interface_call(fd.as_fd(), InterfaceCall::TunGetIff, &mut request)
        .map_err(|_| Error::Inherited("is no queue of a TUN device"))?;
    let flags = c_int::from(request.flags());
    if flags & libc::IFF_TUN == 0 || flags & libc::IFF_NO_PI == 0 {
        return Err(Error::Inherited("is a TAP device, or a TUN device that wants packet information"));
    }
    Ok((request.name(), flags & libc::IFF_VNET_HDR != 0))
}

/// Removes the TUN device `name`, with its addresses and routes, unless another process still has it open: then it
/// goes with that process. Returns whether there was one.
///
/// # Errors
/// When `name` is no TUN device, or we may not.
pub fn remove(name: &str) -> Result<bool, Error> {
    if !link::exists(name)? {
        return Ok(false);
    }
    for is_multi_queue in [true, false] {
        let mut request = InterfaceRequest::new(name)?.with_flags(interface_flags(true, is_multi_queue));
        let file = open_driver()?;
        match interface_call(&file, InterfaceCall::TunSetIff, &mut request) {
            Ok(()) => {
                set_persistent(&file, name, false)?;
                return Ok(true);
            }
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            Err(error) => return Err(explain(name, error)),
        }
    }
    Err(Error::NotOurKind { name: name.to_owned() })
}

fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP | libc::ENOTTY))
}

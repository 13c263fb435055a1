//! The few settings of an interface that belong to the device and not to routing: MTU, up, queue length, sysctls.
//!
//! All of them apply to the network namespace of the calling thread.

use std::path::Path;
use std::{fs, io};

use crate::Error;
use crate::sys::{InterfaceCall, InterfaceRequest, interface_call};

/// The MTU of interface `name`, in bytes.
///
/// # Errors
/// When there is no such interface.
pub fn mtu(name: &str) -> Result<usize, Error> {
    let mut request = InterfaceRequest::new(name)?;
    call(name, "read the MTU", InterfaceCall::GetMtu, &mut request)?;
    Ok(usize::try_from(request.int()).unwrap_or(0))
}

/// Sets the MTU of interface `name`, in bytes.
///
/// # Errors
/// When there is no such interface, the MTU is out of its range, or we may not.
pub fn set_mtu(name: &str, mtu_bytes: usize) -> Result<(), Error> {
    let value = i32::try_from(mtu_bytes).unwrap_or(i32::MAX);
    let mut request = InterfaceRequest::new(name)?.with_int(value);
    call(name, &format!("set the MTU to {mtu_bytes}"), InterfaceCall::SetMtu, &mut request)
}

/// Sets the length of interface `name`'s transmit queue, in packets or trains.
///
/// # Errors
/// When there is no such interface, or we may not.
pub fn set_tx_queue_length(name: &str, packets: u32) -> Result<(), Error> {
    let value = i32::try_from(packets).unwrap_or(i32::MAX);
    let mut request = InterfaceRequest::new(name)?.with_int(value);
    call(name, "set the queue length", InterfaceCall::SetTxQueueLength, &mut request)
}

/// Brings interface `name` up or down.
///
/// # Errors
/// When there is no such interface, or we may not.
pub fn set_up(name: &str, is_up: bool) -> Result<(), Error> {
    let up = u16::try_from(libc::IFF_UP).expect("a flag of 16 bits");
    let mut request = InterfaceRequest::new(name)?;
    call(name, "read the flags", InterfaceCall::GetFlags, &mut request)?;
    let flags = if is_up { request.flags() | up } else { request.flags() & !up };
    let mut request = request.with_flags(flags);
    call(name, "change the state", InterfaceCall::SetFlags, &mut request)
}

/// Whether there is an interface `name`.
///
/// # Errors
/// When `name` cannot be one's, or the kernel does not say.
pub fn exists(name: &str) -> Result<bool, Error> {
    let mut request = InterfaceRequest::new(name)?;
    match interface_call(control_socket()?, InterfaceCall::GetFlags, &mut request) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(false),
        Err(error) => Err(Error::kernel(format!("interface {name}: look it up"), error)),
    }
}

/// Which half of the network sysctls is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// `net/ipv4/conf`.
    Ipv4,
    /// `net/ipv6/conf`.
    Ipv6,
}

/// Sets `net/ipv[46]/conf/<name>/<key>`, for instance `rp_filter`, below `root`, which is `/proc/sys` unless that is
/// read-only.
///
/// # Errors
/// When there is no such interface or key, `root` is read-only, or we may not. A kernel without IPv6 has no IPv6
/// keys: that is [`Error::Kernel`] with `NotFound`.
pub fn set_sysctl(root: &Path, name: &str, family: Family, key: &str, value: &str) -> Result<(), Error> {
    InterfaceRequest::new(name)?;
    let half = match family {
        Family::Ipv4 => "ipv4",
        Family::Ipv6 => "ipv6",
    };
    let path = root.join(format!("net/{half}/conf/{name}/{key}"));
    fs::write(&path, value)
        .map_err(|error| Error::kernel(format!("write {value:?} to {}", path.display()), error))
}

fn call(name: &str, what: &str, call: InterfaceCall, request: &mut InterfaceRequest) -> Result<(), Error> {
    interface_call(control_socket()?, call, request)
        .map_err(|error| Error::kernel(format!("interface {name}: {what}"), error))
}

/// Any socket does for interface requests; it selects the namespace.
fn control_socket() -> Result<rustix::fd::OwnedFd, Error> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .map_err(|error| Error::kernel("open a socket for interface requests", io::Error::from(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_found_and_others_are_not() {
        assert!(exists("lo").unwrap());
        assert!(mtu("lo").unwrap() >= 1280);
        assert!(!exists("trieste-none").unwrap());
        assert!(mtu("trieste-none").unwrap_err().to_string().contains("trieste-none"));
    }
}

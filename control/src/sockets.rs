//! Addresses where there is no IPv6.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use rustix::io::Errno;

/// Binds an address; all addresses of IPv4 in place of all of both families where the kernel has no IPv6.
///
/// # Errors
/// What `bind` returns.
pub fn or_ipv4<T>(address: SocketAddr, bind: impl Fn(SocketAddr) -> io::Result<T>) -> io::Result<T> {
    match bind(address) {
        Err(error) if address.ip().is_unspecified() && address.is_ipv6() && is_family_missing(&error) => {
            bind(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port()))
        }
        bound => bound,
    }
}

/// Returns whether an error says that the kernel has no IPv6.
fn is_family_missing(error: &io::Error) -> bool {
    [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL]
        .map(|code| Some(code.raw_os_error()))
        .contains(&error.raw_os_error())
}

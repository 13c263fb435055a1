//! System calls that no safe crate offers, each behind a function that is safe to call.
#![expect(unsafe_code, reason = "ioctl and setsockopt; each call passes memory that outlives it")]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use libc::{c_int, c_ulong};

use crate::Error;

/// Bytes of an interface name in the kernel's structures, the zero at the end included.
const NAME_BYTES: usize = 16;

/// The kernel's `struct ifreq`: a name, and a union that starts with an integer for all requests used here.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy)]
pub(crate) struct InterfaceRequest {
    name: [u8; NAME_BYTES],
    value: [u8; 24],
}

impl InterfaceRequest {
    /// A request about the interface `name`.
    pub(crate) fn new(name: &str) -> Result<Self, Error> {
        let bytes = name.as_bytes();
        let is_odd = |b: &u8| b.is_ascii_whitespace() || b.is_ascii_control() || b"/%:".contains(b);
        if bytes.is_empty()
            || bytes.len() >= NAME_BYTES
            || name == "."
            || name == ".."
            || bytes.iter().any(is_odd)
        {
            return Err(Error::InterfaceName(name.to_owned()));
        }
        let mut request = Self::empty();
        request.name[..bytes.len()].copy_from_slice(bytes);
        Ok(request)
    }

    /// A request that the kernel fills in.
    pub(crate) const fn empty() -> Self {
        Self { name: [0; NAME_BYTES], value: [0; 24] }
    }

    pub(crate) fn with_int(mut self, value: i32) -> Self {
        self.value[..4].copy_from_slice(&value.to_ne_bytes());
        self
    }

    pub(crate) fn with_flags(mut self, flags: u16) -> Self {
        self.value[..2].copy_from_slice(&flags.to_ne_bytes());
        self
    }

    pub(crate) fn int(&self) -> i32 {
        i32::from_ne_bytes([self.value[0], self.value[1], self.value[2], self.value[3]])
    }

    pub(crate) fn flags(&self) -> u16 {
        u16::from_ne_bytes([self.value[0], self.value[1]])
    }

    pub(crate) fn name(&self) -> String {
        let end = self.name.iter().position(|&b| b == 0).unwrap_or(NAME_BYTES);
        String::from_utf8_lossy(&self.name[..end]).into_owned()
    }
}

/// The `ioctl`s whose argument is a `struct ifreq`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum InterfaceCall {
    TunSetIff,
    TunGetIff,
    GetMtu,
    SetMtu,
    GetFlags,
    SetFlags,
    SetTxQueueLength,
}

impl InterfaceCall {
    fn number(self) -> c_ulong {
        match self {
            Self::TunSetIff => libc::TUNSETIFF,
            Self::TunGetIff => libc::TUNGETIFF,
            Self::GetMtu => libc::SIOCGIFMTU,
            Self::SetMtu => libc::SIOCSIFMTU,
            Self::GetFlags => libc::SIOCGIFFLAGS,
            Self::SetFlags => libc::SIOCSIFFLAGS,
            Self::SetTxQueueLength => libc::SIOCSIFTXQLEN,
        }
    }
}

/// Runs one `ioctl` on an interface.
pub(crate) fn interface_call(
    fd: impl AsFd,
    call: InterfaceCall,
    request: &mut InterfaceRequest,
) -> io::Result<()> {
    // SAFETY: every `InterfaceCall` reads and writes one `struct ifreq`, which `InterfaceRequest` is at least as large as.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), call.number(), std::ptr::from_mut(request)) };
    check(result).map(drop)
}

/// The `ioctl`s on TUN whose argument is a plain number.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TunNumber {
    Persist,
    Offload,
}

/// Sets a number of a TUN device.
pub(crate) fn tun_set_number(fd: impl AsFd, which: TunNumber, value: c_ulong) -> io::Result<()> {
    let request = match which {
        TunNumber::Persist => libc::TUNSETPERSIST,
        TunNumber::Offload => libc::TUNSETOFFLOAD,
    };
    // SAFETY: both requests take their argument by value and touch no memory of ours.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), request, value) };
    check(result).map(drop)
}

/// Sets the number of bytes of the virtio header.
pub(crate) fn tun_set_header_bytes(fd: impl AsFd, bytes: c_int) -> io::Result<()> {
    // SAFETY: the request reads one `int`, which lives until the call returns.
    let result =
        unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), libc::TUNSETVNETHDRSZ, std::ptr::from_ref(&bytes)) };
    check(result).map(drop)
}

/// Sets a socket option that is an `int`.
pub(crate) fn set_option(fd: impl AsFd, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    // SAFETY: the kernel reads `size_of::<c_int>()` bytes of `value`, which lives until the call returns.
    let result = unsafe {
        libc::setsockopt(fd.as_fd().as_raw_fd(), level, name, std::ptr::from_ref(&value).cast(), INT_BYTES)
    };
    check(result).map(drop)
}

/// Reads a socket option that is an `int`.
pub(crate) fn option(fd: impl AsFd, level: c_int, name: c_int) -> io::Result<c_int> {
    let mut value: c_int = 0;
    let mut bytes = INT_BYTES;
    // SAFETY: the kernel writes at most `bytes` bytes to `value`, and the new length to `bytes`.
    let result = unsafe {
        libc::getsockopt(
            fd.as_fd().as_raw_fd(),
            level,
            name,
            std::ptr::from_mut(&mut value).cast(),
            std::ptr::from_mut(&mut bytes),
        )
    };
    check(result).map(|_| value)
}

/// Gives the sockets that share `fd`'s port a classic BPF program that chooses among them.
pub(crate) fn attach_reuseport_filter(fd: impl AsFd, program: &[libc::sock_filter]) -> io::Result<()> {
    let len =
        libc::c_ushort::try_from(program.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
    let bytes = libc::socklen_t::try_from(size_of::<libc::sock_fprog>()).expect("a few bytes");
    // SAFETY: the kernel reads one `sock_fprog` and copies the `len` instructions it points to; it writes neither.
    let result = unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            std::ptr::from_ref(&program).cast(),
            bytes,
        )
    };
    check(result).map(drop)
}

const INT_BYTES: libc::socklen_t = 4;

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_interface_can_have_are_refused() {
        for name in ["", ".", "..", "a/b", "a b", "tun%d", "eth0:1", "sixteen-bytes-xx", "a\nb"] {
            assert!(matches!(InterfaceRequest::new(name), Err(Error::InterfaceName(_))), "{name:?}");
        }
        assert_eq!(InterfaceRequest::new("fifteen-bytes-x").unwrap().name(), "fifteen-bytes-x");
    }

    #[test]
    fn values_keep_their_width() {
        let request = InterfaceRequest::empty().with_int(-2);
        assert_eq!(request.int(), -2);
        assert_eq!(request.with_flags(0x1001).flags(), 0x1001);
    }
}

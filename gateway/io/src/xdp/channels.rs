//! How many queues an interface has in use.
#![expect(unsafe_code, reason = "ioctl; the structure that it fills outlives the call")]

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

const SIOCETHTOOL: libc::c_ulong = 0x8946;
const GET_CHANNELS: u32 = 0x3c;

/// The kernel's `struct ethtool_channels`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Channels {
    command: u32,
    most: [u32; 4],
    receive: u32,
    transmit: u32,
    other: u32,
    combined: u32,
}

/// The kernel's `struct ifreq` with a pointer in it.
#[repr(C)]
struct Request {
    name: [u8; 16],
    channels: *mut Channels,
    rest: [u8; 16],
}

/// Returns the number of receive queues of an interface, by any socket of its namespace; 1 where its driver has no answer.
pub(super) fn receive_queues(socket: impl AsFd, name: &str) -> io::Result<u32> {
    let mut channels = Channels { command: GET_CHANNELS, ..Channels::default() };
    let mut request = Request { name: [0; 16], channels: std::ptr::from_mut(&mut channels), rest: [0; 16] };
    let too_long = || io::Error::from_raw_os_error(libc::EINVAL);
    let place = request.name.get_mut(..name.len()).filter(|place| place.len() < 16).ok_or_else(too_long)?;
    place.copy_from_slice(name.as_bytes());
    // SAFETY: the request reads a `struct ifreq`, which `Request` is as large as, and writes the `Channels` that it points
    // to; both live until the call returns.
    let result =
        unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), SIOCETHTOOL, std::ptr::from_mut(&mut request)) };
    if result >= 0 {
        return Ok((channels.receive + channels.combined).max(1));
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::EOPNOTSUPP) { Ok(1) } else { Err(error) }
}

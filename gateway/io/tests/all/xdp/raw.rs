//! Frames as they are, by a packet socket.
#![expect(unsafe_code, reason = "sendto with a link-layer address; both outlive the call")]

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::net::{AddressFamily, SocketType, socket};

/// Sends frames on the calling thread's interface `name`.
pub(super) struct FrameSender {
    socket: OwnedFd,
    address: libc::sockaddr_ll,
}

impl FrameSender {
    pub(super) fn new(name: &str) -> Self {
        let socket = socket(AddressFamily::PACKET, SocketType::RAW, None).unwrap();
        let index = rustix::net::netdevice::name_to_index(&socket, name).unwrap();
        // SAFETY: all fields are integers, for which zero is a value.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = u16::try_from(libc::AF_PACKET).unwrap();
        address.sll_ifindex = i32::try_from(index).unwrap();
        Self { socket, address }
    }

    pub(super) fn send(&self, frame: &[u8]) {
        let bytes = libc::socklen_t::try_from(size_of::<libc::sockaddr_ll>()).unwrap();
        // SAFETY: the kernel reads `frame` and the address, which live until the call returns.
        let sent = unsafe {
            libc::sendto(
                self.socket.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
                std::ptr::from_ref(&self.address).cast(),
                bytes,
            )
        };
        assert!(sent >= 0, "{}", io::Error::last_os_error());
    }
}

//! One socket, for UDP or for raw ESP: bound, and told what we want to know of every datagram.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libc::c_int;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, Protocol, SocketFlags, SocketType, bind, getsockname, ipproto, socket_with,
};

use super::message::{UDP_GRO, UDP_NO_CHECK6_RX, UDP_SEGMENT};
use super::{OuterFragments, UdpConfig};
use crate::link::Family;
use crate::sys::{option, set_option};
use crate::{Error, Fallback};

/// IP protocol 50 (RFC 4303 section 2).
const ESP: Protocol = ipproto::ESP;
const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// One socket and what the kernel does for it.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) fd: OwnedFd,
    pub(super) family: Family,
    /// Whether it carries IP protocol 50 and not UDP.
    pub(super) is_esp: bool,
    pub(super) gso: bool,
    pub(super) gro: bool,
    /// What happens to outer packets that are too large, as configured and at present.
    fragments: (OuterFragments, OuterFragments),
}

impl Socket {
    /// Has what is sent from now on set DF, or do what is configured.
    pub(super) fn set_whole(&mut self, is_whole: bool) {
        let (configured, present) = self.fragments;
        let wanted = if is_whole { OuterFragments::Forbidden } else { configured };
        // A refusal costs a probe of the path's size its meaning, and nothing else.
        if wanted != present && set_fragments(&self.fd, self.family, wanted).is_ok() {
            self.fragments.1 = wanted;
        }
    }

    /// Binds `address`. The socket that comes first in a group is bound alone, so that a foreign owner of the port is
    /// noticed; the others share its port.
    pub(super) fn bind(
        address: SocketAddr,
        is_first: bool,
        is_shared: bool,
        config: &UdpConfig,
        fallbacks: &mut Vec<Fallback>,
    ) -> Result<Self, Error> {
        let (domain, family) = match address {
            SocketAddr::V4(_) => (AddressFamily::INET, Family::Ipv4),
            SocketAddr::V6(_) => (AddressFamily::INET6, Family::Ipv6),
        };
        let fd = socket_with(domain, SocketType::DGRAM, FLAGS, None)
            .map_err(|error| Error::kernel(format!("open a UDP socket for {address}"), error.into()))?;
        if family == Family::Ipv6 {
            set_option(&fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)
                .map_err(|error| Error::kernel("keep an IPv6 socket to IPv6", error))?;
        }
        if is_shared && !is_first {
            share_port(&fd)?;
        }
        // Options first: nothing may arrive before we know how to read it.
        let socket = Self::udp(fd, family, config, fallbacks)?;
        bind(&socket.fd, &address).map_err(|error| match error {
            rustix::io::Errno::ADDRINUSE => Error::PortInUse(address),
            error => Error::kernel(format!("bind UDP {address}"), error.into()),
        })?;
        if is_shared && is_first {
            share_port(&socket.fd)?;
        }
        Ok(socket)
    }

    /// Opens a raw socket for ESP, bound to `address`.
    pub(super) fn open_esp(
        address: IpAddr,
        config: &UdpConfig,
        fallbacks: &mut Vec<Fallback>,
    ) -> Result<Self, Error> {
        let (domain, family) = match address {
            IpAddr::V4(_) => (AddressFamily::INET, Family::Ipv4),
            IpAddr::V6(_) => (AddressFamily::INET6, Family::Ipv6),
        };
        let fd = socket_with(domain, SocketType::RAW, FLAGS, Some(ESP))
            .map_err(|error| Error::kernel("open a raw socket for ESP", error.into()))?;
        configure(&fd, family, config, fallbacks)?;
        bind(&fd, &SocketAddr::new(address, 0)).map_err(|error| {
            Error::kernel(format!("bind a raw socket for ESP to {address}"), error.into())
        })?;
        let fragments = (config.fragments, config.fragments);
        Ok(Self { fd, family, is_esp: true, gso: false, gro: false, fragments })
    }

    /// Takes over a socket that is bound already.
    pub(super) fn adopt(
        fd: OwnedFd,
        config: &UdpConfig,
        fallbacks: &mut Vec<Fallback>,
    ) -> Result<Self, Error> {
        let is_udp = option(&fd, libc::SOL_SOCKET, libc::SO_PROTOCOL).is_ok_and(|p| p == libc::IPPROTO_UDP);
        let domain = option(&fd, libc::SOL_SOCKET, libc::SO_DOMAIN).unwrap_or(0);
        let family = match domain {
            libc::AF_INET if is_udp => Family::Ipv4,
            libc::AF_INET6 if is_udp => Family::Ipv6,
            _ => return Err(Error::Inherited("is no UDP socket")),
        };
        rustix::io::ioctl_fionbio(&fd, true)
            .map_err(|error| Error::kernel("make a UDP socket non-blocking", error.into()))?;
        Self::udp(fd, family, config, fallbacks)
    }

    fn udp(
        fd: OwnedFd,
        family: Family,
        config: &UdpConfig,
        fallbacks: &mut Vec<Fallback>,
    ) -> Result<Self, Error> {
        configure(&fd, family, config, fallbacks)?;
        let gso = enable("udp-gso", config.gso, fallbacks, || set_option(&fd, libc::SOL_UDP, UDP_SEGMENT, 0));
        let gro = enable("udp-gro", config.gro, fallbacks, || set_option(&fd, libc::SOL_UDP, UDP_GRO, 1));
        let fragments = (config.fragments, config.fragments);
        Ok(Self { fd, family, is_esp: false, gso, gro, fragments })
    }

    pub(super) fn local_address(&self) -> io::Result<SocketAddr> {
        let address = getsockname(&self.fd)?;
        SocketAddr::try_from(address).map_err(io::Error::from)
    }

    /// Whether there is no room to send; it becomes writable when there is.
    pub(super) fn is_full(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::OUT)];
        let now = Timespec::default();
        poll(&mut fds, Some(&now)).is_ok_and(|ready| ready == 0)
    }

    //= https://www.rfc-editor.org/rfc/rfc7348#section-5
    //# When a packet is received with a UDP checksum of zero, it MUST be accepted for decapsulation.
    pub(super) fn carry_vxlan(&self) -> io::Result<()> {
        match self.family {
            // Over IPv4 the kernel takes them as they are.
            Family::Ipv4 => Ok(()),
            Family::Ipv6 => set_option(&self.fd, libc::SOL_UDP, UDP_NO_CHECK6_RX, 1),
        }
    }

    pub(super) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { fd: self.fd.try_clone()?, ..*self })
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What both protocols want of the kernel.
fn configure(
    fd: &OwnedFd,
    family: Family,
    config: &UdpConfig,
    fallbacks: &mut Vec<Fallback>,
) -> Result<(), Error> {
    ask_for_ancillary(fd, family)?;
    set_fragments(fd, family, config.fragments)?;
    if let Some(mark) = config.mark {
        let value = c_int::from_ne_bytes(mark.to_ne_bytes());
        if let Err(error) = set_option(fd, libc::SOL_SOCKET, libc::SO_MARK, value) {
            fallbacks.push(Fallback::new("socket-mark", format!("the kernel refused it: {error}")));
        }
    }
    set_buffers(fd, config.buffer_bytes, fallbacks);
    Ok(())
}

fn share_port(fd: &OwnedFd) -> Result<(), Error> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)
        .map_err(|error| Error::kernel("share the UDP port among workers", error))
}

/// Which of our addresses a datagram was sent to, and its TOS byte.
fn ask_for_ancillary(fd: &OwnedFd, family: Family) -> Result<(), Error> {
    let options = match family {
        Family::Ipv4 => [(libc::IPPROTO_IP, libc::IP_PKTINFO), (libc::IPPROTO_IP, libc::IP_RECVTOS)],
        Family::Ipv6 => {
            [(libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO), (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS)]
        }
    };
    for (level, name) in options {
        set_option(fd, level, name, 1)
            .map_err(|error| Error::kernel("ask for addresses and TOS of datagrams", error))?;
    }
    Ok(())
}

fn set_fragments(fd: &OwnedFd, family: Family, fragments: OuterFragments) -> Result<(), Error> {
    let (level, name, value) = match (family, fragments) {
        (Family::Ipv4, OuterFragments::Allowed) => {
            (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT)
        }
        (Family::Ipv4, OuterFragments::Forbidden) => {
            (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)
        }
        (Family::Ipv6, OuterFragments::Allowed) => {
            (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_WANT)
        }
        (Family::Ipv6, OuterFragments::Forbidden) => {
            (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)
        }
    };
    set_option(fd, level, name, value).map_err(|error| Error::kernel("set the path MTU mode", error))
}

/// Large buffers, past the system's limit where we may.
fn set_buffers(fd: &OwnedFd, bytes: usize, fallbacks: &mut Vec<Fallback>) {
    let wanted = c_int::try_from(bytes).unwrap_or(c_int::MAX / 2);
    let pairs = [
        (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, "receive-buffer"),
        (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, "send-buffer"),
    ];
    for (force, plain, feature) in pairs {
        if set_option(fd, libc::SOL_SOCKET, force, wanted).is_ok() {
            continue;
        }
        let _ = set_option(fd, libc::SOL_SOCKET, plain, wanted);
        // The kernel reports twice what it grants.
        let granted = option(fd, libc::SOL_SOCKET, plain).unwrap_or(0) / 2;
        if granted < wanted {
            let reason = format!(
                "{granted} of {wanted} bytes granted; needs CAP_NET_ADMIN, or raise net.core.rmem_max and wmem_max"
            );
            fallbacks.push(Fallback::new(feature, reason));
        }
    }
}

fn enable(
    feature: &'static str,
    is_wanted: bool,
    fallbacks: &mut Vec<Fallback>,
    set: impl FnOnce() -> io::Result<()>,
) -> bool {
    if !is_wanted {
        fallbacks.push(Fallback::new(feature, "switched off by configuration"));
        return false;
    }
    match set() {
        Ok(()) => true,
        Err(error) => {
            fallbacks.push(Fallback::new(feature, format!("the kernel refused it: {error}")));
            false
        }
    }
}

/// Addresses to bind, by family.
pub(super) fn bind_addresses(config: &UdpConfig) -> [Option<IpAddr>; 2] {
    [config.ipv4.map(IpAddr::V4), config.ipv6.map(IpAddr::V6)]
}

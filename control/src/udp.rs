//! UDP sockets for what gateways and route agents say to each other outside of cables.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use socket2::{Domain, Protocol, Socket, Type};

/// Opens a socket that never waits, bound to an address, whose packets carry a mark: no route to a remote cluster applies
/// to them.
///
/// # Errors
///
/// The address is not this node's, the port is taken, or the right to mark is missing (`CAP_NET_ADMIN`).
pub fn marked(local: SocketAddr, mark: u32) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(local), Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
    if local.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_mark(mark)?;
    socket.bind(&local.into())?;
    Ok(socket.into())
}

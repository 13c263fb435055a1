//! TCP sockets that listen.

use std::io;
use std::net::SocketAddr;

use socket2::{Domain, Socket, Type};
use tokio::net::TcpListener;

/// Listens at an address; at one of IPv6 that is unspecified, for both families. `backlog` connections wait in the kernel. A
/// program that restarts takes its port back while old connections are in TIME_WAIT. Call it inside a tokio runtime.
///
/// # Errors
/// The kernel's.
pub fn listen(address: SocketAddr, backlog: i32) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(backlog)?;
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket.into())
}

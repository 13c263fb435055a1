//! Hears datagrams on a UDP port as an application does: behind the node's packet filter.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::token::{Mark, Run};
use super::{MAX_SECONDS, NodeError};

/// Ours: most datagrams that are told.
const MAX_HEARD: usize = 256;

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenRequest {
    /// The run whose probes count.
    pub run: Run,
    /// The port.
    pub port: u16,
    /// For how long, in seconds; it ends with the first probe.
    pub seconds: u32,
}

/// A probe that was heard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heard {
    /// Who sent it.
    pub from: SocketAddr,
    /// Which probe it is.
    pub probe: u16,
    /// Which packet of it.
    pub number: u16,
}

/// Listens until the first probe or the end of the time; blocks. What else comes is not told.
///
/// # Errors
/// [`NodeError::Socket`] if the port cannot be had: somebody else has it.
pub fn listen(request: &ListenRequest) -> Result<Vec<Heard>, NodeError> {
    let socket = bind(request.port).map_err(NodeError::socket("listen on the port"))?;
    let end = Instant::now() + Duration::from_secs(request.seconds.min(MAX_SECONDS).into());
    let mut heard = Vec::new();
    let mut buffer = [0; 2048];
    while heard.is_empty() || heard.len() < MAX_HEARD {
        let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) else {
            break;
        };
        // After the first one, only what is already there.
        let patience = if heard.is_empty() { left } else { Duration::from_millis(100).min(left) };
        socket.set_read_timeout(Some(patience)).map_err(NodeError::socket("listen"))?;
        match socket.recv_from(&mut buffer) {
            Ok((length, from)) => {
                if let Some(mark) = Mark::parse(&buffer[..length]).filter(|mark| mark.run == request.run) {
                    heard.push(Heard { from, probe: mark.probe, number: mark.number });
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if !heard.is_empty() {
                    break;
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(source) => return Err(NodeError::Socket { what: "listen", source }),
        }
    }
    Ok(heard)
}

/// Both families where the node has both.
fn bind(port: u16) -> std::io::Result<UdpSocket> {
    UdpSocket::bind((IpAddr::V6(Ipv6Addr::UNSPECIFIED), port))
        .or_else(|_| UdpSocket::bind((IpAddr::V4(Ipv4Addr::UNSPECIFIED), port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_heard_and_nothing_else() {
        let run = Run([1, 2, 3, 4, 5, 6]);
        let free = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = free.local_addr().unwrap();
        drop(free);
        let request = ListenRequest { run, port: to.port(), seconds: 20 };
        let listener = std::thread::spawn(move || listen(&request));
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let probe = Mark { run, probe: 4, number: 1 }.emit();
        let other = Mark { run: Run([9; 6]), probe: 4, number: 1 }.emit();
        while !listener.is_finished() {
            sender.send_to(&other, to).ok();
            sender.send_to(&probe, to).ok();
            std::thread::yield_now();
        }
        let heard = listener.join().unwrap().unwrap();
        assert!(
            !heard.is_empty() && heard.iter().all(|each| each.probe == 4 && each.number == 1),
            "{heard:?}"
        );
    }
}

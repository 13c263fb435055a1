//! A query and its reply: over UDP, and over TCP if the reply does not fit.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use rand_core::{OsRng, RngCore as _};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::message::{Question, Reply};
use super::resolver::ServerAddress;

/// Ours: how long a reply may take, each time.
const REPLY_TIMEOUT: Duration = Duration::from_secs(2);
/// Ours: how often a datagram is sent.
const TIMES: usize = 2;

/// What a server has answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Asked {
    /// The server's address and port.
    pub server: SocketAddr,
    /// The name that was asked for.
    pub name: String,
    /// The type.
    #[serde(rename = "type")]
    pub rtype: String,
    /// The code: `NOERROR`, `NXDOMAIN`, …
    pub code: String,
    /// The records: type and data.
    pub answers: Vec<(String, String)>,
    /// Whether the reply came over TCP.
    pub is_over_tcp: bool,
    /// How long it took.
    pub milliseconds: u64,
}

/// Why there is no reply.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// There was none in time.
    #[error("no reply from {0} within {seconds} s; is it up, and can it be reached from here?", seconds = REPLY_TIMEOUT.as_secs())]
    Silent(SocketAddr),
    /// Nobody listens there, or there is no way.
    #[error("cannot ask {0}: {1}")]
    Socket(SocketAddr, io::Error),
    /// It is no DNS server.
    #[error("cannot read the reply of {0}: it is no DNS message that answers the question")]
    Invalid(SocketAddr),
}

impl Asked {
    /// Returns the addresses of the answer.
    #[must_use]
    pub fn addresses(&self) -> Vec<IpAddr> {
        let reply = Reply { answers: self.answers.clone(), ..Reply::default() };
        reply.addresses().collect()
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = if self.is_over_tcp { " over TCP" } else { "" };
        let Self { name, rtype, server, milliseconds, code, .. } = self;
        write!(f, "{name} {rtype}: {code} from {server}{by} in {milliseconds} ms")?;
        self.answers.iter().try_for_each(|(rtype, data)| write!(f, "\n{rtype} {data}"))
    }
}

/// Asks a server.
///
/// # Errors
/// When there is no reply.
pub async fn ask(question: &Question, ServerAddress(server): ServerAddress) -> Result<Asked, AskError> {
    let started = Instant::now();
    let [low, high, ..] = OsRng.next_u32().to_le_bytes();
    let id = u16::from_le_bytes([low, high]);
    let mut reply = over_udp(question, id, server).await?;
    let is_over_tcp = reply.is_truncated;
    if is_over_tcp {
        let stream = timeout(REPLY_TIMEOUT, over_tcp(question, id, server)).await;
        let bytes = stream.map_err(|_| AskError::Silent(server))?;
        let bytes = bytes.map_err(|error| AskError::Socket(server, error))?;
        reply = question.read(id, &bytes).map_err(|_| AskError::Invalid(server))?;
    }
    Ok(Asked {
        server,
        name: question.name(),
        rtype: question.rtype(),
        code: reply.code,
        answers: reply.answers,
        is_over_tcp,
        milliseconds: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
    })
}

async fn over_udp(question: &Question, id: u16, server: SocketAddr) -> Result<Reply, AskError> {
    let fail = |error| AskError::Socket(server, error);
    let any = match server {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let socket = UdpSocket::bind((any, 0)).await.map_err(fail)?;
    socket.connect(server).await.map_err(fail)?;
    let query = question.query(id);
    let (mut bytes, mut is_invalid) = (vec![0; 65_535], false);
    for _ in 0..TIMES {
        socket.send(&query).await.map_err(fail)?;
        let received = timeout(REPLY_TIMEOUT, async {
            loop {
                let length = socket.recv(&mut bytes).await?;
                match question.read(id, &bytes[..length]) {
                    Ok(reply) => return Ok(reply),
                    // What somebody else sends may come before the reply.
                    Err(_) => is_invalid = true,
                }
            }
        });
        match received.await {
            Ok(Ok(reply)) => return Ok(reply),
            Ok(Err(error)) => return Err(fail(error)),
            Err(_) => {}
        }
    }
    Err(if is_invalid { AskError::Invalid(server) } else { AskError::Silent(server) })
}

async fn over_tcp(question: &Question, id: u16, server: SocketAddr) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    let query = question.query(id);
    let length = u16::try_from(query.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), query.as_slice()].concat()).await?;
    let length = stream.read_u16().await?;
    let mut bytes = vec![0; usize::from(length)];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

//! Where servers are.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// A server's address, in the form of Open vSwitch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Remote {
    /// `unix:PATH`
    Unix(PathBuf),
    /// `tcp:HOST:PORT`; an IPv6 address stands in brackets.
    Tcp(HostPort),
    /// `ssl:HOST:PORT`, the same over TLS.
    Tls(HostPort),
}

/// A name or address, and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// A name, or an address without brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
}

/// Addresses of the servers of one database, of which any will do: at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remotes(Vec<Remote>);

/// A text that is no address of a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid remote {0:?}: expected unix:PATH, tcp:HOST:PORT or ssl:HOST:PORT (IPv6 addresses in brackets)"
)]
pub struct InvalidRemote(String);

impl Remotes {
    /// Returns the addresses in their order.
    pub fn as_slice(&self) -> &[Remote] {
        &self.0
    }
}

impl From<Remote> for Remotes {
    fn from(remote: Remote) -> Self {
        Self(vec![remote])
    }
}

impl FromStr for Remotes {
    type Err = InvalidRemote;

    /// Reads addresses with commas between them.
    fn from_str(text: &str) -> Result<Self, InvalidRemote> {
        text.split(',').map(|remote| remote.trim().parse()).collect::<Result<_, _>>().map(Self)
    }
}

impl FromStr for Remote {
    type Err = InvalidRemote;

    fn from_str(text: &str) -> Result<Self, InvalidRemote> {
        let remote = match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Some(Self::Unix(path.into())),
            Some(("tcp", rest)) => HostPort::parse(rest).map(Self::Tcp),
            Some(("ssl", rest)) => HostPort::parse(rest).map(Self::Tls),
            _ => None,
        };
        remote.ok_or_else(|| InvalidRemote(text.chars().take(200).collect()))
    }
}

impl HostPort {
    fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let host = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').filter(|host| host.parse::<std::net::Ipv6Addr>().is_ok())?,
            None if host.contains([':', ']', '/']) => return None,
            None => host,
        };
        let port = port.parse().ok().filter(|&port| port != 0)?;
        (!host.is_empty()).then(|| Self { host: host.to_owned(), port })
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(to) => write!(f, "tcp:{to}"),
            Self::Tls(to) => write!(f, "ssl:{to}"),
        }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        let all =
            "unix:/var/run/ovn/ovnnb_db.sock,tcp:10.0.0.1:6641,ssl:[fd00::1]:6641,ssl:ovnkube-db.ns.svc:9641";
        let remotes: Remotes = all.parse().unwrap();
        let written: Vec<String> = remotes.as_slice().iter().map(ToString::to_string).collect();
        assert_eq!(written.join(","), all);
        assert_eq!(remotes.as_slice()[2], Remote::Tls(HostPort { host: "fd00::1".to_owned(), port: 6641 }));
    }

    #[test]
    fn other_texts_are_refused() {
        for wrong in [
            "",
            "unix:",
            "tcp:",
            "tcp:host",
            "tcp::6641",
            "tcp:host:0",
            "tcp:host:70000",
            "tcp:fd00::1:6641",
            "tcp:[fd00::1:6641",
            "tcp:[host]:6641",
            "udp:host:1",
            "tcp:a:1,",
            "ssl:a/b:1",
        ] {
            assert!(wrong.parse::<Remotes>().is_err(), "{wrong}");
        }
    }
}

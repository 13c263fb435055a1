//! Which server is asked.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use anyhow::Context as _;

/// Where the names of servers are.
const FILE: &str = "/etc/resolv.conf";
/// The port of DNS.
const PORT: u16 = 53;

/// A server's address and port, 53 where none is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerAddress(pub SocketAddr);

impl From<IpAddr> for ServerAddress {
    fn from(address: IpAddr) -> Self {
        Self(SocketAddr::new(address, PORT))
    }
}

impl FromStr for ServerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        let address = text.parse().map(Self).or_else(|_| bare.parse::<IpAddr>().map(Self::from));
        address
            .map_err(|_| format!("`{text}` is no address such as 10.96.0.10, 10.96.0.10:53 or [fd00::10]:53"))
    }
}

/// Returns the first server that this pod or host asks.
///
/// # Errors
/// When the file cannot be read, or names none.
pub fn of_system() -> anyhow::Result<ServerAddress> {
    let text = std::fs::read_to_string(FILE).with_context(|| format!("cannot read {FILE}"))?;
    first(&text).with_context(|| format!("{FILE} names no server: pass one with --server"))
}

fn first(text: &str) -> Option<ServerAddress> {
    let mut lines = text.lines().map(str::split_whitespace);
    lines.find_map(|mut words| {
        let address = (words.next() == Some("nameserver")).then(|| words.next())??;
        address.parse::<IpAddr>().ok().map(ServerAddress::from)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_an_address_with_a_port_or_without() {
        for (text, address) in [
            ("10.96.0.10", "10.96.0.10:53"),
            ("10.96.0.10:5353", "10.96.0.10:5353"),
            ("fd00::10", "[fd00::10]:53"),
            ("[fd00::10]", "[fd00::10]:53"),
            ("[fd00::10]:5353", "[fd00::10]:5353"),
        ] {
            assert_eq!(text.parse::<ServerAddress>().unwrap().0.to_string(), address);
        }
        assert!("kube-dns".parse::<ServerAddress>().is_err());
    }

    #[test]
    fn the_first_usable_server_is_taken() {
        let text = "# a remark\nsearch shop.svc.cluster.local\nnameserver\nnameserver x\nnameserver fd00::a # b\n\
                    nameserver 10.96.0.10\noptions ndots:5\n";
        assert_eq!(first(text).unwrap().0.to_string(), "[fd00::a]:53");
        assert_eq!(first("options ndots:5"), None);
    }
}

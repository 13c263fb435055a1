//! Which packets a child SA is for (RFC 7296 section 2.9, RFC 4301 section 4.4.1).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// A traffic selector: a range of addresses, and a protocol and range of ports, all inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Selector {
    /// First address; of the same family as `last`.
    pub first: IpAddr,
    /// Last address.
    pub last: IpAddr,
    /// IP protocol; 0 stands for all.
    pub protocol: u8,
    /// First port (host order); 0 with `last_port` 65535 stands for all.
    pub first_port: u16,
    /// Last port.
    pub last_port: u16,
}

impl Selector {
    /// All packets of a subnet.
    #[must_use]
    pub fn subnet(subnet: IpNet) -> Self {
        Self {
            first: subnet.network(),
            last: subnet.broadcast(),
            protocol: 0,
            first_port: 0,
            last_port: u16::MAX,
        }
    }

    /// Whether it is for all protocols and ports, as all that we propose are.
    #[must_use]
    pub fn is_for_all_ports(&self) -> bool {
        self.protocol == 0 && self.first_port == 0 && self.last_port == u16::MAX
    }

    /// Whether the address is in the range.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.first.is_ipv4() == address.is_ipv4() && self.first <= address && address <= self.last
    }

    /// What both stand for, if anything (narrowing).
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        if self.first.is_ipv4() != other.first.is_ipv4() {
            return None;
        }
        let protocol = match (self.protocol, other.protocol) {
            (0, protocol) | (protocol, 0) => protocol,
            (a, b) if a == b => a,
            _ => return None,
        };
        let both = Self {
            first: self.first.max(other.first),
            last: self.last.min(other.last),
            protocol,
            first_port: self.first_port.max(other.first_port),
            last_port: self.last_port.min(other.last_port),
        };
        (both.first <= both.last && both.first_port <= both.last_port).then_some(both)
    }

    /// Returns `true` if all that it stands for is part of a wider one.
    #[must_use]
    pub fn is_within(&self, wider: &Self) -> bool {
        self.intersection(wider) == Some(*self)
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match prefix(self.first, self.last) {
            Some(length) => write!(f, "{}/{length}", self.first)?,
            None => write!(f, "{}-{}", self.first, self.last)?,
        }
        if !self.is_for_all_ports() {
            write!(f, "[{}/{}-{}]", self.protocol, self.first_port, self.last_port)?;
        }
        Ok(())
    }
}

/// The length of the prefix that the range is, if it is one.
fn prefix(first: IpAddr, last: IpAddr) -> Option<u32> {
    let (first, last, width) = match (first, last) {
        (IpAddr::V4(first), IpAddr::V4(last)) => (widen(first), widen(last), 32),
        (IpAddr::V6(first), IpAddr::V6(last)) => (u128::from(first), u128::from(last), 128),
        _ => return None,
    };
    let differing = first ^ last;
    let host_bits = u128::BITS - differing.leading_zeros();
    let is_mask = differing.count_ones() == host_bits;
    (is_mask && first & differing == 0).then(|| width - host_bits)
}

fn widen(address: Ipv4Addr) -> u128 {
    u128::from(u32::from(address))
}

/// The two sides of a child SA, as we see them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Selectors {
    /// Sources of what we seal.
    pub local: Vec<Selector>,
    /// Sources of what we open.
    pub remote: Vec<Selector>,
}

impl Selectors {
    /// Whether a packet that we seal from `source` to `destination` is meant, protocols and ports left aside.
    #[must_use]
    pub fn covers(&self, source: IpAddr, destination: IpAddr) -> bool {
        self.local.iter().any(|selector| selector.contains(source))
            && self.remote.iter().any(|selector| selector.contains(destination))
    }

    /// Returns `true` if there are packets that both are for.
    #[must_use]
    pub fn overlap(&self, other: &Self) -> bool {
        let meet =
            |a: &[Selector], b: &[Selector]| a.iter().any(|a| b.iter().any(|b| a.intersection(b).is_some()));
        meet(&self.local, &other.local) && meet(&self.remote, &other.remote)
    }

    /// Returns `true` if these are for all packets that the other ones are for.
    #[must_use]
    pub fn include(&self, other: &Self) -> bool {
        let all = |narrow: &[Selector], wide: &[Selector]| {
            narrow.iter().all(|one| wide.iter().any(|wider| one.is_within(wider)))
        };
        all(&other.local, &self.local) && all(&other.remote, &self.remote)
    }
}

impl fmt::Display for Selectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, side) in [&self.local, &self.remote].into_iter().enumerate() {
            if index > 0 {
                f.write_str(" === ")?;
            }
            for (index, selector) in side.iter().enumerate() {
                let comma = if index > 0 { "," } else { "" };
                write!(f, "{comma}{selector}")?;
            }
        }
        Ok(())
    }
}

/// The range of all addresses of a family.
#[must_use]
pub fn everything(is_ipv4: bool) -> Selector {
    let (first, last) = if is_ipv4 {
        (IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::BROADCAST))
    } else {
        (IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::from(u128::MAX)))
    };
    Selector { first, last, protocol: 0, first_port: 0, last_port: u16::MAX }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subnet(text: &str) -> Selector {
        Selector::subnet(text.parse().unwrap())
    }

    #[test]
    fn selectors_narrow_to_what_both_mean() {
        let (wide, narrow) = (subnet("10.0.0.0/8"), subnet("10.7.0.0/16"));
        assert_eq!(wide.intersection(&narrow), Some(narrow));
        assert_eq!(subnet("10.8.0.0/16").intersection(&narrow), None);
        assert_eq!(everything(false).intersection(&narrow), None);
        let tcp = Selector { protocol: 6, first_port: 80, last_port: 90, ..wide };
        let udp = Selector { protocol: 17, ..narrow };
        assert_eq!(tcp.intersection(&udp), None);
        assert_eq!(
            tcp.intersection(&narrow),
            Some(Selector { protocol: 6, first_port: 80, last_port: 90, ..narrow })
        );
    }

    #[test]
    fn selectors_read_as_people_write_them() {
        let odd = Selector { last: "10.7.1.9".parse().unwrap(), ..subnet("10.7.1.0/24") };
        let texts = [subnet("10.7.0.0/16"), odd, subnet("fd00::/8"), everything(true)].map(|s| s.to_string());
        assert_eq!(texts, ["10.7.0.0/16", "10.7.1.0-10.7.1.9", "fd00::/8", "0.0.0.0/0"]);
        let both = Selectors { local: vec![subnet("10.1.0.0/16")], remote: vec![subnet("10.2.0.0/16"), odd] };
        assert_eq!(both.to_string(), "10.1.0.0/16 === 10.2.0.0/16,10.7.1.0-10.7.1.9");
        assert!(both.covers("10.1.0.1".parse().unwrap(), "10.2.3.4".parse().unwrap()));
        assert!(!both.covers("10.2.3.4".parse().unwrap(), "10.1.0.1".parse().unwrap()));
    }
}

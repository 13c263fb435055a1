//! The setting `public-ip`: `method:value`, several separated by commas.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rand_core::RngCore;

/// The form of each method, for messages.
pub const METHODS: &str = "api:HOST/PATH, ipv4:ADDRESS, ipv6:ADDRESS, dns:NAME, lb:SERVICE";

/// From the specification: the services that are asked when nothing is configured.
const SERVICES: [&str; 10] = [
    "ip4.seeip.org",
    "ipecho.net/plain",
    "ifconfig.me",
    "ipinfo.io/ip",
    "4.ident.me",
    "checkip.amazonaws.com",
    "4.icanhazip.com",
    "myexternalip.com/raw",
    "4.tnedi.me",
    "api.ipify.org",
];

/// Ours: longest setting in bytes; anybody who may annotate a node may write it.
const MAX_TEXT_BYTES: usize = 4096;
/// Ours: most resolvers in a list. Each may take half a minute to fail.
const MAX_RESOLVERS: usize = 16;

/// One way to learn the public address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolver {
    /// An HTTPS GET of `https://` and this text; the answer holds the address.
    Api(String),
    /// This very address.
    Ipv4(Ipv4Addr),
    /// This very address; ours, upstream has none.
    Ipv6(Ipv6Addr),
    /// The lowest IPv4 address of a name.
    Dns(String),
    /// The ingress of a Service of type LoadBalancer in the gateway's namespace.
    LoadBalancer(String),
}

impl Resolver {
    /// Reads `method:value`, or an address alone.
    ///
    /// # Errors
    /// [`SpecError`].
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let text = text.trim();
        if let Ok(address) = text.parse::<IpAddr>() {
            return host(text, address);
        }
        let Some((method, value)) = text.split_once(':') else { return Err(SpecError::no_method(text)) };
        let value = value.trim();
        let invalid = |expected: &'static str| SpecError::Value { text: shown(text), expected };
        match method.trim() {
            "ipv4" => {
                let address: Ipv4Addr = value.parse().map_err(|_| invalid("an IPv4 address"))?;
                host(text, address.into())
            }
            "ipv6" => {
                let address: Ipv6Addr = value.parse().map_err(|_| invalid("an IPv6 address"))?;
                host(text, address.into())
            }
            "dns" if is_name(value) => Ok(Self::Dns(value.to_owned())),
            "dns" => Err(invalid("a DNS name")),
            "lb" if is_name(value) => Ok(Self::LoadBalancer(value.to_owned())),
            "lb" => Err(invalid("the name of a Service")),
            "api" if is_host_and_path(value) => Ok(Self::Api(value.to_owned())),
            "api" => Err(invalid("a host and a path without a scheme, such as example.com/ip")),
            _ => Err(SpecError::no_method(text)),
        }
    }

    /// Returns `true` if the address is a load balancer's.
    pub fn is_load_balancer(&self) -> bool {
        matches!(self, Self::LoadBalancer(_))
    }

    fn needs_network(&self) -> bool {
        !matches!(self, Self::Ipv4(_) | Self::Ipv6(_))
    }
}

impl fmt::Display for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Api(value) => write!(f, "api:{value}"),
            Self::Ipv4(address) => write!(f, "ipv4:{address}"),
            Self::Ipv6(address) => write!(f, "ipv6:{address}"),
            Self::Dns(name) => write!(f, "dns:{name}"),
            Self::LoadBalancer(service) => write!(f, "lb:{service}"),
        }
    }
}

/// Why a text is no resolver.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// No method, or an unknown one.
    #[error("`{text}` begins with no method that is known ({METHODS})")]
    Method {
        /// The entry.
        text: String,
    },
    /// A known method with something that it cannot use.
    #[error("`{text}` does not name {expected}")]
    Value {
        /// The entry.
        text: String,
        /// The expected form.
        expected: &'static str,
    },
    /// Too long, or too many.
    #[error("the list of resolvers is longer than {MAX_RESOLVERS} entries or {MAX_TEXT_BYTES} bytes")]
    TooLong,
}

impl SpecError {
    fn no_method(text: &str) -> Self {
        Self::Method { text: shown(text) }
    }
}

/// Resolvers in the order in which they are tried. An entry that makes no sense fails when its turn comes, with its
/// reason; the others still count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resolvers {
    entries: Vec<Result<Resolver, SpecError>>,
}

impl Resolvers {
    /// Reads a setting. Empty entries are left out.
    pub fn read(text: &str) -> Self {
        let parts = || text.split(',').map(str::trim).filter(|part| !part.is_empty());
        if text.len() > MAX_TEXT_BYTES || parts().count() > MAX_RESOLVERS {
            return Self { entries: vec![Err(SpecError::TooLong)] };
        }
        Self { entries: parts().map(Resolver::parse).collect() }
    }

    /// Reads a setting of which every entry must make sense.
    ///
    /// # Errors
    /// The first [`SpecError`].
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let resolvers = Self::read(text);
        match resolvers.entries.iter().find_map(|entry| entry.as_ref().err()) {
            Some(error) => Err(error.clone()),
            None => Ok(resolvers),
        }
    }

    /// Creates the list of the ten services that are asked when nothing is configured, in random order, so that no one
    /// of them gets the requests of all gateways.
    pub fn built_in(random: &mut impl RngCore) -> Self {
        let mut services = SERVICES;
        for last in (1..services.len()).rev() {
            let other = usize::try_from(random.next_u32()).unwrap_or(0) % (last + 1);
            services.swap(last, other);
        }
        Self { entries: services.map(|service| Ok(Resolver::Api(service.to_owned()))).to_vec() }
    }

    /// Reads a setting: the built-in list where it is missing; in an air-gapped deployment only resolvers that need no
    /// network, which may be none.
    pub fn from_setting(text: Option<&str>, is_air_gapped: bool, random: &mut impl RngCore) -> Self {
        let mut resolvers = match text.map(str::trim).filter(|text| !text.is_empty()) {
            Some(text) => Self::read(text),
            None => Self::built_in(random),
        };
        if is_air_gapped {
            resolvers.entries.retain(|entry| entry.as_ref().is_ok_and(|resolver| !resolver.needs_network()));
        }
        resolvers
    }

    /// Returns what a gateway goes by that no load balancer leads to: the other entries, and where there are none what holds
    /// where nothing is said.
    #[must_use]
    pub fn without_load_balancer(mut self, is_air_gapped: bool, random: &mut impl RngCore) -> Self {
        if !self.valid().any(Resolver::is_load_balancer) {
            return self;
        }
        self.entries.retain(|entry| !entry.as_ref().is_ok_and(Resolver::is_load_balancer));
        if self.entries.is_empty() { Self::from_setting(None, is_air_gapped, random) } else { self }
    }

    /// Returns the entries, each a resolver or the reason why it is none.
    pub fn entries(&self) -> &[Result<Resolver, SpecError>] {
        &self.entries
    }

    /// Returns `true` if there is nothing to try.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the entries that are resolvers.
    pub fn valid(&self) -> impl Iterator<Item = &Resolver> {
        self.entries.iter().flatten()
    }

    /// Returns `true` if the address can only be a load balancer's.
    pub fn is_load_balancer_only(&self) -> bool {
        self.valid().next().is_some() && self.valid().all(Resolver::is_load_balancer)
    }
}

/// Returns `true` if an address can be a host's towards the world. Private ones can: a cluster set may be in one
/// network.
pub fn is_host(address: IpAddr) -> bool {
    let is_reserved = match address {
        // 0.0.0.0/8 means "this network" (RFC 1122), 240.0.0.0/4 is reserved and holds the broadcast address.
        IpAddr::V4(v4) => v4.octets()[0] == 0 || v4.octets()[0] >= 240,
        IpAddr::V6(_) => false,
    };
    !(is_reserved || address.is_unspecified() || address.is_multicast() || address.is_loopback())
}

fn host(text: &str, address: IpAddr) -> Result<Resolver, SpecError> {
    if !is_host(address) {
        return Err(SpecError::Value { text: shown(text), expected: "the address of a host" });
    }
    Ok(match address {
        IpAddr::V4(v4) => Resolver::Ipv4(v4),
        IpAddr::V6(v6) => Resolver::Ipv6(v6),
    })
}

/// Returns `true` for a DNS name, or a Kubernetes object's; underscores are seen in the wild.
fn is_name(text: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    let name = text.strip_suffix('.').unwrap_or(text);
    name.len() <= 253 && name.split('.').all(is_label)
}

/// Returns `true` if `https://` in front makes it a URL without a user and without surprises.
fn is_host_and_path(text: &str) -> bool {
    let authority = text.split(['/', '?']).next().unwrap_or_default();
    let is_printable = text.bytes().all(|byte| byte.is_ascii_graphic());
    let url = || format!("https://{text}").parse::<http::Uri>();
    !authority.is_empty()
        && is_printable
        && !text.contains("://")
        && !authority.contains('@')
        && url().is_ok_and(|url| url.host().is_some_and(|host| !host.is_empty()))
}

/// Shortens a text for a message, to one line.
fn shown(text: &str) -> String {
    text.chars().take(100).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand_core::OsRng;

    #[test]
    fn every_method_is_read_and_written_back() {
        for (text, written) in [
            ("ipv4:192.0.2.1", "ipv4:192.0.2.1"),
            ("192.0.2.1", "ipv4:192.0.2.1"),
            (" ipv4: 192.0.2.1 ", "ipv4:192.0.2.1"),
            ("ipv6:2001:db8::1", "ipv6:2001:db8::1"),
            ("2001:db8::1", "ipv6:2001:db8::1"),
            ("ipv4:10.0.0.1", "ipv4:10.0.0.1"),
            ("dns:gw.example.com", "dns:gw.example.com"),
            ("dns:gw.example.com.", "dns:gw.example.com."),
            ("lb:submariner-gateway", "lb:submariner-gateway"),
            ("api:ifconfig.me", "api:ifconfig.me"),
            ("api:example.com:8443/a/b?c=d", "api:example.com:8443/a/b?c=d"),
        ] {
            assert_eq!(Resolver::parse(text).map(|resolver| resolver.to_string()), Ok(written.to_owned()));
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_would() {
        for (text, part) in [
            ("ftp:example.com", METHODS),
            ("example.com", METHODS),
            ("IPV4:192.0.2.1", METHODS),
            ("ipv4:2001:db8::1", "an IPv4 address"),
            ("ipv4:192.0.2.256", "an IPv4 address"),
            ("ipv6:192.0.2.1", "an IPv6 address"),
            ("ipv4:127.0.0.1", "the address of a host"),
            ("0.0.0.0", "the address of a host"),
            ("ipv4:255.255.255.255", "the address of a host"),
            ("ff02::1", "the address of a host"),
            ("dns:", "a DNS name"),
            ("dns:a..b", "a DNS name"),
            ("lb:a/../b", "a Service"),
            ("api:", "a host and a path"),
            ("api:http://example.com", "without a scheme"),
            ("api:user:word@example.com", "without a scheme"),
            ("api:exa mple.com", "without a scheme"),
        ] {
            let error = Resolver::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn a_list_keeps_its_order_and_what_is_wrong_in_it() {
        let list = Resolvers::read("lb:gw, ,what:x,ipv4:192.0.2.1,");
        assert_eq!(list.entries().len(), 3);
        assert!(list.entries()[1].is_err());
        assert!(Resolvers::parse("lb:gw,what:x").unwrap_err().to_string().contains("what:x"));
        assert!(!list.is_load_balancer_only() && Resolvers::read("lb:gw").is_load_balancer_only());
        assert!(!Resolvers::default().is_load_balancer_only());
    }

    #[test]
    fn a_list_is_bounded() {
        for text in ["lb:a,".repeat(17), "a".repeat(5000)] {
            assert_eq!(Resolvers::parse(&text), Err(SpecError::TooLong));
        }
    }

    #[test]
    fn nothing_configured_means_all_ten_services_in_an_order_of_chance() {
        let lists: Vec<Resolvers> =
            (0..8).map(|_| Resolvers::from_setting(Some(" "), false, &mut OsRng)).collect();
        for list in &lists {
            let mut hosts: Vec<String> = list.valid().map(ToString::to_string).collect();
            hosts.sort();
            hosts.dedup();
            assert_eq!(hosts.len(), 10);
        }
        assert!(lists.iter().any(|list| *list != lists[0]), "one chance in 10!^7");
    }

    #[test]
    fn who_does_not_lead_has_no_load_balancer_and_goes_by_what_else_there_is() {
        let follower = |setting: Option<&str>, is_air_gapped: bool| -> Vec<String> {
            let list = Resolvers::from_setting(setting, is_air_gapped, &mut OsRng);
            let list = list.without_load_balancer(is_air_gapped, &mut OsRng);
            list.valid().map(ToString::to_string).collect()
        };
        assert_eq!(follower(Some("lb:gw,dns:gw.example"), false), ["dns:gw.example"]);
        assert_eq!(follower(Some("lb:gw"), false).len(), 10, "the built-in list");
        assert_eq!(follower(Some("lb:gw"), true), Vec::<String>::new());
        assert_eq!(follower(Some("ipv4:192.0.2.1"), false), ["ipv4:192.0.2.1"]);
    }

    #[test]
    fn air_gapped_keeps_only_what_needs_no_network() {
        let setting = "api:ifconfig.me,dns:a.b,lb:gw,bad:x,ipv4:192.0.2.1";
        let list = Resolvers::from_setting(Some(setting), true, &mut OsRng);
        assert_eq!(list.entries(), [Ok(Resolver::Ipv4(Ipv4Addr::new(192, 0, 2, 1)))]);
        assert!(Resolvers::from_setting(None, true, &mut OsRng).is_empty());
    }

    proptest! {
        #[test]
        fn no_text_panics_and_what_is_read_is_read_back(text in "\\PC{0,40}|(api|dns|lb|ipv4|ipv6):[a-z0-9.:/@-]{0,30}") {
            if let Ok(resolver) = Resolver::parse(&text) {
                prop_assert_eq!(Resolver::parse(&resolver.to_string()), Ok(resolver));
            }
            let _ = Resolvers::read(&text);
        }
    }
}

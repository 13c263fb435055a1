//! One round: the resolvers in order, the first success wins.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use super::error::LookupError;
use super::lookup::{Ingress, Lookup};
use super::spec::{Resolver, Resolvers, is_host};

/// Ours: longest piece of a body that is looked at as one number or address, in bytes.
const MAX_TOKEN_BYTES: usize = 15;

/// A public address and where it is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolution {
    /// The address.
    pub address: IpAddr,
    /// The resolver that said so.
    pub resolver: Resolver,
}

/// Every resolver's failure, in order. Its text is `RESOLVER: REASON; RESOLVER: REASON`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Failures(Vec<String>);

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("no resolver is configured");
        }
        f.write_str(&self.0.join("; "))
    }
}

impl std::error::Error for Failures {}

impl Failures {
    /// Returns the failures so far of a round under way, and the resolver that has not answered yet.
    pub(super) fn so_far(&self, asked: &Resolvers) -> Self {
        let waiting = asked.entries().iter().skip(self.0.len()).map(|entry| match entry {
            Ok(resolver) => format!("{resolver}: no answer yet"),
            Err(error) => error.to_string(),
        });
        Self(self.0.iter().cloned().chain(waiting).collect())
    }
}

/// Tries the resolvers in order, one try each.
///
/// # Errors
/// [`Failures`] when none of them has an address.
pub async fn resolve<L: Lookup>(resolvers: &Resolvers, lookup: &L) -> Result<Resolution, Failures> {
    resolve_aloud(resolvers, lookup, |_| ()).await
}

/// Resolves as [`resolve`] does; reports all failures so far after each.
pub(super) async fn resolve_aloud<L: Lookup>(
    resolvers: &Resolvers,
    lookup: &L,
    report: impl Fn(&Failures) + Send,
) -> Result<Resolution, Failures> {
    let mut failures = Failures::default();
    for entry in resolvers.entries() {
        let resolver = match entry {
            Ok(resolver) => resolver,
            Err(error) => {
                failures.0.push(error.to_string());
                report(&failures);
                continue;
            }
        };
        match ask(resolver, lookup).await {
            Ok(address) => return Ok(Resolution { address, resolver: resolver.clone() }),
            Err(error) => failures.0.push(format!("{resolver}: {error}")),
        }
        report(&failures);
    }
    Err(failures)
}

async fn ask<L: Lookup>(resolver: &Resolver, lookup: &L) -> Result<IpAddr, LookupError> {
    match resolver {
        Resolver::Ipv4(address) => Ok((*address).into()),
        Resolver::Ipv6(address) => Ok((*address).into()),
        Resolver::Api(host_and_path) => {
            let body = lookup.fetch(&format!("https://{host_and_path}")).await?;
            first_host_in(&body).map(IpAddr::V4).ok_or(LookupError::NoAddressInBody)
        }
        Resolver::Dns(name) => lowest(name, lookup).await,
        Resolver::LoadBalancer(service) => match lookup.ingress(service).await? {
            Ingress::Ip(address) => Ok(address),
            Ingress::Hostname(name) => lowest(&name, lookup).await,
        },
    }
}

/// Returns the lowest of a name's addresses: which one the server names first changes from query to query.
async fn lowest<L: Lookup>(name: &str, lookup: &L) -> Result<IpAddr, LookupError> {
    let addresses = lookup.addresses(name).await?;
    let hosts = addresses.into_iter().filter(|address| is_host((*address).into()));
    hosts.min().map(IpAddr::V4).ok_or_else(|| LookupError::NoRecord(name.to_owned()))
}

/// Finds the first dotted quad in a body that is a host's address. A text of fewer or more than four parts, as versions
/// have, is none.
pub fn first_host_in(body: &[u8]) -> Option<Ipv4Addr> {
    let tokens = body.split(|byte| !byte.is_ascii_digit() && *byte != b'.');
    tokens.filter_map(quad).find(|address| is_host((*address).into()))
}

fn quad(token: &[u8]) -> Option<Ipv4Addr> {
    let token = token.strip_suffix(b".").unwrap_or(token);
    if token.len() > MAX_TOKEN_BYTES {
        return None;
    }
    std::str::from_utf8(token).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[tokio::test]
    async fn every_method_has_its_address() {
        let lookup = Fake::default()
            .fetching("https://ip.example/plain", "your address: 192.0.2.7.\n")
            .naming("gw.example", &["203.0.113.9", "198.51.100.1", "203.0.113.1"])
            .naming("lb.example", &["192.0.2.200"])
            .serving("by-ip", Ingress::Ip("192.0.2.100".parse().unwrap()))
            .serving("by-name", Ingress::Hostname("lb.example".to_owned()));
        for (text, expected) in [
            ("ipv4:192.0.2.1", "192.0.2.1"),
            ("ipv6:2001:db8::1", "2001:db8::1"),
            ("api:ip.example/plain", "192.0.2.7"),
            ("dns:gw.example", "198.51.100.1"),
            ("lb:by-ip", "192.0.2.100"),
            ("lb:by-name", "192.0.2.200"),
        ] {
            let resolution = resolve(&Resolvers::read(text), &lookup).await.unwrap();
            assert_eq!(resolution.address.to_string(), expected);
            assert_eq!(resolution.resolver.to_string(), text);
        }
    }

    #[tokio::test]
    async fn the_first_success_of_a_list_wins() {
        let lookup = Fake::default().naming("gw.example", &["192.0.2.7"]);
        let list = Resolvers::read("api:down.example,nonsense,dns:gw.example,ipv4:192.0.2.9");
        let resolution = resolve(&list, &lookup).await.unwrap();
        assert_eq!(
            (resolution.address.to_string().as_str(), resolution.resolver.to_string().as_str()),
            ("192.0.2.7", "dns:gw.example")
        );
    }

    #[tokio::test]
    async fn when_all_fail_each_says_why() {
        let lookup = Fake::default()
            .naming("none.example", &[])
            .naming("self.example", &["127.0.0.1"])
            .fetching("https://text.example", "no idea");
        let list = Resolvers::read(
            "api:down.example,ftp:x,dns:none.example,dns:self.example,api:text.example,lb:gw",
        );
        let message = resolve(&list, &lookup).await.unwrap_err().to_string();
        let parts: Vec<&str> = message.split("; ").collect();
        assert_eq!(parts[0], "api:down.example: timed out after 30 s");
        assert!(parts[1].starts_with("`ftp:x` begins with no method"), "{message}");
        assert_eq!(parts[2], "dns:none.example: no A record for none.example");
        assert_eq!(parts[3], "dns:self.example: no A record for self.example");
        assert_eq!(parts[4], "api:text.example: the answer holds no address of a host");
        assert_eq!(parts[5], "lb:gw: there is no such Service");
    }

    #[tokio::test]
    async fn an_empty_list_says_so() {
        let error = resolve(&Resolvers::default(), &Fake::default()).await.unwrap_err();
        assert_eq!(error.to_string(), "no resolver is configured");
    }

    #[test]
    fn the_first_host_address_in_a_body_is_found() {
        for (body, expected) in [
            ("192.0.2.1", Some("192.0.2.1")),
            ("{\"ip\":\"192.0.2.1\"}\n", Some("192.0.2.1")),
            ("<p>192.0.2.1.</p>", Some("192.0.2.1")),
            ("server 2.4.58, you are 192.0.2.1", Some("192.0.2.1")),
            ("build 1.2.3.4.5 192.0.2.1", Some("192.0.2.1")),
            ("via 127.0.0.1, 0.0.0.0, 224.0.0.251, 255.255.255.255: 192.0.2.1", Some("192.0.2.1")),
            ("10.0.0.7 192.0.2.1", Some("10.0.0.7")),
            ("192.0.2.256 1.2.3 999.1.1.1 01.02.03.04", None),
            ("2001:db8::192.0.2.1", Some("192.0.2.1")),
            ("", None),
        ] {
            assert_eq!(
                first_host_in(body.as_bytes()).map(|ip| ip.to_string()).as_deref(),
                expected,
                "{body}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_body_panics_and_only_hosts_come_out(body in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'.'), b'0'..=b'9'], 0..300)) {
            if let Some(address) = first_host_in(&body) {
                prop_assert!(is_host(address.into()));
            }
        }
    }

    #[derive(Default)]
    struct Fake {
        bodies: BTreeMap<String, String>,
        names: BTreeMap<String, Vec<Ipv4Addr>>,
        services: BTreeMap<String, Ingress>,
    }

    impl Fake {
        fn fetching(mut self, url: &str, body: &str) -> Self {
            self.bodies.insert(url.to_owned(), body.to_owned());
            self
        }

        fn naming(mut self, name: &str, addresses: &[&str]) -> Self {
            self.names.insert(name.to_owned(), addresses.iter().map(|text| text.parse().unwrap()).collect());
            self
        }

        fn serving(mut self, service: &str, ingress: Ingress) -> Self {
            self.services.insert(service.to_owned(), ingress);
            self
        }
    }

    impl Lookup for Fake {
        async fn fetch(&self, url: &str) -> Result<Vec<u8>, LookupError> {
            let body = self.bodies.get(url).map(|body| body.clone().into_bytes());
            body.ok_or(LookupError::TimedOut)
        }

        async fn addresses(&self, name: &str) -> Result<Vec<Ipv4Addr>, LookupError> {
            self.names.get(name).cloned().ok_or_else(|| LookupError::NoRecord(name.to_owned()))
        }

        async fn ingress(&self, service: &str) -> Result<Ingress, LookupError> {
            self.services.get(service).cloned().ok_or(LookupError::NoService)
        }
    }
}

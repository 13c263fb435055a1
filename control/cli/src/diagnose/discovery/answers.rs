//! What the real DNS answers, against what the objects say.

use std::net::{IpAddr, SocketAddr};

use trieste_control::steps::Outcome;
use trieste_discovery::ask::Asked;
use trieste_dns::{Label, Survey};

use super::evidence::ZONE;
use crate::discovery::Service;

/// A question for a service, and what may be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Expected {
    /// The service, as remarks name it.
    pub(super) about: String,
    pub(super) name: String,
    /// `A` or `AAAA`.
    pub(super) rtype: &'static str,
    /// The addresses of which an answer consists.
    pub(super) now: Vec<IpAddr>,
    /// All addresses of the service, whichever cluster is chosen.
    pub(super) ever: Vec<IpAddr>,
}

/// What came of a question. Where there is no answer it says why.
pub(super) type Answer = Result<Asked, String>;

impl Expected {
    /// Returns the questions for a service: one for each family that is answered.
    pub(super) fn of(service: &Service) -> Vec<Self> {
        let Some(survey) = &service.survey else { return Vec::new() };
        let name = format!("{}.{}.svc.{ZONE}", service.name.name, service.name.namespace);
        let question = |rtype, clusters: &[Label], is_family: fn(&IpAddr) -> bool| {
            let now = answered(survey, clusters).filter(is_family).collect::<Vec<_>>();
            let all = survey.clusters.iter().flat_map(|cluster| &cluster.addresses).chain(&survey.ips);
            let ever = all.copied().filter(is_family).collect();
            let (about, name) = (service.name.to_string(), name.clone());
            (!now.is_empty()).then_some(Self { about, name, rtype, now, ever })
        };
        let v4 = question("A", &survey.v4, IpAddr::is_ipv4);
        v4.into_iter().chain(question("AAAA", &survey.v6, IpAddr::is_ipv6)).collect()
    }

    /// Evaluates an answer. Says nothing of one that is right.
    pub(super) fn evaluate(&self, answer: &Answer) -> Option<(Outcome, String)> {
        let Self { about, name, rtype, .. } = self;
        let failed = |text: String| Some((Outcome::Failure, format!("{about}: {text}")));
        let asked = match answer {
            Ok(asked) => asked,
            Err(why) => return failed(format!("{name} {rtype} has no answer: {why}")),
        };
        let server = asked.server;
        let meaning = match asked.code.as_str() {
            "NOERROR" => None,
            "NXDOMAIN" => Some("the server does not know the name"),
            "SERVFAIL" => {
                Some("the server has not read all objects yet, or cannot reach the one that it forwards to")
            }
            "REFUSED" => Some("the server is not for this zone"),
            _ => Some("the server does not answer such questions"),
        };
        if let Some(meaning) = meaning {
            return failed(format!("{name} {rtype} is {} at {server}: {meaning}", asked.code));
        }
        let found = asked.addresses();
        let expected = list(&self.now);
        if found.is_empty() {
            return failed(format!("{name} {rtype} has no address at {server}, and should have {expected}"));
        }
        if found.iter().all(|address| self.now.contains(address)) {
            return None;
        }
        let text = format!("{name} {rtype} is {} at {server}, and should be {expected}", list(&found));
        if found.iter().all(|address| self.ever.contains(address)) {
            let why =
                "the server sees other readiness or connections than this command; ask again in some seconds";
            return Some((Outcome::Warning, format!("{about}: {text}: {why}")));
        }
        failed(format!(
            "{text}: no EndpointSlice has that address; does the server read this cluster's objects?"
        ))
    }

    /// Evaluates what the DNS server itself says, where the cluster's DNS has not answered well: which of the two is broken.
    pub(super) fn evaluate_direct(&self, server: SocketAddr, answer: &Answer) -> String {
        match self.evaluate(answer) {
            None => format!(
                "the DNS server itself ({server}) answers it: the cluster's DNS does not forward; has it taken in its \
                 configuration, and is there a cache on the node (NodeLocal DNSCache) between?"
            ),
            Some((_, text)) => {
                format!("nor does the DNS server itself ({server}): {text}; look at its log and its /ready")
            }
        }
    }
}

/// Returns the addresses that are answered of these clusters, or the clusterset IPs.
fn answered<'s>(survey: &'s Survey, clusters: &[Label]) -> impl Iterator<Item = IpAddr> + use<'s> {
    let chosen = survey.clusters.iter().filter(|cluster| clusters.contains(&cluster.id));
    let of_clusters: Vec<IpAddr> = chosen.flat_map(|cluster| cluster.addresses.iter().copied()).collect();
    survey.ips.iter().copied().chain(of_clusters)
}

fn list(addresses: &[IpAddr]) -> String {
    const MOST: usize = 4;
    let shown: Vec<String> = addresses.iter().take(MOST).map(ToString::to_string).collect();
    let rest = addresses.len().saturating_sub(MOST);
    if rest == 0 { shown.join(", ") } else { format!("{} and {rest} more", shown.join(", ")) }
}

//! Which IKE SAs and child SAs there are to be with a peer, and who begins (wireformat §4.2).

use std::net::IpAddr;

use ipnet::IpNet;

use super::PeerConfig;
use crate::boundary::Site;
use crate::ipsec::announced::{PREFERRED_SERVER, is_trieste};
use crate::ipsec::wire::Id;
use crate::ipsec::{Selector, Selectors};

/// Who begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Both.
    Bidirectional,
    /// The peer; it may be anywhere.
    Server,
    /// We.
    Client,
}

impl Mode {
    /// As the two sites agree on it.
    pub(super) fn of(local: &Site, remote: &Site) -> Self {
        let Some(is_remote_server) = preference(remote) else { return Self::Bidirectional };
        match (preference(local) == Some(true), is_remote_server) {
            (false, false) => Self::Bidirectional,
            (true, false) => Self::Server,
            (false, true) => Self::Client,
            (true, true) if local.cable_name > remote.cable_name => Self::Server,
            (true, true) => Self::Client,
        }
    }

    /// The word for people.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Bidirectional => "bidirectional",
            Self::Server => "server",
            Self::Client => "client",
        }
    }

    /// Whether we begin.
    pub(super) fn initiates(self) -> bool {
        self != Self::Server
    }
}

fn preference(site: &Site) -> Option<bool> {
    site.backend_config.get(PREFERRED_SERVER).map(|value| value.eq_ignore_ascii_case("true"))
}

/// An IKE SA that there is to be, with its child SAs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    /// Who we are.
    pub(super) local_id: Id,
    /// Who the peer is.
    pub(super) remote_id: Id,
    /// What for; the first one in IKE_AUTH.
    pub(super) children: Vec<Selectors>,
}

/// What there is to be with a peer.
///
/// Between Trieste gateways: one IKE SA with one child SA for all subnets. Towards upstream one child SA for each pair
/// of subnets; all in one IKE SA if both begin, or each in one of its own, named by the numbers of the subnets.
pub(super) fn plans(config: &PeerConfig) -> Vec<Plan> {
    let (local, remote) = (&config.local, &config.remote);
    let (local_id, remote_id) = (Id::from(local.private_ip), Id::from(remote.private_ip));
    let (ours, theirs) = (subnets(local), subnets(remote));
    if is_trieste(local) && is_trieste(remote) {
        let side =
            |subnets: &[(usize, IpNet)]| subnets.iter().map(|(_, net)| Selector::subnet(*net)).collect();
        let children = vec![Selectors { local: side(&ours), remote: side(&theirs) }];
        return vec![Plan { local_id, remote_id, children }];
    }
    let pairs = ours.iter().flat_map(|ours| theirs.iter().map(move |theirs| (*ours, *theirs)));
    let pairs = pairs.filter(|((_, ours), (_, theirs))| is_ipv4(*ours) == is_ipv4(*theirs));
    let pair = |ours: IpNet, theirs: IpNet| Selectors {
        local: vec![Selector::subnet(ours)],
        remote: vec![Selector::subnet(theirs)],
    };
    if Mode::of(local, remote) == Mode::Bidirectional {
        let children = pairs.map(|((_, ours), (_, theirs))| pair(ours, theirs)).collect();
        return vec![Plan { local_id, remote_id, children }];
    }
    pairs
        .map(|((i, ours), (j, theirs))| Plan {
            local_id: Id::Fqdn(format!("{}-{i}-{j}", local.private_ip)),
            remote_id: Id::Fqdn(format!("{}-{j}-{i}", remote.private_ip)),
            children: vec![pair(ours, theirs)],
        })
        .collect()
}

/// A site's subnets with their numbers, without those that upstream leaves out: its own address, as old releases
/// publish it.
fn subnets(site: &Site) -> Vec<(usize, IpNet)> {
    let is_own = |net: &IpNet| net.addr() == site.private_ip;
    site.subnets.iter().copied().enumerate().filter(|(_, net)| !is_own(net)).collect()
}

fn is_ipv4(net: IpNet) -> bool {
    matches!(net.addr(), IpAddr::V4(_))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use trieste_packet::LaneId;

    use super::*;
    use crate::ipsec::announced::{TRIESTE, TRIESTE_VERSION};

    fn site(name: &str, ip: &str, subnets: &[&str], settings: &[(&str, &str)]) -> Site {
        Site {
            cable_name: name.to_owned(),
            private_ip: ip.parse().unwrap(),
            public_ip: None,
            subnets: subnets.iter().map(|net| net.parse().unwrap()).collect(),
            driver: String::new(),
            backend_config: settings.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        }
    }

    fn peer(local: Site, remote: Site) -> PeerConfig {
        PeerConfig::new(LaneId(1), local, remote)
    }

    #[test]
    fn roles_follow_both_sites_preferences() {
        let with = |name: &str, value: Option<&str>| {
            let mut site = site(name, "10.0.0.1", &[], &[]);
            site.backend_config =
                value.map(|value| (PREFERRED_SERVER.to_owned(), value.to_owned())).into_iter().collect();
            site
        };
        let mode = |local, remote| Mode::of(&with("b", local), &with("a", remote));
        assert_eq!(mode(Some("true"), None), Mode::Bidirectional);
        assert_eq!(mode(Some("false"), Some("false")), Mode::Bidirectional);
        assert_eq!(mode(Some("true"), Some("false")), Mode::Server);
        assert_eq!(mode(None, Some("true")), Mode::Client);
        assert_eq!(mode(Some("true"), Some("true")), Mode::Server);
        assert_eq!(Mode::of(&with("a", Some("true")), &with("b", Some("true"))), Mode::Client);
    }

    #[test]
    fn trieste_gateways_have_one_child_sa_for_all_subnets() {
        let ours = [(TRIESTE, TRIESTE_VERSION)];
        let local = site("a", "10.0.0.1", &["10.1.0.0/16", "10.11.0.0/16"], &ours);
        let plans = plans(&peer(local, site("b", "10.0.0.2", &["10.2.0.0/16", "fd02::/16"], &ours)));
        assert_eq!(plans.len(), 1);
        assert_eq!(plans[0].children.len(), 1);
        assert_eq!(plans[0].children[0].to_string(), "10.1.0.0/16,10.11.0.0/16 === 10.2.0.0/16,fd02::/16");
    }

    #[test]
    fn upstream_has_one_child_sa_for_each_pair_of_subnets() {
        let local = site("a", "10.0.0.1", &["10.1.0.0/16", "10.0.0.1/32", "10.11.0.0/16"], &[]);
        let remote = site("b", "10.0.0.2", &["10.2.0.0/16", "10.12.0.0/16"], &[]);
        let plans = plans(&peer(local, remote));
        assert_eq!(plans.len(), 1);
        assert_eq!(plans[0].local_id.to_string(), "10.0.0.1");
        let children: Vec<String> = plans[0].children.iter().map(ToString::to_string).collect();
        let expected = [
            "10.1.0.0/16 === 10.2.0.0/16",
            "10.1.0.0/16 === 10.12.0.0/16",
            "10.11.0.0/16 === 10.2.0.0/16",
            "10.11.0.0/16 === 10.12.0.0/16",
        ];
        assert_eq!(children, expected);
    }

    #[test]
    fn servers_and_clients_have_an_ike_sa_for_each_pair_and_names_that_mirror() {
        let server = |name, ip, nets: &[&str]| site(name, ip, nets, &[(PREFERRED_SERVER, "true")]);
        let client = |name, ip, nets: &[&str]| site(name, ip, nets, &[(PREFERRED_SERVER, "false")]);
        let (a, b) = (["10.1.0.0/16"], ["10.2.0.0/16", "10.12.0.0/16"]);
        let here = plans(&peer(client("a", "10.0.0.1", &a), server("b", "10.0.0.2", &b)));
        let there = plans(&peer(server("b", "10.0.0.2", &b), client("a", "10.0.0.1", &a)));
        let names = |plans: &[Plan]| -> Vec<(String, String)> {
            plans.iter().map(|plan| (plan.local_id.to_string(), plan.remote_id.to_string())).collect()
        };
        let expected = [("10.0.0.1-0-0", "10.0.0.2-0-0"), ("10.0.0.1-0-1", "10.0.0.2-1-0")];
        assert_eq!(names(&here), expected.map(|(l, r)| (l.to_owned(), r.to_owned())));
        let mirrored: Vec<_> = names(&there).into_iter().map(|(l, r)| (r, l)).collect();
        assert_eq!(names(&here), mirrored);
        assert_eq!(BTreeMap::from_iter(mirrored).len(), 2);
    }
}

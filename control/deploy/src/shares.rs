//! Who has which global addresses, and who gives which clusterset IPs, as the broker's ConfigMaps say it (api §12.2), and the
//! share that a cluster takes when it joins.
//!
//! ```text
//!   read ──▶ choose ──▶ Share                                      changes nothing
//!   take: read ──▶ choose ──▶ update, if nobody was faster ──▶ …    until it is written
//! ```
//!
//! A share is an aligned block, the first that is free. The ConfigMaps are upstream's to the letter, so that members of
//! both tools take their shares from one range.

mod allocations;
mod kind;

use std::net::IpAddr;

use ipnet::IpNet;
use trieste_control::api::{ClusterSpec, overlap};

pub use allocations::Allocations;
pub use kind::{CLUSTERSET_IPS, CLUSTERSET_IPV6, GLOBALNET, Kind};

use crate::error::DeployError;
use crate::object_ref::ObjectRef;
use crate::objects::{MemberOptions, addresses, usable_range};
use crate::preflight::Finding;
use crate::server::Server;

/// How often a share is chosen anew because another cluster has been faster.
const ATTEMPTS: usize = 16;

/// What was said of the share.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wish {
    /// These addresses and no others.
    pub cidr: Option<IpNet>,
    /// So many, rounded up to a power of two; what the broker gives if nothing is said.
    pub size: Option<u32>,
}

/// The addresses of a cluster, and where they come from.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    /// The addresses.
    pub cidr: IpNet,
    /// Where they come from.
    pub origin: Origin,
    kind: &'static Kind,
}

/// Where a share comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The first that is free.
    Allocated,
    /// The broker's book has it from an earlier join.
    Kept,
    /// It was said.
    Said,
    /// It was said, and is another one than before.
    Changed(IpNet),
}

/// Networks that a share must not overlap, and whose they are.
#[derive(Debug, Clone, Default)]
pub struct Foreign(Vec<(String, Vec<IpNet>)>);

impl Foreign {
    /// This cluster's own pods and services, and whatever other members have and publish.
    pub fn of(id: &str, inside: &[IpNet], others: &[ClusterSpec]) -> Self {
        let mut all = vec![("this cluster".to_owned(), inside.to_vec())];
        for other in others.iter().filter(|other| other.cluster_id != id) {
            // One that cannot be read is told of elsewhere.
            let Ok(facts) = other.parse() else { continue };
            let nets = [facts.global_cidr, facts.service_cidr, facts.cluster_cidr].concat();
            all.push((format!("cluster {}", facts.cluster_id), nets));
        }
        Self(all)
    }

    /// The network that a share would overlap, and whose it is.
    fn clash(&self, cidr: IpNet) -> Option<(IpNet, &str)> {
        let theirs = |nets: &[IpNet]| overlap(&[cidr], nets).map(|(_, theirs)| theirs);
        self.0.iter().find_map(|(owner, nets)| Some((theirs(nets)?, owner.as_str())))
    }

    /// Returns the networks of the family of a kind.
    fn of_kind(&self, kind: &Kind) -> impl Iterator<Item = IpNet> {
        self.0.iter().flat_map(|(_, nets)| nets).copied().filter(|net| kind.is_of(net))
    }
}

/// Reads one of the broker's allocationss; `None` if the broker has none, or has no globalnet.
///
/// # Errors
/// [`DeployError`] if the server does not answer, or the ConfigMap makes no sense.
pub(crate) async fn read(
    broker: &Server,
    namespace: &str,
    kind: &'static Kind,
) -> Result<Option<Allocations>, DeployError> {
    let config = match broker.find(&place(namespace, kind)).await {
        // A broker deployed by a former release does not let anybody look for what it does not have.
        Err(DeployError::Api { code: Some(403), .. }) if kind.is_ipv6 => None,
        config => config?,
    };
    let config = config.filter(|map| kind.is_for_all || kind.is_enabled(map));
    let config = config.filter(|map| !kind.is_ipv6 || !kind.range_of(map).is_empty());
    config.map(|map| Allocations::read(&map, kind)).transpose().map_err(|reason| {
        let name = kind.config_map;
        DeployError::refused(
            format!("the ConfigMap {name} of the broker cannot be read: {reason}"),
            format!(
                "look at it on the broker's cluster: kubectl -n {namespace} get configmap {name} -o yaml"
            ),
        )
    })
}

/// Chooses a cluster's share, without writing it down.
///
/// # Errors
/// Why there is none, and what to do.
pub fn choose(allocations: &Allocations, id: &str, wish: Wish, foreign: &Foreign) -> Result<Share, Finding> {
    let before = allocations.share_of(id);
    let share = match (wish.cidr, wish.size, before) {
        (Some(_), Some(_), _) => {
            let text = format!(
                "{} says how many addresses there are: --globalnet-cluster-size says it again",
                allocations.kind().flag
            );
            return Err(Finding::bad(text, "say one of the two"));
        }
        (Some(cidr), None, before) => said(allocations, id, cidr, before, foreign)?,
        (None, _, Some(cidr)) => Share { cidr, origin: Origin::Kept, kind: allocations.kind() },
        (None, size, None) => allocate(allocations, id, size, foreign)?,
    };
    if let Some((net, owner)) = foreign.clash(share.cidr) {
        let text = format!("the {} {} overlaps {net} of {owner}", allocations.kind().cidr, share.cidr);
        return Err(Finding::bad(text, format!("say another one with {}", allocations.kind().flag)));
    }
    Ok(share)
}

fn said(
    allocations: &Allocations,
    id: &str,
    cidr: IpNet,
    before: Option<IpNet>,
    foreign: &Foreign,
) -> Result<Share, Finding> {
    let (cidr, kind) = (cidr.trunc(), allocations.kind());
    if !kind.is_of(&cidr) {
        let text = format!("the {} {cidr} is of the wrong family", kind.cidr);
        return Err(Finding::bad(text, format!("say a part of {}", allocations.range())));
    }
    if let Err(error) = usable_range(kind.flag, cidr) {
        return Err(Finding::bad(error.to_string(), "say another one, such as a part of the broker's range"));
    }
    if cidr.prefix_len() > kind.longest_prefix {
        let text = format!("the {} {cidr} is too small: {}", kind.cidr, kind.why_too_small);
        return Err(Finding::bad(text, format!("say one of /{} or larger", kind.longest_prefix)));
    }
    if kind.is_within_range && !allocations.range().contains(&cidr) {
        let text = format!("the {} {cidr} is not in the broker's range {}", kind.cidr, allocations.range());
        return Err(Finding::bad(
            text,
            "say a part of that: other clusters take no others for such addresses",
        ));
    }
    if let Some((theirs, other)) = allocations.taken(id).find(|(net, _)| overlaps(*net, cidr)) {
        let text = format!("the {} {cidr} overlaps {theirs}, which is given to cluster {other}", kind.cidr);
        let free = allocate(allocations, id, None, foreign).map(|share| share.cidr.to_string());
        let next = free.map_or_else(|_| "say another one".to_owned(), |free| format!("{free} is free"));
        return Err(Finding::bad(text, next));
    }
    let origin = match before {
        Some(before) if before == cidr => Origin::Kept,
        Some(before) => Origin::Changed(before),
        None => Origin::Said,
    };
    Ok(Share { cidr, origin, kind })
}

fn allocate(
    allocations: &Allocations,
    id: &str,
    size: Option<u32>,
    foreign: &Foreign,
) -> Result<Share, Finding> {
    let kind = allocations.kind();
    let size = allocations.rounded(size).map_err(|error| Finding::bad(error.to_string(), kind.choose))?;
    let taken: Vec<IpNet> = allocations.taken(id).map(|(net, _)| net).chain(foreign.of_kind(kind)).collect();
    let cidr = first_free(allocations.range(), size, &taken).ok_or_else(|| {
        Finding::bad(
            format!("the broker's range of {} {} has no {size} left", kind.addresses, allocations.range()),
            kind.ask_for_fewer,
        )
    })?;
    Ok(Share { cidr, origin: Origin::Allocated, kind })
}

/// The first aligned block of so many addresses, a power of two, that overlaps nothing.
fn first_free(range: IpNet, size: u32, taken: &[IpNet]) -> Option<IpNet> {
    let (step, last) = (u128::from(size), number(range.broadcast()));
    let prefix = range.max_prefix_len() - u8::try_from(size.trailing_zeros()).ok()?;
    let mut start = number(range.network());
    while start.checked_add(step - 1).is_some_and(|end| end <= last) {
        let block = IpNet::new(address(start, range)?, prefix).ok()?;
        let in_the_way = taken.iter().filter(|net| overlaps(**net, block));
        match in_the_way.map(|net| number(net.broadcast())).max() {
            None => return Some(block),
            // What is in the way ends in this block or after it: the next one that is aligned.
            Some(last) => start = last.checked_add(1)?.checked_next_multiple_of(step)?,
        }
    }
    None
}

/// Returns the number of an address.
fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

/// Returns the address with a number, of the family of a network.
fn address(number: u128, of: IpNet) -> Option<IpAddr> {
    Some(match of {
        IpNet::V4(_) => IpAddr::V4(u32::try_from(number).ok()?.into()),
        IpNet::V6(_) => IpAddr::V6(number.into()),
    })
}

fn overlaps(a: IpNet, b: IpNet) -> bool {
    a.contains(&b) || b.contains(&a)
}

impl Share {
    /// Returns what it is called.
    pub(crate) fn called(&self) -> &'static str {
        self.kind.cidr
    }

    /// What to tell of it.
    pub fn finding(&self, wish: Wish) -> Finding {
        let (cidr, kind) = (self.cidr, self.kind);
        let what = kind.cidr;
        match self.origin {
            Origin::Allocated => Finding::good(format!("Allocated {what} {cidr}")),
            Origin::Said => Finding::good(format!("Using the {what} {cidr}, as said")),
            Origin::Changed(before) => {
                let text = format!("the {what} changes from {before} to {cidr}: {}", kind.what_a_change_does);
                Finding::suspect(text, "")
            }
            Origin::Kept => {
                let is_other = |size: u32| u128::from(size).next_power_of_two() != addresses(cidr);
                match wish.size.filter(|size| is_other(*size)) {
                    Some(size) => Finding::suspect(
                        format!("the cluster has the {what} {cidr} already, which has not {size} addresses"),
                        format!("another one is to be named: {}", kind.flag),
                    ),
                    None => Finding::good(format!("Using the {what} {cidr} of an earlier join")),
                }
            }
        }
    }
}

/// Writes down a member's share, chosen anew if another cluster has been faster, and returns it.
///
/// # Errors
/// [`DeployError`] if the broker does not answer, or there is no share any more.
pub(crate) async fn take(
    broker: &Server,
    member: &MemberOptions,
    kind: &'static Kind,
    (wish, foreign): (Wish, &Foreign),
) -> Result<Share, DeployError> {
    let (id, namespace) = (member.cluster_id.as_str(), member.broker.namespace.as_str());
    for _ in 0..ATTEMPTS {
        let Some(allocations) = read(broker, namespace, kind).await? else {
            return Err(DeployError::refused(kind.gone, "join again"));
        };
        let share = choose(&allocations, id, wish, foreign)
            .map_err(|why| DeployError::refused(why.text, why.next))?;
        if allocations.share_of(id) == Some(share.cidr)
            || broker.replace(&allocations.with(id, share.cidr)).await?
        {
            return Ok(share);
        }
    }
    Err(DeployError::refused(
        format!("the ConfigMap {} of the broker was changed by others all the time", kind.config_map),
        "join again",
    ))
}

fn place(namespace: &str, kind: &Kind) -> ObjectRef {
    ObjectRef::namespaced("v1", "ConfigMap", namespace, kind.config_map)
}

#[cfg(test)]
mod tests;

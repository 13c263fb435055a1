//! Links, addresses, rules and routes over rtnetlink.

mod between_nodes;
mod conntrack;
pub mod nexthops;
mod parse;
mod routes;
mod rules;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use futures::{Stream, TryStreamExt};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use rtnetlink::{Handle, IpVersion};
use tracing::warn;
use trieste_control::devices::UPSTREAM_VXLAN_CABLE;

use self::nexthops::Nexthops;
use super::sysctl::Sysctls;
use super::{Host, PortError, Query, iptables, nft, submariner};
use crate::change::{Change, RouteChange};
use crate::constants::{MARK, RULE_PROTOCOL, VX_DEVICE};
use crate::family::Family;
use crate::guard::ObservedGuard;
use crate::hostnet::{Rule, Sysctl};
use crate::nexthops::NexthopChange;
use crate::nft::{CLUSTERSET_TABLE, SERVICES_TABLE};
use crate::observed::{Link, Observed, ObservedRule};
use crate::services::ObservedServices;
use crate::services::render::render;
use crate::state::{DeviceAddress, ResolvedRoute};
use crate::submariner::Removal;
use crate::takeover::Takeover;

/// The network namespace that this process is in.
pub struct Kernel {
    handle: RefCell<Handle>,
    sysctls: Sysctls,
}

impl Kernel {
    /// Opens a netlink socket. Needs a tokio runtime, on which the socket is served.
    ///
    /// # Errors
    ///
    /// The kernel has no rtnetlink, or no strict checking of requests (Linux 4.20).
    pub fn open() -> Result<Self, PortError> {
        Ok(Self { handle: RefCell::new(connect()?), sysctls: Sysctls::from_environment() })
    }

    fn handle(&self) -> Handle {
        self.handle.borrow().clone()
    }

    async fn links(&self) -> Result<BTreeMap<String, Link>, PortError> {
        let messages = collect(self.handle().link().get().execute()).await?;
        Ok(messages.iter().filter_map(parse::link).collect())
    }

    async fn addresses(&self, names: &BTreeMap<u32, &str>) -> Result<BTreeSet<DeviceAddress>, PortError> {
        let messages = collect(self.handle().address().get().execute()).await?;
        Ok(messages.iter().filter_map(|message| address(message, names)).collect())
    }

    async fn rules(&self, family: Family) -> Result<Vec<ObservedRule>, PortError> {
        let messages = collect(self.handle().rule().get(version(family)).execute()).await?;
        Ok(messages.iter().filter_map(parse::rule).collect())
    }

    /// Looks up the route to an address in the main table; `None` if there is none.
    async fn lookup_route(&self, to: IpAddr, names: &BTreeMap<u32, &str>) -> Option<ResolvedRoute> {
        let mut message = RouteMessage::default();
        message.header.address_family = address_family(Family::of(to));
        message.header.destination_prefix_length = if to.is_ipv4() { 32 } else { 128 };
        // As our own sockets are marked: past the tables that remote networks are in.
        message
            .attributes
            .extend([RouteAttribute::Destination(RouteAddress::from(to)), RouteAttribute::Mark(MARK)]);
        let answer = collect(self.handle().route().get(message).execute()).await.ok()?;
        parse::resolved_route(answer.first()?, names)
    }

    async fn index_of(&self, device: &str) -> Result<u32, PortError> {
        let request = self.handle().link().get().match_name(device);
        match collect(request.execute()).await {
            Ok(messages) => messages.first().map(|message| message.header.index),
            Err(_) => None,
        }
        .ok_or_else(|| PortError::NoDevice(device.to_owned()))
    }
}

impl Host for Kernel {
    async fn observe(&self, query: &Query) -> Result<Observed, PortError> {
        // A socket per pass: one that broke costs no more than that pass.
        let handle = connect()?;
        self.handle.replace(handle);
        let links = self.links().await?;
        let names = links.iter().map(|(name, link)| (link.index, name.as_str())).collect();
        let addresses = self.addresses(&names).await?;
        let filters = addresses.iter().map(|address| Sysctl::of(Family::V4, &address.device, "rp_filter"));
        let sysctls = self.sysctls.read(&query.sysctls.iter().cloned().chain(filters).collect());
        let mut observed = Observed { addresses, sysctls, ..Observed::default() };
        observed.families.retain(|family| self.sysctls.has_family(*family));
        for family in observed.families.clone() {
            observed.rules.extend(self.rules(family).await?);
            observed.routes.extend(self.routes(family, &names).await?);
        }
        for address in &query.lookup_addresses {
            observed
                .resolved_routes
                .extend(self.lookup_route(*address, &names).await.map(|route| (*address, route)));
        }
        match Nexthops::open()?.read(&names)? {
            Some(nexthops) => observed.nexthops = nexthops,
            None => observed.has_nexthops = false,
        }
        if let Some(link) = links.get(VX_DEVICE).filter(|link| link.vxlan.is_some()) {
            observed.forwards = self.forwards(link.index).await?;
            observed.neighbours = self.neighbours(link.index, &observed.families).await?;
        }
        observed.links = links;
        self.filters(&mut observed, query.takeover).await;
        if query.takeover != Takeover::Nothing {
            submariner::observe(&mut observed, query.takeover);
        }
        Ok(observed)
    }

    async fn apply_all(&self, changes: &[&Change]) -> Vec<Result<(), PortError>> {
        let mut outcomes = Vec::new();
        for run in changes.chunk_by(|this, next| this.of_route().is_some() && next.of_route().is_some()) {
            match run {
                [change] => outcomes.push(self.apply(change).await),
                routes => {
                    let routes: Vec<RouteChange<'_>> =
                        routes.iter().filter_map(|change| change.of_route()).collect();
                    outcomes.extend(self.write_routes(&routes).await);
                }
            }
        }
        outcomes
    }

    async fn apply(&self, change: &Change) -> Result<(), PortError> {
        match change {
            Change::Set(setting, value) => self.sysctls.write(setting, *value),
            Change::AddRoute(_) | Change::ReplaceRoute(_) | Change::RemoveRoute(_) => {
                let outcomes = self.write_routes(&change.of_route().into_iter().collect::<Vec<_>>()).await;
                outcomes.into_iter().collect()
            }
            Change::AddRule(rule) => {
                let mut request = self.handle().rule().add();
                *request.message_mut() = rule_message(rule);
                request.execute().await.map_err(refused)
            }
            Change::RemoveRule(rule) => {
                self.handle().rule().del(rule_message(rule)).execute().await.map_err(refused)
            }
            Change::Guard(change) => nft::apply(change).await,
            Change::Services(change) | Change::Clusterset(change) => {
                nft::transact(&render(change)).await?;
                let stale = change.lost_udp();
                if !stale.is_empty() {
                    // The kernel's whole table is read, which notices of gateways must not wait for.
                    tokio::task::spawn_blocking(move || {
                        if let Err(error) = conntrack::remove(&stale) {
                            warn!(%error, "UDP flows of services stay with back ends that are none any more");
                        }
                    });
                }
                Ok(())
            }
            Change::Foreign(change) => match crate::foreign::render(change) {
                Some(transaction) => nft::transact(&transaction).await,
                None => iptables::apply(change).await,
            },
            Change::BetweenNodes(change) => self.apply_between_nodes(change).await,
            Change::Takeover(removal) => self.remove_leftover(removal).await,
            Change::Nexthops(change) => {
                let index = match change {
                    NexthopChange::Set(_, nexthop) => Some(self.index_of(&nexthop.device).await?),
                    NexthopChange::MakeGroup(..) | NexthopChange::SetGroup(..) | NexthopChange::Remove(_) => {
                        None
                    }
                };
                Nexthops::open()?.apply(change, index)
            }
        }
    }
}

impl Kernel {
    /// Removes something of Submariner's.
    async fn remove_leftover(&self, removal: &Removal) -> Result<(), PortError> {
        match removal {
            Removal::Rule { rule, is_wanted } => self.remove_submariners_rule(rule, *is_wanted).await,
            Removal::CableDevice => {
                let index = self.index_of(UPSTREAM_VXLAN_CABLE).await?;
                self.handle().link().del(index).execute().await.map_err(refused)
            }
            Removal::Chains { .. } | Removal::NftTable(_) | Removal::Set(_) | Removal::Policies(_) => {
                submariner::remove(removal).await
            }
        }
    }

    /// Reads the packet filters. One that cannot be read becomes a condition, and nothing is planned for it.
    async fn filters(&self, observed: &mut Observed, takeover: Takeover) {
        match nft::observe().await {
            Ok(guard) => {
                if let ObservedGuard::Present(table) = &guard {
                    observed.loosened = table.loosened();
                }
                observed.guard = guard;
                observed.services = nft::services(SERVICES_TABLE).await.unwrap_or_else(|error| {
                    observed.conditions.insert(error.unread("the packet filter for services"));
                    ObservedServices::Unknown
                });
                observed.clusterset = nft::services(CLUSTERSET_TABLE).await.unwrap_or_else(|error| {
                    observed.conditions.insert(error.unread("the packet filter for clusterset IPs"));
                    ObservedServices::Unknown
                });
                match nft::foreign(&mut observed.leftover).await {
                    Ok(foreign) => observed.foreign = foreign,
                    Err(error) => {
                        observed.leftover.is_incomplete = true;
                        observed.conditions.insert(error.unread("other packet filters"));
                    }
                }
            }
            Err(error) => {
                observed.guard = ObservedGuard::Unknown;
                observed.services = ObservedServices::Unknown;
                observed.clusterset = ObservedServices::Unknown;
                observed.conditions.insert(error.unread("the packet filter"));
            }
        }
        iptables::observe(observed, takeover).await;
    }
}

fn connect() -> Result<Handle, PortError> {
    // Strict checking is what makes dumps honour their filters: a node may have a full BGP table in `main`.
    let (connection, handle, _) = rtnetlink::new_connection_with_strict_check().map_err(PortError::Socket)?;
    tokio::spawn(connection);
    Ok(handle)
}

async fn collect<T>(stream: impl Stream<Item = Result<T, rtnetlink::Error>>) -> Result<Vec<T>, PortError> {
    stream.try_collect().await.map_err(refused)
}

fn refused(error: rtnetlink::Error) -> PortError {
    if let rtnetlink::Error::NetlinkError(message) = error {
        return PortError::Refused { source: message.to_io() };
    }
    PortError::Netlink(error.to_string())
}

fn is_not_found(error: &PortError) -> bool {
    matches!(error, PortError::Refused { source } if source.kind() == std::io::ErrorKind::NotFound)
}

fn address(message: &AddressMessage, names: &BTreeMap<u32, &str>) -> Option<DeviceAddress> {
    // `Local` is the device's own address; `Address` is the far end of a point-to-point device.
    let local = message.attributes.iter().find_map(|attribute| {
        if let AddressAttribute::Local(address) = attribute { Some(*address) } else { None }
    });
    let address = message.attributes.iter().find_map(|attribute| {
        if let AddressAttribute::Address(address) = attribute { Some(*address) } else { None }
    });
    let address: IpAddr = local.or(address)?;
    let device = (*names.get(&message.header.index)?).to_owned();
    let network = ipnet::IpNet::new(address, message.header.prefix_len).ok()?;
    Some(DeviceAddress { device, network })
}

fn version(family: Family) -> IpVersion {
    match family {
        Family::V4 => IpVersion::V4,
        Family::V6 => IpVersion::V6,
    }
}

fn address_family(family: Family) -> AddressFamily {
    match family {
        Family::V4 => AddressFamily::Inet,
        Family::V6 => AddressFamily::Inet6,
    }
}

/// Returns a table's number for a message's header, which has eight bits for it; ours all fit.
fn header_table(table: u32) -> u8 {
    u8::try_from(table).unwrap_or(RouteHeader::RT_TABLE_UNSPEC)
}

fn rule_message(rule: &Rule) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = address_family(rule.family);
    message.header.table = header_table(rule.table);
    message.header.action = RuleAction::ToTable;
    message.attributes.push(RuleAttribute::Priority(rule.priority));
    message.attributes.push(RuleAttribute::Table(rule.table));
    message.attributes.push(RuleAttribute::Protocol(RouteProtocol::from(RULE_PROTOCOL)));
    message.attributes.extend(rule.iif.clone().map(RuleAttribute::Iifname));
    if let Some((mark, mask)) = rule.mark {
        message.attributes.push(RuleAttribute::FwMark(mark));
        message.attributes.push(RuleAttribute::FwMask(mask));
    }
    message
}

//! One trip, as the finders of reasons look at it.

use std::net::IpAddr;

use super::super::evidence::{Cluster, Evidence, Node, Side};
use super::super::trace::Trip;
use super::super::verdict::{Cause, Finding, Hop, Way};
use super::filters;
use crate::node::PacketFacts;
use crate::node::document::NodeReport;

/// A trip and both its ends.
pub(super) struct Context<'a> {
    pub(super) evidence: &'a Evidence,
    pub(super) way: Way,
    pub(super) from: Side,
    pub(super) sender: &'a Cluster,
    pub(super) receiver: &'a Cluster,
}

impl<'a> Context<'a> {
    pub(super) fn new(trip: &'a Trip) -> Self {
        let evidence = &trip.evidence;
        let (sender, receiver) = (evidence.side(trip.from), evidence.side(trip.from.other()));
        Self { evidence, way: trip.way, from: trip.from, sender, receiver }
    }

    /// Returns where the trip's packets go to, as they are written in a side's cluster.
    pub(super) fn destination(&self, on: Side) -> Option<IpAddr> {
        self.evidence.address(self.from.other(), on)
    }

    pub(super) fn is_v6(&self) -> bool {
        let ends = [Side::Source, Side::Destination].map(|side| self.evidence.side(side).pod.address);
        ends.into_iter().flatten().any(|address| address.is_ipv6())
    }

    /// Describes the packet as filters of a side see it between two devices.
    pub(super) fn packet<'p>(&self, on: Side, from: Option<&'p str>, to: Option<&'p str>) -> PacketFacts<'p> {
        PacketFacts {
            source: self.evidence.address(self.from, on),
            destination: self.destination(on),
            protocol: if self.is_v6() { "icmpv6" } else { "icmp" },
            port: None,
            from,
            to,
        }
    }

    pub(super) fn finding(&self, hop: Hop, cause: Cause, reason: impl Into<String>) -> Finding {
        Finding::new(hop, cause, reason).on(self.way)
    }

    /// A filter that stops packets at a hook of a node.
    pub(super) fn filtered(
        &self,
        place: &Place<'_>,
        hook: &str,
        packet: &PacketFacts<'_>,
        cause: Cause,
    ) -> Option<Finding> {
        let found = filters::stopping(place.node, hook, packet)?;
        let reason = format!("a packet filter on node {} drops {}: {}", place.name, found.what, found.rule);
        let finding = self.finding(place.hop, cause, reason).seen_all(found.evidence);
        let finding = finding.remedy(found.remedy.replace("NODE", place.name));
        Some(if found.is_certain { finding } else { finding.possible() })
    }
}

/// A node on the way, and which hop it is.
pub(super) struct Place<'a> {
    pub(super) side: Side,
    pub(super) hop: Hop,
    pub(super) name: &'a str,
    pub(super) node: &'a Node,
    pub(super) cluster: &'a Cluster,
}

impl<'a> Place<'a> {
    /// The worker of a side; `None` if nothing is known of it.
    pub(super) fn worker(cluster: &'a Cluster, side: Side) -> Option<Self> {
        let hop = match side {
            Side::Source => Hop::SourceNode,
            Side::Destination => Hop::DestinationNode,
        };
        Some(Self { side, hop, name: cluster.worker.as_deref()?, node: cluster.worker()?, cluster })
    }

    /// The gateway of a side.
    pub(super) fn gateway(cluster: &'a Cluster, side: Side) -> Option<Self> {
        let hop = match side {
            Side::Source => Hop::SourceGateway,
            Side::Destination => Hop::DestinationGateway,
        };
        Some(Self { side, hop, name: cluster.gateway.as_deref()?, node: cluster.gateway()?, cluster })
    }

    /// Whether it was so in one of the two reports: what is put right within seconds was wrong all the same.
    pub(super) fn ever(&self, is: impl Fn(&NodeReport) -> bool) -> bool {
        self.node.reports().any(is)
    }

    /// How much a counter of the kernel grew.
    pub(super) fn grew(&self, counter: &str) -> u64 {
        self.node.grew(|report| report.counters.get(counter).copied()).unwrap_or(0)
    }

    /// How to see what the route agent says about it.
    pub(super) fn agent_log(&self) -> String {
        let Cluster { kubectl, namespace, .. } = self.cluster;
        format!(
            "kubectl{kubectl} -n {namespace} logs $(kubectl{kubectl} -n {namespace} get pod -o name \
             -l app=submariner-routeagent --field-selector spec.nodeName={})",
            self.name
        )
    }
}

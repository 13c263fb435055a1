//! Follows a probe through the nodes by the sights of it.

use std::net::IpAddr;

use trieste_control::devices::VX_DEVICE;

use super::evidence::{Cluster, Evidence, Node, Side, probe};
use super::verdict::{Hop, Way};
use crate::node::Direction;
use crate::node::Sighting;
use crate::node::wire::What;

/// Where a probe can be seen, in the order in which it passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// Sent, or answered by the pod.
    Start,
    /// Out of `vx-submariner` of the sender's node.
    LeavesWorker,
    /// Out of that node, inside a datagram.
    LeavesCarried,
    /// At the gateway's node, inside that datagram.
    ArrivesCarried,
    /// Into `vx-submariner` of the gateway's node.
    EntersGateway,
    /// Into the gateway's device.
    EntersTunnel,
    /// Out of the other gateway's device.
    LeavesTunnel,
    /// Out of `vx-submariner` of that gateway's node.
    LeavesGateway,
    /// Out of that node, inside a datagram.
    ForwardedCarried,
    /// At the receiver's node, inside that datagram.
    ReceivedCarried,
    /// Into `vx-submariner` of the receiver's node.
    EntersWorker,
    /// On its last device, towards the pod.
    Delivered,
    /// The pod has answered.
    Answered,
}

/// A place, and whether the probe was seen there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stop {
    pub(super) place: Place,
    pub(super) side: Side,
    /// `None` where nobody looked.
    pub(super) seen: Option<bool>,
    /// The source that it had there.
    pub(super) source: Option<IpAddr>,
}

/// A probe on its way in one direction.
#[derive(Debug, Clone)]
pub(super) struct Trip {
    /// What was found out, with the gateways that this trip went by.
    pub(super) evidence: Evidence,
    pub(super) way: Way,
    /// The side that it comes from.
    pub(super) from: Side,
    pub(super) stops: Vec<Stop>,
}

impl Trip {
    /// The last stop where it was seen; the start counts.
    pub(super) fn last_seen(&self) -> usize {
        self.stops.iter().rposition(|stop| stop.seen == Some(true)).unwrap_or(0)
    }

    /// The first stop behind it where somebody looked and saw nothing.
    pub(super) fn first_missed(&self) -> Option<usize> {
        let last = self.last_seen();
        self.stops[last + 1..].iter().position(|stop| stop.seen == Some(false)).map(|at| last + 1 + at)
    }

    /// Whether it is known to have passed a stop: it was seen there or behind it.
    pub(super) fn passed(&self, place: Place) -> bool {
        self.stops.iter().any(|stop| stop.place >= place && stop.seen == Some(true))
    }
}

impl Stop {
    /// The hop that leads here.
    pub(super) const fn hop(&self, from: Side) -> Hop {
        let (there, back) = match self.place {
            Place::Start => (Hop::SourcePod, Hop::DestinationPod),
            Place::LeavesWorker => (Hop::SourceNode, Hop::DestinationNode),
            // Whoever drops the datagram on the gateway's node: it is what goes between the nodes that does not pass.
            Place::LeavesCarried | Place::ArrivesCarried | Place::EntersGateway => {
                (Hop::SourceVxlan, Hop::DestinationVxlan)
            }
            Place::EntersTunnel => (Hop::SourceGateway, Hop::DestinationGateway),
            Place::LeavesTunnel => (Hop::Cable, Hop::Cable),
            Place::LeavesGateway => (Hop::DestinationGateway, Hop::SourceGateway),
            Place::ForwardedCarried | Place::ReceivedCarried | Place::EntersWorker => {
                (Hop::DestinationVxlan, Hop::SourceVxlan)
            }
            Place::Delivered => (Hop::DestinationNode, Hop::SourceNode),
            Place::Answered => (Hop::DestinationPod, Hop::SourcePod),
        };
        match from {
            Side::Source => there,
            Side::Destination => back,
        }
    }
}

/// The way of the pings, there and back.
pub(super) fn trips(evidence: &Evidence) -> [Trip; 2] {
    [trip(evidence, Way::There), trip(evidence, Way::Back)]
}

fn trip(evidence: &Evidence, way: Way) -> Trip {
    let from = match way {
        Way::There => Side::Source,
        Way::Back => Side::Destination,
    };
    let evidence = Look { evidence, way, from }.along();
    let look = Look { evidence: &evidence, way, from };
    let (sender, receiver) = (evidence.side(from), evidence.side(from.other()));
    let mut stops = vec![look.start()];
    if !sender.is_on_gateway() {
        stops.push(look.at(Place::LeavesWorker, from, sender.worker(), |s| is_vx(s, Direction::Out)));
        stops.push(look.at(Place::LeavesCarried, from, sender.worker(), |s| is_carried(s, Direction::Out)));
        stops.push(look.at(Place::ArrivesCarried, from, sender.gateway(), |s| is_carried(s, Direction::In)));
        stops.push(look.at(Place::EntersGateway, from, sender.gateway(), |s| is_vx(s, Direction::In)));
    }
    stops
        .push(look.at(Place::EntersTunnel, from, sender.gateway(), |s| is_tunnel(s, sender, Direction::Out)));
    let to = from.other();
    let is_out_of_tunnel = |s: &Sighting| is_tunnel(s, receiver, Direction::In);
    stops.push(look.at(Place::LeavesTunnel, to, receiver.gateway(), is_out_of_tunnel));
    if !receiver.is_on_gateway() {
        stops.push(look.at(Place::LeavesGateway, to, receiver.gateway(), |s| is_vx(s, Direction::Out)));
        stops.push(
            look.at(Place::ForwardedCarried, to, receiver.gateway(), |s| is_carried(s, Direction::Out)),
        );
        stops.push(look.at(Place::ReceivedCarried, to, receiver.worker(), |s| is_carried(s, Direction::In)));
        stops.push(look.at(Place::EntersWorker, to, receiver.worker(), |s| is_vx(s, Direction::In)));
    }
    stops.extend(look.delivered(to, receiver));
    if way == Way::There {
        stops.push(look.answered());
    }
    Trip { evidence, way, from, stops }
}

struct Look<'a> {
    evidence: &'a Evidence,
    way: Way,
    from: Side,
}

impl Look<'_> {
    /// Returns the evidence with the gateways that the probe went by, where a side has several: each way may have its own.
    fn along(&self) -> Evidence {
        let (evidence, from) = (self.evidence, self.from);
        let mut along = evidence.clone();
        for (side, direction) in [(from, Direction::Out), (from.other(), Direction::In)] {
            let cluster = evidence.side(side);
            if cluster.active_gateways.len() < 2 {
                continue;
            }
            let in_tunnel = |sight: &Sighting| is_tunnel(sight, cluster, direction);
            let on_arrival = |sight: &Sighting| {
                side == from && (is_vx(sight, Direction::In) || is_carried(sight, Direction::In))
            };
            let by_sight =
                self.gateway_with(cluster, in_tunnel).or_else(|| self.gateway_with(cluster, on_arrival));
            // A gateway's own node sends by itself.
            let own = || {
                cluster.gateway_names().find(|name| side == from && cluster.worker.as_deref() == Some(*name))
            };
            let found = by_sight.or_else(own).map(str::to_owned);
            let of_side = match side {
                Side::Source => &mut along.source,
                Side::Destination => &mut along.destination,
            };
            of_side.gateway = found.or_else(|| of_side.gateway.take());
        }
        let is_same = along.source.gateway == evidence.source.gateway
            && along.destination.gateway == evidence.destination.gateway;
        if !is_same {
            // What was sent between two gateways says nothing of two others.
            along.probes.retain(|number, _| !probe::BETWEEN_GATEWAYS.contains(number));
            along.pair_gateways();
        }
        along
    }

    /// Returns the node of the gateway that has seen the probe so.
    fn gateway_with<'c>(&self, cluster: &'c Cluster, is: impl Fn(&Sighting) -> bool) -> Option<&'c str> {
        let has_seen = |node: &Node| {
            let sights = node.watch.iter().flat_map(|watch| &watch.sights);
            sights.into_iter().any(|sight| self.is_ours(sight) && is(sight))
        };
        cluster.gateway_evidence().find(|(_, node)| has_seen(node)).map(|(gateway, _)| gateway.node.as_str())
    }

    fn at(&self, place: Place, side: Side, node: Option<&Node>, is: impl Fn(&Sighting) -> bool) -> Stop {
        let watch = node.and_then(|node| node.watch.as_ref());
        let found =
            watch.and_then(|watch| watch.sights.iter().find(|sight| self.is_ours(sight) && is(sight)));
        let seen = watch.map(|_| found.is_some());
        Stop { place, side, seen, source: found.map(|sight| sight.seen.source) }
    }

    fn is_ours(&self, sight: &Sighting) -> bool {
        let kind = match self.way {
            Way::There => What::EchoRequest,
            Way::Back => What::EchoReply,
        };
        sight.seen.probe == probe::PING && sight.seen.what == kind
    }

    /// Looks at the device towards the pod. One with its node's network has none: of the way back the sender says, of the way
    /// there its answer.
    fn delivered(&self, to: Side, receiver: &Cluster) -> Option<Stop> {
        let last = |s: &Sighting| is_last(s, receiver, Direction::Out);
        let mut stop = self.at(Place::Delivered, to, receiver.worker(), last);
        if receiver.pod.host_network {
            if self.from == Side::Source {
                return None;
            }
            stop.seen = self.evidence.probe(probe::PING).map(|report| report.answered() > 0);
        }
        Some(stop)
    }

    /// There: the probe was sent. Back: the destination has answered.
    fn start(&self) -> Stop {
        match self.way {
            Way::There => {
                let sent = self
                    .evidence
                    .probe(probe::PING)
                    .map(|report| report.sent.iter().any(|packet| packet.refused.is_none()));
                Stop { place: Place::Start, side: self.from, seen: sent, source: None }
            }
            Way::Back => Stop { place: Place::Start, ..self.reply() },
        }
    }

    fn answered(&self) -> Stop {
        let mut stop = Look { way: Way::Back, from: Side::Destination, ..*self }.reply();
        // That of the answer is another matter.
        stop.source = None;
        // An answer that arrived somewhere was given.
        let is_answered = self.evidence.probe(probe::PING).is_some_and(|report| report.answered() > 0);
        if is_answered {
            stop.seen = Some(true);
        }
        stop
    }

    /// The reply, on its first device.
    fn reply(&self) -> Stop {
        let receiver = &self.evidence.destination;
        let is_first = |s: &Sighting| {
            is_last(s, receiver, Direction::In)
                || is_vx(s, Direction::Out)
                || is_tunnel(s, receiver, Direction::Out)
        };
        self.at(Place::Answered, Side::Destination, receiver.worker(), is_first)
    }
}

fn is_vx(sight: &Sighting, way: Direction) -> bool {
    sight.device == VX_DEVICE && sight.way == way
}

fn is_tunnel(sight: &Sighting, side: &Cluster, way: Direction) -> bool {
    sight.device == side.tunnel_device() && sight.way == way
}

fn is_carried(sight: &Sighting, way: Direction) -> bool {
    sight.seen.carrier.is_some() && sight.way == way
}

/// A device of the pod network, or the underlay's where the network plugin carries the packet on.
fn is_last(sight: &Sighting, side: &Cluster, way: Direction) -> bool {
    let is_ours = sight.device == VX_DEVICE || sight.device == side.tunnel_device();
    !is_ours && sight.seen.carrier.is_none() && sight.way == way
}

//! What a diagnosis says. The names of hops and causes are stable: programs may go by them.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! names {
    ($(#[$outer:meta])* $type:ident { $($(#[$doc:meta])* $name:ident = $text:literal,)+ }) => {
        $(#[$outer])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum $type {
            $($(#[$doc])* #[serde(rename = $text)] $name,)+
        }

        impl $type {
            /// All of them, in order.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The stable name.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

names! {
    /// A part of the way, in the order in which a packet passes them.
    Hop {
        /// The pod that speaks first.
        SourcePod = "source-pod",
        /// What both clusters know of each other, before any packet moves.
        ClusterSet = "cluster-set",
        /// The source pod's node.
        SourceNode = "source-node",
        /// Between that node and its cluster's gateway.
        SourceVxlan = "source-vxlan",
        /// The source cluster's active gateway and its node.
        SourceGateway = "source-gateway",
        /// Between the gateways.
        Cable = "cable",
        /// The destination cluster's active gateway and its node.
        DestinationGateway = "destination-gateway",
        /// Between that gateway and the destination pod's node.
        DestinationVxlan = "destination-vxlan",
        /// The destination pod's node.
        DestinationNode = "destination-node",
        /// The pod, service or address that is spoken to.
        DestinationPod = "destination-pod",
    }
}

impl Hop {
    /// The hop in words.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::SourcePod => "Source pod",
            Self::ClusterSet => "Membership of both clusters",
            Self::SourceNode => "Source node",
            Self::SourceVxlan => "Source node to its gateway",
            Self::SourceGateway => "Source gateway",
            Self::Cable => "Cable between the gateways",
            Self::DestinationGateway => "Destination gateway",
            Self::DestinationVxlan => "Destination gateway to the pod's node",
            Self::DestinationNode => "Destination node",
            Self::DestinationPod => "Destination",
        }
    }
}

names! {
    /// Why a hop is broken, or not as it should be.
    Cause {
        /// There is no such pod.
        PodMissing = "PodMissing",
        /// The pod is not ready.
        PodNotReady = "PodNotReady",
        /// There is no such service.
        ServiceMissing = "ServiceMissing",
        /// The service has no endpoint that is ready.
        ServiceWithoutEndpoints = "ServiceWithoutEndpoints",
        /// The node is not ready.
        NodeNotReady = "NodeNotReady",
        /// The address belongs to no cluster that is known.
        AddressUnknown = "AddressUnknown",
        /// The cluster is not a member of any cluster set.
        NotJoined = "NotJoined",
        /// No node is labelled as a gateway.
        NoGatewayNode = "NoGatewayNode",
        /// There is no gateway process that works.
        GatewayDown = "GatewayDown",
        /// The cluster does not publish the network that the address is in.
        AddressNotPublished = "AddressNotPublished",
        /// With Globalnet, what is spoken to has no global address.
        NoGlobalIp = "NoGlobalIp",
        /// Networks of two clusters overlap, and the other was there first.
        NetworksOverlap = "NetworksOverlap",
        /// The broker does not answer, and the other cluster is not known.
        BrokerAway = "BrokerAway",
        /// The other cluster is not known here.
        ClusterUnknown = "ClusterUnknown",
        /// No route agent works on the node.
        RouteAgentDown = "RouteAgentDown",
        /// The node has no route that leads on.
        RouteMissing = "RouteMissing",
        /// The routing rule that leads to the right table is not there.
        RuleMissing = "RuleMissing",
        /// There is no `vx-submariner`.
        VxlanDeviceMissing = "VxlanDeviceMissing",
        /// `vx-submariner` is switched off.
        VxlanDeviceDown = "VxlanDeviceDown",
        /// `vx-submariner` does not know where the next node is.
        ForwardingEntryMissing = "ForwardingEntryMissing",
        /// UDP 4800 between nodes of one cluster does not pass.
        VxlanPortBlocked = "VxlanPortBlocked",
        /// A packet filter drops the packet on its way through the node.
        FilterDrop = "FilterDrop",
        /// The node does not forward packets.
        ForwardingOff = "ForwardingOff",
        /// The reverse path filter drops the packet.
        ReversePathFilter = "ReversePathFilter",
        /// The gateway's device is not there.
        TunnelDeviceMissing = "TunnelDeviceMissing",
        /// The gateway's device is switched off.
        TunnelDeviceDown = "TunnelDeviceDown",
        /// The cable's UDP port does not pass.
        CablePortBlocked = "CablePortBlocked",
        /// The gateways do not reach each other at all.
        UnderlayUnreachable = "UnderlayUnreachable",
        /// The peer is behind NAT that does not pass the cable's port on.
        NatWithoutPortForward = "NatWithoutPortForward",
        /// The gateways have different preshared keys.
        PresharedKeyMismatch = "PresharedKeyMismatch",
        /// NAT discovery's UDP port does not pass.
        NatDiscoveryBlocked = "NatDiscoveryBlocked",
        /// The gateway refuses the other cluster.
        CableRefused = "CableRefused",
        /// The cable is not up, for a reason that is not seen from here.
        CableDown = "CableDown",
        /// A gateway drops the packet.
        GatewayDrop = "GatewayDrop",
        /// Large packets vanish, and nobody says so.
        MtuBlackHole = "MtuBlackHole",
        /// Somebody gives the packet another source.
        SourceMasqueraded = "SourceMasqueraded",
        /// The packet came by the wrong device and was taken for a forgery.
        SourceGuardDrop = "SourceGuardDrop",
        /// The node drops the packet because it has not heard of the source's network yet.
        SourceNotClosed = "SourceNotClosed",
        /// A network policy chooses the pod, and nothing else explains the silence.
        NetworkPolicy = "NetworkPolicy",
        /// The pod is reached and does not answer.
        PodSilent = "PodSilent",
        /// Pods are answered, but the service's address is not.
        ServiceUnreachable = "ServiceUnreachable",
        /// The node is reached from the pod by nothing, though its node reaches everything.
        PodCutOff = "PodCutOff",
        /// Only the health check fails; traffic passes.
        HealthCheckOnly = "HealthCheckOnly",
        /// The packet is lost here, and nothing that can be seen explains it.
        Unexplained = "Unexplained",
    }
}

/// Which way a packet was going.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// From the source.
    #[default]
    There,
    /// From the destination.
    Back,
}

/// How sure a finding is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Certainty {
    /// It may be so.
    #[default]
    Possible,
    /// It is so.
    Certain,
}

/// Something that is wrong on a hop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Where.
    pub hop: Hop,
    /// What.
    pub cause: Cause,
    /// Which way the packet was going.
    pub way: Way,
    /// How sure that is.
    pub certainty: Certainty,
    /// What is wrong, in a sentence.
    pub reason: String,
    /// What was seen.
    pub evidence: Vec<String>,
    /// What to do.
    pub remedy: String,
}

impl Finding {
    /// A finding that is certain, on the way there, without evidence or remedy.
    #[must_use]
    pub fn new(hop: Hop, cause: Cause, reason: impl Into<String>) -> Self {
        Self {
            hop,
            cause,
            way: Way::There,
            certainty: Certainty::Certain,
            reason: reason.into(),
            evidence: Vec::new(),
            remedy: String::new(),
        }
    }

    /// With a remedy.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }

    /// With one more line of evidence.
    #[must_use]
    pub fn seen(mut self, line: impl Into<String>) -> Self {
        self.evidence.push(line.into());
        self
    }

    /// With several.
    #[must_use]
    pub fn seen_all(mut self, lines: impl IntoIterator<Item = String>) -> Self {
        self.evidence.extend(lines);
        self
    }

    /// As something that may be so.
    #[must_use]
    pub const fn possible(mut self) -> Self {
        self.certainty = Certainty::Possible;
        self
    }

    /// On a way.
    #[must_use]
    pub const fn on(mut self, way: Way) -> Self {
        self.way = way;
        self
    }
}

/// What became of a hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HopState {
    /// Packets pass, or nothing is wrong.
    Good,
    /// Packets pass, and something is not as it should be.
    Warning,
    /// Packets end here.
    Broken,
    /// No packet came so far.
    NotReached,
    /// Nobody could look.
    Unseen,
}

/// A hop and what is to say of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HopReport {
    /// The hop.
    pub hop: Hop,
    /// What became of it.
    pub state: HopState,
    /// Who and what it is, or what was seen.
    pub detail: String,
    /// What is wrong there.
    pub findings: Vec<Finding>,
}

/// How the connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// All is well.
    Healthy,
    /// Packets pass, and somebody should look at something.
    Impaired,
    /// Packets do not pass, or not all of them.
    Broken,
}

/// What was measured.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// Shortest round trip in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_us: Option<u64>,
    /// Largest packet that passes whole, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_mtu_bytes: Option<u32>,
    /// The source that the destination sees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_seen: Option<std::net::IpAddr>,
    /// Probes that were sent, of the usual size, and answers to them.
    pub sent: usize,
    /// How many of those were answered.
    pub answered: usize,
}

/// The verdict on a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// How it is.
    pub health: Health,
    /// The first thing that is wrong, and the reason for the rest; absent if nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Finding>,
    /// Every hop.
    pub hops: Vec<HopReport>,
    /// What was measured.
    pub measured: Measured,
    /// What could not be seen, and why.
    pub notes: Vec<String>,
}

impl Diagnosis {
    /// The verdict's cause.
    #[must_use]
    pub fn cause(&self) -> Option<Cause> {
        self.verdict.as_ref().map(|finding| finding.cause)
    }

    /// Everything that was found, in the order of hops.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.hops.iter().flat_map(|hop| &hop.findings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_are_written() {
        for cause in Cause::ALL {
            assert_eq!(format!("{cause:?}"), cause.as_str());
            assert_eq!(serde_json::to_string(cause).unwrap(), format!("\"{cause}\""));
        }
        assert_eq!(serde_json::to_string(&Hop::SourceVxlan).unwrap(), r#""source-vxlan""#);
    }

    #[test]
    fn every_hop_and_cause_is_documented() {
        let page = include_str!("../../../../docs/operations/diagnosis.md");
        for name in
            Cause::ALL.iter().map(|cause| cause.as_str()).chain(Hop::ALL.iter().map(|hop| hop.as_str()))
        {
            assert!(page.contains(&format!("| `{name}` |")), "docs/operations/diagnosis.md lacks {name}");
        }
    }
}

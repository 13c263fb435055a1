//! What can be broken, and what the verdict must be. The table of `docs/operations/diagnosis.md` has the same lines.

use super::bed::Place::{self, *};

/// One breakage.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fault {
    /// In words.
    pub(super) name: &'static str,
    /// The verdict's cause and hop.
    pub(super) cause: &'static str,
    pub(super) hop: &'static str,
    /// What its remedy says.
    pub(super) remedy: &'static str,
    /// Scripts that break it.
    pub(super) inject: &'static [(Place, &'static str)],
    /// Scripts that undo it.
    pub(super) undo: &'static [(Place, &'static str)],
    /// Whether packets do not pass.
    pub(super) is_broken: bool,
    /// Whether its effect takes a while.
    pub(super) is_slow: bool,
    /// Whether only what pods send meets it. A pod to probe from costs two seconds.
    pub(super) needs_pod: bool,
    /// Whether it is one of keys, which VXLAN has none of.
    pub(super) needs_key: bool,
}

impl Fault {
    const fn new(name: &'static str, cause: &'static str, hop: &'static str, remedy: &'static str) -> Self {
        let (inject, undo): (&[_], &[_]) = (&[], &[]);
        let (is_broken, is_slow, needs_pod, needs_key) = (true, false, false, false);
        Self { name, cause, hop, remedy, inject, undo, is_broken, is_slow, needs_pod, needs_key }
    }

    /// Something on the way that only warns.
    const fn warning(mut self) -> Self {
        self.is_broken = false;
        self
    }

    /// Something that has to be noticed first.
    const fn slow(mut self) -> Self {
        self.is_slow = true;
        self
    }

    const fn of_keys(mut self) -> Self {
        self.needs_key = true;
        self
    }

    const fn with_pod(mut self) -> Self {
        self.needs_pod = true;
        self
    }

    const fn by(
        mut self,
        inject: &'static [(Place, &'static str)],
        undo: &'static [(Place, &'static str)],
    ) -> Self {
        (self.inject, self.undo) = (inject, undo);
        self
    }
}

/// A table with one chain and one rule.
macro_rules! drops {
    ($family:literal, $hook:literal, $rule:literal) => {
        concat!(
            "nft add table ",
            $family,
            " fault; nft 'add chain ",
            $family,
            " fault drops { type filter hook ",
            $hook,
            " priority -5; }'; nft \"add rule ",
            $family,
            " fault drops ",
            $rule,
            "\""
        )
    };
}

/// Changes the pod networks of a cluster.
macro_rules! pod_networks {
    ($networks:literal) => {
        pod_networks!("pods", $networks)
    };
    ($key:literal, $networks:literal) => {
        concat!(
            "-n submariner-operator patch configmap trieste-networks -p ",
            r#"{"data":{""#,
            $key,
            r#"":""#,
            $networks,
            r#""}}"#
        )
    };
}

/// Has the route agent run on some nodes only; with the strategy `OnDelete` its other pods stay as they are.
macro_rules! route_agents_on {
    ($host:literal, $strategy:literal) => {
        concat!(
            "-n submariner-operator patch daemonset submariner-routeagent -p ",
            r#"{"spec":{"updateStrategy":"#,
            $strategy,
            r#","template":{"spec":{"nodeSelector":{"kubernetes.io/hostname":"#,
            $host,
            "}}}}}"
        )
    };
}

const FREE: &str = "nft delete table inet fault";
const STOP: &str = "pkill -STOP -x trieste-routeag";
const GO_ON: &str = "pkill -CONT -x trieste-routeag";

/// Packet filters and settings of nodes, links and the network between them.
pub(super) const ON_THE_WAY: &[Fault] = &[
    Fault::new(
        "UDP 4500 dropped on the other gateway's node",
        "CablePortBlocked",
        "cable",
        "nft delete rule inet fault drops",
    )
    .by(
        &[(WestGateway, drops!("inet", "input", "udp dport 4500 counter drop"))],
        &[(WestGateway, FREE)],
    ),
    Fault::new(
        "UDP 4500 dropped between the clusters",
        "CablePortBlocked",
        "cable",
        "firewalls between the clusters",
    )
    .by(&[(Fabric, drops!("inet", "forward", "udp dport 4500 drop"))], &[(Fabric, FREE)]),
    Fault::new(
        "the gateways cut off from each other",
        "UnderlayUnreachable",
        "cable",
        "repair the network between",
    )
    .by(
        &[(Fabric, drops!("inet", "forward", "ip saddr $EAST_GATEWAY ip daddr $WEST_GATEWAY drop"))],
        &[(Fabric, FREE)],
    ),
    Fault::new(
        "NAT discovery's port dropped between the clusters",
        "NatDiscoveryBlocked",
        "cable",
        "let UDP 4490 pass between the gateways",
    )
    .by(&[(Fabric, drops!("inet", "forward", "udp dport 4490 drop"))], &[(Fabric, FREE)])
    .warning(),
    Fault::new(
        "UDP 4800 dropped on the own gateway's node",
        "VxlanPortBlocked",
        "source-vxlan",
        "nft delete rule inet fault drops",
    )
    .by(
        &[(EastGateway, drops!("inet", "input", "udp dport 4800 counter drop"))],
        &[(EastGateway, FREE)],
    ),
    Fault::new(
        "UDP 4800 dropped between the other cluster's nodes",
        "VxlanPortBlocked",
        "destination-vxlan",
        "let UDP 4800 pass between nodes",
    )
    .by(
        &[(Fabric, drops!("bridge", "forward", "udp dport 4800 oifname $WEST_PORT drop"))],
        &[(Fabric, "nft delete table bridge fault")],
    ),
    Fault::new(
        "packets to pods dropped in FORWARD of their node",
        "FilterDrop",
        "destination-node",
        "nft delete rule inet fault drops",
    )
    .by(
        &[(WestWorker, drops!("inet", "forward", "ip daddr $DESTINATION counter drop"))],
        &[(WestWorker, FREE)],
    ),
    Fault::new(
        "packets of pods dropped in FORWARD of their node",
        "FilterDrop",
        "source-node",
        "nft delete rule inet fault drops",
    )
    .by(
        &[(EastWorker, drops!("inet", "forward", "ip daddr $DESTINATION drop"))],
        &[(EastWorker, FREE)],
    )
    .with_pod(),
    Fault::new(
        "large datagrams vanish between worker and gateway",
        "MtuBlackHole",
        "source-vxlan",
        "underlay's real MTU",
    )
    .by(&[(Fabric, "ip link set $EAST_PORT mtu 1300")], &[(Fabric, "ip link set $EAST_PORT mtu 1500")]),
    Fault::new(
        "large datagrams vanish between the clusters, and nobody says so",
        "MtuBlackHole",
        "cable",
        "let ICMP \"fragmentation needed\" pass",
    )
    .by(
        &[(Fabric, drops!("inet", "forward", "udp dport 4500 meta length > 1300 drop"))],
        &[(Fabric, FREE)],
    ),
    Fault::new(
        "somebody masquerades what goes to the other cluster",
        "SourceMasqueraded",
        "source-node",
        "except the other clusters' networks from it",
    )
    .by(
        &[(
            EastWorker,
            "nft add table inet fault; nft 'add chain inet fault post { type nat hook postrouting priority -199; }'; \
             nft 'add rule inet fault post oifname vx-submariner counter masquerade'",
        )],
        &[(EastWorker, FREE)],
    ),
];

/// What the route agent would put right within seconds; it is stopped meanwhile.
pub(super) const BEHIND_THE_AGENT: &[Fault] = &[
    Fault::new("the worker's routes gone", "RouteMissing", "source-node", "find out who removes it").by(
        &[(EastWorker, STOP), (EastWorker, "ip route flush dev vx-submariner proto static")],
        &[(EastWorker, GO_ON)],
    ),
    Fault::new("the rule to table 150 gone", "RuleMissing", "source-gateway", "rule 150 within seconds").by(
        &[(EastGateway, STOP), (EastGateway, "while ip rule del lookup 150 2>/dev/null; do :; done")],
        &[(EastGateway, GO_ON)],
    ),
    Fault::new("the rule to table 149 gone", "RuleMissing", "destination-gateway", "rule 149 within seconds")
        .by(
            &[(WestGateway, STOP), (WestGateway, "while ip rule del lookup 149 2>/dev/null; do :; done")],
            &[(WestGateway, GO_ON)],
        ),
    Fault::new("the VXLAN device down", "VxlanDeviceDown", "source-node", "ip link set vx-submariner up")
        .by(&[(EastWorker, STOP), (EastWorker, "ip link set vx-submariner down")], &[(EastWorker, GO_ON)]),
    Fault::new(
        "the VXLAN device gone",
        "VxlanDeviceMissing",
        "destination-node",
        "makes the device within seconds",
    )
    .by(&[(WestWorker, STOP), (WestWorker, "ip link del vx-submariner")], &[(WestWorker, GO_ON)]),
    Fault::new(
        "no forwarding entry for the gateway",
        "ForwardingEntryMissing",
        "source-vxlan",
        "bridge fdb append",
    )
    .by(
        &[
            (EastWorker, STOP),
            (
                EastWorker,
                "bridge fdb show dev vx-submariner | while read mac rest; do set -- $rest; \
                 while [ \"$1\" != dst ]; do shift; done; bridge fdb del $mac dev vx-submariner dst $2; done",
            ),
        ],
        &[(EastWorker, GO_ON)],
    ),
    // With table 149 the packet's way back is the right one, and even a strict filter lets it pass.
    Fault::new(
        "a strict reverse path filter where the network plugin delivers",
        "ReversePathFilter",
        "source-gateway",
        "sysctl -w net.ipv4.conf.vx-submariner.rp_filter=2",
    )
    .by(
        &[
            (EastGateway, STOP),
            (EastGateway, "ip rule del lookup 149; echo 1 >/proc/sys/net/ipv4/conf/vx-submariner/rp_filter"),
        ],
        &[(EastGateway, GO_ON)],
    ),
    Fault::new(
        "forwarding off on the other node",
        "ForwardingOff",
        "destination-node",
        "sysctl -w net.ipv4.ip_forward=1",
    )
    .by(
        &[(WestWorker, STOP), (WestWorker, "echo 0 >/proc/sys/net/ipv4/ip_forward")],
        &[(WestWorker, "echo 1 >/proc/sys/net/ipv4/ip_forward"), (WestWorker, GO_ON)],
    ),
    Fault::new(
        "the gateway's device down",
        "TunnelDeviceDown",
        "source-gateway",
        "ip link set submariner up",
    )
    .by(
        &[(EastGateway, STOP), (EastGateway, "ip link set submariner down")],
        &[(EastGateway, "ip link set submariner up"), (EastGateway, GO_ON)],
    ),
    Fault::new(
        "no route agent on the other node, and its routes gone",
        "RouteAgentDown",
        "destination-node",
        "get pod -o wide -l app=submariner-routeagent",
    )
    .by(
        &[
            (West, route_agents_on!("\"$WEST_GATEWAY_NAME\"", r#"{"type":"OnDelete","rollingUpdate":null}"#)),
            (WestWorker, "while pgrep -x trieste-routeag >/dev/null; do sleep 0.1; done"),
            (WestWorker, "ip route flush dev vx-submariner proto static"),
        ],
        &[(West, route_agents_on!("null", r#"{"type":"RollingUpdate"}"#))],
    ),
    // The last one: another gateway may have to take over, which the next breakage waits for.
    Fault::new(
        "the gateway's process stopped",
        "GatewayDown",
        "source-gateway",
        "get pod -o wide -l app=submariner-gateway",
    )
    .by(
        &[(EastGateway, "pkill -STOP -x trieste-gateway")],
        &[(EastGateway, "pkill -CONT -x trieste-gateway")],
    ),
];

/// A change of a gateway, and what a cluster knows of the other.
pub(super) const BETWEEN_CLUSTERS: &[Fault] = &[
    Fault::new(
        "only the health check's pings dropped",
        "HealthCheckOnly",
        "cable",
        "an address of the other gateway's node that answers pings",
    )
    .by(
        &[(
            WestGateway,
            drops!(
                "inet",
                "input",
                "iifname submariner fib daddr type local icmp type echo-request counter drop"
            ),
        )],
        &[(WestGateway, FREE)],
    )
    .warning()
    .slow(),
    Fault::new("the broker away", "BrokerAway", "cluster-set", "repair the way to the broker's API server")
        .by(
            &[(
                Fabric,
                drops!(
                    "inet",
                    "forward",
                    "ip saddr $WEST_GATEWAY ip daddr $EAST_API tcp dport 6443 reject with tcp reset"
                ),
            )],
            &[(Fabric, FREE)],
        )
        .warning()
        .slow(),
    Fault::new(
        "another preshared key",
        "PresharedKeyMismatch",
        "cable",
        "join both clusters with the same broker-info.subm",
    )
    .by(
        &[
            (
                West,
                "-n submariner-operator patch secret submariner-ipsec-psk -p {\"stringData\":{\"psk\":\"$OTHER\"}}",
            ),
            (West, "-n submariner-operator delete pod -l app=submariner-gateway"),
        ],
        &[(West, "-n submariner-operator patch secret submariner-ipsec-psk -p {\"data\":{\"psk\":\"$PSK\"}}")],
    )
    .slow()
    .of_keys(),
    Fault::new(
        "both clusters claim the same networks",
        "NetworksOverlap",
        "cluster-set",
        "give one of the two clusters other networks",
    )
    .by(
        &[
            // Only a gateway that finds no networks in force, and begins with another cluster's, goes by those.
            (West, "label nodes --all submariner.io/gateway-"),
            (West, "-n submariner-operator delete pod -l app=submariner-gateway"),
            (West, "-n submariner-operator delete clusters.submariner.io west"),
            (West, pod_networks!("10.10.0.0/16,10.20.0.0/16")),
            (West, pod_networks!("pods-at-start", "10.10.0.0/16,10.20.0.0/16")),
            (West, "-n submariner-operator set env daemonset/submariner-gateway TRIESTE_STATE_DIR=/run/trieste/new"),
            (West, "label node $WEST_GATEWAY_NAME submariner.io/gateway=true"),
        ],
        &[],
    )
    .slow(),
    Fault::new(
        "the pod's network not published",
        "AddressNotPublished",
        "cluster-set",
        "join again with all pod networks",
    )
    .by(
        &[(West, pod_networks!("10.20.77.0/24"))],
        &[
            (West, pod_networks!("pods-at-start", "$WEST_PODS")),
            (West, pod_networks!("$WEST_PODS")),
            (West, "-n submariner-operator set env daemonset/submariner-gateway TRIESTE_STATE_DIR-"),
        ],
    )
    .slow(),
    Fault::new(
        "both clusters behind NAT, and the other's does not forward the port",
        "NatWithoutPortForward",
        "cable",
        "or join with a load balancer",
    )
    .by(
        &[
            (Fabric, drops!("inet", "forward", "ip saddr $EAST_GATEWAY ip daddr $WEST_GATEWAY drop")),
            (Fabric, "nft add rule inet fault drops ip saddr $WEST_GATEWAY ip daddr $EAST_GATEWAY drop"),
            (
                West,
                "annotate node $WEST_GATEWAY_NAME gateway.submariner.io/public-ip=ipv4:203.0.113.7 --overwrite",
            ),
            (West, "-n submariner-operator delete pod -l app=submariner-gateway"),
        ],
        &[
            (Fabric, FREE),
            (West, "annotate node $WEST_GATEWAY_NAME gateway.submariner.io/public-ip-"),
            (West, "-n submariner-operator delete pod -l app=submariner-gateway"),
        ],
    )
    .slow(),
    Fault::new(
        "no node labelled as a gateway",
        "NoGatewayNode",
        "destination-gateway",
        "label node NODE submariner.io/gateway=true",
    )
    .by(
        &[(West, "label nodes --all submariner.io/gateway-")],
        &[(West, "label node $WEST_GATEWAY_NAME submariner.io/gateway=true")],
    )
    .slow(),
];

/// A connection that was never possible.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends {
    pub(super) source: &'static str,
    pub(super) destination: &'static str,
    pub(super) verdict: Fault,
}

impl Ends {
    const fn new(source: &'static str, destination: &'static str, verdict: Fault) -> Self {
        Self { source, destination, verdict }
    }
}

/// Pods and services that are not as one thinks; nothing is broken for it.
pub(super) const ENDS: &[Ends] = &[
    Ends::new(
        "nobody",
        "far",
        Fault::new("a pod that is not there", "PodMissing", "source-pod", "get pod -n default"),
    ),
    Ends::new(
        "far",
        "unready",
        Fault::new("a pod that is not ready", "PodNotReady", "destination-pod", "describe pod -n default")
            .warning(),
    ),
    Ends::new(
        "far",
        "service:nothing",
        Fault::new(
            "a service that is not there",
            "ServiceMissing",
            "destination-pod",
            "get service -n default",
        ),
    ),
    Ends::new(
        "far",
        "service:empty",
        Fault::new(
            "a service without a pod that is ready",
            "ServiceWithoutEndpoints",
            "destination-pod",
            "does its selector choose pods that are ready",
        ),
    ),
];

/// All of them.
pub(super) fn all() -> impl Iterator<Item = Fault> {
    let ends = ENDS.iter().map(|ends| ends.verdict);
    ends.chain([ON_THE_WAY, BEHIND_THE_AGENT, BETWEEN_CLUSTERS].into_iter().flatten().copied())
}

//! What things are called. Names are upstream's, so that its tools and its users' habits work here.

/// The namespace of a member's objects.
pub const NAMESPACE: &str = "submariner-operator";
/// The namespace that members share on the broker.
pub const BROKER_NAMESPACE: &str = "submariner-k8s-broker";

/// The gateway's DaemonSet, container, ServiceAccount and Roles, and the Service of type LoadBalancer.
pub const GATEWAY: &str = "submariner-gateway";
/// The route agent's DaemonSet, container, ServiceAccount and Roles.
pub const ROUTE_AGENT: &str = "submariner-routeagent";
/// The DaemonSet of upstream's Globalnet: there is none of ours, since gateways do its work. Their Roles for it.
pub const GLOBALNET: &str = "submariner-globalnet";
/// The route agents' Roles for clusterset IPs.
pub const CLUSTERSET_IP: &str = "submariner-clusterset-ip";
/// The DaemonSet or Deployment of the workers that write a network plugin's database, its container, ServiceAccount and Roles.
pub const PLUGIN_SYNC: &str = "trieste-plugin-sync";
/// The Lease of the one worker that writes a database which several of them reach.
pub const PLUGIN_SYNC_LOCK: &str = "trieste-plugin-sync-lock";
/// The Deployment of the workers that keep Spiderpool's lists, its container, ServiceAccount and Roles.
pub const SPIDERPOOL_SYNC: &str = "trieste-spiderpool-sync";
/// The Lease of the one of them that writes.
pub const SPIDERPOOL_SYNC_LOCK: &str = "trieste-spiderpool-sync-lock";
/// The route agents' Role for what all workers read.
pub const PLUGIN_ROUTES: &str = "trieste-plugin-routes";
/// The gateways' Roles in namespaces of network plugins, for the ConfigMaps in which the cluster's networks stand.
pub const NETWORK_MAPS: &str = "trieste-network-maps";
/// The Secret with which workers reach OVN's database over TLS, if anybody makes it: `tls.key`, `tls.crt`, `ca.crt`.
pub const OVN_TLS_SECRET: &str = "trieste-ovn-tls";
/// The service discovery agent's Deployment, container, ServiceAccount and Roles.
pub const DISCOVERY_AGENT: &str = "submariner-lighthouse-agent";
/// The Deployment of the DNS server for the set's names, its container, ServiceAccount and Roles, and the Service in front.
pub const DISCOVERY_DNS: &str = "submariner-lighthouse-coredns";
/// The Service in front of the gateways' metrics.
pub const GATEWAY_METRICS: &str = "submariner-gateway-metrics";

/// The Secret with a member's access to the broker.
pub const BROKER_SECRET: &str = "submariner-broker-secret";
/// The Secret with the cluster set's pre-shared key.
pub const PSK_SECRET: &str = "submariner-ipsec-psk";
/// The Secret in which an operator publishes a broker's join data, and the key in it.
pub const BROKER_INFO: &str = "submariner-broker-info";
/// As [`BROKER_INFO`].
pub const BROKER_INFO_KEY: &str = "brokerInfo";
/// The operator's namespace, Deployment, container, ServiceAccount and Roles.
pub const OPERATOR: &str = "trieste-operator";
/// The custom resource that describes a member.
pub const SUBMARINER: &str = "submariner";
/// The custom resource that describes a broker.
pub const BROKER: &str = "submariner-broker";

/// The Role of members that Trieste lets join, on the broker.
pub const MEMBER_ROLE: &str = "trieste-k8s-broker-cluster";
/// The Role of members that upstream's tool lets join, on the broker; it binds them to this name.
pub const UPSTREAM_MEMBER_ROLE: &str = "submariner-k8s-broker-cluster";
/// The ServiceAccount and Role of who lets members join.
pub const BROKER_ADMIN: &str = "submariner-k8s-broker-admin";
/// The ConfigMap that says which member has which global addresses.
pub const GLOBALNET_INFO: &str = "submariner-globalnet-info";
/// The ConfigMap that says which member has which addresses for services of the set.
pub const CLUSTERSET_IP_INFO: &str = "submariner-clustersetip-info";
/// Ours: likewise of IPv6. Upstream's tool would not understand such networks in its own.
pub const CLUSTERSET_IPV6_INFO: &str = "trieste-clusterset-ipv6-info";

/// The DaemonSet by which upstream's operator shows metrics on a port of the node: there is none of ours.
pub const METRICS_PROXY: &str = "submariner-metrics-proxy";
/// The Deployment of upstream's operator.
pub const UPSTREAM_OPERATOR: &str = "submariner-operator";
/// The custom resource that describes a cluster's part in service discovery.
pub const SERVICE_DISCOVERY: &str = "service-discovery";
/// The finalizer of upstream's operator on its kinds.
pub const UPSTREAM_FINALIZER: &str = "controllers.submariner.io/cleanup";

/// The label of nodes that run gateways; its value is `true`.
pub const GATEWAY_LABEL: &str = "submariner.io/gateway";
/// The label by which a pod says that it is the active gateway.
pub const STATUS_LABEL: &str = "gateway.submariner.io/status";

/// The label of everything that we make.
pub const PART_OF_LABEL: &str = "app.kubernetes.io/part-of";
/// The label that says who applies an object.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// The label that says which version an object is from.
pub const VERSION_LABEL: &str = "app.kubernetes.io/version";
/// The value of [`PART_OF_LABEL`] and [`MANAGED_BY_LABEL`].
pub const TRIESTE: &str = "trieste";

/// The annotation of the Submariner resource that says that several gateways are to be active: upstream's definition
/// would drop a field that it does not know.
pub const MULTI_ACTIVE_GATEWAY: &str = "trieste.io/multi-active-gateway";
/// On the Submariner object: which gateways are active, if somebody chose.
pub const ACTIVE_GATEWAYS: &str = "trieste.io/active-gateways";
/// On the Submariner object: how outer packets cross the kernel of gateway nodes, if somebody chose.
pub const OUTER_IO: &str = "trieste.io/io";

/// The annotations of the Submariner resource that say how much memory gateways and route agents may have, where it is
/// not what they have by default.
pub const GATEWAY_MEMORY: &str = "trieste.io/gateway-memory";
/// As [`GATEWAY_MEMORY`].
pub const ROUTE_AGENT_MEMORY: &str = "trieste.io/routeagent-memory";

/// The annotations that say what is set aside of CPUs, and the priority class, likewise.
pub const GATEWAY_CPU: &str = "trieste.io/gateway-cpu";
/// As [`GATEWAY_CPU`].
pub const ROUTE_AGENT_CPU: &str = "trieste.io/routeagent-cpu";
/// As [`GATEWAY_CPU`].
pub const PRIORITY_CLASS: &str = "trieste.io/priority-class";

/// On the Submariner object: which zones OVN-Kubernetes has, and what tells so.
pub const OVN_ZONES: &str = "trieste.io/ovn-zones";
/// On the Submariner object: where OVN-Kubernetes' northbound databases are, and what tells so.
pub const OVN_DATABASES: &str = "trieste.io/ovn-databases";

/// The annotation of gateway pods that is another one when the pre-shared key is another one: a gateway reads the key
/// when it starts, so that a new key has to start new ones.
pub const PSK_CHECKSUM: &str = "trieste.io/psk-checksum";
/// The variable of route agents and of service discovery's agent with the ranges of the set's clusterset IPs.
pub const CLUSTERSET_IP_RANGE: &str = "TRIESTE_CLUSTERSET_IP_RANGE";
/// On pods: a checksum of those settings that take effect when their program starts, so that other ones make other pods.
pub const SETTINGS_CHECKSUM: &str = "trieste.io/settings-checksum";

/// The ServiceAccount of a member on the broker.
pub fn cluster_account(cluster_id: &str) -> String {
    format!("cluster-{cluster_id}")
}

/// The RoleBinding of a member on the broker, called as upstream calls its own (api §12.1): account and Role. Upstream's
/// tool adds its own when it lets the same cluster join; neither is in the other's way.
pub fn cluster_binding(cluster_id: &str) -> String {
    format!("{}-{MEMBER_ROLE}", cluster_account(cluster_id))
}

/// The Secret with a member's token on the broker.
pub fn cluster_token(cluster_id: &str) -> String {
    format!("{}-token", cluster_account(cluster_id))
}

/// The token Secret of the broker's administrator.
pub fn broker_admin_token() -> String {
    format!("{BROKER_ADMIN}-token")
}

/// The policy by which members write only what is theirs, and its binding. Cluster-wide names, so that several brokers
/// in one cluster do not share one.
pub fn policy_name(broker_namespace: &str) -> String {
    format!("trieste-members.{broker_namespace}")
}

/// The taint that keeps pods off a node until its route agent has closed it (`routeagent/src/taint.rs`).
pub const NODE_TAINT_KEY: &str = "trieste.io/not-ready";

/// Says on the Submariner object that route agents take the taint away.
pub const NODE_TAINT: &str = "trieste.io/node-taint";

/// On the Submariner object: that the cluster takes no part in the set's service discovery, though the set has it.
pub const NO_SERVICE_DISCOVERY: &str = "trieste.io/no-service-discovery";

/// On the Submariner object: that names of services are answered whose namespace the cluster does not have.
pub const MISSING_NAMESPACES: &str = "trieste.io/missing-namespaces";

/// On a definition that is not of upstream's kinds: that we have made it, so that it may go with us.
pub const DEFINITION: &str = "trieste.io/definition";

/// The variable that says what other members may claim, to both programs.
pub(crate) const ALLOW_REMOTE_CIDRS: &str = "TRIESTE_ALLOW_REMOTE_CIDRS";

/// The gateway's variable that names the cable driver which its cluster set changes from.
pub(crate) const FORMER_CABLE_DRIVER: &str = "TRIESTE_FORMER_CABLE_DRIVER";

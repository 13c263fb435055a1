//! What the objects of both clusters say, before any packet moves.

use std::net::IpAddr;

use ipnet::IpNet;

use super::super::evidence::{Cluster, Evidence, Side};
use super::super::verdict::{Cause, Finding, Hop};
use super::cable::unknown_cluster;

/// What keeps a connection from existing at all, in the order of hops; each is certain.
pub(super) fn check(evidence: &Evidence) -> Vec<Finding> {
    let mut found = pod(&evidence.source, Side::Source);
    found.extend(service(evidence));
    found.extend(pod(&evidence.destination, Side::Destination));
    found.extend(no_global_ip(evidence));
    let mut without_gateway = Vec::new();
    for (side, hop) in [(Side::Source, Hop::SourceGateway), (Side::Destination, Hop::DestinationGateway)] {
        let wrong = gateways(evidence.side(side), hop);
        if !wrong.is_empty() {
            without_gateway.push(side);
        }
        found.extend(wrong);
    }
    found.extend(cluster_set(evidence, &without_gateway));
    found.sort_by_key(|finding| finding.hop);
    found
}

fn pod(cluster: &Cluster, side: Side) -> Vec<Finding> {
    let (hop, node_hop) = match side {
        Side::Source => (Hop::SourcePod, Hop::SourceNode),
        Side::Destination => (Hop::DestinationPod, Hop::DestinationNode),
    };
    let pod = &cluster.pod;
    if pod.missing {
        let reason = format!("there is no pod {}", pod.name);
        let namespace = pod.name.split('/').next().unwrap_or_default();
        let remedy = format!("kubectl{} get pod -n {namespace}", cluster.kubectl);
        return vec![Finding::new(hop, Cause::PodMissing, reason).remedy(remedy)];
    }
    let mut found = Vec::new();
    if let Some(why) = &pod.not_ready {
        let reason = format!("pod {} is not ready: {why}", pod.name);
        let (namespace, name) = pod.name.split_once('/').unwrap_or_default();
        let remedy = format!("kubectl{} describe pod -n {namespace} {name}", cluster.kubectl);
        found.push(Finding::new(hop, Cause::PodNotReady, reason).remedy(remedy));
    }
    if let (Some(name), Some(why)) =
        (&cluster.worker, cluster.worker().and_then(|node| node.not_ready.as_ref()))
    {
        let reason = format!("node {name} is not ready: {why}");
        let remedy = format!("kubectl{} describe node {name}", cluster.kubectl);
        found.push(Finding::new(node_hop, Cause::NodeNotReady, reason).remedy(remedy));
    }
    found
}

fn service(evidence: &Evidence) -> Vec<Finding> {
    let Some(service) = &evidence.service else { return Vec::new() };
    let (namespace, name) = service.name.split_once('/').unwrap_or_default();
    let kubectl = &evidence.destination.kubectl;
    if service.missing {
        let reason = format!("there is no service {}", service.name);
        let remedy = format!("kubectl{kubectl} get service -n {namespace}");
        return vec![Finding::new(Hop::DestinationPod, Cause::ServiceMissing, reason).remedy(remedy)];
    }
    if service.ready > 0 {
        return Vec::new();
    }
    let reason =
        format!("service {} has no endpoint that is ready ({} are not)", service.name, service.not_ready);
    vec![Finding::new(Hop::DestinationPod, Cause::ServiceWithoutEndpoints, reason).remedy(format!(
        "does its selector choose pods that are ready? kubectl{kubectl} get endpointslices -n {namespace} -l \
         kubernetes.io/service-name={name}"
    ))]
}

fn gateways(cluster: &Cluster, hop: Hop) -> Vec<Finding> {
    if !cluster.visible {
        return Vec::new();
    }
    let Cluster { kubectl, namespace, .. } = cluster;
    if !cluster.joined {
        let reason = "the cluster is not a member of a cluster set: it has no Submariner objects".to_owned();
        let remedy = format!("trieste join broker-info.subm{kubectl}");
        return vec![Finding::new(Hop::ClusterSet, Cause::NotJoined, reason).remedy(remedy)];
    }
    if cluster.gateway_nodes.is_empty() {
        let reason = format!("no node of cluster {} is labelled as a gateway", cluster.id);
        let remedy = format!("kubectl{kubectl} label node NODE submariner.io/gateway=true");
        return vec![Finding::new(hop, Cause::NoGatewayNode, reason).remedy(remedy)];
    }
    let broken: Vec<String> = cluster
        .gateway_pods
        .iter()
        .filter_map(|(node, problem)| Some(format!("on node {node}: {}", problem.as_ref()?)))
        .collect();
    let works = cluster.gateway_pods.iter().any(|(_, problem)| problem.is_none());
    if !works || cluster.active().is_none() {
        let reason = if works {
            format!("no gateway of cluster {} is active", cluster.id)
        } else {
            format!("no gateway of cluster {} works", cluster.id)
        };
        return vec![Finding::new(hop, Cause::GatewayDown, reason).seen_all(broken).remedy(format!(
            "kubectl{kubectl} -n {namespace} get pod -o wide -l app=submariner-gateway; kubectl{kubectl} -n {namespace} \
             logs -l app=submariner-gateway --previous"
        ))];
    }
    Vec::new()
}

/// A gateway that has gone takes its Endpoint with it, or leaves an old one behind: neither is a reason.
fn cluster_set(evidence: &Evidence, without_gateway: &[Side]) -> Vec<Finding> {
    // First: clusters that refuse each other for it have no Endpoint of each other either.
    let mut found: Vec<_> = overlap(evidence).into_iter().collect();
    let pairs = [(&evidence.source, &evidence.destination), (&evidence.destination, &evidence.source)];
    for (own, other) in pairs {
        if !own.visible || !own.joined || own.endpoints.is_empty() {
            continue;
        }
        if !other.id.is_empty() && other.id == own.id {
            continue;
        }
        let is_known = match other.pod.address {
            _ if !other.id.is_empty() => own.endpoint_of(&other.id).is_some(),
            Some(address) => holder(own, address).is_some(),
            None => true,
        };
        if !is_known && other.id.is_empty() && !other.pod.known {
            found.push(address_unknown(own, other));
        } else if !is_known && without_gateway.is_empty() {
            found.push(unknown_cluster(evidence, own, other, own.status()));
        }
    }
    for side in [Side::Source, Side::Destination].into_iter().filter(|side| !without_gateway.contains(side)) {
        found.extend(not_published(evidence.side(side), side));
    }
    found
}

/// Finds out whether the destination has a global IP: with Globalnet, what is not exported is reached by nobody.
fn no_global_ip(evidence: &Evidence) -> Option<Finding> {
    let cluster = &evidence.destination;
    let known = evidence.address(Side::Destination, Side::Source).or_else(|| evidence.service_address());
    let is_missing = cluster.pod.missing || evidence.service.as_ref().is_some_and(|service| service.missing);
    if !cluster.visible || !cluster.is_global || known.is_some() || is_missing {
        return None;
    }
    let Cluster { kubectl, id, .. } = cluster;
    let what = match &evidence.service {
        Some(service) => format!("service {}", service.name),
        None if cluster.pod.known => format!("pod {}", cluster.pod.name),
        None => {
            let reason =
                format!("no exported service or pod of cluster {id} has the address {}", cluster.pod.name);
            let remedy = format!("`kubectl{kubectl} get globalingressip -A` lists the addresses");
            return Some(Finding::new(Hop::DestinationPod, Cause::NoGlobalIp, reason).remedy(remedy));
        }
    };
    let reason = format!(
        "{what} of cluster {id} has no global IP: with Globalnet others reach what is exported alone"
    );
    let finding = Finding::new(Hop::DestinationPod, Cause::NoGlobalIp, reason);
    let name = evidence.service.as_ref().map_or(&cluster.pod.name, |service| &service.name);
    let (namespace, name) = name.split_once('/').unwrap_or_default();
    let (export, which) = match &evidence.service {
        Some(_) => (name, "export it"),
        None => {
            ("SERVICE", "export a headless service that chooses it, or ask for the service that it is behind")
        }
    };
    Some(finding.remedy(format!(
        "{which}: `trieste export service {export} -n {namespace}{kubectl}`. If that is done: `kubectl{kubectl} describe \
         serviceexport,globalingressip -n {namespace}` says why there is no address"
    )))
}

/// The cluster that publishes an address, as another one knows.
fn holder(own: &Cluster, address: IpAddr) -> Option<&str> {
    let has = |subnets: &[String]| {
        subnets.iter().filter_map(|net| net.parse::<IpNet>().ok()).any(|net| net.contains(&address))
    };
    own.endpoints.iter().find(|endpoint| has(&endpoint.subnets)).map(|endpoint| endpoint.cluster_id.as_str())
}

fn address_unknown(own: &Cluster, other: &Cluster) -> Finding {
    let address = other.pod.address.map(|address| address.to_string()).unwrap_or_default();
    let known: Vec<String> = own
        .endpoints
        .iter()
        .map(|endpoint| format!("cluster {} has {}", endpoint.cluster_id, endpoint.subnets.join(", ")))
        .collect();
    let reason = format!("no cluster that cluster {} knows has the address {address}", own.id);
    Finding::new(Hop::ClusterSet, Cause::AddressUnknown, reason)
        .seen_all(known)
        .remedy("is the address right, and its cluster joined? trieste show endpoints")
}

/// Finds out whether the pod's address is in what its cluster publishes; with Globalnet it never is. What a pod with its node's
/// network sends has a source that is published.
fn not_published(cluster: &Cluster, side: Side) -> Option<Finding> {
    let is_plain = cluster.visible && cluster.pod.known && !cluster.is_global;
    let is_of_node = cluster.pod.host_network;
    let address = cluster.pod.address.filter(|_| is_plain && !(is_of_node && side == Side::Source))?;
    let endpoint = cluster.endpoint()?;
    if holder(cluster, address) == Some(cluster.id.as_str()) {
        return None;
    }
    if is_of_node {
        let reason = format!(
            "pod {} has its node's address {address}, and cluster {} does not publish its nodes' network",
            cluster.pod.name, cluster.id
        );
        let finding = Finding::new(Hop::ClusterSet, Cause::AddressNotPublished, reason);
        return Some(
            finding
                .remedy("ask for a service that it is behind (service:NAMESPACE/NAME): those are published"),
        );
    }
    let reason = format!(
        "pod {} has the address {address}, which is in none of the networks that cluster {} publishes",
        cluster.pod.name, cluster.id
    );
    let finding = Finding::new(Hop::ClusterSet, Cause::AddressNotPublished, reason);
    Some(finding.seen(format!("published: {}", endpoint.subnets.join(", "))).remedy(format!(
        "join again with all pod networks: `trieste join broker-info.subm{} --clustercidr CIDR,CIDR`",
        cluster.kubectl
    )))
}

/// Networks that both claim.
fn overlap(evidence: &Evidence) -> Option<Finding> {
    let (source, destination) = (&evidence.source, &evidence.destination);
    if source.id == destination.id || source.id.is_empty() {
        return None;
    }
    let claimed = |cluster: &Cluster| -> Vec<IpNet> {
        let published =
            cluster.endpoint().or_else(|| source.endpoint_of(&cluster.id)).map(|endpoint| &endpoint.subnets);
        let published = published.into_iter().flatten().filter_map(|net| net.parse().ok());
        published.chain(cluster.networks.iter().copied()).collect()
    };
    let theirs = claimed(destination);
    let overlapping = claimed(source).into_iter().find_map(|own| {
        let other = theirs.iter().find(|other| own.contains(*other) || other.contains(&own))?;
        Some((own, *other))
    })?;
    let (own, other) = overlapping;
    let reason = format!(
        "clusters {} and {} both claim addresses: {own} and {other} overlap",
        source.id, destination.id
    );
    Some(Finding::new(Hop::ClusterSet, Cause::NetworksOverlap, reason).remedy(
        "give one of the two clusters other networks, or use Globalnet (`trieste deploy-broker --globalnet`)",
    ))
}

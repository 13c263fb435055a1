//! Reads what both clusters know of a connection: the objects at its ends and on its way.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Pod, Service, ServiceSpec};
use k8s_openapi::api::discovery::v1::{Endpoint as KubeEndpoint, EndpointSlice};
use kube::api::ListParams;
use kube::{Api, Client};
use trieste_control::api::GlobalIngressIp;

use super::evidence::{Cluster, Evidence, PodFacts, ServiceFacts};
use super::global::{self, Holder};
use super::request::{Destination, PathRequest, PodRef, SideRequest};
use crate::facts::{self, FactError, Found, Source, within};

/// Objects of both sides.
///
/// # Errors
/// When an API server refuses or fails for what nothing can be said without.
pub(super) async fn read(request: &PathRequest, evidence: &mut Evidence) -> Result<(), FactError> {
    let near = &request.source_side;
    let mut notes = [Vec::new(), Vec::new()];
    let [near_notes, far_notes] = &mut notes;
    let (source, source_pod, far, keys) = futures::join!(
        facts::cluster(&near.source, &near.kubectl, near_notes),
        near.source.pod(&request.source.namespace, &request.source.name),
        async {
            match &request.destination_side {
                Some(far) => Some(facts::cluster(&far.source, &far.kubectl, far_notes).await),
                None => None,
            }
        },
        async {
            match &request.destination_side {
                Some(far) => futures::join!(near.source.preshared_key(), far.source.preshared_key()),
                None => (None, None),
            }
        },
    );
    evidence.source = source?;
    evidence.notes.extend(notes.into_iter().flatten());
    set_pod(&near.source, &mut evidence.source, &request.source, source_pod?, &mut evidence.notes).await;
    match (&request.destination_side, far) {
        (Some(far), Some(cluster)) => {
            evidence.destination = cluster?;
            find_destination(far, &request.destination, evidence).await?;
        }
        (_, _) => {
            let text = "the destination's cluster is not looked at: name its context with --remotecontext";
            evidence.notes.push(text.to_owned());
            if let Destination::Address(address) = request.destination {
                evidence.destination.pod = of_address(address);
            }
            infer_destination(evidence);
        }
    }
    evidence.choose_family();
    evidence.pair_gateways();
    evidence.same_preshared_key = match keys {
        (Some(one), Some(other)) => Some(one == other),
        (_, _) => None,
    };
    Ok(())
}

fn of_address(address: IpAddr) -> PodFacts {
    let (name, addresses) = (address.to_string(), vec![address]);
    PodFacts { name, address: Some(address), addresses, ..PodFacts::default() }
}

async fn set_pod(
    source: &Source,
    cluster: &mut Cluster,
    asked: &PodRef,
    pod: Option<Pod>,
    notes: &mut Vec<String>,
) {
    let Some(pod) = pod else {
        let name = format!("{}/{}", asked.namespace, asked.name);
        cluster.pod = PodFacts { name, missing: true, known: true, ..PodFacts::default() };
        return;
    };
    cluster.pod = facts::pod_facts(&pod);
    cluster.worker = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    match source.policies(&pod).await {
        Ok(policies) => cluster.policies = policies,
        Err(error) => notes.push(error.to_string()),
    }
}

async fn find_destination(
    far: &SideRequest,
    asked: &Destination,
    evidence: &mut Evidence,
) -> Result<(), FactError> {
    let globals = match asked {
        _ if !evidence.destination.is_global => Vec::new(),
        Destination::Address(_) => far.source.global_ingress_ips(None).await?,
        Destination::Pod(name) | Destination::Service(name) => {
            far.source.global_ingress_ips(Some(&name.namespace)).await?
        }
    };
    match asked {
        Destination::Pod(name) => find_pod(far, name, &globals, evidence).await?,
        Destination::Address(address) => match global::holder(&globals, *address) {
            Some(Holder::Service(name)) => find_service(far, &name, &globals, evidence).await?,
            Some(Holder::Pod(name)) => {
                find_pod(far, &name, &globals, evidence).await?;
                evidence.destination.pod.outside = Some(*address);
            }
            Some(Holder::Address(inside)) => {
                evidence.destination.pod =
                    PodFacts { address: inside, outside: Some(*address), ..of_address(*address) };
            }
            None => find_address(far, *address, &globals, evidence).await?,
        },
        Destination::Service(name) => find_service(far, name, &globals, evidence).await?,
    }
    Ok(())
}

async fn find_pod(
    far: &SideRequest,
    name: &PodRef,
    globals: &[GlobalIngressIp],
    evidence: &mut Evidence,
) -> Result<(), FactError> {
    let pod = far.source.pod(&name.namespace, &name.name).await?;
    set_pod(&far.source, &mut evidence.destination, name, pod, &mut evidence.notes).await;
    evidence.destination.pod.outside = global::of_pod(globals, name, None);
    Ok(())
}

async fn find_address(
    far: &SideRequest,
    address: IpAddr,
    globals: &[GlobalIngressIp],
    evidence: &mut Evidence,
) -> Result<(), FactError> {
    let Some(pod) = far.source.pod_at(address).await? else {
        evidence.destination.pod = of_address(address);
        return Ok(());
    };
    let name = name_of(&pod);
    set_pod(&far.source, &mut evidence.destination, &name, Some(pod), &mut evidence.notes).await;
    let pod = &mut evidence.destination.pod;
    pod.outside = global::of_pod(globals, &name, None);
    // This one was asked for.
    (pod.address, pod.addresses) = (Some(address), vec![address]);
    Ok(())
}

fn name_of(pod: &Pod) -> PodRef {
    let metadata = &pod.metadata;
    PodRef {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
    }
}

/// Lists the endpoint slices of a service.
async fn slices_of(client: Client, service: &PodRef) -> Result<Vec<EndpointSlice>, FactError> {
    let slices = Api::<EndpointSlice>::namespaced(client, &service.namespace);
    let params = ListParams::default().labels(&format!("kubernetes.io/service-name={}", service.name));
    Ok(match within("endpoint slices", slices.list(&params)).await? {
        Found::There(list) => list.items,
        Found::Missing => Vec::new(),
    })
}

fn is_ready(endpoint: &KubeEndpoint) -> bool {
    endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true)
}

/// Returns the addresses of a service, of one family or of two.
fn addresses_of(spec: &ServiceSpec) -> Vec<IpAddr> {
    match &spec.cluster_ips {
        Some(all) if !all.is_empty() => all.iter().filter_map(|address| address.parse().ok()).collect(),
        _ => spec.cluster_ip.iter().filter_map(|address| address.parse().ok()).collect(),
    }
}

async fn find_service(
    far: &SideRequest,
    asked: &PodRef,
    globals: &[GlobalIngressIp],
    evidence: &mut Evidence,
) -> Result<(), FactError> {
    let name = format!("{}/{}", asked.namespace, asked.name);
    let client = far.source.client.clone();
    let services = Api::<Service>::namespaced(client.clone(), &asked.namespace);
    let Found::There(service) = within(&format!("service {name}"), services.get(&asked.name)).await? else {
        evidence.service =
            Some(ServiceFacts { name: name.clone(), missing: true, ..ServiceFacts::default() });
        evidence.destination.pod = PodFacts { name, ..PodFacts::default() };
        return Ok(());
    };
    let slices = slices_of(client, asked).await?;
    let endpoints = slices.iter().flat_map(|slice| slice.endpoints.iter());
    let (ready, not_ready): (Vec<_>, Vec<_>) = endpoints.partition(|endpoint| is_ready(endpoint));
    let spec = service.spec.unwrap_or_default();
    let is_tcp = |port: &&k8s_openapi::api::core::v1::ServicePort| {
        port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP")
    };
    let addresses = addresses_of(&spec);
    let port = spec.ports.iter().flatten().find(is_tcp).and_then(|port| u16::try_from(port.port).ok());
    evidence.service = Some(ServiceFacts {
        name: name.clone(),
        missing: false,
        address: addresses.first().copied(),
        addresses,
        outside: global::of_service(globals, asked),
        port,
        ready: ready.len(),
        not_ready: not_ready.len(),
    });
    evidence.destination.pod = PodFacts { name, ..PodFacts::default() };
    // Slices of both families are in any order.
    let address_of = |endpoint: &&KubeEndpoint| endpoint.addresses.first()?.parse::<IpAddr>().ok();
    let own = evidence.source.pod.address;
    let is_own_family = |endpoint: &&&KubeEndpoint| {
        address_of(endpoint).is_some_and(|address| own.is_none_or(|own| own.is_ipv4() == address.is_ipv4()))
    };
    let Some(endpoint) = ready.iter().find(is_own_family).or_else(|| ready.first()) else { return Ok(()) };
    let Some(address) = address_of(endpoint) else { return Ok(()) };
    let target = endpoint.target_ref.as_ref().filter(|target| target.kind.as_deref() == Some("Pod"));
    let pod = match target.and_then(|target| target.name.as_deref()) {
        Some(name) => far.source.pod(&asked.namespace, name).await?,
        None => far.source.pod_at(address).await?,
    };
    match pod {
        Some(pod) => {
            let name = name_of(&pod);
            set_pod(&far.source, &mut evidence.destination, asked, Some(pod), &mut evidence.notes).await;
            evidence.destination.pod.outside = global::of_pod(globals, &name, Some(&asked.name));
        }
        None => evidence.destination.pod = of_address(address),
    }
    Ok(())
}

/// Who the destination belongs to, as far as the source's cluster knows.
fn infer_destination(evidence: &mut Evidence) {
    let Some(address) = evidence.destination.pod.address else { return };
    let has = |endpoint: &&trieste_control::api::EndpointSpec| {
        let subnets = endpoint.subnets.iter().filter_map(|net| net.parse::<ipnet::IpNet>().ok());
        subnets.into_iter().any(|net| net.contains(&address))
    };
    let holder = evidence.source.endpoints.iter().find(has).map(|endpoint| endpoint.cluster_id.clone());
    evidence.destination.id = holder.unwrap_or_default();
}

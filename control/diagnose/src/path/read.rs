//! Reads what both clusters know of a connection: the objects at its ends and on its way.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::ListParams;

use super::evidence::{Cluster, Evidence, PodFacts, ServiceFacts};
use super::gather::{Destination, PathRequest, PodRef, SideRequest};
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
    evidence.pair_gateways();
    evidence.same_preshared_key = match keys {
        (Some(one), Some(other)) => Some(one == other),
        (_, _) => None,
    };
    Ok(())
}

fn of_address(address: IpAddr) -> PodFacts {
    PodFacts { name: address.to_string(), address: Some(address), ..PodFacts::default() }
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
    match asked {
        Destination::Pod(name) => {
            let pod = far.source.pod(&name.namespace, &name.name).await?;
            set_pod(&far.source, &mut evidence.destination, name, pod, &mut evidence.notes).await;
        }
        Destination::Address(address) => match far.source.pod_at(*address).await? {
            Some(pod) => {
                let metadata = &pod.metadata;
                let name = PodRef {
                    namespace: metadata.namespace.clone().unwrap_or_default(),
                    name: metadata.name.clone().unwrap_or_default(),
                };
                set_pod(&far.source, &mut evidence.destination, &name, Some(pod), &mut evidence.notes).await;
            }
            None => evidence.destination.pod = of_address(*address),
        },
        Destination::Service(name) => find_service(far, name, evidence).await?,
    }
    Ok(())
}

async fn find_service(far: &SideRequest, asked: &PodRef, evidence: &mut Evidence) -> Result<(), FactError> {
    let name = format!("{}/{}", asked.namespace, asked.name);
    let client = far.source.client.clone();
    let services = Api::<Service>::namespaced(client.clone(), &asked.namespace);
    let Found::There(service) = within(&format!("service {name}"), services.get(&asked.name)).await? else {
        evidence.service =
            Some(ServiceFacts { name: name.clone(), missing: true, ..ServiceFacts::default() });
        evidence.destination.pod = PodFacts { name, ..PodFacts::default() };
        return Ok(());
    };
    let slices = Api::<EndpointSlice>::namespaced(client, &asked.namespace);
    let params = ListParams::default().labels(&format!("kubernetes.io/service-name={}", asked.name));
    let slices = match within("endpoint slices", slices.list(&params)).await? {
        Found::There(list) => list.items,
        Found::Missing => Vec::new(),
    };
    let endpoints = slices.iter().flat_map(|slice| slice.endpoints.iter());
    let is_ready = |endpoint: &k8s_openapi::api::discovery::v1::Endpoint| {
        endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true)
    };
    let (ready, not_ready): (Vec<_>, Vec<_>) = endpoints.partition(|endpoint| is_ready(endpoint));
    let spec = service.spec.unwrap_or_default();
    let is_tcp = |port: &&k8s_openapi::api::core::v1::ServicePort| {
        port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP")
    };
    let port = spec.ports.iter().flatten().find(is_tcp).and_then(|port| u16::try_from(port.port).ok());
    evidence.service = Some(ServiceFacts {
        name: name.clone(),
        missing: false,
        address: spec.cluster_ip.and_then(|address| address.parse().ok()),
        port,
        ready: ready.len(),
        not_ready: not_ready.len(),
    });
    evidence.destination.pod = PodFacts { name, ..PodFacts::default() };
    let first = ready.first().and_then(|endpoint| endpoint.addresses.first()?.parse::<IpAddr>().ok());
    if let Some(address) = first {
        match far.source.pod_at(address).await? {
            Some(pod) => {
                set_pod(&far.source, &mut evidence.destination, asked, Some(pod), &mut evidence.notes).await;
            }
            None => evidence.destination.pod = of_address(address),
        }
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

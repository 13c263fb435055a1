//! The cluster's networks, apart from the pods that go by them: gateways follow them while they run, and pods that start take
//! their variables from them, so that other networks replace no pod.

use serde_json::{Value, json};
use trieste_control::api::ClusterNetworks;
use trieste_control::live_networks::TrackedLists;

use super::options::joined;
use super::{Manifest, MemberOptions};

/// Returns the object.
pub(super) fn config_map(options: &MemberOptions) -> Manifest {
    let [pods, services, extra] = ClusterNetworks::KEYS;
    let [pods_at_start, services_at_start] = ClusterNetworks::START_KEYS;
    let data = json!({
        pods_at_start: joined(&options.cluster_cidrs),
        services_at_start: joined(&options.service_cidrs),
        pods: joined(&options.cluster_cidrs),
        services: joined(&options.service_cidrs),
        extra: joined(&options.extra_cidrs),
    });
    // Also where no list follows anything: what a gateway has written there is nobody's to leave out.
    Manifest::make("v1", "ConfigMap", &options.namespace, ClusterNetworks::OBJECT)
        .with("data", data)
        .annotated(TrackedLists::ANNOTATION, &options.followed.value())
}

/// Returns the variables with the networks of pods and of services.
pub(super) fn variables() -> [Value; 2] {
    let [pods, services] = ClusterNetworks::START_KEYS;
    let of = |name: &str, key: &str| {
        let from = json!({"name": ClusterNetworks::OBJECT, "key": key});
        json!({"name": name, "valueFrom": {"configMapKeyRef": from}})
    };
    [of("SUBMARINER_CLUSTERCIDR", pods), of("SUBMARINER_SERVICECIDR", services)]
}

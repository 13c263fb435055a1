//! What the set has: which clusters export which services, and the objects that say so, as the agents of those clusters write
//! them.

use serde_json::{Value, json};
use trieste_control::api::{annotation, label};
use trieste_tests::cluster::BROKER_NAMESPACE;

/// The cluster that is measured.
pub(super) const OWN: &str = "here";
/// Services in a namespace.
const IN_NAMESPACE: u32 = 50;
/// Endpoints of one slice, as Kubernetes' own controller makes them.
const IN_SLICE: u32 = 100;
/// Addresses of a kind that a cluster has: half of a network with 16 bits.
const ADDRESSES: u32 = 1 << 15;
/// The second that all exports are of: it only has to be the same each time.
const SINCE: &str = "1764000000";

/// How many of everything. Of two services one has an address in each of two clusters, and the next one is headless, in one
/// cluster, with all the endpoints that are left.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) clusters: u32,
    pub(super) services: u32,
    /// Of each headless service.
    pub(super) endpoints: u32,
}

/// An object, and its status where that is written by itself.
pub(super) type Written = (Value, Option<Value>);

impl Shape {
    /// Shares out endpoints.
    ///
    /// # Errors
    /// If a cluster does not have as many addresses, or an answer no room for them.
    pub(super) fn new(clusters: u32, services: u32, endpoints: u32) -> anyhow::Result<Self> {
        let headless = services / 2;
        let left = endpoints.saturating_sub(2 * (services - headless));
        let each = left.checked_div(headless).unwrap_or_default().max(1);
        anyhow::ensure!(each <= 60, "{each} endpoints of a headless service are not answered in a datagram");
        let shape = Self { clusters, services, endpoints: each };
        anyhow::ensure!(
            (shape.services / clusters + 2) * each < ADDRESSES,
            "{clusters} clusters do not have so many addresses"
        );
        Ok(shape)
    }

    /// Counts the endpoints of all other clusters.
    pub(super) fn all_endpoints(self) -> u32 {
        (0..self.services)
            .map(|number| self.addresses(number, 0).len())
            .sum::<usize>()
            .try_into()
            .unwrap_or(u32::MAX)
    }

    /// Returns the clusters that export a service.
    fn exporters(self, number: u32) -> Vec<u32> {
        let first = number % self.clusters;
        let second = (first + 1) % self.clusters;
        if is_headless(number) || second == first { vec![first] } else { vec![first, second] }
    }

    /// Returns all addresses of a service, after so many changes of its first one.
    pub(super) fn addresses(self, number: u32, change: u32) -> Vec<String> {
        let of = |cluster: u32| -> Vec<String> {
            let index = number / self.clusters + 1;
            if !is_headless(number) {
                return vec![address(cluster, index)];
            }
            let endpoint = |endpoint: u32| match endpoint {
                // These are nobody else's: others end before.
                0 => address(cluster, 2 * ADDRESSES - 2 - change % 2),
                _ => address(cluster, ADDRESSES + index * self.endpoints + endpoint),
            };
            (0..self.endpoints).map(endpoint).collect()
        };
        self.exporters(number).into_iter().flat_map(of).collect()
    }

    /// Returns the objects of a service on the broker, after so many changes of its first endpoint.
    pub(super) fn service(self, number: u32, change: u32) -> Vec<Written> {
        let exporters = self.exporters(number);
        let (name, namespace) = (name(number), namespace(number));
        let clusters: Vec<String> = exporters.iter().map(|cluster| cluster_id(*cluster)).collect();
        let mut annotations = json!({(label::SERVICE_NAME): name, (label::SOURCE_NAMESPACE): namespace});
        for cluster in &clusters {
            annotations[format!("{}{cluster}", annotation::TIMESTAMP_PREFIX)] = json!(SINCE);
        }
        let (kind, ports) = match is_headless(number) {
            true => ("Headless", json!([])),
            false => ("ClusterSetIP", json!([port()])),
        };
        let import = json!({
            "apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceImport",
            "metadata": {"namespace": BROKER_NAMESPACE, "name": format!("{name}-{namespace}"), "annotations": annotations},
            "spec": {"type": kind, "ports": ports, "sessionAffinity": "None"},
        });
        let places: Vec<Value> = clusters.iter().map(|cluster| json!({"cluster": cluster})).collect();
        let mut objects = vec![(import, Some(json!({"status": {"clusters": places}})))];
        let addresses = self.addresses(number, change);
        let each = addresses.len() / clusters.len();
        for (cluster, addresses) in clusters.iter().zip(addresses.chunks(each)) {
            for (part, addresses) in addresses.chunks(IN_SLICE as usize).enumerate() {
                objects.push((slice(number, cluster, part, addresses), None));
            }
        }
        objects
    }
}

/// Returns a cluster with its networks, as its gateways write it.
pub(super) fn cluster(number: u32) -> Value {
    let network = |host: u32| format!("{}/17", address(number, host));
    cluster_of(&cluster_id(number), &[&network(0)], &[&network(ADDRESSES)])
}

/// Returns the Cluster of the one that is measured.
pub(super) fn own_cluster() -> Value {
    cluster_of(OWN, &[OWN_SERVICES], &["172.17.0.0/16"])
}

/// Returns the Cluster of one that imports alone.
pub(super) fn importing_cluster(id: &str) -> Value {
    cluster_of(id, &["172.18.0.0/16"], &["172.19.0.0/16"])
}

/// Where its services have their addresses.
pub(super) const OWN_SERVICES: &str = "172.16.0.0/16";

fn cluster_of(id: &str, services: &[&str], pods: &[&str]) -> Value {
    json!({
        "apiVersion": "submariner.io/v1", "kind": "Cluster",
        "metadata": {"namespace": BROKER_NAMESPACE, "name": id, "labels": {(label::CLUSTER_ID): id}},
        "spec": {"cluster_id": id, "color_codes": ["blue"], "service_cidr": services, "cluster_cidr": pods, "global_cidr": []},
    })
}

fn slice(number: u32, cluster: &str, part: usize, addresses: &[String]) -> Value {
    let (name, namespace) = (name(number), namespace(number));
    let endpoint = |(index, address): (usize, &String)| match is_headless(number) {
        true => {
            json!({"addresses": [address], "conditions": {"ready": true}, "hostname": format!("{name}-{index}"),
            "nodeName": "worker-1"})
        }
        false => json!({"addresses": [address], "conditions": {"ready": true}}),
    };
    let endpoints: Vec<Value> = addresses.iter().enumerate().map(endpoint).collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "namespace": BROKER_NAMESPACE, "name": format!("{name}-{namespace}-{cluster}-{part}"),
            "labels": {
                (label::MANAGED_BY): label::LIGHTHOUSE_AGENT, (label::SERVICE_NAME): name,
                (label::SOURCE_NAMESPACE): namespace, (label::SOURCE_CLUSTER): cluster,
                (label::IS_HEADLESS): is_headless(number).to_string(), (label::CLUSTER_ID): cluster,
                (label::ORIGINATING_NAMESPACE): namespace,
            },
            "annotations": {(annotation::PUBLISH_NOT_READY): "false", (annotation::GLOBALNET_ENABLED): "false"},
        },
        "addressType": "IPv4", "endpoints": endpoints, "ports": [port()],
    })
}

/// Returns a headless service of the cluster that is measured, with the slice of its one back end.
pub(super) fn own_service(number: u32) -> [Value; 2] {
    let name = own_name(number);
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": namespace(0), "name": name},
        "spec": {"clusterIP": "None", "selector": {"app": name}, "ports": [port()]},
    });
    [service, own_slice(number, true)]
}

/// Returns the slice of its back end, which is ready or not.
pub(super) fn own_slice(number: u32, is_ready: bool) -> Value {
    let name = own_name(number);
    let conditions = json!({"ready": is_ready, "serving": is_ready, "terminating": false});
    let endpoint = json!({"addresses": [own_address(number)], "conditions": conditions, "nodeName": "worker-1",
        "targetRef": {"kind": "Pod", "namespace": namespace(0), "name": format!("{name}-x")}});
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"namespace": namespace(0), "name": format!("{name}-1"), "labels": {
            "kubernetes.io/service-name": name, (label::MANAGED_BY): "endpointslice-controller.k8s.io"}},
        "addressType": "IPv4", "endpoints": [endpoint], "ports": [port()],
    })
}

pub(super) fn own_export(number: u32) -> Value {
    json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceExport",
        "metadata": {"namespace": namespace(0), "name": own_name(number)}})
}

pub(super) fn own_name(number: u32) -> String {
    format!("own{number}")
}

fn own_address(number: u32) -> String {
    let [_, _, high, low] = number.to_be_bytes();
    format!("172.17.{high}.{low}")
}

fn port() -> Value {
    json!({"name": "http", "protocol": "TCP", "port": 80})
}

fn is_headless(number: u32) -> bool {
    number % 2 == 1
}

fn cluster_id(number: u32) -> String {
    format!("c{number}")
}

/// Returns one of a cluster's addresses: the first half is services', the second pods'.
fn address(cluster: u32, host: u32) -> String {
    let [_, _, high, low] = host.to_be_bytes();
    format!("10.{cluster}.{high}.{low}")
}

pub(super) fn name(number: u32) -> String {
    format!("s{number}")
}

pub(super) fn namespace(number: u32) -> String {
    format!("n{}", number / IN_NAMESPACE)
}

/// Returns the name that a service is asked for by.
pub(super) fn domain(number: u32) -> String {
    format!("{}.{}.svc.clusterset.local", name(number), namespace(number))
}

/// Returns the same for one of the cluster's own.
pub(super) fn own_domain(number: u32) -> String {
    format!("{}.{}.svc.clusterset.local", own_name(number), namespace(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_shared_out_and_every_address_is_in_its_clusters_network() {
        let shape = Shape::new(200, 5000, 50_000).unwrap();
        assert_eq!((shape.endpoints, shape.all_endpoints()), (18, 50_000));
        assert_eq!(shape.addresses(0, 0), ["10.0.0.1", "10.1.0.1"]);
        let headless = shape.addresses(401, 0);
        assert_eq!((headless.len(), headless[1].as_str()), (18, "10.1.128.55"));
        assert_ne!(headless[0], shape.addresses(401, 1)[0]);
        assert_eq!(headless[1..], shape.addresses(401, 1)[1..]);
        assert_eq!(shape.service(401, 0).len(), 2);
        assert!(Shape::new(1, 5000, 50_000).is_err() && Shape::new(9, 10, 5000).is_err());
    }
}

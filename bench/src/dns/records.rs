//! The records that are asked for: services, each with an address, and beside some of them a headless one.

use serde_json::{Value, json};
use trieste_control::api::{Kind, Object, ObjectMeta, label};

/// Services in a namespace.
pub(super) const IN_NAMESPACE: u32 = 50;
/// Of so many services one has a headless one beside it.
const IN_HEADLESS: u32 = 10;
/// The network of services: that of their addresses.
pub(super) const SERVICES: &str = "10.2.0.0/16";

/// Returns what a zone file begins with.
pub(super) fn zone_head() -> String {
    "$ORIGIN clusterset.local.\n@ 5 SOA ns.dns hostmaster 1 7200 1800 86400 5\n@ 5 NS ns.dns\nns.dns 5 A 10.9.0.1\n"
        .to_owned()
}

/// Returns a service's address: the first ones of the network have other uses.
pub(super) fn address(number: u32) -> String {
    let [_, _, high, low] = (number + 256).to_be_bytes();
    format!("10.2.{high}.{low}")
}

/// Returns the addresses of the headless service that every tenth service has beside it.
pub(super) fn pods(number: u32) -> Option<[String; 4]> {
    let first = number / IN_HEADLESS * 4 + 256;
    let address = |index: u32| {
        let [_, _, high, low] = (first + index).to_be_bytes();
        format!("10.3.{high}.{low}")
    };
    number.is_multiple_of(IN_HEADLESS).then(|| [0, 1, 2, 3].map(address))
}

/// Returns them as endpoints with host names.
pub(super) fn endpoints(pods: &[String]) -> Value {
    let endpoint = |(index, pod): (usize, &String)| json!({"addresses": [pod], "hostname": format!("pod-{index}"), "conditions": {"ready": true}});
    pods.iter().enumerate().map(endpoint).collect()
}

/// Returns the imports of a service and of the headless one beside it, and the slice of each from a cluster.
pub(super) fn objects(number: u32) -> Vec<Object> {
    let port = json!([{"name": "http", "protocol": "TCP", "port": 80}]);
    let virtual_ip = json!([{"addresses": [address(number)]}]);
    let service = imported(number, &format!("s{number}"), "ClusterSetIP", [&port, &virtual_ip]);
    let headless = pods(number)
        .map(|pods| imported(number, &format!("h{number}"), "Headless", [&json!([]), &endpoints(&pods)]));
    service.into_iter().chain(headless.into_iter().flatten()).collect()
}

fn imported(number: u32, name: &str, kind: &str, [ports, endpoints]: [&Value; 2]) -> [Object; 2] {
    let namespace = format!("n{}", number / IN_NAMESPACE);
    let mut import = Object::new(Kind::ServiceImport, ObjectMeta::new(namespace.as_str(), name));
    import.body.insert("spec".to_owned(), json!({"type": kind, "ports": ports}));
    let mut slice =
        Object::new(Kind::EndpointSlice, ObjectMeta::new(namespace.as_str(), format!("{name}-a")));
    let labels = [
        (label::MANAGED_BY, label::LIGHTHOUSE_AGENT),
        (label::SERVICE_NAME, name),
        (label::SOURCE_NAMESPACE, &namespace),
        (label::SOURCE_CLUSTER, "east"),
        (label::IS_HEADLESS, if kind == "Headless" { "true" } else { "false" }),
    ];
    slice.metadata.labels.extend(labels.map(|(key, value)| (key.to_owned(), value.to_owned())));
    slice.body.insert("addressType".to_owned(), json!("IPv4"));
    slice.body.insert("endpoints".to_owned(), endpoints.clone());
    slice.body.insert("ports".to_owned(), json!([{"name": "http", "protocol": "TCP", "port": 80}]));
    [import, slice]
}

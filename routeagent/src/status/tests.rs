use serde_json::{Value, json};
use trieste_control::api::{GoDuration, Object, Resource as _, RouteAgent};
use trieste_control::health::Latency;

use super::*;

/// What upstream's route agents wrote for these Endpoints on a gateway node and on a node without, before the first
/// answer and after some: ours say the same.
#[test]
fn the_status_is_what_upstream_writes_for_the_same_endpoints() {
    for (sample, count) in [(PLAIN, 3), (HA_PASSIVE, 3)] {
        let recorded = recorded(sample);
        assert_eq!(recorded.len(), count);
        for theirs in recorded {
            let specs: Vec<EndpointSpec> =
                theirs.status.remote_endpoints.iter().map(|remote| remote.spec.clone()).collect();
            let checking = if theirs.metadata.name == "a-gw1" {
                Checking::Gateway
            } else {
                Checking::Pings(Arc::new(views(&theirs)))
            };
            let mut ours = Content::new(&specs, &checking, Vec::new()).status;
            ours.version.clone_from(&theirs.status.version);
            assert_eq!(ours, theirs.status, "{}", theirs.metadata.name);
        }
    }
}

#[test]
fn a_gateway_that_cannot_be_reached_is_an_error_with_the_pingers_words() {
    let mut view = view(PingerStatus::Error);
    view.message = "Failed to successfully ping the remote endpoint IP \"10.2.1.1\"".to_owned();
    let remote = &content(&spec(), view.clone()).status.remote_endpoints[0];
    assert_eq!(remote.status, Some(ConnectionStatus::Error));
    assert_eq!((remote.status_message.as_str(), &remote.latency_rtt), (view.message.as_str(), &None));
    view.status = PingerStatus::Unknown;
    assert_eq!(content(&spec(), view).status.remote_endpoints[0].status, Some(ConnectionStatus::Error));
}

#[test]
fn whoever_is_not_asked_has_no_status_and_the_reason_is_said() {
    let said = |spec: &EndpointSpec, checking: &Checking| {
        let content = Content::new(std::slice::from_ref(spec), checking, Vec::new());
        let remote = content.status.remote_endpoints[0].clone();
        (remote.status.map(ConnectionStatus::as_str), remote.status_message)
    };
    let silent = EndpointSpec { health_check_ip: String::new(), ..spec() };
    let nothing = Checking::Pings(Arc::default());
    assert_eq!(said(&spec(), &Checking::Off), (Some("none"), "Health check is not enabled".to_owned()));
    assert_eq!(said(&silent, &nothing), (Some("none"), "Health checker IP is not configured".to_owned()));
    assert!(said(&spec(), &Checking::NoSource).1.contains("no address"));
    assert_eq!(said(&spec(), &nothing), (None, String::new()));
}

#[test]
fn an_answer_of_the_address_before_does_not_count() {
    let moved = EndpointSpec { health_check_ip: "10.2.9.9".to_owned(), ..spec() };
    assert_eq!(content(&moved, view(PingerStatus::Connected)).status.remote_endpoints[0].status, None);
}

#[test]
fn errors_are_the_failure_and_every_condition_is_listed_the_worst_first() {
    let conditions = [Condition::StrictReversePath, Condition::NoNft];
    let content = Content::new(&[], &Checking::Off, node_conditions(&conditions));
    assert_eq!(content.status.status_failure, Condition::NoNft.to_string());
    let names: Vec<_> = content.conditions.iter().map(|condition| condition.name.as_str()).collect();
    assert_eq!(names, ["NoNft", "StrictReversePath"]);
}

#[test]
fn what_others_can_fill_is_bounded() {
    let long = "x".repeat(5_000);
    let conditions: Vec<_> = (0..100)
        .map(|number| Condition::Failed { change: format!("{number} {long}"), error: String::new() })
        .collect();
    let mut huge = spec();
    huge.backend_config = (0..64).map(|key| (key.to_string(), long.clone())).collect();
    let content = Content::new(&vec![huge; 10], &Checking::Off, node_conditions(&conditions));
    assert_eq!(content.conditions.len(), MAX_CONDITIONS + 1);
    assert!(content.conditions[MAX_CONDITIONS].message.starts_with("and 69 more"));
    assert!(content.status.status_failure.chars().count() <= MAX_FAILURE);
    assert_eq!(content.status.remote_endpoints.len(), 3);
    assert!(serde_json::to_vec(&content.conditions).unwrap().len() < 64 * 1024);
}

#[test]
fn probes_leave_from_the_nodes_own_pod_addresses_and_stay_there() {
    let node = Node {
        tun: "submariner".to_owned(),
        pod_networks: vec!["10.1.0.0/16".parse().unwrap(), "fd00:1::/32".parse().unwrap()],
        ..Node::default()
    };
    let address = |device: &str, network: &str| DeviceAddress {
        device: device.to_owned(),
        network: network.parse().unwrap(),
    };
    let mut addresses: BTreeSet<_> = [
        address("cni0", "10.1.3.1/24"),
        address("cni0", "fd00:1:3::1/64"),
        address("eth0", "172.31.1.21/16"),
        address(VX_DEVICE, "240.31.1.21/8"),
        address("submariner", "10.1.9.9/32"),
    ]
    .into();
    let first = sources(&addresses, &node, &[]);
    assert_eq!(first, ["10.1.3.1", "fd00:1:3::1"].map(|text| text.parse::<IpAddr>().unwrap()));
    addresses.insert(address("a0", "10.1.3.99/32"));
    assert_eq!(sources(&addresses, &node, &first), first);
    assert_eq!(sources(&addresses, &node, &[])[0].to_string(), "10.1.3.99");
    assert!(sources(&BTreeSet::new(), &node, &first).is_empty());
}

const PLAIN: &str = include_str!("../../../control/tests/golden/plain/a-routeagents.yaml");
const HA_PASSIVE: &str = include_str!("../../../control/tests/golden/ha-passive/a-routeagents.yaml");

fn recorded(sample: &str) -> Vec<RouteAgent> {
    let list: Value = serde_saphyr::from_str(sample).unwrap();
    let items = list["items"].as_array().unwrap().clone();
    items
        .into_iter()
        .map(|item| RouteAgent::from_object(&Object::from_value(item).unwrap()).unwrap())
        .collect()
}

/// The pingers of a node that has written this object.
fn views(agent: &RouteAgent) -> BTreeMap<String, PingerView> {
    let remotes = agent.status.remote_endpoints.iter();
    remotes
        .map(|remote| {
            let rtt = remote.latency_rtt.clone();
            let time = |text: &str| text.parse::<GoDuration>().unwrap();
            let latency = rtt.map(|rtt| Latency {
                last: time(&rtt.last),
                min: time(&rtt.min),
                mean: time(&rtt.average),
                max: time(&rtt.max),
                std_dev: time(&rtt.std_dev),
            });
            let status = if latency.is_some() { PingerStatus::Connected } else { PingerStatus::Unknown };
            (remote.spec.cable_name.clone(), PingerView { latency, ..view(status) })
        })
        .collect()
}

fn view(status: PingerStatus) -> PingerView {
    let ip = "10.2.1.1".parse().unwrap();
    PingerView { status, message: String::new(), ip, latency: None, sent: 1, received: 1 }
}

fn spec() -> EndpointSpec {
    let spec = json!({"cluster_id": "b", "cable_name": "cable", "healthCheckIP": "10.2.1.1", "hostname": "b-gw1",
        "subnets": ["10.2.0.0/16"], "private_ip": "172.31.2.11", "public_ip": "", "nat_enabled": false,
        "backend": "wireguard"});
    serde_json::from_value(spec).unwrap()
}

fn content(spec: &EndpointSpec, view: PingerView) -> Content {
    let views = [(spec.cable_name.clone(), view)].into();
    Content::new(std::slice::from_ref(spec), &Checking::Pings(Arc::new(views)), Vec::new())
}

use serde_json::json;
use trieste_control::api::{Kind, ObjectMeta, annotation};

use super::*;

/// A gateway's object with connections: clusters, their states and round-trip times.
fn gateway(name: &str, ha: &str, connections: &[(&str, &str, &str)]) -> Object {
    let endpoint = |cluster: &str| {
        json!({"cluster_id": cluster, "cable_name": "c", "hostname": "h", "private_ip": "10.0.0.1",
            "public_ip": "", "subnets": [], "nat_enabled": false, "backend": "wireguard"})
    };
    let connection = |(cluster, status, rtt): &(&str, &str, &str)| {
        json!({"status": status, "statusMessage": "", "endpoint": endpoint(cluster), "latencyRTT": {
            "last": rtt, "min": rtt, "average": rtt, "max": rtt, "stdDev": "0s"}})
    };
    let mut object = Object::new(Kind::Gateway, ObjectMeta::new("submariner-operator", name));
    let connections: Vec<_> = connections.iter().map(connection).collect();
    let status = json!({"version": "1", "haStatus": ha, "localEndpoint": endpoint("west"), "statusFailure": "",
        "connections": connections});
    object.body.insert("status".to_owned(), status);
    object
}

fn reach() -> Reach {
    Reach::new(HealthConfig::default())
}

fn shown(changes: &[Change]) -> Vec<String> {
    let word = |is_up| if is_up { "up" } else { "down" };
    let show = |change: &Change| {
        if let Change::Cluster(cluster, state) = change {
            format!("{cluster} {}", state.map_or("unknown", |state| word(state.is_up)))
        } else if let Change::UnknownClusters { are_up } = change {
            format!("unknown {}", word(*are_up))
        } else {
            format!("{change:?}")
        }
    };
    changes.iter().map(show).collect()
}

fn applied(reach: &mut Reach, object: Object, now: Instant) -> Vec<String> {
    shown(&reach.handle(StoreEvent::Applied(object), now))
}

#[test]
fn a_cluster_is_down_when_no_gateway_is_connected_to_it() {
    let (mut reach, now) = (reach(), Instant::now());
    let first = gateway("a", "active", &[("east", "connected", "3ms"), ("south", "connecting", "")]);
    let changes = shown(&reach.handle(StoreEvent::Listed(vec![first]), now));
    assert_eq!(changes, ["east up", "south down", "unknown down"]);
    assert!(reach.is_listed());
    assert_eq!(applied(&mut reach, gateway("b", "active", &[("east", "connected", "2ms")]), now), [""; 0]);
    assert_eq!(applied(&mut reach, gateway("a", "active", &[("east", "error", "")]), now), [""; 0]);
    let down = gateway("b", "active", &[("east", "connecting", "")]);
    assert_eq!(applied(&mut reach, down, now), ["east down"]);
    let up = gateway("b", "active", &[("east", "connected", "2ms")]);
    assert_eq!(applied(&mut reach, up, now), [""; 0], "it is held");
    let until = reach.poll_timeout().unwrap();
    assert_eq!(shown(&reach.handle_timeout(until)), ["east up"]);
}

#[test]
fn a_connection_that_vanishes_leaves_its_cluster_as_it_was() {
    let (mut reach, now) = (reach(), Instant::now());
    let both = gateway("a", "active", &[("east", "connected", "3ms"), ("south", "error", "")]);
    applied(&mut reach, both, now);
    assert_eq!(applied(&mut reach, gateway("a", "active", &[]), now), [""; 0]);
}

#[test]
fn a_cluster_that_no_path_of_its_gateways_reaches_is_out_whatever_the_status_says() {
    let (mut reach, now) = (reach(), Instant::now());
    let connected = || gateway("a", "active", &[("east", "connected", ""), ("south", "connected", "")]);
    let lost = |mut object: Object, clusters: &str| {
        object.metadata.annotations.insert(annotation::UNREACHABLE.to_owned(), clusters.to_owned());
        object
    };
    assert_eq!(applied(&mut reach, connected(), now), ["east up", "south up", "unknown down"]);
    assert_eq!(applied(&mut reach, lost(connected(), "south"), now), ["south down"]);
    let other = gateway("b", "active", &[("south", "connected", "")]);
    assert_eq!(
        applied(&mut reach, other.clone(), now),
        [""; 0],
        "another gateway reaches it: held for a while"
    );
    assert_eq!(applied(&mut reach, lost(other, "east,south"), now), [""; 0]);
    assert_eq!(applied(&mut reach, lost(connected(), ""), now), [""; 0]);
    let until = reach.poll_timeout().unwrap();
    assert_eq!(shown(&reach.handle_timeout(until)), ["south up"]);
}

#[test]
fn without_an_active_gateway_nothing_is_known() {
    let (mut reach, now) = (reach(), Instant::now());
    assert_eq!(shown(&reach.handle_absent(now)), [""; 0]);
    assert!(reach.is_listed());
    let object = gateway("a", "active", &[("east", "error", "")]);
    assert_eq!(applied(&mut reach, object.clone(), now), ["east down", "unknown down"]);
    let passive = gateway("a", "passive", &[]);
    assert_eq!(applied(&mut reach, passive, now), ["east unknown", "unknown up"]);
    assert_eq!(applied(&mut reach, object.clone(), now), ["east down", "unknown down"]);
    assert_eq!(shown(&reach.handle(StoreEvent::Deleted(object), now)), ["east unknown", "unknown up"]);
}

#[test]
fn a_status_that_has_no_space_for_all_says_nothing_of_the_others() {
    let (mut reach, now) = (reach(), Instant::now());
    let mut object = gateway("a", "active", &[("east", "connected", "")]);
    let left_out = json!({"connected": 3, "others": 0}).to_string();
    object.metadata.annotations.insert(annotation::CONNECTIONS_LEFT_OUT.to_owned(), left_out);
    assert_eq!(applied(&mut reach, object, now), ["east up"]);
}

#[test]
fn an_object_that_cannot_be_read_changes_nothing() {
    let (mut reach, now) = (reach(), Instant::now());
    let mut object = gateway("a", "active", &[("east", "connected", "")]);
    applied(&mut reach, object.clone(), now);
    object.body.insert("status".to_owned(), json!("nonsense"));
    assert_eq!(applied(&mut reach, object, now), [""; 0]);
    let odd = gateway("a", "active", &[("no.label", "connected", ""), ("east", "connected", "soon")]);
    assert_eq!(applied(&mut reach, odd, now), [""; 0]);
}

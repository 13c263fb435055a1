//! Questions to servers on loopback, and records of one moment.

use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;

use trieste_control::api::Object;
use trieste_discovery::ask::{AskError, Question, ServerAddress, ask};
use trieste_discovery::dns::snapshot::Snapshot;
use trieste_discovery::dns::{tcp, udp};
use trieste_dns::{Label, ServiceName};

use crate::fixture::{WEB, global_slice, import, own_slice, settings, slice};

fn snapshot(imports: &[Object], slices: &[Object]) -> Snapshot {
    Snapshot::new(Label::new("west").unwrap(), imports, slices, &[])
}

#[tokio::test]
async fn a_server_of_either_family_is_asked_and_one_that_does_not_fit_over_tcp() {
    let many: Vec<String> = (0..200).map(|last| format!("10.2.0.{last}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let snapshot = snapshot(&[import("Headless")], &[slice("a", "east", &many)]);
    let settings = Arc::new(settings());
    for at in ["127.0.0.1:0", "[::1]:0"] {
        let workers = udp::begin(at.parse().unwrap(), 1, snapshot.records(), &settings).unwrap();
        let address = workers[0].address();
        let server = Arc::new(tcp::Server::new(snapshot.records().clone(), Arc::clone(&settings)));
        let (_stop, is_stopping) = tokio::sync::watch::channel(false);
        tokio::spawn(tcp::serve(tcp::bind(address).unwrap(), server, is_stopping));
        let asked = ask(&Question::new(WEB, "A").unwrap(), ServerAddress(address)).await.unwrap();
        assert_eq!((asked.code.as_str(), asked.addresses().len(), asked.is_over_tcp), ("NOERROR", 200, true));
        let other = Question::new("no.shop.svc.clusterset.local", "AAAA").unwrap();
        let other = ask(&other, ServerAddress(address)).await.unwrap();
        assert_eq!((other.code.as_str(), other.addresses().len(), other.is_over_tcp), ("NXDOMAIN", 0, false));
        assert!(
            other.to_string().starts_with("no.shop.svc.clusterset.local AAAA: NXDOMAIN from "),
            "{other}"
        );
        workers.into_iter().for_each(udp::Worker::stop);
    }
}

#[tokio::test]
async fn no_server_and_invalid_replies_are_told_apart() {
    let question = Question::new(WEB, "A").unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let replies = std::thread::spawn(move || {
        for _ in 0..2 {
            let (_, from) = socket.recv_from(&mut [0; 512]).unwrap();
            socket.send_to(b"hello", from).unwrap();
        }
    });
    assert!(matches!(ask(&question, ServerAddress(address)).await, Err(AskError::Invalid(_))));
    replies.join().unwrap();
    assert!(
        matches!(ask(&question, ServerAddress(address)).await, Err(AskError::Socket(..))),
        "nobody listens"
    );
}

#[test]
fn own_pods_of_a_snapshot_take_the_place_of_their_global_addresses() {
    let mut foreign = slice("c", "north", &["10.9.0.1"]);
    foreign.metadata.labels.remove(trieste_control::api::label::MANAGED_BY);
    let slices = [global_slice("a", "west", &["242.0.0.1"]), slice("b", "east", &["242.1.0.1"]), foreign];
    let mut snapshot = snapshot(&[import("Headless")], &slices);
    let wanted = snapshot.wanted();
    assert_eq!(wanted, [("shop".to_owned(), "web".to_owned())].into());
    snapshot.add_own(&wanted.into_iter().next().unwrap(), vec![own_slice("web-x", "web", &["10.1.0.7"])]);
    let found = snapshot.records().survey(&ServiceName::parse("shop", "web").unwrap()).unwrap();
    let addresses: Vec<IpAddr> =
        found.clusters.iter().flat_map(|cluster| cluster.addresses.clone()).collect();
    assert_eq!(addresses, ["242.1.0.1", "10.1.0.7"].map(|text| text.parse::<IpAddr>().unwrap()));
    assert!(snapshot.unusable().is_empty() && snapshot.records().is_synced());
}

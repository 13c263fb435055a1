use std::time::Duration;

use ring::signature::{Ed25519KeyPair, KeyPair as _};
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use trieste_control::api::{Kind, Object, ObjectKey, ObjectMeta};
use trieste_control::globalnet::{GlobalnetPhase, GlobalnetState, GlobalnetStatus, PoolFill, Problem};
use trieste_control::store::{AnyStore, DirStore, Store as _, modify};

use super::protocol::*;
use super::serve::{Received, Server};
use crate::globalnet::process::run::connect;

const NS: &str = "submariner-operator";

/// A gateway's side in a store of its own, with its Gateway object.
struct Bed {
    server: Server,
    store: AnyStore,
    socket: String,
    _root: tempfile::TempDir,
}

impl Bed {
    async fn new(cluster: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        let store: AnyStore = DirStore::open(root.path()).unwrap().into();
        let mut gateway = Object::new(Kind::Gateway, ObjectMeta::new(NS, "gw1"));
        let status = serde_json::json!({"version": "v1", "haStatus": "active", "statusFailure": "", "connections": [],
            "localEndpoint": {"cluster_id": "a", "cable_name": "c", "hostname": "gw1", "subnets": [],
                "private_ip": "192.0.2.1", "public_ip": "", "nat_enabled": false, "backend": "wireguard"}});
        gateway.body.insert("status".to_owned(), status);
        store.create(gateway).await.unwrap();
        let server = Server::open(NS, cluster, "gw1", &store);
        Self { server, store, socket: socket_name(NS, cluster), _root: root }
    }

    async fn publish(&self, key: &Ed25519KeyPair) {
        let key_text = hex(key.public_key().as_ref());
        let gateway = ObjectKey::new(Kind::Gateway, NS, "gw1");
        modify(&self.store, &gateway, |object| {
            object.metadata.annotations.insert(ANNOTATION.to_owned(), key_text.clone());
        })
        .await
        .unwrap();
    }

    /// Connects and signs with this key; gives the connection, and why it was refused.
    async fn connect_as(&self, key: &Ed25519KeyPair, version: u32) -> (UnixStream, Option<String>) {
        let mut stream = loop {
            match connect(&self.socket) {
                Ok(stream) => break stream,
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        };
        let challenge: Challenge = receive(&mut stream, MAX_HELLO).await.unwrap();
        let signature = hex(key.sign(&challenge.message()).as_ref());
        send(&mut stream, &Hello { version, signature }).await.unwrap();
        let answer: Answer = receive(&mut stream, MAX_HELLO).await.unwrap();
        (stream, answer.refused)
    }

    /// Waits until what is received is so.
    async fn received(&self, is_good: impl Fn(&Received) -> bool) -> Received {
        let mut received = self.server.received.clone();
        tokio::time::timeout(Duration::from_secs(20), received.wait_for(is_good))
            .await
            .unwrap()
            .unwrap()
            .clone()
    }
}

fn key(byte: u8) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[byte; 32]).unwrap()
}

fn report(allocated: u32) -> Report {
    let pool = PoolFill {
        cidr: "242.1.0.0/16".parse().unwrap(),
        size: 65_534,
        allocated,
        cluster_egress: 8,
        egress: 0,
        ingress: 0,
        gateways: 1,
    };
    let problem = Problem { name: "GlobalCidrOverlap", subject: "s".to_owned(), message: "m".to_owned() };
    let state = GlobalnetState {
        global_cidr: Some(pool.cidr),
        pool: Some(pool),
        problems: vec![problem],
        ..GlobalnetState::default()
    };
    let status = GlobalnetStatus { phase: GlobalnetPhase::Settled, ..GlobalnetStatus::default() };
    Report::of(Some(&state), &status, "gw1-submariner-gateway".to_owned())
}

#[tokio::test]
async fn what_the_named_process_says_arrives_whole_and_stays_when_it_has_gone() {
    let bed = Bed::new("whole").await;
    bed.publish(&key(1)).await;
    let (mut stream, refused) = bed.connect_as(&key(1), VERSION).await;
    assert_eq!(refused, None);
    send(&mut stream, &report(9)).await.unwrap();
    let received = bed.received(|received| received.work.is_some()).await;
    let state = received.state.unwrap();
    assert!(received.is_connected && state.pool.unwrap().allocated == 9);
    assert_eq!(state.problems[0].name, "GlobalCidrOverlap");
    drop(stream);
    let received = bed.received(|received| !received.is_connected).await;
    assert!(received.work.is_some(), "what was said last is still known");

    // It is started anew, and while it is there another one of the same account takes its place.
    bed.publish(&key(2)).await;
    let (mut second, refused) = bed.connect_as(&key(2), VERSION).await;
    assert_eq!(refused, None);
    bed.publish(&key(3)).await;
    let (mut third, refused) = bed.connect_as(&key(3), VERSION).await;
    assert_eq!(refused, None);
    send(&mut third, &report(11)).await.unwrap();
    bed.received(|received| {
        let pool = received.state.as_ref().and_then(|state| state.pool);
        pool.is_some_and(|pool| pool.allocated == 11)
    })
    .await;
    assert!(receive::<Answer>(&mut second, MAX_HELLO).await.is_err(), "the one before is hung up on");
    assert!(bed.server.received.borrow().is_connected);
}

#[tokio::test]
async fn whoever_is_not_named_by_the_gateway_object_is_not_believed() {
    let bed = Bed::new("strangers").await;
    let (_, refused) = bed.connect_as(&key(1), VERSION).await;
    assert!(refused.unwrap().contains(ANNOTATION), "nobody is named");
    bed.publish(&key(1)).await;
    let (mut stream, refused) = bed.connect_as(&key(2), VERSION).await;
    assert!(refused.unwrap().contains("another key"));
    let _ = send(&mut stream, &report(9)).await;
    let (_, refused) = bed.connect_as(&key(1), VERSION + 1).await;
    assert!(refused.unwrap().contains("use one image for both"));
    assert!(!bed.server.received.borrow().is_connected && bed.server.received.borrow().work.is_none());
}

#[tokio::test]
async fn frames_that_are_too_long_malformed_or_cut_end_a_connection_and_cost_no_memory() {
    let bed = Bed::new("frames").await;
    bed.publish(&key(1)).await;
    for bytes in [&u32::MAX.to_be_bytes()[..], &[0, 0, 0, 2, b'{', b'}'][..], &[0, 0, 0, 9, b'{'][..]] {
        let (mut stream, refused) = bed.connect_as(&key(1), VERSION).await;
        assert_eq!(refused, None);
        stream.write_all(bytes).await.unwrap();
        if bytes.len() == 5 {
            drop(stream);
        } else {
            assert!(receive::<Answer>(&mut stream, MAX_HELLO).await.is_err(), "{bytes:?}");
        }
        bed.received(|received| !received.is_connected).await;
    }
    assert!(bed.server.received.borrow().work.is_none());
}

#[tokio::test]
async fn those_who_say_nothing_keep_nobody_out_for_long() {
    let bed = Bed::new("silent").await;
    bed.publish(&key(1)).await;
    let (first, _) = bed.connect_as(&key(1), VERSION).await;
    let silent: Vec<UnixStream> = (0..5).filter_map(|_| connect(&bed.socket).ok()).collect();
    let connected =
        tokio::time::timeout(Duration::from_secs(60), bed.connect_as(&key(1), VERSION)).await.unwrap();
    assert_eq!(connected.1, None);
    drop((first, silent));
}

#[test]
fn hexadecimal_is_read_back_and_nonsense_is_not() {
    assert_eq!(unhex(&hex(&[0, 1, 254])), Some(vec![0, 1, 254]));
    for text in ["0", "zz", "0é", "+1"] {
        assert_eq!(unhex(text).filter(|bytes| hex(bytes) == text), None, "{text}");
    }
}

//! Sockets on loopback give answers, and end when they are told to.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use trieste_discovery::dns::{tcp, udp};
use trieste_dns::{Answer, Change, Endpoint, Import, Label, QueryType, Records, ServiceName, Slice, Writer};

use crate::fixture::{WEB, addresses, query, settings};

const PATIENCE: Duration = Duration::from_secs(30);

/// `web` in cluster east.
fn records() -> Records {
    let (mut writer, records) = Writer::new(Label::new("west").unwrap());
    let name = ServiceName::parse("shop", "web").unwrap();
    let endpoint = Endpoint { addresses: vec!["10.2.0.1".parse().unwrap()], host: None, is_ready: true };
    let slice = Slice { endpoints: vec![endpoint], ..Slice::default() };
    writer.apply(Change::Import(name.clone(), Import::default())).unwrap();
    writer.apply(Change::Slice(name, Label::new("east").unwrap(), "a".into(), slice)).unwrap();
    writer.apply(Change::Synced).unwrap();
    records
}

#[test]
fn threads_answer_datagrams_of_both_families_and_end_with_what_has_arrived_answered() {
    for (any, from) in [("127.0.0.1:0", "127.0.0.1:0"), ("[::]:0", "[::1]:0"), ("[::]:0", "127.0.0.1:0")] {
        let workers = udp::begin(any.parse().unwrap(), 3, &records(), &Arc::new(settings())).unwrap();
        assert_eq!(workers.len(), 3);
        let client = UdpSocket::bind(from).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client
            .connect(SocketAddr::new(client.local_addr().unwrap().ip(), workers[0].address().port()))
            .unwrap();
        let query = query(WEB);
        let answered = |count: u32| {
            for _ in 0..count {
                let mut reply = [0; 2_048];
                let length = client.recv(&mut reply).unwrap();
                assert_eq!(addresses(&reply[..length], query.len()), (0, vec!["10.2.0.1".to_owned()]));
            }
        };
        client.send(&query).unwrap();
        answered(1);
        for _ in 0..50 {
            client.send(&query).unwrap();
        }
        let states: Vec<_> = workers.iter().map(|worker| Arc::clone(&worker.state)).collect();
        assert!(!states.iter().any(|state| state.has_ended()));
        workers.into_iter().for_each(udp::Worker::stop);
        assert!(states.iter().all(|state| state.has_ended()));
        let counted = states.iter().map(|state| state.counters.answers(QueryType::A, Answer::Records));
        assert_eq!(counted.sum::<u64>(), 51, "{any} from {from}");
        answered(50);
    }
}

#[tokio::test]
async fn connections_are_answered_until_they_are_idle_at_the_end() {
    let server = Arc::new(tcp::Server::new(records(), Arc::new(settings())));
    let listener = tcp::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, is_stopping) = watch::channel(false);
    let serving = tokio::spawn(tcp::serve(listener, Arc::clone(&server), is_stopping));
    let mut client = TcpStream::connect(address).await.unwrap();
    let query = query(WEB);
    let framed = [&u16::try_from(query.len()).unwrap().to_be_bytes()[..], &query].concat();
    client.write_all(&framed.repeat(3)).await.unwrap();
    for _ in 0..3 {
        let length = client.read_u16().await.unwrap();
        let mut reply = vec![0; length.into()];
        client.read_exact(&mut reply).await.unwrap();
        assert_eq!(addresses(&reply, query.len()).1, ["10.2.0.1"]);
    }
    assert_eq!(server.connections(), 1);
    stop.send(true).unwrap();
    timeout(PATIENCE, serving).await.unwrap().unwrap();
    assert_eq!(timeout(PATIENCE, client.read(&mut [0; 8])).await.unwrap().unwrap(), 0, "it was not closed");
    timeout(PATIENCE, stop.closed()).await.unwrap();
    assert_eq!(server.connections(), 0);
}

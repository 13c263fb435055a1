//! Ways to a server, and what happens when it dies.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use trieste_ovsdb::operation::Operation;
use trieste_ovsdb::outcome::TransactError;
use trieste_ovsdb::replica::Replica;

use crate::follower::{Follower, texts};
use crate::server::Server;

#[tokio::test]
async fn plugin_ovn_db_a_replica_comes_over_unix_sockets_and_tcp_of_both_families() {
    let server = Server::start(&["--remote=ptcp:0:127.0.0.1", "--remote=ptcp:0:[::1]"]);
    server.nbctl(&["lr-add", "one"]);
    let tcp = format!("tcp:127.0.0.1:{}", server.port("127.0.0.1"));
    let tcp6 = format!("tcp:[::1]:{}", server.port("[::1]"));
    for remote in [server.unix(), tcp, tcp6, format!("unix:/nothing,{}", server.unix())] {
        let mut follower = Follower::new(&remote);
        let replica = follower.synced().await;
        assert_eq!(texts(&replica, "Logical_Router", "name"), ["one"], "{remote}");
        assert!(replica.version().is_some());
        assert!(replica.table("A_Table_Of_The_Future").is_none());
        assert!(replica.table("Logical_Router_Policy").is_some_and(trieste_ovsdb::replica::Table::is_empty));
    }
}

#[tokio::test]
async fn plugin_ovn_db_a_server_that_dies_and_returns_is_followed_again() {
    let mut server = Server::start(&[]);
    server.nbctl(&["lr-add", "one", "--", "lr-add", "two"]);
    let mut follower = Follower::new(&server.unix());
    let before = follower.synced().await;

    server.kill();
    let lost = follower.until("lost", |replica| !replica.is_synced()).await;
    assert_eq!(lost.differences(&before), [], "it stays as it was");
    let refused = follower.client.transact(vec![Operation::Comment("a".to_owned())]).await;
    assert_eq!(refused, Err(TransactError::NotConnected));

    server.restart();
    server.nbctl(&["lr-del", "one", "--", "lr-add", "three"]);
    let is_back = |replica: &Replica| {
        replica.is_synced() && texts(replica, "Logical_Router", "name") == ["three", "two"]
    };
    let after = follower.until("back", is_back).await;
    assert!(after.generation() > before.generation());
    assert_eq!(after.differences(&before).len(), 2, "one router less, one more");

    let stale = follower.client.transact_on(before.generation(), Vec::new()).await;
    assert_eq!(stale, Err(TransactError::Stale));
    assert_eq!(follower.client.transact_on(after.generation(), Vec::new()).await, Ok(Vec::new()));
}

#[tokio::test]
async fn plugin_ovn_db_a_server_that_falls_silent_is_left_and_followed_again() {
    let server = Server::start(&[]);
    let mut follower = Follower::new(&server.unix());
    follower.synced().await;
    server.signal(Signal::SIGSTOP);
    let pending = follower.client.transact(vec![Operation::Comment("a".to_owned())]).await;
    assert_eq!(pending, Err(TransactError::Lost), "nobody knows what became of it");
    assert!(!follower.replica.borrow().is_synced());
    server.signal(Signal::SIGCONT);
    follower.synced().await;
}

#[tokio::test]
async fn plugin_ovn_db_servers_of_other_protocols_are_passed_over() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let strange = format!("tcp:{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        // An HTTP server, then one that closes at once, then one whose object never ends.
        for text in ["HTTP/1.1 400 Bad Request\r\n\r\n", "", "{\"method\":\"update"] {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(text.as_bytes()).await.unwrap();
        }
    });
    let server = Server::start(&[]);
    let mut follower = Follower::new(&format!("{strange},{strange},{strange},{}", server.unix()));
    follower.synced().await;

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let alone = Follower::new(&format!("tcp:{}", listener.local_addr().unwrap()));
    let (mut stream, _) = listener.accept().await.unwrap();
    stream.write_all(b"[]").await.unwrap();
    assert_eq!(alone.failed("").await, "invalid message: not a JSON object");
}

#[tokio::test]
async fn plugin_ovn_db_a_client_that_is_dropped_leaves_the_server() {
    let server = Server::start(&[]);
    let Follower { client, mut replica } = Follower::new(&server.unix());
    replica.wait_for(Replica::is_synced).await.unwrap();
    drop(client);
    while replica.changed().await.is_ok() {}
}

/// What was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn plugin_ovn_db_a_server_that_is_lost_for_long_is_logged_once_and_once_when_it_is_back() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    // For all threads: what is logged for the first time on one without a subscriber would be of no interest from then on.
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let mut server = Server::start(&[]);
    let mut follower = Follower::new(&server.unix());
    follower.synced().await;
    server.kill();
    follower.failed("cannot connect").await;
    // Several tries later.
    tokio::time::sleep(Duration::from_secs(2)).await;
    server.restart();
    follower.synced().await;
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    // Other tests log too.
    let remote = server.unix();
    let own: Vec<&str> = log.lines().filter(|line| line.contains(&remote)).collect();
    let log = own.join("\n");
    assert_eq!(log.matches("WARN").count(), 1, "{log}");
    assert_eq!(log.matches("database unavailable").count(), 1, "{log}");
    assert_eq!(log.matches("database connected").count(), 2, "{log}");
}

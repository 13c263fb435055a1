//! A clustered database of three servers.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use trieste_ovsdb::operation::Operation;
use trieste_ovsdb::options::{ClientOptions, Status};
use trieste_ovsdb::replica::Replica;
use trieste_ovsdb::value::Row;

use crate::follower::{Follower, options, spec, texts};
use crate::server::{SCHEMA, Server, run};

/// Three servers; their folder ends with them.
struct Cluster {
    servers: Vec<Server>,
    _folder: tempfile::TempDir,
}

impl Cluster {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // The servers cannot let the kernel choose a port for what they say to each other. On an address of this test
        // alone nobody takes a port that was free a moment ago.
        static TESTS: AtomicU8 = AtomicU8::new(64);
        let [.., high, low] = std::process::id().to_be_bytes();
        let address = Ipv4Addr::new(127, TESTS.fetch_add(1, Ordering::Relaxed), high, low);
        let ports: Vec<TcpListener> = (0..3).map(|_| TcpListener::bind((address, 0)).unwrap()).collect();
        let addresses: Vec<String> =
            ports.iter().map(|port| format!("tcp:{}", port.local_addr().unwrap())).collect();
        drop(ports);
        let servers = addresses.iter().enumerate().map(|(number, address)| {
            let directory = folder.path().join(number.to_string());
            std::fs::create_dir(&directory).unwrap();
            let file = directory.join("nb.db").display().to_string();
            if number == 0 {
                run("ovsdb-tool", &["create-cluster", &file, SCHEMA, address]);
            } else {
                run("ovsdb-tool", &["join-cluster", &file, "OVN_Northbound", address, &addresses[0]]);
            }
            Server::in_folder(&directory, &[])
        });
        let cluster = Self { servers: servers.collect(), _folder: folder };
        cluster.until("all have joined", |cluster| {
            cluster.servers.iter().all(|server| status(server).contains("Status: cluster member"))
        });
        cluster
    }

    fn until(&self, what: &str, reached: impl Fn(&Self) -> bool) {
        let until = Instant::now() + Duration::from_secs(30);
        while !reached(self) {
            assert!(Instant::now() < until, "not reached: {what}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn leader(&self) -> Option<usize> {
        self.servers.iter().position(|server| server.is_running() && status(server).contains("Role: leader"))
    }

    fn remotes(&self) -> String {
        self.servers.iter().map(Server::unix).collect::<Vec<_>>().join(",")
    }
}

fn status(server: &Server) -> String {
    server.appctl(&["cluster/status", "OVN_Northbound"])
}

/// Which server a client has its session with.
fn remote(follower: &Follower) -> Option<String> {
    match &*follower.client.status().borrow() {
        Status::Synced { remote } => Some(remote.clone()),
        Status::Connecting | Status::Failed { .. } => None,
    }
}

fn add(name: &str) -> Vec<Operation> {
    let row = Row::from([("name".to_owned(), name.into())]);
    vec![Operation::Insert { table: "Logical_Router".to_owned(), row, uuid_name: None }]
}

#[tokio::test(flavor = "multi_thread")]
async fn plugin_ovn_db_a_client_stays_with_the_leader_wherever_it_goes() {
    let mut cluster = Cluster::start();
    let mut follower = Follower::new(&cluster.remotes());
    follower.synced().await;
    let leader = cluster.leader().unwrap();
    assert_eq!(remote(&follower), Some(cluster.servers[leader].unix()));
    follower.client.transact(add("one")).await.unwrap();

    // The leader resigns: its server goes on, and is left.
    let before = follower.replica.borrow().generation();
    cluster.servers[leader].appctl(&["cluster/failure-test", "transfer-leadership"]);
    follower
        .until("with the next leader", |replica| replica.is_synced() && replica.generation() > before)
        .await;
    cluster.until("elected", |cluster| cluster.leader().is_some_and(|now| now != leader));
    let next = cluster.leader().unwrap();
    let at = cluster.servers[next].unix();
    follower.until_status(&Status::Synced { remote: at }).await;
    follower.client.transact(add("two")).await.unwrap();

    // The leader dies.
    cluster.servers[next].kill();
    let names = |replica: &Replica| texts(replica, "Logical_Router", "name");
    follower.until("lost", |replica| !replica.is_synced()).await;
    follower
        .until("with the third leader", |replica| replica.is_synced() && names(replica) == ["one", "two"])
        .await;
    follower.client.transact(add("three")).await.unwrap();
    assert_eq!(names(&follower.replica.borrow()), ["one", "three", "two"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn plugin_ovn_db_a_follower_is_left_unless_followers_will_do() {
    let mut cluster = Cluster::start();
    cluster.until("elected", |cluster| cluster.leader().is_some());
    let leader = cluster.leader().unwrap();
    let other = (leader + 1) % 3;
    let remote = cluster.servers[other].unix();
    let strict = Follower::new(&remote);
    assert_eq!(strict.failed("leader").await, "server is not the leader of the cluster");

    let options = ClientOptions { leader_only: false, ..options() };
    let mut relaxed = Follower::with(&remote, spec(), options);
    relaxed.synced().await;
    // A follower passes transactions on to the leader.
    relaxed.client.transact(add("one")).await.unwrap();
    relaxed.until("replicated", |replica| texts(replica, "Logical_Router", "name") == ["one"]).await;

    // Alone, it has lost the cluster.
    for number in 0..3 {
        if number != other {
            cluster.servers[number].kill();
        }
    }
    assert_eq!(relaxed.failed("cluster").await, "server is not connected to the cluster");
    relaxed.until("lost", |replica| !replica.is_synced()).await;
}

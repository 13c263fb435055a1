//! The pages of the program.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use trieste_control::store::{AnyStore, Location, Store as _};

use crate::worker::{PATIENCE, Worker, command_for, route};

/// Returns an address that nobody listens at.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Returns the answer to a request; `None` if there is none.
fn get(address: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: worker\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// Waits until a page has all of these lines.
fn has_lines(address: SocketAddr, path: &str, lines: &[&str]) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = get(address, path).unwrap_or_default();
        if lines.iter().all(|line| answer.lines().any(|found| found == *line)) {
            return;
        }
        assert!(Instant::now() < deadline, "expected {lines:?} on {path}, found {answer}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[tokio::test]
async fn the_controllers_numbers_are_served_where_that_is_wanted() {
    let directory = tempfile::tempdir().unwrap();
    let store = AnyStore::open(&Location::Dir(directory.path().join("store"))).unwrap();
    store.create(route("b", "10.2.0.0/16")).await.unwrap();
    for (plugin, controller, writes) in [("calico", "calico-pools", 1), ("spiderpool", "spiderpool-lists", 0)]
    {
        let address = free_address();
        let mut command = command_for(plugin, directory.path(), plugin);
        let worker = Worker(command.arg(format!("--metrics={address}")).spawn().unwrap());
        let lines = [
            format!("trieste_controller_writes_total{{controller=\"{controller}\"}} {writes}"),
            format!("workqueue_depth{{name=\"{controller}\"}} 0"),
            format!("trieste_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION")),
        ];
        has_lines(address, "/metrics", &lines.each_ref().map(String::as_str));
        for path in ["/health", "/ready"] {
            has_lines(address, path, &["HTTP/1.1 200 OK", "OK"]);
        }
        assert!(get(address, "/elsewhere").is_some_and(|answer| answer.starts_with("HTTP/1.1 404")));
        drop(worker);
        assert_eq!(get(address, "/metrics"), None);
    }
}

#[tokio::test]
async fn an_address_that_is_taken_is_named_with_its_setting() {
    let directory = tempfile::tempdir().unwrap();
    let store = AnyStore::open(&Location::Dir(directory.path().join("store"))).unwrap();
    store.create(route("b", "10.2.0.0/16")).await.unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let mut command = command_for("calico", directory.path(), "one");
    let output = command.arg(format!("--metrics={address}")).stderr(std::process::Stdio::piped());
    let output = output.output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains(&address.to_string()) && error.contains("TRIESTE_SYNC_METRICS"), "{error}");
}
